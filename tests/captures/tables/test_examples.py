"""What `examples` builds on the tables: the models for dbt, run by DuckDB here, and the dashboards' queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from harness.recordings import RecordingBuilder

pytest.importorskip("numpy")
duckdb = pytest.importorskip("duckdb")
jinja2 = pytest.importorskip("jinja2")
yaml = pytest.importorskip("yaml")
from barnabas.captures.spark import pipeline  # noqa: E402

HOUR = 3_600_000.0
START_NS = 1_700_000_000 // 3600 * 3600 * 10**9
"""A full hour."""


def join(recording: RecordingBuilder, at: float, member: str, generation: int, error: int = 0, connection: int = 1) -> None:
    answer = {"error_code": error, "generation_id": generation, "member_id": member}
    recording.exchange("JoinGroup", 5, {"group_id": "stock", "member_id": member}, answer, at=at, connection=connection)


def leave(recording: RecordingBuilder, at: float, member: str, connection: int = 1) -> None:
    asked = {"group_id": "stock", "members": [{"member_id": member}]}
    recording.exchange("LeaveGroup", 4, asked, {}, at=at, connection=connection)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables: a member that leaves and comes back, one that is expelled, one that stays; two hours of heartbeats."""
    place = tmp_path_factory.mktemp("examples")
    with RecordingBuilder(place / "captures", start_ns=START_NS, segment_bytes=3000) as recording:
        join(recording, 10, "", -1, error=79)  # MEMBER_ID_REQUIRED
        join(recording, 20, "anna", 1)
        join(recording, 30, "bert", 2, connection=2)
        join(recording, 40, "anna", 2)
        leave(recording, 1000, "anna")
        join(recording, 2000, "bert", 3, connection=2)
        join(recording, 3000, "bert", 0, error=25, connection=2)  # UNKNOWN_MEMBER_ID
        join(recording, 4000, "anna", 4)
        join(recording, 5000, "carl", 5, connection=3)
        for number in range(100):
            body = {"error_code": 27 if number % 4 == 3 else 0}  # REBALANCE_IN_PROGRESS
            at = (HOUR if number >= 60 else 6000) + number * 10
            recording.exchange("Heartbeat", 4, {"group_id": "stock"}, body, at=at, took=number % 60 + 1)
    pipeline.run("none", place / "captures", place / "tables")
    return place / "tables"


@pytest.fixture
def model(repository: Path, folder: Path) -> Iterator[Any]:
    """`model(name)`: its rows as dicts, in no order."""
    models = repository / "examples" / "dbt" / "models"
    (described,) = yaml.safe_load((models / "sources.yml").read_text())["sources"]
    names = {table["name"] for table in described["tables"]}
    location = described["config"]["meta"]["external_location"]

    def source(_: str, name: str) -> str:
        assert name in names
        return str(jinja2.Template(location).render(env_var=lambda variable: {"TABLES": str(folder)}[variable])).format(name=name)

    with duckdb.connect() as connection:

        def rows(name: str) -> list[dict[str, Any]]:
            found = connection.execute(jinja2.Template((models / f"{name}.sql").read_text()).render(source=source))
            columns = [each[0] for each in found.description]
            return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]

        yield rows


def test_sessions_of_group_members(model: Any) -> None:
    rows = sorted(model("group_sessions"), key=lambda row: (row["member"], row["started"]))
    assert len({row["session_id"] for row in rows}) == len(rows)
    shown = [
        (row["member"], row["outcome"], row["joins"], row["first_generation"], row["last_generation"], row["errors"],
         round(row["ended"].timestamp() - row["started"].timestamp(), 3), row["started"].replace(tzinfo=None).minute)
        for row in rows
    ]  # fmt: skip
    assert shown == [
        ("anna", "left", 2, 1, 2, 0, 0.98, 0),
        ("anna", "open", 1, 4, 4, 0, 0.0, 0),
        ("bert", "expelled", 2, 2, 3, 1, 2.97, 0),
        ("carl", "open", 1, 5, 5, 0, 0.0, 0),
    ]


def test_errors_and_latency_by_hour(model: Any) -> None:
    errors = sorted((row["hour"].hour, row["requests"], row["errors"], row["error_rate"], row["most_frequent"])
                    for row in model("error_rates") if row["api"] == "Heartbeat")  # fmt: skip
    first = START_NS // 10**9 // 3600 % 24
    assert errors == [(first, 60, 15, 0.25, "REBALANCE_IN_PROGRESS"), (first + 1, 40, 10, 0.25, "REBALANCE_IN_PROGRESS")]
    latency = {row["hour"].hour: row for row in model("latency_by_hour") if row["api"] == "Heartbeat"}
    assert [latency[hour]["answered"] for hour in sorted(latency)] == [60, 40]
    assert latency[first]["p50_ms"] == pytest.approx(30.5) and latency[first]["max_ms"] == pytest.approx(60)
    assert latency[first + 1]["p50_ms"] == pytest.approx(20.5)


def test_the_columns_that_dbt_tests_are_there(model: Any, repository: Path) -> None:
    described = yaml.safe_load((repository / "examples" / "dbt" / "models" / "models.yml").read_text())["models"]
    names = {path.stem for path in (repository / "examples" / "dbt" / "models").glob("*.sql")}
    assert {each["name"] for each in described} == names
    for each in described:
        rows = model(each["name"])
        for column in each["columns"]:
            assert rows and None not in [row[column["name"]] for row in rows]


def test_the_dashboard_of_the_tables(repository: Path, folder: Path) -> None:
    """What Grafana puts into its queries is put into them here: the folder, the interval, and the time that is shown."""
    first, last = "2023-11-14T22:00:00Z", "2023-11-14T23:59:59Z"
    dashboard = json.loads((repository / "examples" / "grafana" / "tables.json").read_text("utf-8"))
    found: dict[str, list[dict[str, Any]]] = {}
    with duckdb.connect() as connection:
        for panel in dashboard["panels"]:
            (target,) = panel["targets"]
            sql = target["rawSql"].replace("${tables:sqlstring}", f"'{folder}'").replace("$__interval_ms", "'60000'")
            sql = re.sub(r"\$__timeFilter\(((?:\w|\([^()]*\)|[^()])*)\)", rf"\1 >= '{first}' AND \1 <= '{last}'", sql)
            assert "$" not in sql
            rows = connection.execute(sql)
            names = [each[0] for each in rows.description]
            kinds = {str(each[1]) for each in rows.description}
            assert kinds <= {"TIMESTAMP", "VARCHAR", "BIGINT", "DOUBLE"}, panel["title"]  # which the data source knows
            assert target["format"] == 1 or names == ["time", "metric", "value"], panel["title"]
            found[panel["title"]] = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
    minute = datetime.fromtimestamp(START_NS // 10**9, UTC).replace(tzinfo=None)
    rates = {(row["time"], row["metric"]): row["value"] * 60 for row in found["Requests"]}
    assert rates == pytest.approx({
        (minute, "Heartbeat"): 60, (minute, "JoinGroup"): 8, (minute, "LeaveGroup"): 1, (minute + timedelta(hours=1), "Heartbeat"): 40
    })  # fmt: skip
    assert found["Joins of group members"] == [{"time": minute, "metric": "stock", "value": 8}]
    assert [(row["requests"], row["errors"]) for row in found["Clients"]] == [(109, 27)]
    # The made-up groups answer JoinGroup without members.
    assert [row["id"] for row in found["Findings"]] == ["impossible-answer", "no-api-versions"] and not found["Throttle time"]
