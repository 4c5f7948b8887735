"""``barnabas ui``: look at a capture on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .opening import open_or_fail


def ui(
    capture: Annotated[Path, typer.Argument(help="A segment, a directory of segments, or any pcap or pcapng file.")],
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of the screen.")] = False,
) -> None:
    """Browse a capture: the list of exchanges, and every field of a request and its response.

    A directory that a running proxy records into is shown live. Without a terminal, plain lines are printed.
    """
    with open_or_fail(capture) as opened:
        from ..tui.app import on_terminal, run
        from ..tui.plain import plain_lines

        if plain or not on_terminal():
            plain_lines(opened)
        else:
            run(opened, title=str(capture), live=opened.live)
