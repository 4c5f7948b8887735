"""``python -m barnabas.ui.tui.screenshot OUT.svg CAPTURE``: a picture of the application on a real recording.

``--keys`` presses keys first, by Textual's names (``--keys enter b``), ``--size`` sets columns and lines.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from ...captures import Capture, open_capture
from .app import BarnabasApp


async def screenshot(capture: Capture, title: str, keys: Sequence[str] = (), size: tuple[int, int] = (130, 34)) -> str:
    """The screen as SVG after pressing `keys`, when all of the capture has been read."""
    app = BarnabasApp(capture, title=title)
    async with app.run_test(size=size) as pilot:
        session = app.session
        while session.analysis.unread or session.statistics.pending:
            session.analysis.step(0.1)
            session.statistics.step(0.1)
            await pilot.pause(0.02)
        for key in keys:
            await pilot.press(key)
        await pilot.pause()
        return without_outside_fonts(app.export_screenshot(title="barnabas"))


def without_outside_fonts(svg: str) -> str:
    """The picture with the reader's own monospaced font: it must not fetch anything from anywhere."""
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family:\s*Fira Code\b[^;]*;", "font-family: ui-monospace, Menlo, Consolas, monospace;", svg)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="barnabas.ui.tui.screenshot", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("out", type=Path, help="the SVG file to write")
    parser.add_argument("capture", type=Path, help="a segment, or a directory of segments")
    parser.add_argument("--keys", nargs="*", default=[], help="keys to press first, e.g. enter b")
    parser.add_argument("--size", default="130x34", help="columns x lines")
    given = parser.parse_args()
    columns, lines = (int(n) for n in given.size.split("x"))
    with open_capture(given.capture) as capture:
        svg = asyncio.run(screenshot(capture, given.capture.name, given.keys, (columns, lines)))
    given.out.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
