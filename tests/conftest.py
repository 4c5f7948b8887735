"""What holds for every test: markers by folder, which tests share one worker, and Hypothesis' profile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent

# No deadline per example: two cores shared with a broker and a Spark session make single examples slow by chance.
settings.register_profile("everyday", deadline=None, print_blob=True)
# A run that decides whether something lands must not depend on the day's random numbers.
settings.register_profile("ci", settings.get_profile("everyday"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "everyday")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests/real as ``real``."""
    for item in items:
        if item.path.is_relative_to(TESTS / "real"):
            item.add_marker(pytest.mark.real)


def share(nodeid: str) -> str:
    """What a worker takes as a whole: a module with real brokers of its own, all that needs Spark, or one test."""
    path = nodeid.partition("::")[0]
    if "captures/spark/" in path:
        return "spark"
    return path if "/real/" in f"/{path}" or path.endswith("torture/proxy/test_cluster.py") else nodeid


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

    return Shares(config, log)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return TESTS.parent
