"""Whether cost is linear in what is recorded: a year of a fleet's days, one after the other, into one folder of tables.

    python bench/spark/fleet.py [--brokers 4] [--days 365] [--exchanges 1000] [--every 30] [--all]

Every broker and day is a recording of its own, made before the clock runs. After each day the pipeline is run (without Spark, header tables;
with `--all` every default table), and every so many days once more with nothing new: what a day costs must not grow with the days before it, and a run
for nothing only by looking at what is there. Then all reports of the tables are made, whose cost is that of reading them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from barnabas.captures import reports
from barnabas.captures.reports.duck import Duck
from barnabas.captures.spark import pipeline
from barnabas.captures.tables.output.folder import DEFAULT
from tables import HEADERS, cpu
from traffic import START_NS, record

DAY_NS = 86_400 * 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--exchanges", type=int, default=1000)
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    names = DEFAULT if given.all else HEADERS
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as place:
        source, output = Path(place, "captures"), Path(place, "tables")
        days: list[float] = []
        for day in range(1, given.days + 1):
            for broker in range(given.brokers):
                record(source / f"day-{day}" / f"broker-{broker}", given.exchanges, start_ns=START_NS + day * DAY_NS)
            before = cpu()
            done = pipeline.run(pipeline.NO_SPARK, source, output, names=names)
            days.append(cpu() - before)
            assert done.read == given.brokers
            if day % given.every == 0 or day == given.days:
                before = cpu()
                assert not pipeline.run(pipeline.NO_SPARK, source, output, names=names).read
                idle, some = cpu() - before, days[-given.every :]
                files = sum(1 for _ in output.rglob("*.parquet"))
                before = cpu()
                with Duck(output) as engine:
                    made, _ = reports.make(engine)
                reported = cpu() - before
                print(
                    f"day {day:>3}: {done.bytes / 1e6:.1f} MB a day, {sum(some) / len(some):.3f} CPU-s a day since the last line; nothing "
                    f"new: {idle:.3f} CPU-s for {given.brokers * day} files ({idle / given.brokers / day * 1e6:.0f} us each); "
                    f"{files} Parquet files, manifest {(output / '.manifest').stat().st_size / 1e3:.0f} kB; "
                    f"{len(made)} reports: {reported:.2f} CPU-s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
