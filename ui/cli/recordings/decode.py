"""``barnabas decode``: print a capture as lines or as JSON, or decode one message given as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.completion import release_names
from ..common.failure import Failure
from ..common.opening import open_or_fail, schemas_of
from ..common.options import FilterText, Local, OptionalCapture, Registry, SchemaFiles, ShowValues
from ..common.output import warn
from ..protocol.filter import compiled
from ..protocol.frame import Api, ApiVersion, MessageSpec, show_frame

if TYPE_CHECKING:
    from ....captures import Capture
    from ....captures.reading.selection import Selection
    from ....decoder import Exchange


def decode(
    capture: OptionalCapture = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per exchange.")] = False,
    bodies: Annotated[
        bool, typer.Option("--bodies/--no-bodies", help="Include the decoded request and response (with --json).")
    ] = True,
    show_values: ShowValues = False,
    filter_: FilterText = None,
    schema: SchemaFiles = None,
    registry: Registry = None,
    hex_: Annotated[
        str | None, typer.Option("--hex", help="Decode one message in hexadecimal instead of a capture; - reads standard input.", metavar="TEXT")
    ] = None,
    request: Annotated[bool, typer.Option("--request", help="A request (with --hex).")] = False,
    response: Annotated[bool, typer.Option("--response", help="A response (with --hex).")] = False,
    api: Api = "",
    api_version: ApiVersion = None,
    body: Annotated[bool, typer.Option("--body", help="A body without a header (with --hex).")] = False,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            help="With --hex: use the layout of this Kafka release, where it differs.",
            metavar="RELEASE",
            autocompletion=release_names,
        ),
    ] = None,
    tree: Annotated[bool, typer.Option("--tree", help="With --hex: fields as indented lines (the default).")] = False,
    hexmap: Annotated[bool, typer.Option("--hexmap", help="With --hex: every field with its bytes.")] = False,
    local: Local = False,
) -> None:
    """Print every exchange of a capture, in order of the requests; or, with --hex, one message."""
    from ....captures.export.text import json_visible
    from ....captures.reading.selection import Selection
    from ....decoder.present import Presenter

    if hex_ is not None:
        if capture is not None or request == response:
            raise Failure("--hex takes one of --request and --response, and no capture")
        if filter_ is not None:
            raise Failure("--filter selects exchanges of a capture, but --hex is one message")
        if as_json + tree + hexmap > 1:
            raise Failure("--json, --tree and --hexmap cannot be combined")
        form = "json" if as_json else "hexmap" if hexmap else "tree"
        what = MessageSpec("request" if request else "response", api or None, api_version, body, release)
        show_frame(hex_, what, form, Presenter(show_values, schemas=schemas_of(schema or [], registry)))
        return
    if capture is None:
        raise Failure("nothing to decode: give a capture, or --hex with --request or --response")
    schemas = schemas_of(schema or [], registry)
    wanted = None if filter_ is None else compiled(filter_)
    with open_or_fail(capture) as opened:
        selection = None if wanted is None else Selection(opened, wanted, topics=as_json and bodies)
        if as_json:
            rows = opened.rows()
            for number, exchange in opened.numbered_exchanges() if selection is None else _selected(opened, selection):
                found = exchange.to_dict(bodies=bodies, values=show_values, schemas=schemas)
                if number >= rows.done:
                    found["pending_ns"] = rows[number].waiting_ns
                sys.stdout.write(json_visible(json.dumps(found, ensure_ascii=False, separators=(",", ":"))) + "\n")
        else:
            from ...tui.plain import plain_lines

            plain_lines(opened, selection=selection)
        sys.stdout.flush()
        warn([opened.note])


def _selected(capture: Capture, selection: Selection) -> Iterator[tuple[int, Exchange]]:
    """The exchanges that a filter selects, in the order of their requests, each with the number of its row."""
    rows = capture.rows()
    for number in sorted(selection.rows(), key=lambda number: (rows[number].time_ns, number)):
        yield number, selection.exchange(number)
