"""The live feed of a running proxy over UDP: what arrives, what is lost, and that the meter disturbs nobody."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.captures.recording.index import RECORD, STRINGS_HEADER, IndexEncoder, Record
from barnabas.decoder.filter import compile
from barnabas.proxy import Proxy, ProxyConfig, ProxyError
from barnabas.proxy.events import ConnectionClosed, MeterListening, ProcessFailed, decode, encode
from barnabas.proxy.metrics.feed import reader as feed_reader
from barnabas.proxy.metrics.feed.client import (
    Batch,
    FeedError,
    FeedEvent,
    FeedReader,
    Joined,
    Missed,
    Totals,
    listen,
    subscribe,
)
from barnabas.proxy.metrics.feed.layout import LEASE_SECONDS, DatagramKind, Header, parse, parse_totals
from barnabas.proxy.metrics.feed.sender import FeedSender
from barnabas.proxy.metrics.settings import MeterConfig
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.proxy.feed import _for, joined_token, json_lines, plain_lines
from harness import wire
from harness.run.lines import line
from harness.testbed import Script, Testbed, next_event
from harness.waiting import PATIENCE, NeverHappened, attempts, until_async
from traffic.error_rules import error_rule

ANY = ("127.0.0.1", 0)
ANSWER = decoder.encode_response(12, 4, {"error_code": 27}, correlation_id=0)[4:]
FINE = decoder.encode_response(12, 4, {}, correlation_id=0)[4:]
REQUEST = decoder.encode_request(12, 4, {"group_id": "g", "member_id": "m"}, correlation_id=0, client_id="stock-1")
MANY = 2_500
"""Exchanges whose records the kernel takes for a subscriber that does not get to read meanwhile."""
EXCHANGE = 4 + len(REQUEST) + 8 + len(ANSWER)
"""Bytes of a request and its answer."""


def answering(answer: bytes = ANSWER) -> Script:
    """A broker that answers Heartbeat v4, by default with REBALANCE_IN_PROGRESS, many at once."""

    def script(sock: socket.socket) -> None:
        data = bytearray()
        while part := sock.recv(1 << 20):
            data += part
            answers, at = bytearray(), 0
            while len(data) - at >= 4 and len(data) - at >= 4 + int.from_bytes(data[at : at + 4], "big"):
                answers += wire.with_size(bytes(data[at + 8 : at + 12]) + answer)
                at += 4 + int.from_bytes(data[at : at + 4], "big")
            del data[:at]
            sock.sendall(answers)

    return script


def ask(client: socket.socket, numbers: range, at_once: int = 200) -> None:
    """Heartbeats, `at_once` in flight, each answered."""
    size = len(ANSWER) + 8
    body = REQUEST
    for start in range(numbers.start, numbers.stop, at_once):
        part = range(start, min(start + at_once, numbers.stop))
        client.sendall(b"".join(wire.with_size(body[:4] + n.to_bytes(4, "big") + body[8:]) for n in part))
        assert len(wire.exactly(client, size * len(part))) == size * len(part)


def metered(testbed: Testbed, **options: Any) -> Proxy:
    config = {"feed": ANY} | options.pop("meter", {})
    broker = testbed.broker(answering(options.pop("answer", ANSWER)))
    return testbed.proxy(broker.address, meter=MeterConfig(**config), **options)


def joined(proxy: Proxy, **options: Any) -> Iterator[FeedEvent]:
    """A subscription that stands."""
    events = subscribe(proxy.meter.feed, proxy.meter.feed_token, **options)
    assert isinstance(next(events), Joined)
    return events


class Received:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.missed = 0
        self.totals = Totals()

    @property
    def records(self) -> int:
        return sum(map(len, self.batches))

    def until(self, events: Iterator[FeedEvent], exchanges: int) -> Received:
        """Listen until the totals say that so many exchanges were."""
        for _, event in zip(attempts(pause=0), events):
            if isinstance(event, Batch):
                self.batches.append(event)
            elif isinstance(event, Missed):
                self.missed += event.records
            elif isinstance(event, Totals):
                self.totals = event
                if event.exchanges >= exchanges:
                    return self
        raise NeverHappened(f"{exchanges} exchanges; received {self.records}, missed {self.missed}; {self.totals}")


def test_the_feed_has_the_records_of_the_recording(testbed: Testbed, tmp_path: Path) -> None:
    rules = [error_rule("fenced", api_key=12, error_code=82, after=3, times=4)]
    proxy = metered(testbed, record=tmp_path, rules=rules, lossless=True, answer=FINE)
    with closing(joined(proxy)) as events:
        clients = [testbed.client(proxy.address) for _ in range(3)]
        for number, client in enumerate(clients):
            ask(client, range(number * 100, number * 100 + 40), at_once=1 + number)
        received = Received().until(events, 120)
    for client in clients:
        client.close()
    proxy.stop()
    with open_capture(tmp_path) as capture:
        recorded = list(capture.rows())
    assert len(recorded) == received.records == 120
    blank = {"number": 0, "request_offset": None, "response_offset": None}
    summaries = [row._replace(**blank) for batch in received.batches for row in batch.rows()]
    assert sorted(summaries) == sorted(row._replace(**blank) for row in recorded)
    assert sum(row.noted for row in summaries) == sum(row.error == 82 for row in summaries) == 4
    assert {row.client_id for row in summaries} == {"stock-1"}
    totals = received.totals
    assert (totals.exchanges, totals.errors, totals.undecoded, totals.lost_bytes) == (120, 4, 0, 0)
    assert (totals.connections, totals.opened) == (3, 3)


@pytest.mark.slow  # `test_feed` tries what is lost, of a reader without a socket
def test_losses_of_a_small_buffer_are_counted_exactly(testbed: Testbed) -> None:
    proxy = metered(testbed)
    with closing(joined(proxy, receive_bytes=1)) as small, closing(joined(proxy)) as large:
        client = testbed.client(proxy.address)
        with ThreadPoolExecutor(1) as pool:  # who does not read does not renew the lease, and is forgotten
            reading = pool.submit(Received().until, large, MANY)
            ask(client, range(MANY), at_once=500)
            everything = reading.result(PATIENCE)
        # what still fitted into the small buffer is old by now; a later total brings the account up to date
        ask(client, range(MANY, MANY + 10))
        some = Received().until(small, MANY + 10)
    assert (everything.records, everything.missed) == (MANY, 0)
    assert some.missed > 0
    assert some.records + some.missed == some.totals.exchanges == MANY + 10
    assert some.totals.unsent == 0


def test_asyncio_gets_the_same_records_and_bounds_its_backlog(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.proxy.metrics.feed import client as feed_client

    counted = [0]
    """exchanges in the last totals that the listener has taken from its socket"""

    class CountingStream:
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def recv(self) -> Any:
            data, peer = await self._stream.recv()
            header = parse(data)
            if header is not None and header.kind == DatagramKind.TOTALS:
                counted[0] = parse_totals(data).exchanges
            return data, peer

    backlogs = feed_client._Backlog
    monkeypatch.setattr(feed_client, "_Backlog", lambda stream, limit: backlogs(CountingStream(stream), limit))
    proxy = metered(testbed)
    client = testbed.client(proxy.address)

    before = [0]

    async def read(count: int, backlog: int) -> tuple[int, int]:
        records = missed = 0
        started = False
        reader = FeedReader(proxy.meter.feed_token)
        async for event in listen(proxy.meter.feed, proxy.meter.feed_token, backlog_bytes=backlog, reader=reader):
            if isinstance(event, Joined):
                # the feed goes on while this body waits: the backlog takes it, as far as it has room
                await asyncio.to_thread(ask, client, range(count), 1000)
                before[0] += count
                await until_async(lambda: counted[0] >= before[0])
                started = True
            elif isinstance(event, Batch):
                records += len(event)
            elif isinstance(event, Missed):
                missed += event.records
            elif isinstance(event, Totals) and started and records + missed >= count:
                break
        return records, missed

    async def both() -> None:
        assert await asyncio.wait_for(read(MANY, 8 << 20), PATIENCE) == (MANY, 0)
        records, missed = await asyncio.wait_for(read(MANY, 50_000), PATIENCE)
        assert records + missed == MANY
        assert missed > MANY / 2
        assert 0 < records * 64 <= 50_000

    asyncio.run(both())


def test_asyncio_renews_the_subscription_while_its_body_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_reader, "RENEW_SECONDS", 0.01)
    sender = FeedSender("token", 5)

    async def go(feed: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        async def welcome() -> None:
            hello, peer = await loop.sock_recvfrom(feed, 1000)
            sender.receive(hello, peer, 0.0, 1)
            for datagram, to in sender.outgoing:
                await loop.sock_sendto(feed, datagram, to)

        welcoming = asyncio.create_task(welcome())
        async for event in listen(feed.getsockname(), "token"):
            assert isinstance(event, Joined)
            await welcoming
            renewed, _ = await asyncio.wait_for(loop.sock_recvfrom(feed, 1000), PATIENCE)
            assert parse(renewed).kind == DatagramKind.HELLO
            break

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as feed:
        feed.bind(("127.0.0.1", 0))
        feed.setblocking(False)
        asyncio.run(go(feed))


def test_a_vanished_subscriber_does_not_affect_others(testbed: Testbed) -> None:
    proxy = metered(testbed)
    gone = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    gone.connect(proxy.meter.feed)
    gone.send(FeedReader(proxy.meter.feed_token).hello(0.0))
    gone.settimeout(PATIENCE)
    assert gone.recv(100)
    gone.close()  # without a word
    with closing(joined(proxy)) as events, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(Received().until, events, MANY)
        ask(testbed.client(proxy.address), range(MANY), at_once=500)
        received = reading.result(PATIENCE)
    assert (received.records, received.missed) == (MANY, 0)
    assert LEASE_SECONDS <= 15


def test_a_killed_meter_does_not_affect_traffic(testbed: Testbed, tmp_path: Path) -> None:
    proxy = metered(testbed, record=tmp_path, meter={"metrics": ANY})
    client = testbed.client(proxy.address)
    ask(client, range(100))
    os.kill(proxy._children["meter"].pid, signal.SIGKILL)
    failed = next_event(proxy, ProcessFailed)
    assert (failed.process, failed.code) == ("meter", -signal.SIGKILL)
    assert "without live feed and metrics" in failed.text
    ask(client, range(100, 20_000), at_once=2000)
    client.close()
    next_event(proxy, ConnectionClosed)
    proxy.stop()
    with open_capture(tmp_path) as capture:
        assert len(capture.rows()) == 20_000
        assert not capture.lost


@pytest.mark.slow
def test_a_hung_meter_reports_what_it_missed(testbed: Testbed) -> None:
    proxy = metered(testbed, ring_bytes=1 << 20)
    with closing(joined(proxy)) as events:
        client = testbed.client(proxy.address)
        ask(client, range(200))
        received = Received().until(events, 200)
        meter = proxy._children["meter"].pid
        os.kill(meter, signal.SIGSTOP)
        ask(client, range(200, 60_000), at_once=2000)
        os.kill(meter, signal.SIGCONT)
        ask(client, range(60_000, 60_100))
        for _ in attempts(pause=0):
            received.until(events, received.totals.exchanges)  # its next totals
            seen = received.totals.request_bytes + received.totals.response_bytes + received.totals.lost_bytes
            if seen >= 60_100 * EXCHANGE:
                break
    assert seen == 60_100 * EXCHANGE
    assert received.totals.lost_bytes > 1_000_000
    assert received.totals.exchanges < 60_100
    assert received.records + received.missed == received.totals.exchanges


def test_a_subscription_continues_on_a_restarted_feed(testbed: Testbed) -> None:
    first = metered(testbed)
    where, token = first.meter.feed, first.meter.feed_token
    with closing(joined(first)) as events:
        first.stop()
        second = metered(testbed, meter={"feed": where, "feed_token": token})
        assert second.meter is not None and second.meter.feed == where
        for event in events:
            if isinstance(event, Joined):
                break
        ask(testbed.client(second.address), range(10))
        assert Received().until(events, 10).records == 10


def test_a_wrong_token_is_an_error_with_a_reason(testbed: Testbed) -> None:
    proxy = metered(testbed)
    with pytest.raises(FeedError, match="does not know this token"):
        next(subscribe(proxy.meter.feed, "wrong"))


def test_a_missing_feed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.proxy.metrics.feed import client as feed_client

    monkeypatch.setattr(feed_client, "SILENCE_SECONDS", 0.5)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as silent:
        silent.bind(ANY)
        where = silent.getsockname()
        with pytest.raises(FeedError, match="no live feed answers"):
            next(subscribe(where, "t"))
    with pytest.raises(FeedError, match="no live feed answers"):
        next(subscribe(where, "t"))  # nobody has the port


def test_an_address_in_use_is_an_error_at_the_start() -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taken:
        taken.bind(ANY)
        config = ProxyConfig(upstream=("127.0.0.1", 1), meter=MeterConfig(feed=taken.getsockname()))
        with pytest.raises(ProxyError, match="--feed"):
            Proxy(config).start()


def test_without_settings_there_is_no_meter(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(answering()).address, meter=MeterConfig())
    assert "meter" not in proxy._children
    assert proxy.meter is None


def test_an_event_reports_the_addresses_of_the_meter(testbed: Testbed) -> None:
    proxy = metered(testbed, meter={"metrics": ANY})
    reported = next_event(proxy, MeterListening)
    assert (reported.feed, reported.metrics) == (proxy.meter.feed, proxy.meter.metrics)
    assert decode(encode(reported)) == reported
    assert proxy.meter.feed_token not in reported.text + encode(reported).decode()
    assert all(proxy.meter.feed_token.encode() not in Path(f"/proc/{child.pid}/cmdline").read_bytes() for child in proxy._children.values())  # fmt: skip


def enough(option: str | None, lines: list[str]) -> bool:
    """Whether the command has printed five exchanges: a line each, or in its totals."""
    if option == "--json":
        reported = [json.loads(each) for each in lines]
        return any(each["kind"] == "totals" and each["exchanges"] == 5 for each in reported)
    return len(lines) == 5 if option is None else bool(lines) and "5 exchanges in total" in lines[-1]


def test_titles_are_printed_with_the_first_row() -> None:
    def refused() -> Iterator[FeedEvent]:
        raise FeedError("the token is wrong")
        yield

    printed: list[str] = []
    with pytest.raises(FeedError):
        printed.extend(plain_lines(refused()))
    assert not printed
    assert len(list(plain_lines(iter([Joined(1), Joined(2)])))) == 1  # the proxy was started anew


def test_a_filter_selects_what_is_printed() -> None:
    names = IndexEncoder()
    for name in ("shop", "stock"):
        names.string(name)
    rows = [(12, 27, 1), (12, 0, 2), (3, 27, 2)]
    data = b"".join(
        RECORD.pack(*Record(10 + at, 5, 0, 0, 40, 8, at, 1, key, 4, error, 0, name, 0)) for at, (key, error, name) in enumerate(rows)
    )
    header = Header(DatagramKind.BATCH, len(rows))
    batch = Batch(header.pack() + data + bytes(names.entries[STRINGS_HEADER.size :]), header)
    for text, expected in (("err", [1, 3]), ("client == stock", [2, 3]), ("api == Heartbeat and client == shop", [1]), ("latency > 1s", [])):
        lines = [json.loads(each) for each in json_lines(iter([batch]), False, compile(text))]
        assert [each["number"] for each in lines] == expected, text


@pytest.mark.parametrize(
    "option", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in ("--json", "--totals"))]
)
def test_the_command_prints_the_feed(testbed: Testbed, tmp_path: Path, option: str | None) -> None:
    proxy = metered(testbed)
    token = tmp_path / "token"
    token.write_text(proxy.meter.feed_token + "\n")
    host, port = proxy.meter.feed
    command = [sys.executable, "-m", "barnabas", "feed", f"{host}:{port}", "--token-file", str(token)]
    with subprocess.Popen([*command, *([option] if option else [])], stdout=subprocess.PIPE, text=True) as child:
        first, lines = line(child, "what it begins with"), []  # it has subscribed by then
        client = testbed.client(proxy.address)
        ask(client, range(5))
        while not enough(option, lines):
            lines.append(line(child, f"five exchanges; so far {lines}"))
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == 0
    if option == "--json":
        reported = [json.loads(line) for line in lines]
        assert json.loads(first)["kind"] == "joined"
        exchanges = [each for each in reported if each["kind"] == "exchange"]
        assert [(e["api"], e["error"], e["client_id"]) for e in exchanges] == [("Heartbeat", "REBALANCE_IN_PROGRESS", "stock-1")] * 5  # fmt: skip
        assert [e["correlation_id"] for e in exchanges] == list(range(5))
        assert any(each["kind"] == "totals" and each["exchanges"] == 5 for each in reported)
    elif option is None:
        assert "Client" in first
        assert all("REBALANCE_IN_PROGRESS" in each and "stock-1" in each for each in lines)
    else:
        assert "5 exchanges in total" in lines[-1]


def test_the_command_waits_for_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with pytest.raises(Failure, match="cannot be read"):
        joined_token("127.0.0.1:1", token)
    with pytest.raises(Failure, match="no token for the feed"):
        joined_token("127.0.0.1:1", token, True, 0)
    with pytest.raises(Failure, match="is not HOST:PORT"):
        joined_token("nonsense:x", token, True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(joined_token, "127.0.0.1:1", token, True)
        token.touch()  # as it is made before it is written
        assert not waiting.done()
        token.write_text("secret\n")
        assert waiting.result(PATIENCE) == (("127.0.0.1", 1), "secret")


def test_the_command_ends_after_its_time() -> None:
    assert list(_for(iter(["first", "second"]), 0)) == ["first"]
    assert list(_for(iter(["first", "second"]), 600)) == ["first", "second"]
