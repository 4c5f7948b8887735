"""``barnabas export``: a table of a capture for other tools, or one exchange as a program, a test or a dump."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from ...safe import visible
from ..common.completion import table_names
from ..common.existing import Force, exists
from ..common.failure import Failure, cannot_write
from ..common.opening import cannot_read, open_or_fail, schemas_of
from ..common.options import FilterText, Local, OptionalCapture, Registry, SchemaFiles, ShowValues
from ..common.output import json_text, warn
from ..common.progress import Progress
from ..common.signals import stopping_on_signals
from ..protocol.filter import compiled
from ..protocol.frame import tree

if TYPE_CHECKING:
    from ....captures import Capture, tables
    from ....captures.export import Format
    from ....decoder.filter import Filter
    from ....decoder.values import SchemaSource

_BETWEEN = 256  # rows between two looks at the clock


class As(StrEnum):
    """What is written."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    PYTHON = "python"
    PYTEST = "pytest"
    HEX = "hex"
    JSON = "json"
    TEXT = "text"


_OF_TABLES = (As.JSONL, As.CSV, As.PARQUET)
_SUFFIXES = {".jsonl": As.JSONL, ".ndjson": As.JSONL, ".csv": As.CSV, ".parquet": As.PARQUET, ".py": As.PYTHON,
             ".hex": As.HEX, ".json": As.JSON, ".txt": As.TEXT}  # fmt: skip

_ALIKE = ({As.JSONL, As.JSON}, {As.PYTHON, As.PYTEST}, {As.TEXT, As.HEX})
"""Formats that share a suffix."""


def export(
    capture: OptionalCapture = None,
    form: Annotated[
        As | None,
        typer.Option(
            "--as", help="The format: jsonl, csv or parquet; for one exchange python, pytest, hex, json or text."
        ),
    ] = None,
    table: Annotated[
        str, typer.Option("--table", "-t", help="The table; see --list.", metavar="NAME", autocompletion=table_names)
    ] = "exchanges",
    filter_: FilterText = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="The columns, in this order; see --list.", metavar="NAME,...")
    ] = None,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="Include the decoded request and response (with the table exchanges).")
    ] = False,
    show_values: ShowValues = False,
    limit: Annotated[int | None, typer.Option("--limit", help="At most this many rows.", min=0, metavar="N")] = None,
    exchange: Annotated[
        int | None,
        typer.Option("--exchange", help="Write one exchange, by its number in `ui` and `decode`.", min=1, metavar="N"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the rows, or the exchange, into this file; - is standard output.", metavar="PATH")
    ] = Path("-"),
    force: Force = False,
    schema: SchemaFiles = None,
    registry: Registry = None,
    listing: Annotated[bool, typer.Option("--list", help="List the tables and their columns.")] = False,
    local: Local = False,
) -> None:
    """Write a table of a capture as JSON lines, CSV or Parquet, or one exchange as a Python program, a pytest case or a dump.

    Secrets are masked, and contents of records are left out without --show-values. A file appears once it is
    complete; Ctrl-C leaves no file.
    """
    from ....captures import tables
    from ....captures.export import Format

    if listing:
        _list()
        return
    if capture is None:
        raise Failure("which capture? Give a recording's directory or a file (or --list for the tables)")
    chosen = _format(form, output, exchange is not None)
    schemas = schemas_of(schema or [], registry)
    if exchange is not None:
        _export_exchange(capture, exchange, chosen, output, force, show_values, schemas)
        return
    if chosen not in _OF_TABLES:
        raise Failure(f"--as {chosen} shows one exchange: say which with --exchange N")
    wanted = None if filter_ is None else compiled(filter_)
    try:
        options = tables.Options(*_columns(table, columns, bodies, show_values), show_values, schemas)
    except ValueError as error:
        hint = "; add --show-values" if "values are requested" in str(error) else ""
        raise Failure(visible(str(error)) + hint) from None
    _export_table(capture, Format(str(chosen)), options, wanted, limit, output, force)


def _format(form: As | None, output: Path, one: bool) -> As:
    """What to write into `output`. Raises Failure for a name that says otherwise."""
    suffix = output.suffix.lower()
    named = _SUFFIXES.get(suffix)
    if form is None:
        if named is None and suffix:
            raise Failure(f"{visible(str(output))}: no format has names like this; use {', '.join(_SUFFIXES)}, or give the format with --as")
        return named or (As.TEXT if one else As.JSONL)
    if named is not None and form is not named and {form, named} not in _ALIKE:
        raise Failure(f"{visible(str(output))} is a name for {named}, but --as says {form}: change one of them")
    return form


def _columns(
    table: str, names: str | None, bodies: bool, show_values: bool
) -> tuple[tables.Table, list[tables.Column]]:
    """The table and its columns to write. Raises ValueError, Failure."""
    from ....captures import tables

    described = tables.described(table)
    columns = described.chosen([name.strip() for name in (names or "").split(",") if name.strip()])
    more: tuple[str, ...] = ()
    if bodies:
        if table != "exchanges":
            raise Failure(f"--bodies needs the table exchanges, not {table}")
        more = ("request", "response", "embedded")
    if show_values and table == "records" and names is None:
        more = ("key", "value", "headers")
    return described, [*columns, *(described.column(name) for name in more if described.column(name) not in columns)]


def _export_table(
    capture: Path,
    form: Format,
    options: tables.Options,
    wanted: Filter | None,
    limit: int | None,
    output: Path,
    force: bool,
) -> None:
    from ....captures import tables
    from ....captures.export import Format, check, write

    if form is Format.PARQUET and str(output) == "-" and sys.stdout.isatty():
        raise Failure("Parquet cannot be shown on a terminal: give -o FILE")
    try:
        check(form)
    except tables.MissingLibrary as error:
        raise Failure(f"--as {form}: {error}") from None
    try:
        with open_or_fail(capture) as opened, stopping_on_signals(), cannot_read(capture):
            try:
                rows = tables.Rows(opened, options, wanted)
            except ValueError as error:
                raise Failure(str(error)) from None
            with _writing(output, force) as file:
                count = write(file, form, islice(_with_progress(opened, rows), limit), options.columns)
            warn((opened.note, *rows.notes))
    except KeyboardInterrupt:
        if str(output) != "-":
            warn([f"stopped; {output} was not written"])
        raise typer.Exit(130) from None
    if str(output) != "-":
        print(f"{count:,} row{'s' * (count != 1)} of {options.table.name} in {visible(str(output))}", file=sys.stderr)


def _with_progress(capture: Capture, rows: tables.Rows) -> Iterator[dict[str, Any]]:
    """The rows, with a line about how far it is."""
    with Progress(capture.path.name) as progress:
        for number, row in enumerate(rows):
            if number % _BETWEEN == 0:
                progress.show(rows.done, rows.total)
            yield row


class _Sink(io.RawIOBase):
    """A file whose errors name the output, not the capture."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            raise cannot_write(self._path, error) from None


@contextmanager
def _writing(path: Path, force: bool) -> Iterator[BinaryIO]:
    """`written`, with Failure for a file that cannot be."""
    from ....captures.export import OutputExists, written

    inner = written(path, force)
    try:
        file = inner.__enter__()
    except OutputExists:
        raise exists(path) from None
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        yield cast(BinaryIO, _Sink(path, file))
    except BaseException as error:
        try:
            inner.__exit__(type(error), error, error.__traceback__)
        except OSError as fault:
            if fault is not error:
                raise cannot_write(path, fault) from None
        raise
    try:
        inner.__exit__(None, None, None)
    except OutputExists:
        raise exists(path) from None
    except OSError as error:
        raise cannot_write(path, error) from None


def _export_exchange(
    path: Path, number: int, form: As, output: Path, force: bool, values: bool, schemas: SchemaSource | None
) -> None:
    """Write one exchange."""
    from ....captures.export import NoProgram

    if form in _OF_TABLES:
        raise Failure(f"--as {form} shows tables; one exchange is shown as python, pytest, hex, json or text")
    with open_or_fail(path) as opened:
        if number > len(opened.rows()):
            raise Failure(f"--exchange {number}: {visible(str(path))} has {len(opened.rows())} exchanges")
        try:
            text = _exchange_text(opened, number - 1, form, values, schemas)
        except NoProgram as error:
            raise Failure(f"--exchange {number}: {visible(str(error))}") from None
        except ValueError as error:
            raise Failure(f"--exchange {number} cannot be read back: {visible(str(error))}") from None
        with _writing(output, force) as file:
            file.write(text.encode("utf-8", "replace"))


def _exchange_text(opened: Capture, number: int, form: As, values: bool, schemas: SchemaSource | None) -> str:
    """One exchange as text. Raises NoProgram, and ValueError when the file is damaged."""
    from ....captures.export import case, dump, program
    from ....captures.reading.selection import Selection
    from ....captures.tables.rows import EVERYTHING

    if form in (As.PYTHON, As.PYTEST):
        return (program if form is As.PYTHON else case)(opened.exchange(number), values)
    if form is As.HEX:
        return "".join(visible(line) + "\n" for line in dump(opened.exchange(number), values))
    exchange = Selection(opened, EVERYTHING, topics=True).exchange(number)
    found = exchange.to_dict(values=values, schemas=schemas)
    if form is As.JSON:
        return json_text(found, indent=2) + "\n"
    return "".join(visible(line) + "\n" for line in tree(found, 0, exchange.api))


def _list() -> None:
    from ....captures import tables

    for table in tables.DESCRIBED.values():
        typer.echo(f"{table.name}: one row per {table.row}")
        width = max(len(column.name) for column in table.columns)
        for column in table.columns:
            kind = column.type + ("?" if column.null else "")
            option = " (with --show-values)" if column.payload else " (by name, or --bodies)" if column.extra else ""
            typer.echo(f"  {column.name:<{width}}  {kind:<8}  {column.meaning.replace('`', '')}{option}")
        typer.echo()
