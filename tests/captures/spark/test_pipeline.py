"""Recordings through Spark: the data source, the Parquet table and the report, judged by plain Python."""

from __future__ import annotations

import fcntl
import gzip
import random
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from barnabas.captures import tables
from barnabas.captures.spark import PipelineError, pipeline, pushdown
from barnabas.captures.spark.source import PushedReader, SegmentReader
from barnabas.captures.tables.output.folder import DEFAULT
from barnabas.decoder.filter import compile
from harness.recordings import RecordingBuilder
from harness.run.slices import thin
from harness.waiting import PATIENCE
from pyarrow import parquet
from pyspark.sql.datasource import EqualTo, In, LessThan
from scapy.utils import rdpcap, wrpcap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Make = Callable[..., Path]


@pytest.fixture
def record(tmp_path: Path) -> Make:
    """`record(name, seed)`: a recording of several segments, with errors, an orphan and requests never answered."""

    def make(name: str = "recordings", seed: int = 1) -> Path:
        chance, at = random.Random(seed), 0.0
        with RecordingBuilder(tmp_path / name, start_ns=1_700_000_000 * 10**9, segment_bytes=16_000) as recording:
            for connection in range(3):
                recording.open(connection, at=0)
            for number in range(300):
                connection = number % 3
                api, version = chance.choice([("Metadata", 12), ("Heartbeat", 4), ("ApiVersions", 3)])
                at += chance.uniform(0.001, 5)
                client_id = None if connection == 2 else f"stock-{connection}"
                asked = {"connection": connection, "client_id": client_id, "correlation_id": number}
                recording.request(api, version, {}, at=at, **asked)
                if number % 50 == 49:
                    continue
                body = {"error_code": 25} if api == "Heartbeat" and chance.random() < 0.3 else {}
                at += chance.uniform(0.001, 9)
                answered = number + (1000 if number == 100 else 0)
                recording.response(api, version, body, answered, connection=connection, at=at)
        return tmp_path / name

    return make


def plain(directory: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    segments = tables.find_segments(directory).segments
    return [row for s in segments for batch in tables.exchanges(s.path, columns) for row in batch.to_pylist()]


def ordered(rows: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((key, str(value)) for key, value in row.items()) for row in rows)


def written(output: Path, table: str = "exchanges") -> list[dict[str, Any]]:
    """A plain reader's rows, without the partition's column."""
    columns = [column.name for column in tables.described(table).chosen()]
    found: list[dict[str, Any]] = parquet.read_table(output / table, columns=columns).to_pylist()
    return found


def run(spark: SparkSession, source: Path, output: Path) -> Path:
    """In the session of these tests, which stays open."""
    pipeline.run(spark, source, output)
    return output


def test_source_gives_the_same_rows(spark: SparkSession, record: Make) -> None:
    directory = record()
    frame = spark.read.format("barnabas").load(str(directory))
    assert frame.rdd.getNumPartitions() == len(tables.find_segments(directory).segments) > 2
    assert ordered([row.asDict() for row in frame.collect()]) == ordered(plain(directory))


def test_source_reads_lists_and_patterns_of_paths(spark: SparkSession, record: Make) -> None:
    directory = record()
    other = record("other", 3)
    both = plain(directory) + plain(other)
    listed = spark.read.format("barnabas").load([str(directory), str(other)])
    assert ordered([row.asDict() for row in listed.collect()]) == ordered(both)
    first = spark.read.format("barnabas").load(f"{directory}/*-0000.pcapng")
    assert first.rdd.getNumPartitions() == 1 and 0 < first.count() < len(plain(directory))


@pytest.mark.slow
def test_bodies_as_variants(spark: SparkSession, record: Make) -> None:
    directory = record()
    reader = spark.read.format("barnabas").option("columns", "number,segment,request,response")
    plain_rows = reader.load(str(directory)).selectExpr("number", "segment", "get_json_object(response, '$.error_code')")
    variants = reader.option("json", "variant").load(str(directory))
    assert variants.schema["response"].dataType.simpleString() == "variant"
    found = variants.selectExpr("number", "segment", "variant_get(response, '$.error_code', 'string')").collect()
    assert sorted(map(str, map(tuple, found))) == sorted(map(str, map(tuple, plain_rows.collect())))
    assert {code for _, _, code in found} >= {None, "0", "25"}
    with pytest.raises(Exception, match="the option json is string or variant"):
        reader.option("json", "struct").load(str(directory)).collect()


@pytest.mark.slow
def test_sql(spark: SparkSession, record: Make) -> None:
    """Spark gives the reader of a view all options, and that of a table only those of the query."""
    directory = record()
    parts = [batch.num_rows for each in tables.find_segments(directory).segments for batch in tables.batches("frames", each.path)]
    options = f"path '{directory}', table 'frames'"
    spark.sql(f"CREATE TEMPORARY VIEW seen USING barnabas OPTIONS ({options})")
    spark.sql(f"CREATE TABLE kept USING barnabas OPTIONS ({options})")
    try:
        for name in ("seen", f"kept WITH (path = '{directory}', table = 'frames')"):
            (row,) = spark.sql(f"SELECT count(*) AS frames, count(DISTINCT capture_id) AS captures FROM {name}").collect()
            assert row.frames == sum(parts) > 100 and row.captures == 1
        with pytest.raises(Exception, match="in SQL use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM kept").collect()
    finally:
        spark.sql("DROP VIEW seen")
        spark.sql("DROP TABLE kept")


def test_source_reads_only_the_columns_asked_for(spark: SparkSession, record: Make) -> None:
    directory = record()
    frame = spark.read.format("barnabas").option("columns", "latency_ns, api").load(str(directory))
    assert frame.dtypes == [("latency_ns", "bigint"), ("api", "string")]
    assert ordered([row.asDict() for row in frame.collect()]) == ordered(plain(directory, ["latency_ns", "api"]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "packets"}, "there is no table 'packets'; the tables are: exchanges"),
        pytest.param({"columns": "api,size"}, "table exchanges has no column 'size'", marks=pytest.mark.slow),
        pytest.param({"path": "absent"}, "absent: no such file or folder", marks=pytest.mark.slow),
        pytest.param({}, "needs a path", marks=pytest.mark.slow),
        ({"colums": "api", "path": "here"}, "has no option 'colums'; it has path, paths, table, columns, filter"),
        pytest.param({"path": "absent/*/x"}, "no file or folder matches absent/*/x", marks=pytest.mark.slow),
    ],
)
def test_the_source_reports_errors(spark: SparkSession, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=r"ValueError|FileNotFoundError") as caught:
        spark.read.format("barnabas").options(**options).load().collect()
    assert text in str(caught.value)


def opened_by(read: Callable[[], object]) -> set[str]:
    """The segments that are opened meanwhile, by any means."""
    seen: list[str] = []
    _WATCHING.append(seen)
    try:
        read()
    finally:
        _WATCHING.remove(seen)
    return {Path(name).name for name in seen if name.endswith(".pcapng")}


_WATCHING: list[list[str]] = []
sys.addaudithook(
    lambda event, arguments: (
        [seen.append(str(arguments[0])) for seen in _WATCHING] and None if event == "open" else None
    )
)


def test_a_segment_whose_index_cannot_match_is_not_opened(record: Make) -> None:
    directory = record()
    rows = plain(directory)
    some = sorted(row["time_ns"] for row in rows)[-20]
    text = f"time >= {datetime.fromtimestamp(some // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{some % 10**9:09d}Z"
    reader = SegmentReader([str(directory)], "exchanges", ["time_ns", "segment"], text)
    partitions = reader.partitions()
    assert opened_by(reader.partitions) == set()  # the indexes show whose segments they are
    found: list[dict[str, Any]] = []
    opened = opened_by(lambda: found.extend(r for p in partitions for b in reader.read(p) for r in b.to_pylist()))
    assert opened == {row["segment"] for row in found}
    assert len(opened) < len(partitions) > 2
    assert sorted(row["time_ns"] for row in found) == sorted(row["time_ns"] for row in rows if row["time_ns"] >= some)


CONDITIONS: list[tuple[str, Callable[[dict[str, Any], int], bool]]] = [
    ("time_ns >= {last}", lambda row, last: row["time_ns"] >= last),
    (
        "api = 'Heartbeat' and error_code = 25",
        lambda row, last: row["api"] == "Heartbeat" and row["error_code"] == 25,
    ),
    ("client_id in ('stock-1', 'x')", lambda row, last: row["client_id"] == "stock-1"),
    ("client_id is null", lambda row, last: row["client_id"] is None),
    ("error = 'UNKNOWN_MEMBER_ID'", lambda row, last: row["error"] == "UNKNOWN_MEMBER_ID"),
    ("latency_ns < 1000000", lambda row, last: row["latency_ns"] is not None and row["latency_ns"] < 1000000),
]


@pytest.mark.parametrize(("condition", "test"), thin(CONDITIONS, 1))
def test_filters_that_spark_pushes_reach_the_index(
    spark: SparkSession, record: Make, condition: str, test: Callable[[dict[str, Any], int], bool]
) -> None:
    directory = record()
    rows = plain(directory)
    last = sorted(row["time_ns"] for row in rows)[-20]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("barnabas").load(str(directory)).where(condition.format(last=last))
        found = [row.asDict() for row in frame.collect()]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert ordered(found) == ordered([row for row in rows if test(row, last)])


@pytest.mark.parametrize(
    ("absent", "present"),
    [
        (LessThan(("time_ns",), 1_600_000_000_000_000_000), LessThan(("time_ns",), 1_800_000_000_000_000_000)),
        (EqualTo(("api",), "Produce"), EqualTo(("api",), "Heartbeat")),
        (EqualTo(("client_id",), "nobody"), EqualTo(("client_id",), "stock-1")),
        (EqualTo(("error",), "NOT_COORDINATOR"), EqualTo(("error",), "UNKNOWN_MEMBER_ID")),
        (In(("api_key",), (0, 1)), In(("api_key",), (0, 12))),
    ],
)
def test_pushed_filters_keep_segments_closed(record: Make, absent: Any, present: Any) -> None:
    directory = record()
    for pushed, some in ((absent, False), (present, True)):
        reader = PushedReader([str(directory)], "exchanges", ["time_ns"], "")
        assert reader.pushFilters([pushed]) == [pushed]  # Spark tests each row again
        partitions = reader.partitions()
        found: list[int] = []
        opened = opened_by(
            lambda r=reader, p=partitions, f=found: f.extend(b.num_rows for each in p for b in r.read(each))
        )  # type: ignore[misc]
        assert bool(opened) is some is bool(sum(found)), pushed


@pytest.mark.parametrize(
    ("table", "pushed", "text"),
    [
        ("exchanges", EqualTo(("api",), "Produce"), "api == 0"),
        ("exchanges", EqualTo(("error",), "NOT_COORDINATOR"), "err == 16"),
        ("errors", EqualTo(("error_code",), 16), "err != 0"),
        ("batches", EqualTo(("client_id",), 'a "b" \\'), 'client == "a \\"b\\" \\\\"'),
        ("frames", LessThan(("time_ns",), 5), ""),
        ("exchanges", LessThan(("time_ns",), 10**18 + 5), "time < 2001-09-09T01:46:40.000000005Z"),
        ("connections", EqualTo(("client_id",), "a"), ""),
        ("exchanges", In(("api",), ("Fetch", "Nonsense")), ""),
    ],
)
def test_pushed_filters_as_text_of_the_filter_language(table: str, pushed: Any, text: str) -> None:
    assert pushdown.text_of(table, pushed) == text
    assert not text or compile(text).index_part is not None


@pytest.mark.slow
def test_the_option_filter_selects_in_the_reader(spark: SparkSession, record: Make) -> None:
    directory = record()
    frame = spark.read.format("barnabas").option("filter", "api == Heartbeat and err != 0").load(str(directory))
    expected = [row for row in plain(directory) if row["api"] == "Heartbeat" and row["error_code"]]
    assert ordered([row.asDict() for row in frame.collect()]) == ordered(expected) and expected
    with pytest.raises(Exception, match="no API is called 'Hartbeat'"):
        spark.read.format("barnabas").option("filter", "api == Hartbeat").load(str(directory))


@pytest.mark.slow
def test_two_runs_give_the_same_rows(spark: SparkSession, record: Make, tmp_path: Path) -> None:
    directory = record()
    output = run(spark, directory, tmp_path / "out")
    first = {name: written(output, name) for name in DEFAULT}
    assert ordered(first["exchanges"]) == ordered(plain(directory))
    files = list(output.rglob("*.parquet"))
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {
        field.name: str(field.type)
        for field in parquet.read_schema(files[0].parents[2] / "exchanges" / "date=1970-01-01" / "nothing.parquet")
    } == tables.EXCHANGES
    assert (
        parquet.read_metadata(next((output / "exchanges").rglob("*-000000.parquet"))).row_group(0).column(0).compression
        == "ZSTD"
    )
    stamps = {path: path.stat().st_mtime_ns for path in files}
    run(spark, directory, output)
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.parquet")} == stamps  # nothing was written again
    run(spark, record("two", 2), output)
    assert ordered(written(output)) == ordered(plain(directory) + plain(tmp_path / "two"))
    # and without Spark it is the same
    pipeline.run("none", directory, tmp_path / "none")
    for name in DEFAULT:
        drop = {"path"}
        again = [{k: v for k, v in row.items() if k not in drop} for row in written(tmp_path / "none", name)]
        assert ordered(again) == ordered([{k: v for k, v in row.items() if k not in drop} for row in first[name]]), name


@pytest.mark.slow
def test_a_stream_gives_every_segment_once(spark: SparkSession, record: Make, tmp_path: Path) -> None:
    directory = record()
    out = tmp_path / "stream"
    seen: list[int] = []
    for _ in range(2):  # the second one goes on behind the first, and finds nothing
        query = (
            spark.readStream.format("barnabas")
            .option("maxFilesPerTrigger", "2")
            .load(str(directory))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        assert query.awaitTermination(int(PATIENCE))
        seen.append(len([each for each in query.recentProgress if each["numInputRows"]]))
    found = spark.read.parquet(str(out)).collect()
    assert ordered([row.asDict() for row in found]) == ordered(plain(directory))
    assert seen == [-(-len(tables.find_segments(directory).segments) // 2), 0]


def test_captures_of_any_kind_and_damage(spark: SparkSession, record: Make, tmp_path: Path) -> None:
    directory = record()
    first, second, *_ = (segment.path for segment in tables.find_segments(directory).segments)
    first.write_bytes(first.read_bytes()[:5000])
    second.write_bytes(second.read_bytes()[:300] + bytes(1000))
    (directory / "garbage.pcapng").write_bytes(b"\x01\x02" * 500)
    (directory / "empty.pcap").touch()
    foreign = record("other", 3)
    packets = rdpcap(str(next(foreign.glob("*0000.pcapng"))))
    (directory / "deeper").mkdir()
    wrpcap(str(directory / "deeper" / "tcpdump.pcap"), packets)
    with gzip.open(directory / "same.pcap.gz", "wb") as file:
        file.write((directory / "deeper" / "tcpdump.pcap").read_bytes() + b"torn")
    output = run(spark, directory, tmp_path / "out")
    files = written(output, "segments")
    assert all(row["good_bytes"] <= row["size_bytes"] for row in files)  # also where a file unpacks to more
    states = {row["segment"]: row["status"] for row in files}
    assert states[first.name] == "truncated" and states[second.name] == "corrupt"
    assert states["garbage.pcapng"] == states["empty.pcap"] == "unreadable"
    assert states["tcpdump.pcap"] == "ok" and states["same.pcap.gz"] == "truncated"
    pairs = {
        name: {
            (row["correlation_id"], row["api"])
            for row in written(output)
            if row["segment"] == name and row["state"] == "paired"
        }
        for name in ("tcpdump.pcap", "same.pcap.gz")
    }
    assert pairs["tcpdump.pcap"] == pairs["same.pcap.gz"] and len(pairs["tcpdump.pcap"]) > 20
    before = written(output)
    run(spark, directory, output)
    assert ordered(written(output)) == ordered(before)


def test_a_second_run_at_the_same_time_is_refused(record: Make, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    with open(output / ".barnabas.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PipelineError, match="another pipeline run is writing there"):
            pipeline.run("none", record(), output)


def test_a_second_session_is_refused(spark: SparkSession) -> None:
    from barnabas.captures.spark.session import session

    with pytest.raises(PipelineError, match="already open in this process"), session("local[1]"):
        pass
    assert spark.range(3).count() == 3  # and the first one is as it was
