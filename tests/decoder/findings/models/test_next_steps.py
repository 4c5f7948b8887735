"""The table of what clients must do after an error: who sends the same again is named, with what it did; who obeys is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from barnabas.decoder.findings import Severity
from barnabas.decoder.reference.next_steps import next_step, next_steps
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations

GROUP, PLACE = "billing", {"name": "orders", "partitions": [{"partition_index": 0}]}
MEMBER = {"group_id": GROUP, "member_id": "m-1"}
TXN = {"transactional_id": "t", "producer_id": 4000, "producer_epoch": 1}
JOINS = {"group_id": GROUP, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": []}
Sent = tuple[str, int, dict[str, Any], dict[str, Any]]
"""An API, a version, a request and its answer."""


class Case(NamedTuple):
    """What is refused with an error, and what takes the step: another request that is answered well, None for nothing at all.
    `says`: what a client did that ignores it. `every`: seconds between two requests; `count`: how many."""

    step: str
    error: str
    refused: Sent
    obeys: Sent | None
    says: str
    every: float = 1.0
    count: int = 12


def top(code: int) -> dict[str, Any]:
    return {"error_code": code}


def placed(api: str, version: int, request: dict[str, Any], response: str, **asked: Any) -> Callable[[int], Sent]:
    """A request about a partition; `response`: the names of the arrays of topics and partitions in its answer, and the partition's number."""
    topics, partitions, number, name = response.split()
    def made(code: int) -> Sent:
        answer = {topics: [{name: "orders", partitions: [{number: 0, "error_code": code}]}]}
        return api, version, request, answer
    return made


_LISTED = {"name": "orders", "partitions": [{"partition_index": 0, "current_leader_epoch": 3, "timestamp": -1}]}
_ASKED = {"topic": "orders", "partitions": [{"partition": 0, "current_leader_epoch": 3, "fetch_offset": 41, "partition_max_bytes": 100}]}
LIST_OFFSETS = placed("ListOffsets", 4, {"replica_id": -1, "isolation_level": 0, "topics": [_LISTED]}, "topics partitions partition_index name")
FETCH = placed("Fetch", 12, {"max_wait_ms": 1, "min_bytes": 1, "topics": [_ASKED]}, "responses partitions partition_index topic")
PRODUCE = placed(
    "Produce", 8, {"acks": -1, "timeout_ms": 1, "topic_data": [{"name": "orders", "partition_data": [{"index": 0}]}]},
    "responses partition_responses index name",
)  # fmt: skip
METADATA: Sent = ("Metadata", 9, {"topics": [{"name": "orders"}]}, {"brokers": [], "topics": []})
HEARTBEAT = {**MEMBER, "generation_id": 5}
COMMIT = placed(
    "OffsetCommit", 9,
    {**MEMBER, "generation_id_or_member_epoch": 5, "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]},
    "topics partitions partition_index name",
)  # fmt: skip
INIT: Sent = ("InitProducerId", 3, {"transactional_id": "t", "transaction_timeout_ms": 1000}, {"error_code": 0, "producer_id": 4000, "producer_epoch": 2})


def beats(epoch: int, code: int = 0, api: str = "ConsumerGroupHeartbeat") -> Sent:
    return api, 0, {**MEMBER, "member_epoch": epoch}, {**top(code), "member_id": "m-1", "member_epoch": 7, "heartbeat_interval_ms": 5000}


def of(name: str) -> int:
    return facts.error_code(name)


def simple(api: str, version: int, request: dict[str, Any], error: str, **answer: Any) -> Sent:
    return api, version, request, {**top(of(error)), **answer}


JOINED: Sent = ("JoinGroup", 7, {**JOINS, "member_id": "m-2"}, {**top(0), "generation_id": 6, "leader": "m-2", "member_id": "m-2", "members": []})
CASES = (
    Case("find-coordinator", "NOT_COORDINATOR", simple("Heartbeat", 4, HEARTBEAT, "NOT_COORDINATOR"),
         ("FindCoordinator", 3, {"key": GROUP}, {**top(0), "node_id": 2, "host": "10.0.0.2", "port": 9092}), "asked the same broker again 11 times"),
    Case("join-without-id", "UNKNOWN_MEMBER_ID", simple("Heartbeat", 4, HEARTBEAT, "UNKNOWN_MEMBER_ID"), JOINED, "sent the same member id again 11 times"),
    Case("join-generation", "ILLEGAL_GENERATION", simple("SyncGroup", 4, HEARTBEAT, "ILLEGAL_GENERATION"), JOINED, "sent the same generation (5) again"),
    Case("join-rebalance", "REBALANCE_IN_PROGRESS", simple("Heartbeat", 4, HEARTBEAT, "REBALANCE_IN_PROGRESS"), JOINED,
         "sent the same generation (5) again 109 times in 5 min", 3.0, 110),
    Case("join-with-id", "MEMBER_ID_REQUIRED", simple("JoinGroup", 7, {**JOINS, "member_id": ""}, "MEMBER_ID_REQUIRED", member_id="m-2"), JOINED,
         "sent JoinGroup without a member id again 11 times"),
    Case("join-epoch", "FENCED_MEMBER_EPOCH", beats(5, of("FENCED_MEMBER_EPOCH")), beats(0), "sent the same member epoch (5) again 11 times"),
    Case("join-lost-group", "GROUP_ID_NOT_FOUND", beats(5, of("GROUP_ID_NOT_FOUND")), beats(0), "sent the same member epoch (5) again 11 times"),
    Case("take-epoch", "STALE_MEMBER_EPOCH", COMMIT(of("STALE_MEMBER_EPOCH")), None, "sent the same member epoch (5) again 11 times"),
    Case("stop-instance", "FENCED_INSTANCE_ID", simple("Heartbeat", 4, HEARTBEAT, "FENCED_INSTANCE_ID"), None, "went on as the fenced member 11 times"),
    Case("wait-for-instance", "UNRELEASED_INSTANCE_ID", beats(0, of("UNRELEASED_INSTANCE_ID")), None, "tried again at once 149 times", 0.002, 150),
    Case("stop-topology", "STREAMS_TOPOLOGY_FENCED", ("StreamsGroupHeartbeat", 0, {**MEMBER, "member_epoch": 5}, top(of("STREAMS_TOPOLOGY_FENCED"))),
         None, "sent the same topology again 11 times"),
    Case("find-leader", "NOT_LEADER_OR_FOLLOWER", LIST_OFFSETS(of("NOT_LEADER_OR_FOLLOWER")), METADATA, "asked the same broker again 11 times"),
    Case("find-partition", "UNKNOWN_TOPIC_OR_PARTITION", PRODUCE(of("UNKNOWN_TOPIC_OR_PARTITION")), METADATA,
         "sent records for the same partition again 11 times"),
    Case("find-epoch", "FENCED_LEADER_EPOCH", LIST_OFFSETS(of("FENCED_LEADER_EPOCH")), METADATA, "sent the same leader epoch (3) again 11 times"),
    Case("begin-fetch-session", "INVALID_FETCH_SESSION_EPOCH",
         simple("Fetch", 12, {"session_id": 7, "session_epoch": 3, "topics": []}, "INVALID_FETCH_SESSION_EPOCH", responses=[]),
         None, "went on with the same session (7) 11 times"),
    Case("begin-share-session", "SHARE_SESSION_NOT_FOUND", simple("ShareFetch", 1, {**MEMBER, "share_session_epoch": 3}, "SHARE_SESSION_NOT_FOUND"),
         simple("ShareFetch", 1, {**MEMBER, "share_session_epoch": 0}, "NONE"), "went on with the lost session 11 times"),
    Case("reset-position", "OFFSET_OUT_OF_RANGE", FETCH(of("OFFSET_OUT_OF_RANGE")), LIST_OFFSETS(0), "fetched the same offset (41) again 11 times"),
    Case("stop-producer", "INVALID_PRODUCER_ID_MAPPING", simple("EndTxn", 3, {**TXN, "committed": True}, "INVALID_PRODUCER_ID_MAPPING"), INIT,
         "went on with the same producer epoch 11 times"),
    Case("abort-transaction", "TRANSACTION_ABORTABLE", simple("AddOffsetsToTxn", 3, {**TXN, "group_id": GROUP}, "TRANSACTION_ABORTABLE"),
         simple("EndTxn", 3, {**TXN, "committed": False}, "NONE"), "went on with the same transaction 11 times"),
    Case("wait-for-transaction", "CONCURRENT_TRANSACTIONS", simple("EndTxn", 3, {**TXN, "committed": True}, "CONCURRENT_TRANSACTIONS"), None,
         "tried again at once 149 times", 0.002, 150),
    Case("find-controller", "NOT_CONTROLLER",
         ("DeleteTopics", 4, {"topic_names": ["orders"], "timeout_ms": 1}, {"responses": [{"name": "orders", "error_code": of("NOT_CONTROLLER")}]}),
         METADATA, "asked the same broker again 11 times"),
    Case("lower-version", "UNSUPPORTED_VERSION", simple("ListGroups", 4, {}, "UNSUPPORTED_VERSION", groups=[]),
         ("ApiVersions", 0, {}, {**top(0), "api_keys": [{"api_key": 16, "min_version": 0, "max_version": 3}]}), "sent the same version (4) again 11 times"),
    Case("log-in", "SASL_AUTHENTICATION_FAILED", simple("SaslAuthenticate", 1, {"auth_bytes": b"?"}, "SASL_AUTHENTICATION_FAILED"), None,
         "tried to log in again 11 times"),
)  # fmt: skip
ELSEWHERE = {"find-topic-id", "renew-producer", "rebootstrap"}
"""Steps of which detectors of their own speak; their tests have them."""


def send(talk: Conversations, link: Any, sent: Sent) -> None:
    talk.ask(link, *sent)


def test_every_step_is_here() -> None:
    assert {case.step for case in CASES} | ELSEWHERE == {step.name for step in next_steps().values()}
    for case in CASES:
        step = next_step(facts.api_key(case.refused[0]), of(case.error))
        assert step is not None and step.name == case.step


@pytest.mark.parametrize("case", CASES, ids=[case.step for case in CASES])
def test_a_client_that_ignores_it(case: Case) -> None:
    talk = Conversations("error-ignored")
    link = talk.open()
    for _ in range(case.count):
        send(talk, link, case.refused)
        talk.wait(case.every)
    (found,) = talk.findings()
    assert case.says in found.seen and case.error in found.seen
    assert found.severity.rank >= Severity.MEDIUM.rank and found.count == case.count
    step = next_step(facts.api_key(case.refused[0]), of(case.error))
    assert step is not None and f"a client must {step.must} ({step.source})" in found.why


@pytest.mark.parametrize("case", CASES, ids=[case.step for case in CASES])
def test_a_client_that_takes_the_step(case: Case) -> None:
    """Each time; where the step is to stop or to wait, it does so after a few tries."""
    talk = Conversations("error-ignored")
    link = talk.open()
    for _ in range(case.count):
        send(talk, link, case.refused)
        if case.obeys is not None:
            send(talk, link, case.obeys)
        talk.wait(case.every if case.obeys is not None else 61)
    assert talk.findings() == []


def test_requests_that_were_on_their_way_are_no_disobedience() -> None:
    talk = Conversations("error-ignored")
    link = talk.open()
    api, version, asked, answer = CASES[0].refused
    for _ in range(20):
        talk.ask(link, api, version, asked, answer, took=30.0)
        talk.wait(0.5)
    assert talk.findings() == []


@pytest.mark.parametrize("step", ["find-leader", "find-epoch", "begin-fetch-session", "reset-position"])
def test_followers_learn_what_changed_in_another_way(step: str) -> None:
    talk = Conversations("error-ignored")
    link = talk.open()
    (case,) = (case for case in CASES if case.step == step)
    api, version, asked, answer = case.refused
    for _ in range(12):
        talk.ask(link, api, version, {**asked, "replica_id": 2}, answer)
        talk.wait(1)
    assert talk.findings() == []


def test_producers_of_one_name_that_wait_are_not_in_a_hurry() -> None:
    talk = Conversations("error-ignored")
    link = talk.open()
    for n in range(300):
        asked = {**TXN, "transactional_id": f"t-{n % 20}", "committed": True}
        talk.ask(link, "EndTxn", 3, asked, top(of("CONCURRENT_TRANSACTIONS")))
        talk.wait(0.004)
    assert talk.findings() == []


def test_what_the_client_did_is_said_in_the_finding_about_the_error() -> None:
    talk = Conversations("error-ignored", "sasl-authentication-failed")
    link = talk.open()
    talk.ask(link, "SaslHandshake", 1, {"mechanism": "PLAIN"}, {"error_code": 0, "mechanisms": ["PLAIN"]})
    for _ in range(6):
        send(talk, link, CASES[-1].refused)
        talk.wait(1)
    (found,) = talk.findings()
    assert found.id == "sasl-authentication-failed" and "the client tried to log in again 5 times in 5.0 s" in found.seen
    assert talk.findings()[0].seen == found.seen
