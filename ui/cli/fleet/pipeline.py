"""``barnabas pipeline``: captures as Parquet tables, with or without Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ...safe import visible
from ..common.failure import Failure
from ..common.output import counted, print_json, warn

app = typer.Typer(
    help="Turn captures into Parquet tables, with Spark; barnabas report reads them.",
    no_args_is_help=True,
)

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
    str, typer.Option("--tables", help="Write only these tables (default: all except records and happenings).", metavar="NAME,...")
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


def _names(text: str) -> tuple[str, ...]:
    from ....captures.tables.output.folder import DEFAULT

    return tuple(name.strip() for name in text.split(",") if name.strip()) or DEFAULT


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
            _master(master, remote), source, output, progress, names=_names(tables), cluster=cluster, dry=dry_run,
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
        _master(master, remote), source, output, progress, names=_names(tables), cluster=cluster, checkpoint=checkpoint,
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
