"""How cost grows: connections, frame sizes, captures, partitions; processor time for each unit, so that load matters less.

    python bench/growth/run.py [--only connections,frames,partitions,captures] [--gigabytes 1] [--directory DIR] [--json]

Each column is one size; "x" is the cost of a unit against the column before: 1 is growth in proportion, more than that
is growth faster than the size. Costs "in all" are for the whole. The largest capture takes 2.1 times its size on the disk:
2.1 GB by default, 21 GB with `--gigabytes 10`. cc is needed but for captures (the load is that of bench/relay).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

for part in ("captures", "relay"):  # the `run` that relay_costs.py imports is that of bench/relay
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / part))

import capture_costs  # noqa: E402
import relay_costs  # noqa: E402
from capture_costs import Row  # noqa: E402

Measure = Callable[[Path, argparse.Namespace], Iterator[Row]]
PARTS: dict[str, Measure] = {
    "connections": relay_costs.connections,
    "frames": relay_costs.frames,
    "partitions": relay_costs.partitions,
    "captures": capture_costs.captures,
}


def show(part: str, rows: Iterator[Row]) -> list[Row]:
    """Print a part: a line for each cost, a column for each size."""
    found = []
    for row in rows:
        found.append(row)
        print(f"{part}: {row.size}", file=sys.stderr, flush=True)
    print(f"\n{part:<26} {'':<24}" + "".join(f"{row.size:>18}" for row in found))
    for name in found[-1].costs:
        cells, last = "", 0.0
        for row in found:
            cost = row.costs.get(name, (0.0, ""))[0]
            cells += f"{(f'{cost:.4g} x{cost / last:.2f}' if last else f'{cost:.4g}') if cost else '':>18}"
            last = cost
        print(f"{name:<26} {found[-1].costs[name][1]:<24}{cells}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="the largest capture (default: 1)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of load for one measurement (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (default: 3)")
    parser.add_argument("--directory", help="where captures are made; a temporary directory otherwise")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    found: dict[str, object] = {"machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_version()}"}
    if not options.json:
        print(f"{found['machine']}; processor time, medians of {options.rounds}; x: against the column before")
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=options.directory) as scratch:
        for part in chosen:
            rows = PARTS[part](Path(scratch), options)
            found[part] = [{"size": r.size, **r.costs} for r in (list(rows) if options.json else show(part, rows))]
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
