"""Proxies with their control API: one of a test's own, or one that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.peers.control_api import Desk, MakeDesk, desk_maker
from harness.testbed import Testbed


@pytest.fixture
def make_desk(testbed: Testbed, tmp_path: Path) -> MakeDesk:
    return desk_maker(testbed, tmp_path / "control")


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    """A proxy that has seen nothing yet."""
    return make_desk()


@pytest.fixture(scope="module")
def _desk_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    testbed = Testbed()
    try:
        yield desk_maker(testbed, tmp_path_factory.mktemp("control"))()
    finally:
        testbed.close()


@pytest.fixture
def shared_desk(_desk_of_the_module: Desk) -> Iterator[Desk]:
    """A proxy that other tests use as well: it has no rules and no intercepts, but may have seen exchanges."""
    yield _desk_of_the_module
    _desk_of_the_module.clear()
