"""The command line as a whole: each command is there, and a call imports its own only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.ui.cli import COMMANDS

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_help_lists_every_command(run: Run) -> None:
    shown = run("--help").stdout
    assert all(f" {name} " in shown for name in COMMANDS)
    assert "proxy" in run("nothing").stderr or run("nothing").returncode == 2


def test_every_module_is_a_command_or_used_by_one() -> None:
    import barnabas.ui.cli as cli

    folder = Path(cli.__file__).parent
    source = "\n".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    modules = {command.module for command in COMMANDS.values()}
    for path in folder.glob("*.py"):
        name = path.stem
        assert (
            name in modules or name == "__init__" or f"from .{name} import" in source or f"import {name}" in source
        ), name


@pytest.mark.parametrize("name", ["filter", "decode"])
def test_a_call_imports_its_own_command_only(name: str) -> None:
    code = (
        f"import sys; sys.argv = ['barnabas', '{name}', '--help']\n"
        "from barnabas.ui.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "others = {'barnabas.ui.cli.proxy.proxy', 'barnabas.proxy', 'barnabas.captures.tables', 'prometheus_client', 'yaml'}\n"
        "assert not others & set(sys.modules), others & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
