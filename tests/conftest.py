"""What holds for every test: markers by folder, which tests share one worker, and Hypothesis' profile."""

from __future__ import annotations

import gc
import signal
from pathlib import Path
from typing import Any

import pytest
from harness import proxies
from harness.run import second_run, session
from hypothesis import settings

TESTS = Path(__file__).parent

# No deadline per example: two cores shared with a broker and a Spark session make single examples slow by chance.
# Everyday runs try the same examples each time: no verdict depends on the day's random numbers.
settings.register_profile("everything", deadline=None, print_blob=True, max_examples=100)
settings.register_profile("everyday", settings.get_profile("everything"), derandomize=True, max_examples=30)

# A shell without job control has what it starts in the background ignore Ctrl-C, and so would every command that a test
# starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Thousands of tests are collected, and none is garbage: each worker would look through all of them again and again.
gc.disable()

FIRST = ("real", "captures/spark", "torture", "docs", "matrix", "ui/web")
"""Where single tests, or the brokers of a module, take long: begun last, they would leave the other workers idle."""
ONE_BY_ONE = ("torture/decoder/test_fuzz.py",)
TOGETHER = {
    "an old broker": ("compat", "diff", "pretend", "replay", "translation_of_new_clients", "versions"),
    "secured brokers": ("java_by_name", "keylog", "through_proxy", "tls_sasl"),
    "mock brokers": ("actions_aiokafka", "actions_consuming", "actions_producing"),
}
"""Modules of tests/real that share what takes long to start, in one worker."""


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("everyday" if config.option.markexpr == "not slow" else "everything")
    session.install(config)
    second_run.install(config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    proxies.new_test()
    for mark in item.iter_markers("needs"):
        if why := mark.kwargs["why_not"]():
            pytest.skip(why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """The report of a failure has what the proxies and brokers of its test saw."""
    report = yield
    if report.failed:
        if saw := proxies.what_they_saw():
            report.sections.append(("what the proxies saw", saw))
        for name, value in getattr(item, "funcargs", {}).items():
            if callable(tail := getattr(value, "log_tail", None)):
                report.sections.append((f"log of {name}", tail()))
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests/real as ``real``, and put what takes long in front."""
    for item in items:
        if item.nodeid.startswith("tests/real/"):
            item.add_marker(pytest.mark.real)
    first = tuple(f"tests/{folder}/" for folder in FIRST)
    items.sort(key=lambda item: not item.nodeid.startswith(first))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def share(nodeid: str) -> str:
    """What a worker takes as a whole: all that needs Spark, modules that share brokers, a module with what it has made for
    itself, or one test."""
    path = nodeid.partition("::")[0]
    if "captures/spark/" in path:
        return "spark"
    for what, modules in TOGETHER.items():
        if "/real/" in path and path.endswith(tuple(f"/test_{module}.py" for module in modules)):
            return what
    return nodeid if path.endswith(ONE_BY_ONE) else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For --dist loadgroup. xdist 3.8 reads its own groups from node ids that pytest 9.2 no longer lets it change:
    with the two, tests of one group run on any worker, each with brokers and sessions of its own."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share(nodeid)

    config.option.loadscopereorder = False  # in the order of `pytest_collection_modifyitems`
    return Shares(config, log)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return TESTS.parent
