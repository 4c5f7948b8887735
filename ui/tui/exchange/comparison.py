"""Two exchanges side by side, field by field. Differences are highlighted; those between any two runs are dimmed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ....captures import Capture, Row
from ....captures.diff.field_pairs import FieldPair, both
from ...safe import fit, visible
from ...times import clock
from ..keys import bindings
from ..model.columns import api, client_name, duration, result
from ..widgets.line_list import LineList, Lines
from ..widgets.palette import Cell, Role
from ..widgets.styled import TitleLine
from .side_screen import SideScreen

BEFORE = 20_000
_WIDE = 100
"""Cells from which on the values get more room than the names."""


class PairLines(Lines):
    """Fields: name, left value, right value. A `str` among them is a heading."""

    def __init__(self) -> None:
        self.pairs: list[FieldPair | str] = []

    def count(self) -> int:
        return len(self.pairs)

    def state(self, position: int, width: int) -> object:
        return self.pairs[position], width

    def cells(self, position: int, width: int, chosen: bool) -> list[Cell]:
        pair = self.pairs[position]
        if isinstance(pair, str):
            return [(pair, "title")]
        name, value = widths(width)
        role: Role = "" if pair.same else "muted" if pair.volatile else "error"
        mark = " " if pair.same else "~" if pair.volatile else "!"
        path = visible(pair.path)
        # The end of a path matters more than its beginning.
        short = path if len(path) <= name else "…" + path[len(path) - name + 1 :]
        return [
            (f"{mark} ", role), (fit(short, name) + " ", "muted" if pair.same or pair.volatile else "name"),
            (fit(visible(pair.a), value) + " ", "muted" if pair.same else role), (fit(visible(pair.b), value), "muted" if pair.same else role),
        ]  # fmt: skip


class PairList(LineList):
    """Two exchanges' fields, drawn by line."""

    source: PairLines

    def __init__(self) -> None:
        super().__init__(PairLines())

    @property
    def pairs(self) -> list[FieldPair | str]:
        """What is shown."""
        return self.source.pairs

    def show(self, found: list[FieldPair | str]) -> None:
        """Show other fields."""
        self.source.pairs = found
        self.restart()


def widths(width: int) -> tuple[int, int]:
    """Cells for a name and for a value."""
    name = max(width * (30 if width >= _WIDE else 36) // 100, 16)
    return name, max((width - name - 4) // 2, 8)


class ComparisonScreen(SideScreen):
    """Row `a` on the left, `b` on the right."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("compare")
    AUTO_FOCUS = "PairList"
    context = "compare"
    contexts = ("compare", "list", "app")

    def __init__(self, capture: Capture, a: Row, b: Row):
        super().__init__()
        self.capture, self.a, self.b = capture, a, b
        self.everything = False
        self.found: list[tuple[str, list[FieldPair]]] = []
        self.titles, self.list = TitleLine(), PairList()

    def body(self) -> Iterable[Widget]:
        return self.titles, self.list

    def begin(self) -> None:
        self._read()

    def _read(self) -> None:
        one, other = self.capture.exchange(self.a), self.capture.exchange(self.b)
        self.found = both(one, other)
        for which, row, exchange in (("left", self.a, one), ("right", self.b, other)):
            if exchange.undecoded:
                self.notify(visible(f"#{row.number + 1} ({which}) could not be read: {exchange.undecoded}"), timeout=5, markup=False)
        self._show()

    def _show(self) -> None:
        lines: list[FieldPair | str] = []
        for name, found in self.found:
            differing = [pair for pair in found if not pair.same]
            real = sum(not pair.volatile for pair in differing)
            if not found:
                text = "none on either side"
            elif not differing:
                text = f"all {len(found):,} fields are the same"
            else:
                text = f"{real:,} of {len(found):,} fields differ"
                if real < len(differing):
                    text += f", and {len(differing) - real:,} that always differ (~)"
            lines += [f"{name}: {text}", *(found if self.everything else differing)]
        self.list.show(lines)
        self.list.move_to(1 if len(lines) > 1 else 0)
        self.headline.show([(" COMPARE ", "label"), *_named(self.a), ("   with  ", "muted"), *_named(self.b)])
        self._titles()
        self._about()

    def _titles(self) -> None:
        name, value = widths(self.app.size.width - 2)
        sides = [_short(row) for row in (self.a, self.b)]
        self.titles.show(f"   {fit('Field', name)} {fit(sides[0], value)} {fit(sides[1], value)}")

    def on_resize(self) -> None:
        self._titles()

    def on_line_list_moved(self) -> None:
        self._about()

    def _about(self) -> None:
        """Show the field under the cursor in full."""
        pair = self.list.pairs[self.list.cursor] if self.list.cursor < len(self.list.pairs) else ""
        if isinstance(pair, str):
            self.about.show([])
            return
        role: Role = "" if pair.same else "muted" if pair.volatile else "error"
        cells: list[Cell] = [(f" {visible(pair.path)}  ", "name"), (visible(pair.a), role)]
        if not pair.same:
            cells += [("  |  ", "muted"), (visible(pair.b), role)]
        self.about.show(cells)

    # --- keys ----------------------------------------------------------------------------------------------

    def action_all(self) -> None:
        self.everything = not self.everything
        self._show()

    def action_next(self, step: int) -> None:
        """Go to the next difference that is not volatile, after the last one to the first."""

        def differs(at: int) -> bool:
            pair = self.list.pairs[at]
            return isinstance(pair, FieldPair) and not pair.same and not pair.volatile

        if not self.list.move_to_next(step, differs):
            self.notify("The only differences are those that any two runs have.", timeout=3)

    def action_swap(self) -> None:
        self.a, self.b = self.b, self.a
        self._read()


def _named(row: Row) -> list[Cell]:
    outcome, role = result(row)
    latency = "" if row.latency_ns is None else f" {duration(row.latency_ns)}"
    return [(f" {_short(row)}", "title"), (f" {outcome.strip()}", role), (latency, "muted")]


def _short(row: Row) -> str:
    return f"#{row.number + 1} {api(row)} v{row.api_version} {client_name(row)} {clock(row.time_ns)}"


def before_it(capture: Capture, row: Row) -> Row | None:
    """The exchange of the same API before `row`, by the same client if there is one, among the last `BEFORE` rows."""
    rows = capture.rows()
    other: Row | None = None
    for number in range(row.number - 1, max(row.number - 1 - BEFORE, -1), -1):
        each = rows[number]
        if each.api_key != row.api_key or each.state == "orphan":
            continue
        if each.client_id == row.client_id:
            return each
        other = other or each
    return other
