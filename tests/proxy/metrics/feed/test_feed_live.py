"""The live feed of a running proxy, over real UDP: what arrives, what is lost, and that nobody notices the meter."""

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
from barnabas.proxy import Proxy, ProxyConfig, ProxyError
from barnabas.proxy.events import ConnectionClosed, MeterListening, ProcessFailed, decode, encode
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
from barnabas.proxy.metrics.feed.layout import LEASE_SECONDS, Kind, parse, parse_totals
from barnabas.proxy.metrics.settings import MeterConfig
from barnabas.ui.cli.proxy.feed import _for, plain_lines
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
    assert proxy.meter is not None and proxy.meter.feed is not None
    events = subscribe(proxy.meter.feed, proxy.meter.feed_token, **options)
    assert isinstance(next(events), Joined)
    return events


class Heard:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.missed = 0
        self.totals = Totals()

    @property
    def records(self) -> int:
        return sum(map(len, self.batches))

    def until(self, events: Iterator[FeedEvent], exchanges: int) -> Heard:
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
        raise NeverHappened(f"{exchanges} exchanges; heard of {self.records}, missed {self.missed}; {self.totals}")


def test_the_feed_says_what_the_recording_says(testbed: Testbed, tmp_path: Path) -> None:
    rules = [error_rule("fenced", api_key=12, error_code=82, after=3, times=4)]
    proxy = metered(testbed, record=tmp_path, rules=rules, lossless=True, answer=FINE)
    with closing(joined(proxy)) as events:
        clients = [testbed.client(proxy.address) for _ in range(3)]
        for number, client in enumerate(clients):
            ask(client, range(number * 100, number * 100 + 40), at_once=1 + number)
        heard = Heard().until(events, 120)
    for client in clients:
        client.close()
    proxy.stop()
    with open_capture(tmp_path) as capture:
        recorded = list(capture.rows())
    assert len(recorded) == heard.records == 120
    blank = {"number": 0, "request_offset": None, "response_offset": None}
    summaries = [row._replace(**blank) for batch in heard.batches for row in batch.rows()]
    assert sorted(summaries) == sorted(row._replace(**blank) for row in recorded)
    assert sum(row.noted for row in summaries) == sum(row.error == 82 for row in summaries) == 4
    assert {row.client_id for row in summaries} == {"stock-1"}
    totals = heard.totals
    assert (totals.exchanges, totals.errors, totals.undecoded, totals.lost_bytes) == (120, 4, 0, 0)
    assert (totals.connections, totals.opened) == (3, 3)


@pytest.mark.slow  # `test_feed` tries what is lost, of a reader without a socket
def test_what_a_small_buffer_loses_is_told_exactly(testbed: Testbed) -> None:
    proxy = metered(testbed)
    with closing(joined(proxy, receive_bytes=1)) as small, closing(joined(proxy)) as large:
        client = testbed.client(proxy.address)
        with ThreadPoolExecutor(1) as pool:  # who does not read does not renew the lease, and is forgotten
            hearing = pool.submit(Heard().until, large, MANY)
            ask(client, range(MANY), at_once=500)
            everything = hearing.result(PATIENCE)
        # what still fitted into the small buffer is old by now; a later total brings the account up to date
        ask(client, range(MANY, MANY + 10))
        some = Heard().until(small, MANY + 10)
    assert (everything.records, everything.missed) == (MANY, 0)
    assert some.missed > 0
    assert some.records + some.missed == some.totals.exchanges == MANY + 10
    assert some.totals.unsent == 0


def test_asyncio_hears_the_same_and_bounds_what_waits(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.proxy.metrics.feed import client as feed_client

    told = [0]
    """how many exchanges there were by the last totals that the listener has taken from its socket"""

    class Told:
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def recv(self) -> Any:
            data, peer = await self._stream.recv()
            header = parse(data)
            if header is not None and header.kind == Kind.TOTALS:
                told[0] = parse_totals(data).exchanges
            return data, peer

    backlogs = feed_client._Backlog
    monkeypatch.setattr(feed_client, "_Backlog", lambda stream, limit: backlogs(Told(stream), limit))
    proxy = metered(testbed)
    assert proxy.meter is not None and proxy.meter.feed is not None
    client = testbed.client(proxy.address)

    before = [0]

    async def hear(count: int, backlog: int) -> tuple[int, int]:
        records = missed = 0
        started = False
        assert proxy.meter is not None and proxy.meter.feed is not None
        reader = FeedReader(proxy.meter.feed_token)
        async for event in listen(proxy.meter.feed, proxy.meter.feed_token, backlog_bytes=backlog, reader=reader):
            if isinstance(event, Joined):
                # the feed goes on while this body is elsewhere: the backlog takes it, as far as it may
                await asyncio.to_thread(ask, client, range(count), 1000)
                before[0] += count
                await until_async(lambda: told[0] >= before[0])
                started = True
            elif isinstance(event, Batch):
                records += len(event)
            elif isinstance(event, Missed):
                missed += event.records
            elif isinstance(event, Totals) and started and records + missed >= count:
                break
        return records, missed

    async def both() -> None:
        assert await asyncio.wait_for(hear(MANY, 8 << 20), PATIENCE) == (MANY, 0)
        records, missed = await asyncio.wait_for(hear(MANY, 50_000), PATIENCE)
        assert records + missed == MANY
        assert missed > MANY / 2
        assert 0 < records * 64 <= 50_000

    asyncio.run(both())


def test_a_subscriber_that_vanished_costs_the_others_nothing(testbed: Testbed) -> None:
    proxy = metered(testbed)
    assert proxy.meter is not None and proxy.meter.feed is not None
    gone = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    gone.connect(proxy.meter.feed)
    gone.send(FeedReader(proxy.meter.feed_token).hello(0.0))
    gone.settimeout(PATIENCE)
    assert gone.recv(100)
    gone.close()  # without a word
    with closing(joined(proxy)) as events:
        ask(testbed.client(proxy.address), range(MANY), at_once=500)
        heard = Heard().until(events, MANY)
    assert (heard.records, heard.missed) == (MANY, 0)
    assert LEASE_SECONDS <= 15


def test_a_killed_meter_leaves_the_traffic_alone(testbed: Testbed, tmp_path: Path) -> None:
    proxy = metered(testbed, record=tmp_path, meter={"metrics": ANY})
    client = testbed.client(proxy.address)
    ask(client, range(100))
    os.kill(proxy._children["meter"].pid, signal.SIGKILL)
    failed = next_event(proxy, ProcessFailed)
    assert (failed.process, failed.code) == ("meter", -signal.SIGKILL)
    assert "live feed and metrics have ended" in failed.text
    ask(client, range(100, 20_000), at_once=2000)
    client.close()
    next_event(proxy, ConnectionClosed)
    proxy.stop()
    with open_capture(tmp_path) as capture:
        assert len(capture.rows()) == 20_000
        assert not capture.lost


@pytest.mark.slow
def test_a_hung_meter_is_overtaken_and_says_what_it_missed(testbed: Testbed) -> None:
    proxy = metered(testbed, ring_bytes=1 << 20)
    with closing(joined(proxy)) as events:
        client = testbed.client(proxy.address)
        ask(client, range(200))
        heard = Heard().until(events, 200)
        meter = proxy._children["meter"].pid
        os.kill(meter, signal.SIGSTOP)
        ask(client, range(200, 60_000), at_once=2000)
        os.kill(meter, signal.SIGCONT)
        ask(client, range(60_000, 60_100))
        for _ in attempts(pause=0):
            heard.until(events, heard.totals.exchanges)  # its next totals
            seen = heard.totals.request_bytes + heard.totals.response_bytes + heard.totals.lost_bytes
            if seen >= 60_100 * EXCHANGE:
                break
    assert seen == 60_100 * EXCHANGE
    assert heard.totals.lost_bytes > 1_000_000
    assert heard.totals.exchanges < 60_100
    assert heard.records + heard.missed == heard.totals.exchanges


def test_the_feed_ends_and_is_found_again(testbed: Testbed) -> None:
    first = metered(testbed)
    assert first.meter is not None and first.meter.feed is not None
    where, token = first.meter.feed, first.meter.feed_token
    with closing(joined(first)) as events:
        first.stop()
        second = metered(testbed, meter={"feed": where, "feed_token": token})
        assert second.meter is not None and second.meter.feed == where
        for event in events:
            if isinstance(event, Joined):
                break
        ask(testbed.client(second.address), range(10))
        assert Heard().until(events, 10).records == 10


def test_who_does_not_know_the_token_hears_why(testbed: Testbed) -> None:
    proxy = metered(testbed)
    assert proxy.meter is not None and proxy.meter.feed is not None
    with pytest.raises(FeedError, match="does not know this token"):
        next(subscribe(proxy.meter.feed, "wrong"))


def test_no_feed_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.proxy.metrics.feed import client as feed_client

    monkeypatch.setattr(feed_client, "SILENCE_SECONDS", 0.5)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as silent:
        silent.bind(ANY)
        where = silent.getsockname()
        with pytest.raises(FeedError, match="no live feed answers"):
            next(subscribe(where, "t"))
    with pytest.raises(FeedError, match="no live feed answers"):
        next(subscribe(where, "t"))  # nobody has the port


def test_an_address_that_is_taken_is_told_before_anything_starts() -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taken:
        taken.bind(ANY)
        config = ProxyConfig(upstream=("127.0.0.1", 1), meter=MeterConfig(feed=taken.getsockname()))
        with pytest.raises(ProxyError, match="--feed"):
            Proxy(config).start()


def test_without_it_there_is_no_meter(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(answering()).address, meter=MeterConfig())
    assert "meter" not in proxy._children
    assert proxy.meter is None


def test_where_it_is_is_told(testbed: Testbed) -> None:
    proxy = metered(testbed, meter={"metrics": ANY})
    assert proxy.meter is not None
    told = next_event(proxy, MeterListening)
    assert (told.feed, told.metrics) == (proxy.meter.feed, proxy.meter.metrics)
    assert decode(encode(told)) == told
    assert proxy.meter.feed_token not in told.text + encode(told).decode()
    assert all(proxy.meter.feed_token.encode() not in Path(f"/proc/{child.pid}/cmdline").read_bytes() for child in proxy._children.values())  # fmt: skip


def enough(option: str | None, lines: list[str]) -> bool:
    """Whether the command has told five exchanges: a line each, or in its totals."""
    if option == "--json":
        told = [json.loads(each) for each in lines]
        return any(each["kind"] == "totals" and each["exchanges"] == 5 for each in told)
    return len(lines) == 5 if option is None else bool(lines) and "5 exchanges in all" in lines[-1]


def test_titles_come_when_there_is_something_to_read() -> None:
    def refused() -> Iterator[FeedEvent]:
        raise FeedError("the token is wrong")
        yield

    printed: list[str] = []
    with pytest.raises(FeedError):
        printed.extend(plain_lines(refused()))
    assert not printed
    assert len(list(plain_lines(iter([Joined(1), Joined(2)])))) == 1  # the proxy was started anew


@pytest.mark.parametrize(
    "option", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in ("--json", "--totals"))]
)
def test_the_command_prints_it(testbed: Testbed, tmp_path: Path, option: str | None) -> None:
    proxy = metered(testbed)
    assert proxy.meter is not None and proxy.meter.feed is not None
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
        told = [json.loads(line) for line in lines]
        assert json.loads(first)["kind"] == "joined"
        exchanges = [each for each in told if each["kind"] == "exchange"]
        assert [(e["api"], e["error"], e["client_id"]) for e in exchanges] == [("Heartbeat", "REBALANCE_IN_PROGRESS", "stock-1")] * 5  # fmt: skip
        assert [e["correlation_id"] for e in exchanges] == list(range(5))
        assert any(each["kind"] == "totals" and each["exchanges"] == 5 for each in told)
    elif option is None:
        assert "Client" in first
        assert all("REBALANCE_IN_PROGRESS" in each and "stock-1" in each for each in lines)
    else:
        assert "5 exchanges in all" in lines[-1]


def test_the_command_ends_after_its_time() -> None:
    assert list(_for(iter(["first", "second"]), 0)) == ["first"]
    assert list(_for(iter(["first", "second"]), 600)) == ["first", "second"]
