"""Texts of findings fit the broker and client at hand: releases, which process died, which broker leads."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.reference import releases
from traffic.conversations import SECOND, Conversations
from traffic.edited_exchanges import copied
from traffic.recordings import exchanges, findings, one


class Conversation(Conversations):
    """Exchanges at given times, each client's on one connection."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.connections = self.now, {self.client: self.open()}

    def add(self, api: str, version: int, asked: dict[str, Any], answered: dict[str, Any], at: float, took: float) -> Conversation:
        self.now = self.start + int(at * SECOND)
        connection = self.connections.get(self.client) or self.connections.setdefault(self.client, self.open())
        self.ask(connection, api, version, asked, answered, took)
        return self

    def offers(self, release: str) -> Conversation:
        """The client asks for the versions, and a broker of that release answers."""
        offered = releases.release(release).offered
        keys = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in sorted(offered.items())]
        return self.add("ApiVersions", 0, {}, {"error_code": 0, "api_keys": keys}, 0, 0.001)

    def found(self, id_: str) -> Finding | None:
        return next((f for f in self.findings() if f.id == id_), None)


# --- quotas


def throttled(release: str, version: int, took: float) -> Conversation:
    conversation = Conversation()
    if release:
        conversation.offers(release)
    answer = {"responses": [{"name": "t", "partition_responses": [{"index": 0, "error_code": 0, "base_offset": 1}]}]}
    for n in range(5):
        asked = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b""}]}]}
        conversation.add("Produce", version, asked, answer | {"throttle_time_ms": 900}, 1 + n, took)
    return conversation


@pytest.mark.parametrize(("release", "version"), [("0.11.0", 3), ("1.1", 5), ("", 3), ("", 1)])
def test_brokers_before_kip_219_keep_their_answers_back(release: str, version: int) -> None:
    found = throttled(release, version, 0.9).found("throttled-by-quota")
    assert found is not None
    assert "holds its responses" in found.why and "at once and then" not in found.why
    assert found.about["throttled_ms"] == 4500
    assert "kept sending" not in found.seen


@pytest.mark.parametrize(("release", "version"), [("2.0", 6), ("3.9", 3), ("", 6), ("", 3)])
def test_brokers_since_kip_219_answer_at_once(release: str, version: int) -> None:
    found = throttled(release, version, 0.01).found("throttled-by-quota")
    assert found is not None
    assert "answers at once" in found.why and "holds its responses" not in found.why


# --- static members of KIP-848

UNRELEASED = 111


def kept_out(conversation: Conversation, error: int, at: float) -> Conversation:
    asked = {
        "group_id": "g", "member_id": "m-2", "member_epoch": 0, "instance_id": "billing-a", "rack_id": None,
        "rebalance_timeout_ms": 300000, "subscribed_topic_names": ["t"], "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    answer = {
        "error_code": error, "error_message": None, "member_id": None if error else "m-2", "member_epoch": 0 if error else 3,
        "heartbeat_interval_ms": 0 if error else 5000, "assignment": None,
    }  # fmt: skip
    return conversation.add("ConsumerGroupHeartbeat", 0, asked, answer, at, 0.01)


def test_a_consumer_that_died_of_an_unreleased_id_has_something_to_do() -> None:
    conversation = kept_out(Conversation(), UNRELEASED, 1)
    conversation.wait(1)
    conversation.close(conversation.connections[conversation.client])
    found = conversation.found("fenced-instance")
    assert found is not None and found.severity is Severity.MEDIUM
    assert not found.remedy.startswith("nothing") and "fatal" in found.remedy


def test_one_that_got_in_later_waited_long_enough() -> None:
    conversation = kept_out(kept_out(Conversation(), UNRELEASED, 1), 0, 47)
    found = conversation.found("fenced-instance")
    assert found is not None and found.severity is Severity.LOW
    assert found.seen.endswith("it was let in 46.0 s later") and found.remedy.startswith("nothing")


def test_that_another_one_is_let_in_does_not_help_it() -> None:
    conversation = kept_out(Conversation(), UNRELEASED, 1)
    conversation.client = "10.0.0.6"
    found = kept_out(conversation, 0, 47).found("fenced-instance")
    assert found is not None and found.severity is Severity.MEDIUM


# --- preferred leaders


def led(leader: int, replicas: list[int], isr: list[int], at: float = 1, version: int = 9) -> Conversation:
    return _metadata(Conversation(), leader, replicas, isr, at, version)


def _metadata(conversation: Conversation, leader: int, replicas: list[int], isr: list[int], at: float, version: int = 9) -> Conversation:
    brokers = [{"node_id": n, "host": f"10.0.0.{n}", "port": 9092} for n in (1, 2, 3)]
    each = {"error_code": 0, "leader_id": leader, "replica_nodes": replicas, "isr_nodes": isr}
    topic = {"error_code": 0, "name": "t", "partitions": [each | {"partition_index": n} for n in (0, 1)]}
    return conversation.add("Metadata", version, {"topics": [{"name": "t"}]}, {"brokers": brokers, "topics": [topic]}, at, 0.01)


@pytest.mark.parametrize("version", [0, 5, 9, 12])
def test_another_leader_than_the_preferred_one_is_noticed(version: int) -> None:
    found = led(2, [1, 2, 3], [1, 2, 3], version=version).found("leader-not-preferred")
    assert found is not None and found.severity is Severity.INFO
    assert "2 of 2 partitions" in found.seen and "t-0 by broker 2 instead of broker 1" in found.seen
    assert found.about["partitions"] == ["t-0", "t-1"]


def test_one_that_leads_for_long_is_more() -> None:
    conversation = led(2, [1, 2, 3], [1, 2, 3])
    found = _metadata(conversation, 2, [1, 2, 3], [1, 2, 3], 700).found("leader-not-preferred")
    assert found is not None and found.severity is Severity.LOW


def test_nothing_is_reported_where_it_leads_or_cannot() -> None:
    assert led(1, [1, 2, 3], [1, 2, 3]).found("leader-not-preferred") is None
    assert led(2, [1, 2, 3], [2, 3]).found("leader-not-preferred") is None  # out of sync: replicas-out-of-sync
    assert led(-1, [1, 2, 3], [1]).found("leader-not-preferred") is None


def test_recordings_of_throttled_clients_fit_what_their_brokers_do() -> None:
    assert "answers at once" in findings("fetching-throttled-producer", "throttled-by-quota")[0].why
    recorded = exchanges("fetching-quota-not-reached", "Produce")
    assert "answers at once" in one([copied(e, response={"throttle_time_ms": 40}) for e in recorded], "throttled-by-quota").why
