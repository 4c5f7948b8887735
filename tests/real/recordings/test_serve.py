"""Record a client's test against a real broker, stop the broker, serve the recording: the same test gives the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from barnabas.proxy.serve import OnMiss, ServeConfig, Served
from harness.proxies import Proxy
from real.brokers.broker import Cluster, start_cluster
from real.clients.workloads import CLIENTS, WORKLOADS, expected, in_turn

EVERY_DAY = ("kafka-python produce_and_consume", "kafka-python admin", "aiokafka transactions")
"""The workloads whose recordings the everyday tests use."""


def run_name(name: str) -> str:
    return "served-" + name.replace(" ", "-")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``recorded(name)``: the folder with the recording of a workload. The brokers are of its own, and gone."""

    def record(cluster: Cluster, name: str) -> Path:
        folder = tmp_path_factory.mktemp("recorded")
        with Proxy(ProxyConfig(upstream=cluster.addresses[0], record=folder)) as proxy:
            assert WORKLOADS[name](show(proxy.address), run_name(name)) == expected(name)
        return folder

    @cache
    def alone(name: str) -> Path:
        three = name.startswith("three ")
        with start_cluster(3, {"default.replication.factor": 1}) if three else start_cluster() as cluster:
            return record(cluster, name.removeprefix("three "))

    @cache
    def every() -> dict[str, Path]:
        """The everyday workloads with one broker: it is stopped before any of them is served."""
        with start_cluster() as cluster:
            return {name: record(cluster, name) for name in sorted(EVERY_DAY)}

    return lambda name: every()[name] if name in EVERY_DAY else alone(name)


def run(name: str, served: Served) -> dict[str, Any]:
    return WORKLOADS[name](served.bootstrap, run_name(name))


@pytest.mark.parametrize("name", in_turn("aiokafka transactions"))
def test_a_recorded_workload_runs_without_its_broker(name, recorded):
    with Served(recorded(name)) as served:
        assert run(name, served) == expected(name)
        assert [event.text for event in served.events() if event.warning] == []
        assert served.summary().never_asked == {}


@pytest.mark.slow
def test_another_client_runs_on_the_recording_of_one(recorded):
    """Other versions of the same requests are answered from the recorded ones."""
    name = "kafka-python produce_and_consume"
    for client in CLIENTS:
        with Served(recorded(name)) as served:
            theirs = f"{client} produce_and_consume"
            assert WORKLOADS[theirs](served.bootstrap, run_name(name)) == expected(theirs)
            assert served.misses == []


@pytest.mark.slow
def test_three_brokers_are_served_on_three_listeners(recorded):
    name = "confluent-kafka produce_and_consume"
    with Served(recorded(f"three {name}")) as served:
        assert run(name, served) == expected(name)
        assert len(set(CLIENTS["confluent-kafka"].broker_addresses(served.bootstrap))) == 3
        assert served.misses == []


@pytest.mark.slow
def test_missing_exchanges_are_recorded_from_three_real_brokers(tmp_path):
    """The first run begins with nothing and asks the brokers; the second has no brokers any more."""
    folder, names = tmp_path / "new", ["confluent-kafka produce_and_consume", "aiokafka transactions"]
    with (
        start_cluster(3, {"default.replication.factor": 1}) as cluster,
        Served(ServeConfig(folder, on_miss=OnMiss.RECORD, broker=cluster.addresses[0])) as served,
    ):
        for name in names:
            assert run(name, served) == expected(name)
        assert set(served.summary().by_kind) == {"forwarded"}
    with Served(folder) as served:
        for name in names:
            assert run(name, served) == expected(name)
        assert served.misses == []
