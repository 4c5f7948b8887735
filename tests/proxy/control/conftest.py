"""Proxies with their control API: one of a test's own, or one that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.peers.control_api import ControlApi, StartControlApi, control_api_starter
from harness.testbed import Testbed


@pytest.fixture
def start_api(testbed: Testbed, tmp_path: Path) -> StartControlApi:
    return control_api_starter(testbed, tmp_path / "control")


@pytest.fixture
def api(start_api: StartControlApi) -> ControlApi:
    """A proxy that has seen nothing yet."""
    return start_api()


@pytest.fixture(scope="module")
def _api_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    testbed = Testbed()
    try:
        yield control_api_starter(testbed, tmp_path_factory.mktemp("control"))()
    finally:
        testbed.close()


@pytest.fixture
def shared_api(_api_of_the_module: ControlApi) -> Iterator[ControlApi]:
    """A proxy that other tests use as well: it has no rules and no intercepts, but may have seen exchanges."""
    yield _api_of_the_module
    _api_of_the_module.clear()
