"""``barnabas merge``: combine captures into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...safe import visible
from ..common.existing import Force, new_recording
from ..common.failure import Failure
from ..common.opening import cannot_read
from ..common.options import CapturePaths, Ports, Redact
from ..common.output import counted, warn
from ..common.progress import Progress
from .transform_output import AsJson, Output, print_summary, summary_line, write_origin


def merge(
    captures: CapturePaths,
    output: Output,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            "--shift",
            help="Shift the clock of one capture: FILE=+1.5s, FILE=-200ms.",
            metavar="FILE=TIME",
        ),
    ] = None,
    redact: Redact = True,
    port: Ports = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Merge captures by time: of several proxies, of several brokers, or the parts of one.

    Every connection stays separate. If two captures have a connection between the same addresses at the same time,
    the client of the second capture is shown as HOST#2, of the third as HOST#3.
    """
    from ....captures.transform.merge import Merge, MergeInput
    from ....captures.transform.write import Writer

    shifts = [_shift(text, captures) for text in shift or ()]
    sources = [MergeInput(path, sum(by for of, by in shifts if of == path)) for path in captures]
    for path in captures:
        if str(path) != "-" and not path.exists():
            with cannot_read(path):
                raise FileNotFoundError(path)
    with new_recording(output, captures, force) as place:
        writer = Writer(place, redact=redact, one_file=output.suffix == ".pcapng", names=[p.name for p in captures])
        with Progress("merging") as progress:
            with cannot_read(captures[0]):
                merged = Merge(sources, tuple(port or (9092,)), progress.show)
            for source, event in merged.events():
                writer.write(event, source)
        writer.close()
        origins = [
            {
                "file": source.path.name,
                "shift_ns": source.shift_ns,
                "connections": {str(new): old for new, of, old in writer.came_from if of == number},
            }
            for number, source in enumerate(sources)
        ]
        write_origin(place, output, {"made_by": "barnabas merge", "sources": origins})
        warn([*merged.notes, *writer.faults])
        counts = writer.counts
        summary = {"output": str(output), "sources": len(sources), "renamed_clients": merged.renamed, **counts}
        lines = [summary_line(writer, f" from {counted(len(sources), 'capture')}", output)]
        if merged.renamed:
            lines.append(
                f"{counted(merged.renamed, 'connection')} had the same addresses as another: #N was added to their clients"
            )
        print_summary(as_json, summary, lines)


def _shift(text: str, captures: list[Path]) -> tuple[Path, int]:
    from ....decoder.filter.language import literals

    name, _, by = text.rpartition("=")
    found = literals.number(by.removeprefix("+"), "" if by[-1:].isalpha() else "s")
    if not name or found is None or found.unit != "time":
        raise Failure(f"--shift {visible(text)}: give FILE=+1.5s or FILE=-200ms")
    for path in captures:
        if name in (str(path), path.name):
            return path, int(found.value)
    raise Failure(f"--shift {visible(text)}: {visible(name)} is not one of the captures")
