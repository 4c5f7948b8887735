"""The live feed without sockets: sender and reader, with datagrams that are whole, cut, lost or invented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures.recording.index import NOTED, RECORD, IndexEncoder
from barnabas.decoder import Exchange, State
from barnabas.proxy.metrics.feed import layout as feed_layout
from barnabas.proxy.metrics.feed import sender as feed
from barnabas.proxy.metrics.feed.client import Batch, FeedError, FeedReader, Joined, Missed
from barnabas.proxy.metrics.feed.layout import HEADER, DatagramKind, Header, Rate, Totals
from barnabas.proxy.metrics.feed.sender import FeedSender
from hypothesis import example, given
from hypothesis import strategies as st

TOKEN = "let me in"
PEER = ("127.0.0.1", 4000)
OTHER = ("127.0.0.1", 4001)


def exchange(number: int, client_id: str | None = "stock-1", connection: int = 7) -> Exchange:
    return Exchange(
        connection=connection,
        client="10.0.0.1:50000",
        broker="10.0.0.2:9092",
        api_key=12,
        api_version=4,
        correlation_id=number,
        client_id=client_id,
        request=decoder.encode_request(12, 4, {"group_id": "g"}, correlation_id=number, client_id=client_id),
        request_time_ns=1_000 + number,
        response=decoder.encode_response(12, 4, {"error_code": 27}, correlation_id=number),
        response_time_ns=5_000 + number,
        state=State.PAIRED,
    )


class Line:
    """A sender and a reader; a test decides which datagrams arrive."""

    def __init__(self, datagram: int = 1400, epoch: int = 5, **options: Any) -> None:
        self.sender = FeedSender(TOKEN, epoch, datagram=datagram, **options)
        self.reader = FeedReader(TOKEN)
        self.now = 0.0
        self.events: list[Any] = []

    def hello(self, reader: FeedReader | None = None, peer: Any = PEER) -> None:
        self.sender.receive((reader or self.reader).hello(self.now), peer, self.now, 1)

    def send(self, *numbers: int, **options: Any) -> None:
        for number in numbers:
            self.sender.add(exchange(number, **options), 99, self.now, 1)

    def carry(self, keep: Callable[[int, bytes], bool] = lambda number, data: True) -> list[Any]:
        """Bring what waits to the reader; returns the new events."""
        new: list[Any] = []
        for number, (datagram, _) in enumerate(list(self.sender.outgoing)):
            if keep(number, datagram):
                new += self.reader.receive(datagram)
        self.sender.outgoing.clear()
        self.events += new
        return new

    def flush(self) -> None:
        self.sender.flush(1)

    def numbers(self) -> list[int]:
        return [r.correlation_id for e in self.events if isinstance(e, Batch) for r in e]


def kind_of(datagram: bytes) -> int:
    return datagram[5]


def test_records_are_those_of_the_index_and_names_arrive_with_them() -> None:
    line = Line()
    line.hello()
    line.send(1, 2, 3)
    line.flush()
    joined, batch = line.carry()
    assert joined == Joined(5)
    encoder = IndexEncoder()
    encoder.connection(7, 99, "10.0.0.1:50000", "10.0.0.2:9092")
    for number in (1, 2, 3):
        encoder.exchange(exchange(number))
    assert batch.data == bytes(encoder.records)
    first = next(iter(batch))
    assert (first.api_key, first.error, first.latency_ns) == (12, 27, 4000)
    assert batch.client_id(first) == "stock-1"
    assert batch.connection(first) == (99, "10.0.0.1:50000", "10.0.0.2:9092")
    rows = list(batch.rows())
    assert [row.number for row in rows] == [0, 1, 2]
    assert (rows[0].api, rows[0].client, rows[0].state, rows[0].noted) == ("Heartbeat", "10.0.0.1:50000", State.PAIRED, False)


def test_exchanges_that_rules_changed_are_flagged() -> None:
    line = Line()
    line.hello()
    noted = exchange(1)
    noted.marks.noted = True
    line.sender.add(noted, 0, 0.0, 1)
    line.flush()
    assert next(iter(line.carry()[1])).flags & NOTED


def test_a_subscriber_gets_no_earlier_records() -> None:
    line = Line()
    line.send(1, 2)
    line.flush()
    assert not line.sender.outgoing
    line.hello()
    line.send(3)
    line.flush()
    joined, batch = line.carry()
    assert isinstance(joined, Joined)
    assert (batch.position, line.numbers()) == (2, [3])


def test_a_record_waits_briefly_for_others() -> None:
    line = Line()
    line.hello()
    line.carry()
    line.send(1)
    assert not line.sender.due(0.0)
    assert not line.sender.outgoing
    assert line.sender.due(feed.FLUSH_SECONDS)
    sent = 1
    while not line.sender.outgoing:  # full, so they go at once
        sent += 1
        line.send(sent)
    assert all(1400 - 2 * RECORD.size < len(data) <= 1400 for data, _ in line.sender.outgoing)
    line.carry()
    assert line.numbers() == list(range(1, sent + 1))
    assert not line.sender.due(feed.FLUSH_SECONDS)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.sets(st.integers(0, 30)), st.integers(104, 4000))
def test_every_record_arrives_or_is_missed(counts: list[int], dropped: set[int], datagram: int) -> None:
    line = Line(datagram)
    line.hello()
    line.carry()
    sent = place = 0

    def keep(number: int, data: bytes) -> bool:
        nonlocal place
        place += 1
        return place - 1 not in dropped

    for count in counts:
        line.send(*range(sent, sent + count))
        sent += count
        line.flush()
        line.carry(keep)
    line.sender.totals(Totals(), line.now, 1)
    line.carry()
    missed = sum(e.records for e in line.events if isinstance(e, Missed))
    assert len(line.numbers()) + missed == sent
    assert line.numbers() == sorted(set(line.numbers()))
    lost = sum(e.datagrams for e in line.events if isinstance(e, Missed))
    assert (missed > 0) == (lost > 0)


def test_late_and_repeated_datagrams_count_as_missed() -> None:
    line = Line(datagram=HEADER.size + 64)
    line.hello()
    line.carry()
    line.send(1, 2, 3)
    batches = [d for d, _ in line.sender.outgoing if kind_of(d) == DatagramKind.BATCH]
    first, second, third = (line.reader.receive(d) for d in (batches[0], batches[2], batches[1]))
    assert [len(e) for e in first] == [1]
    assert second[0] == Missed(1, 1)
    assert third == []
    assert line.reader.receive(batches[2]) == []


def test_names_do_not_depend_on_earlier_datagrams() -> None:
    line = Line()
    line.hello()
    line.carry()
    names = {}
    for number in range(100):
        line.send(number, client_id=f"client-{number % 40:02}", connection=number % 7)
        if number % 9 == 8:
            line.flush()
        for event in line.carry(lambda _, data, number=number: number % 2 == 0):
            if isinstance(event, Batch):
                names.update({r.correlation_id: (event.client_id(r), event.connection(r)) for r in event})
    assert 20 < len(names) < 100
    assert names == {n: (f"client-{n % 40:02}", (99, "10.0.0.1:50000", "10.0.0.2:9092")) for n in names}


def test_a_long_name_travels_alone() -> None:
    line = Line(datagram=400)
    line.hello()
    line.send(1)
    line.send(2, client_id="x" * 900)
    line.send(3)
    line.flush()
    assert [len(data) <= 400 for data, _ in line.sender.outgoing] == [True, True, False, True]
    line.carry()
    assert line.numbers() == [1, 2, 3]


def test_a_new_start_is_reported_and_an_old_one_ignored() -> None:
    line = Line()
    line.hello()
    line.send(1)
    line.flush()
    line.carry()
    old = line.sender
    line.sender = FeedSender(TOKEN, 6)
    line.hello()
    line.send(2)
    line.flush()
    events = line.carry()
    assert [type(e) for e in events] == [Joined, Batch]
    old.add(exchange(3), 0, 0.0, 1)
    old.flush(1)
    line.sender = old
    assert line.carry() == []


def test_subscribers_end_when_they_are_not_renewed() -> None:
    line = Line()
    line.hello()
    line.hello(peer=OTHER)
    assert line.sender.subscribers == 2
    line.now = feed_layout.RENEW_SECONDS
    line.hello(peer=OTHER)
    line.now = feed_layout.LEASE_SECONDS + 1
    line.sender.totals(Totals(), line.now, 1)
    assert line.sender.subscribers == 1
    line.sender.receive(line.reader.bye(), OTHER, line.now, 1)
    assert line.sender.subscribers == 0


def test_the_number_of_subscribers_is_limited() -> None:
    line = Line(subscribers=1)
    line.hello()
    line.sender.outgoing.clear()
    late = FeedReader(TOKEN)
    line.hello(late, OTHER)
    ((datagram, peer),) = line.sender.outgoing
    assert peer == OTHER
    with pytest.raises(FeedError, match="the maximum number of subscribers"):
        late.receive(datagram)
    line.hello()  # the first one may renew
    assert line.sender.subscribers == 1


def test_the_refusal_of_a_wrong_token_is_no_longer_than_the_request() -> None:
    line = Line()
    wrong = FeedReader("x")
    hello = wrong.hello(0.0)
    line.sender.receive(hello, PEER, 0.0, 1)
    ((datagram, _),) = line.sender.outgoing
    assert len(datagram) <= len(hello)
    with pytest.raises(FeedError, match="does not know this token"):
        wrong.receive(datagram)
    line.sender.outgoing.clear()
    line.sender.receive(Header(DatagramKind.BYE, 1).pack() + b"x", PEER, 0.0, 1)
    assert line.sender.subscribers == 0


def test_a_full_queue_loses_whole_datagrams_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "QUEUE", 4)
    line = Line(datagram=HEADER.size + 64)
    line.hello()
    line.carry()
    line.send(*range(20))
    assert line.sender.unsent > 10
    unsent = line.sender.unsent
    line.carry()
    line.sender.totals(Totals(), 0.0, 1)
    line.carry()
    assert sum(e.records for e in line.events if isinstance(e, Missed)) == unsent
    assert len(line.numbers()) == 20 - unsent


def test_totals_arrive() -> None:
    line = Line()
    line.hello()
    numbers = {name: 1 << (20 + place) for place, name in enumerate(feed_layout._NUMBERS)}
    sent = Totals(**numbers, rates=(Rate(12, 5, 1, 900), Rate(-1, 7, 0, 3)))
    line.sender.totals(sent, 0.0, 1)
    assert line.carry()[-1] == sent


def test_rates_of_many_apis_fit_into_one_datagram() -> None:
    rates = feed_layout.limit_rates([Rate(key, 100 - key, 1, 10) for key in range(93)])
    assert len(rates) == feed_layout.MAX_RATES
    assert rates[0] == Rate(0, 100, 1, 10)
    assert rates[-1].api_key == -1
    assert sum(rate.requests for rate in rates) == sum(100 - key for key in range(93))
    assert HEADER.size + len(Totals(rates=rates).pack()) <= feed_layout.DATAGRAM


# -- invented datagrams -------------------------------------------------------------------------------------------


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A datagram that once was good."""
    line = Line(datagram=draw(st.integers(104, 600)))
    line.hello()
    line.send(*range(draw(st.integers(0, 5))), client_id=draw(st.text(max_size=20)))
    line.sender.totals(Totals(exchanges=3, rates=(Rate(1, 1, 0, 1),)), 0.0, 1)
    data = bytearray(draw(st.sampled_from([d for d, _ in line.sender.outgoing])))
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(st.lists(damaged() | st.binary(max_size=300), max_size=10))
def test_a_reader_survives_any_datagrams(datagrams: list[bytes]) -> None:
    reader = FeedReader(TOKEN)
    reader.receive(Header(DatagramKind.BATCH, 0, 5, 0, 0, 1).pack())
    for datagram in datagrams:
        for event in reader.receive(datagram):
            if isinstance(event, Batch):
                assert len(event) * RECORD.size == len(event.data) <= len(datagram)
                assert len(list(event.rows())) == len(event)
    reader.receive(Header(DatagramKind.BATCH, 0, (1 << 64) - 1, 0, 0, 1).pack())
    batch = Header(DatagramKind.BATCH, 1, (1 << 64) - 1, 0, 0, 1).pack() + bytes(64)
    assert [type(event) for event in reader.receive(batch)] == [Batch]


@given(st.binary(max_size=700) | st.builds(lambda kind, token: Header(kind, len(token)).pack() + token, st.integers(0, 255), st.binary(max_size=512)))  # fmt: skip
@example(Header(DatagramKind.HELLO, 0).pack())
def test_a_sender_survives_any_datagram(datagram: bytes) -> None:
    line = Line()
    line.sender.receive(datagram, OTHER, 0.0, 1)
    assert line.sender.subscribers == 0
    assert all(peer == OTHER for _, peer in line.sender.outgoing)  # a refusal, which is not for the reader
    line.sender.outgoing.clear()
    line.hello()
    line.send(1)
    line.flush()
    assert [type(e) for e in line.carry()][-1] is Batch


def test_strings_that_are_none_are_malformed() -> None:
    reader = FeedReader(TOKEN)
    reader.receive(Header(DatagramKind.BATCH, 0, 5, 0, 0, 1).pack())
    batch = Header(DatagramKind.BATCH, 1, 5, 0, 0, 1).pack() + bytes(64)
    short_connection = (3).to_bytes(4, "little") + (2).to_bytes(2, "little") + bytes(2) + b"abc"
    assert reader.receive(batch + short_connection) == []
    assert reader.malformed == 1
    assert [type(event) for event in reader.receive(batch + b"cut")] == [Batch]


def test_the_length_of_a_token_is_limited() -> None:
    with pytest.raises(FeedError, match="longer than 512"):
        FeedReader("x" * 600)
