"""Shared by ``redact``, ``cut`` and ``merge``: options and the summary."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...safe import visible
from ..common.output import counted, print_json

if TYPE_CHECKING:
    from ....captures.transform.write import Writer

Output = Annotated[
    Path,
    typer.Option("--output", "-o", help="Write the recording into this directory, or into a file that ends with .pcapng.", metavar="PATH"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object about what was done.")]


def write_origin(place: Path, target: Path, origin: dict[str, Any]) -> None:
    """Write the origin beside the segments; a single file has no place for it."""
    from ....captures.transform.write import ORIGIN

    if target.suffix != ".pcapng":
        (place / ORIGIN).write_text(json.dumps(origin, ensure_ascii=False, indent=1) + "\n", "utf-8")
        (place / ORIGIN).chmod(0o600)


def summary_line(writer: Writer, words: str, target: Path) -> str:
    """One line about what was written."""
    counts = writer.counts
    what = f"{counted(counts['exchanges'], 'exchange')} on {counted(counts['connections'], 'connection')}"
    return f"{what}{words}; next: barnabas ui {visible(str(target))}"


def print_summary(as_json: bool, summary: dict[str, Any], lines: list[str]) -> None:
    """The summary: an object on standard output, or lines on standard error."""
    if as_json:
        print_json(summary)
    else:
        for line in lines:
            print(line, file=sys.stderr)
