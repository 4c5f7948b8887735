"""The log of all processes, and errors that boundaries contain."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas import diagnostics
from barnabas.diagnostics import Contained, contained
from barnabas.errors import BarnabasError


@pytest.fixture
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No log, no counts and no listener, before and after."""
    log = logging.getLogger("barnabas")
    monkeypatch.setattr(diagnostics, "errors_contained", type(diagnostics.errors_contained)())
    monkeypatch.setattr(diagnostics, "_listener", None)
    monkeypatch.setenv(diagnostics.ENVIRONMENT, "")
    handlers, level = list(log.handlers), log.level
    yield
    for added in set(log.handlers) - set(handlers):
        log.removeHandler(added)
        added.close()
    log.setLevel(level)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def fail() -> None:
    raise ValueError("no\nsense")


def contain(times: int) -> None:
    for _ in range(times):
        try:
            fail()
        except ValueError as error:
            contained("a test", error)


@pytest.mark.usefixtures("unconfigured")
def test_each_contained_error_is_counted_and_some_are_reported() -> None:
    reports: list[Contained] = []
    diagnostics.listen(reports.append)
    contain(100)
    assert diagnostics.errors_contained == {"a test": 100}
    assert [each.count for each in reports] == [1, 9, 90]  # the 1st, 10th and 100th
    assert {(each.what, each.error) for each in reports} == {("a test", "ValueError: no\nsense")}
    contained("another", KeyError(), reported=True)
    assert len(reports) == 3
    assert diagnostics.errors_contained["another"] == 1


@pytest.mark.usefixtures("unconfigured")
def test_a_listener_that_fails_is_contained_too() -> None:
    def broken(_: Contained) -> None:
        raise OSError("full")

    diagnostics.listen(broken)
    contain(1)
    assert diagnostics.errors_contained == {"a test": 1}


@pytest.mark.usefixtures("unconfigured")
def test_a_log_file_has_one_json_object_a_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    diagnostics.configure(logging.INFO, file)
    contain(10)
    logging.getLogger("barnabas.proxy").debug("too small")
    first, second = lines(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert first["level"] == "error"
    assert first["error"] == "ValueError"
    assert first["message"] == "contained: a test: ValueError: no\nsense"
    assert first["process"] == os.getpid()
    assert "fail()" in first["traceback"]
    assert first["time"] <= second["time"]
    assert first["time"].endswith("+00:00")


@pytest.mark.usefixtures("unconfigured")
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BarnabasError, match=r"--log-file .*/none/log cannot be written: No such file.*choose another"):
        diagnostics.configure(logging.INFO, tmp_path / "none" / "log")


@pytest.mark.usefixtures("unconfigured")
def test_child_processes_log_as_their_parent(tmp_path: Path) -> None:
    file = tmp_path / "log: of all"
    diagnostics.configure(logging.DEBUG, file)
    code = (
        "import logging; from barnabas import diagnostics; diagnostics.configure_child(); "
        "logging.getLogger('barnabas.child').debug('here')"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    assert child.wait() == 0
    (line,) = lines(file)
    assert (line["logger"], line["message"], line["process"]) == ("barnabas.child", "here", child.pid)


def test_nothing_is_logged_by_default() -> None:
    code = "import logging; from barnabas import diagnostics; diagnostics.configure_child(); diagnostics.contained('x', OSError('y'))"
    environment = {name: value for name, value in os.environ.items() if name != diagnostics.ENVIRONMENT}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout + done.stderr == ""


@pytest.mark.usefixtures("unconfigured")
def test_an_error_whose_text_raises_is_contained() -> None:
    """A boundary goes on in any case; the class may be that of a plugin."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise LookupError

    contained("a test", Unprintable())
    assert diagnostics.errors_contained == {"a test": 1}
