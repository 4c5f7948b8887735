"""The screen on a live feed alone: the feed's own rows, its losses, and what cannot be had without messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from barnabas import decoder
from barnabas.captures.reading.selection import select
from barnabas.decoder import Exchange, State
from barnabas.decoder.filter import compile
from barnabas.proxy.metrics.feed.client import Batch, FeedReader
from barnabas.proxy.metrics.feed.sender import FeedSender
from barnabas.ui import feed_capture
from barnabas.ui.feed_capture import FeedCapture
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.exchange.detail import DetailScreen

PEER = ("127.0.0.1", 4000)


def exchange(number: int, connection: int, client_id: str | None, code: int) -> Exchange:
    return Exchange(
        connection=connection, client=f"10.0.0.1:{50_000 + connection}", broker="10.0.0.2:9092", api_key=12, api_version=4,
        correlation_id=number, client_id=client_id, request_time_ns=1_753_000_000_000_000_000 + number,
        request=decoder.encode_request(12, 4, {"group_id": "g"}, correlation_id=number, client_id=client_id),
        response=decoder.encode_response(12, 4, {"error_code": code}, correlation_id=number),
        response_time_ns=1_753_000_000_000_005_000 + number, state=State.PAIRED,
    )  # fmt: skip


class Feed:
    """A feed's sender and a capture behind its reader; every datagram arrives but those with a batch in `dropped`."""

    def __init__(self, epoch: int = 5, capture: FeedCapture | None = None):
        self.sender, self.reader = FeedSender("t", epoch), FeedReader("t")
        self.capture = capture or FeedCapture(("127.0.0.1", 19095))
        self.batches: list[Batch] = []
        self.sender.receive(self.reader.hello(0.0), PEER, 0.0, 1)

    def send(self, *exchanges: Exchange, lose: bool = False) -> None:
        for each in exchanges:
            self.sender.add(each, 99, 0.0, 1)
        self.sender.flush(1)
        for datagram, _ in self.sender.outgoing:
            if lose and datagram[5] == 1:
                continue
            for event in self.reader.receive(datagram):
                self.batches += [event] if isinstance(event, Batch) else []
                self.capture.receive(event)
        self.sender.outgoing.clear()
        self.capture.refresh()


@pytest.fixture
def feed() -> Iterator[Feed]:
    made = Feed()
    yield made
    made.capture.close()


def test_rows_are_those_of_the_feed(feed: Feed) -> None:
    feed.send(exchange(1, 7, "stock-1", 27), exchange(2, 8, None, 0))
    feed.send(exchange(3, 7, "web-1", 0))
    wanted = [row for batch in feed.batches for row in batch.rows()]
    rows = list(feed.capture.rows())
    assert len(rows) == 3
    for row, expected in zip(rows, wanted, strict=True):
        assert row._replace(request_offset=None, response_offset=None) == expected
    assert list(select(feed.capture, compile("client == stock-1 and err"))) == [0]


def test_what_was_lost_is_counted(feed: Feed) -> None:
    feed.send(exchange(1, 7, "a", 0))
    feed.send(exchange(2, 7, "a", 0), exchange(3, 7, "a", 0), lose=True)
    feed.send(exchange(4, 7, "a", 0))
    assert [row.correlation_id for row in feed.capture.rows()] == [1, 4]
    assert "lost 2" in feed.capture.status()


def test_a_proxy_that_was_started_anew_has_other_connections(feed: Feed) -> None:
    feed.send(exchange(1, 7, "a", 0))
    again = Feed(epoch=6, capture=feed.capture)
    moved = exchange(1, 7, "a", 0)
    moved.client = "10.9.9.9:1"
    again.send(moved)
    first, second = feed.capture.rows()
    assert (first.client, second.client) == ("10.0.0.1:50007", "10.9.9.9:1")
    assert first.connection != second.connection


def test_no_more_is_kept_than_there_is_room_for(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_capture, "MOST", 2)
    feed.send(exchange(1, 7, "a", 0), exchange(2, 7, "a", 0))
    feed.send(exchange(3, 7, "a", 0))
    assert len(feed.capture.rows()) == 2 and "not kept 1" in feed.capture.status()


def test_the_screen_reports_what_a_feed_cannot_show(feed: Feed) -> None:
    feed.send(*(exchange(n, 7, f"client-{n}", 27 * (n % 2)) for n in range(30)))

    async def look() -> None:
        app = BarnabasApp(feed.capture, title=feed.capture.title, live=True, status=feed.capture.status)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            await pilot.press("enter")
            assert not isinstance(app.screen, DetailScreen)
            app.screen.show_filter("err", None)  # type: ignore[attr-defined]
            assert len(app.screen.view) == 15  # type: ignore[attr-defined]
            app.screen.show_filter("req.group_id == g", None)  # type: ignore[attr-defined]
            assert len(app.screen.view) == 15  # type: ignore[attr-defined]
            for view in "2345678":
                await pilot.press(view)
                await pilot.pause()
                assert app.view == int(view)
            assert "summaries" in app.session.analysis.result.fault

    asyncio.run(look())
