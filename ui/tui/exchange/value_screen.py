"""The whole key, value or header of a record: JSON and what schemas decode as indented JSON, text in lines, other bytes in
hexadecimal. Long lines are wrapped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from rich.cells import chop_cells
from textual.binding import BindingType
from textual.widget import Widget

from ....captures.export import written
from ....decoder.values import View, ViewKind
from ...safe import visible
from ..keys import bindings
from ..model.columns import size
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Role
from .copying import CopyFormat, copy
from .exporting import ExportFormat, export
from .fields import LARGEST
from .side_screen import SideScreen

_BYTES_PER_LINE = 16
_BINARY = frozenset({ViewKind.HEX, ViewKind.CONFLUENT})


def whole_text(found: View) -> str:
    """A value for people to read: indented if it is JSON, else as it is."""
    if found.value is not None and found.kind is not ViewKind.TEXT:
        return json.dumps(found.value, indent=2, ensure_ascii=False)
    return found.text


def whole_lines(data: bytes, found: View, width: int) -> list[str]:
    """The lines of a value on a screen of `width` cells, safe for the terminal."""
    if found.kind in _BINARY and found.value is None:
        return list(_hexadecimal(data[:LARGEST]))
    lines: list[str] = []
    for line in whole_text(found).split("\n"):
        lines += chop_cells(visible(line.removesuffix("\r").expandtabs(4)), max(width, 1)) or [""]
    return lines


def _hexadecimal(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _BYTES_PER_LINE):
        part = data[at : at + _BYTES_PER_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        yield f"{at:08x}  {part.hex(' '):<{3 * _BYTES_PER_LINE}} {letters}"


class ValueScreen(SideScreen):
    """`data`, which `view()` decodes. `title`: what it is, and the name of a file that it is exported to."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("value")
    context = "value"
    contexts = ("value", "list", "app")

    def __init__(self, title: str, data: bytes, view: Callable[[], View]):
        super().__init__()
        self.value_title, self.data, self.view, self.found = title, data, view, view()
        self.table = Table()

    def body(self) -> Iterable[Widget]:
        return (self.table,)

    def begin(self) -> None:
        self.table.focus()
        self._show()

    def on_resize(self) -> None:
        if self.table.is_mounted:
            self._show()

    def schemas_loaded(self) -> None:
        self.found = self.view()
        self._show()

    def _show(self) -> None:
        found, role = self.found, self._role
        lines = whole_lines(self.data, found, self.app.size.width - 3)  # the marker, the scroll bar, a margin
        self.table.show([[(line, role)] for line in lines])
        schema = f", schema id {found.schema_id}" if found.schema_id is not None else ""
        self.headline.show([
            (f" {self.value_title} ", "label"), (f" {size(len(self.data))}B {found.kind}{schema}", "title"),
            (f"  {visible(found.note)}" if found.note else "", "waiting"),
        ])  # fmt: skip
        self._about()

    @property
    def _role(self) -> Role:
        return "number" if self.found.kind in _BINARY else "string"

    def _about(self) -> None:
        self.about.show([(f" line {self.table.cursor + 1:,} of {len(self.table.rows):,}", "muted")])

    def on_line_list_moved(self, event: LineList.Moved) -> None:
        self._about()

    def action_copy(self) -> None:
        text = self.data.hex() if self.found.kind in _BINARY else whole_text(self.found)
        copy(self.app, CopyFormat("value", text))

    def action_export(self) -> None:
        name = self.value_title.replace(" ", "-")
        text = (whole_text(self.found) + "\n").encode("utf-8", "surrogateescape")
        ways = [ExportFormat("the bytes of the value", f"{name}.bin", lambda path: _saved(path, self.data))]
        if self.found.kind not in _BINARY:
            ending = "txt" if self.found.kind is ViewKind.TEXT else "json"
            ways.insert(0, ExportFormat("the value as it is shown", f"{name}.{ending}", lambda path: _saved(path, text)))
        export(self, ways)


def _saved(path: Path, data: bytes) -> str:
    with written(path, force=True) as file:
        file.write(data)
    return f"{len(data):,} bytes"
