"""Commands as a user runs them, in forks of a process that has imported all of them: a fresh interpreter imports for half
a second.

``tests/docs`` and the tests with a terminal start fresh interpreters, so the imports of commands are tested as well.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

from barnabas.ui.cli import COMMANDS, main
from barnabas.ui.cli.command_line import make_app
from typer.testing import CliRunner, Result

from .waiting import PATIENCE

_FORKS = multiprocessing.get_context("forkserver")
_CALLED = {
    "captures": "diff export.table_writer foreign.importer reading.verify replay.dry_run tables.output.folder transform.merge "
    "transform.redact transform.verify",
    "decoder": "present compat findings reference.explain reference.definitions.importer values",
    "plugins": "hooks rules.recipes rules.rule_engine translation",
    "proxy": "control.startup relay.interception.plugin_host.forkserver_client metrics.feed.client observers.finding_reports "
    "observers.retainer replay.session serve supervisor.supervisor",
}
WHEN_NEEDED = [
    *(f"barnabas.{folder}.{name}" for folder, names in _CALLED.items() for name in names.split()),
    *("numpy", "pydantic.type_adapter", "rich.progress", "rich.table", "typer._adapters", "typer.rich_utils"),
]
"""What commands import while they run."""
_FORKS.set_forkserver_preload(
    [
        *(__name__, "barnabas.ui.cli.command_line", *WHEN_NEEDED),
        *sorted({f"barnabas.ui.cli.{each.module}" for each in COMMANDS.values()}),
        f"{__package__}.preloaded",
    ]
)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a module may read when it is imported: all that tests do not set for each command."""
    others = ("PYTEST_", "XDG_", "BARNABAS_TEST_", "TMPDIR")
    return {name: value for name, value in environment.items() if not name.startswith(others)}


_AT_START = _settings(os.environ)


@cache
def _start_server() -> None:
    """Start what the commands are forks of. It finds this package only by the environment."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *([before] if before else [])])
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def run(*arguments: object, cwd: Path | None = None, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Run ``barnabas ARGUMENTS`` without input: exit code, stdout, stderr.

    A command that takes too long is killed, and subprocess.TimeoutExpired raised. If the environment has changed since the
    start, the command gets a fresh interpreter.
    """
    done = run_bytes(*arguments, cwd=cwd, timeout=timeout)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def here(*arguments: object) -> Result:
    """``barnabas ARGUMENTS`` in this process, made of its one command as `main` makes it; a Failure is its
    ``exception``."""
    words = [*map(str, arguments)]
    return CliRunner().invoke(make_app([words[0]]), words)


CLOSED_PIPE = "|"
"""A pipe whose reader has gone, for `run_bytes`."""


def run_bytes(
    *arguments: object, cwd: Path | None = None, timeout: float = PATIENCE, input: bytes = b"", into: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Like `run`, with stdout and stderr as bytes; `input` comes through a pipe. `into`: where stdout goes instead, a file or `CLOSED_PIPE`."""
    words = [*map(str, arguments)]
    fresh = [sys.executable, "-m", "barnabas", *words]
    if _settings(os.environ) != _AT_START and not into:
        return subprocess.run(fresh, cwd=cwd, capture_output=True, timeout=timeout, input=input, check=False)
    _start_server()
    with tempfile.TemporaryDirectory(prefix="barnabas-command-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        out.touch()
        err.touch()
        given = (words, str(cwd or Path.cwd()), dict(os.environ), input, into or str(out), str(err))
        process = _FORKS.Process(target=_be, args=given)
        process.start()
        process.join(timeout)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        stdout, stderr = out.read_bytes(), err.read_bytes()
    if code is None:
        raise subprocess.TimeoutExpired(fresh, timeout, stdout, stderr)
    return subprocess.CompletedProcess(fresh, code, stdout, stderr)


def _be(words: list[str], folder: str, environment: dict[str, str], input: bytes, out: str, err: str) -> None:
    """In the fork: take the place of the command."""
    for path, fd in ((os.devnull, 0), (out, 1), (err, 2)):
        opened = _closed_pipe() if path == CLOSED_PIPE else os.open(path, (os.O_WRONLY | os.O_APPEND) if fd else os.O_RDONLY)
        os.dup2(opened, fd)
        os.close(opened)
    if input:
        theirs, ours = os.pipe()
        os.dup2(theirs, 0)
        os.close(theirs)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the whole process; multiprocessing has put another there
        threading.Thread(target=_feed, args=(ours, input), daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # read TMPDIR again
    os.chdir(folder)
    sys.argv = ["barnabas", *words]
    main()


def _closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _feed(fd: int, data: bytes) -> None:
    with open(fd, "wb") as pipe:
        pipe.write(data)
