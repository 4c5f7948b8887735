"""Reports over a fleet: DuckDB, Spark and plain Python over the recorded exchanges agree."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from barnabas.captures import reports
from barnabas.captures.reports.duck import Duck
from barnabas.captures.reports.queries import EXACT_ROWS, percentile, percentile_values
from barnabas.captures.reports.trends import periods
from barnabas.captures.spark import pipeline
from harness.browsing.html_page import Page
from harness.commands import run
from harness.recordings import MS, RecordingBuilder
from kafka.record import MemoryRecordsBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000_000_000_000
Sent = list[dict[str, Any]]


def batch(count: int, sequence: int, producer: tuple[int, int, bool] = (7, 0, False)) -> bytes:
    """`producer`: its id and epoch, and whether it is in a transaction."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
    builder.set_producer_state(*producer[:2], sequence, producer[2])
    for number in range(count):
        builder.append(timestamp=START // 10**6, key=b"k", value=b"v%d" % number)
    builder.close()
    return bytes(builder.buffer())


def body(chance: random.Random, api: str, number: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Version, request and response."""
    if api == "Produce":
        sequence = number // 40 * 40  # some batches are sent again
        paying = number % 5 == 0
        records = batch(1 + number % 3, sequence, (8, number // 200, True) if paying else (7, 0, False))
        partition = {"index": 0, "records": records}
        error = 7 if number % 20 == 0 else 0
        answer = {"index": 0, "error_code": error, "base_offset": number}
        return (
            9,
            {
                "transactional_id": "pay" if paying else None,
                "acks": (-1, 1)[number % 2],
                "timeout_ms": 1000,
                "topic_data": [{"name": "orders", "partition_data": [partition]}],
            },
            {
                "responses": [{"name": "orders", "partition_responses": [answer]}],
                "throttle_time_ms": 30 * (number % 10 == 0),
            },
        )
    if api == "Fetch":
        fetched = {"partition_index": number % 2, "high_watermark": number // 100, "records": batch(1, 0, (7 + number % 2, 0, False))}
        return 11, {"topics": [{"topic": "orders", "partitions": []}]}, {"responses": [{"topic": "orders", "partitions": [fetched]}]}
    if api == "JoinGroup":
        return (
            5,
            {"group_id": "billing", "protocols": []},
            {"generation_id": number // 50, "member_id": f"m-{number % 3}"},
        )
    if api == "Heartbeat":
        return 4, {"group_id": "billing"}, {"error_code": chance.choice([0, 0, 27, 25])}
    if api == "ApiVersions":
        offers = [{"api_key": key, "min_version": 0, "max_version": 9} for key in range(20)]
        names = {"client_software_name": "apache-kafka-java", "client_software_version": f"3.{number % 4}.0"}
        return 3, names, {"api_keys": offers}
    return 1, {"topics": [{"name": "orders"}]}, {"topics": [{"name": "orders"}]}


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sent]:
    """The tables of two recordings, and what was sent."""
    place, sent = tmp_path_factory.mktemp("fleet"), []
    for machine in range(2):
        chance = random.Random(machine)
        time_ns = START + machine * 3600 * 10**9
        recording = RecordingBuilder(
            place / "captures" / f"machine-{machine}",
            broker=(f"kafka-{machine}", 9092),
            start_ns=time_ns,
            segment_bytes=40_000,
        )
        for conn in range(4):
            recording.open(conn, client=(f"10.0.{machine}.{conn}", 50000 + conn), at=0)
        for number in range(400):
            conn = number % 4
            api = "ApiVersions" if number < 4 else chance.choice(["Produce", "Fetch", "JoinGroup", "Heartbeat", "Metadata"])
            version, request, answer = body(chance, api, number)
            client_id = None if conn == 3 else f"app-{conn}"
            latency = chance.randrange(10**5, 10**8)
            time_ns += chance.randrange(10**6, 10**9)
            at = (time_ns - recording.start_ns) / MS
            before = recording.recorder.counts["bytes"]
            recording.request(api, version, request, connection=conn, client_id=client_id, correlation_id=number, at=at)
            size = recording.recorder.counts["bytes"] - before
            recording.response(api, version, answer, number, connection=conn, at=at + latency / MS)
            sent.append(
                {
                    "machine": machine, "api": api, "version": version, "client_id": client_id, "time_ns": time_ns,
                    "latency": latency, "bytes": size, "request": request, "answer": answer,
                }
            )  # fmt: skip
        recording.close()
    pipeline.run(pipeline.NO_SPARK, place / "captures", place / "tables", cluster="east")
    return place / "tables", sent


def made(engine: reports.QueryEngine, names: Sequence[str] = (), exact_rows: int = EXACT_ROWS) -> dict[str, Sent]:
    found, left_out = reports.make(engine, names, against="4.0", exact_rows=exact_rows)
    assert not left_out
    return {report.name: report.rows for report in found}


def interpolated(values: list[int], share: float) -> Any:
    values = sorted(values)
    low, part = divmod((len(values) - 1) * share, 1)
    return pytest.approx(values[int(low)] + (values[min(int(low) + 1, len(values) - 1)] - values[int(low)]) * part)


def test_the_numbers_are_those_of_what_was_sent(fleet: tuple[Path, Sent]) -> None:
    output, sent = fleet
    with Duck(output) as engine:
        found = made(engine)
    (total,) = found["summary"]
    assert (total["requests"], total["captures"], total["client_ids"], total["brokers"]) == (800, 2, 3, 2)
    assert total["clusters"] == 1
    assert total["request_bytes"] == sum(each["bytes"] for each in sent)
    assert total["p99_ns"] == interpolated([each["latency"] for each in sent], 0.99)
    for row in found["latency"]:
        if row["by_what"] == "client_id":
            same = [each["latency"] for each in sent if each["client_id"] == row["name"]]
            assert (row["answers"], row["p50_ns"], row["max_ns"]) == (len(same), interpolated(same, 0.5), max(same))
        if row["by_what"] == "topic":
            same = [each["latency"] for each in sent if each["api"] in ("Produce", "Fetch")]
            assert (row["name"], row["answers"], row["p90_ns"]) == ("orders", len(same), interpolated(same, 0.9))
    produced = [each for each in sent if each["api"] == "Produce"]
    assert sum(row["throttled"] for row in found["quotas"]) == sum(
        e["answer"]["throttle_time_ms"] > 0 for e in produced
    )
    assert sum(row["sum_ms"] for row in found["quotas"]) == sum(e["answer"]["throttle_time_ms"] for e in produced)
    refused = sum(e["answer"]["responses"][0]["partition_responses"][0]["error_code"] == 7 for e in produced)
    errors = {(row["api"], row["error"]): row["errors"] for row in found["errors"]}
    assert errors["Produce", "REQUEST_TIMED_OUT"] == refused > 0
    assert sum(row["errors"] for row in found["errors-over-time"]) == sum(errors.values())
    assert sum(row["requests"] for row in found["throughput"]) == 800
    assert sum(row["batches"] for row in found["producers"]) == len(produced)
    assert sum(row["uncompressed"] for row in found["producers"]) == len(produced)
    assert not any(row[codec] for row in found["producers"] for codec in ("gzip", "snappy", "lz4", "zstd"))
    assert sum(row["acks_all"] for row in found["producers"]) == sum(e["request"]["acks"] == -1 for e in produced)
    paying = [each for each in produced if each["request"]["transactional_id"] == "pay"]
    assert 0 < len(paying) < len(produced)
    fetched = [each for each in sent if each["api"] == "Fetch" and each["answer"]["responses"][0]["partitions"][0]["partition_index"] == 1]
    expected = {
        "cluster_id": "east", "transactional_id": "pay", "client_ids": len({each["client_id"] for each in paying} - {None}),
        "producer_ids": 1, "epochs": 2, "topics": 1, "batches": len(paying), "fetched_records": len(fetched),
        "consumers": len({each["client_id"] for each in fetched} - {None}),
        "first_ns": min(each["time_ns"] for each in paying), "last_ns": max(each["time_ns"] for each in paying),
    }  # fmt: skip
    (transactions,) = found["transactions"]
    assert expected.items() <= transactions.items() and transactions["records"] >= len(paying)
    (group,) = found["groups"]
    assert group["coordinator"] == "kafka-1:9092"  # which was asked last
    joins = [e for e in sent if e["api"] == "JoinGroup"]
    assert (group["group_id"], group["joins"], group["members"]) == ("billing", len(joins), 3)
    assert group["generations"] == len({e["answer"]["generation_id"] for e in joins})
    assert group["p99_join_ns"] == interpolated([e["latency"] for e in joins], 0.99)
    beats = [e["answer"]["error_code"] for e in sent if e["api"] == "Heartbeat"]
    assert (group["rebalancing"], group["thrown_out"]) == (beats.count(27), beats.count(25))
    clients = {(row["client_id"], row["software_version"]) for row in found["clients"]}
    assert clients == {("app-0", "3.0.0"), ("app-1", "3.1.0"), ("app-2", "3.2.0"), (None, "3.3.0")}
    # Metadata v1 is there in 4.0, Heartbeat v4 too; JoinGroup v5 as well: all are served.
    assert {row["verdict"] for row in found["compatibility"]} <= {"works", "may break", "breaks"}
    assert {row["software"] for row in found["compatibility"]} == {f"apache-kafka-java 3.{n}.0" for n in range(4)}
    known = {(row["software"][-5:], row["bug"]): row for row in found["client-bugs"]}
    assert {bug for version, bug in known if version == "3.0.0"} == {
        "CVE-2026-35554", "CVE-2025-27818", "CVE-2024-31141", "CVE-2023-25194",
    }  # fmt: skip
    assert ("3.1.0", "CVE-2025-27817") in known and ("3.0.0", "CVE-2025-27817") not in known
    worst = known["3.2.0", "CVE-2026-35554"]
    assert (worst["verdict"], worst["fixed_in"], worst["severity"]) == ("present", "3.9.2", "high")
    (files,) = found["files"]
    assert (files["status"], files["exchanges"], files["lost_bytes"]) == ("ok", 800, 0) and files["files"] > 2


def failed(each: dict[str, Any]) -> bool:
    """Whether a response has an error code."""
    partitions = each["answer"].get("responses", [{}])[0].get("partition_responses", [{}])
    return bool(each["answer"].get("error_code", 0) or partitions[0].get("error_code", 0))


def test_trends_are_those_of_what_was_sent(fleet: tuple[Path, Sent]) -> None:
    output, sent = fleet
    with Duck(output) as engine:
        found, _ = reports.make(engine, list(reports.TRENDS), seconds=60)
    rows = {report.name: report.rows for report in found}

    def bucket(each: dict[str, Any]) -> int:
        return int(each["time_ns"] // (60 * 10**9) * 60 * 10**9)

    for row in rows["latency-over-time"]:
        same = [each["latency"] for each in sent if (bucket(each), each["api"]) == (row["start_ns"], row["api"])]
        assert (row["answers"], row["p99_ns"]) == (len(same), interpolated(same, 0.99))
    assert sum(row["answers"] for row in rows["latency-over-time"]) == 800
    for row in rows["error-rates-over-time"]:
        same = [failed(each) for each in sent if (bucket(each), each["api"]) == (row["start_ns"], row["api"])]
        assert (row["requests"], row["errors"], row["error_rate"]) == (len(same), sum(same), pytest.approx(sum(same) / len(same)))
    for row in rows["error-rates"]:
        if row["by_what"] == "client_id":
            own = [each for each in sent if each["client_id"] == row["name"]]
            times = [each["time_ns"] for each in own if failed(each)]
            assert (row["error_rate"], row["first_ns"], row["last_ns"]) == (pytest.approx(len(times) / len(own)), min(times), max(times))
    fetches = [each for each in sent if each["api"] == "Fetch"]
    for row in rows["lag"]:
        ages = [each["time_ns"] - START for each in fetches if (bucket(each), each["client_id"]) == (row["start_ns"], row["client_id"])]
        assert (row["batches"], row["topic"]) == (len(ages), "orders")
        assert row["max_age_ns"] == pytest.approx(max(ages), abs=1000) and row["p50_age_ns"] == pytest.approx(interpolated(ages, 0.5).expected, abs=1000)
    assert sum(row["batches"] for row in rows["lag"]) == len(fetches) > 0
    for row in rows["lag-in-records"]:
        same = [each for each in fetches if (bucket(each), each["client_id"]) == (row["start_ns"], row["client_id"])]
        marks = [each["answer"]["responses"][0]["partitions"][0]["high_watermark"] for each in same]
        behind = [max(mark - 1, 0) for mark in marks]  # the record that was fetched is the first one
        assert (row["fetches"], row["at_end"], row["max_behind"]) == (len(same), behind.count(0), max(behind))
        assert row["p50_behind"] == interpolated(behind, 0.5)
    assert sum(row["fetches"] for row in rows["lag-in-records"]) == len(fetches)
    assert 0 < sum(row["at_end"] for row in rows["lag-in-records"]) < len(fetches)
    joins = [each for each in sent if each["api"] == "JoinGroup"]
    for row in rows["rebalances"]:
        same = [each["answer"] for each in joins if bucket(each) == row["start_ns"]]
        assert (row["joins"], row["members"]) == (len(same), len({each["member_id"] for each in same}))
        assert row["generations"] == len({each["generation_id"] for each in same} - {0})
    assert sum(row["joins"] for row in rows["rebalances"]) == len(joins)
    records = sum(1 + index % 3 for index in produced_numbers(sent))
    skews = {row["partition"]: (row["records"], row["skew"], row["partitions"]) for row in rows["partitions"]}
    assert skews == {0: (records, pytest.approx(2), 2), 1: (0, pytest.approx(0), 2)}  # all was produced to one of two partitions


def produced_numbers(sent: Sent) -> list[int]:
    """Of the Produce requests, which of its machine's requests each is."""
    return [index % 400 for index, each in enumerate(sent) if each["api"] == "Produce"]


def test_changes_are_those_of_what_was_sent(fleet: tuple[Path, Sent]) -> None:
    output, sent = fleet
    end = max(each["time_ns"] for each in sent)
    with Duck(output) as engine:
        ((report,), _) = reports.make(engine, ["changes"])
    assert report.about.startswith("The last minute of the tables against the minute before.")
    sent = [each for each in sent if each["time_ns"] > end - 120 * 10**9]
    rows = {(row["what"], row["name"]): (row["previous"], row["latest"]) for row in report.rows}
    for api in ("Produce", "Heartbeat"):
        both = [[each for each in sent if each["api"] == api and (each["time_ns"] > end - 60 * 10**9) is late] for late in (False, True)]
        assert all(both)
        assert rows["requests of an API", api] == tuple(map(len, both))
        assert rows["error rate", api] == tuple(pytest.approx(sum(map(failed, part)) / len(part)) for part in both)
        assert rows["p99 latency", api] == tuple(interpolated([each["latency"] for each in part], 0.99) for part in both)
    timed_out = [sum(failed(each) for each in sent if each["api"] == "Produce" and (each["time_ns"] > end - 60 * 10**9) is late) for late in (False, True)]
    assert rows["error", "Produce REQUEST_TIMED_OUT"] == tuple(timed_out)


SECOND = 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
END = 1_790_000_000 * SECOND


class Exchanges:
    """An engine with exchanges at these times."""

    tables = ("exchanges",)
    counted_percentile = ""

    def __init__(self, times: list[int]) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("CREATE TABLE exchanges (time_ns BIGINT)")
        if times:
            self.connection.executemany("INSERT INTO exchanges VALUES (?)", [[each] for each in times])

    def query(self, sql: str) -> list[dict[str, Any]]:
        result = self.connection.execute(sql)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def every(step: int, length: int) -> list[int]:
    """Times up to END."""
    return list(range(END - length, END + 1, step))


@pytest.mark.parametrize(
    ("times", "length", "words"),
    [
        (every(HOUR, 20 * DAY), 7 * DAY, "7 days"),
        (every(HOUR, 11 * DAY), 7 * DAY, "7 days"),
        (every(HOUR, 9 * DAY), DAY, "24 hours"),  # of the week before, only two days
        (every(MINUTE, 2 * HOUR), HOUR, "hour"),
        (every(SECOND, 3 * MINUTE), MINUTE, "minute"),
        ([END - 30 * DAY, *every(SECOND, 3 * MINUTE)], MINUTE, "minute"),  # nothing was recorded in the week before
        (every(SECOND, 30 * SECOND), 0, "minute"),
        ([], 0, "minute"),
    ],
)
def test_the_longest_periods_that_can_be_compared(times: list[int], length: int, words: str) -> None:
    found = periods(Exchanges(times))
    end = END if times else 0
    assert found == (end - 2 * length, end - length, end, words)


SHARES = (0.0, 0.5, 0.9, 0.99, 1.0)


def latencies(count: int) -> list[int]:
    """Log-normal, as latencies are, of 1 ms in the middle; the smallest and largest a factor of some thousands apart."""
    chance = random.Random(count)
    return [int(chance.lognormvariate(13.8, 1.2)) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 1000, 30_000])  # 0, 1 and 2, too: records behind
def test_approximate_percentiles_are_as_near_as_they_say(fleet: tuple[Path, Sent], count: int) -> None:
    values = latencies(count) if count > 3 else list(range(count))
    with Duck(fleet[0]) as engine:
        for exact, off in ((True, 1e-6), (False, 0.01)):
            words = percentile_values(engine, exact)
            columns = ", ".join(f"{percentile('x', share)} AS p{n}" for n, share in enumerate(SHARES))
            sql = f"SELECT {columns.format(**words)} FROM (SELECT unnest({[*values, None]}) AS x)".replace("None", "NULL")
            ((found),) = engine.query(sql)
            assert list(found.values()) == [pytest.approx(interpolated(values, share).expected, rel=off) for share in SHARES]
        rounded = engine.query(f"SELECT count(DISTINCT {words['before']}x{words['after']}) AS n FROM (SELECT unnest({values}) AS x)")
        assert rounded[0]["n"] <= 600
        (nothing,) = engine.query(f"SELECT {percentile('x', 0.5).format(**words)} AS p FROM (SELECT CAST(NULL AS BIGINT) AS x)")
        assert nothing["p"] is None


@pytest.mark.parametrize("rows", [799, 800])
def test_the_reports_say_whether_percentiles_are_exact(fleet: tuple[Path, Sent], rows: int) -> None:
    output, sent = fleet
    with Duck(output) as engine:
        found = {report.name: report for report in reports.make(engine, exact_rows=rows)[0]}
    with_percentiles = {name for name, report in found.items() if any("p50" in column or "p99" in column for column in report.columns)}
    assert {name for name, report in found.items() if report.percentiles} == with_percentiles | {"changes"}
    assert found["throughput"].percentiles == "" and "percentiles" not in found["throughput"].to_dict()
    summary, p99 = found["summary"], interpolated([each["latency"] for each in sent], 0.99).expected
    assert summary.to_dict()["percentiles"] == ("within 1 %" if rows == 799 else "exact")
    assert ("within 1 %, as there are more than 799 rows" in summary.about) is (rows == 799)
    ((got),) = [row["p99_ns"] for row in summary.rows]
    assert got == pytest.approx(p99, rel=0.01) and (got == pytest.approx(p99)) is (rows == 800)


@pytest.mark.spark
@pytest.mark.parametrize("exact_rows", [pytest.param(EXACT_ROWS, id="exact"), pytest.param(0, id="approximate")])
@pytest.mark.parametrize("names", [["summary"], pytest.param([], marks=pytest.mark.slow)], ids=["one", "all"])
def test_spark_computes_the_same(spark: SparkSession, fleet: tuple[Path, Sent], names: list[str], exact_rows: int) -> None:
    from barnabas.captures.spark.engine import Spark

    output, _ = fleet
    with Duck(output) as engine:
        one = made(engine, names, exact_rows)
    other = made(Spark(spark, output), names, exact_rows)
    assert list(one) == list(other)
    for name, rows in one.items():
        assert len(rows) == len(other[name]) > 0, name

        def key(row: dict[str, Any]) -> list[str]:
            return [str(value) for value in row.values() if not isinstance(value, float)]

        for mine, its in zip(sorted(rows, key=key), sorted(other[name], key=key), strict=True):
            assert its == {k: pytest.approx(v) if isinstance(v, float) else v for k, v in mine.items()}, name


@pytest.mark.spark
def test_partitions_do_not_change_approximate_percentiles(spark: SparkSession, fleet: tuple[Path, Sent]) -> None:
    from barnabas.captures.spark.engine import Spark

    values, engine = latencies(5000), Spark(spark, fleet[0])
    words = percentile_values(engine, exact=False)
    columns = ", ".join(f"{percentile('x', share)} AS p{n}" for n, share in enumerate(SHARES)).format(**words)
    found = []
    for parts in (1, 7):
        spark.createDataFrame([(each,) for each in values], "x bigint").repartition(parts).createOrReplaceTempView("some_latencies")
        found += engine.query(f"SELECT {columns} FROM some_latencies")
    assert found[0] == {name: pytest.approx(value) for name, value in found[1].items()}
    assert list(found[0].values()) == [pytest.approx(interpolated(values, share).expected, rel=0.01) for share in SHARES]


@pytest.mark.slow
def test_the_command_over_captures_and_over_tables(fleet: tuple[Path, Sent], tmp_path: Path) -> None:
    output, _ = fleet
    page, cells = tmp_path / "page.html", tmp_path / "csv"
    done = run("report", output, "--json", "--html", page, "--csv", cells, "--against", "4.0")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["summary"]["rows"][0]["requests"] == 800
    assert {path.stem for path in cells.iterdir()} == set(document) == {*reports.REPORTS, *reports.TRENDS, "client-bugs", "compatibility"}
    for name, each in document.items():
        with open(cells / f"{name}.csv", newline="") as file:
            assert len(list(csv.DictReader(file))) == len(each["rows"]) > 0, name
        assert f'<h2 id="{name}">' in page.read_text("utf-8")
    with open(cells / "latency.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [row["name"] or "" for row in document["latency"]["rows"]]
    text = page.read_text("utf-8")
    assert text.count("<figure>") == 17 and "<script" not in text
    assert not {"src", "href"} & {name for name, value in Page(text).attributes if not (value or "").startswith("#")}
    direct = run("report", output.parent / "captures" / "machine-1", "--json", "--only", "summary,latency")
    assert direct.returncode == 0, direct.stderr
    assert json.loads(direct.stdout)["summary"]["rows"][0]["requests"] == 400
    wrong = run("report", output, "--only", "weather")
    assert wrong.returncode == 2 and "there is no report 'weather'; there are: summary" in wrong.stderr
    unknown = run("report", output, "--against", "9.9")
    assert unknown.returncode == 2 and "unknown release" in unknown.stderr


def test_the_page_shows_no_markup_of_anybody() -> None:
    from barnabas.ui.cli.fleet.report_page import html

    evil = "<script>alert(1)</script>\x1b[31m"
    row = {"client_id": evil, "host": evil, "request_bytes": 1, "response_bytes": 2}
    page = html([reports.Report("talkers", evil, evil, tuple(row), [row])], evil, [evil])
    assert "<script" not in page and "\x1b" not in page and page.count("&lt;script&gt;") >= 6
