"""``barnabas import``: convert captures of other tools into a recording."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...safe import visible
from ..common.existing import Append, Force, refuse_recording
from ..common.failure import Failure, cannot_write, os_failure
from ..common.opening import cannot_read
from ..common.options import FilterText, Ports, RecordingDirectory, Redact
from ..common.output import counted, warn
from ..common.progress import Progress
from ..common.signals import stopping_on_signals
from ..protocol.filter import compiled

if TYPE_CHECKING:
    from ....captures.foreign.importer import Importer
    from ....captures.pcap.sources import CaptureSource


def import_(
    captures: Annotated[
        list[Path],
        typer.Argument(
            help="pcap or pcapng files (.gz and .zst too), - for standard input. Several files are parts of one capture.",
            metavar="CAPTURE...",
        ),
    ],
    output: RecordingDirectory,
    port: Ports = None,
    keylog: Annotated[
        Path | None,
        typer.Option("--keylog", help="TLS secrets (SSLKEYLOGFILE) of the clients or brokers; needs tshark.", metavar="FILE"),
    ] = None,
    filter_: FilterText = None,
    redact: Redact = True,
    append: Append = False,
    force: Force = False,
) -> None:
    """Convert captures of tcpdump, Wireshark, scapy and others to a recording: segments with an index, which open immediately.

    Times and addresses are kept. TLS secrets in a pcapng file are used. Ctrl-C leaves a recording of what was read
    so far; with --force, the old one. Other commands read such captures directly, too.
    """
    wanted = compiled(filter_) if filter_ is not None else None
    from ....captures.foreign.importer import Importer

    with _opened(captures, keylog) as sources, _place(output, append, force) as place:
        try:
            importer = Importer(place, tuple(port or (9092,)), redact=redact, wanted=wanted)
        except OSError as error:
            raise cannot_write(output, error) from None
        stopped = False
        with stopping_on_signals():
            try:
                _read(importer, sources)
            except KeyboardInterrupt:
                stopped = True
            except OSError as error:
                if error is not importer.failure:
                    importer.close(finished=False)
                    raise os_failure(f"{visible(str(error.filename or captures[0]))} cannot be read", error) from None
        importer.close(finished=not stopped and importer.failure is None)
        if importer.failure is not None:
            raise cannot_write(output, importer.failure)
        if stopped and force:
            warn([f"stopped; {visible(str(output))} was not replaced"])
            raise typer.Exit(130)
    _print_summary(importer, output, stopped, redact)
    if stopped:
        raise typer.Exit(130)


@contextmanager
def _place(output: Path, append: bool, force: bool) -> Iterator[Path]:
    """The directory to write into. An existing recording is refused, added to, or replaced once the new one is complete."""
    from ....captures.transform.write import replacing

    refuse_recording(output, append, force)
    if not force:
        yield output
        return
    with replacing(output, force) as place:
        yield place


def _read(importer: Importer, sources: list[CaptureSource]) -> None:
    """Read all files."""
    total = sum(source.known or source.path.stat().st_size for source in sources if source.path != Path("-"))
    done = 0
    with Progress("reading") as progress:
        for source in sources:
            importer.begin(source)
            more = True
            while more:
                more = importer.advance()
                read, _ = importer.progress
                progress.show(done + read, total, f"{importer.counts['exchanges']:,} exchanges")
            done += importer.progress[0]


@contextmanager
def _opened(paths: list[Path], keylog: Path | None) -> Iterator[list[CaptureSource]]:
    """The files, oldest first, decrypted with a key log. Raises Failure for a file that is no capture."""
    from ....captures.foreign.decrypt import decrypted
    from ....captures.pcap.sources import CaptureSource
    from ....captures.reading.indexing.reindex import first_time
    from ....captures.recording.segment import read_identity

    if keylog is not None and not keylog.is_file():
        raise Failure(f"{visible(str(keylog))} does not exist; clients write it when SSLKEYLOGFILE names a file")
    sources: list[CaptureSource] = []
    try:
        for path in paths:
            with cannot_read(path, "give pcap or pcapng files, or - for standard input"):
                if path.is_dir():
                    raise IsADirectoryError(21, "it is a directory: give its files")
                sources.append(CaptureSource(path))
        for source in sources:
            with cannot_read(source.path):
                if read_identity(source.file, str(source.path)) is not None:
                    raise Failure(f"{visible(str(source.path))} is already a recording: open it directly")
        sources.sort(key=first_time)
        sources = decrypted(sources, keylog)
        yield sources
    finally:
        for source in sources:
            source.close()


def _print_summary(importer: Importer, output: Path, stopped: bool, redact: bool) -> None:
    counts = importer.counts
    warn(importer.notes)
    if not redact:
        warn(["secrets are not masked in this recording (--no-redact)"])
    what = f"{counted(counts['exchanges'], 'exchange')} on {counted(counts['connections'], 'connection')}"
    end = "; stopped before the end" if stopped else ""
    print(f"{what} in {counted(counts['segments'], 'segment')}{end}; next: barnabas ui {visible(str(output))}", file=sys.stderr)
