"""Recordings through Spark: the data source, the Parquet table and the report, judged by plain Python."""

from __future__ import annotations

import fcntl
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, tables
from barnabas.captures.spark import PipelineError, pipeline
from barnabas.captures.spark.report import report
from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Make = Callable[..., Path]


@pytest.fixture
def record(tmp_path: Path) -> Make:
    """`record(name, seed)`: a recording of several segments, with errors, an orphan and requests never answered."""

    def make(name: str = "recordings", seed: int = 1) -> Path:
        chance = random.Random(seed)
        recorder = Recorder(tmp_path / name, segment_bytes=16_000)
        time_ns = 1_700_000_000_000_000_000
        for conn in range(3):
            recorder.opened(conn, time_ns, ("127.0.0.1", 50000 + conn), ("127.0.0.1", 9092))
        for number in range(300):
            key, version = chance.choice([(3, 12), (12, 4), (18, 3)])
            time_ns += chance.randrange(1, 5_000_000)
            client_id = None if number % 3 == 2 else f"stock-{number % 3}"
            frame = decoder.encode_request(key, version, {}, correlation_id=number, client_id=client_id)
            recorder.data(number % 3, 0, time_ns, len(frame).to_bytes(4, "big") + frame)
            if number % 50 == 49:
                continue
            body = {"error_code": 25} if key == 12 and chance.random() < 0.3 else {}
            frame = decoder.encode_response(key, version, body, correlation_id=number + (1000 if number == 100 else 0))
            time_ns += chance.randrange(1, 9_000_000)
            recorder.data(number % 3, 1, time_ns, len(frame).to_bytes(4, "big") + frame)
        recorder.close()
        return tmp_path / name

    return make


def plain(directory: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    segments = tables.find_segments(directory).segments
    return [row for s in segments for batch in tables.exchanges(s.path, columns) for row in batch.to_pylist()]


def ordered(rows: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((key, str(value)) for key, value in row.items()) for row in rows)


def written(table: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(table).to_pylist()
    return found


def run(spark: SparkSession, source: Path, output: Path) -> Path:
    output.mkdir(exist_ok=True)
    pipeline.write(spark, pipeline.segments(source).segments, source, output / "exchanges")
    return output / "exchanges"


def test_source_gives_the_same_rows(spark: SparkSession, record: Make) -> None:
    directory = record()
    frame = spark.read.format("barnabas").load(str(directory))
    assert frame.rdd.getNumPartitions() == len(tables.find_segments(directory).segments) > 2
    assert ordered([row.asDict() for row in frame.collect()]) == ordered(plain(directory))


def test_source_reads_only_the_columns_asked_for(spark: SparkSession, record: Make) -> None:
    directory = record()
    frame = spark.read.format("barnabas").option("columns", "latency_ns, api").load(str(directory))
    assert frame.dtypes == [("latency_ns", "bigint"), ("api", "string")]
    assert ordered([row.asDict() for row in frame.collect()]) == ordered(plain(directory, ["latency_ns", "api"]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "frames"}, "no table is called 'frames'; there is: exchanges"),
        ({"columns": "api,size"}, "table exchanges has no column 'size'"),
        ({"path": "absent"}, "absent: no such file or folder"),
        ({}, "needs a path"),
    ],
)
def test_source_says_what_is_wrong(spark: SparkSession, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=r"ValueError|FileNotFoundError") as caught:
        spark.read.format("barnabas").options(**options).load().collect()
    assert text in str(caught.value)


def test_two_runs_give_the_same_rows(spark: SparkSession, record: Make, tmp_path: Path) -> None:
    directory = record()
    table = run(spark, directory, tmp_path / "out")
    first = written(table)
    assert ordered(first) == ordered(plain(directory))
    assert len(list(table.iterdir())) == len(tables.find_segments(directory).segments)
    assert {path.stat().st_mode & 0o777 for path in table.iterdir()} == {0o600}
    run(spark, directory, tmp_path / "out")
    assert ordered(written(table)) == ordered(first)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["exchanges"]


def test_recordings_add_up_and_keep_types(spark: SparkSession, record: Make, tmp_path: Path) -> None:
    one, two = record("one", 1), record("two", 2)
    run(spark, one, tmp_path / "out")
    table = run(spark, two, tmp_path / "out")
    assert ordered(written(table)) == ordered(plain(one) + plain(two))
    assert {field.name: str(field.type) for field in parquet.read_table(table).schema} == tables.EXCHANGES
    metadata = parquet.read_metadata(next(table.iterdir()))
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_damaged_segments_do_not_stop_a_run(spark: SparkSession, record: Make, tmp_path: Path) -> None:
    directory = record()
    first, second, *_ = (segment.path for segment in tables.find_segments(directory).segments)
    first.write_bytes(first.read_bytes()[:5000])
    second.write_bytes(second.read_bytes()[:300] + bytes(1000))
    (directory / "garbage.pcapng").write_bytes(b"\x01\x02" * 500)
    table = run(spark, directory, tmp_path / "out")
    assert ordered(written(table)) == ordered(plain(directory))


def test_report_is_what_plain_python_computes(spark: SparkSession, record: Make, tmp_path: Path) -> None:
    directory = record()
    found = report(spark, run(spark, directory, tmp_path / "out"))
    rows = plain(directory)

    def percentile(values: list[int], share: float) -> float | None:
        values = sorted(values)
        at = (len(values) - 1) * share
        low = int(at)
        high = min(low + 1, len(values) - 1)
        return values[low] + (values[high] - values[low]) * (at - low) if values else None

    def counted(some: list[dict[str, Any]]) -> list[Any]:
        latencies = [row["latency_ns"] for row in some if row["latency_ns"] is not None]
        return [
            sum(row["state"] != "orphan" for row in some),
            sum(row["error_code"] != 0 for row in some),
            sum(row["state"] == "orphan" for row in some),
            pytest.approx(percentile(latencies, 0.5)) if latencies else None,
            pytest.approx(percentile(latencies, 0.99)) if latencies else None,
        ]

    def shown(line: Any) -> list[Any]:
        return [line.requests, line.errors, line.orphans, line.p50_latency_ns, line.p99_latency_ns]

    keys = {(row["api"], row["client_id"]) for row in rows}
    assert {(line.api, line.client_id) for line in found.lines} == keys and len(keys) == len(found.lines)
    for line in found.lines:
        same = [row for row in rows if (row["api"], row["client_id"]) == (line.api, line.client_id)]
        assert shown(line) == counted(same)
    assert shown(found.total) == counted(rows)
    assert found.total.errors > 5 and found.total.orphans == 1
    assert found.total.error_rate == found.total.errors / found.total.requests
    requests = [line.requests for line in found.lines]
    assert requests == sorted(requests, reverse=True)
    document = found.to_dict()
    assert sum(line["requests"] for line in document["by_api_and_client"]) == document["requests"]


def test_a_second_run_at_the_same_time_is_refused(record: Make, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    with open(output / ".barnabas.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PipelineError, match="another pipeline run is writing there"):
            pipeline.run(record(), output)


def test_a_second_session_is_refused(spark: SparkSession) -> None:
    from barnabas.captures.spark.session import session

    with pytest.raises(PipelineError, match="open in this process already"), session("local[1]"):
        pass
    assert spark.range(3).count() == 3  # and the first one is as it was
