"""Cells of reports as text, on a terminal and on a page."""

from __future__ import annotations

from typing import Any

from ...times import moment


def heading(column: str) -> str:
    """The head of a column, without the unit, which the cells have."""
    return column.removesuffix("_ns").replace("_", " ")


def shown(column: str, value: Any) -> str:
    """A cell: times and durations with units, numbers with separators, "-" for nothing."""
    if value is None:
        return "-"
    if column in ("first_ns", "last_ns", "start_ns"):
        return moment(value)
    if column.endswith("_ns"):
        if value < 1e6:
            return f"{value / 1e3:.0f} µs"
        return f"{value / 1e6:.1f} ms" if value < 1e9 else f"{value / 1e9:.2f} s"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
