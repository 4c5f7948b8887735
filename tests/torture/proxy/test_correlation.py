"""Which response belongs to which request, whatever clients do: everything arrives, nothing is awaited at the end.

Every case runs without rules, with a rule that matches nothing and with one whose answers take their place among the
broker's; in one piece, in pieces of one byte and in random ones; the broker answers at once or when all is asked.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rules import Rule
from harness.run.slices import only, thin
from torture.proxy.peers.stepped_relay import Session, SteppedRelay, cut
from torture.proxy.peers.traffic import (
    FETCH,
    METADATA,
    PRODUCE,
    PRODUCE_VERSIONS,
    Exchange,
    TrafficGenerator,
    naming,
    produce,
    produced,
    renumbered,
    request,
    response,
)
from traffic.error_rules import error_rule

HEARTBEAT = facts.api_key("Heartbeat")
LIST_OFFSETS = facts.api_key("ListOffsets")
IDLE_RULE = error_rule("never", HEARTBEAT, 27, after=1 << 60)
ELSEWHERE_RULE = error_rule("elsewhere", facts.api_key("ListTransactions"), 1, after=1 << 60)
ANSWERING = error_rule("answers", LIST_OFFSETS, 6)
RULES: dict[str, list[Rule]] = {"none": [], "elsewhere": [ELSEWHERE_RULE], "idle": [IDLE_RULE], "answers": [ANSWERING]}


def heartbeat(correlation: int) -> Exchange:
    asked = request(HEARTBEAT, 4, correlation, {"group_id": "g", "member_id": "m"})
    return Exchange(HEARTBEAT, 4, asked, response(HEARTBEAT, 4, correlation, {}))


def silent(version: int, correlation: int, *how: Any) -> Exchange:
    """A Produce that gets no response. `how`: client id, transactional id, tags."""
    return Exchange(PRODUCE, version, produce(version, correlation, 0, *how), None)


def asked(version: int, correlation: int, *how: Any) -> Exchange:
    return Exchange(PRODUCE, version, produce(version, correlation, -1, *how), produced(version, correlation))


CLIENT_IDS = {"null": None, "empty": "", "short": "t", "long": "c" * 700}
TRANSACTIONAL_IDS = {"null": None, "short": "tx", "long": "x" * 300}
TAGS = {"none": b"\0", "one": b"\x01\x05\x03abc"}


def acks_cases() -> list[Any]:
    """acks=0 in every place, at every version, with every head."""
    cases = []
    for version in PRODUCE_VERSIONS:
        for (c, client_id), (t, transactional_id), (g, tags) in itertools.product(
            CLIENT_IDS.items(), TRANSACTIONAL_IDS.items(), TAGS.items()
        ):
            if (version < 3 and t != "null") or (version < 9 and g != "none"):
                continue
            cases.append(pytest.param(version, client_id, transactional_id, tags, id=f"v{version}-{c}-{t}-{g}"))
    return cases


def converse(session: Session, exchanges: list[Exchange], pieces: str, eager: bool, chance: random.Random) -> None:
    """The client sends all it has; the broker answers what has reached it, at once (`eager`) or at the end."""
    generator = TrafficGenerator(chance.randrange(1 << 30))
    sizes = generator.sizes(pieces)
    waiting = list(exchanges)
    for segment in cut(b"".join(e.request for e in exchanges), sizes):
        session.from_client(segment)
        if eager:
            answer(session, waiting, sizes)
    answer(session, waiting, sizes)
    assert not [e for e in waiting if e.response is not None and e.api_key != LIST_OFFSETS], "a request is missing"


def answer(session: Session, waiting: list[Exchange], sizes: Iterator[int]) -> None:
    """The broker's responses to the requests that have come, in their order."""
    out = b""
    done = getattr(session, "read", 0)
    got = session.broker.got
    while len(got) >= done + 4 and len(got) >= done + 4 + int.from_bytes(got[done : done + 4], "big"):
        frame = bytes(got[done : done + 4 + int.from_bytes(got[done : done + 4], "big")])
        done += len(frame)
        # what a rule answered never comes here
        while waiting and waiting[0].request != frame:
            assert waiting[0].api_key == LIST_OFFSETS
            waiting.pop(0)
        out += waiting.pop(0).response or b""
    session.read = done  # type: ignore[attr-defined]
    for segment in cut(out, sizes):
        session.from_broker(segment)


def check(session: Session, exchanges: list[Exchange], answered: bool = False) -> None:
    """What holds after every conversation."""
    awaited = list(session.connection.in_flight)
    session.finish()
    assert awaited == [], "requests that are still awaited"
    up, down = session.check_ring()
    if not answered:
        assert bytes(session.broker.got) == b"".join(e.request for e in exchanges)
    assert up == b"".join(e.request for e in exchanges)
    assert down == bytes(session.client.got)
    at = 0
    for exchange in exchanges:
        if exchange.response is None:
            continue
        frame = down[at : at + 4 + int.from_bytes(down[at : at + 4], "big")]
        at += len(frame)
        if answered and exchange.api_key == LIST_OFFSETS:
            assert frame[4:8] == exchange.request[8:12], "an answer in the wrong place"
            decoder.decode_response(frame[4:], api_key=LIST_OFFSETS, api_version=exchange.api_version)
        else:
            assert frame == exchange.expected
    assert at == len(down)


def list_offsets(correlation: int) -> Exchange:
    topic = {"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}
    asked = request(LIST_OFFSETS, 7, correlation, {"replica_id": -1, "topics": [topic]})
    return Exchange(LIST_OFFSETS, 7, asked, response(LIST_OFFSETS, 7, correlation, {}))


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("version", "client_id", "transactional_id", "tags"), thin(acks_cases(), 12))
def test_acks_0_between_others(
    relays: Callable[..., SteppedRelay],
    version: int,
    client_id: str | None,
    transactional_id: str | None,
    tags: bytes,
    rules: str,
    scale: float,
) -> None:
    """Every way of cutting, on connections of one relay; the last request of all gets no response either."""
    chance = random.Random(version)
    relay = relays(RULES[rules])
    ways = ("whole", False), ("bytes", True), ("small", True), ("small", False), ("mixed", True)
    for pieces, eager in ways if scale > 1 else ways[1:4] if rules in ("none", "answers") else ways[2:3]:
        how = client_id, transactional_id, tags
        exchanges = [
            heartbeat(1),
            silent(version, 2, *how),
            asked(version, 3, *how),
            silent(version, 4, *how),
            silent(version, 5, *how),
            naming(METADATA, 12, 6),
            list_offsets(7),
            silent(version, 8, *how),
            heartbeat(9),
            asked(version, 10, *how),
            silent(version, 11, *how),
        ]
        session = relay.session()
        converse(session, exchanges, pieces, eager, chance)
        check(session, exchanges, rules == "answers")


def ids(kind: str, count: int) -> list[int]:
    if kind == "wrap":
        return [(0x7FFFFFFF - count // 2 + n) & 0xFFFFFFFF for n in range(count)]
    if kind == "unsigned wrap":
        return [(0xFFFFFFFF - count // 2 + n) & 0xFFFFFFFF for n in range(count)]
    if kind == "same":
        return [7] * count
    if kind == "pairs":
        return [n // 2 for n in range(count)]
    if kind == "negative":
        return [-n - 1 for n in range(count)]
    if kind == "falling":
        return list(range(count, 0, -1))
    return random.Random(count).sample(range(1 << 32), count)


@pytest.mark.parametrize("rules", ["none", "elsewhere", "idle"])
@pytest.mark.parametrize(
    "kind", only(("wrap", "unsigned wrap", "same", "pairs", "negative", "falling", "any"), "wrap", "any")
)
@pytest.mark.parametrize("pieces", only(("whole", "small", "mixed"), "mixed"))
def test_correlation_ids(relays: Callable[..., SteppedRelay], kind: str, rules: str, pieces: str) -> None:
    """Wrapped, repeated, falling: the order of the responses is what counts."""
    generator = TrafficGenerator(3)
    relay = relays(RULES[rules])
    for eager in (False, True):
        exchanges = renumbered(generator.conversation(60), ids(kind, 60))
        session = relay.session()
        converse(session, exchanges, pieces, eager, random.Random(1))
        check(session, exchanges)


@pytest.mark.parametrize("rules", ["none", "elsewhere", "idle", "answers"])
@pytest.mark.parametrize("kind", only(("Metadata", "Produce", "Fetch", "Heartbeat", "mixture"), "mixture"))
def test_a_thousand_in_flight(relays: Callable[..., SteppedRelay], kind: str, rules: str) -> None:
    relay = relays(RULES[rules])
    mixture = heartbeat, list_offsets, lambda n: silent(9, n, None, None, b"\0"), lambda n: naming(METADATA, 5, n)
    makers: dict[str, Callable[[int], Exchange]] = {
        "Metadata": lambda n: naming(METADATA, 12, n),
        "Produce": lambda n: naming(PRODUCE, 11, n) if n % 7 else asked(11, n, "t", None, b"\0"),
        "Fetch": lambda n: naming(FETCH, 16, n),
        "Heartbeat": heartbeat,
        "mixture": lambda n: mixture[n % 4](n),
    }
    exchanges = [makers[kind](number) for number in range(1000)]
    for pieces in ("whole", "mixed"):
        session = relay.session()
        converse(session, exchanges, pieces, False, random.Random(2))
        check(session, exchanges, rules == "answers")


@pytest.mark.parametrize("pieces", ["whole", "bytes", "mixed"])
@pytest.mark.parametrize(
    ("where", "rules"),
    [
        *itertools.product(("first", "between", "many"), ("none", "elsewhere", "idle")),
        ("same id", "none"),  # with rules the order of answers would be at stake: the first match counts
    ],
)
def test_unrequested_responses(relays: Callable[..., SteppedRelay], where: str, pieces: str, rules: str) -> None:
    relay = relays(RULES[rules])
    generator = TrafficGenerator(9)
    stray = [response(HEARTBEAT, 4, 990 + n, bytes(8)) for n in range(200 if where == "many" else 1)]
    exchanges = [heartbeat(1), naming(METADATA, 9, 2), asked(8, 3, "t", None, b""), naming(METADATA, 9, 4)]
    if where == "same id":
        stray = [response(HEARTBEAT, 4, 2, bytes(8))]
    session = relay.session()
    if where == "first":
        session.from_broker(b"".join(stray))
    session.from_client(b"".join(e.request for e in exchanges))
    answers, delivered = [e.response or b"" for e in exchanges], [e.expected for e in exchanges]
    if where != "first":
        answers[1:1] = delivered[1:1] = stray
    else:
        delivered[:0] = stray
    for segment in cut(b"".join(answers), generator.sizes(pieces)):
        session.from_broker(segment)
    awaited = list(session.connection.in_flight)
    session.finish()
    assert bytes(session.client.got) == b"".join(delivered)
    assert awaited == []


@pytest.mark.parametrize("rules", ["none", "elsewhere", "idle", "answers"])
@pytest.mark.parametrize("pieces", ["whole", "bytes", "small"])
@pytest.mark.parametrize("version", thin(PRODUCE_VERSIONS, 2))
def test_closed_right_after_acks_0(relays: Callable[..., SteppedRelay], version: int, pieces: str, rules: str) -> None:
    """What the client sent before it closed reaches the broker, however slowly that reads."""
    relay = relays(RULES[rules])
    generator = TrafficGenerator(version)
    exchanges = [heartbeat(1), *(silent(version, n, "t", None, b"\0") for n in range(2, 30))]
    session = relay.session()
    session.broker.room = 100
    for segment in cut(b"".join(e.request for e in exchanges), generator.sizes(pieces)):
        session.client.inbox.append(segment)
    session.client.ended = True
    session.pump()
    assert not session.broker.shut, "the end overtakes what was sent"
    while not session.broker.shut:
        session.broker.room += 700
        session.pump()
    assert bytes(session.broker.got) == b"".join(e.request for e in exchanges)
    session.from_broker(exchanges[0].response or b"")
    assert list(session.connection.in_flight) == []
    session.finish()
    assert bytes(session.client.got) == exchanges[0].response


@pytest.mark.parametrize("rules", ["none", "idle", "answers"])
@pytest.mark.parametrize("lost", [1, 5, 50])
def test_missing_responses(relays: Callable[..., SteppedRelay], lost: int, rules: str) -> None:
    """A broker that leaves requests out (it must not, but may die in between): later responses are still understood."""
    relay = relays(RULES[rules])
    exchanges = [naming(METADATA, 12, n) for n in range(100)]
    session = relay.session()
    session.from_client(b"".join(e.request for e in exchanges))
    for exchange in exchanges[lost:]:
        session.from_broker(exchange.response or b"")
    assert list(session.connection.in_flight) == []
    session.finish()
    assert bytes(session.client.got) == b"".join(e.expected for e in exchanges[lost:])


def test_the_number_of_cases() -> None:
    assert len(acks_cases()) * len(RULES) > 200
