"""``barnabas cut``: copy a part of a capture."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from ...times import zone
from ..common.existing import Force, new_recording
from ..common.failure import Failure
from ..common.opening import cannot_read
from ..common.options import CapturePath, FilterText, Local, Ports, Redact
from ..common.output import warn
from ..common.progress import Progress
from ..protocol.filter import compiled
from .transform_output import AsJson, Output, print_summary, summary_line, write_origin

_OFFSET = re.compile(r"\+(.+)")
_NUMBERS = re.compile(r"(\d++)?(-)?(\d+)?")


def cut(
    capture: CapturePath,
    output: Output,
    filter_: FilterText = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Sent at this time or later: 2026-11-21T10:30:00Z, or +90s from the start.",
            metavar="TIME",
        ),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Sent at this time or earlier.", metavar="TIME")] = None,
    connection: Annotated[
        list[int] | None, typer.Option("--connection", help="Only this connection. May be repeated.", metavar="N")
    ] = None,
    exchanges: Annotated[
        str | None,
        typer.Option("--exchanges", help="Only exchanges with these numbers in barnabas ui: 10-20, 7, 100-.", metavar="N-N"),
    ] = None,
    with_handshakes: Annotated[
        bool,
        typer.Option(
            "--with-handshakes/--without-handshakes",
            help="Keep the start of these connections: ApiVersions and SASL.",
        ),
    ] = True,
    redact: Redact = True,
    port: Ports = None,
    force: Force = False,
    as_json: AsJson = False,
    local: Local = False,
) -> None:
    """Copy a part of a capture: whole exchanges, unchanged, with their times, connections and notes.

    Exchanges must meet all conditions given. barnabas merge joins parts again.
    """
    from ....captures.transform.cut import Cut, CutSelection
    from ....captures.transform.write import Writer

    wanted = compiled(filter_) if filter_ is not None else None
    if str(capture) == "-":
        raise Failure("standard input cannot be read twice; save it to a file first: barnabas import - -o DIR")
    part = CutSelection(
        wanted,
        _time(start, "--from"),
        _time(end, "--to"),
        frozenset(connection) if connection else None,
        _numbers(exchanges) if exchanges is not None else None,
        with_handshakes,
    )
    with new_recording(output, [capture], force) as place:
        writer = Writer(place, redact=redact, one_file=output.suffix == ".pcapng")
        with Progress("cutting") as progress:
            found = Cut(capture, part, tuple(port or (9092,)), progress.show)
            with cannot_read(capture):
                events = found.events()
                first = next(events, None)
            if first is None:
                raise Failure(f"none of the {found.of_exchanges} exchanges match; nothing was written")
            writer.write(first)
            for event in events:
                writer.write(event)
        writer.close()
        source = capture.name
        write_origin(place, output, {"made_by": "barnabas cut", "from": source, "exchanges": found.exchanges})
        warn([found.note, *writer.faults])
        beside = writer.counts["exchanges"] - found.exchanges
        words = f" of {found.of_exchanges}" + (f", {beside} of them handshakes" if beside > 0 else "")
        summary = {"output": str(output), "selected": found.exchanges, "of": found.of_exchanges, **writer.counts}
        print_summary(as_json, summary, [summary_line(writer, words, output)])


def _time(text: str | None, option: str) -> int | None:
    """Nanoseconds since the epoch, or since the beginning of the capture."""
    from ....decoder.filter.language import literals

    if text is None:
        return None
    offset = _OFFSET.fullmatch(text)
    if offset:
        found = literals.number(offset[1], "" if offset[1][-1:].isalpha() else "s")
        if found is not None and found.unit == "time" and found.value >= 0:
            return int(found.value)
    else:
        moment = literals.moment(text, zone())
        if moment is not None:
            return moment
    raise Failure(f"{option} {text}: a time looks like 2026-11-21T10:30:00Z, 2026-11-21T10:30:00.5+01:00, or +90s")


def _numbers(text: str) -> tuple[int, int]:
    match = _NUMBERS.fullmatch(text)
    if not match or not (match[1] or match[3]):
        raise Failure(f"--exchanges {text}: numbers look like 10-20, 7, 100- or -50")
    first = int(match[1] or 1)
    last = int(match[3]) if match[3] else (1 << 62 if match[2] else first)
    if not match[1]:
        first = 1
    if first > last or first < 1:
        raise Failure(f"--exchanges {text}: numbers start at 1, and the first must not be above the last")
    return first, last
