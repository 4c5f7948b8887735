"""Brokers that the tests of this folder share: each ends with the last test of the folder, since one without work takes 3 % of a core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from barnabas.ui.testing.fixture import Barnabas

from real.brokers.broker import Cluster, start_cluster
from real.brokers.fault_bench import mocked
from real.brokers.old_broker import OLDEST, WITH_API_VERSIONS, WITH_GROUPS, OldBroker, start_old
from real.brokers.secured import Secured, start_secured
from real.clients.workloads import WORKLOADS


@pytest.fixture(scope="package")
def broker() -> Iterator[Cluster]:
    """One Apache Kafka, started when the first test asks and stopped at the end; use topic names of your own."""
    with start_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def direct(broker: Cluster) -> Callable[[str], dict[str, Any]]:
    """``direct(name)``: what that workload of ``real.clients`` gives at the broker itself; run once."""

    @cache
    def run(name: str) -> dict[str, Any]:
        return WORKLOADS[name](broker.bootstrap, "direct-" + name.replace(" ", "-"))

    return run


@pytest.fixture(scope="package")
def mock_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    """One proxy in front of three mock brokers, for faults; use topic names of your own, and take your rules away."""
    with mocked(tmp_path_factory.mktemp("control")) as proxy:
        yield proxy


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Two brokers with plain, TLS and SASL listeners; use topic names of your own."""
    with start_secured(tmp_path_factory.mktemp("secured")) as secured:
        yield secured


@pytest.fixture(scope="package")
def oldest_broker() -> Iterator[OldBroker]:
    """Kafka 0.8.2, the oldest that runs on today's Java: no ApiVersions, message format 0. Topics make themselves."""
    with start_old(OLDEST) as old:
        yield old


@pytest.fixture(scope="package")
def broker_with_groups() -> Iterator[OldBroker]:
    """Kafka 0.9.0: no ApiVersions, but groups that the broker coordinates. Topics make themselves."""
    with start_old(WITH_GROUPS) as old:
        yield old


@pytest.fixture(scope="package")
def old_broker() -> Iterator[OldBroker]:
    """Kafka 0.10.2: ApiVersions v0, message format 1. Topics make themselves."""
    with start_old(WITH_API_VERSIONS) as old:
        yield old
