"""One line per exchange where there is no terminal: for pipes, log files and screen readers."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from ...captures import Capture, Row
from ..safe import fit, has_colours, visible
from ..times import day, heading
from .model.columns import layout
from .widgets.palette import Role

if TYPE_CHECKING:
    from ...captures.reading.selection import Selection

_WIDTH = 130
_POLL_SECONDS = 0.25
_HANGS_NS = 1_000_000_000

_DATE = len("2026-11-21 ")
_COLOURS: dict[Role, str] = {"muted": "2", "title": "1", "ok": "32", "error": "1;31", "undecoded": "33", "waiting": "36"}
"""Of the terminal's own palette, as its background is not known."""


def line(row: Row, dated: bool = False, coloured: bool = False) -> str:
    """The exchange in one line: number, time (`dated`: with its date), client, broker, API, version, latency, sizes,
    result."""
    cells = []
    for column, width in layout(_WIDTH):
        text, role = column.cell(row.number + 1, row)
        if dated and column.field == "time":
            text, width = f"{day(row.time_ns)} {text}", width + _DATE
        text = text.strip() if column.width == 0 else fit(text, width, column.right)
        cells.append(f"\x1b[{_COLOURS[role]}m{text}\x1b[0m" if coloured and role in _COLOURS else text)
    return " ".join(cells).rstrip()


def _request(row: Row) -> tuple[int, int, int]:
    """What identifies a request in flight."""
    return row.connection, row.correlation_id, row.time_ns


def titles(dated: bool = False) -> str:
    """The column titles that stand above the lines."""
    cells = []
    for column, width in layout(_WIDTH):
        is_time = column.field == "time"
        title = heading(column.title) if is_time else column.title
        cells.append(fit(title, width + _DATE * (dated and is_time), column.right) if column.width else title)
    return " ".join(cells)


def plain_lines(
    capture: Capture,
    follow: bool = False,
    out: TextIO | None = None,
    seconds: float | None = None,
    selection: Selection | None = None,
) -> None:
    """Print a line for every exchange, in the order of the requests; `selection`: for these rows only.

    With `follow`, print what a live recording adds, in the order in which exchanges end, until it is complete,
    `seconds` are over, or Ctrl-C; requests that wait for a second, too. `out` is standard output by default.
    """
    out = sys.stdout if out is None else out
    coloured = has_colours(out)
    rows = capture.rows()
    until = None if seconds is None else time.monotonic() + seconds
    try:
        if not len(rows) and not (follow and capture.live):
            print(f"{visible(str(capture.path))}: no exchanges", file=out)
            return
        printed = len(rows)
        shown = sorted(range(printed) if selection is None else selection.rows(stop=printed), key=lambda i: rows[i].time_ns)
        waiting = {_request(rows[i]) for i in shown if i >= rows.done}
        # Dates depend on all rows, so that a row looks the same with and without a filter.
        days = {day(rows[i].time_ns) for i in (0, printed - 1, *shown[:1], *shown[-1:])} if printed else set()
        dated = len(days) > 1 or follow
        print(titles(dated) + (f" (all of {days.pop()})" if days and not dated else ""), file=out)
        for number in shown:
            print(line(rows[number], dated, coloured), file=out)
        printed = rows.done
        while follow:
            out.flush()
            more = capture.live
            capture.refresh()
            known = len(rows)
            found = [rows[i] for i in (range(printed, known) if selection is None else selection.rows(start=printed, stop=known))]
            hanging = {_request(row) for row in found if (row.waiting_ns or 0) >= _HANGS_NS}
            for row in found:
                if row.waiting_ns is None or _request(row) in hanging - waiting:
                    print(line(row, dated, coloured), file=out)
            waiting &= {_request(row) for row in found if row.waiting_ns is not None}
            waiting |= hanging
            printed = rows.done
            if not more or (until is not None and time.monotonic() > until):
                return
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        pass
