"""How long after it happened an exchange is there: in the tables of `barnabas pipeline stream`, and in a batch of the data source's stream.

    python bench/spark/delays.py [--seconds 90] [--rotate 10] [--every 5] [--only pipeline]

A recorder takes ten exchanges a second and begins a new segment every `--rotate` seconds; both streams have a trigger of `--every` seconds.
For so many seconds after a stream has begun to give rows: the start of Spark is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.captures.spark.session import session
from barnabas.captures.spark.source import BarnabasSource
from pyarrow import parquet
from traffic import framed, numbered

_PAUSE_SECONDS = 0.1
_LOOK_SECONDS = 0.05


class Traffic:
    """A recording in progress; `began` has the time of each exchange, by its correlation id."""

    def __init__(self, directory: Path, rotate: float) -> None:
        self.began: list[int] = []
        self._recorder = Recorder(directory, segment_seconds=rotate)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Traffic:
        self._recorder.opened(0, time.time_ns(), ("10.0.0.1", 20000), ("10.0.0.9", 9092))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._recorder.close()

    def _run(self) -> None:
        asked = framed(decoder.encode_request(12, 4, {}, correlation_id=0, client_id="app"))
        answered = framed(decoder.encode_response(12, 4, {}, correlation_id=0))
        while not self._over.wait(_PAUSE_SECONDS):
            frames = numbered(asked, answered, len(self.began))
            self.began.append(time.time_ns())
            for direction, frame in enumerate(frames):
                self._recorder.data(0, direction, time.time_ns(), frame)
            self._recorder.tick()


class Delays:
    """The delays of exchanges, each when it was first seen."""

    def __init__(self, traffic: Traffic, seconds: float) -> None:
        self._traffic, self._seconds = traffic, seconds
        self._until = float("inf")
        self._first: int | None = None
        self._seen: dict[int, float] = {}

    def see(self, numbers: list[int]) -> None:
        now = time.time_ns()
        if self._first is None and numbers:  # those before it waited for the stream to begin
            self._first = len(self._traffic.began)
            self._until = time.monotonic() + self._seconds
        for number in numbers:
            self._seen.setdefault(number, (now - self._traffic.began[number]) / 1e9)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._until

    def print(self, name: str) -> None:
        found = [delay for number, delay in self._seen.items() if self._first is not None and number >= self._first]
        if not found:
            raise SystemExit(f"{name}: nothing was seen after its first rows: give more --seconds")
        print(f"{name:<40} median {statistics.median(found):5.1f} s, at most {max(found):5.1f} s, {len(found):,} exchanges", flush=True)


def watch(output: Path, delays: Delays) -> None:
    """Look at the table `exchanges`."""
    known: set[tuple[str, int]] = set()
    while not delays.over:
        for path in output.glob("exchanges/date=2*/*.parquet"):
            try:
                stamp = str(path), path.stat().st_mtime_ns
                if stamp not in known:
                    known.add(stamp)
                    delays.see(parquet.ParquetFile(path).read(["correlation_id"])["correlation_id"].to_pylist())
            except FileNotFoundError:  # it was replaced
                continue
        time.sleep(_LOOK_SECONDS)


def pipeline(place: Path, traffic: Traffic, seconds: float, every: float) -> None:
    command = [sys.executable, "-m", "barnabas", "pipeline", "stream", str(place / "captures"), "--output", str(place / "tables")]
    stream = subprocess.Popen([*command, "--every", f"{every:g}", "--tables", "exchanges"], stderr=subprocess.DEVNULL)
    delays = Delays(traffic, seconds)
    try:
        watch(place / "tables", delays)
    finally:
        stream.terminate()
        stream.wait()
    delays.print("pipeline stream")


def data_source(place: Path, traffic: Traffic, seconds: float, every: float) -> None:
    delays = Delays(traffic, seconds)
    with session("local[2]") as spark:
        spark.dataSource.register(BarnabasSource)
        frame = spark.readStream.format("barnabas").option("columns", "correlation_id").load(str(place / "captures"))
        writing = frame.writeStream.foreachBatch(lambda batch, _: delays.see([row[0] for row in batch.collect()]))
        query = writing.option("checkpointLocation", str(place / "checkpoint")).trigger(processingTime=f"{every:g} seconds").start()
        while not delays.over and not query.awaitTermination(1):
            continue
        query.stop()
    delays.print("stream of the data source")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--rotate", type=float, default=10)
    parser.add_argument("--every", type=float, default=5)
    ways = {"pipeline": pipeline, "source": data_source}
    parser.add_argument("--only", choices=ways)
    given = parser.parse_args()
    for measured in [ways[given.only]] if given.only else ways.values():
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as temporary:
            place = Path(temporary)
            with Traffic(place / "captures", given.rotate) as traffic:
                measured(place, traffic, given.seconds, given.every)


if __name__ == "__main__":
    main()
