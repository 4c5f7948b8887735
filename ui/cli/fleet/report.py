"""``barnabas report``: reports about many captures, from the pipeline's tables or from captures directly."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ...safe import visible
from ...times import moment
from ..common import amounts
from ..common.completion import release_names
from ..common.failure import Failure, cannot_write, write_text
from ..common.html_page import page, row, table, text
from ..common.options import HtmlFile, Local
from ..common.output import print_json, warn

if TYPE_CHECKING:
    from ....captures.reading.storage import Place
    from ....captures.reports import QueryEngine, Report

_PRINTED = 15
"""Rows of one table on a terminal."""
_PIPE_WIDTH = 200
_ON_PAGE = 100
"""Rows of one table; the rest is in --csv and --json."""
_WIDTH, _HEIGHT, _LEFT = 900, 180, 70
_COLOURS = ("#2f6fde", "#c0392b", "#2e8b57", "#b8860b", "#7d3c98", "#16a085", "#d35400", "#5d6d7e")
_CHARTED = {
    "throughput": ("requests", "errors"),
    "errors-over-time": ("errors",),
}


class _Bars(NamedTuple):
    """A chart of bars: the columns that name a bar, the column of its length, a factor for that, and the unit then."""

    names: tuple[str, ...]
    length: str
    factor: float
    unit: str


_BARS = {
    "errors": _Bars(("api", "error"), "errors", 1, "errors"),
    "groups": _Bars(("group_id",), "generations", 1, "generations"),
    "producers": _Bars(("client_id", "topic"), "bytes_per_batch", 1e-3, "kB a batch"),
    "quotas": _Bars(("client_id", "api"), "sum_ms", 1e-3, "s throttled"),
    "findings": _Bars(("id",), "captures", 1, "captures"),
}


class ReportEngine(StrEnum):
    """Who computes."""

    DUCKDB = "duckdb"
    SPARK = "spark"


def report(
    directory: Annotated[
        str,
        typer.Argument(
            help="Tables that barnabas pipeline made, or captures, for which temporary tables are made. Also s3:// ...",
            metavar="TABLES|CAPTURES",
        ),
    ],
    against: Annotated[
        str,
        typer.Option(
            "--against", help="Check clients against brokers of this release, e.g. 4.0.", metavar="RELEASE",
            autocompletion=release_names,
        ),
    ] = "",
    only: Annotated[
        str, typer.Option("--only", help="Only these reports (default: all).", metavar="NAME,...")
    ] = "",
    stretch: Annotated[
        str,
        typer.Option("--stretch", help="Length of the time intervals, such as 1m or 1h (default: chosen automatically).", metavar="DURATION"),
    ] = "",
    html_file: HtmlFile = None,
    csv_directory: Annotated[
        Path | None, typer.Option("--csv", help="Write a CSV file per report.", metavar="DIR")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with everything.")] = False,
    by: Annotated[ReportEngine, typer.Option("--engine", help="The engine that computes the reports; Spark needs Java.")] = ReportEngine.DUCKDB,
    master: Annotated[str, typer.Option("--master", help="Spark's master, with --engine spark.", metavar="URL")] = "local[2]",
    local: Local = False,
) -> None:
    """Compatibility, versions, errors, latency, throughput, groups, producers, quotas and findings over many captures.

    DuckDB and Spark compute the same SQL. Needs: pip install 'barnabas\\[report]'
    """
    from ....captures.reading.storage import place
    from ....captures.reports import make

    seconds = amounts.seconds(stretch, "--stretch") if stretch else 0.0
    names = [name.strip() for name in only.split(",") if name.strip()]
    try:
        there = place(directory)
        _check_installed(by, master)
        with _tables(there) as folder, _engine(by, folder, master) as engine:
            made, left_out = make(engine, names, against, seconds)
    except KeyError:
        raise Failure(f"--against {against!r}: unknown release; see: barnabas versions --help") from None
    except ValueError as error:
        raise Failure(visible(str(error))) from None
    warn(f"left out: {line}" for line in left_out)
    if html_file is not None:
        write_text(html_file, html(made, str(there), left_out), "--html")
    if csv_directory is not None:
        _csv(csv_directory, made)
    if as_json:
        document = {each.name: each.to_dict() for each in made}
        print_json(document)
    elif html_file is None and csv_directory is None:
        show(made)


@contextmanager
def _tables(directory: Place) -> Iterator[Place]:
    """The folder of tables: the given one, or a temporary one made of captures."""
    from ....captures.spark import pipeline
    from ....captures.tables.output.folder import Folder

    if not directory.exists():
        raise Failure(f"{visible(str(directory))} does not exist; make tables with: barnabas pipeline run")
    if directory.is_dir() and Folder(directory).held():
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-report-") as place:
        done = pipeline.run(
            pipeline.NO_SPARK, directory, Path(place), lambda text: print(visible(text), file=sys.stderr, flush=True)
        )
        warn((*done.damaged, *(f"left out: {each}" for each in done.left_out)))
        yield Path(place)


def _check_installed(by: ReportEngine, master: str) -> None:
    """Raise the error that names what to install, before tables are made."""
    if by is ReportEngine.DUCKDB:
        from ....captures.reports.duck import duckdb
        from ....captures.tables.columns import pyarrow

        duckdb()
        pyarrow()
    else:
        from ....captures.spark.session import check_installed

        check_installed(master)


@contextmanager
def _engine(by: ReportEngine, folder: Place, master: str) -> Iterator[QueryEngine]:
    if by is ReportEngine.DUCKDB:
        from ....captures.reports.duck import Duck

        with Duck(folder) as duck:
            yield duck
        return
    from ....captures.spark.engine import Spark
    from ....captures.spark.session import session

    with session(master, quick=True) as spark:
        yield Spark(spark, folder.absolute() if isinstance(folder, Path) else folder)


def _csv(directory: Path, reports: list[Report]) -> None:
    from ....captures.export.text import cell

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(f"--csv {directory}", error) from None
    for each in reports:
        lines = [",".join(each.columns)]
        for values in ([line[column] for column in each.columns] for line in each.rows):
            cells = ("" if value is None else cell(value) if isinstance(value, str) else str(value) for value in values)
            lines.append(",".join(cells))
        write_text(directory / f"{each.name}.csv", "\r\n".join(lines) + "\r\n", "--csv")


# --- on a terminal ---------------------------------------------------------------------------------------


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
        printed = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
        for column in report.columns:
            number = any(isinstance(each[column], (int, float)) for each in report.rows[:_PRINTED])
            printed.add_column(heading(column), justify="right" if number else "left", overflow="fold")
        for each in report.rows[:_PRINTED]:
            # A client id is anybody's text: it may look like markup, or hold control characters.
            printed.add_row(*(Text(visible(shown(column, each[column]))) for column in report.columns))
        console.print(printed)
        if len(report.rows) > _PRINTED:
            more = f"{len(report.rows) - _PRINTED} more rows: see --html, --csv, --json, or --only {report.name}"
            console.print(Text(more, style="dim"))


# --- as a page -------------------------------------------------------------------------------------------


def html(reports: Sequence[Report], name: str, notes: Sequence[str] = ()) -> str:
    """The page."""
    parts = [f"<h1>{text(name)}</h1>", *(f"<p class=dim>Left out: {text(note)}" for note in notes)]
    for report in reports:
        parts.append(f"<h2 id={report.name}>{text(report.title)}</h2><p class=dim>{text(report.about)}")
        parts.append(_chart(report) + _table(report) if report.rows else "<p>Nothing.")
    return page("barnabas report", parts)


def _table(report: Report) -> str:
    rows = (row(*(_cell(column, each[column]) for column in report.columns)) for each in report.rows[:_ON_PAGE])
    more = len(report.rows) - _ON_PAGE
    return table(map(heading, report.columns), rows) + (
        f"<p class=dim>{more} more rows: see --csv or --json" if more > 0 else ""
    )


def _cell(column: str, value: Any) -> tuple[str, str]:
    kind = "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    if column in ("verdict", "severity"):
        kind = str(value).split()[0]
        kind = kind if kind.isalpha() else ""
    return text(shown(column, value)), kind


def _chart(report: Report) -> str:
    """Lines over time; bars for tables about a few names."""
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
        of = _BARS[report.name]
        bars = [(" ".join(str(each[name]) for name in of.names), (each[of.length] or 0) * of.factor) for each in report.rows]
        return _bars(sorted(bars, key=lambda bar: -bar[1])[:12], of.unit)
    return ""


def _series(report: Report, columns: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    by = "error" if "error" in report.columns else None
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
        across, up = (_WIDTH - _LEFT - 4) / ((last - first) or 1), (_HEIGHT - 10) / top
        places = [(_LEFT + (x - first) * across, _HEIGHT - y * up) for x, y in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f"<polyline points='{line}' fill=none stroke='{colour}' stroke-width=1.5 />")
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
