"""The pictures of the documentation, made from the real program: a demonstration is recorded, and its screens are drawn.

    PYTHONPATH=tests python -m docs.site.pictures         (make pictures)

`docs/demo.svg` moves: it shows one screen after the other, by CSS alone. The diagrams are those of the pages (`barnabas ui --web`), drawn
as SVG by their own library, in Chromium.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from barnabas.captures import open_capture
from barnabas.ui.tui.screenshot import screenshot
from docs.pages import ROOT
from harness.browsing.chromium import browser
from harness.browsing.pages import Server, serving

DOCS = ROOT / "docs"
SECONDS = 3.0
"""How long each screen of the moving picture is shown."""
SIZE = (110, 28)
WIDTH = 1000
"""Pixels of a diagram."""
DEMO: tuple[tuple[str, ...], ...] = (
    (),  # the list of exchanges
    ("slash", *"api", "space", "equals_sign", "equals_sign", "space", *"Produce", "enter"),  # filtered
    ("slash", *"api", "space", "equals_sign", "equals_sign", "space", *"Produce", "enter", "enter"),  # the fields of one
    ("4",),  # versions
    ("5",),  # problems
    ("6",),  # latency
)
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


DRAW = """async ([selector, width, height]) => {
  const { echarts } = await import("nicegui-echart");
  const shown = getElement(Number(document.querySelector(selector).id.slice(1))).chart.getOption();
  const drawn = echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
  drawn.setOption({ ...shown, dataZoom: shown.dataZoom.filter((each) => each.type === "inside") });
  return drawn.renderToSVGString();
}"""


def diagram(server: Server, path: str, *charts: tuple[str, int]) -> str:
    """One SVG with the charts of a page, each given by its selector and height in pixels, one below the other."""
    with browser() as page:
        page.goto(server.at(path))
        parts, top = [], 0
        for selector, height in charts:
            page.wait_for_selector(f"{selector} canvas")
            drawn = page.evaluate(DRAW, [selector, WIDTH, height])
            parts.append(f'<svg y="{top}" width="{WIDTH}" height="{height}"{drawn[drawn.index(" viewBox") :]}')
            top += height
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}">\n' + "\n".join(parts) + "\n</svg>\n"


def moving(frames: Sequence[str]) -> str:
    """One SVG that shows these one after the other, again and again; the first only where the reader wants no motion."""
    sizes = [_SIZE.search(frame) for frame in frames]
    assert all(sizes), "a frame is not an SVG of Textual"
    width, height = (max(float(size[number]) for size in sizes if size) for number in (1, 2))
    total, share = SECONDS * len(frames), 100 / len(frames)
    style = (
        f"@keyframes turn {{ 0%, {share:.3f}% {{ visibility: visible }} {share + 0.001:.3f}%, 100% {{ visibility: hidden }} }}\n"
        f".frame {{ visibility: hidden; animation: turn {total:g}s infinite }}\n"
        + "".join(f".frame:nth-of-type({n}) {{ animation-delay: {SECONDS * (n - 1):g}s }}\n" for n in range(1, len(frames) + 1))
        + "@media (prefers-reduced-motion: reduce) { .frame { animation: none } .frame:first-of-type { visibility: visible } }"
    )
    body = "\n".join(f'<g class="frame">{frame[frame.index("<svg") :]}</g>' for frame in frames)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">\n<style>{style}</style>\n{body}\n</svg>\n'


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder, "demo")
        subprocess.run(
            [sys.executable, "-m", "barnabas", "demo", "--headless", "--seconds", "8", "--record", recording],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        with open_capture(recording) as capture:
            def shot(*keys: str, size: tuple[int, int] = (130, 34)) -> str:
                return asyncio.run(screenshot(capture, recording.name, keys, size))

            (DOCS / "screenshot.svg").write_text(shot(), "utf-8")
            (DOCS / "screenshot-latency.svg").write_text(shot("6"), "utf-8")
            (DOCS / "demo.svg").write_text(moving([shot(*keys, size=SIZE) for keys in DEMO]), "utf-8")
        with serving(Path(folder), recording) as server:
            (DOCS / "diagram-ladder.svg").write_text(diagram(server, "ladder?filter=client == billing-1", (".ladder", 560)), "utf-8")
            (DOCS / "diagram-group.svg").write_text(diagram(server, "groups/billing", (".gantt", 190), (".assignments", 230)), "utf-8")


if __name__ == "__main__":
    main()
