"""What leaves a capture for other tools: tables as JSON lines, CSV and Parquet; one exchange as a program, a test, a dump.

with open_capture(path) as capture, written(Path("errors.csv")) as file:
    options = tables.Options(tables.described("errors"), tables.described("errors").chosen())
    write(file, Format.CSV, tables.Rows(capture, options), options.columns)
"""

from __future__ import annotations

from .answers import stable
from .dump import dump
from .files import ThereAlready, written
from .program import NoProgram, case, program
from .writing import Format, check, write

__all__ = ["Format", "NoProgram", "ThereAlready", "case", "check", "dump", "program", "stable", "write", "written"]
