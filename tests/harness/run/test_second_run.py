"""The second run of failed real tests, tried in pytest runs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
CONFTEST = """
import sys
sys.path.insert(0, {tests!r})
from harness.run import second_run

def pytest_configure(config):
    config.addinivalue_line("markers", "real: as in the project")
    second_run.install(config)
"""
FAILS_ONCE = """
def {name}(tmp_path_factory):
    import pathlib
    seen = pathlib.Path(__file__).with_name("seen-{name}")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def run(folder: Path, tests: str, *options: str) -> tuple[int, list[str]]:
    """Exit code and lines of a pytest run over these tests."""
    (folder / "conftest.py").write_text(CONFTEST.format(tests=str(TESTS)))
    (folder / "test_it.py").write_text("import pytest\n" + tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop("BARNABAS_SECOND_RUN", None)
    # of the installed plugins only the one of the option -n: the others take as long to load as all else
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("options", [("-n", "0"), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=["alone", "workers"])
def test_a_real_test_that_fails_once_is_named_and_the_run_passes(tmp_path: Path, options: tuple[str, ...]) -> None:
    tests = "@pytest.mark.real" + FAILS_ONCE.format(name="test_once") + "\ndef test_fine():\n    pass\n"
    code, lines = run(tmp_path, tests, *options)
    assert code == 0
    assert lines[-1] == "second run: test_it.py::test_once failed, then passed alone"
    assert any("1 failed, 1 passed" in line for line in lines)  # the first verdict stands in the run's own summary


def test_two_failures_fail_the_run(tmp_path: Path) -> None:
    code, lines = run(tmp_path, "@pytest.mark.real\ndef test_never():\n    assert 0\n")
    assert (code, lines[-1]) == (1, "second run: test_it.py::test_never failed, then failed again")


def test_no_other_test_runs_twice(tmp_path: Path) -> None:
    code, lines = run(tmp_path, FAILS_ONCE.format(name="test_once"))
    assert code == 1
    assert not [line for line in lines if "second run" in line]


def test_a_failure_of_another_test_is_not_forgiven(tmp_path: Path) -> None:
    tests = "@pytest.mark.real" + FAILS_ONCE.format(name="test_once") + "\ndef test_bad():\n    assert 0\n"
    code, lines = run(tmp_path, tests)
    assert (code, lines[-1]) == (1, "second run: test_it.py::test_once failed, then passed alone")


def test_many_failures_are_no_bad_moment(tmp_path: Path) -> None:
    tests = "".join("\n@pytest.mark.real" + FAILS_ONCE.format(name=f"test_{n}") for n in range(6))
    code, lines = run(tmp_path, tests)
    assert code == 1
    assert not [line for line in lines if "second run" in line]


def test_what_cannot_be_set_up_may_run_again(tmp_path: Path) -> None:
    setup = "@pytest.fixture" + FAILS_ONCE.format(name="broker") + "\n@pytest.mark.real\ndef test_it(broker):\n    pass\n"
    code, lines = run(tmp_path, setup)
    assert (code, lines[-1]) == (0, "second run: test_it.py::test_it failed, then passed alone")
