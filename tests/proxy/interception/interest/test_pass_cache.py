"""Requests that pass because they begin like others: never one that a rule is about, whatever stands in it."""

from __future__ import annotations

import random
import socket
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange, Topics
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rule_engine import RuleEngine
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import RuleHit
from barnabas.proxy.relay.interception.interest import pass_cache
from barnabas.proxy.relay.interception.interest.pass_cache import PassCache
from harness import scripted, wire
from harness.testbed import Testbed
from harness.wire import with_size

PRODUCE, FETCH, HEARTBEAT, COORDINATOR = (
    facts.api_key(name) for name in ("Produce", "Fetch", "Heartbeat", "FindCoordinator")
)
MATCHES = (
    "api == Produce and topic == b",
    "api == Produce and topic == a and partition == 2",
    "topic in {b, c} and client == shop",
    "api == Fetch and partition == 3",
    "group == b",
    "acks == 0",
    "api == Produce and not topic == a",
    "api == Produce and ver >= 9 and txn == b",
)
IDS = {name: name.encode() * 16 for name in "abc"}


def batch(chance: random.Random) -> bytes:
    return bytes(encode_batch([Record(0, 1, None, chance.randbytes(chance.randrange(60)))]))


def request(chance: random.Random) -> bytes:
    """Any request of a few that resemble each other, without size."""
    name = lambda: chance.choice("aaabc")  # noqa: E731
    key = chance.choice((PRODUCE, PRODUCE, FETCH, HEARTBEAT, COORDINATOR))
    client = chance.choice(("shop", "shop", "shop", "other", None))
    parts = range(chance.choice((1, 1, 1, 1, 2)))
    topics = range(chance.choice((1, 1, 1, 1, 2)))
    if key == PRODUCE:
        version = chance.choice((8, 11, 11, 13))
        named = (lambda: {"topic_id": IDS[name()]}) if version >= 13 else (lambda: {"name": name()})
        data = [
            named()
            | {"partition_data": [{"index": chance.choice((0, 0, 0, 2, 3)), "records": batch(chance)} for _ in parts]}
            for _ in topics
        ]
        fields: dict[str, Any] = {"transactional_id": chance.choice((None, None, None, "b")), "acks": chance.choice((-1, -1, -1, 0)),
                                  "timeout_ms": chance.randrange(3), "topic_data": data}  # fmt: skip
    elif key == FETCH:
        version = chance.choice((12, 16))
        named = (lambda: {"topic_id": IDS[name()]}) if version >= 13 else (lambda: {"topic": name()})
        fields = {"session_epoch": chance.choice((-1, -1, 0)), "topics": [
            named() | {"partitions": [{"partition": chance.choice((0, 0, 0, 2, 3)), "fetch_offset": chance.randrange(1 << 40)} for _ in parts]}
            for _ in range(chance.choice((0, 1, 1)))]}  # fmt: skip
    elif key == HEARTBEAT:
        version = chance.choice((0, 4))
        fields = {"group_id": name(), "generation_id": chance.randrange(1 << 30), "member_id": name()}
    else:
        version = chance.choice((1, 3))
        fields = {"key": name(), "key_type": chance.randrange(2)}
    return decoder.encode_request(key, version, fields, correlation_id=chance.randrange(1 << 31), client_id=client)


@pytest.mark.parametrize("match", MATCHES)
def test_what_passes_concerns_no_rule(match: str) -> None:
    chance = random.Random(match)
    book = RuleEngine([Rule.of(match, {"delay": "1ms", "of": "request"})])
    topics = Topics()
    learned = [{"name": name, "topic_id": IDS[name]} for name in "ab"]
    brokers = decoder.encode_response(3, 12, {"topics": learned}, correlation_id=1)
    topics.learn(Exchange(api_key=3, api_version=12, response=brokers, state=decoder.State.PAIRED))
    cache = PassCache()
    passed = 0
    for number in range(1500):
        frame = request(chance)
        exchange = Exchange(api_key=int.from_bytes(frame[:2], "big"), api_version=int.from_bytes(frame[2:4], "big"),
                            request=frame, topics=topics, client_id=decoder.decode_request(frame).header["client_id"])  # fmt: skip
        if exchange.api_key not in book.interest():
            continue
        data = with_size(frame)
        known = pass_cache.known_head(cache.table, data, 0, len(data), len(frame), int.from_bytes(frame[:4], "big"))
        concerned = book.concerns(exchange)
        if known in (pass_cache.ANSWERED, pass_cache.SILENT):
            passed += 1
            assert not concerned
            assert (known == pass_cache.SILENT) == (exchange.api_key == PRODUCE and exchange.request_message["acks"] == 0)
        elif not concerned and number % 3 == 0:
            cache._wait = 0  # as often as possible
            cache.keep(exchange, book)
    assert passed > 5


def test_a_fetch_that_has_to_be_changed_never_passes() -> None:
    """Where a rule asks for topics: only requests outside of sessions do, and only those with the same session fields."""
    book, cache = RuleEngine([Rule.of("api == Fetch and topic == b", delay="1ms")]), PassCache()
    sessions = (0, 0), (5, 3), (5, -1), (0, -1), (0, 4)

    def fetch(session: int, epoch: int) -> tuple[Exchange, bytes]:
        topics = [{"topic": "a", "partitions": [{"partition": 0, "fetch_offset": 9}]}]
        fields = {"session_id": session, "session_epoch": epoch, "topics": topics}
        frame = decoder.encode_request(FETCH, 12, fields, correlation_id=1, client_id="c")
        return Exchange(api_key=FETCH, api_version=12, request=frame, client_id="c"), frame

    def passes(session: int, epoch: int) -> bool:
        frame = fetch(session, epoch)[1]
        data = with_size(frame)
        return pass_cache.known_head(cache.table, data, 0, len(data), len(frame), FETCH << 16 | 12) == pass_cache.ANSWERED

    for each in sessions:
        cache.clear()
        cache.keep(fetch(*each)[0], book)
        # Kafka's FetchMetadata: -1 is the final epoch, and session 0 none.
        assert [other for other in sessions if passes(*other)] == ([each] if each[1] == -1 or each == (0, 4) else [])


def test_filters_that_ask_for_more_are_asked_each_time() -> None:
    for match in ("api == Produce and req.timeout_ms > 3", "api == Produce and size.req > 1MB", "api == Produce and magic < 2",
                  "api == Produce and corr == 7", "api == Produce and software contains java"):  # fmt: skip
        assert not RuleEngine([Rule.of(match, delay="1ms")]).stable(PRODUCE), match


def test_pipelined_requests_of_two_topics(testbed: Testbed) -> None:
    """One topic is meant: its requests are answered here, all others pass, and every answer comes in its place."""

    script = scripted.each(lambda _, number: wire.with_size(decoder.encode_response(PRODUCE, 9, {}, correlation_id=number)))
    rule = Rule.of("api == Produce and topic == b", error="NOT_LEADER_OR_FOLLOWER", name="b")
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule])
    client = testbed.client(proxy.address)
    chance = random.Random(5)
    meant, sent = [], b""
    for number in range(600):
        topic = "b" if chance.random() < 0.05 else chance.choice("aac")
        meant += [number] if topic == "b" else []
        data = [{"name": topic, "partition_data": [{"index": chance.choice((0, 0, 1)), "records": batch(chance)}]}]
        fields = {"acks": -1, "timeout_ms": number, "topic_data": data}
        sent += wire.with_size(decoder.encode_request(PRODUCE, 9, fields, correlation_id=number, client_id="c"))
    wire.send_cut(client, sent, chance)
    got = [wire.read_frame(client) for _ in range(600)]
    assert [int.from_bytes(frame[4:8], "big") for frame in got] == list(range(600))
    refused = [
        number
        for number, frame in enumerate(got)
        if decoder.decode_response(frame[4:], api_key=0, api_version=9)["responses"]
    ]
    assert refused == meant
    proxy.stop()
    assert [event.correlation_id for event in proxy.events() if isinstance(event, RuleHit)] == meant


def test_a_topic_that_gets_its_name_later(testbed: Testbed) -> None:
    """Requests with an id that nobody has named pass alike; from the Metadata response on that names it, they are meant."""
    metadata = 3

    def answer(frame: bytes, number: int) -> bytes:
        key = int.from_bytes(frame[4:6], "big")
        fields = {"topics": [{"name": "b", "topic_id": IDS["b"]}]} if key == metadata else {}
        return wire.with_size(decoder.encode_response(key, 12 if key == metadata else 16, fields, correlation_id=number))

    script = scripted.each(answer)
    rule = Rule.of("api == Fetch and topic == b", error="UNKNOWN_SERVER_ERROR", name="b")
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule])
    client, other = testbed.client(proxy.address), testbed.client(proxy.address)

    def fetch(sock: socket.socket, number: int) -> int:
        topics = [{"topic_id": IDS["b"], "partitions": [{"partition": 0, "fetch_offset": number}]}]
        frame = decoder.encode_request(FETCH, 16, {"topics": topics}, correlation_id=number, client_id="c")
        sock.sendall(wire.with_size(frame))
        error: int = decoder.decode_response(wire.read_frame(sock)[4:], api_key=FETCH, api_version=16)["error_code"]
        return error

    assert [fetch(client, number) for number in range(6)] == [0] * 6
    assert wire.ask(other, wire.with_size(decoder.encode_request(metadata, 12, {}, correlation_id=1, client_id="d")))
    assert fetch(client, 9) == facts.error_code("UNKNOWN_SERVER_ERROR")
    proxy.stop()
    assert [event.correlation_id for event in proxy.events() if isinstance(event, RuleHit)] == [9]
