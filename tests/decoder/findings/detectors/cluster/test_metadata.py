"""Metadata detectors on recordings of real clients, and on near-misses."""

from __future__ import annotations

import pytest
from barnabas.decoder.findings import Severity
from traffic.conversations import Conversations
from traffic.edited_exchanges import copied
from traffic.recordings import exchanges, findings, one


def test_a_storm_of_other_lookups() -> None:
    (recorded,) = exchanges("fetching-commits-behind-fetch", "FindCoordinator")
    found = one([copied(recorded, after=n / 100) for n in range(800)], "metadata-storm")
    assert found.severity is Severity.MEDIUM and found.about["api"] == "FindCoordinator"


def test_all_topics_asked_all_the_time_although_one_is_not_well() -> None:
    recorded = next(e for e in exchanges("fetching-unknown-topic", "Metadata") if e.error)
    everything = [copied(recorded, after=n / 5, request={"topics": None}) for n in range(60)]
    found = one(everything, "metadata-storm")
    assert "for all topics" in found.seen
    assert findings([copied(recorded, after=n / 5) for n in range(60)], "metadata-storm") == []


def test_all_topics_of_a_big_cluster_polled() -> None:
    recorded = exchanges("fetching-illegal-name", "Metadata")[0]
    topic = recorded.response_message["topics"][0] | {"error_code": 0}
    big = [topic | {"name": f"orders-{n}-{'x' * 100}"} for n in range(2000)]
    polled = copied(recorded, request={"topics": None}, response={"topics": big})
    found = one([copied(polled, after=n * 5) for n in range(6)], "all-topics-polling")
    assert found.severity is Severity.LOW and "all topics 6 times in 25.0 s" in found.seen
    assert findings([copied(polled, after=n * 60) for n in range(6)], "all-topics-polling") == []
    named = copied(recorded, response={"topics": big})
    assert findings([copied(named, after=n * 5) for n in range(6)], "all-topics-polling") == []


def test_a_topic_that_is_never_there_is_worse() -> None:
    recorded = [e for e in exchanges("fetching-unknown-topic", "Metadata") if e.error]
    found = one([copied(e, after=n) for n, e in enumerate(recorded)], "unknown-topic-loop")
    assert found.severity is Severity.HIGH


@pytest.mark.parametrize(("name", "fault"), [("", "empty"), ("..", "directory"), ("t" * 300, "300 characters")])
def test_what_is_wrong_with_a_name(name: str, fault: str) -> None:
    recorded = exchanges("fetching-illegal-name", "Metadata")[-1]
    found = one([copied(recorded, response={"topics[0].name": name})], "invalid-topic-name")
    assert fault in found.seen


def test_a_leader_election_is_none() -> None:
    recorded = [e for e in exchanges("fetching-node-stops", "Metadata") if e.error]
    assert findings(recorded[:1], "partition-without-leader") == []
    first = recorded[0].response_time_ns or 0
    soon = [e for e in recorded if (e.response_time_ns or 0) - first < 4_500_000_000]
    assert len(soon) >= 2 and findings(soon, "partition-without-leader") == []


def test_a_replica_out_of_sync() -> None:
    found = one("fetching-node-stops", "replicas-out-of-sync")
    assert found.severity is Severity.INFO and "broker 2 is missing from f-node-stops-two-0" in found.seen
    recorded = exchanges("fetching-node-stops", "Metadata")
    worse = one([copied(e, after=n * 5) for n, e in enumerate(recorded)], "replicas-out-of-sync")
    assert worse.severity is Severity.LOW


@pytest.mark.parametrize(("topic", "count"), [("orders", 1), ("__consumer_offsets", 0)])
def test_a_topic_of_the_coordinators_is_no_mistyped_name(topic: str, count: int) -> None:
    """sarama asks for __consumer_offsets while brokers create it."""
    made = Conversations("topic-auto-created")
    conn = made.open()
    request = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
    for error in (3, 0):
        made.ask(conn, "Metadata", 8, request, {"topics": [{"name": topic, "error_code": error, "partitions": []}]})
        made.wait(0.2)
    assert len(made.findings()) == count
