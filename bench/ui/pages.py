"""The pages in Chromium, beside the same table without a server: frames per second while scrolling, and CPU on a live recording.

    python bench/ui/pages.py [--exchanges 1000000] [--rate 10000] [--seconds 20] [--keep DIR]

Frames are those of `requestAnimationFrame` while the list of exchanges is scrolled by a notch of the wheel (120 pixels), and by a
screenful, with every frame; rows come from the server. The peer is an empty page. CPU is that of the server's process, of one core, with the list
followed; and that of the renderer for each frame, which counts on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
NOTCH, SCREEN = 120, 640
"""Pixels that are scrolled with every frame."""
FRAMES = """([seconds, pixels]) => new Promise((done) => {
  const list = document.querySelector(".ag-body-viewport"), began = performance.now();
  let frames = 0, blank = 0;
  const next = () => {
    frames++;
    if (list) {
      list.scrollTop += pixels;
      if (frames % 10 == 0) blank += 10 * [...list.querySelectorAll(".ag-row")].some((row) => !row.textContent.trim());
    }
    const took = (performance.now() - began) / 1000;
    took < seconds ? requestAnimationFrame(next) : done([frames / took, blank / frames, list ? list.scrollTop : 0]);
  };
  requestAnimationFrame(next);
})"""


@contextmanager
def served(capture: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server's process, and its address."""
    process = subprocess.Popen([sys.executable, "-m", "barnabas", "ui", str(capture), "--web"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


@contextmanager
def chromium() -> Iterator[Any]:
    """A page."""
    with sync_playwright() as started:
        running = started.chromium.launch(executable_path="/usr/bin/chromium", args=SWITCHES)
        yield running.new_page(viewport={"width": 1280, "height": 800})
        running.close()


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def renderers() -> float:
    """CPU that Chromium's renderers below this process have used."""
    total = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" in (folder / "cmdline").read_bytes():
                total += cpu_seconds(int(folder.name))
        except OSError:
            pass
    return total


def scrolling(folder: Path, exchanges: int, seconds: float) -> None:
    """Frames per second of the list, and of an empty page."""
    capture = folder / "million"
    if not capture.exists():
        subprocess.run([sys.executable, HERE / "recording.py", capture, "--exchanges", str(exchanges)], check=True)
    with served(capture) as (_, address), chromium() as page:
        page.goto(address)
        page.wait_for_selector(".ag-row")
        found, cpu = {}, {}
        for pixels in (NOTCH, SCREEN):
            before = renderers()
            found[pixels] = [page.evaluate(FRAMES, [seconds, pixels]) for _ in range(3)]
            cpu[pixels] = (renderers() - before) / sum(each[0] * seconds for each in found[pixels])
        page.goto("about:blank")
        peer = statistics.median(page.evaluate(FRAMES, [seconds, 0])[0] for _ in range(3))
    for pixels, runs in found.items():
        rate, blank = statistics.median(each[0] for each in runs), statistics.median(each[1] for each in runs)
        print(
            f"scrolling {exchanges:,} rows by {pixels} pixels a frame: {rate:.0f} frames/s, {rate / peer:.2f} of an empty page's {peer:.0f}; "
            f"{cpu[pixels] * 1000:.1f} ms of CPU a frame; rows not there yet in {blank:.0%} of them"
        )


def live(folder: Path, rate: int, seconds: float) -> None:
    """CPU of the server while a recording grows."""
    capture = folder / "live"
    writing = subprocess.Popen([sys.executable, HERE / "recording.py", capture, "--rate", str(rate), "--seconds", str(3 * seconds + 15)])
    time.sleep(3)
    with served(capture) as (process, address), chromium() as page:
        page.goto(address)
        page.wait_for_selector(".ag-row")
        time.sleep(3)
        used = []
        for _ in range(2):
            before, began = cpu_seconds(process.pid), time.monotonic()
            time.sleep(seconds)
            used.append((cpu_seconds(process.pid) - before) / (time.monotonic() - began))
        shown = page.inner_text("text=/exchanges$/")
    writing.terminate()
    writing.wait()
    print(f"live, {rate:,} exchanges/s, followed: {', '.join(f'{each:.0%}' for each in used)} of a core; {shown}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        scrolling(folder, given.exchanges, given.seconds)
        live(folder, given.rate, given.seconds)


if __name__ == "__main__":
    main()
