"""Rows as JSON lines and as CSV.

CSV follows RFC 4180 (commas, quotes doubled, CRLF), one line per row. A cell cannot become a formula of a spreadsheet:
text that would be one gets an apostrophe in front. Control, format and other characters that are not printable are
written as the escape that Python would write for them (``\\x1b``, ``\\u202e``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tables import Column

# The wide forms are what Japanese and Chinese input methods give; spreadsheets there take them for the narrow ones.
_FORMULA = tuple("=+-@\t\r＝＋－＠")
_QUOTED = frozenset(",;\"'\t ")


def json_line(row: Mapping[str, object], columns: Sequence[Column]) -> str:
    """One JSON object on one line, with the columns in order. Bytes are in hexadecimal."""
    found = {column.name: _plain(row[column.name]) for column in columns}
    return json_visible(json.dumps(found, ensure_ascii=False, separators=(",", ":"))) + "\n"


def json_visible(text: str) -> str:
    """JSON with everything that is not printable as JSON's own escapes, so that it can do nothing to a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value.hex() if isinstance(value, bytes) else value


def csv_line(row: Mapping[str, object], columns: Sequence[Column]) -> str:
    """One line of CSV. Null is empty; bytes are in hexadecimal, JSON is its text."""
    return ",".join([_cell(row[column.name], column.type) for column in columns]) + "\r\n"


def csv_head(columns: Sequence[Column]) -> str:
    """The line of column names."""
    return ",".join(column.name for column in columns) + "\r\n"


def _cell(value: Any, kind: str) -> str:
    if value is None:
        return ""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int) and kind != "json":
        return str(value)  # a number, also a negative one, is no formula
    from ..tables.columns import json_text

    return cell(json_text(_plain(value)))


def cell(text: str) -> str:
    """A text as a cell: harmless, on one line, quoted where it has to be."""
    if text.lstrip()[:1].startswith(_FORMULA) or text.startswith(_FORMULA):
        text = "'" + text
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    if _QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'
