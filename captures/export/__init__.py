"""What leaves a capture for other tools: tables as JSON lines, CSV and Parquet; one exchange as a program, a test, a dump.

with open_capture(path) as capture, written(Path("errors.csv")) as file:
    options = tables.Options(tables.described("errors"), tables.described("errors").chosen())
    write(file, Format.CSV, tables.Rows(capture, options), options.columns)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answers import stable
from .dump import dump
from .files import ThereAlready, written
from .program import NoProgram, case, program

if TYPE_CHECKING:
    from .writing import Format, check, write

__all__ = ["Format", "NoProgram", "ThereAlready", "case", "check", "dump", "program", "stable", "write", "written"]


def __getattr__(name: str) -> Any:
    """How tables are written when it is asked for: most commands do without, and are there sooner."""
    if name not in ("Format", "check", "write"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import writing

    return getattr(writing, name)
