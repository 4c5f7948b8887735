"""Peers that break off, or send nonsense, at the worst moment: nothing of it stays in the relay, and nothing in it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat

import pytest
from barnabas import decoder
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import RelayFault
from harness.wire import with_size
from torture.proxy.peers.stepped_relay import Session, SteppedRelay, cut
from torture.proxy.test_correlation import heartbeat

METADATA = facts.api_key("Metadata")
HEARTBEAT = facts.api_key("Heartbeat")
PRODUCE = facts.api_key("Produce")
NO_FRAME = b"\x7f\xff\xff\xff" + bytes(20)


@pytest.fixture
def relay() -> Iterator[Callable[..., SteppedRelay]]:
    made: list[SteppedRelay] = []

    def give(rules: list[Rule] | None = None, lossless: bool = False) -> SteppedRelay:
        made.append(SteppedRelay(rules, lossless))
        return made[-1]

    yield give
    for each in made:
        each.shut()


def metadata(correlation: int) -> tuple[bytes, bytes]:
    """A request, and a response that names a broker: it is held."""
    broker = {"node_id": 1, "host": "10.20.30.40", "port": 9092}
    response = decoder.encode_response(METADATA, 9, {"brokers": [broker]}, correlation_id=correlation)
    return with_size(decoder.encode_request(METADATA, 9, {}, correlation_id=correlation)), with_size(response)


def faults(session: Session) -> list[str]:
    return [event.text for event in session.relay.events if isinstance(event, RelayFault)]


@pytest.mark.parametrize("last", [NO_FRAME, b"", heartbeat(9).request], ids=["nonsense", "nothing", "a request"])
@pytest.mark.parametrize("begun", [True, False])
def test_a_client_that_is_gone_when_a_held_response_comes(relay: Callable[..., SteppedRelay], last: bytes, begun: bool) -> None:
    """What passes in front of the held response finds nobody; what the client sent last is read then."""
    session = relay().session()
    asked, answer = metadata(2)
    session.from_client(heartbeat(1).request + asked)
    if begun:
        session.from_broker(heartbeat(1).response[:6])
    if last:
        session.client.inbox.append(last)
    session.client.closed = True
    session.from_broker(heartbeat(1).response[6 * begun :] + answer)
    assert faults(session) == []
    assert session.connection.closed and session.relay.held == 0


def test_a_broker_that_is_gone_when_a_held_request_comes(relay: Callable[..., SteppedRelay]) -> None:
    """The same the other way: no byte stays counted as held."""
    session = relay([Rule.of("api == Heartbeat and group == none", error="UNKNOWN_MEMBER_ID", name="none")]).session()
    session.from_client(heartbeat(1).request)
    session.broker.closed = True
    session.from_client(metadata(2)[0] + heartbeat(3).request + heartbeat(4).request[:9])
    session.from_client(heartbeat(4).request[9:])
    assert faults(session) == []
    assert session.connection.closed and session.relay.held == 0


def produce(correlation: int, size: int) -> tuple[bytes, bytes]:
    batch = bytes(encode_batch([Record(0, 1, None, bytes(size))]))
    data = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
    request = decoder.encode_request(PRODUCE, 9, {"acks": -1, "topic_data": data}, correlation_id=correlation)
    return with_size(request), with_size(decoder.encode_response(PRODUCE, 9, {}, correlation_id=correlation))


def beat(correlation: int, size: int) -> tuple[bytes, bytes]:
    fields = {"group_id": "g", "member_id": "m" * size}
    request = decoder.encode_request(HEARTBEAT, 4, fields, correlation_id=correlation)
    return with_size(request), with_size(decoder.encode_response(HEARTBEAT, 4, {}, correlation_id=correlation))


KEEPING = {
    "asked of the response": "api == Heartbeat and err",
    "decided with the request": "api == Heartbeat and group == g",
    "small ones": "api == Heartbeat and err",
    "without records": "api == Produce and err",
}
MIB = 1 << 20


@pytest.mark.parametrize("rule", KEEPING)
def test_requests_that_are_kept_for_a_broker_that_never_answers(relay: Callable[..., SteppedRelay], rule: str) -> None:
    """They count as what is held does: then no more is read, and other connections go on. When answers come, all does."""
    table = relay([Rule.of(KEEPING[rule], edit={"throttle_time_ms": 1}, name=rule)])
    table.hold_limit = MIB // 4
    session, other = table.session(), table.session()
    if rule == "without records":
        exchanges = [produce(number, 30_000) for number in range(200)]
    elif rule == "small ones":
        exchanges = [beat(number, 1) for number in range(12_000)]
    else:
        exchanges = [beat(number, 30_000) for number in range(200)]
    sent = b"".join(request for request, _ in exchanges)
    session.client.inbox.extend(cut(sent, repeat(1 << 16)))
    session.pump()
    assert session.connection.in_flight.memory() < MIB
    if rule == "without records":
        assert session.broker.got == sent
    else:
        assert MIB // 16 < len(session.broker.got) < len(sent), "all of it is kept, or nothing"
    other.from_client(heartbeat(1).request)
    assert other.broker.got == heartbeat(1).request
    done = 0
    while done < len(exchanges):
        there = _whole(session, exchanges, done)
        assert there > done, "the rest is never read"
        session.from_broker(b"".join(response for _, response in exchanges[done:there]))
        done = there
        table._less_crowded()
        session.pump()
    assert session.broker.got == sent and session.connection.in_flight.memory() == 0
    assert faults(session) == [] and table.held == 0


def _whole(session: Session, exchanges: list[tuple[bytes, bytes]], done: int) -> int:
    """How many requests the broker has got."""
    have, count = len(session.broker.got) - sum(len(request) for request, _ in exchanges[:done]), done
    while count < len(exchanges) and have >= len(exchanges[count][0]):
        have -= len(exchanges[count][0])
        count += 1
    return count
