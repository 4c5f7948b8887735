"""A page in Debian's Chromium, and what the server has sent to the terminal in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness.waiting import PATIENCE

from .pages import CONTROL

CHROMIUM = shutil.which("chromium")
SWITCHES = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Drawn:
    """What the server has sent to the terminal in the page since `mark`."""

    def __init__(self, page: Any):
        self._page, self._data, self._from = page, b"", 0
        page.on("websocket", lambda socket: socket.on("framereceived", self._take))

    def _take(self, payload: bytes | str) -> None:
        if isinstance(payload, bytes):
            self._data += payload

    def mark(self) -> None:
        self._from = len(self._data)

    def until(self, wanted: str) -> None:
        for _ in range(int(PATIENCE * 20)):
            if wanted in CONTROL.sub(b"", self._data[self._from :]).decode("utf-8", "replace"):
                self._page.wait_for_timeout(300)  # the canvas is painted with the next frames
                return
            self._page.wait_for_timeout(50)
        raise AssertionError(f"{wanted!r} did not come")


@contextmanager
def browser() -> Iterator[Any]:
    """``with browser() as page``"""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield running.new_context(viewport={"width": 1200, "height": 760}).new_page()
        running.close()
