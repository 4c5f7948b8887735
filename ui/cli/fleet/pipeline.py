"""``barnabas pipeline``: captures as Parquet tables, with or without Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...safe import visible
from ..common.failure import Failure
from ..common.output import counted, print_json, warn

if TYPE_CHECKING:
    from ....captures.tables.output.folder import TableFormat

app = typer.Typer(
    help="Turn captures into Parquet tables, with Spark; barnabas report reads them.",
    no_args_is_help=True,
)

class FormatName(StrEnum):
    """How tables are stored."""

    PARQUET = "parquet"
    DELTA = "delta"


Source = Annotated[
    str,
    typer.Argument(
        help="A folder of captures: recordings, pcap and pcapng files (.gz and .zst too). Also s3://, gs://, abfs://, hdfs://.",
        metavar="CAPTURES",
    ),
]
Output = Annotated[
    str,
    typer.Option("--output", "-o", help="Write the tables here: PATH/TABLE/date=.../*.parquet. Also s3:// ...", metavar="PATH"),
]
Tables = Annotated[
    str, typer.Option("--tables", help="Only these tables (default: what PATH has; all except records and happenings).", metavar="NAME,...")
]
Cluster = Annotated[
    str,
    typer.Option("--cluster", help="The cluster id of these captures (default: from their Metadata responses).", metavar="ID"),
]
Remote = Annotated[
    str,
    typer.Option(
        "--remote", help="A Spark Connect server instead of a master: sc://HOST:PORT.", envvar="SPARK_REMOTE", metavar="URL"
    ),
]
Wheel = Annotated[
    Path | None,
    typer.Option("--wheel", help="This package as a wheel, for a cluster's executors (default: pure Python).", metavar="FILE"),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="A Spark setting, such as spark.executor.memory=4g. May be repeated.", metavar="KEY=VALUE"),
]


Format = Annotated[
    FormatName | None,
    typer.Option(
        "--format",
        help="The format of new tables: parquet (the default), or delta for Delta Lake, whose readers see each table as a whole.",
        show_default=False,
    ),
]


def _settings(conf: list[str] | None) -> dict[str, str]:
    """Spark's settings. Raises Failure for one that is not KEY=VALUE, or that an option has."""
    found = dict(text.partition("=")[::2] for text in conf or ())
    for text in conf or ():
        if not text.startswith("spark.") or "=" not in text:
            raise Failure(f"--conf {visible(text)!r} is not KEY=VALUE with a Spark key, such as spark.executor.memory=4g")
    if "spark.master" in found:
        raise Failure("--conf spark.master: give the master with --master")
    return found


def _master(master: str, remote: str) -> str:
    """Where Spark is. A master that was named goes before SPARK_REMOTE."""
    return master or remote or "local[2]"


def _format(name: FormatName | None) -> TableFormat | None:
    from ....captures.tables.output.folder import TableFormat

    return None if name is None else TableFormat(name.value)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _timed_printer() -> Callable[[str], None]:
    begun = time.monotonic()
    return lambda text: print(f"{time.monotonic() - begun:5.1f} s  {visible(text)}", file=sys.stderr, flush=True)


@app.command()
def run(
    source: Source,
    output: Output,
    master: Annotated[
        str,
        typer.Option(
            "--master",
            help="Spark's master (default local\\[2]): spark://HOST:PORT for a cluster; none: in this process, without Spark.",
            metavar="URL",
        ),
    ] = "",
    remote: Remote = "",
    wheel: Wheel = None,
    conf: Conf = None,
    tables: Tables = "",
    table_format: Format = None,
    cluster: Cluster = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be read; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object about what was done.")] = False,
) -> None:
    """Read new and changed captures into the tables of --output. Each file counts once, even if you run this again.

    If a run is killed, the tables stay readable; run it again to complete them. Damaged files are listed in the
    table segments. Needs Java and: pip install 'barnabas\\[spark]'
    """
    from ....captures.spark import pipeline

    progress = _timed_printer()
    try:
        done = pipeline.run(
            _master(master, remote), source, output, progress, names=_names(tables), table_format=_format(table_format), cluster=cluster, dry=dry_run,
            wheel=wheel, conf=_settings(conf),
        )  # fmt: skip
    except KeyboardInterrupt:
        warn(["interrupted; the tables contain only whole files: run again to complete them"])
        raise
    warn(done.damaged)
    warn(f"left out: {line}" for line in done.left_out)
    if done.live:
        warn([f"segments still being written: {done.live}; run again later for those"])
    if as_json:
        print_json(done.to_dict())
    elif dry_run:
        typer.echo(visible(f"would read {counted(done.read, 'file')} ({done.bytes / 1e6:.1f} MB) into {', '.join(done.tables)}"))
        typer.echo(visible(f"unchanged: {done.unchanged}; rows of changed files to be removed: {done.removed}"))
    else:
        progress(f"the tables are in {done.output}; next: barnabas report {done.output}")


@app.command()
def stream(
    source: Source,
    output: Output,
    master: Annotated[
        str,
        typer.Option("--master", help="Spark's master (default local\\[2]): spark://HOST:PORT for a cluster.", metavar="URL"),
    ] = "",
    remote: Remote = "",
    wheel: Wheel = None,
    conf: Conf = None,
    tables: Tables = "",
    table_format: Format = None,
    cluster: Cluster = "",
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Where to store the progress (default: in --output).", metavar="DIR")
    ] = None,
    every: Annotated[
        float, typer.Option("--every", help="How often to look for closed segments, in seconds.", min=0.1, metavar="SECONDS")
    ] = 10,
    once: Annotated[bool, typer.Option("--once", help="Stop once everything that exists now has been read.")] = False,
) -> None:
    """Follow a folder of recordings: read every segment once, as soon as it is closed. Ctrl-C stops it.

    When restarted, it continues where it stopped. Captures of other tools are read once they have not changed for a minute.
    """
    from ....captures.reading import storage
    from ....captures.spark import pipeline

    progress = _timed_printer()
    pipeline.stream(
        _master(master, remote), source, output, progress, names=_names(tables), table_format=_format(table_format), cluster=cluster, checkpoint=checkpoint,
        every=every, once=once, wheel=wheel, conf=_settings(conf),
    )  # fmt: skip
    progress(f"the tables are in {storage.place(output)}")


@app.command()
def check(
    tables: Annotated[str, typer.Argument(help="Tables that pipeline run or stream made. Also s3:// ...", metavar="TABLES")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare the rows of all tables with the counts in the table segments; exit with status 1 if any differ.

    Use it in a job after the run. Damaged captures are counted, but are no reason to fail: the table segments lists them.
    """
    from ....captures.tables.output.folder import Folder

    found = Folder(tables).verify()
    if as_json:
        print_json(found._asdict())
    else:
        counts = f"{counted(found.files, 'file')}, {counted(found.exchanges, 'exchange')}, {counted(found.frames, 'frame')}"
        damaged = f"; {counted(found.damaged, 'damaged file')}" if found.damaged else ""
        for line in found.problems:
            typer.echo(visible(line))
        typer.echo(f"{counts}{damaged}: {counted(len(found.problems), 'problem') if found.problems else 'the tables agree'}")
    if found.problems:
        raise typer.Exit(1)


@app.command()
def compact(
    tables: Annotated[str, typer.Argument(help="Tables that pipeline run or stream made.", metavar="TABLES")],
    retention: Annotated[
        int, typer.Option("--retention", help="Remove files that were replaced more than so many hours ago.", min=0, metavar="HOURS")
    ] = 168,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Join the small files of tables in the format delta, and remove old ones.

    Readers notice nothing, unless they began before --retention. In the format parquet, there is nothing to join: runs write
    files of up to 64 MiB of captures.
    """
    from ....captures.spark import pipeline

    found = pipeline.compact(tables, retention)
    if as_json:
        print_json({name: each._asdict() for name, each in found.items()})
    elif not found:
        typer.echo("nothing to compact: in the format parquet, runs join the rows of small segments (--format delta keeps versions)")
    else:
        for name, each in found.items():
            typer.echo(f"{name}: {counted(each.joined, 'file')} joined into {each.became}; {counted(each.removed, 'old file')} removed")
