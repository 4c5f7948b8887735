"""Computing reports: an engine's rows, sorted, and the verdicts on a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...decoder.findings import Severity
from . import client_bugs, compatibility
from .queries import EXACT_ROWS, RECORDED, REPORTS, ROUNDED, QueryEngine, ReportQuery, percentile_values
from .trends import TRENDS, Periods, periods

_STRETCHES = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400)
_CHART = 120
"""Most intervals of a chart, about."""


@dataclass(slots=True)
class Report:
    """A report: rows with the same columns. `over`: the column of time that a chart runs along; "" for none. With it, `interval_ns` is the
    length of an interval, and `recorded` says from when to when there were captures: intervals without rows inside of these had no traffic,
    others are unknown. `percentiles`: ``exact``, or how far off they may be; "" for a report without."""

    name: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)
    over: str = ""
    interval_ns: int = 0
    recorded: list[tuple[int, int]] = field(default_factory=list)
    percentiles: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        stated = {"percentiles": self.percentiles} if self.percentiles else {}
        return {"title": self.title, **stated, "columns": list(self.columns), "rows": self.rows}


def make(
    engine: QueryEngine, names: Sequence[str] = (), against: str = "", seconds: float = 0.0, exact_rows: int = EXACT_ROWS
) -> tuple[list[Report], list[str]]:
    """The reports (all, if none are named), and a line for each that had to be left out.

    `against`: a release, for the report `compatibility`. `seconds`: the stretches of time, 0 for what suits.
    `exact_rows`: of tables with more rows, percentiles are approximate. Raises KeyError for a release that is not known, ValueError for a
    report that is not.
    """
    queries = REPORTS | TRENDS
    known = [*queries, client_bugs.NAME, compatibility.NAME]
    for name in names:
        if name not in known:
            raise ValueError(f"there is no report {name!r}; there are: {', '.join(known)}")
    made, left_out = [], []
    bucket = int(seconds * 1e9) or stretch(engine) * 10**9
    recorded = [(row["first_ns"], row["last_ns"]) for row in engine.query(RECORDED)] if "segments" in engine.tables else []
    compared = periods(engine) if "exchanges" in engine.tables and (not names or "changes" in names) else Periods(0, 0, 0, "")
    exact = all(_count(engine, table) <= exact_rows for table in ("exchanges", "batches", "groups") if table in engine.tables)
    values = {"bucket": bucket, "period": compared.length} | compared._asdict() | percentile_values(engine, exact)
    for name, query in queries.items():
        if names and name not in names:
            continue
        missing = [table for table in query.needs if table not in engine.tables]
        if missing:
            left_out.append(f"{name}: it needs the table {missing[0]}, which does not exist")
            continue
        found = _report(engine, name, query, values)
        if query.over:
            found.interval_ns, found.recorded = bucket, recorded
        if "{percentile}" in query.sql:
            found.percentiles = "exact" if exact else f"within {ROUNDED}"
            found.about += "" if exact else f" Percentiles are within {ROUNDED}, as there are more than {exact_rows:,} rows."
        made.append(found)
    if not names or client_bugs.NAME in names:
        missing = [table for table in client_bugs.NEEDS if table not in engine.tables]
        if missing:
            left_out.append(f"{client_bugs.NAME}: it needs the table {missing[0]}, which does not exist")
        else:
            rows = client_bugs.rows(engine)
            made.append(Report(client_bugs.NAME, client_bugs.TITLE, client_bugs.about(), client_bugs.COLUMNS, rows))
    if (against or compatibility.NAME in names) and (not names or compatibility.NAME in names):
        if not against:
            raise ValueError(f"the report {compatibility.NAME} needs a release: --against 4.0")
        missing = [table for table in compatibility.NEEDS if table not in engine.tables]
        if missing:
            left_out.append(f"{compatibility.NAME}: it needs the table {missing[0]}, which does not exist")
        else:
            rows = compatibility.rows(engine, against)
            title = f"Compatibility with {against}"
            made.insert(min(1, len(made)), Report(compatibility.NAME, title, compatibility.ABOUT, compatibility.COLUMNS, rows))
    return made, left_out


def _report(engine: QueryEngine, name: str, query: ReportQuery, values: dict[str, Any]) -> Report:
    rows = engine.query(query.sql.format(**values))
    for key in reversed(query.order):
        column = key.removeprefix("-")
        rows.sort(key=lambda row: (row[column] is not None, _rank(column, row[column])), reverse=key.startswith("-"))
    columns = tuple(rows[0]) if rows else ()
    return Report(name, query.title, query.about.format(**values), columns, rows, query.over)


def _count(engine: QueryEngine, table: str) -> int:
    (row,) = engine.query(f"SELECT count(*) AS n FROM {table}")
    return int(row["n"])


def _rank(column: str, value: Any) -> Any:
    return Severity(value).rank if column == "severity" else value


def stretch(engine: QueryEngine) -> int:
    """Seconds per interval, so that the time range of the tables fits a chart."""
    if "exchanges" not in engine.tables:
        return 3600
    (row,) = engine.query("SELECT min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM exchanges")
    length = ((row["last_ns"] or 0) - (row["first_ns"] or 0)) / 1e9
    return next((each for each in _STRETCHES if length / each <= _CHART), _STRETCHES[-1])
