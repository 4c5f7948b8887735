"""Clients and brokers that do not fit each other, for real: the proxy records, the detectors read the recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.decoder.findings.contradictions import DETECTORS as CONTRADICTIONS
from barnabas.decoder.findings.features import DETECTORS as FEATURES
from barnabas.decoder.findings.versions import DETECTORS as VERSIONS
from barnabas.proxy import ProxyConfig
from harness.proxies import Proxy
from real.broker import Cluster, start_cluster
from real.clients import WORKLOADS
from real.findings import scenarios_versions as scenarios
from real.findings.edited_broker import EditedBroker

pytestmark = pytest.mark.real

IDS = [detector.id for detector in (*VERSIONS, *FEATURES, *CONTRADICTIONS)]


def found(upstream: tuple[str, int], run: Callable[[str, str], object], topic: str, folder: Path) -> list[Finding]:
    """What the detectors of the area find in what `run` does through the proxy."""
    with Proxy(ProxyConfig(upstream=upstream, record=folder)) as proxy:
        host, port = proxy.address
        run(f"{host}:{port}", topic)
    inspector = Inspector(IDS)
    with open_capture(folder) as capture:
        for happening in capture.happenings():
            inspector.feed(happening)
    return inspector.findings()


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (scenarios.old_kafka_python, "closed-on-version"),
        (scenarios.old_librdkafka, "closed-on-version"),
        (scenarios.api_versions_of_the_future, "api-versions-fallback"),
        (scenarios.api_versions_given_up, "api-versions-fallback"),
        (scenarios.answer_ignored, "api-versions-ignored"),
        (scenarios.never_asks, "no-api-versions"),
        (scenarios.plain_producer, "idempotence-unused"),
        (scenarios.topic_recreated, "old-topic-id"),
        (scenarios.several_clients_on_one_connection, "client-identity-changes"),
        pytest.param(scenarios.lost_sequence, "producer-id-not-renewed", marks=pytest.mark.slow),
        pytest.param(scenarios.leaving_and_coming, "static-membership-unused", marks=pytest.mark.slow),
        pytest.param(scenarios.ids_in_flight, "odd-correlation-ids", marks=pytest.mark.slow),
    ],
)
def test_a_scenario_shows(broker: Cluster, tmp_path: Path, scenario: Callable[[str, str], None], expected: str) -> None:
    topic = f"versions-{scenario.__name__}"
    scenarios.create(broker.bootstrap, topic)
    assert expected in {finding.id for finding in found(broker.addresses[0], scenario, topic, tmp_path)}


def test_a_broker_that_is_made_to_look_older(broker: Cluster, tmp_path: Path) -> None:
    scenarios.create(broker.bootstrap, "versions-two")
    with (
        EditedBroker(broker.addresses[0], {"Fetch": (4, 16)}) as old,
        EditedBroker(broker.addresses[0]) as new,
    ):
        new.nodes[2] = old.address
        seen = {f.id for f in found(new.address, scenarios.two_brokers, "versions-two", tmp_path)}
    assert {"version-of-another-broker", "mixed-broker-versions"} <= seen


def test_current_librdkafka_compresses_whatever_the_range_says(broker: Cluster, tmp_path: Path) -> None:
    scenarios.create(broker.bootstrap, "versions-gzip")
    with EditedBroker(broker.addresses[0], {"Produce": (3, 12)}) as narrowed:
        assert found(narrowed.address, scenarios.gzip_librdkafka, "versions-gzip", tmp_path) == []


@pytest.mark.parametrize(
    "name", [name if name == "kafka-python admin" else pytest.param(name, marks=pytest.mark.slow) for name in WORKLOADS]
)
def test_a_healthy_client_shows_nothing(broker: Cluster, tmp_path: Path, name: str) -> None:
    topic = "versions-" + name.replace(" ", "-")
    bad = [f for f in found(broker.addresses[0], WORKLOADS[name], topic, tmp_path) if f.severity is not Severity.INFO]
    assert bad == []


@pytest.mark.slow
def test_a_client_that_does_not_follow_the_leader(tmp_path: Path) -> None:
    with start_cluster(nodes=3) as cluster:
        scenarios.create(cluster.bootstrap, "versions-leader")
        seen = found(cluster.addresses[0], scenarios.wrong_leader, "versions-leader", tmp_path)
    assert "metadata-ignored" in {finding.id for finding in seen}


@pytest.mark.slow
def test_a_group_protocol_that_is_switched_off(tmp_path: Path) -> None:
    with start_cluster(config={"group.coordinator.rebalance.protocols": "classic"}) as cluster:
        seen = found(cluster.addresses[0], scenarios.group_protocol_off, "versions-off", tmp_path)
    assert "unsupported-version" in {finding.id for finding in seen}
