"""Producers that are refused, wait, send again, or do not ask: recordings of real clients, as they are and edited."""

from __future__ import annotations

from dataclasses import replace

import pytest
from barnabas.decoder import Exchange
from barnabas.decoder.connection.events import Closed
from barnabas.decoder.connection.exchange import State
from barnabas.decoder.findings import Finding
from barnabas.decoder.findings.engine.counters import LruDict
from barnabas.decoder.findings.engine.finding import Severity
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations
from traffic.edited_exchanges import (
    PRODUCE_ERROR,
    PRODUCE_RECORDS,
    SECOND,
    answered,
    copied,
    edited,
    failed,
    later,
    only,
    produce_refused,
    without,
)
from traffic.recordings import PRODUCING, exchanges, findings, one, recording

LEADER = "produce-leader-retries"


@pytest.mark.parametrize("name", ["fetched", "commits", "acks-1", "leader-moves", "skewed", "scattered", "tiny"])
def test_nothing_above_info_where_nothing_is_wrong(name: str) -> None:
    # The last two become wrong only when they go on for seconds.
    assert [f for f in findings(f"producing-{name}", *PRODUCING) if f.severity.rank or f.id not in PRODUCING] == []


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_produce_is_read(version: int) -> None:
    topic = {"topic_id": bytes(15) + b"\1"} if version >= 13 else {"name": "meters"}
    sent = exchanges("producing-acks-0", "Produce")[0].request_message
    assert sent is not None
    part = {"index": 2, "records": bytes(sent[PRODUCE_RECORDS])}
    request = {"acks": 0, "timeout_ms": 1000, "topic_data": [{**topic, "partition_data": [part]}]}
    refusal = {"index": 2, "error_code": facts.error_code("INVALID_RECORD"), "base_offset": -1}
    conversation = Conversations(*PRODUCING)
    connection = conversation.open()
    conversation.ask(connection, "Produce", version, request, None)
    answer = {"responses": [{**topic, "partition_responses": [refusal]}]}
    conversation.ask(connection, "Produce", version, request | {"acks": 1}, answer)
    found = {f.id: f for f in conversation.findings()}
    assert set(found) == {"acks-0", "acks-1", "produce-refused"}
    assert found["acks-0"].about["topics"] == ["meters" if version < 13 else "AAAAAAAAAAAAAAAAAAAAAQ"]
    assert found["produce-refused"].about["partition"] == 2


@pytest.mark.parametrize(("by", "after", "expected"), [("broker", 0, 2), ("client", 0, 1), ("broker", 5, 1)])
def test_acks_0_and_the_broker_closes(by: str, after: int, expected: int) -> None:
    *before, closed = recording("producing-acks-0-refused")
    assert isinstance(closed, Closed)
    found = findings([*before, replace(closed, by=by, time_ns=closed.time_ns + after * SECOND)], "acks-0")
    assert [f.severity for f in found] == [Severity.HIGH, Severity.MEDIUM][2 - expected :]
    if expected == 2:
        assert "right after a Produce with acks=0" in found[0].seen


def test_acks_1_of_many_producers_is_one_finding() -> None:
    first = recording("producing-acks-1")
    another = edited(first, lambda e: copied(e, client_id="meter-3", connection=e.connection + 10))
    finding = one([*first, *another], "acks-1")
    assert finding.severity is Severity.INFO and finding.count == 10
    assert finding.about["client_ids"] == ["meter-2", "meter-3"] and "and 1 like it" in finding.seen
    assert findings("producing-commits", "acks-1") == []


def test_a_record_is_too_large() -> None:
    finding = one("producing-too-large", "produce-too-large")
    assert finding.severity is Severity.HIGH and finding.count == 2
    about = finding.about
    assert 400 < about["largest_taken_bytes"] < 2000 < about["smallest_refused_bytes"] <= about["refused_bytes"]
    assert "max.message.bytes" in finding.remedy and about["error"] == "MESSAGE_TOO_LARGE"


def test_a_batch_of_many_records_that_is_too_large_can_be_split() -> None:
    finding = one(
        edited(recording("producing-uncompressed"), produce_refused("MESSAGE_TOO_LARGE")), "produce-too-large"
    )
    assert finding.severity is Severity.MEDIUM and "single record" not in finding.seen
    assert findings("producing-uncompressed", "produce-too-large") == []


@pytest.mark.parametrize(
    ("error", "severity"),
    [
        ("KAFKA_STORAGE_ERROR", Severity.HIGH),
        ("POLICY_VIOLATION", Severity.HIGH),
        ("INVALID_TIMESTAMP", Severity.HIGH),
        ("INVALID_TOPIC_EXCEPTION", Severity.HIGH),
        ("GROUP_ID_NOT_FOUND", Severity.HIGH),  # nobody expects this one here
        ("THROTTLING_QUOTA_EXCEEDED", Severity.LOW),  # and this one passes
    ],
)
def test_other_refusals(error: str, severity: Severity) -> None:
    finding = one(edited(recording("producing-acks-1"), produce_refused(error)), "produce-refused")
    assert finding.severity is severity and finding.count == 5
    assert finding.about["error"] == error


def test_what_others_explain_is_no_refusal() -> None:
    for error in ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"):
        assert findings(edited(recording("producing-acks-1"), produce_refused(error)), "produce-refused") == []
    assert findings("producing-not-allowed", *PRODUCING) == []  # authorization-failed says it
    for error in ("NOT_LEADER_OR_FOLLOWER", "MESSAGE_TOO_LARGE", "CORRUPT_MESSAGE", "PRODUCER_FENCED"):
        events = edited(recording("producing-acks-1"), produce_refused(error))
        found = findings(events, *PRODUCING)
        assert [f.about["error"] for f in found if f.id != "acks-1"] == [error]
        assert "produce-refused" not in {f.id for f in found}


@pytest.mark.parametrize(("seconds", "severity"), [(4, Severity.INFO), (8, Severity.LOW), (40, Severity.MEDIUM)])
def test_a_long_election(seconds: float, severity: Severity) -> None:
    took = one("producing-leader-moves", LEADER).about["longest_ns"]
    assert (
        one(edited(recording("producing-leader-moves"), stretch=seconds * SECOND / took), LEADER).severity is severity
    )


def test_a_client_that_does_not_look_for_the_leader() -> None:
    events = only(recording("producing-leader-moves"), lambda e: e.api != "Metadata")
    assert one(events, LEADER).severity is Severity.INFO  # three times
    blind = edited(events, produce_refused("NOT_LEADER_OR_FOLLOWER"))
    finding = one(blind, LEADER)
    assert finding.severity is Severity.MEDIUM and "in a row without asking for Metadata" in finding.seen


def test_a_client_that_learns_the_leader_need_not_look() -> None:
    leader = {"responses[0].partition_responses[0].current_leader": {"leader_id": 2, "leader_epoch": 5}}
    named = answered(leader | {PRODUCE_ERROR: facts.error_code("NOT_LEADER_OR_FOLLOWER")})
    happened = without(recording("producing-leader-moves"), lambda e: e.api == "Metadata")
    finding = one(edited(happened, named, "Produce"), LEADER)
    assert finding.severity is Severity.INFO and finding.about["leader_told"]


def test_a_partition_that_never_works_again() -> None:
    failing = only(recording("producing-leader-moves"), lambda e: e.api != "Produce" or failed(e))
    assert one(later(failing, 5), LEADER).severity is Severity.INFO
    assert one(later(failing, 20), LEADER).severity is Severity.MEDIUM
    finding = one(later(edited(failing, stretch=200), 20), LEADER)  # tried for more than 30 s
    assert finding.severity is Severity.HIGH and "have not succeeded since" in finding.seen


def test_bursts_again_and_again() -> None:
    once = recording("producing-leader-moves")
    day = [h for number in range(5) for h in edited(once, after=number * 600)]
    assert one(day[: 4 * len(once)], LEADER).severity is Severity.INFO
    finding = one(day, LEADER)
    assert finding.severity is Severity.LOW and finding.about["bursts"] == 5


def test_one_election_of_many_partitions_is_one_burst() -> None:
    asked, given = {"topic_data[0].partition_data[0].index": 1}, {PRODUCE_ERROR.replace("error_code", "index"): 1}
    once = recording("producing-leader-moves")
    another = edited(once, lambda e: copied(e, request=asked, response=given), "Produce", after=1)
    finding = one([*once, *another], LEADER)
    assert finding.about["bursts"] == 1 and finding.about["recovered"] == 2
    assert finding.about["partitions"] == ["p-leader-moves-0", "p-leader-moves-1"]


def test_an_unknown_partition_has_its_own_explanation() -> None:
    happened = edited(recording("producing-leader-moves"), produce_refused("UNKNOWN_TOPIC_OR_PARTITION", failed))
    finding = one(happened, LEADER)
    assert finding.about["error"] == "UNKNOWN_TOPIC_OR_PARTITION" and "deleted" in finding.why


def test_too_few_replicas() -> None:
    finding = one("producing-too-few-replicas", "not-enough-replicas")
    assert finding.severity is Severity.LOW and finding.count == 4  # it worked again within a second
    assert "min.insync.replicas" in finding.remedy
    assert (
        one(edited(recording("producing-too-few-replicas"), stretch=10), "not-enough-replicas").severity
        is Severity.MEDIUM
    )
    failing = only(recording("producing-too-few-replicas"), lambda e: e.api != "Produce" or failed(e))
    assert one(failing, "not-enough-replicas").severity is Severity.HIGH
    assert findings("producing-leader-moves", "not-enough-replicas") == []


def test_written_by_the_leader_all_the_same() -> None:
    happened = edited(
        recording("producing-too-few-replicas"), produce_refused("NOT_ENOUGH_REPLICAS_AFTER_APPEND", failed)
    )
    found = {f.id: f for f in findings(happened, "not-enough-replicas", "resent-without-idempotence")}
    assert "already written" in found["not-enough-replicas"].why
    assert found["resent-without-idempotence"].about["effect"] == "twice"


def test_no_answer_and_sent_again() -> None:
    def cut_off(e: Exchange) -> Exchange:
        return copied(e, state=State.NO_RESPONSE, response=None, response_time_ns=None) if failed(e) else e

    happened = edited(recording("producing-timed-out-but-written"), cut_off, "Produce")
    finding = one(happened, "resent-without-idempotence")
    assert finding.about["effect"] == "twice" and "got no answer" in finding.seen


def test_what_is_known_is_bounded() -> None:
    known: LruDict[int, list[int]] = LruDict(3)
    for number in range(5):
        known.of(number, list).append(number)
        known.of(0, list)
    assert list(known) == [3, 4, 0]
    known[7] = []
    assert list(known) == [4, 0, 7]


def test_findings_have_what_scripts_need() -> None:
    found: list[Finding] = []
    for name in ("acks-0", "too-large", "wrong-acks", "leader-moves", "reordered", "fenced", "left-open", "wrong-crc"):
        found += findings(f"producing-{name}", *PRODUCING)
    assert len({f.id for f in found}) >= 8
    for finding in found:
        assert {"client_id", "client", "broker", "software", "api", "api_version"} <= set(finding.about), finding.id
