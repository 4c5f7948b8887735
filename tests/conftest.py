"""What holds for every test: markers by folder, groups that share one worker, and Hypothesis' profile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent

# No deadline per example: two cores shared with a broker and a Spark session make single examples slow by chance.
settings.register_profile("everyday", deadline=None, print_blob=True)
# A run that decides whether something lands must not depend on the day's random numbers.
settings.register_profile("ci", settings.get_profile("everyday"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "everyday")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests/real as ``real``, and keep tests that share one broker or one Spark session on one worker."""
    for item in items:
        if item.path.is_relative_to(TESTS / "real"):
            item.add_marker(pytest.mark.real)
        for name in ("real", "spark"):
            if item.get_closest_marker(name) is not None:
                item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return TESTS.parent
