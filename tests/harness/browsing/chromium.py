"""A page in Debian's Chromium."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness.waiting import PATIENCE_MS

CHROMIUM = shutil.which("chromium")
SWITCHES = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Watch:
    """What a page asks for, and what goes wrong in it: errors of scripts, and what its policy refuses."""

    def __init__(self, page: Any):
        self.asked: list[str] = []
        self.faults: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        page.on("console", lambda message: self.faults.append(message.text) if message.type in ("error", "warning") else None)

    def elsewhere(self, base: str) -> list[str]:
        """Addresses that are not of the server at `base`."""
        return [url for url in self.asked if not re.match(f"{re.escape(base)}/|data:|blob:", url)]


@contextmanager
def browser(width: int = 1280, height: int = 800, dark: bool = False) -> Iterator[Any]:
    """``with browser() as page``"""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        context = running.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
        context.set_default_timeout(PATIENCE_MS)
        yield context.new_page()
        running.close()
