"""The command line as a whole: each command is there, and a call imports its own only."""

from __future__ import annotations

import os
import shlex
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


HEAVY = {
    "barnabas.captures", "barnabas.decoder", "barnabas.plugins", "barnabas.proxy.supervisor.supervisor", "aiohttp", "asyncio",
    "numpy", "prometheus_client", "textual", "yaml",
}  # fmt: skip
LISTED = "import sys\nfrom barnabas.ui.cli import main\ntry: main()\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"


def imported(*words: str, **settings: str) -> tuple[str, set[str]]:
    """What a call prints, and the modules that it imports."""
    code = f"import sys; sys.argv = ['barnabas', *{list(words)!r}]\n{LISTED}"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ | settings
    )
    return done.stdout, set(done.stderr.split())


def completed(*words: str) -> tuple[list[str], set[str]]:
    """What the shell offers for the last word, and the modules that this imports."""
    line = {"COMP_WORDS": shlex.join(["barnabas", *words]), "COMP_CWORD": str(len(words))}
    shown, modules = imported(_BARNABAS_COMPLETE="complete_bash", **line)
    return shown.splitlines(), modules


def test_the_tree_of_commands_imports_nothing_heavy() -> None:
    """Every command's options and help, which are all that help and completion need."""
    code = "import sys, typer\nfrom barnabas.ui.cli import app\ntyper.main.get_command(app)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "barnabas.ui.cli.recordings.decode" in done.stdout and not HEAVY & set(done.stdout.split())


def test_help_and_names_import_no_command() -> None:
    shown, modules = imported("--help")
    assert "decode" in shown and not HEAVY & modules
    offered, more = completed("de")
    assert offered == ["demo", "decode"] and "pydantic" not in more
    for command in COMMANDS.values():
        assert f"barnabas.ui.cli.{command.module}" not in modules | more


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["decode", "--bod"], ["--bodies", "--body"]),
        (["rules", "re"], ["recipes"]),
        (["rules", "recipes", "leader-el"], ["leader-election"]),
        (["explain", "NOT_LEADER_O"], ["NOT_LEADER_OR_FOLLOWER"]),
        (["schema", "show", "Heart"], ["Heartbeat"]),
        (["schema", "show", "GroupCoord"], ["GroupCoordinator"]),
        (["encode", "--api", "kip-4.Desc"], ["kip-4.DescribeTopic"]),
        (["compat", "--against", "0.10.2"], ["0.10.2"]),
        (["findings", "--only", "acks-0,rebalance-st"], ["acks-0,rebalance-storm"]),
        (["decode", "--filter", "no_resp"], ["no_response"]),
        (["ui", "--theme", ""], ["dark", "light", "mono"]),
        (["export", "--as", "p"], ["parquet", "python", "pytest"]),
        (["export", "--table", "err"], ["errors"]),
    ],
    ids=" ".join,
)
def test_completions(words: list[str], offered: list[str]) -> None:
    assert completed(*words)[0] == offered
