"""Subscriptions by regular expressions that could take for ever: they are refused, and the next client is answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from barnabas import decoder
from barnabas.captures.serving import DelayedReply, Engine, LiveSession
from barnabas.decoder import Connection, Exchange, ExchangeDone
from barnabas.decoder.schema import facts
from harness.run.slices import thin
from harness.run.steps import steps
from harness.wire import with_size
from torture.decoder.worst_cases import PATTERNS

HEARTBEAT, METADATA = facts.api_key("ConsumerGroupHeartbeat"), facts.api_key("Metadata")
TOPIC = "a" * 249
INVALID = facts.error_code("INVALID_REGULAR_EXPRESSION")


def beat(regex: str | None, number: int, epoch: int = 0, member: str = "m") -> bytes:
    fields = {"group_id": "g", "member_id": member, "member_epoch": epoch, "subscribed_topic_regex": regex, "rebalance_timeout_ms": 1000}
    return decoder.encode_request(HEARTBEAT, 1, fields, correlation_id=number, client_id="app")


def recorded() -> Iterator[Exchange]:
    """A group of the new protocol, and topics whose names are as long as Kafka allows."""
    connection = Connection(1, "10.0.0.1:4000", "10.0.0.2:9092")
    topics = [{"name": TOPIC[:-2] + f"{number:02}", "topic_id": bytes(15) + bytes([number + 1]), "partitions": []} for number in range(50)]
    brokers = [{"node_id": 1, "host": "10.0.0.2", "port": 9092}]
    messages = (
        (decoder.encode_request(METADATA, 12, {"topics": None}, correlation_id=1, client_id="app"),
         decoder.encode_response(METADATA, 12, {"brokers": brokers, "topics": topics}, correlation_id=1)),
        (beat(None, 2), decoder.encode_response(HEARTBEAT, 1, {"member_id": "m", "member_epoch": 1}, correlation_id=2)),
    )  # fmt: skip
    for number, (request, answer) in enumerate(messages):
        connection.receive_from_client(with_size(request), number)
        yield from (e.exchange for e in connection.receive_from_broker(with_size(answer), number) if isinstance(e, ExchangeDone))


def answered(engine: Engine, session: LiveSession, frame: bytes) -> dict[str, object]:
    ask = engine.read(session, frame, 1.0, 1)
    reply = engine.answer(ask)
    assert not isinstance(reply, DelayedReply)
    sent = engine.encode(ask, reply)
    assert sent is not None
    key, version, _ = decoder.peek_request(frame)
    found: dict[str, object] = decoder.decode_response(sent, api_key=key, api_version=version).to_dict()
    return found


@pytest.mark.parametrize("regex", thin([*PATTERNS, "(a+)+!", "a*a*a*a*a*!", "(" * 400 + ")" * 400], 4))
def test_the_next_client_is_answered(regex: str) -> None:
    engine = Engine(list(recorded()))
    engine.ports.update({1: 9092})
    hostile, other = LiveSession(1, "127.0.0.1"), LiveSession(2, "127.0.0.1")
    plain = steps(lambda: answered(engine, other, beat("b.*", 1, member="other")))
    for number in range(3):
        # An exponential search is one step, and never ends: whoever comes next shows that it did.
        work = steps(lambda number=number: answered(engine, hostile, beat(regex, 2 + number)))  # type: ignore[misc]
        assert work < 20 * plain + 20_000
        assert answered(engine, other, beat("b.*", 10 + number, member="other"))["error_code"] == 0


def test_expressions_that_could_take_forever_are_refused() -> None:
    engine = Engine(list(recorded()))
    engine.ports.update({1: 9092})
    assert answered(engine, LiveSession(1, "127.0.0.1"), beat("(a+)+!", 1))["error_code"] == INVALID
    assert answered(engine, LiveSession(1, "127.0.0.1"), beat("a{3}.*", 2))["error_code"] == 0
