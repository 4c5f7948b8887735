"""The pages of a proxy with traffic, in Chromium: the list grows, rules are added, a held frame is edited and released."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.proxy import ProxyConfig
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.metrics.settings import MeterConfig
from barnabas.ui.attached_proxy import AttachedProxy
from barnabas.ui.testing.cluster import EmbeddedCluster
from confluent_kafka import Producer
from harness.browsing.chromium import CHROMIUM, Watch, browser
from harness.browsing.pages import Server, serving
from harness.proxies import Proxy
from harness.waiting import PATIENCE

FEED_TOKEN = "t" * 32

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: make chromium, or apt-get install chromium"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    cluster = EmbeddedCluster(1)
    folder = tmp_path_factory.mktemp("live")
    config = ProxyConfig(
        upstream=cluster.address, record=folder / "rec", probe=False, drain_seconds=1.0,
        control=ControlConfig(directory=folder / "control"), meter=MeterConfig(("127.0.0.1", 0), FEED_TOKEN),
    )  # fmt: skip
    try:
        with Proxy(config) as running:
            yield running
    finally:
        cluster.stop()


@contextmanager
def traffic(proxy: Proxy) -> Iterator[None]:
    """A producer that sends a record at a time, until the end of the block."""
    # a frame is held for as long as a test takes on a busy machine
    producer = Producer({
        "bootstrap.servers": "{}:{}".format(*proxy.address), "client.id": "billing-7", "log_level": 0, "socket.timeout.ms": 300_000,
        "request.timeout.ms": 900_000, "message.timeout.ms": 900_000,
    })  # fmt: skip
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.05):
            producer.produce("orders", b"one", partition=0)
            producer.flush(PATIENCE)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def recording_of(proxy: Proxy) -> Path:
    assert proxy.control is not None
    return AttachedProxy(Control(proxy.control.access.url, proxy.control.access.token)).directory()


def total(page: Any) -> int:
    """How many exchanges there are, as the page says."""
    shown = page.wait_for_selector("text=/^[0-9,]+ exchanges$/").inner_text()
    return int(shown.split()[0].replace(",", ""))


def grows(page: Any) -> None:
    before = total(page)
    page.wait_for_function(
        "before => [...document.querySelectorAll('.bar span')].some(e => parseInt(e.innerText.replace(/,/g, '')) > before + 3)", arg=before
    )
    page.wait_for_function("document.querySelector('.follow').classList.contains('on')")
    # the newest rows are shown without scrolling
    page.wait_for_function(
        "before => [...document.querySelectorAll('.ag-row [col-id=No]')].some(e => parseInt(e.innerText) > before)", arg=before
    )


@contextmanager
def attached(proxy: Proxy, folder: Path, *more: str) -> Iterator[Server]:
    assert proxy.control is not None
    access = proxy.control.access
    with traffic(proxy), serving(folder, "--attach", access.url, *more, BARNABAS_CONTROL_TOKEN=access.token) as server:
        yield server


@pytest.mark.timeout(400)
def test_an_attached_proxy_is_shown_live_and_read_only(proxy: Proxy, tmp_path: Path) -> None:
    with attached(proxy, tmp_path) as server, browser() as page:
        watch = Watch(page)
        page.goto(server.address)
        page.wait_for_selector("text=LIVE")
        page.wait_for_selector("text=READ-ONLY")
        grows(page)
        page.goto(server.at("exchanges?filter=api == Produce"))
        page.click(".ag-row [col-id=API]:has-text('Produce') >> nth=0")
        page.wait_for_selector(".tree >> text=topic_data")
        for path in ("rules", "held"):
            page.goto(server.at(path))
            page.wait_for_selector("text=Read-only: start barnabas ui --web with --allow-edit")
            assert page.locator("text=Add a rule").count() == page.locator("button:has-text('Hold')").count() == 0
        page.goto(server.at("rules?add=leader-election"))
        page.wait_for_selector("text=leader-election")
        assert page.locator(".q-dialog").count() == 0
        assert watch.faults == []


@pytest.mark.timeout(400)
def test_a_lost_proxy_is_reported_on_each_page(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(1)
    config = ProxyConfig(
        upstream=cluster.address, record=tmp_path / "rec", probe=False, drain_seconds=1.0, control=ControlConfig(directory=tmp_path / "control")
    )  # fmt: skip
    try:
        with Proxy(config) as running, browser() as page, ExitStack() as served:
            assert running.control is not None
            access = running.control.access
            with traffic(running):
                server = served.enter_context(serving(tmp_path, "--attach", access.url, BARNABAS_CONTROL_TOKEN=access.token))
                page.goto(server.address)
                page.wait_for_selector("text=LIVE")
                page.wait_for_selector(".ag-row")
            running.stop()
            page.wait_for_selector(".badge.lost >> text=LOST")
            for path in ("exchanges", "rules", "held", "latency"):
                page.goto(server.at(path))
                page.wait_for_selector("header .error >> text=cannot reach the control API")
            page.goto(server.at("rules"))
            page.wait_for_selector(".error >> text=The proxy does not answer")
    finally:
        cluster.stop()


@pytest.mark.timeout(400)
def test_a_rule_is_added_from_a_recipe_and_removed(proxy: Proxy, tmp_path: Path) -> None:
    assert proxy.control is not None
    with attached(proxy, tmp_path, "--allow-edit") as server, browser() as page:
        page.goto(server.at("rules?add=slow-broker"))
        page.wait_for_selector(".q-dialog textarea")
        page.fill(".q-dialog textarea", "name: x")
        page.click(".q-dialog button:has-text('Save')")
        page.wait_for_selector(".q-dialog .error:has-text('the rule has no')")  # the proxy says what is missing
        page.fill(".q-dialog textarea", "name: slow\nmatch: api == Produce\ndo: {delay: 1ms}")
        page.click(".q-dialog button:has-text('Save')")
        page.wait_for_selector("td:has-text('slow')")
        page.wait_for_function("[...document.querySelectorAll('td.number')].some(e => parseInt(e.innerText) > 0)")  # it has hits
        page.click("text=Disable")
        page.wait_for_selector("td:has-text('off')")
        page.click("text=Remove")
        page.click(".q-dialog button:has-text('Remove')")
        page.wait_for_selector("text=No rules")


@pytest.mark.timeout(400)
def test_a_held_frame_is_edited_and_released(proxy: Proxy, tmp_path: Path) -> None:
    with attached(proxy, tmp_path, "--allow-edit") as server, browser() as page:
        page.goto(server.at("held"))
        page.fill(".intercept input", "api ==")
        page.click("button:has-text('Hold')")
        page.wait_for_selector(".error:has-text('at character')")
        page.fill(".intercept input", "api == Produce")
        page.fill("[aria-label=Seconds]", "3000")
        page.click("button:has-text('Hold')")
        page.click("a:has-text('open')")
        page.wait_for_selector("[name=timeout_ms]")
        page.fill("[name=timeout_ms]", "soon")
        page.keyboard.press("Tab")
        page.wait_for_selector(".error:has-text('is not a whole number')")
        page.fill("[name=timeout_ms]", "12321")
        page.keyboard.press("Tab")
        page.wait_for_selector("text=1 changed: timeout_ms")
        page.click(".button:has-text('Release')")
        page.wait_for_url("**/held")
        page.click("button:has-text('Release all')")
        page.wait_for_selector("text=Nothing is intercepted")
        page.goto(server.at("exchanges?filter=api == Produce and changed"))
        page.click(".ag-row [col-id=API]:has-text('Produce') >> nth=0")
        page.wait_for_selector(".reason >> text=edited by hand")
        number = int(page.inner_text(".badge:has-text('#')").removeprefix("#"))
        with open_capture(recording_of(proxy)) as capture:  # the proxy's own record of it
            exchange = capture.exchange(number - 1)
            assert [note for notes in exchange.marks.every_notes() for note in notes] == ["edited by hand"]


def test_a_feed_has_summaries_only(proxy: Proxy, tmp_path: Path) -> None:
    assert proxy.meter is not None and proxy.meter.feed is not None
    address = "{}:{}".format(*proxy.meter.feed)
    with traffic(proxy), serving(tmp_path, "--feed", address, BARNABAS_FEED_TOKEN=FEED_TOKEN) as server, browser() as page:
        watch = Watch(page)
        page.goto(server.address)
        grows(page)
        page.goto(server.at("exchanges/1"))
        page.wait_for_selector(".page >> text=What it means")
        page.goto(server.at("latency?api=all"))
        page.wait_for_selector(".ag-row >> text=Produce")
        for path in ("groups", "problems"):
            page.goto(server.at(path))
            page.wait_for_selector("text=There are summaries only, no messages")
        assert watch.faults == []
