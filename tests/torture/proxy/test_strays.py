"""Responses out of order: what follows for the requests before them, and what must never happen.

Brokers answer in order. So where a response is not that of the next request, those before it get none; yet it may be
a stray itself, and then theirs still come: a broker's address must not pass in any of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from barnabas.proxy.relay.connections.correlation import LATE_REACH
from torture.proxy.peers.stepped_relay import BROKER, Session, SteppedRelay, cut
from torture.proxy.peers.traffic import FETCH, METADATA, Exchange, TrafficGenerator, naming, response
from torture.proxy.test_correlation import RULES, heartbeat, list_offsets

EVERY = pytest.mark.parametrize("rules", RULES)
PIECES = pytest.mark.parametrize("pieces", ["whole", "bytes", "mixed"])


def talk(session: Session, asked: list[Exchange], answers: list[bytes], pieces: str) -> None:
    """All requests, then these responses."""
    generator = TrafficGenerator(1)
    for segment in cut(b"".join(e.request for e in asked), generator.sizes(pieces)):
        session.from_client(segment)
    for segment in cut(b"".join(answers), generator.sizes(pieces)):
        session.from_broker(segment)


def ended(session: Session) -> bytes:
    """What the client got. Nothing is awaited any more."""
    assert list(session.connection.in_flight) == []
    assert session.connection.in_flight.objects == 0
    session.finish()
    assert session.check_ring()[1] == bytes(session.client.got)
    return bytes(session.client.got)


@EVERY
@PIECES
@pytest.mark.parametrize("key", [METADATA, FETCH])
def test_a_stray_with_the_id_of_a_later_request(relays: Callable[..., SteppedRelay], key: int, pieces: str, rules: str) -> None:
    """Neither the one it was taken for nor those before it are handed on as they are."""
    session = relays(RULES[rules]).session()
    version = 12 if key == METADATA else 16
    exchanges = [naming(key, version, number) for number in (1, 2, 3)]
    stray = response(key, version, 3, b"\xff" * 9)
    talk(session, exchanges, [stray, *(e.response or b"" for e in exchanges)], pieces)
    got = ended(session)
    assert got == stray + b"".join(e.expected for e in exchanges)
    assert BROKER[0].encode() not in got


@EVERY
@PIECES
@pytest.mark.parametrize(
    "stray",
    [response(METADATA, 12, 2, b"\xff" * 9), naming(METADATA, 12, 77).response],
    ids=["with the id that is next", "that nobody waits for"],
)
def test_a_stray_between_responses(relays: Callable[..., SteppedRelay], stray: bytes, pieces: str, rules: str) -> None:
    session = relays(RULES[rules]).session()
    exchanges = [heartbeat(1), naming(METADATA, 12, 2), heartbeat(3), naming(METADATA, 9, 4)]
    answers = [e.response or b"" for e in exchanges]
    talk(session, exchanges, [answers[0], stray, *answers[1:]], pieces)
    assert ended(session) == b"".join([exchanges[0].expected, stray, *(e.expected for e in exchanges[1:])])


@PIECES
def test_answers_behind_a_request_that_gets_none(relays: Callable[..., SteppedRelay], pieces: str) -> None:
    """A later response brings all answers before it, and is itself still known."""
    session = relays(RULES["answers"]).session()
    later = naming(METADATA, 12, 5)
    exchanges = [heartbeat(1), list_offsets(2), list_offsets(3), heartbeat(4), later]
    talk(session, exchanges, [later.response or b""], pieces)
    got = ended(session)
    assert got.endswith(later.expected) and BROKER[0].encode() not in got
    ids, at = [], 0
    while at < len(got):
        ids.append(int.from_bytes(got[at + 4 : at + 8], "big"))
        at += 4 + int.from_bytes(got[at : at + 4], "big")
    assert ids == [2, 3, 5]


@pytest.mark.parametrize("rules", ["none", "elsewhere", "idle"])
def test_a_missing_response_is_given_up(relays: Callable[..., SteppedRelay], rules: str) -> None:
    """Enough responses later nobody looks for what was left out, and nothing is looked at frame by frame for it."""
    session = relays(RULES[rules]).session()
    left_out, later = naming(METADATA, 12, 1), naming(METADATA, 12, 2)
    talk(session, [left_out, later], [later.response or b""], "whole")
    assert session.connection.in_flight.out_of_order
    for number in range(10, 11 + LATE_REACH):
        beat = heartbeat(number)
        session.from_client(beat.request)
        session.from_broker(beat.response or b"")
    assert not session.connection.in_flight.out_of_order
    ended(session)
