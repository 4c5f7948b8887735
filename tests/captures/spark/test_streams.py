"""Streams over recordings that go on, also killed at random moments: what is flushed into a segment comes before it is closed,
nothing is lost, nothing is there twice."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from barnabas.captures import tables
from barnabas.captures.spark.source import SegmentStream
from barnabas.captures.spark.stream_offsets import Offset, Position, Reach, latest
from barnabas.captures.tables.output.folder import Folder
from barnabas.captures.tables.rows import OF_BODIES, OF_INDEX
from barnabas.decoder.records import Record, encode_batch
from harness.recordings import RecordingBuilder, produce, produced
from harness.waiting import PATIENCE, until

from .killed import kill, read_files, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
KILLS = int(os.environ.get("BARNABAS_KILLS", "20"))
BATCH = encode_batch([Record(offset=n, timestamp=10**12 + n, key=b"k", value=bytes(40)) for n in range(3)])


def traffic(recording: RecordingBuilder, count: int) -> Iterator[int]:
    """Yields after each request: errors, orphans, requests that wait for long, batches, joins, throttled clients."""
    chance = random.Random(4)
    asked: dict[int, list[tuple[str, int, int]]] = {}
    for number in range(count):
        connection = number % 3
        api, version = chance.choice([("Metadata", 12), ("Heartbeat", 4), ("ApiVersions", 3), ("JoinGroup", 5), ("Produce", 9)])
        fields = produce("orders", BATCH, acks=chance.choice((0, 1))) if api == "Produce" else {}
        recording.request(api, version, fields, correlation_id=number, connection=connection)
        waiting = asked.setdefault(connection, [])
        if fields.get("acks") != 0:  # which has no response
            waiting.append((api, version, number))
        while waiting and chance.random() < 0.6:
            api, version, answered = waiting.pop(0)
            body = produced("orders", 6 * chance.randrange(2)) if api == "Produce" else {"throttle_time_ms": 5 * chance.randrange(2)}
            if api in ("Heartbeat", "JoinGroup"):
                body["error_code"] = chance.choice((0, 25))
            wrong = 1 << 30 if chance.random() < 0.02 else 0
            recording.response(api, version, body, answered + wrong, connection=connection)
        yield number


def record(directory: str) -> None:
    """A recorder that goes on until it is killed."""
    recording = RecordingBuilder(Path(directory), segment_bytes=60_000, flush_seconds=0.2)
    for _ in traffic(recording, 1 << 30):
        recording.recorder.tick()
        time.sleep(0.005)


def rows_of(found: Iterable[Any]) -> list[str]:
    return [json.dumps(row, default=str) for batch in found for row in batch.to_pylist()]


def closed(directory: Path, table: str) -> list[str]:
    """The rows of closed segments, each read whole."""
    return [row for each in tables.find_segments(directory).segments for row in rows_of(tables.batches(table, each.path))]


class Follower:
    """A stream that is started again for every batch: all that it knows is the offset, as the checkpoint keeps it."""

    def __init__(self, directory: Path, table: str) -> None:
        self._directory, self._table = directory, table
        self.offset: Offset = {}
        self.rows: list[str] = []

    def _stream(self) -> SegmentStream:
        return SegmentStream([str(self._directory)], self._table, tables.chosen(self._table), "", False, 64)

    def plan(self) -> tuple[Offset, list[Any]]:
        end = json.loads(json.dumps(self._stream().latestOffset(self.offset)))
        return end, list(self._stream().partitions(self.offset, end))

    def read(self, planned: tuple[Offset, list[Any]]) -> list[str]:
        self.offset, parts = planned
        found = [row for part in parts for row in rows_of(self._stream().read(part))]
        self.rows += found
        return found


@pytest.mark.parametrize("table", sorted([*OF_INDEX, *OF_BODIES]))
def test_rows_of_a_growing_segment_are_those_of_the_closed_one(tmp_path: Path, table: str) -> None:
    chance, directory = random.Random(5), tmp_path / "recording"
    follower = Follower(directory, table)
    recording = RecordingBuilder(directory, segment_bytes=30_000)
    before_the_end = 0
    planned = None
    for number in traffic(recording, 700):
        if number % 40 == 0:
            recording.recorder.flush()
            if planned is None:
                planned = follower.plan()
            if chance.random() < 0.3:  # else segments may be closed between the plan and its tasks
                before_the_end += len(follower.read(planned))
                planned = None
    assert before_the_end and any(isinstance(each, list) for each in follower.offset.values())
    if planned is not None:
        follower.read(planned)
    recording.close()
    follower.read(follower.plan())
    assert len(tables.find_segments(directory).segments) > 3
    assert sorted(follower.rows) == sorted(closed(directory, table))
    end, parts = follower.plan()
    assert (end, parts) == (follower.offset, [])


def test_what_is_not_flushed_waits_and_a_growing_segment_is_not_passed_over(tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    with RecordingBuilder(directory, segment_bytes=10_000_000) as recording:
        recording.exchange("Heartbeat", 4, {}, {})
        follower = Follower(directory, "exchanges")
        assert follower.read(follower.plan()) == []
        recording.recorder.flush()
        assert len(follower.read(follower.plan())) == 1
        pending = recording.request("Heartbeat", 4, {})
        recording.recorder.flush()
        assert follower.read(follower.plan()) == []  # it is given when it is answered, or the segment is closed
        segments = Follower(directory, "segments")
        assert segments.read(segments.plan()) == []  # a table of files, not of exchanges
    assert [json.loads(row)["correlation_id"] for row in follower.read(follower.plan())] == [pending]
    assert len(segments.read(segments.plan())) == 1


def test_offsets() -> None:
    there = [Reach(Position(1), "a"), Reach(Position(1, 7), "b"), Reach(Position(2), "a"), Reach(Position(2, 5), "a")]
    assert latest(there, {}, None) == {"a": [2, 5], "b": [1, 7]}
    assert latest(there, {"a": 1}, 1) == {"a": 1, "b": [1, 7]}  # a checkpoint of before growing segments were read
    assert latest(there, {"a": [2, 9], "b": 2}, None) == {"a": [2, 9], "b": 2}


QUERY = """
import sys
from barnabas.captures.spark.session import session
from barnabas.captures.spark.source import BarnabasSource
source, out, checkpoint, trigger = sys.argv[1:]
with session("local[1]", quick=True) as spark:
    spark.dataSource.register(BarnabasSource)
    writing = spark.readStream.format("barnabas").load(source).writeStream.format("parquet").option("checkpointLocation", checkpoint)
    when = {"availableNow": True} if trigger == "once" else {"processingTime": trigger}
    writing.trigger(**when).start(out).awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_query_and_a_recorder_that_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    directory, out, checkpoint = tmp_path / "recording", tmp_path / "out", tmp_path / "checkpoint"
    chance = random.Random(6)

    def query(trigger: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", QUERY, str(directory), str(out), str(checkpoint), trigger], start_new_session=True)

    def inside() -> set[str]:
        """Offsets of committed batches that are within a segment."""
        texts = [each.read_text() for each in checkpoint.glob("offsets/[0-9]*") if (checkpoint / "commits" / each.name).exists()]
        return {text for text in texts if "[" in text.splitlines()[-1]}

    program = f"import sys; sys.path[:0] = sys.argv[2:]; from {__name__} import record; record(sys.argv[1])"
    places = map(str, Path(__file__).parents[1:3])  # of this module, and of the harness
    recorder = subprocess.Popen([sys.executable, "-P", "-c", program, str(directory), *places])
    try:
        until(lambda: directory.is_dir() or recorder.poll() is not None, "nothing is recorded")
        assert recorder.poll() is None
        for _ in range(2):
            before = len(inside())
            process = query("1 second")
            until(lambda before=before: len(inside()) > before + 1, "no batch within a segment")  # type: ignore[misc]
            time.sleep(chance.random())
            kill(process)
    finally:
        recorder.kill()
        recorder.wait()
    assert query("once").wait(PATIENCE) == 0
    found = [json.dumps(row.asDict(), default=str) for row in spark.read.parquet(str(out)).select(*tables.chosen("exchanges")).collect()]
    expected = closed(directory, "exchanges")
    assert (sorted({*found} - {*expected}), sorted({*expected} - {*found}), len(found)) == ([], [], len(expected))
    assert any(each.path.name.endswith(".part") for each in tables.find_segments(directory).segments)


def start_stream(source: Path, output: Path, output_file: Path, *more: str) -> subprocess.Popen[str]:
    """`output_file`: takes what it prints."""
    command = [sys.executable, "-m", "barnabas", "pipeline", "stream", str(source), "--output", str(output)]
    command += ["--master", "local[2]", "--tables", "exchanges,errors,connections", *more]
    temporary = source.with_name("temporary")
    temporary.mkdir(exist_ok=True)
    there = os.environ | {"TMPDIR": str(temporary)}
    with output_file.open("w") as file:
        return subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=there
        )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_stream_that_is_killed(tmp_path: Path, spark: SparkSession) -> None:
    source, output, output_file = tmp_path / "recording", tmp_path / "out", tmp_path / "output.txt"
    over = threading.Event()
    count = 0

    def record() -> None:
        nonlocal count
        with RecordingBuilder(source, segment_bytes=20_000) as recording:
            while not over.wait(0.02):
                recording.exchange("Heartbeat", 4, {}, {}, correlation_id=count)
                count += 1

    recording = threading.Thread(target=record)
    recording.start()
    try:
        chance = random.Random(11)
        until(source.is_dir, "nothing is recorded")
        for _ in range(KILLS):
            process = start_stream(source, output, output_file, "--every", "0.5")
            until(lambda: "following" in output_file.read_text(), output_file.read_text)
            before = read_files(output)
            until(lambda before=before: read_files(output) != before, output_file.read_text)  # type: ignore[misc]
            time.sleep(chance.random() * 2)
            kill(process)
            found = rows(output)
            assert found
    finally:
        over.set()
        recording.join()
    assert start_stream(source, output, output_file, "--once").wait() == 0, output_file.read_text()
    assert re.search(r"batch \d+: \d+ files? with \d+ exchanges?, the last one \d+ s ago", output_file.read_text())
    assert rows(output) == list(range(count)) and count > 100 and Folder(output).verify().problems == []
    assert not list((tmp_path / "temporary").iterdir())
    found = spark.read.parquet(str(output / "exchanges")).select("correlation_id").collect()
    assert sorted(number for (number,) in found) == list(range(count))
