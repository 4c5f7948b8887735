"""Cells of reports as text, on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...times import duration, moment


def heading(column: str) -> str:
    """The head of a column, without the unit, which the cells have."""
    return column.removesuffix("_ns").replace("_", " ")


_UNITS = {"ns": "_ns", "share": "_rate"}
"""The ends of the columns whose values have these units."""


def columns_shown(columns: Iterable[str], rows: Sequence[dict[str, Any]]) -> list[str]:
    """The columns for people: without keys that have a name beside them, and without clusters where none is known."""
    hidden = {"api_key", "unit"} | ({"cluster_id"} if all(row.get("cluster_id") is None for row in rows) else set())
    return [column for column in columns if column not in hidden]


def cell(row: dict[str, Any], column: str) -> str:
    """A cell of a row, with the unit that the row or the column names."""
    value = row[column]
    if "unit" in row and column in ("previous", "latest") and value is not None:
        unit = _UNITS.get(row["unit"])
        return shown(column + unit, value) if unit else shown(column, int(value))
    return shown(column, value)


def shown(column: str, value: Any) -> str:
    """A cell: times and durations with units, numbers with separators, "-" for nothing."""
    if value is None:
        return "-"
    if column in ("first_ns", "last_ns", "start_ns"):
        return moment(value)
    if column.endswith("_ns"):
        return duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column.endswith("_rate"):
        return f"{value * 100:.2f} %"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
