"""``barnabas index``: verify the segments and indexes of a recording, and rebuild indexes."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...safe import visible
from ..common.failure import Failure
from ..common.opening import cannot_read
from ..common.options import CapturePaths
from ..common.progress import Progress

if TYPE_CHECKING:
    from ....captures.reading.verify import FileCheck


_AT_ONCE = 10_000
"""Exchanges between two looks at the progress."""


def index(
    captures: CapturePaths,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what is wrong; write nothing.")] = False,
    names: Annotated[
        bool, typer.Option("--names", help="Also keep topics, groups and transactional ids beside the segments, for filters.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per file.")] = False,
) -> None:
    """Verify a recording, and rebuild indexes that are missing or wrong.

    Every byte is checked against the recorded checksums, and every record of an index against its frames. Damaged
    bytes are reported with their positions; everything around them stays readable. Segments are never changed. The
    exit status is 1 if something is wrong (with --dry-run: also if an index could be rebuilt).
    """
    from ....captures.reading.verify import files_of

    found: Counter[str] = Counter()
    wrong = False
    for capture in captures:
        with cannot_read(capture):
            files = files_of(capture)
        if not files:
            raise Failure(f"{visible(str(capture))}: it contains no .pcapng or .pcap file")
        for verdict in _verdicts(files, capture.name, not dry_run):
            found[verdict.state] += 1
            wrong = wrong or not verdict.is_well
            if as_json:
                sys.stdout.write(json.dumps(verdict.to_dict()) + "\n")
            else:
                for line in verdict.lines:
                    print(visible(line))
        if names and not dry_run:
            _keep_names(capture)
    if not as_json:
        sys.stdout.flush()  # no summary of verdicts that could not be written
        print(", ".join(f"{count} {state}" for state, count in sorted(found.items())), file=sys.stderr)
    if wrong:
        raise typer.Exit(1)


def _keep_names(path: Path) -> None:
    """Decode all exchanges that have names, and write these beside the segments."""
    from ....captures import open_capture
    from ....captures.reading.selection import Selection
    from ....decoder.filter import compile

    with open_capture(path) as capture, Progress(path.name) as progress:
        every = Selection(capture, compile('topic == "" or group == "" or txn == ""'))
        rows, size = len(capture.rows()), sum(_size(segment.path) for segment in capture.segments)
        for start in range(0, rows, _AT_ONCE):
            every.count(start, min(start + _AT_ONCE, rows))
            progress.show(size * start // rows, size, "topics and groups")
        try:
            kept = capture.save_names()
        except OSError as error:
            raise Failure(f"cannot write {visible(str(error.filename2 or error.filename))}: {error.strerror}") from None
    print(f"{visible(str(path))}: names kept beside {kept} of {len(capture.segments)} segments", file=sys.stderr)


def _verdicts(files: list[Path], name: str, write: bool) -> Iterator[FileCheck]:
    """What is found about each file; with a line on a terminal when it takes long."""
    from ....captures.reading.verify import UNREADABLE, FileCheck, verify

    total = sum(_size(path) for path in files)
    before = 0

    def tick(done: int) -> None:
        progress.show(before + done, total)

    with Progress(name) as progress:
        for path in files:
            try:
                yield verify(path, write, tick)
            except FileNotFoundError:
                continue  # it was completed and renamed, or removed
            except OSError as error:
                yield FileCheck(path, UNREADABLE, note=f"{error.filename or path}: {error.strerror or error}")
            before += _size(path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
