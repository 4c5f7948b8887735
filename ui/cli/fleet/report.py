"""``barnabas report``: what a fleet's captures say, from the pipeline's tables or from captures directly."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....captures.export.text import cell, json_visible
from ...safe import visible
from ..common import amounts
from ..common.failure import Failure
from ..common.local_time import Local
from .report_text import show

if TYPE_CHECKING:
    from ....captures.reading.storage import Place
    from ....captures.reports import Engine, Report


class By(StrEnum):
    """Who computes."""

    DUCKDB = "duckdb"
    SPARK = "spark"


def report(
    directory: Annotated[
        str,
        typer.Argument(
            help="Tables that barnabas pipeline made, or captures: then tables are made for the moment. Also s3:// ..."
        ),
    ],
    against: Annotated[
        str, typer.Option("--against", help="Judge clients against this release, e.g. 4.0.", metavar="RELEASE")
    ] = "",
    only: Annotated[
        str, typer.Option("--only", help="These reports, separated by commas (default: all).", metavar="NAMES")
    ] = "",
    stretch: Annotated[
        str,
        typer.Option("--stretch", help="Stretches of time, such as 1m or 1h (default: what suits).", metavar="TIME"),
    ] = "",
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page with charts that needs nothing else.", metavar="FILE")
    ] = None,
    csv_directory: Annotated[
        Path | None, typer.Option("--csv", help="Write a CSV file per report.", metavar="DIR")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    by: Annotated[By, typer.Option("--engine", help="Who computes; Spark needs Java.")] = By.DUCKDB,
    master: Annotated[str, typer.Option("--master", help="Spark's master, with --engine spark.")] = "local[2]",
    local: Local = False,
) -> None:
    """Compatibility, versions, errors, latency, throughput, groups, producers, quotas and findings over many captures.

    DuckDB and Spark compute the same SQL. Needs: pip install 'barnabas\\[report]'
    """
    from ....captures.reading.storage import place
    from ....captures.reports import make
    from ....captures.reports.duck import MissingDuckDB
    from ....captures.spark import PipelineError
    from ....captures.tables import MissingLibrary
    from ....captures.tables.folder import FolderError

    seconds = amounts.seconds(stretch, "--stretch") if stretch else 0.0
    names = [name.strip() for name in only.split(",") if name.strip()]
    try:
        there = place(directory)
        with _tables(there) as folder, _engine(by, folder, master) as engine:
            made, left_out = make(engine, names, against, seconds)
    except KeyError:
        raise Failure(f"--against {against!r}: no such release is known; see: barnabas versions --help") from None
    except (FolderError, MissingDuckDB, MissingLibrary, PipelineError, ValueError, OSError) as error:
        raise Failure(visible(str(error))) from None
    for line in left_out:
        print(f"barnabas: left out: {line}", file=sys.stderr)
    if html_file is not None:
        from .report_page import html

        _write(html_file, html(made, str(there), left_out), "--html")
    if csv_directory is not None:
        _csv(csv_directory, made)
    if as_json:
        document = {each.name: each.to_dict() for each in made}
        typer.echo(json_visible(json.dumps(document, ensure_ascii=False, default=str)))
    elif html_file is None and csv_directory is None:
        show(made)


@contextmanager
def _tables(directory: Place) -> Iterator[Place]:
    """The folder of tables: as it is, or made of captures for the moment."""
    from ....captures.spark import pipeline
    from ....captures.tables.folder import Folder

    if not directory.exists():
        raise Failure(f"{visible(str(directory))} does not exist; tables are made by: barnabas pipeline run")
    if directory.is_dir() and Folder(directory).held():
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-report-") as place:
        done = pipeline.run(
            directory, Path(place), pipeline.NO_SPARK, lambda text: print(visible(text), file=sys.stderr, flush=True)
        )
        for line in (*done.damaged, *(f"left out: {each}" for each in done.left_out)):
            print(f"barnabas: {visible(line)}", file=sys.stderr)
        yield Path(place)


@contextmanager
def _engine(by: By, folder: Place, master: str) -> Iterator[Engine]:
    if by is By.DUCKDB:
        from ....captures.reports.duck import Duck

        with Duck(folder) as duck:
            yield duck
        return
    from ....captures.spark.engine import Spark
    from ....captures.spark.session import session

    with session(master, quick=True) as spark:
        yield Spark(spark, folder.absolute() if isinstance(folder, Path) else folder)


def _csv(directory: Path, reports: list[Report]) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"--csv {visible(str(directory))} cannot be made: {error.strerror or error}") from None
    for each in reports:
        lines = [",".join(each.columns)]
        for row in each.rows:
            values = (row[column] for column in each.columns)
            lines.append(
                ",".join(
                    "" if value is None else cell(value) if isinstance(value, str) else str(value) for value in values
                )
            )
        _write(directory / f"{each.name}.csv", "\r\n".join(lines) + "\r\n", "--csv")


def _write(path: Path, text: str, option: str) -> None:
    """Write a file for the user alone."""
    try:
        from ....captures.export import written

        with written(path, force=True) as file:
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise Failure(f"{option} {visible(str(path))} cannot be written: {error.strerror or error}") from None
