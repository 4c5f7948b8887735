"""Opening and importing captures of others, against tshark's summary, on the same file in the same run.

    python bench/captures/run.py [--megabytes 1000] [--file FILE.pcap] [--keep]

The file is made up when none is given: 64 connections, Produce v3 and Heartbeat, two packets for each exchange. Times
are of this machine at this moment: only the ratios say something. Memory is the peak of private pages.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from foreign import IMPORT, OPEN, REOPEN, made_up, run


def tshark(path: Path) -> tuple[float, float] | None:
    """Wall and processor seconds of tshark's summary."""
    program = shutil.which("tshark")
    if program is None:
        return None
    begun, before = time.perf_counter(), os.times()
    subprocess.run([program, "-n", "-r", str(path), "-T", "psml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begun, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--payload", type=int, default=700)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        path = options.file or Path(folder) / "made-up.pcap"
        if options.file is None:
            made_up(path, options.megabytes, options.payload)
        megabytes = path.stat().st_size / 1e6
        with open(path, "rb") as file:
            while file.read(1 << 24):  # all find it in the page cache
                pass
        rows, first_rows, first, whole, cpu, private = run(OPEN, str(path))
        other = tshark(path)
        own = Path(folder) / "own"
        _, import_wall, import_cpu = run(IMPORT, str(path), str(own))
        _, reopened = run(REOPEN, str(own))
    found = {
        "megabytes": round(megabytes),
        "exchanges": int(rows),
        "open": {"first_rows": int(first_rows), "first_s": first, "whole_s": whole, "cpu_s": cpu, "private_mb": private},
        "import": {"wall_s": import_wall, "cpu_s": import_cpu, "mb_per_cpu_s": megabytes / import_cpu},
        "own_recording_reopened_s": reopened,
    }
    if other is not None:
        found["tshark_psml"] = {"wall_s": other[0], "cpu_s": other[1]}
        found["times_faster_than_tshark"] = {"wall": other[0] / whole, "cpu": other[1] / cpu}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
