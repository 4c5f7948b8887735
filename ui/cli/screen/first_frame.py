"""Open a capture on the screen. Modules that read captures are imported only after the first frame is drawn."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..common.failure import Failure

if TYPE_CHECKING:
    from ....captures import Capture
    from ....captures.reading.selection import Selection
    from ....decoder.values import SchemaSource
    from ...tui.first_frame import OpenedCapture
    from ...tui.model.settings import ScreenSettings


class ScreenOptions(TypedDict, total=False):
    """Arguments of the screen (`BarnabasApp`) that come from the command line and the user's settings."""

    theme: str
    ascii: bool
    filter: str
    settings: ScreenSettings
    schemas: SchemaSource | None


def show_capture(path: Path, options: ScreenOptions | None = None) -> None:
    """Show the capture at `path` until the user quits; lines where there is no terminal."""
    from ...tui.app import on_terminal, run_opening

    if options is None:
        options = screen_options("", False, None)
    if not path.exists() or not on_terminal():
        from ...tui.plain import plain_lines
        from ..common.opening import open_or_fail

        gc.enable()
        with open_or_fail(path) as opened:
            plain_lines(opened, selection=selection_of(opened, options))
    else:
        gc.disable()  # until the first rows are there
        run_opening(lambda: opened_capture(path), title=str(path), **options)


def selection_of(capture: Capture, options: ScreenOptions) -> Selection | None:
    """The rows that the filter of the options selects; None without one."""
    if not options.get("filter"):
        return None
    from ....captures.reading.selection import Selection
    from ..protocol.filter import compiled

    return Selection(capture, compiled(options["filter"]))


def opened_capture(path: Path) -> OpenedCapture:
    """The capture at `path` with its first rows; Failure if it cannot be opened."""
    from ...safe import visible
    from ...tui.first_frame import OpenedCapture
    from ..common.opening import open_or_fail

    capture = open_or_fail(path, background=True)
    reading = capture.live and any(file.own is None for file in capture.segments)
    about = f": {visible(capture.about)}" if capture.about else ""
    growing = capture.growing
    status = Reading(capture) if reading else None
    return OpenedCapture(capture, f"{path}{about}", capture.live or growing, status, growing or not reading)


def screen_options(theme: str, ascii: bool, path: Path | None) -> ScreenOptions:
    """The options; Failure for an unknown theme, or settings that cannot be read."""
    from ...tui.model.settings import read_settings
    from ...tui.widgets.palette import THEMES

    if theme and theme not in THEMES:
        raise Failure(f"--theme: there is no theme {theme!r}; there are {', '.join(THEMES)}")
    return {"theme": theme, "ascii": ascii, "settings": read_settings(path)}


class Reading:
    """How far a foreign capture is read, for the header."""

    def __init__(self, capture: Capture):
        self._capture, self._began = capture, time.monotonic()

    def __call__(self) -> str:
        from ...tui.model.columns import size

        read, known = self._capture.progress
        if not self._capture.live or not read:
            return ""
        if not known:
            return f"reading {size(read)}B"
        left = (time.monotonic() - self._began) * (known - read) / read
        return f"reading {size(read)}B of {size(known)}B, {read / known:.0%}, {left:.0f} s left"
