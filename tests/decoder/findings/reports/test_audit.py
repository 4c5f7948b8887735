"""Known client bugs that public reports show: the finding names the bug and the version that fixes it, for versions that
have it and for no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.findings import Finding
from barnabas.decoder.findings.known_bugs import KNOWN_BUGS, as_found, name_known_bugs, seen_bugs
from barnabas.decoder.reference import bugs
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations


def offering(**ranges: int) -> dict[str, Any]:
    """An ApiVersions response with these APIs, from version 0 on."""
    apis = {"ApiVersions": 3, "Metadata": 9, **ranges}
    keys = [{"api_key": facts.api_key(name), "min_version": 0, "max_version": newest} for name, newest in apis.items()]
    return {"error_code": 0, "api_keys": keys, "throttle_time_ms": 0}


def hello(talk: Conversations, connection: decoder.Connection, software: str, offered: dict[str, Any]) -> None:
    name, _, version = software.partition(" ")
    talk.ask(
        connection, "ApiVersions", 3, {"client_software_name": name, "client_software_version": version}, offered
    )


def fetch_too_new(software: str, version: int = 12) -> Finding:
    """A consumer that sends a version of Fetch to a broker which offers 0 to 11 and closes (librdkafka#4870)."""
    talk = Conversations()
    for _ in range(3):
        connection = talk.open()
        hello(talk, connection, software, offering(Fetch=11))
        talk.wait(0.01)
        talk.ask(connection, "Fetch", version, {"max_wait_ms": 500, "min_bytes": 1, "topics": []}, None)
        talk.wait(0.01)
        talk.close(connection, by="broker")
        talk.wait(0.2)
    return next(finding for finding in talk.findings() if finding.severity != "info")


def group_is_gone(software: str) -> Finding:
    """A KIP-848 member whose group is gone, and who sends its old epoch again and again (librdkafka#5485)."""
    talk = Conversations()
    connection = talk.open()
    hello(talk, connection, software, offering(ConsumerGroupHeartbeat=0))
    for _ in range(20):
        talk.wait(3)
        talk.ask(
            connection, "ConsumerGroupHeartbeat", 0, {"group_id": "billing", "member_id": "m", "member_epoch": 7},
            {"error_code": 69, "member_epoch": 0, "heartbeat_interval_ms": 3000, "assignment": None},
        )  # fmt: skip
    return next(finding for finding in talk.findings() if finding.severity != "info")


@pytest.mark.parametrize("software", ["librdkafka 2.6.0", "confluent-kafka-python 2.6.0-rdkafka-2.6.0"])
def test_fetch_above_the_offered_versions(software):
    found = fetch_too_new(software)
    assert found.id == "api-versions-ignored" and found.about[KNOWN_BUGS] == ["librdkafka-4870"]
    assert "librdkafka#4870 of librdkafka 2.6.0 (fixed in 2.6.1)" in found.seen
    assert found.remedy.startswith("upgrade librdkafka to 2.6.1 or newer; ")
    assert "before Apache Kafka 2.7" in found.why
    assert as_found(found) + "; this fits the known client bug librdkafka#4870 of librdkafka 2.6.0 (fixed in 2.6.1)" == found.seen


@pytest.mark.parametrize("software", ["librdkafka 2.5.3", "librdkafka 2.6.1", "librdkafka 2.10.0", "sarama 2.6.0", "librdkafka"])
def test_the_same_of_a_version_without_the_bug(software):
    found = fetch_too_new(software)
    assert found.id == "api-versions-ignored" and KNOWN_BUGS not in found.about
    assert "known client bug" not in found.seen and as_found(found) == found.seen


def test_a_group_that_is_gone():
    found = group_is_gone("librdkafka 2.14.2")
    assert found.about[KNOWN_BUGS] == ["librdkafka-5485"]
    assert "librdkafka#5485 of librdkafka 2.14.2 (fixed in 2.15.0)" in found.seen
    assert KNOWN_BUGS not in group_is_gone("librdkafka 2.15.0").about


def test_acknowledgements_in_the_first_request_of_a_share_session():
    talk = Conversations()
    connection = talk.open()
    hello(talk, connection, "apache-kafka-java 4.1.0", offering(ShareFetch=1))
    asked = {
        "group_id": "sg", "member_id": "m", "share_session_epoch": 0, "max_wait_ms": 500, "min_bytes": 0,
        "max_bytes": 1000, "topics": [],
    }  # fmt: skip
    for _ in range(6):
        talk.wait(0.5)
        talk.ask(connection, "ShareFetch", 1, asked, {"error_code": 42, "responses": [], "node_endpoints": []})
    found = next(finding for finding in talk.findings() if finding.severity != "info")
    assert found.about[KNOWN_BUGS] == ["KAFKA-19485"] and "(fixed in 4.1.1)" in found.seen


def test_traffic_of_an_affected_version_that_shows_nothing():
    """A version with many known bugs that does nothing wrong."""
    talk = Conversations()
    connection = talk.open()
    hello(talk, connection, "librdkafka 2.6.0", offering(Fetch=11))
    broker = {"node_id": 1, "host": "10.0.0.1", "port": 9092, "rack": None}
    for _ in range(5):
        talk.wait(60)
        answer = {"brokers": [broker], "cluster_id": "c", "controller_id": 1, "topics": []}
        talk.ask(connection, "Metadata", 9, {"topics": [], "allow_auto_topic_creation": False}, answer)
    assert [finding for finding in talk.findings() if finding.severity not in ("info", "low")] == []
    assert all(KNOWN_BUGS not in finding.about for finding in talk.findings())


def test_of_several_clients_those_with_the_bug_are_named():
    found = fetch_too_new("librdkafka 2.6.1")
    found.about["clients"] = [
        {"client_id": "a", "software": "librdkafka 2.6.1", "client": "10.0.0.5:1"},
        {"client_id": "b", "software": "librdkafka 2.6.0", "client": "10.0.0.6:1"},
    ]
    assert [(seen.bug.id, seen.version) for seen in seen_bugs(found)] == [("librdkafka-4870", "2.6.0")]


def test_findings_stay_as_they_are_where_they_are_asked_again():
    found = fetch_too_new("librdkafka 2.6.1")
    found.about["software"] = "librdkafka 2.6.0"
    before = found.to_dict()
    once, twice = name_known_bugs([found]), name_known_bugs([found])
    assert once == twice and found.to_dict() == before


def test_what_a_fault_rule_caused_is_no_bug():
    found = fetch_too_new("librdkafka 2.6.1")
    found.about["software"] = "librdkafka 2.6.0"
    found.rules, found.others = ["break it"], 0
    assert seen_bugs(found) == []


def test_a_row_may_ask_for_a_severity(monkeypatch):
    found = fetch_too_new("librdkafka 2.6.0")
    (bug,) = (seen.bug for seen in seen_bugs(found))
    for severity, expected in (("high", [bug.id]), ("low|medium", [])):
        pattern = bugs.FindingPattern(found.id, {"severity": frozenset(severity.split("|"))})
        row = replace(bug, patterns=(pattern,))
        monkeypatch.setattr(bugs, "bugs_of", lambda _, row=row: (row,))
        assert [seen.bug.id for seen in seen_bugs(found)] == expected
