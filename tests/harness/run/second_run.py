"""A failed test with a real broker runs once more, alone, when all others are done.

Real brokers, clients and kernels are not ours: one of them may have had a bad moment. Both verdicts are printed, the last
lines of the run name every test that needed a second run, and a test that fails twice fails the run. No other test is ever
repeated, and when more than ``MOST`` failed nothing is: that is no bad moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

MOST = 5
_NESTED = "BARNABAS_SECOND_RUN"
"""Set in the environment of a second run: it has no third."""

Again = Callable[[str], int]
"""Runs one test by its node id, prints what pytest prints, and returns pytest's exit code."""


def run_alone(nodeid: str) -> int:
    """One test in a pytest of its own, without workers."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "", "-p", "no:cacheprovider", nodeid]
    return subprocess.run(command, env={**os.environ, _NESTED: "1"}, check=False).returncode


class SecondRun:
    """The plugin; only the process that the user started has it, not its workers."""

    def __init__(self, again: Again = run_alone) -> None:
        self._again = again
        self._failed: dict[str, bool] = {}
        """Node ids of what failed, and whether it may run again."""
        self._verdicts: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = "real" in report.keywords

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
            return  # interrupted, an internal error, nothing collected
        chosen = [nodeid for nodeid, real in self._failed.items() if real]
        if not chosen or len(chosen) > MOST:
            return
        for nodeid in chosen:
            print(f"\n==> second run, alone: {nodeid}", flush=True)
            self._verdicts[nodeid] = self._again(nodeid)
        if len(chosen) == len(self._failed) and not any(self._verdicts.values()):
            session.exitstatus = pytest.ExitCode.OK

    def pytest_unconfigure(self) -> None:
        for nodeid, code in self._verdicts.items():
            print(f"second run: {nodeid} failed, then {'failed again' if code else 'passed alone'}")


def install(config: pytest.Config) -> None:
    """Register it where this process is the one that decides."""
    if not hasattr(config, "workerinput") and _NESTED not in os.environ and not config.option.collectonly:
        config.pluginmanager.register(SecondRun(), "barnabas-second-run")
