"""A request that is not answered is shown while it waits: by every command that lists exchanges, and with its age."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.metrics.feed.client import Waiting, subscribe
from barnabas.proxy.metrics.settings import MeterConfig
from barnabas.ui.feed_capture import FeedListener
from barnabas.ui.live import open_when_started
from barnabas.ui.testing.fixture import Barnabas
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.exchange.detail import DetailScreen
from barnabas.ui.tui.views.exchanges import ExchangesScreen
from harness import commands, wire
from harness.browsing.pages import Requests, serving
from harness.proxies import Proxy
from harness.testbed import Testbed
from harness.waiting import until, until_async
from textual.pilot import Pilot

AGE = "pending > 100ms"
TOO_OLD = "pending > 10h"


def metadata(correlation_id: int) -> bytes:
    return wire.with_size(
        decoder.encode_request(3, 9, {"topics": [{"name": "orders"}]}, correlation_id=correlation_id, client_id="shop")
    )


def response(correlation_id: int) -> bytes:
    return wire.with_size(decoder.encode_response(3, 9, {}, correlation_id=correlation_id))


def answers_even_ones(sock: object) -> None:
    """A broker that answers requests with an even correlation id alone."""
    while frame := wire.read_frame(sock):  # type: ignore[arg-type]
        number = int.from_bytes(frame[8:12], "big")
        if number % 2 == 0:
            sock.sendall(response(number))  # type: ignore[attr-defined]


class Hanging:
    """A proxy that is recorded, and a client of it: its request 1 is never answered."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.recording = folder / "recording"
        self.proxy: Proxy = testbed.proxy(
            testbed.broker(answers_even_ones).address, record=self.recording, findings=True,
            control=ControlConfig(directory=folder / "control"), meter=MeterConfig(("127.0.0.1", 0)),
        )  # fmt: skip
        self.client = testbed.client(self.proxy.address)
        self.client.sendall(metadata(1))
        assert self.proxy.control is not None
        self.access = self.proxy.control.access
        until(lambda: self.listed())

    def listed(self) -> list[int]:
        with open_when_started(self.recording) as capture:
            return [row.correlation_id for row in capture.rows() if row.waiting_ns is not None and row.waiting_ns > 100_000_000]

    def attached(self) -> tuple[str, ...]:
        return "--url", self.access.url, "--token-file", str(self.access.token_file)


@pytest.fixture
def testbed() -> Iterator[Testbed]:
    made = Testbed()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hanging]:
    testbed = Testbed()
    try:
        yield Hanging(testbed, tmp_path_factory.mktemp("hanging"))
    finally:
        testbed.close()


@pytest.mark.parametrize("command", [("decode",), ("ui", "--plain")])
def test_lines(hanging: Hanging, command: tuple[str, ...]) -> None:
    for more in (), ("--filter", AGE), ("--filter", "topic == orders"):
        done = commands.run(*command, hanging.recording, *more)
        (_, line) = done.stdout.splitlines()
        assert "shop" in line and "Metadata" in line and line.endswith(". waiting"), done
    assert len(commands.run(*command, hanging.recording, "--filter", TOO_OLD).stdout.splitlines()) == 1


def test_decode_as_json(hanging: Hanging) -> None:
    (line,) = commands.run("decode", hanging.recording, "--json", "--filter", f"{AGE} and topic == orders").stdout.splitlines()
    found = json.loads(line)
    assert (found["state"], found["correlation_id"], found["latency_ns"]) == ("pending", 1, None)
    assert found["pending_ns"] > 100_000_000
    assert found["request"]["topics"] == [{"name": "orders"}]


def test_lines_that_are_followed(hanging: Hanging) -> None:
    from barnabas.ui.tui.plain import plain_lines

    class Out:
        lines = ""

        def write(self, text: str) -> int:
            self.lines += text
            return len(text)

        def flush(self) -> None:
            pass

        def isatty(self) -> bool:
            return False

    with open_capture(hanging.recording) as capture:
        out = Out()
        plain_lines(capture, True, out, 1.0)  # type: ignore[arg-type]
        assert out.lines.count(". waiting") == 1  # and not at every look


def test_the_control_api(hanging: Hanging) -> None:
    done = commands.run("control", *hanging.attached(), "exchanges", "--filter", AGE)
    (line,) = done.stdout.splitlines()
    assert "Metadata v9 waiting for " in line
    assert "Metadata v9 waiting for " in commands.run("control", *hanging.attached(), "exchanges").stdout
    assert not commands.run("control", *hanging.attached(), "exchanges", "--filter", TOO_OLD).stdout
    found = json.loads(commands.run("control", *hanging.attached(), "exchanges", "--json", "--filter", "api == Metadata").stdout)
    assert found["request"]["topics"] == [{"name": "orders"}] and found["pending_ns"] > 100_000_000
    page = Control(hanging.access.url, hanging.access.token).exchange_page(since=0)
    assert [each["correlation_id"] for each in page["pending"]] == [1] and page["exchanges"] == []


def test_the_feed(hanging: Hanging) -> None:
    meter = hanging.proxy.meter
    assert meter is not None and meter.feed is not None
    with closing(subscribe(meter.feed, meter.feed_token)) as events:
        found = next(each for each in events if isinstance(each, Waiting))
        (row,) = found.rows()
        assert (row.correlation_id, row.client_id, row.state) == (1, "shop", "pending")
        assert row.waiting_ns is not None and row.waiting_ns >= 1_000_000_000
    command = [sys.executable, "-m", "barnabas", "feed", "{}:{}".format(*meter.feed), "--json", "--filter", AGE]
    token = {"BARNABAS_FEED_TOKEN": meter.feed_token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | token) as process:
        assert process.stdout is not None
        kinds = []
        for line in process.stdout:
            each = json.loads(line)
            kinds.append(each["kind"])
            if kinds.count("totals") == 3:
                process.terminate()
                break
    assert kinds.count("waiting") == 1  # though it is sent every second


def test_the_screen_of_a_feed(hanging: Hanging) -> None:
    meter = hanging.proxy.meter
    assert meter is not None and meter.feed is not None
    listener = FeedListener(meter.feed, meter.feed_token)
    listener.start()
    try:
        until(lambda: listener.capture.refresh() == 0 and len(listener.capture.rows()) == 1)
        assert listener.capture.done == 0
        assert on_screen(listener.capture)[-1].endswith(". waiting")
    finally:
        listener.stop()


def on_screen(capture: Capture) -> list[str]:
    """The rows that the screen shows with a filter for old requests in flight, and with none."""
    shown: list[str] = []

    async def steps(pilot: Pilot[None], app: BarnabasApp) -> None:
        screen = app.screen
        assert isinstance(screen, ExchangesScreen)
        for text in (AGE, ""):
            screen.show_filter(text, None) if text else screen.action_clear()
            await until_async(lambda: len(screen.view) == 1)
            shown.append("".join(cell for cell, _ in screen.list.source.cells(0, 100, False)).rstrip())
        screen.show_filter(TOO_OLD, None)
        await until_async(lambda: not screen.view.searching)
        assert len(screen.view) == 0

    async def run() -> None:
        app = BarnabasApp(capture, title="live", live=True)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            await steps(pilot, app)
        app.stop_once()

    asyncio.run(run())
    return shown


def test_the_screen(hanging: Hanging) -> None:
    with open_capture(hanging.recording) as capture:
        for line in on_screen(capture):
            assert "shop" in line and line.endswith(". waiting")


def test_one_that_is_open_stays_the_same(tmp_path: Path) -> None:
    """Its number changes when others are done, and when it is."""
    recorder = Recorder(tmp_path / "live", flush_seconds=0)
    for conn in (1, 2):
        recorder.opened(conn, 1, client=("10.0.0.1", 50000 + conn), broker=("kafka", 9092))
    recorder.data(1, 0, 10, metadata(1))

    async def steps(pilot: Pilot[None]) -> None:
        detail = pilot.app.screen
        assert isinstance(detail, DetailScreen)
        assert detail.row is not None and detail.row.correlation_id == 1
        for number in (2, 4):
            recorder.data(2, 0, 10 + number, metadata(number))
            recorder.data(2, 1, 11 + number, response(number))
        await until_async(lambda: detail.row is not None and detail.row.number == 2)
        assert detail.row.correlation_id == 1 and detail.row.waiting_ns is not None and detail.position == 2
        recorder.data(1, 1, 20, response(1))
        await until_async(lambda: detail.row is not None and detail.row.latency_ns == 10)
        assert detail.row.correlation_id == 1 and detail.exchange.response is not None

    async def run() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            await until_async(lambda: len(app.screen.view) == 1)  # type: ignore[attr-defined]
            await pilot.press("enter")
            await steps(pilot)
        app.stop_once()

    with open_capture(tmp_path / "live") as capture:
        app = BarnabasApp(capture, title="live", live=True)
        asyncio.run(run())
    recorder.close()


def test_the_pages(hanging: Hanging, tmp_path: Path) -> None:
    async def ask() -> None:
        async with Requests(server) as requests:
            await requests.enter()
            for wanted, count in ((AGE, 1), ("", 1), (TOO_OLD, 0)):
                address = f"{server.base}{requests.folder}data/rows"
                async with requests.http.get(address, params={"filter": wanted, "info": "1"}) as answer:
                    found = await answer.json(content_type=None)
                assert found["total"] == count, wanted
                assert [(row["Result"], row["Info"]) for row in found["rows"]] == [(". waiting", "orders")] * count

    with serving(tmp_path, hanging.recording) as server:
        asyncio.run(ask())


def test_the_table_of_a_test_that_failed(testbed: Testbed, tmp_path: Path) -> None:
    fixture = Barnabas(testbed.broker(answers_even_ones).address, tmp_path).start()
    try:
        client = testbed.client(fixture.proxy.address)
        client.sendall(metadata(2))
        assert wire.read_frame(client)
        client.sendall(metadata(1))
        until(lambda: fixture.control.pending() and fixture.exchanges())
        done, waits = fixture.report().splitlines()
        assert "Metadata v9" in done and done.endswith(" ms") and "Metadata v9 waiting for " in waits
        with pytest.raises(AssertionError, match="waiting for"):
            fixture.expect("err", timeout=0)
    finally:
        fixture.stop()


def test_it_is_one_row_until_it_is_answered_and_then(testbed: Testbed, tmp_path: Path) -> None:
    """Rows of exchanges keep their numbers; requests in flight come behind them, and are counted once."""
    from barnabas.ui.tui.model.statistics import ALL, CaptureStatistics

    hanging = Hanging(testbed, tmp_path)
    with open_capture(hanging.recording) as capture:
        statistics = CaptureStatistics(capture)
        other = testbed.client(hanging.proxy.address)
        for number in range(2, 8, 2):
            other.sendall(metadata(number))
            assert wire.read_frame(other)
            until(lambda: capture.refresh())
            rows = capture.rows()
            states = [(row.number, row.correlation_id, str(row.state)) for row in rows]
            assert states[-1] == (rows.done, 1, "pending")
            assert [each[1:] for each in states[:-1]] == [(n, "paired") for n in range(2, number + 2, 2)]
            statistics.step(1.0)
            assert statistics.apis[ALL].requests == rows.done == number // 2
        hanging.proxy.stop()
        capture.refresh()
        assert [(row.correlation_id, row.waiting_ns) for row in capture.rows()][-1] == (1, None)
        statistics.step(1.0)
        assert statistics.apis[ALL].requests == 4
