"""The screen in a terminal: first paint, keys, filters, a live recording; seen from outside, as a user does.

    python bench/ui/run.py [--exchanges 1000000] [--topics 770] [--rates 10000,50000] [--seconds 8] [--keep DIR] [--json]

A key's latency is from its byte written to the terminal until the line about the new cursor row came back. CPU is of
one core, memory without mapped files. The recording of `--exchanges` is made first (or found in `--keep`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from terminal import Terminal

UI = [sys.executable, "-m", "barnabas", "ui"]
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


def figures(found: list[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    return {
        name: round(1000 * found[min(int(len(found) * share), len(found) - 1)], 1)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    } | {"keys": len(found)}


def start(recording: Path, times: int = 5) -> dict[str, Any]:
    """From the start of the program to the first paint, and to the first rows, beside a bare Textual program."""
    cases = {"bare Textual": ([sys.executable, "-c", BARE], rb"Exchanges"),
             "first paint": ([*UI, str(recording)], rb"Exchanges"), "first rows": ([*UI, str(recording)], ABOUT)}  # fmt: skip
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(times):
        for name, (command, pattern) in cases.items():
            program = Terminal(command)
            try:
                found[name].append((program.until(pattern) - program.began, program.cpu()))
            finally:
                program.close()
    return {f"{name}: s, CPU s": [round(statistics.median(each), 3) for each in zip(*taken, strict=True)]
            for name, taken in found.items()}  # fmt: skip


def still(recording: Path, seconds: float) -> dict[str, Any]:
    """A recording that does not grow."""
    ui = Terminal([*UI, str(recording)])
    try:
        result: dict[str, Any] = {}
        ui.until(ABOUT)
        ui.rest(2.0)
        result["memory MB"] = round(ui.memory() / 1e6)
        result["keys"] = figures(ui.latencies([b"j", b"j", b"k"], ABOUT, seconds))
        ui.press(b"/er")
        ui.rest(0.5)
        began = ui.press(b"r")  # what the index answers is shown while it is typed
        result["filter: first hits ms"] = round(1000 * (ui.until(rb" of [0-9,]+ exch") - began))
        ui.press(b"\r")
        ui.rest(0.5)
        result["filter: keys"] = figures(ui.latencies([b"j", b"k"], ABOUT, 1.0, 0.02))
        ui.press(b"\x1b")
        ui.rest(1.0)
        began = ui.press(b"hho")  # from the result to the latency, and sort
        result["sort ms"] = round(1000 * (ui.until(rb"[v^]Laten") - began))
        ui.rest(1.0)
        result["sorted: keys"] = figures(ui.latencies([b"j", b"k"], ABOUT, 1.0, 0.02))
        ui.press(b"oo")
        ui.rest(1.0)
        for view in (b"3", b"5"):
            ui.press(view)
            ui.rest(2.0)
        before, at = ui.cpu(), time.perf_counter()
        result["reading problems: keys"] = figures(ui.latencies([b"3", b"5"], rb"(findings|roups)", seconds / 2, 0.2))
        result["reading problems: CPU % here"] = round(100 * (ui.cpu() - before) / (time.perf_counter() - at), 1)
        ui.press(b"1")
        ui.rest(2.0)
        began = ui.press(b'/client ~ "stock" and req.generation_id == 6\r')
        ui.rest(0.3)
        ui.press(b"\x1b")
        ui.rest(0.5)
        ui.press(b"E")
        ui.rest(1.0)
        ui.press(b"E")
        before, at = ui.cpu(), time.perf_counter()
        ui.rest(4.0)
        result["idle CPU %"] = round(100 * (ui.cpu() - before) / (time.perf_counter() - at), 1)
        result["memory after MB"] = round(ui.memory() / 1e6)
        return result
    finally:
        ui.close()


def large(recording: Path, seconds: float) -> dict[str, Any]:
    """One message of some hundred thousand fields: opened, unfolded, gone through with its bytes beside it."""
    ui = Terminal([*UI, str(recording)])
    try:
        ui.until(ABOUT)
        ui.rest(1.0)
        before, began = ui.cpu(), ui.press(b"\r")
        result: dict[str, Any] = {"first paint s": round(ui.until(rb"Request v12") - began, 3)}
        ui.rest(0.5)
        result["opened: CPU s"] = round(ui.cpu() - before, 2)
        ui.press(b"Gk\r")  # the array of topics
        ui.rest(1.0)
        ui.press(b"h")
        ui.rest(1.0)
        before = ui.cpu()
        result["keys"] = figures(taken := ui.latencies([b"j", b"j", b"k"], rb"@[0-9]+", seconds))
        result["CPU ms per key"] = round(1000 * (ui.cpu() - before) / len(taken), 1)
        result["memory MB"] = round(ui.memory() / 1e6)
        return result
    finally:
        ui.close()


def live(directory: Path, rate: int, seconds: float) -> dict[str, Any]:
    """A recording that grows, followed."""
    writer = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("recording.py")), str(directory),
         "--rate", str(rate), "--seconds", str(seconds * 2 + 12)]
    )  # fmt: skip
    try:
        while not any(directory.glob("*.index")):
            time.sleep(0.1)
        ui = Terminal([*UI, str(directory)])
        try:
            ui.until(rb"follow ON")
            ui.rest(2.0)
            before, at, written = ui.cpu(), time.perf_counter(), ui.written
            ui.rest(seconds)
            past = time.perf_counter() - at
            result = {
                "rate": rate,
                "CPU %": round(100 * (ui.cpu() - before) / past, 1),
                "output kB/s": round((ui.written - written) / past / 1000),
            }
            # Follow goes on and off, which the header shows at once.
            result["keys"] = figures(ui.latencies([b"F", b"F"], rb"follow (ON|off)", seconds))
            result["memory MB"] = round(ui.memory() / 1e6)
            return result
        finally:
            ui.close()
    finally:
        writer.terminate()
        writer.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=1_000_000)
    parser.add_argument("--topics", type=int, default=770, help="of one large message")
    parser.add_argument("--rates", default="10000")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        if given.exchanges:
            recording = (given.keep or Path(scratch)) / f"{given.exchanges}"
            if not recording.exists():
                make = [sys.executable, str(Path(__file__).with_name("recording.py"))]
                subprocess.run([*make, str(recording), "--exchanges", str(given.exchanges)], check=True)
            found.append({"exchanges": given.exchanges, **start(recording), **still(recording, given.seconds)})
        if given.topics:
            directory = Path(scratch) / "large"
            make = [sys.executable, str(Path(__file__).with_name("recording.py"))]
            subprocess.run([*make, str(directory), "--topics", str(given.topics)], check=True)
            found.append({"topics": given.topics, **large(directory, given.seconds)})
        for rate in filter(None, given.rates.split(",")):
            found.append({"live": rate, **live(Path(scratch) / f"live-{rate}", int(rate), given.seconds)})
    for each in found:
        print(
            json.dumps(each) if given.json else "\n".join(f"{name:<24}{value}" for name, value in each.items()) + "\n"
        )


if __name__ == "__main__":
    main()
