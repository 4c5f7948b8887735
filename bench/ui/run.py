"""The screen in a terminal: first paint, keys, filters, a live recording; seen from outside, as a user does.

    python bench/ui/run.py                                  every part; five minutes and 5 GB of disk
    python bench/ui/run.py start rows                       only these parts
    python bench/ui/run.py live --rates 10000,50000 --seconds 20 --json

    start      from the start of the program to the first paint, beside a bare Textual program
    rows       a million exchanges: memory, keys, filters (of the index, and decoding), sorting, views, nothing at all
    disk       ten million exchanges: opened, keys, a filter
    capture    a foreign capture of 1 GB: the first screen, keys while it is read
    message    350,000 fields: opened, gone through with the bytes beside
    live       a recording that grows, followed, at each of --rates

A key's latency is from its byte written to the terminal until the line about the new cursor row came back. CPU is of
one core, memory without mapped files. `--keep DIR` keeps the recordings, and uses those that are there. Where there is a
goal it stands beside the figure, with `!` where it was missed. Times are of use on a quiet machine only; CPU nearly always.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parent.parent / "captures"))

from foreign import made_up
from terminal import Terminal

UI = [sys.executable, "-m", "barnabas", "ui"]
HERE = Path(__file__).parent
BARE = """
from textual.app import App
from textual.widget import Widget

class Line(Widget):
    def render(self):
        return "Exchanges"

class Bare(App):
    def compose(self):
        yield Line()

Bare().run()
"""
"""The least that a Textual program does: nothing here can be quicker."""
ABOUT = rb"#[0-9]+ "


class Figure(NamedTuple):
    """What was measured; `goal`: what it should not exceed."""

    what: str
    value: float
    unit: str
    goal: float | None = None

    def line(self) -> str:
        goal = "" if self.goal is None else f"   goal {self.goal:g}{'  !' if self.value > self.goal else ''}"
        return f"  {self.what:<46}{self.value:>10g} {self.unit:<3}{goal}"


def keys(what: str, found: list[float], p95: float | None = None, p99: float | None = None) -> list[Figure]:
    """Percentiles of sorted latencies (s), in milliseconds."""
    at = lambda share: round(1000 * found[min(int(len(found) * share), len(found) - 1)], 1)  # noqa: E731
    return [
        Figure(f"{what}, {len(found)} keys: p50", at(0.5), "ms"),
        Figure(f"{what}: p95", at(0.95), "ms", p95),
        Figure(f"{what}: p99", at(0.99), "ms", p99),
    ]


def made(directory: Path, *arguments: str) -> Path:
    """A recording, made unless it is there."""
    if not directory.exists():
        subprocess.run([sys.executable, str(HERE / "recording.py"), str(directory), *arguments], check=True)
    return directory


def start(scratch: Path, given: argparse.Namespace) -> list[Figure]:
    """The quickest of five and the median."""
    recording = made(scratch / "small", "--exchanges", "1000")
    cases = {"bare Textual": ([sys.executable, "-c", BARE], rb"Exchanges", None),
             "first paint": ([*UI, str(recording)], rb"Exchanges", 0.5), "first rows": ([*UI, str(recording)], ABOUT, None)}  # fmt: skip
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(5):
        for name, (command, pattern, _goal) in cases.items():
            with Terminal(command) as program:
                found[name].append((program.until(pattern) - program.began, program.cpu()))
    figures: list[Figure] = []
    for name, taken in found.items():
        wall, cpu = zip(*taken, strict=True)
        figures += [
            Figure(f"{name}: quickest", round(min(wall), 3), "s"),
            Figure(f"{name}: median", round(statistics.median(wall), 3), "s", cases[name][2]),
            Figure(f"{name}: CPU", round(statistics.median(cpu), 3), "s"),
        ]
    return figures


def rows(scratch: Path, given: argparse.Namespace) -> list[Figure]:
    with Terminal([*UI, str(made(scratch / "small", "--exchanges", "1000"))]) as ui:
        ui.until(ABOUT)
        ui.rest(3.0)
        base = ui.memory()
    recording = made(scratch / "rows", "--exchanges", str(given.exchanges))
    with Terminal([*UI, str(recording)]) as ui:
        ui.until(ABOUT)
        ui.rest(3.0)
        figures = [Figure("memory over that of 1,000 rows", round((ui.memory() - base) / 1e6), "MB", 80)]
        figures += keys("keys", ui.latencies([b"j", b"j", b"k"], ABOUT, given.seconds))
        figures += filtering(ui, given.seconds)
        began = ui.press(b"hho")  # from the result to the latency, and sort
        figures.append(Figure("sorting by latency", round(1000 * (ui.until(rb"[v^]Laten") - began)), "ms"))
        ui.rest(1.0)
        figures += keys("keys, sorted", ui.latencies([b"j", b"k"], ABOUT, given.seconds / 4, 0.02))
        ui.press(b"oo")
        ui.rest(1.0)
        for view, name in ((b"2", "Connections"), (b"6", "Latency")):
            before = ui.cpu()
            ui.press(view)
            ui.rest(0.3)  # the view is loaded and made
            figures += keys(f"{name} while it counts", ui.latencies([b"j", b"k"], rb"[0-9]", given.seconds / 4, 0.05), 100)
            figures.append(Figure(f"{name}: CPU", round(ui.cpu() - before, 2), "s"))
        ui.press(b"5")
        ui.rest(2.0)
        figures += keys("Problems while it reads", ui.latencies([b"3", b"5"], rb"(findings|roups)", given.seconds / 2, 0.2))
        ui.press(b"1")
        ui.rest(2.0)
        figures.append(Figure("nothing happens: CPU", ui.share(4.0), "%", 2))
        figures.append(Figure("memory after all that, over 1,000 rows", round((ui.memory() - base) / 1e6), "MB"))
    return figures


def filtering(ui: Terminal, seconds: float) -> list[Figure]:
    """What the index answers while it is typed, and what has to be decoded, with keys pressed meanwhile."""
    figures: list[Figure] = []
    ui.press(b"/er")
    ui.rest(0.5)
    began = ui.press(b"r")
    figures.append(Figure("filter: first hits", round(1000 * (ui.until(rb" of [0-9,]+ exch") - began)), "ms", 50))
    ui.press(b"\r")
    ui.rest(0.5)
    figures += keys("keys, filtered", ui.latencies([b"j", b"k"], ABOUT, seconds / 4, 0.02), 100)
    ui.press(b"\x1b")
    ui.rest(1.0)
    ui.press(b"/req.generation_id == 5")
    ui.rest(1.0)
    before = ui.cpu()
    began = ui.press(b"\r")
    figures.append(Figure("filter that decodes: first hits", round(1000 * (ui.until(rb" of [0-9,]+ exch") - began)), "ms"))
    figures += keys("keys while it decodes", ui.latencies([b"j", b"k"], ABOUT, seconds / 2, 0.05), 100)
    figures.append(Figure("that filter, so far: CPU", round(ui.cpu() - before, 2), "s"))
    ui.press(b"\x1b")
    ui.rest(1.0)
    return figures


def disk(scratch: Path, given: argparse.Namespace) -> list[Figure]:
    recording = made(scratch / "disk", "--exchanges", str(10 * given.exchanges))
    with Terminal([*UI, str(recording)]) as ui:
        figures = [Figure("first rows", round(ui.until(ABOUT) - ui.began, 2), "s", 1)]
        figures.append(Figure("first rows: CPU", round(ui.cpu(), 2), "s"))
        ui.rest(3.0)
        figures += keys("keys, from end to end", ui.latencies([b"G", b"g"], ABOUT, given.seconds), 100)
        ui.press(b"/er")
        ui.rest(1.0)
        began = ui.press(b"r")
        figures.append(Figure("filter: first hits", round(1000 * (ui.until(rb" of [0-9,]+ exch") - began)), "ms", 50))
        figures.append(Figure("memory", round(ui.memory() / 1e6), "MB"))
    return figures


def capture(scratch: Path, given: argparse.Namespace) -> list[Figure]:
    path = scratch / "made.pcap"
    if not path.exists():
        made_up(path, given.megabytes, 700)
    os.utime(path, (0, 0))  # a file of just now may still grow: its last row would be followed, where `j` shows nothing new
    with Terminal([*UI, str(path)]) as ui:
        figures = [Figure("first screen", round(ui.until(ABOUT) - ui.began, 2), "s", 1)]
        figures.append(Figure("first screen: CPU", round(ui.cpu(), 2), "s"))
        ui.rest(0.3)
        figures += keys("keys while it is read", ui.latencies([b"j", b"j", b"k"], ABOUT, 4.0, 0.05), 100)
        ui.rest(4.0)
        figures.append(Figure("memory", round(ui.memory() / 1e6), "MB", 150))
    return figures


def message(scratch: Path, given: argparse.Namespace) -> list[Figure]:
    recording = made(scratch / f"message-{given.topics}", "--topics", str(given.topics))
    with Terminal([*UI, str(recording)]) as ui:
        ui.until(ABOUT)
        ui.rest(1.0)
        before, began = ui.cpu(), ui.press(b"\r")
        figures = [Figure("first paint", round(ui.until(rb"Request v12") - began, 3), "s", 1)]
        ui.rest(0.5)
        figures.append(Figure("opened: CPU", round(ui.cpu() - before, 2), "s"))
        ui.press(b"Gk\r")  # the array of topics
        ui.rest(1.0)
        ui.press(b"b")
        ui.rest(1.0)
        before = ui.cpu()
        figures += keys("keys, bytes beside", taken := ui.latencies([b"j", b"j", b"k"], rb"@[0-9]+", given.seconds), 80)
        figures.append(Figure("CPU of a key", round(1000 * (ui.cpu() - before) / len(taken), 1), "ms"))
        figures.append(Figure("memory", round(ui.memory() / 1e6), "MB"))
    return figures


def live(scratch: Path, given: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    for rate in map(int, given.rates.split(",")):
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            figures += followed(Path(name) / "live", rate, given.seconds)
    return figures


def followed(directory: Path, rate: int, seconds: float) -> list[Figure]:
    """A writer's recording, with follow on."""
    writer = subprocess.Popen(
        [sys.executable, str(HERE / "recording.py"), str(directory), "--rate", str(rate), "--seconds", str(seconds * 2 + 30)]
    )
    few = rate <= 10_000
    try:
        while not any(directory.glob("*.index")) and writer.poll() is None:
            time.sleep(0.05)
        with Terminal([*UI, str(directory)]) as ui:
            ui.until(rb"follow ON")
            ui.rest(2.0)
            written = ui.written
            figures = [Figure(f"{rate}/s: CPU", ui.share(seconds), "%", 25 if few else None)]
            figures.append(Figure(f"{rate}/s: written", round((ui.written - written) / seconds / 1000), "kB/s"))
            # Follow goes on and off, which the header shows at once.
            taken = ui.latencies([b"F", b"F"], rb"follow (ON|off)", seconds)
            figures += keys(f"{rate}/s", taken, 60 if few else None, 100 if few else 120)
            figures.append(Figure(f"{rate}/s: memory", round(ui.memory() / 1e6), "MB"))
        return figures
    finally:
        writer.terminate()
        writer.wait()


PARTS: dict[str, Callable[[Path, argparse.Namespace], list[Figure]]] = {
    "start": start, "rows": rows, "disk": disk, "capture": capture, "message": message, "live": live,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--exchanges", type=int, default=1_000_000, help="of `rows`; `disk` has ten times as many")
    parser.add_argument("--megabytes", type=int, default=1000, help="of the foreign capture")
    parser.add_argument("--topics", type=int, default=862, help="of one large message; 862 are 350,000 fields")
    parser.add_argument("--rates", default="10000,50000")
    parser.add_argument("--seconds", type=float, default=10.0, help="of pressing keys")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        place = given.keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        for name in given.parts or PARTS:
            found: list[Figure] = PARTS[name](place, given)
            if given.json:
                print(json.dumps({"part": name, "figures": [each._asdict() for each in found]}), flush=True)
            else:
                print(name, *(each.line() for each in found), "", sep="\n", flush=True)


if __name__ == "__main__":
    main()
