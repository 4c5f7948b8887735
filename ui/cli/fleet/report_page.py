"""The page of ``barnabas report``: verdicts and findings, then charts, then tables in which rows of one kind are folded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from ....decoder.findings import Severity, detectors
from ...pages import charts
from ...pages.charts import Intervals, Unit
from ...pages.page import render
from ...pages.parts import LONG, Card, Cell, Line, Table, names, worst_first
from ...times import period
from ..common.output import counted
from .cells import cell, columns_shown, heading, shown

if TYPE_CHECKING:
    from ....captures.reports import Report

_ON_PAGE = 100
"""Rows of one table; the rest is in --csv and --json."""
_OPEN = 12
"""Rows of a table that is not folded."""
_MOST_INTERVALS = 500
_LINES = 6
"""Lines or colors of one chart; the rest is left out, or added up as "other"."""
_BARS = 12
_NAMED = 5
_RATE_RISE, _LATENCY_RISE = 0.01, 10e6
"""What makes a higher error rate, or a latency in ns, worth a line of the overview."""
_WIDE = 9
"""Columns of a table of one row that is turned around."""
_TIMES = ("first_ns", "last_ns", "start_ns")
Row = dict[str, Any]


class Section(NamedTuple):
    """A report and its tables. `charted`: the charts show all of it, so that paper needs no table."""

    name: str
    title: str
    about: str
    tables: list[Table]
    charted: bool = False


def html(reports: Sequence[Report], name: str, notes: Sequence[str] = ()) -> str:
    """The page. `name`: of the folder; `notes`: what was left out. Raises MissingCharts."""
    found = {report.name: report for report in reports}
    drawn = [chart for each in _DRAWN if each in found for chart in _charts(found[each]) if chart]
    tables = [report for report in reports if report.name not in ("findings", "compatibility")]
    tables.sort(key=lambda report: report.name != "changes")  # what changed comes first
    first = {"findings": lambda rows: list(map(_finding, rows)), "compatibility": _compatibility}
    return render(
        "report.html",
        title=name,
        about=_period(found),
        notes=[f"Left out: {note}" for note in notes],
        tiles=_tiles(found),
        overview=_overview(found),
        cards=[(found[each], card(found[each].rows)) for each, card in first.items() if each in found],
        charts=drawn,
        sections=list(map(_section, tables)),
    )


# --- the overview ------------------------------------------------------------------------------------------


def _period(found: dict[str, Report]) -> str:
    row = _summary(found)
    return period(row["first_ns"], row["last_ns"]) if row and row["first_ns"] is not None else ""


def _summary(found: dict[str, Report]) -> Row:
    return found["summary"].rows[0] if "summary" in found and found["summary"].rows else {}


def _tiles(found: dict[str, Report]) -> list[tuple[str, str]]:
    """Numbers to begin with, and what they are."""
    row = _summary(found)
    if not row:
        return []
    errors = Unit.SHARE.of(row["errors"] / row["requests"]) if row["requests"] else "-"
    tiles = [
        (shown("p50_ns", row["p50_ns"]), "median latency"),
        (shown("p99_ns", row["p99_ns"]), "p99 latency"),
        (errors, "of responses with an error"),
        (Unit.BYTES.of((row["request_bytes"] or 0) + (row["response_bytes"] or 0)), "in requests and responses"),
    ]
    kinds = (("requests", "request"), ("client_ids", "client id"), ("brokers", "broker"), ("clusters", "cluster"), ("captures", "capture"))
    return [*((shown("", row[column]), words + "s" * (row[column] != 1)) for column, words in kinds if row[column]), *tiles]


def _overview(found: dict[str, Report]) -> list[Line]:
    lines = []
    if "compatibility" in found:
        verdicts = Counter(row["verdict"] for row in found["compatibility"].rows)
        kind = next((verdict for verdict in ("breaks", "may break", "works") if verdicts[verdict]), "info")
        words = f"{counted(verdicts['breaks'], 'client')} would break, {verdicts['may break']} may break, {verdicts['works']} would work"
        lines.append(Line(kind.split()[0], f"{found['compatibility'].title}: {words}.", "compatibility"))
    if "findings" in found:
        severities = Counter(row["severity"] for row in found["findings"].rows)
        ordered = [str(severity) for severity in reversed(Severity) if severities[str(severity)]]
        words = ", ".join(f"{severities[severity]} {severity}" for severity in ordered)
        text = f"{counted(sum(severities.values()), 'kind')} of problems: {words}." if ordered else "No problems found."
        lines.append(Line(ordered[0] if ordered else "works", text, "findings"))
    if "changes" in found:
        lines += _changed(found["changes"].rows)
    row = _summary(found)
    kinds = (
        ("undecoded", "Not decoded", "; their contents are in no table"),
        ("unanswered", "Without a response", ""),
        ("orphans", "Responses without a request", ""),
    )
    for column, words, more in kinds:
        if row and row[column]:
            lines.append(Line("low", f"{words}: {row[column]:,} of {row['requests'] + row['orphans']:,} exchanges{more}.", "summary"))
    for file in found["files"].rows if "files" in found else ():
        if file["status"] != "ok":
            damage = Unit.BYTES.of(file["damaged_bytes"] or 0)
            lines.append(Line("medium", f"{counted(file['files'], 'file')} {file['status']}: {damage} cannot be read.", "files"))
        if file["lost_bytes"]:
            lines.append(Line("low", f"{Unit.BYTES.of(file['lost_bytes'])} were not captured: numbers may be too low.", "files"))
    return worst_first(lines)


def _changed(rows: Sequence[Row]) -> list[Line]:
    """What is worse than in the period before, and what is new or gone."""
    risen = [row for row in rows if row["previous"] is not None and row["latest"] is not None and row["latest"] >= 2 * row["previous"]]
    kinds = (
        ("medium", "Higher error rate", [row for row in risen if row["what"] == "error rate" and row["latest"] - row["previous"] >= _RATE_RISE]),
        ("low", "Higher p99 latency", [row for row in risen if row["what"] == "p99 latency" and row["latest"] - row["previous"] >= _LATENCY_RISE]),
        ("low", "New errors", [row for row in rows if row["what"] == "error" and not row["previous"]]),
    )
    lines = []
    for kind, words, worse in kinds:
        texts = [f"{row['name']} ({cell(row, 'previous')} → {cell(row, 'latest')})" for row in worse]
        if texts:
            more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
            lines.append(Line(kind, f"{words}: {', '.join(texts[:_NAMED])}{more}.", "changes"))
    clients = [row for row in rows if row["what"] == "requests of a client"]
    for words, column in (("New clients", "previous"), ("Clients that are gone", "latest")):
        if ids := [row["name"] for row in clients if not row[column]]:
            lines.append(Line("info", f"{words}: {names(ids)}.", "changes"))
    return lines or ([Line("works", "Nothing is worse than in the period before.", "changes")] if rows else [])


def _finding(row: Row) -> Card:
    kind = next((each for each in detectors() if each.id == row["id"]), None)
    times, captures = row["times"] or 0, row["captures"]
    often = f"{shown('times', times)} {'time' if times == 1 else 'times'} in {counted(captures, 'capture')}"
    facts = [("such as", [row["such_as"]]), ("when", [period(row["first_ns"], row["last_ns"])] if row["first_ns"] is not None else [])]
    if row.get("cluster_id") is not None:
        facts.append(("cluster", [row["cluster_id"]]))
    if kind:
        facts += [("why", [kind.why]), ("do", [kind.remedy])]
    return Card(row["severity"], row["id"], kind.title if kind else "", often, facts, row["severity"] == Severity.HIGH)


def _compatibility(rows: Sequence[Row]) -> list[Card]:
    """A card for all clients with the same verdict for the same reasons."""
    alike: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        alike[tuple(row[column] for column in ("verdict", "reasons", "remedies"))].append(row)
    cards = []
    for (verdict, reasons, remedies), group in alike.items():
        requests = shown("", sum(row["requests"] for row in group))
        facts = [
            ("clients", [names((row["client_id"] for row in group), 30)]),
            ("software", [names((row["software"] or "unknown" for row in group), 30)]),
            ("why", (reasons or "").split("; ")),
            ("do", (remedies or "").split("; ")),
            ("certainty", sorted({row["certainty"] for row in group})),
            ("when", [period(min(row["first_ns"] for row in group), max(row["last_ns"] for row in group))]),
        ]
        title = names(row["client_id"] for row in group)
        cards.append(Card(verdict, counted(len(group), "client"), title, f"{requests} requests", facts, verdict != "works"))
    return cards


# --- tables ------------------------------------------------------------------------------------------------


def _section(report: Report) -> Section:
    if not report.rows:
        return Section(report.name, report.title, report.about, [])
    fold = _FOLDED.get(report.name)
    tables = fold(report.rows) if fold else [_table(report.columns, report.rows, folded=bool(report.over))]
    return Section(report.name, report.title, report.about, tables, bool(report.over) and report.name in _DRAWN)


def _table(columns: Iterable[str], rows: Sequence[Row], summary: str = "", folded: bool = False) -> Table:
    """A table of these columns. It is folded if `folded` or long, or has a summary."""
    columns = [column for column in columns_shown(columns, rows) if any(row[column] is not None for row in rows)]
    if len(rows) == 1 and len(columns) > _WIDE:
        return Table([], [[Cell(heading(column)), Cell.of(cell(rows[0], column))] for column in columns], summary)
    kinds = {column: _kind(column, [row[column] for row in rows]) for column in columns}
    heads = [Cell(heading(column), kinds[column]) for column in columns]
    body = [[_cell(row, column, kinds[column]) for column in columns] for row in rows[:_ON_PAGE]]
    if len(rows) > _ON_PAGE:
        summary = f"{summary or counted(len(rows), 'row')} (the first {_ON_PAGE} are here; --csv and --json have all)"
    return Table(heads, body, summary or (counted(len(rows), "row") if folded or len(rows) > _OPEN else ""))


def _is_number(column: str, value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and column not in _TIMES


def _kind(column: str, values: Sequence[Any]) -> str:
    """The class of a column."""
    if column in _TIMES:
        return "time"
    if any(_is_number(column, value) for value in values):
        return "number"
    return "text" if any(len(str(value)) > LONG for value in values) else ""


def _cell(row: Row, column: str, kind: str) -> Cell:
    value = row[column]
    if column in ("verdict", "severity") and value:
        return Cell(str(value), str(value).split()[0])
    return Cell(cell(row, column), kind)


def _merged(rows: Sequence[Row]) -> Row:
    """Rows of one kind as one: counts are added up, times are the first and the last."""
    merged = dict(rows[0])
    for column, value in merged.items():
        values = [row[column] for row in rows if row[column] is not None]
        if column == "first_ns":
            merged[column] = min(values, default=None)
        elif column == "last_ns":
            merged[column] = max(values, default=None)
        elif _is_number(column, value) and column not in ("api_key", "api_version"):
            merged[column] = sum(values)
    return merged


def _fold_clients(rows: Sequence[Row]) -> list[Table]:
    """A table for all clients of the same software that use the same versions."""
    clients: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        clients[row["client_id"], row["software_name"], row["software_version"], row.get("cluster_id")].append(row)
    alike: dict[tuple[Any, ...], list[tuple[str | None, list[Row]]]] = defaultdict(list)
    for (client_id, name, version, _), uses in clients.items():
        software = " ".join(filter(None, (name, version)))
        alike[software, tuple((use["api"], use["api_version"]) for use in uses)].append((client_id, uses))
    tables = []
    for (software, _), same in sorted(alike.items(), key=lambda item: -len(item[1]))[:_ON_PAGE]:
        by_use: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for _, uses in same:
            for use in uses:
                by_use[use["api"], use["api_version"]].append(use)
        merged = [_merged(uses) for uses in by_use.values()]
        of = counted(len(same), "client")
        words = [f"{of} of {software or 'unknown software'}", counted(len(merged), "API version")]
        words.append(f"{shown('', sum(row['requests'] for row in merged))} requests")
        if refused := sum(row["refused"] for row in merged):
            words.append(f"{shown('', refused)} refused")
        summary = f"{', '.join(words)}: {names(client_id for client_id, _ in same)}"
        tables.append(_table(("api", "api_version", "requests", "errors", "refused", "first_ns", "last_ns"), merged, summary))
    return tables


def _fold_by(column: str, words: Callable[[str], str]) -> Callable[[Sequence[Row]], list[Table]]:
    """A table for each value of this column."""

    def fold(rows: Sequence[Row]) -> list[Table]:
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            groups[row[column]].append(row)
        columns = [each for each in rows[0] if each != column]
        return [_table(columns, group, f"{words(name)}: {len(group):,}") for name, group in groups.items()]

    return fold


_FOLDED: dict[str, Callable[[Sequence[Row]], list[Table]]] = {
    "clients": _fold_clients,
    "changes": _fold_by("what", lambda name: name[0].upper() + name[1:]),
    "error-rates": _fold_by("by_what", lambda name: f"By {name.replace('_', ' ').replace('api', 'API')}"),
    "latency": _fold_by("by_what", lambda name: f"By {name.replace('_', ' ').replace('api', 'API')}"),
}


# --- charts ------------------------------------------------------------------------------------------------


def _charts(report: Report) -> Iterable[Markup]:
    draw = _DRAWN.get(report.name)
    if draw is None or not report.rows:
        return ()
    if report.over and _length(report) > _MOST_INTERVALS * report.interval_ns:
        words = "too many intervals for a chart: choose longer ones with --stretch"
        return (Markup("<figure><figcaption>{}<small>{}</small></figcaption></figure>").format(report.title, words),)
    return draw(report)


def _length(report: Report) -> int:
    """From the first to the last interval and record, in nanoseconds."""
    times = [row[report.over] for row in report.rows] + [each for period in report.recorded for each in period]
    return int(max(times) - min(times))


def intervals(report: Report) -> Intervals:
    """The time axis of a report over time."""
    length = report.interval_ns
    starts = [row[report.over] for row in report.rows]
    recorded = {start for first, last in report.recorded for start in range(first - first % length, last + 1, length)} or None
    first, last = min(starts + list(recorded or ())), max(starts + list(recorded or ()))
    return Intervals(first, last, length, frozenset(range(first, last + 1, length) if recorded is None else recorded | set(starts)))


def _series(report: Report, by: str, value: str, rest: str = "other") -> dict[str, dict[int, float]]:
    """By name, the largest first, the values of each interval; small ones together as `rest`."""
    total: Counter[str] = Counter()
    for row in report.rows:
        total[_label(row[by])] += row[value] or 0
    largest = [name for name, _ in total.most_common(_LINES)]
    found: dict[str, dict[int, float]] = {name: {} for name in largest}
    for row in report.rows:
        name = _label(row[by])
        points = found.setdefault(name if name in largest else rest, {})
        points[row[report.over]] = points.get(row[report.over], 0) + (row[value] or 0)
    return found


def _label(value: Any) -> str:
    return "(none)" if value is None else str(value)


def _names(report: Report, *columns: str) -> Callable[[Row], str]:
    """What rows are called in a chart: by these columns, and by their cluster if there are several."""
    several = len({row.get("cluster_id") for row in report.rows}) > 1
    return lambda row: " ".join(_label(row[column]) for column in (*columns, *(["cluster_id"] if several else [])))


def _throughput(report: Report) -> Iterable[Markup]:
    over = intervals(report)
    rows = {row[report.over]: row for row in report.rows}
    seconds = {start: _seconds(report, start) for start in over.starts()}
    rates = {start: row["requests"] / seconds[start] for start, row in rows.items()}
    most = max(rates.values())
    length, unit = (1, "second") if most >= 1 else (60, "minute") if most * 60 >= 1 else (3600, "hour")
    requests = {start: rate * length for start, rate in rates.items()}
    yield charts.columns("Requests", f"per {unit}, {_each(over)}", Unit.COUNT, over, {"requests": requests})
    errors: dict[int, float | None] = {start: row["errors"] / row["requests"] for start, row in rows.items() if row["requests"]}
    yield charts.lines("Responses with an error", f"share of requests, {_each(over)}", Unit.SHARE, over, {"errors": errors})
    sizes: dict[str, dict[int, float | None]] = {
        words: {start: (row.get(column) or 0) / seconds[start] for start, row in _filled(over, rows)}
        for words, column in (("to brokers", "request_bytes"), ("to clients", "response_bytes"))
    }
    yield charts.lines("Bytes", f"per second, {_each(over)}", Unit.BYTES_PER_SECOND, over, sizes)


def _seconds(report: Report, start: int) -> float:
    """How much of an interval was recorded; at least a twentieth, as nobody knows how long a recording went on without traffic."""
    length, covered, until = report.interval_ns, 0, start
    for first, last in sorted(report.recorded):
        end = min(last, start + length)
        covered += max(end - max(first, until), 0)
        until = max(until, end)
    return max(covered if report.recorded else length, length / 20) / 1e9


def _filled(over: Intervals, rows: dict[int, Row]) -> Iterable[tuple[int, Row]]:
    """The intervals that were recorded, with what happened in them."""
    return ((start, rows.get(start, {})) for start in over.starts() if start in over.recorded)


def _each(over: Intervals) -> str:
    """``intervals of 10 min``."""
    seconds = over.length / 1e9
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length and seconds % length == 0:
            return f"intervals of {seconds / length:.0f} {unit}"
    return f"intervals of {seconds:g} s"


def _errors_over_time(report: Report) -> Iterable[Markup]:
    over = intervals(report)
    yield charts.columns("Errors", f"number by code, {_each(over)}", Unit.COUNT, over, _series(report, "error", "errors"))


def _by_name(
    report: Report, by: Sequence[str], value: str, weight: str, least: float = 0
) -> tuple[Intervals, dict[str, dict[int, float | None]]]:
    """The values of the names with the largest sums of `weight`, at least `least` each. Intervals without a row are gaps."""
    total: Counter[str] = Counter()
    found: dict[str, dict[int, float | None]] = {}
    named = _names(report, *by)
    for row in report.rows:
        name = named(row)
        total[name] += row[weight] or 0
        found.setdefault(name, {})[row[report.over]] = None if row[value] is None else max(row[value], least)
    largest = [name for name, sum_ in total.most_common(_LINES) if sum_]
    return intervals(report), {name: found[name] for name in largest}


def _latency_over_time(report: Report) -> Iterable[Markup]:
    over, found = _by_name(report, ["api"], "p99_ns", "answers")
    yield charts.lines("Latency over time", f"p99 by API, {_each(over)}", Unit.DURATION, over, found, log=True)


def _error_rates_over_time(report: Report) -> Iterable[Markup]:
    over, found = _by_name(report, ["api"], "error_rate", "errors")
    yield charts.lines("Error rate by API", f"share of requests, {_each(over)}", Unit.SHARE, over, found)


def _lag(report: Report) -> Iterable[Markup]:
    over, found = _by_name(report, ["client_id", "topic"], "p99_age_ns", "p99_age_ns", least=1e6)
    yield charts.lines("Consumer lag", f"p99 of the age of fetched records, at least 1 ms, {_each(over)}", Unit.DURATION, over, found, log=True)


def _lag_in_records(report: Report) -> Iterable[Markup]:
    over, found = _by_name(report, ["client_id", "topic"], "max_behind", "max_behind")
    yield charts.lines("Consumer lag in records", f"the most in one partition behind what was fetched, {_each(over)}", Unit.COUNT, over, found)


def _rebalances(report: Report) -> Iterable[Markup]:
    over = intervals(report)
    yield charts.columns("Joins of consumer groups", f"number by group, {_each(over)}", Unit.COUNT, over, _series(report, "group_id", "joins"))


def _partitions(report: Report) -> Iterable[Markup]:
    named = _names(report, "topic", "partition")
    skewed = [(named(row), row["skew"] or 0) for row in report.rows if row["partitions"] > 1]
    yield charts.bars("Skew of partitions", "produced bytes divided by the mean of the topic", Unit.FACTOR, charts.names_first(skewed, _BARS))


def _latency(report: Report) -> Iterable[Markup]:
    rows = [row for row in report.rows if row["by_what"] == "api" and row["p50_ns"]]
    named = _names(report, "name")
    of = [(named(row), row["p50_ns"], row["p99_ns"], row["max_ns"]) for row in rows]
    yield charts.ranges("Latency by API", "from p50 (blue) to p99 (red) and maximum; fetches wait for records", Unit.DURATION, of[:_BARS])


def _talkers(report: Report) -> Iterable[Markup]:
    named = _names(report, "client_id", "host")
    size = [(named(row), (row["request_bytes"] or 0) + (row["response_bytes"] or 0)) for row in report.rows]
    yield charts.bars("Top talkers", "bytes of requests and responses", Unit.BYTES, charts.names_first(size, _BARS))


def _largest(title: str, about: str, unit: Unit, columns: Sequence[str], column: str, factor: float = 1) -> Callable[[Report], Iterable[Markup]]:
    """Bars of the rows with the largest values of a column."""

    def draw(report: Report) -> Iterable[Markup]:
        named = _names(report, *columns)
        values = [(named(row), (row[column] or 0) * factor) for row in report.rows]
        return (charts.bars(title, about, unit, charts.names_first(values, _BARS)),)

    return draw


def _findings(report: Report) -> Iterable[Markup]:
    dated = [row for row in report.rows if row["first_ns"] is not None and row["last_ns"] is not None]
    named = _names(report, "id")
    of = [(named(row), row["first_ns"], row["last_ns"], row["severity"]) for row in dated]
    if of:
        over = min(row["first_ns"] for row in dated), max(row["last_ns"] for row in dated)
        yield charts.spans("Problems", "from the first to the last time that each was seen", over, of[: 2 * _BARS])


_DRAWN: dict[str, Callable[[Report], Iterable[Markup]]] = {
    "throughput": _throughput,
    "error-rates-over-time": _error_rates_over_time,
    "errors-over-time": _errors_over_time,
    "latency-over-time": _latency_over_time,
    "errors": _largest("Error codes", "number in all responses", Unit.COUNT, ("api", "error"), "errors"),
    "latency": _latency,
    "lag": _lag,
    "lag-in-records": _lag_in_records,
    "rebalances": _rebalances,
    "findings": _findings,
    "groups": _largest("Rebalances", "generations of each group", Unit.COUNT, ("group_id",), "generations"),
    "talkers": _talkers,
    "partitions": _partitions,
    "producers": _largest("Batches of producers", "mean bytes in a batch", Unit.BYTES, ("client_id", "topic"), "bytes_per_batch"),
    "quotas": _largest("Throttled by quotas", "time that clients had to wait", Unit.DURATION, ("client_id", "api"), "sum_ms", 1e6),
}
"""In the order of the page."""
