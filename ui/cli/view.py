"""``barnabas ui``: look at a capture on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...captures import Capture
from ..tui.safe import visible
from .opening import open_or_fail


def ui(
    capture: Annotated[Path, typer.Argument(help="A segment, a directory of segments, or any pcap or pcapng file (.gz and .zst too).")],
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of the screen.")] = False,
) -> None:
    """Browse a capture: the list of exchanges, and every field of a request and its response.

    A directory that a running proxy records into is shown live, and so is a pcap file that tcpdump still writes. Without a terminal, plain lines are printed.
    """
    from ..tui.app import on_terminal, run
    from ..tui.plain import plain_lines

    screen = not plain and on_terminal()
    with open_or_fail(capture, background=screen) as opened:
        if not screen:
            plain_lines(opened)
        else:
            reading = opened.live and any(file.own is None for file in opened.segments)
            status = (lambda: _progress(opened)) if reading else None
            about = f": {visible(opened.about)}" if opened.about else ""
            run(opened, title=f"{capture}{about}", live=opened.live or opened.growing, status=status)


def _progress(capture: Capture) -> str:
    """How far a foreign capture is read."""
    read, known = capture.progress
    return f"reading {read / known:.0%}" if capture.live and known else ""
