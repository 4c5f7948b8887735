"""What the screen shows, and waiting until it does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from harness.waiting import PATIENCE, NeverHappened
from textual.pilot import Pilot

T = TypeVar("T")

def text_of(pilot: Pilot[None]) -> str:
    """The lines of the screen."""
    strips = pilot.app.screen._compositor.render_strips(pilot.app.size)
    return "\n".join(strip.text for strip in strips)


async def searched(pilot: Pilot[None], rows: Any) -> None:
    """Wait until a filter has looked at all exchanges."""
    await pilot.pause(0.02)
    await until_true(pilot, lambda: not rows.searching, lambda: f"{rows.searched} exchanges have been searched, and that is not all")


async def until(pilot: Pilot[None], wanted: str, absent: str = "") -> str:
    """The screen, as soon as it shows `wanted`, also where a frame or the end of a line breaks its words, and no `absent`."""

    def there() -> str:
        shown = text_of(pilot)
        words = " ".join(shown.replace("│", " ").split())
        return shown if (wanted in shown or wanted in words) and not (absent and absent in shown) else ""

    return await until_true(pilot, there, lambda: f"{wanted!r} did not come, or {absent!r} did not go:\n{text_of(pilot)}")


async def until_true(pilot: Pilot[None], condition: Callable[[], T], saw: Callable[[], object] = lambda: "") -> T:
    """The first true result of ``condition()``; the screen goes on meanwhile."""
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        if time.monotonic() > end:
            raise NeverHappened(f"not within {PATIENCE:g} s: {saw()}")
        await pilot.pause(0.02)
    return result
