"""What is counted when nothing is recorded: the same by the accelerator and by the decoder, after every chunk."""

from __future__ import annotations

import random
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.proxy.observers.exchange_counter import ExchangeCounter
from harness.wire import with_size
from torture.proxy.peers.stepped_relay import cut
from torture.proxy.peers.traffic import Exchange, TrafficGenerator, produce, produced
from traffic.unusual_messages import versions_asked

PRODUCE, FETCH = facts.api_key("Produce"), facts.api_key("Fetch")
TOPIC = "00000000-0000-4000-8000-000000000001"


def two() -> tuple[ExchangeCounter, ExchangeCounter]:
    """With the accelerator, if it is there, and without."""
    tallies = ExchangeCounter(), ExchangeCounter()
    tallies[1]._context = None
    for tally in tallies:
        tally.opened(1, 1, ("127.0.0.1", 1), ("127.0.0.1", 2))
    return tallies


def streams(exchanges: list[Exchange]) -> tuple[bytes, bytes]:
    return b"".join(e.request for e in exchanges), b"".join(e.response or b"" for e in exchanges)


@pytest.mark.parametrize("kind", ["small", "mixed", "whole"])
@pytest.mark.parametrize("seed", range(4))
def test_counts_are_the_same_after_every_chunk(kind: str, seed: int) -> None:
    generator = TrafficGenerator(seed)
    size = 3000 if kind == "small" else 100_000
    exchanges = generator.conversation(60, first=generator.chance.randrange(1 << 32), most=size)
    tallies = two()
    parts = [cut(stream, generator.sizes(kind)) for stream in streams(exchanges)]
    while any(parts):
        side = 0 if parts[0] and (not parts[1] or generator.chance.random() < 0.7) else 1
        part = parts[side].pop(0)
        for tally in tallies:
            tally.data(1, side, 5, part)
        assert tallies[0].counts == tallies[1].counts
    for tally in tallies:
        tally.closed(1, 9)
    assert tallies[0].counts == tallies[1].counts
    assert tallies[0].counts["exchanges"] >= len(exchanges)


def plain(count: int, size: int = 40) -> list[Exchange]:
    found = []
    for number in range(count):
        asked, answer = produce(9, number, -1, value=b"v" * size), produced(9, number, [], None)
        found.append(Exchange(PRODUCE, 9, asked, answer, answer))
    return found


def feed(tallies: Any, method: str, *arguments: Any) -> None:
    for tally in tallies:
        getattr(tally, method)(*arguments)
    assert tallies[0].counts == tallies[1].counts


def test_losses_and_bytes_that_passed_unseen() -> None:
    """Also behind them it goes on, with requests that waited when they came."""
    tallies = two()
    exchanges = plain(30, 3000)
    for exchange in exchanges[:10]:
        feed(tallies, "data", 1, 0, 1, exchange.request)
    for exchange in exchanges[:4]:
        feed(tallies, "data", 1, 1, 2, exchange.response)
    asked = exchanges[10].request
    feed(tallies, "data", 1, 0, 3, asked[:500])
    feed(tallies, "skipped", 1, 0, 3, len(asked) - 500)
    for exchange in exchanges[4:11]:
        feed(tallies, "data", 1, 1, 4, exchange.response)
    assert tallies[0].counts["exchanges"] == 11
    feed(tallies, "data", 1, 0, 5, exchanges[11].request + exchanges[12].request)
    feed(tallies, "lost", 1, 0, 77)
    feed(tallies, "data", 1, 0, 6, exchanges[20].request)
    for number in (11, 12, 20):
        feed(tallies, "data", 1, 1, 7, exchanges[number].response)
    for exchange in exchanges[21:]:
        feed(tallies, "data", 1, 0, 8, exchange.request)
        feed(tallies, "data", 1, 1, 8, exchange.response)
    feed(tallies, "closed", 1, 9)
    assert tallies[0].counts == {"exchanges": 23, "errors": 0, "undecoded": 0}


def test_the_accelerator_counts_nearly_all() -> None:
    """Or the tests above would compare the decoder with itself."""
    tally = two()[0]
    if tally._context is None:
        pytest.skip("the accelerator is not built")
    for exchange in plain(50):
        tally.data(1, 0, 1, exchange.request)
        tally.data(1, 1, 1, exchange.response or b"")
    assert tally._context.exchanges >= 48 and tally.counts["exchanges"] == 50


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_the_same_whatever_is_lost(seed: int) -> None:
    """Frames of both directions, from the middle of one to the beginning of another: requests that nobody answers then,
    responses that nobody asked for. What is lost keeps no connection from its recorder."""
    chance = random.Random(seed)
    tallies = two()
    exchanges = plain(200)
    frames = [[e.request for e in exchanges], [e.response or b"" for e in exchanges]]
    sent = [0, 0]
    losses = 0
    while sent[0] < len(exchanges) or sent[1] < len(exchanges):
        side = 0 if sent[1] == sent[0] or (sent[0] < len(exchanges) and chance.random() < 0.5) else 1
        count = min(chance.randrange(1, 9), (len(exchanges) if not side else sent[0]) - sent[side])
        data = b"".join(frames[side][sent[side] : sent[side] + count])
        sent[side] += count
        if sent[0] > 10 and sent[1] > 10 and chance.random() < 0.3:
            losses += 1
            kept = chance.randrange(len(data) + 1)
            feed(tallies, "data", 1, side, 5, data[:kept])
            feed(tallies, "lost", 1, side, len(data) - kept)
        else:
            feed(tallies, "data", 1, side, 5, data)
    feed(tallies, "closed", 1, 9)
    assert losses > 5
    if tallies[0]._context is not None:
        assert tallies[0]._context.exchanges > 0.8 * tallies[0].counts["exchanges"]


def bulk(chance: random.Random, version: int, number: int) -> tuple[bytes, bytes]:
    """A Fetch whose response has several partitions with much in them, or little; perhaps an error behind all that."""
    asked = decoder.encode_request(FETCH, version, {"max_wait_ms": 1, "min_bytes": 1}, correlation_id=number, client_id="c")
    partitions = [
        {"partition_index": n, "records": chance.randbytes(chance.choice((0, 900, 40_000, 120_000)))}
        for n in range(chance.randrange(1, 8))
    ]
    if number % 3 == 0:
        partitions.append({"partition_index": 99, "error_code": 6, "records": None})
    topic = {"topic": "t", "partitions": partitions} if version < 13 else {"topic_id": TOPIC, "partitions": partitions}
    answer = decoder.encode_response(FETCH, version, {"responses": [topic]}, correlation_id=number)
    if number % 13 == 0:
        answer += b"\0" if number % 2 else b"\xff"
    return with_size(asked), with_size(answer)


@pytest.mark.parametrize(("seed", "version"), [(1, 11), (2, 12), (3, 16)])
def test_records_that_nobody_looks_at(seed: int, version: int) -> None:
    """They are not copied where frames are only counted; what stands behind them counts, and whether it can be read."""
    chance = random.Random(seed)
    tallies = two()
    for number in range(1, 40):
        asked, answer = bulk(chance, version, number)
        feed(tallies, "data", 1, 0, 1, asked)
        at = 0
        while at < len(answer):
            size = chance.choice((1, 70, 16_384, 65_536, 262_144))
            if chance.random() < 0.02:
                size = min(size, len(answer) - at)
                feed(tallies, "skipped", 1, 1, 2, size)
            else:
                feed(tallies, "data", 1, 1, 2, answer[at : at + size])
            at += size
    feed(tallies, "closed", 1, 9)
    counts = tallies[0].counts
    assert counts["exchanges"] == 39 and counts["errors"] > 5
    if tallies[0]._context is not None:
        assert tallies[0]._context.exchanges > 8


def test_large_requests_whose_records_nobody_looks_at() -> None:
    """The beginnings of those that wait are kept, also when the decoder goes on in the middle of the next one."""
    tallies = two()
    chance = random.Random(4)
    exchanges = [
        Exchange(PRODUCE, 9, produce(9, n, -1, value=chance.randbytes(200_000)), produced(9, n, [], None), b"") for n in range(12)
    ]
    for exchange in exchanges[:11]:
        for at in range(0, len(exchange.request), 65_536):
            feed(tallies, "data", 1, 0, 1, exchange.request[at : at + 65_536])
    feed(tallies, "data", 1, 0, 1, exchanges[11].request[:90_000])
    waiting = tallies[0]._connections[1].recorder
    if waiting is not None:
        assert all(len(waiting.frame(n)) < 1000 for n in range(1, 11))  # the first one was the decoder's
        tallies[0]._leave(tallies[0]._connections[1])
    feed(tallies, "data", 1, 0, 1, exchanges[11].request[90_000:])
    for exchange in exchanges:
        feed(tallies, "data", 1, 1, 2, exchange.response)
    assert tallies[0].counts == {"exchanges": 12, "errors": 0, "undecoded": 0}


def test_versions_asked() -> None:
    """Answered in every way, and at the end not at all: those get no objects when the connection ends."""
    tallies = two()
    before = plain(1)[0]
    for number, (request, response) in enumerate(versions_asked(), 10):  # each where a recorder is at work
        feed(tallies, "opened", number, 1)
        for asked, answered in ((before.request, before.response), (request, response)):
            feed(tallies, "data", number, 0, 1, asked)
            feed(tallies, "data", number, 1, 2, answered)
        feed(tallies, "closed", number, 2)
    asked = decoder.encode_request(18, 0, {}, client_id="c")
    for number in range(3000):
        feed(tallies, "data", 1, 0, 3, with_size(asked[:4] + number.to_bytes(4, "big") + asked[8:]))
    feed(tallies, "data", 1, 0, 3, with_size(asked)[:7])
    feed(tallies, "closed", 1, 9)
    assert tallies[0].counts["exchanges"] == 2 * len(versions_asked()) + 3000
    assert tallies[0].counts["errors"] > 5 and tallies[0].counts["undecoded"] > 5
    if tallies[0]._context is not None:
        assert tallies[0]._context.exchanges >= 2900
