"""The page of ``barnabas report --html``: tables and charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....captures.reports import Report
from ..common.html_page import page, row, table, text
from .report_text import headed, shown

_MOST = 100
"""Rows of one table; the rest is in --csv and --json."""
_WIDTH, _HEIGHT, _LEFT = 900, 180, 70
_COLOURS = ("#2f6fde", "#c0392b", "#2e8b57", "#b8860b", "#7d3c98", "#16a085", "#d35400", "#5d6d7e")
_CHARTED = {
    "throughput": ("requests", "errors"),
    "errors-over-time": ("errors",),
}
_BARS: dict[str, tuple[tuple[str, ...], str, float, str]] = {
    "errors": (("api", "error"), "errors", 1, "errors"),
    "groups": (("group_id",), "generations", 1, "generations"),
    "producers": (("client_id", "topic"), "bytes_per_batch", 1e-3, "kB a batch"),
    "quotas": (("client_id", "api"), "sum_ms", 1e-3, "s throttled"),
    "findings": (("id",), "captures", 1, "captures"),
}
"""Bars: whose names, which column, by what it is multiplied, and what that is."""


def html(reports: Sequence[Report], name: str, notes: Sequence[str] = ()) -> str:
    """The page."""
    parts = [f"<h1>{text(name)}</h1>", *(f"<p class=dim>Left out: {text(note)}" for note in notes)]
    for report in reports:
        parts.append(f"<h2 id={report.name}>{text(report.title)}</h2><p class=dim>{text(report.about)}")
        parts.append(_chart(report) + _table(report) if report.rows else "<p>Nothing.")
    return page("barnabas report", parts)


def _table(report: Report) -> str:
    rows = (row(*(_cell(column, each[column]) for column in report.columns)) for each in report.rows[:_MOST])
    more = len(report.rows) - _MOST
    return table(map(headed, report.columns), rows) + (
        f"<p class=dim>{more} more rows: see --csv or --json" if more > 0 else ""
    )


def _cell(column: str, value: Any) -> tuple[str, str]:
    kind = "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    if column in ("verdict", "severity"):
        kind = str(value).split()[0]
        kind = kind if kind.isalpha() else ""
    return text(shown(column, value)), kind


def _chart(report: Report) -> str:
    """Lines along the time; bars for what a table says of a few names."""
    if report.over and report.name in _CHARTED:
        return _lines(_series(report, _CHARTED[report.name]))
    if report.name == "latency":
        rows = [each for each in report.rows if each["by_what"] == "api" and each["p99_ns"] is not None]
        return _bars([(each["name"], each["p99_ns"] / 1e6) for each in rows[:12]], "p99, ms")
    if report.name == "talkers":
        talkers = [
            (f"{each['client_id']} {each['host']}", (each["request_bytes"] + each["response_bytes"]) / 1e6)
            for each in report.rows
        ]
        return _bars(sorted(talkers, key=lambda pair: -pair[1])[:12], "MB")
    if report.name in _BARS:
        names, value, factor, unit = _BARS[report.name]
        pairs = [(" ".join(str(each[name]) for name in names), (each[value] or 0) * factor) for each in report.rows]
        return _bars(sorted(pairs, key=lambda pair: -pair[1])[:12], unit)
    return ""


def _series(report: Report, columns: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    by = next((column for column in ("error",) if column in report.columns), None)
    found: dict[str, list[tuple[float, float]]] = {}
    for each in report.rows:
        for column in columns:
            name = str(each[by]) if by else column
            found.setdefault(name, []).append((each[report.over], each[column]))
    return dict(sorted(found.items(), key=lambda item: -sum(y for _, y in item[1]))[: len(_COLOURS)])


def _lines(series: dict[str, list[tuple[float, float]]]) -> str:
    times = [x for points in series.values() for x, _ in points]
    first, last = min(times), max(times)
    top = max(y for points in series.values() for _, y in points) or 1
    parts = [f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT + 20 + 16 * len(series)}' role=img>"]
    parts.append(f"<text x=0 y=12>{top:,.0f}</text><text x=0 y={_HEIGHT}>0</text>")
    parts.append(f"<line x1={_LEFT} y1={_HEIGHT} x2={_WIDTH} y2={_HEIGHT} stroke='#999'/>")
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number]
        places = [
            (
                _LEFT + (x - first) / ((last - first) or 1) * (_WIDTH - _LEFT - 4),
                _HEIGHT - y / top * (_HEIGHT - 10),
            )
            for x, y in points
        ]
        said = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f"<polyline points='{said}' fill=none stroke='{colour}' stroke-width=1.5 />")
        parts += [f"<circle cx={x:.1f} cy={y:.1f} r=2 fill='{colour}'/>" for x, y in places]
        at = _HEIGHT + 32 + 16 * number
        parts.append(f"<rect x={_LEFT} y={at - 9} width=10 height=10 fill='{colour}'/>")
        parts.append(f"<text x={_LEFT + 16} y={at}>{text(name)}</text>")
    parts.append(f"<text x={_LEFT} y={_HEIGHT + 14}>{text(shown('start_ns', int(first)))}</text>")
    parts.append(
        f"<text x={_WIDTH} y={_HEIGHT + 14} text-anchor=end>{text(shown('start_ns', int(last)))}</text></svg>"
    )
    return "".join(parts)


def _bars(pairs: Sequence[tuple[str, float]], unit: str) -> str:
    if not pairs:
        return ""
    top = max(value for _, value in pairs) or 1
    parts = [f"<svg viewBox='0 0 {_WIDTH} {20 * len(pairs) + 4}' role=img>"]
    for number, (name, value) in enumerate(pairs):
        y = 20 * number
        parts.append(f"<text x=280 y={y + 14} text-anchor=end>{text(str(name)[:44])}</text>")
        parts.append(f"<rect x=290 y={y + 3} width={max(value / top * 500, 1):.1f} height=14 fill='{_COLOURS[0]}'/>")
        parts.append(f"<text x={296 + value / top * 500:.1f} y={y + 14}>{value:,.6g} {text(unit)}</text>")
    return "".join(parts) + "</svg>"
