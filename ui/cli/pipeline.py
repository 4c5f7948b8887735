"""``barnabas pipeline``: recordings as Parquet tables and a report, computed by Spark."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...captures.exporting.text import json_visible
from .failure import Failure

if TYPE_CHECKING:
    from ...captures.spark.report import Line, Report

app = typer.Typer(
    help="Turn recordings into Parquet tables and reports, with Spark.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _pipeline() -> None:
    # With a callback Typer keeps the word "run" although it is the only command.
    pass


@app.command()
def run(
    source: Annotated[Path, typer.Option("--input", help="A folder of recordings.")],
    output: Annotated[Path, typer.Option("--output", help="Where the tables go: OUTPUT/exchanges/*.parquet.")],
    master: Annotated[str, typer.Option(help="Spark's master; spark://HOST:PORT for a cluster.")] = "local[2]",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Write the table `exchanges` from recordings, and print requests, errors and latency per API and client id.

    A second run over the same recordings gives the same rows. The report is over the whole table, earlier runs
    into the same OUTPUT included. Needs Java and: pip install 'barnabas\\[spark]'
    """
    from ...captures.spark import PipelineError, pipeline

    begun = time.monotonic()

    def progress(text: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {text}", file=sys.stderr, flush=True)

    try:
        done = pipeline.run(source, output, master, progress)
    except PipelineError as error:
        raise Failure(str(error)) from error
    except KeyboardInterrupt:
        print("barnabas: interrupted; the table holds whole segments only, run again to complete it", file=sys.stderr)
        raise
    for line in done.left_out:
        print(f"barnabas: left out: {line}", file=sys.stderr)
    if done.live:
        print(f"barnabas: segments still being written: {done.live}; run again later for those", file=sys.stderr)
    progress(f"the table is in {done.table}")
    if as_json:
        typer.echo(json_visible(json.dumps(done.report.to_dict(), ensure_ascii=False)))
    else:
        _show(done.report)


def _show(report: Report) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..tui.safe import visible

    table = Table(show_footer=True, box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    total = report.total
    # On a narrow screen names take a second line; numbers are never cut.
    table.add_column("API", footer="total", overflow="fold", min_width=14)
    table.add_column("client id", overflow="fold", min_width=12)
    for head, foot in zip(_HEADS, _cells(total), strict=True):
        table.add_column(head, footer=foot, justify="right", no_wrap=True)
    for line in report.lines:
        # A client id is anybody's text: it may look like markup, or hold control characters.
        client_id = "(none)" if line.client_id is None else visible(line.client_id)
        table.add_row(Text(line.api or "(orphan)"), Text(client_id), *_cells(line))
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)
    for number, what in ((total.orphans, "responses without a request"), (total.undecoded, "undecoded exchanges")):
        if number:
            print(f"{what}: {number:,}")


_PIPE_WIDTH = 200
_HEADS = ("requests", "errors", "error rate", "p50", "p99")


def _cells(line: Line) -> list[str]:
    return [
        f"{line.requests:,}",
        f"{line.errors:,}",
        f"{line.error_rate:.2%}",
        _latency(line.p50_latency_ns),
        _latency(line.p99_latency_ns),
    ]


def _latency(ns: float | None) -> str:
    if ns is None:
        return "-"
    if ns < 1e6:
        return f"{ns / 1e3:.0f} µs"
    return f"{ns / 1e6:.1f} ms" if ns < 1e9 else f"{ns / 1e9:.2f} s"
