"""Which rule fires, how often, and what happens to requests and responses then."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.connection.exchange import State
from barnabas.decoder.schema import facts
from barnabas.plugins.actions.fault_plan import CutPoint
from barnabas.plugins.rules.rule_engine import RuleEngine, exchange_of
from barnabas.plugins.rules.rules import Rule

PRODUCE_VERSIONS = facts.api(0).versions.every()
TOPIC_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
MOVED = {"error": "NOT_LEADER_OR_FOLLOWER"}


def produce(version: int, topics: dict[str, list[int]], acks: int = -1) -> Exchange:
    entries: list[dict[str, Any]] = []
    for number, (name, partitions) in enumerate(topics.items()):
        topic: dict[str, Any] = {"partition_data": [{"index": p, "records": b"r"} for p in partitions]}
        if version >= 13:
            topic["topic_id"] = uuid.UUID(int=TOPIC_ID.int + number)
        else:
            topic["name"] = name
        entries.append(topic)
    body = {"acks": acks, "timeout_ms": 1, "topic_data": entries}
    return exchange_of(decoder.encode_request(0, version, body, correlation_id=4711, client_id="c"))


def knowing(engine: RuleEngine, names: dict[str, uuid.UUID]) -> RuleEngine:
    """After a Metadata response that tells these topics and three brokers."""
    body = {
        "brokers": [{"node_id": n, "host": f"broker-{n}", "port": 9090 + n} for n in (1, 2, 3)],
        "topics": [{"name": name, "topic_id": topic_id} for name, topic_id in names.items()],
    }
    frame = decoder.encode_response(3, 12, body, correlation_id=1)
    engine.learn(Exchange(api_key=3, api_version=12, response=frame, state=State.PAIRED))
    return engine


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_answer_names_every_partition(version: int) -> None:
    faults = RuleEngine([Rule.of("api == Produce", MOVED)]).decide(produce(version, {"a": [0, 5], "b": [1], "c": []}))
    assert faults is not None and faults.hits == 1 and faults.answer is not None and not faults.late
    message = decoder.decode_response(faults.answer, api_key=0, api_version=version)
    assert message.header["correlation_id"] == 4711
    fields = message.to_dict()
    got = []
    for topic in fields["responses"]:
        for partition in topic["partition_responses"]:
            got.append((topic.get("name") or topic["topic_id"].int - TOPIC_ID.int, partition["index"]))
            assert partition["error_code"] == 6
            assert partition["base_offset"] == -1
            assert partition.get("log_append_time_ms", -1) == -1
            assert partition.get("log_start_offset", -1) == -1
            assert partition.get("record_errors", []) == []
    first, second = (0, 1) if version >= 13 else ("a", "b")
    assert got == [(first, 0), (first, 5), (second, 1)]
    assert len(fields["responses"]) == 3
    assert fields.get("throttle_time_ms", 0) == 0


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_executed_changes_only_what_matches(version: int) -> None:
    rule = Rule.of("api == Produce and topic == b and partition == 1", MOVED | {"broker": "executed"})
    engine = knowing(RuleEngine([rule]), {"b": uuid.UUID(int=TOPIC_ID.int + 1)})
    exchange = produce(version, {"a": [1], "b": [0, 1]})
    exchange.topics = engine.cluster_view.topics
    faults = engine.decide(exchange)
    assert faults is not None and faults.answer is None and faults.late
    responses: list[dict[str, Any]] = []
    for number, name in enumerate("ab"):
        partitions = [{"index": index, "base_offset": 9} for index in (0, 1)]
        topic = {"topic_id": uuid.UUID(int=TOPIC_ID.int + number)} if version >= 13 else {"name": name}
        responses.append(topic | {"partition_responses": partitions})
    original = decoder.encode_response(0, version, {"responses": responses}, correlation_id=3)
    changed = decoder.decode_response(faults.respond(exchange, original), api_key=0, api_version=version)
    where = "responses[1].partition_responses[1]."
    assert list(changed.errors()) == [(where + "error_code", 6)]
    assert changed.replace({where + "error_code": 0, where + "base_offset": 9}).encode() == original


def test_after_and_times_count_matches() -> None:
    engine = RuleEngine(
        [
            Rule.of("api == Produce and topic == a", MOVED, name="few", when={"after": 2, "times": 3}),
            Rule.of("api == Produce and topic == a", MOVED, name="rest", when={"after": 1}),
        ]
    )
    fired = []
    for number in range(8):
        faults = engine.decide(produce(7, {"a" if number != 1 else "z": [0]}))
        fired.append(faults.rule if faults else None)
    assert fired == [None, None, "rest", "few", "few", "few", "rest", "rest"]
    assert engine.hits() == {"few": 3, "rest": 3}
    assert engine.counts()["few"] == (5, 3)


def test_what_does_not_match_passes() -> None:
    engine = RuleEngine([Rule.of("api == Produce and topic == a and partition == 2", MOVED, name="r")])
    assert engine.interest() == {0}
    assert engine.decide(produce(7, {"a": [0, 1], "b": [2]})) is None
    assert engine.decide(produce(7, {"a": [2]}, acks=0)) is None
    assert engine.decide(produce(13, {"a": [2]})) is None  # the id's name was never seen
    assert engine.decide(exchange_of(decoder.encode_request(1, 4, {}, correlation_id=1, client_id=None))) is None
    assert engine.hits() == {"r": 0}
    assert RuleEngine([]).interest() == frozenset()


def fired(when: dict[str, Any], matches: int = 12, step_ns: int = 10**9) -> list[int]:
    """Which of so many matches, one every `step_ns`, a rule fires for."""
    begun = 1_700_000_000 * 10**9
    engine = RuleEngine([Rule.of("api == Produce", {"drop": "response"}, when=when)], now_ns=begun)
    found = []
    for number in range(matches):
        exchange = produce(7, {"a": [0]})
        exchange.request_time_ns = begun + number * step_ns
        if engine.decide(exchange) is not None:
            found.append(number)
    return found


def test_every_nth_and_windows() -> None:
    assert fired({"every": 3}) == [0, 3, 6, 9]
    assert fired({"after": 1, "every": 4, "times": 2}) == [1, 5]
    assert fired({"from": "2s", "until": "5s"}) == [2, 3, 4]
    assert fired({"until": "2500ms"}) == [0, 1, 2]
    assert fired({"from": "2023-11-14T22:13:25Z", "until": "2023-11-14T22:13:27Z"}) == [5, 6, 7]
    assert fired({"from": "2s", "times": 1}) == [2]


def test_chance_is_repeatable_and_about_right() -> None:
    half = {"probability": 0.5, "seed": 7}
    first = fired(half, 400)
    assert first == fired(half, 400) != fired({"probability": 0.5, "seed": 8}, 400)
    assert 140 < len(first) < 260
    assert fired({"probability": "10%", "seed": 1}, 1000) != []


def test_a_changed_book_goes_on_counting_and_choosing() -> None:
    rule = Rule.of("api == Produce", {"drop": "response"}, name="r", when={"probability": 0.5, "seed": 3})
    whole, engine = RuleEngine([rule]), RuleEngine([rule])
    expected = [whole.decide(produce(7, {"a": [0]})) is not None for _ in range(40)]
    got = []
    for number in range(40):
        if number % 10 == 9:
            engine = engine.with_rules([Rule.of("api == Fetch", MOVED, name="other"), rule], engine.counts())
        got.append(engine.decide(produce(7, {"a": [0]})) is not None)
    assert got == expected


def test_a_rule_about_the_response_is_judged_by_it() -> None:
    engine = RuleEngine([Rule.of("api == Produce and err == REQUEST_TIMED_OUT", {"disconnect": "before-response"})])
    exchange = produce(7, {"a": [0]})
    assert engine.decide(exchange) is None and engine.late() == {0}
    for code, cut in ((0, None), (7, CutPoint.BEFORE_RESPONSE)):
        answered = produce(7, {"a": [0]})
        body = {"responses": [{"name": "a", "partition_responses": [{"index": 0, "error_code": code}]}]}
        answered.response = decoder.encode_response(0, 7, body, correlation_id=4711)
        answered.state = State.PAIRED
        faults = engine.judge(answered)
        assert (faults.cut.at if faults is not None and faults.cut is not None else None) == cut


def test_acks_0_is_left_alone_by_what_would_answer_it() -> None:
    silent = produce(7, {"a": [0]}, acks=0)
    assert RuleEngine([Rule.of("api == Produce", MOVED)]).decide(silent) is None
    assert RuleEngine([Rule.of("api == Produce", {"drop": "response"})]).decide(silent) is None
    cut = RuleEngine([Rule.of("api == Produce", {"disconnect": "before-request"})]).decide(silent)
    assert cut is not None and cut.cut is not None


@pytest.mark.parametrize("version", facts.api(10).versions.every())
@pytest.mark.parametrize("code", ["NONE", "COORDINATOR_NOT_AVAILABLE"])
def test_a_coordinator_that_moved_is_another_broker(version: int, code: str) -> None:
    """One that can be asked, also where the broker says that there is none yet."""
    engine = knowing(RuleEngine([Rule.of("api == FindCoordinator", coordinator="moved")]), {})
    asked = exchange_of(decoder.encode_request(10, version, {}, correlation_id=7, client_id="c"))
    faults = engine.decide(asked)
    assert faults is not None
    node = {"node_id": 3 if code == "NONE" else -1, "host": "broker-3", "port": 9093}
    node |= {"error_code": facts.error_code(code)} | ({"error_message": "why"} if version else {})
    body = {"coordinators": [node | {"key": "g"}]} if version >= 4 else node
    answered = faults.respond(asked, decoder.encode_response(10, version, body, correlation_id=7))
    fields = decoder.decode_response(answered, api_key=10, api_version=version).to_dict()
    found = fields["coordinators"][0] if version >= 4 else fields
    assert (found["node_id"], found["host"], found["port"], found["error_code"]) == (1, "broker-1", 9091, 0)
    assert found.get("error_message") is None
