"""No child interpreter takes code from the current folder."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from barnabas.proxy.processes.interpreter import python

STARTING = re.compile(r"multiprocessing|executable|ProcessPoolExecutor")
PRODUCT = ("captures", "decoder", "plugins", "proxy", "ui")
THE_WAY = "proxy/processes/interpreter.py"
ELSEWHERE = {"captures/spark/session.py"}
"""Tells Spark which interpreter its workers are; Spark itself starts them."""


def test_the_command_is_safe() -> None:
    assert python("proxy.relay.loop", "7") == [sys.executable, "-P", "-m", "barnabas.proxy.relay.loop", "7"]
    assert python("", "ui") == [sys.executable, "-P", "-m", "barnabas", "ui"]


def test_nothing_else_starts_an_interpreter(repository: Path) -> None:
    """`sys.executable`, processes of multiprocessing and concurrent.futures: all would read the current folder first."""
    found = []
    for folder in PRODUCT:
        for path in sorted((repository / folder).rglob("*.py")):
            name, text = path.relative_to(repository).as_posix(), path.read_text("utf-8")
            for node in ast.walk(ast.parse(text if STARTING.search(text) else "")):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                starts = any(module.partition(".")[0] == "multiprocessing" for module in modules)
                starts |= isinstance(node, ast.Attribute) and node.attr in ("executable", "ProcessPoolExecutor", "_base_executable")
                starts |= isinstance(node, ast.Name) and node.id == "ProcessPoolExecutor"
                if starts and name not in (*ELSEWHERE, THE_WAY):
                    found.append(f"{name}:{getattr(node, 'lineno', 0)}")
    assert found == []


@pytest.mark.parametrize("module", ["ui.tui.model.background_analysis", "ui.demo.cluster", "proxy.relay.loop", "proxy.processes.fork_server", ""])
def test_a_hostile_folder_runs_nothing(tmp_path: Path, module: str) -> None:
    """Modules in the current folder that have the names of the standard library's, and of ours."""
    mark = tmp_path / "was here"
    for name in ("json", "socket", "struct", "pickle", "typing", "barnabas", "asyncio", "select"):
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\nraise SystemExit(9)\n")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    subprocess.run(python(module), cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert not mark.exists()
