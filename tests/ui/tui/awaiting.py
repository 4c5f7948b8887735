"""What the screen shows, and waiting until it does."""

from __future__ import annotations

import time
from typing import Any

from textual.pilot import Pilot

LONG = 60.0
"""Seconds that a loaded machine may take for anything."""


def text_of(pilot: Pilot[Any]) -> str:
    """The lines of the screen."""
    strips = pilot.app.screen._compositor.render_strips(pilot.app.size)
    return "\n".join(strip.text for strip in strips)


async def searched(pilot: Pilot[Any], rows: Any) -> None:
    """Wait until a filter has looked at all exchanges."""
    end = time.monotonic() + LONG
    await pilot.pause(0.02)
    while rows.searching:
        assert time.monotonic() < end, f"{rows.searched} exchanges have been searched, and that is not all"
        await pilot.pause(0.02)


async def until(pilot: Pilot[Any], wanted: str, absent: str = "") -> str:
    """The screen, as soon as it shows `wanted`, also where a frame or the end of a line breaks its words, and no `absent`."""
    end = time.monotonic() + LONG
    while True:
        shown = text_of(pilot)
        words = " ".join(shown.replace("│", " ").split())
        if (wanted in shown or wanted in words) and not (absent and absent in shown):
            return shown
        if time.monotonic() > end:
            raise AssertionError(f"{wanted!r} did not come, or {absent!r} did not go:\n{shown}")
        await pilot.pause(0.02)
