"""Options and arguments that several commands share: one name, one meaning, one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ... import times
from .completion import filter_words

_CAPTURE = typer.Argument(help="A segment, a directory of segments, or any pcap or pcapng file (.gz and .zst too).", metavar="CAPTURE")
_CAPTURES = typer.Argument(help="Segments, directories of segments, or any pcap or pcapng files (.gz and .zst too).", metavar="CAPTURE...")

CapturePath = Annotated[Path, _CAPTURE]
OptionalCapture = Annotated[Path | None, _CAPTURE]
CapturePaths = Annotated[list[Path], _CAPTURES]
OptionalCaptures = Annotated[list[Path] | None, _CAPTURES]

_FILTER = typer.Option(
    "--filter",
    help="Only exchanges that match this filter; see: barnabas filter fields.",
    metavar="FILTER",
    autocompletion=filter_words,
)
FilterText = Annotated[str | None, _FILTER]
RequiredFilterText = Annotated[str, _FILTER]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Write an HTML page that needs no other files.", metavar="FILE")
]
Local = Annotated[
    bool, typer.Option("--local", help="Show and read times in the local time zone instead of UTC.", callback=times.use_local)
]
Ports = Annotated[
    list[int] | None,
    typer.Option("--port", help="A port of the brokers (default 9092). May be repeated.", metavar="N"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings only.")]
RecordingDirectory = Annotated[Path, typer.Option("--output", "-o", help="Write the recording into this directory.", metavar="PATH")]
Redact = Annotated[
    bool, typer.Option("--redact/--no-redact", help="Mask passwords, tokens and other secrets of the protocol.")
]
Registry = Annotated[
    str | None, typer.Option("--registry", help="A schema registry for values that name their schema.", metavar="URL")
]
SchemaFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--schema",
        help="A schema for values: FILE[=TOPIC[:key]]\\[#MESSAGE], .avsc or a compiled Protobuf descriptor set. May be repeated.",
        metavar="FILE",
    ),
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", help="Stop after this many seconds.", min=0, metavar="SECONDS", show_default=False)
]
ShowValues = Annotated[bool, typer.Option("--show-values", help="Also show keys, values and headers of records.")]
