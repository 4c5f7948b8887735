"""Exports for other tools: tables as JSON lines, CSV and Parquet; one exchange as a program, a test, a dump.

with open_capture(path) as capture, written(Path("errors.csv")) as file:
    options = tables.Options(tables.described("errors"), tables.described("errors").chosen())
    write(file, Format.CSV, tables.Rows(capture, options), options.columns)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..pcap.atomic_file import OutputExists, written
from .dump import dump
from .program import NoProgram, case, program
from .stable_fields import stable

if TYPE_CHECKING:
    from .table_writer import Format, check, write

__all__ = ["Format", "NoProgram", "OutputExists", "case", "check", "dump", "program", "stable", "write", "written"]


def __getattr__(name: str) -> Any:
    """Import the writing of tables when it is used: most commands start faster without it."""
    if name not in ("Format", "check", "write"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import table_writer

    return getattr(table_writer, name)
