"""The peers of one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.testbed import Testbed


@pytest.fixture
def testbed() -> Iterator[Testbed]:
    """Scripted brokers, proxies and clients; all are ended behind the test."""
    testbed = Testbed()
    yield testbed
    testbed.close()
