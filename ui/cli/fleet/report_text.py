"""Reports for people on a terminal, and how their cells are written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...safe import visible
from ...times import moment

if TYPE_CHECKING:
    from ....captures.reports import Report

_MOST = 15
_PIPE_WIDTH = 200


def headed(column: str) -> str:
    """A column's head; a cell says its unit itself."""
    return column.removesuffix("_ns").replace("_", " ")


def shown(column: str, value: Any) -> str:
    """A cell: times and durations with units, numbers with separators, "-" for nothing."""
    if value is None:
        return "-"
    if column in ("first_ns", "last_ns", "start_ns"):
        return moment(value)
    if column.endswith("_ns"):
        return (
            f"{value / 1e3:.0f} µs"
            if value < 1e6
            else f"{value / 1e6:.1f} ms"
            if value < 1e9
            else f"{value / 1e9:.2f} s"
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show(reports: Sequence[Report]) -> None:
    """Print them, the first rows of each."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    for report in reports:
        console.print(Text(f"\n{report.title} ({report.name})", style="bold"))
        if not report.rows:
            console.print("nothing")
            continue
        table = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
        for column in report.columns:
            number = any(isinstance(row[column], (int, float)) for row in report.rows[:_MOST])
            table.add_column(headed(column), justify="right" if number else "left", overflow="fold")
        for row in report.rows[:_MOST]:
            # A client id is anybody's text: it may look like markup, or hold control characters.
            table.add_row(*(Text(visible(shown(column, row[column]))) for column in report.columns))
        console.print(table)
        if len(report.rows) > _MOST:
            console.print(
                Text(
                    f"{len(report.rows) - _MOST} more rows: see --html, --csv, --json, or --only {report.name}",
                    style="dim",
                )
            )
