"""What the modules on faults share: a proxy in front of the real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from barnabas.ui.testing.fixture import Barnabas
from real.brokers.broker import Cluster
from real.brokers.fault_bench import in_front_of, new_topic


@pytest.fixture(scope="package")
def bench(broker: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    """One for all of them; use topic names of your own, and take your rules away."""
    with in_front_of(broker.addresses[0], tmp_path_factory.mktemp("control")) as proxy:
        yield proxy


@pytest.fixture
def topic(bench: Barnabas) -> str:
    """A new topic of one partition."""
    return new_topic(bench)
