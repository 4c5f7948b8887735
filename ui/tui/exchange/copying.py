"""Copy from an exchange: a value, its path, the whole as JSON, bytes, a filter. The text goes to the terminal's clipboard
by OSC 52, which works over SSH too. What the screen hides is not copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.app import App

from ....captures import Row
from ....captures.export.dump import masked
from ....decoder import Direction, Exchange
from ....decoder.present import payload_ranges
from ....decoder.values import SchemaSource
from ...safe import fit, visible
from ..dialogs.dialogs import Pick
from ..model.columns import INFO, ListColumn
from ..model.filter_terms import cell_term
from ..widgets.field_tree import TreeField
from ..widgets.palette import Cell

if TYPE_CHECKING:
    from ..model.exchange_info import ExchangeInfo

SHOWN = 60
"""Characters of a text in the list to choose from."""


class CopyFormat(NamedTuple):
    """One way to copy. `text` is a function where it takes time to make."""

    name: str
    text: str | Callable[[], str]


def of_cell(row: Row, column: ListColumn, info: ExchangeInfo | None) -> list[CopyFormat]:
    """What stands in a column of the list, and the filter for it."""
    if column.title == INFO and info is not None:
        return [CopyFormat(INFO, info.text), CopyFormat(f"filter for {INFO}", info.term)]
    value = column.cell(row.number + 1, row)[0].strip()
    found = [CopyFormat(f"{column.title}", value)]
    return [*found, CopyFormat(f"filter for {column.title}", cell_term(row, column.field))] if column.field else found


def of_field(field: TreeField | None, term: str) -> list[CopyFormat]:
    """A field's value as it is shown, its path, and the filter for it."""
    if field is None:
        return []
    whole = field.whole
    value: str | Callable[[], str] = field.value.strip('"') if whole is None else lambda: whole().text
    return [CopyFormat("value", value), CopyFormat("path of the field", field.path), CopyFormat("filter for the value", term)]


def of_exchange(row: Row, exchange: Exchange, values: bool, schemas: SchemaSource | None = None) -> list[CopyFormat]:
    """The exchange as JSON, its frames in hexadecimal, and the filter that finds it."""
    found = [CopyFormat("exchange as JSON", lambda: json.dumps(exchange.to_dict(bodies=True, values=values, schemas=schemas)))]
    sides = (
        ("request", Direction.REQUEST, exchange.request, exchange.request_message),
        ("response", Direction.RESPONSE, exchange.response, exchange.response_message),
    )
    for name, direction, frame, message in sides:
        # The bytes of a frame with records would show hidden values.
        if frame is not None and (values or not payload_ranges(direction, exchange.api, frame, message)):
            found.append(CopyFormat(f"{name} in hexadecimal", masked(exchange, direction).hex()))
    return [*found, CopyFormat("filter for this exchange", f"conn == {row.connection} and corr == {row.correlation_id}")]


def copy_one(app: App[Any], formats: list[CopyFormat]) -> None:
    """Ask which, and copy it."""
    formats = [each for each in formats if each.text]

    def chosen(position: int | None) -> None:
        if position is not None:
            copy(app, formats[position])

    lines: list[list[Cell]] = []
    for form in formats:
        preview = form.text if isinstance(form.text, str) else ""
        lines.append([(fit(form.name, 26), "name"), (fit(visible(preview), min(len(preview), SHOWN)), "muted")])
    app.push_screen(Pick("Copy", lines, "copy it"), chosen)


def copy(app: App[Any], form: CopyFormat) -> None:
    """Into the clipboard."""
    text = form.text if isinstance(form.text, str) else form.text()
    app.copy_to_clipboard(text)
    app.notify(f"Copied: {form.name}, {len(text):,} characters.", timeout=2)
