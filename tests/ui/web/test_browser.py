"""The page in Debian's Chromium: what a person sees and types there, and that nothing is fetched from anywhere else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.browsing.chromium import CHROMIUM, Drawn, browser
from harness.browsing.pages import gone, serving
from harness.waiting import PATIENCE, PATIENCE_MS

STORM = Path(__file__).parents[2] / "decoder" / "findings" / "captures" / "groups-storm.pcapng"
# Colours in a part of each line of cells, as the terminal's canvas has them: where text stands there is more than one.
PAINTED = """() => {
  const canvas = document.querySelector(".xterm-text-layer"), line = canvas.height / Math.floor(canvas.height / 20);
  const pixels = canvas.getContext("2d"), found = [];
  for (let y = 0; y + line <= canvas.height; y += line) {
    const data = new Uint32Array(pixels.getImageData(100, y, 300, Math.floor(line) - 1).data.buffer);
    found.push(new Set(data).size);
  }
  return found;
}"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: make chromium, or apt-get install chromium")


def painted(page: Any, wanted: Callable[[int], bool]) -> int:
    """How many lines have text in them, as soon as they are as many as wanted: the canvas is painted some frames later."""
    for _ in range(int(PATIENCE * 20)):
        lines = sum(colours > 1 for colours in page.evaluate(PAINTED))
        if wanted(lines):
            return lines
        page.wait_for_timeout(50)
    raise AssertionError(f"{lines} lines with text were painted at last")


@pytest.mark.timeout(400)
def test_a_person_sees_the_list_filters_it_and_opens_an_exchange(tmp_path: Path) -> None:
    with serving(tmp_path, STORM) as server, browser() as page:
        asked: list[str] = []
        faults: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if "Refused" in message.text else None)
        drawn = Drawn(page)

        page.goto(server.address)
        drawn.until("97 exchanges")
        assert re.fullmatch(f"{re.escape(server.base)}/[\\w-]+/", page.url)  # the token is no longer in the address
        full = painted(page, lambda lines: lines >= 36)
        assert full <= 38
        page.screenshot(path=str(tmp_path / "list.png"))

        drawn.mark()
        page.keyboard.type("jjjj")  # no click before: the terminal has the keyboard
        drawn.until("#5")
        page.keyboard.type("/api == SyncGroup", delay=20)
        drawn.until(" of 97 exchanges")
        page.keyboard.press("Enter")
        painted(page, lambda lines: 4 < lines < full - 4)
        page.screenshot(path=str(tmp_path / "filtered.png"))

        drawn.mark()
        page.mouse.dblclick(300, 110)
        page.keyboard.press("Enter")
        drawn.until("group_id")
        page.screenshot(path=str(tmp_path / "detail.png"))
        assert len({(tmp_path / f"{name}.png").read_bytes() for name in ("list", "filtered", "detail")}) == 3

        (screen,) = server.screens()
        page.set_viewport_size({"width": 800, "height": 500})
        drawn.mark()
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        drawn.until("exchanges")
        page.reload()  # with the cookie
        assert gone(screen)
        page.wait_for_selector("body.-first-byte", timeout=PATIENCE_MS)
        drawn.mark()
        page.keyboard.press("2")
        drawn.until("Broker")
        (screen,) = server.screens()
        drawn.mark()
        page.keyboard.press("Shift+Q")
        page.wait_for_selector("body.-closed #ended", timeout=PATIENCE_MS)
        assert gone(screen)
        drawn.mark()
        page.click("#again")
        drawn.until("97 exchanges")
        (screen,) = server.screens()
        page.close()
        assert gone(screen)
        assert asked and all(re.match(f"{re.escape(server.base)}/|data:", url) for url in asked), asked
        assert faults == []
        assert server.stop() == 0
