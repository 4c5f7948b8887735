"""``barnabas report``: reports about many captures, from the pipeline's tables or from captures directly."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...safe import visible
from ..common import amounts
from ..common.completion import release_names
from ..common.existing import Force, refuse_existing, write_text
from ..common.failure import Failure, cannot_write
from ..common.options import HtmlFile, Local
from ..common.output import print_json, warn
from .cells import cell, columns_shown, heading

if TYPE_CHECKING:
    from ....captures.reading.storage import Place
    from ....captures.reports import QueryEngine, Report

_PRINTED = 15
"""Rows of one table on a terminal."""
_PIPE_WIDTH = 200


class ReportEngine(StrEnum):
    """Who computes."""

    DUCKDB = "duckdb"
    SPARK = "spark"


def report(
    directories: Annotated[
        list[str],
        typer.Argument(
            help="Folders of tables that barnabas pipeline made, or of captures, for which temporary tables are made. Also s3:// ...",
            metavar="TABLES|CAPTURES...",
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
    force: Force = False,
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
    refuse_existing(html_file, force, "--html")
    if csv_directory is not None and csv_directory.is_dir():
        refuse_existing(next(csv_directory.glob("*.csv"), None), force, "--csv")
    try:
        given = list(dict.fromkeys(map(place, directories)))
        _check_installed(by, master, html_file is not None)
        with ExitStack() as stack:
            folders = [stack.enter_context(_tables(each)) for each in given]
            engine = stack.enter_context(_engine(by, folders, master))
            _check_captures(engine)
            made, left_out = make(engine, names, against, seconds)
    except KeyError:
        raise Failure(f"--against {against!r}: unknown release; see: barnabas versions --help") from None
    except ValueError as error:
        raise Failure(visible(str(error))) from None
    warn(f"left out: {line}" for line in left_out)
    if html_file is not None:
        from .report_page import html

        write_text(html_file, html(made, ", ".join(map(str, given)), left_out), "--html")
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


def _check_installed(by: ReportEngine, master: str, drawn: bool) -> None:
    """Raise the error that names what to install, before tables are made. `drawn`: with charts."""
    if drawn:
        from ...pages.charts import converter

        converter()
    if by is ReportEngine.DUCKDB:
        from ....captures.reports.duck import duckdb
        from ....captures.tables.columns import pyarrow

        duckdb()
        pyarrow()
    else:
        from ....captures.spark.session import check_installed

        check_installed(master)


@contextmanager
def _engine(by: ReportEngine, folders: Sequence[Place], master: str) -> Iterator[QueryEngine]:
    if by is ReportEngine.DUCKDB:
        from ....captures.reports.duck import Duck

        with Duck(*folders) as duck:
            yield duck
        return
    from ....captures.spark.engine import Spark
    from ....captures.spark.session import session

    with session(master, quick=True) as spark:
        yield Spark(spark, *(each.absolute() if isinstance(each, Path) else each for each in folders))


def _check_captures(engine: QueryEngine) -> None:
    """Raise Failure if several folders contain the same file of a capture: it would count twice."""
    if "segments" in engine.tables:
        twice = "SELECT min(path) AS one, max(path) AS other FROM segments WHERE status <> 'unreadable' GROUP BY capture_id, sequence HAVING count(*) > 1"
        for row in engine.query(twice):
            raise Failure(f"several of these folders contain rows of {visible(row['one'])}, which would count twice: report on them separately")


def _csv(directory: Path, reports: list[Report]) -> None:
    from ....captures.export.text import cell as csv_cell

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(f"--csv {directory}", error) from None
    for each in reports:
        lines = [",".join(each.columns)]
        for values in ([line[column] for column in each.columns] for line in each.rows):
            cells = ("" if value is None else csv_cell(value) if isinstance(value, str) else str(value) for value in values)
            lines.append(",".join(cells))
        write_text(directory / f"{each.name}.csv", "\r\n".join(lines) + "\r\n", "--csv")


# --- on a terminal ---------------------------------------------------------------------------------------


def show(reports: Sequence[Report]) -> None:
    """Print them, the first rows of each."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    for report in reports:
        precision = f", percentiles {report.percentiles}" if report.percentiles not in ("", "exact") else ""
        console.print(Text(f"\n{report.title} ({report.name}){precision}", style="bold"))
        if not report.rows:
            console.print("nothing")
            continue
        printed = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
        columns = columns_shown(report.columns, report.rows)
        for column in columns:
            number = any(isinstance(each[column], (int, float)) for each in report.rows[:_PRINTED])
            printed.add_column(heading(column), justify="right" if number else "left", overflow="fold")
        for each in report.rows[:_PRINTED]:
            # A client id is anybody's text: it may look like markup, or hold control characters.
            printed.add_row(*(Text(visible(cell(each, column))) for column in columns))
        console.print(printed)
        if len(report.rows) > _PRINTED:
            more = f"{len(report.rows) - _PRINTED} more rows: see --html, --csv, --json, or --only {report.name}"
            console.print(Text(more, style="dim"))
