"""``barnabas decode``: a capture as lines for people, or as JSON for programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from .opening import open_or_fail


def decode(
    capture: Annotated[Path, typer.Argument(help="A segment, a directory of segments, or any pcap or pcapng file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per exchange.")] = False,
    bodies: Annotated[bool, typer.Option(help="With --json: the decoded request and response.")] = True,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="With --json: keys, values and headers of records too.")
    ] = False,
) -> None:
    """Print every exchange of a capture, in order of the requests."""
    with open_or_fail(capture) as opened:
        if as_json:
            for exchange in opened.exchanges():
                found = exchange.to_dict(bodies=bodies, values=show_values)
                sys.stdout.write(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n")
        else:
            from ..tui.plain import plain_lines

            plain_lines(opened)
        sys.stdout.flush()
        if opened.note:
            print(f"barnabas: {opened.note}", file=sys.stderr)
