"""What captures cost by their size: made by others and opened, imported, opened again, filtered, and searched for findings."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foreign import IMPORT, OPEN, made_up
from foreign import run as run_program


@dataclass(frozen=True)
class Row:
    """One size: what it is called, and per name the cost of one unit with what it is in."""

    size: str
    costs: dict[str, tuple[float, str]]


MEGABYTES = (10, 100, 1000, 10_000)
PAYLOAD = 700
"""Bytes of records in a Produce request: about 2 KB of capture for an exchange of either kind."""
OWN = """
import json, sys, time
from barnabas.captures import open_capture
from barnabas.captures.reading.selection import Selection
from barnabas.decoder.filter import compile
def private():
    return sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private_")) / 1024
found = {}
def timed(name, work):
    begun, before = time.perf_counter(), time.process_time()
    done = work()
    found[name] = time.process_time() - before, time.perf_counter() - begun
    return done
def opened():
    capture = open_capture(sys.argv[1])
    capture.rows()[len(capture.rows()) - 1]
    return capture
base = private()
capture = timed("opened", opened)
found["rows"] = len(capture.rows())
timed("filtered", lambda: Selection(capture, compile("api == Produce and err != 0 and latency > 50ms")).count())
timed("first hit", lambda: next(iter(Selection(capture, compile("api == Heartbeat")).rows(newest_first=True))))
found["private"] = private() - base
print(json.dumps(found))
"""


def captures(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """A capture of another tool: indexed as it is, and imported; then the recording that this made."""
    for megabytes in [each for each in MEGABYTES if each <= options.gigabytes * 1000]:
        path, own = folder / f"{megabytes}.pcap", folder / f"own-{megabytes}"
        made_up(path, megabytes, PAYLOAD)
        size = path.stat().st_size / 1e6
        _, _, first, _, cpu, private = run_program(OPEN, str(path))
        _, _, import_cpu = run_program(IMPORT, str(path), str(own))
        path.unlink()
        path.with_name(path.name + ".idx").unlink(missing_ok=True)
        done = subprocess.run([sys.executable, "-c", OWN, str(own)], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        million = found["rows"] / 1e6
        yield Row(
            f"{megabytes:,} MB",
            {
                "indexed": (1e3 * cpu / size, "ms a MB"),
                "imported": (1e3 * import_cpu / size, "ms a MB"),
                "first rows": (1e3 * first, "ms in all"),
                "memory": (private, "MB in all"),
                "own opened": (1e3 * found["opened"][1], "ms in all"),
                "own filtered": (1e3 * found["filtered"][0] / million, "ms for a million"),
                "newest hit": (1e3 * found["first hit"][0], "ms in all"),
                "memory, own filtered": (found["private"], "MB in all"),
            },
        )
        subprocess.run(["rm", "-rf", str(own)], check=True)
