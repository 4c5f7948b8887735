"""The page on a proxy with traffic, in Chromium: the list grows by itself, a filter narrows it, an exchange opens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.control import ControlConfig
from barnabas.proxy.metrics.settings import MeterConfig
from barnabas.ui.testing.cluster import EmbeddedCluster
from confluent_kafka import Producer
from harness.browsing.chromium import CHROMIUM, Drawn, browser
from harness.browsing.pages import gone, serving
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
    producer = Producer({"bootstrap.servers": "{}:{}".format(*proxy.address), "client.id": "billing-7", "log_level": 0})
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


def watched(page: Any, address: str) -> Drawn:
    """The page, once its list has grown twice by itself."""
    drawn = Drawn(page)
    page.goto(address)
    drawn.until("LIVE")
    drawn.until("Produce")
    for _ in range(2):
        drawn.mark()
        drawn.until("billing-7")
    drawn.mark()
    page.keyboard.type("/api == Produce", delay=20)
    drawn.until(" of ")
    page.keyboard.press("Enter")
    return drawn


def test_the_page_of_an_attached_proxy(proxy: Proxy, tmp_path: Path) -> None:
    assert proxy.control is not None
    access = proxy.control.access
    with traffic(proxy), serving(tmp_path, "--attach", access.url, BARNABAS_CONTROL_TOKEN=access.token) as server:
        with browser() as page:
            drawn = watched(page, server.address)
            page.screenshot(path=str(tmp_path / "attached.png"))
            drawn.mark()
            page.keyboard.press("Enter")
            drawn.until("topic_data")
            page.screenshot(path=str(tmp_path / "attached-detail.png"))
            page.keyboard.press("q")
            drawn.mark()
            page.keyboard.press("7")
            drawn.until("READ-ONLY")
            (screen,) = server.screens()
        assert gone(screen)


def test_the_page_of_a_feed(proxy: Proxy, tmp_path: Path) -> None:
    assert proxy.meter is not None and proxy.meter.feed is not None
    address = "{}:{}".format(*proxy.meter.feed)
    with traffic(proxy), serving(tmp_path, "--feed", address, BARNABAS_FEED_TOKEN=FEED_TOKEN) as server, browser() as page:
        drawn = watched(page, server.address)
        page.screenshot(path=str(tmp_path / "fed.png"))
        drawn.mark()
        page.keyboard.press("6")
        drawn.until("rate")
