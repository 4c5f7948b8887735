"""Brokers that are too old for their clients, as real ones showed it: 0.8.2.2 and 0.10.2.2 and current clients."""

from __future__ import annotations

from barnabas.decoder.findings import Severity
from traffic.recordings import findings

OURS = ["closed-on-first-request", "client-gives-up"]


def test_current_clients_at_a_broker_without_api_versions() -> None:
    first, *others = findings("ages-oldest-broker")
    assert (first.id, first.severity, first.count) == ("closed-on-first-request", Severity.HIGH, 10)
    assert "client 'new-kp'" in first.seen and "ApiVersions v4" in first.seen
    assert "older than 0.10.0" in first.why and "KIP-35" in first.why
    assert "barnabas versions 127.0.0.1:" in first.remedy and "api_version=(0, 9)" in first.remedy
    assert first.about["api"] == "ApiVersions" and first.about["client_id"] == "new-kp"
    assert all(f.severity is Severity.INFO for f in others)


def test_a_java_client_that_needs_newer_brokers() -> None:
    first, *others = findings("ages-client-too-new")
    assert (first.id, first.severity) == ("client-gives-up", Severity.HIGH)
    assert "apache-kafka-java 4.3.1" in first.seen and "is 0.10.2" in first.seen
    assert "needs brokers of 2.1 or newer" in first.seen and "no further than Metadata" in first.seen
    assert (first.about["needs"], first.about["release"]) == ("2.1", "0.10.2")
    assert "2.1 or newer" in first.remedy and "older than 4.0.0" in first.remedy
    assert all(f.severity is Severity.INFO for f in others)


def test_a_client_that_reaches_down_to_an_old_broker() -> None:
    # librdkafka 2.16 produced to the same 0.10.2.2; and current brokers serve every one of the healthy clients
    assert findings("ages-old-broker", *OURS) == []
    assert all(f.severity is Severity.INFO for f in findings("ages-old-broker"))
    for healthy in ("producing-commits", "groups-rolling", "versions-plain-producer", "security-plain-on-tls"):
        assert findings(healthy, *OURS) == []
