"""Bytes in are bytes out, wherever the stream is cut and however little the other side takes.

All on a stepped relay: a cut is where the test puts it, not where the kernel happens to. Brokers' addresses in responses are the one
exception: they are compared with an encoding of the test's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from barnabas.decoder.schema import facts
from harness.run.slices import only, thin
from torture.proxy.peers.stepped_relay import BROKER, Session, SteppedRelay, cut
from torture.proxy.peers.traffic import (
    ADDRESSED,
    FETCH,
    PRODUCE,
    Exchange,
    TrafficGenerator,
    fetched,
    naming,
    produce,
    produced,
    request,
    rewritten,
)
from torture.proxy.test_correlation import RULES, heartbeat
from traffic.error_rules import error_rule

LEADERS = [(1, *BROKER), (2, BROKER[0], 9093)]


def bulk(key: int, version: int, size: int, endpoints: bool, rack: str | None) -> Exchange:
    """A Produce or Fetch exchange; `rewritten` as the schema says it, so only where it is small enough to be held."""
    leaders = LEADERS if endpoints else []
    if key == PRODUCE:
        asked, answer = produce(version, 5, -1, value=b"v" * size), produced(version, 5, leaders, rack)
    else:
        asked, answer = request(key, version, 5, {}), fetched(version, 5, size, leaders, rack)
    return Exchange(key, version, asked, answer, rewritten(answer, key, version))


def frames() -> list[Any]:
    """Produce v9 to v13 and Fetch v12 to v18 with and without node endpoints, and all else that names brokers."""
    found = []
    for key, versions, first in ((PRODUCE, range(9, 14), 10), (FETCH, range(12, 19), 16)):
        for version in versions:
            for endpoints in (False, True)[: 2 if version >= first else 1]:
                for rack in (None, "r1")[: 2 if endpoints else 1]:
                    name = f"{facts.api_name(key)}-v{version}{'-endpoints' * endpoints}{'-rack' * (rack is not None)}"
                    found.append(pytest.param(bulk(key, version, 40, endpoints, rack), id=name))
    for key, version in ADDRESSED:
        if key not in (PRODUCE, FETCH):
            found.append(pytest.param(naming(key, version, 5), id=f"{facts.api_name(key)}-v{version}"))
    return found


def run(relay: SteppedRelay, exchanges: list[Exchange], requests: list[bytes], responses: list[bytes]) -> Session:
    session = relay.session()
    for segment in requests:
        session.from_client(segment)
    for segment in responses:
        session.from_broker(segment)
    check_passed(session, exchanges)
    return session


def check_passed(session: Session, exchanges: list[Exchange]) -> None:
    """End the connection: no response was awaited any more, and both ends and the observers have got everything."""
    session.client.room = session.broker.room = float("inf")
    session.pump()
    assert not session.connection.in_flight, "requests that are still awaited"
    session.finish()
    assert bytes(session.broker.got) == b"".join(e.request for e in exchanges)
    assert bytes(session.client.got) == b"".join(e.expected for e in exchanges)
    assert session.check_ring() == (bytes(session.broker.got), bytes(session.client.got))


@pytest.mark.parametrize("rules", ["none", "idle"])
@pytest.mark.parametrize("exchange", thin(frames(), 6))
def test_every_split_position(relays: Callable[..., SteppedRelay], exchange: Exchange, rules: str, scale: float) -> None:
    """Cut once, at every place of requests and of responses; then in pieces of every small size."""
    relay = relays(RULES[rules])
    exchanges = [heartbeat(1), exchange, heartbeat(9)]
    asked = b"".join(e.request for e in exchanges)
    answer = b"".join(e.response or b"" for e in exchanges)
    step = 1 if rules == "none" or scale > 1 else 5
    for at in range(1, len(asked), step):
        run(relay, exchanges, [asked[:at], asked[at:]], [answer])
    for at in range(1, len(answer), step):
        run(relay, exchanges, [asked], [answer[:at], answer[at:]])
    for size in (1, 2, 3, 5, 7, 11, 13):
        session = run(
            relay, exchanges, [asked[i : i + size] for i in range(0, len(asked), size)],
            [answer[i : i + size] for i in range(0, len(answer), size)],
        )  # fmt: skip
        assert BROKER[0].encode() not in session.client.got


def schedule(session: Session, exchanges: list[Exchange], generator: TrafficGenerator, kind: str) -> None:
    """Client, broker and both readers in random order: pieces, stalls, partial sends."""
    chance = generator.chance
    to_client = cut(b"".join(e.request for e in exchanges), generator.sizes(kind))
    waiting = list(exchanges)
    to_broker: list[bytes] = []
    parsed = 0
    slow = chance.random() < 0.5
    if slow:
        session.client.room = session.broker.room = 0
    while to_client or to_broker or waiting:
        if to_client and (chance.random() < 0.5 or not to_broker):
            session.from_client(to_client.pop(0))
        elif to_broker:
            session.from_broker(to_broker.pop(0))
        if slow:
            session.client.room += chance.choice((0, 1, 100, 5000, 300_000))
            session.broker.room += chance.choice((0, 1, 100, 5000, 300_000))
            session.pump()
        got = session.broker.got
        out = b""
        while waiting and len(got) >= parsed + len(waiting[0].request):
            exchange = waiting.pop(0)
            parsed += len(exchange.request)
            out += exchange.response or b""
        to_broker += cut(out, generator.sizes(kind))
        if slow and not to_client and waiting and not to_broker:
            session.broker.room += 1 << 20
            session.pump()


@pytest.mark.parametrize("rules", only(("none", "elsewhere", "idle"), "idle"))
@pytest.mark.parametrize("kind", only(("whole", "bytes", "small", "mixed"), "small", "mixed"))
def test_anything_cut_anywhere(relays: Callable[..., SteppedRelay], rules: str, kind: str, scale: float) -> None:
    """Every API and version in random bodies, with large frames between, read slowly or not."""
    relay = relays(RULES[rules])
    for seed in range(int((4 if kind == "bytes" else 8) * scale)):
        generator = TrafficGenerator(seed)
        most = {"bytes": 3000, "small": 20_000}.get(kind, 600_000)
        exchanges = generator.conversation(60, first=generator.chance.randrange(1 << 32), most=most)
        for place in range(0, 60, 7):
            exchanges[place] = naming(*generator.chance.choice(ADDRESSED), exchanges[place].correlation)
        session = relay.session()
        schedule(session, exchanges, generator, kind)
        check_passed(session, exchanges)


@pytest.mark.parametrize("rules", ["none", "idle"])
def test_other_protocols_cut_anywhere(relays: Callable[..., SteppedRelay], rules: str, scale: float) -> None:
    """Garbage in front of, between and behind frames, both ways: it goes on as it came."""
    relay = relays(RULES[rules])
    for seed in range(int(60 * scale)):
        generator = TrafficGenerator(seed)
        chance: random.Random = generator.chance
        streams = []
        for side in ("request", "response"):
            conversation = generator.conversation(chance.randrange(5))
            good = b"".join((e.request if side == "request" else e.response) or b"" for e in conversation)
            other = chance.choice((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01", b"\xff" * 9))
            streams.append(good + other + chance.randbytes(300))
        session = relay.session()
        parts = [cut(stream, generator.sizes("small")) for stream in streams]
        order = [side for side in (0, 1) for _ in parts[side]]
        chance.shuffle(order)
        for side in order:
            (session.from_broker if side else session.from_client)(parts[side].pop(0))
        session.finish()
        assert bytes(session.broker.got) == streams[0]
        assert bytes(session.client.got) == streams[1]


def test_an_answering_rule_changes_only_what_it_matches(relays: Callable[..., SteppedRelay]) -> None:
    """With an answering rule, what it does not match stays byte for byte, in its order."""
    relay = relays([error_rule("answers", facts.api_key("ListOffsets"), 6)])
    generator = TrafficGenerator(11)
    exchanges = [e for e in generator.conversation(300) if e.api_key != facts.api_key("ListOffsets")]
    session = relay.session()
    schedule(session, exchanges, generator, "mixed")
    check_passed(session, exchanges)
