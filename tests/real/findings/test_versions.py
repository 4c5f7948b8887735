"""Clients and brokers that do not fit each other, for real: the proxy records, the detectors read the recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.decoder.findings import Finding, Severity
from real.brokers.broker import Cluster, start_cluster
from real.clients.workloads import WORKLOADS
from real.findings.scenarios import versions as scenarios
from real.findings.scenarios.edited_broker import EditedBroker
from real.findings.scenarios.scene import described, record
from traffic.recordings import VERSIONS, findings

pytestmark = pytest.mark.real


def found(upstream: tuple[str, int], run: Callable[[str, str], object], topic: str, folder: Path) -> list[Finding]:
    """What the detectors of the area find in what `run` does through the proxy."""
    return findings(record(upstream, lambda bootstrap: run(bootstrap, topic), folder), *VERSIONS)


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (scenarios.old_librdkafka, "closed-on-version"),
        slow(scenarios.old_kafka_python, "closed-on-version"),
        slow(scenarios.api_versions_of_the_future, "api-versions-fallback"),
        slow(scenarios.api_versions_given_up, "api-versions-fallback"),
        slow(scenarios.answer_ignored, "api-versions-ignored"),
        slow(scenarios.never_asks, "no-api-versions"),
        slow(scenarios.plain_producer, "idempotence-unused"),
        slow(scenarios.topic_recreated, "old-topic-id"),
        slow(scenarios.several_clients_on_one_connection, "client-identity-changes"),
        slow(scenarios.lost_sequence, "producer-id-not-renewed"),
        slow(scenarios.leaving_and_coming, "static-membership-unused"),
        slow(scenarios.ids_in_flight, "odd-correlation-ids"),
    ],
)
def test_a_scenario_shows(broker: Cluster, tmp_path: Path, scenario: Callable[[str, str], None], expected: str) -> None:
    topic = f"versions-{scenario.__name__}"
    scenarios.create(broker.bootstrap, topic)
    seen = found(broker.addresses[0], scenario, topic, tmp_path)
    assert expected in {finding.id for finding in seen}, described(seen)


@pytest.mark.slow
def test_a_broker_that_is_made_to_look_older(broker: Cluster, tmp_path: Path) -> None:
    scenarios.create(broker.bootstrap, "versions-two")
    with (
        EditedBroker(broker.addresses[0], {"Fetch": (4, 16)}) as old,
        EditedBroker(broker.addresses[0]) as new,
    ):
        new.nodes[2] = old.address
        seen = found(new.address, scenarios.two_brokers, "versions-two", tmp_path)
    assert {"version-of-another-broker", "mixed-broker-versions"} <= {finding.id for finding in seen}, described(seen)


@pytest.mark.slow
def test_current_librdkafka_compresses_whatever_the_range_says(broker: Cluster, tmp_path: Path) -> None:
    scenarios.create(broker.bootstrap, "versions-gzip")
    with EditedBroker(broker.addresses[0], {"Produce": (3, 12)}) as narrowed:
        seen = found(narrowed.address, scenarios.gzip_librdkafka, "versions-gzip", tmp_path)
    assert seen == [], described(seen)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_healthy_client_shows_nothing(broker: Cluster, tmp_path: Path, name: str) -> None:
    topic = "versions-" + name.replace(" ", "-")
    bad = [f for f in found(broker.addresses[0], WORKLOADS[name], topic, tmp_path) if f.severity is not Severity.INFO]
    assert bad == [], described(bad)


@pytest.mark.slow
def test_a_client_that_does_not_follow_the_leader(tmp_path: Path) -> None:
    with start_cluster(nodes=3) as cluster:
        scenarios.create(cluster.bootstrap, "versions-leader")
        seen = found(cluster.addresses[0], scenarios.wrong_leader, "versions-leader", tmp_path)
    assert "metadata-ignored" in {finding.id for finding in seen}, described(seen)


@pytest.mark.slow
def test_a_group_protocol_that_is_switched_off(tmp_path: Path) -> None:
    with start_cluster(config={"group.coordinator.rebalance.protocols": "classic"}) as cluster:
        seen = found(cluster.addresses[0], scenarios.group_protocol_off, "versions-off", tmp_path)
    assert "unsupported-version" in {finding.id for finding in seen}, described(seen)
