"""What commands print: JSON on standard output, notes on standard error, counts in words."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from ...safe import visible

if TYPE_CHECKING:
    from rich.console import Console


def json_text(value: object, indent: int | None = None) -> str:
    """JSON that can do nothing to a terminal. What JSON has no form for is written as text."""
    from ....captures.export.text import json_visible

    return json_visible(json.dumps(value, ensure_ascii=False, default=str, indent=indent))


def print_json(value: object, indent: int | None = None) -> None:
    """Print a value on a line of its own, or with `indent` on several."""
    typer.echo(json_text(value, indent))


def warn(notes: Iterable[str | None]) -> None:
    """Print notes on standard error; None and "" are skipped."""
    for note in filter(None, notes):
        print(f"barnabas: {visible(note)}", file=sys.stderr, flush=True)


def counted(number: int, what: str) -> str:
    """``1 finding``, ``2 findings``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def terminal_width(most: int = 1000) -> int:
    """Columns for text; 100 where there is no terminal."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, 40), most)


def table_console() -> Console:
    """The console for tables: as wide as the terminal; without one, wide enough that no row is broken."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False)
    return console if console.is_terminal else Console(width=1000, highlight=False, emoji=False, markup=False)
