"""What ``redact``, ``cut`` and ``merge`` share: writing the result in its place, and saying how it went."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ....captures.export.text import json_visible
from ....captures.transform.write import ORIGIN, Occupied, Writer, replacing
from ...safe import visible
from ..analysis.finding_lines import counted
from ..common.failure import Failure
from ..common.signals import stopping_on_signals

Output = Annotated[Path, typer.Argument(help="Where to: a directory, or a file that ends with .pcapng.", metavar="OUT")]
Force = Annotated[bool, typer.Option("--force", help="Replace a recording that is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object about what was done.")]
Ports = Annotated[
    list[int] | None,
    typer.Option("--port", help="A port of the brokers in foreign captures (default 9092)."),
]
Redact = Annotated[bool, typer.Option("--redact/--no-redact", help="Mask passwords, tokens and other secrets.")]


@contextmanager
def making(target: Path, inputs: list[Path], force: bool) -> Iterator[Path]:
    """The directory to write into; what can go wrong becomes Failure, and nothing is left of it."""
    for path in inputs:
        if target.exists() and path.exists() and target.resolve() == path.resolve():
            raise Failure(f"{visible(str(target))} is the capture itself; give another place for the result")
    try:
        with stopping_on_signals(), replacing(target, force) as place:
            yield place
    except Occupied as error:
        raise Failure(visible(str(error))) from None
    except OSError as error:
        raise Failure(f"{visible(str(target))} cannot be written: {error.strerror or error}") from None


def origin(place: Path, target: Path, told: dict[str, Any]) -> None:
    """Write beside the segments where they come from; a single file has no place for it."""
    if target.suffix != ".pcapng":
        (place / ORIGIN).write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", "utf-8")
        (place / ORIGIN).chmod(0o600)


def said(writer: Writer, words: str, target: Path) -> str:
    """One line about what was written."""
    counts = writer.counts
    what = f"{counted(counts['exchanges'], 'exchange')} on {counted(counts['connections'], 'connection')}"
    return f"{what}{words}; next: barnabas ui {visible(str(target))}"


def tell(as_json: bool, told: dict[str, Any], lines: list[str]) -> None:
    """The summary: an object on standard output, or lines on standard error."""
    if as_json:
        typer.echo(json_visible(json.dumps(told, ensure_ascii=False)))
    else:
        for line in lines:
            print(line, file=sys.stderr)


def warn(notes: list[str]) -> None:
    """What is not right with what was read."""
    for note in notes:
        print(f"barnabas: {visible(note)}", file=sys.stderr)
