"""The field tree of one frame, drawn by line over the flat list of `fields`."""

from __future__ import annotations

import textwrap
from bisect import bisect_left
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...safe import fit
from ..exchange.field_list import Field, Tree, visible_fields
from ..keys import bindings
from .styled import Painted


class FieldTree(ScrollView, Painted, can_focus=True):
    """Fields with a cursor; arrays and structs fold. ``tree`` may be replaced at any time with `show`."""

    DEFAULT_CSS = """
    FieldTree {
        border-title-color: $text-muted; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; border: round $border-blurred; }
    FieldTree:focus { border: round $primary; border-title-color: $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("tree")

    class Moved(Message):
        """The cursor stands on another field."""

        def __init__(self, tree: FieldTree):
            super().__init__()
            self.field_tree = tree

    def __init__(self, title: str, id: str):
        super().__init__(id=id)
        self.tree_shown = Tree()
        self.cursor = 0
        self._lines: list[int] = []
        self.border_title = title

    def show(self, tree: Tree, keep_place: bool = False) -> None:
        """Draw another tree; with `keep_place` (the same frame, other masking) cursor and folds stay."""
        old = self.tree_shown
        self.tree_shown = tree
        if keep_place:
            folds = {(f.depth, f.path, f.name): f.folded for f in old.fields if f.below}
            for path in [field.path for field in old.fields if field.opened]:
                at = tree.reveal(path)
                if at is not None:
                    tree.open(at)
            for field in tree.fields:
                field.folded = folds.get((field.depth, field.path, field.name), field.folded)
        else:
            self.cursor = 0
            self.scroll_to(y=0, animate=False)
        self._fold_lines()
        if not keep_place:
            # Past the folded header, where the reading begins.
            self.cursor = 1 if len(self._lines) > 1 and tree.fields[0].name == "header" else 0
        self.cursor = min(self.cursor, max(len(self._lines) - 1, 0))

    @property
    def position(self) -> int:
        """Where the field under the cursor is in the list of fields; -1 in an empty tree."""
        return self._lines[self.cursor] if self.cursor < len(self._lines) else -1

    @property
    def current(self) -> Field | None:
        """The field under the cursor."""
        return self.tree_shown.fields[self.position] if self._lines else None

    def _fold_lines(self) -> None:
        self._lines = list(visible_fields(self.tree_shown))
        self.virtual_size = Size(0, len(self._lines))
        self.refresh()

    # --- painting ------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        line = self.scroll_offset.y + y
        if line >= len(self._lines):
            note = "" if self.tree_shown.fields else self.tree_shown.note
            text = dict(enumerate(textwrap.wrap(note, max(width, 10)))).get(y, "")
            return Strip([Segment(fit(text, width), base + self.palette.muted)])
        field = self.tree_shown.telling(self._lines[line])
        if line == self.cursor:
            base += self.palette.cursor if self.has_focus else self.palette.cursor_away
        glyph = ("+ " if field.folded else "- ") if field.holds else "  "
        indent = "  " * field.depth
        head = [Segment(indent + glyph, base + self.palette.muted)]
        name_role = "error" if field.error else ("muted" if field.name.startswith("[") else "name")
        head.append(Segment(field.name, base + self.palette.of(name_role)))
        if field.value:
            head.append(Segment(": " if not field.holds else "  ", base + self.palette.muted))
            head.append(Segment(field.value, base + self.palette.of(field.role)))
        strip = Strip(head)
        if strip.cell_length > width:
            return Strip([*strip.crop(0, width - 1), Segment("…", base + self.palette.muted)])
        return strip.extend_cell_length(width, base)

    # --- moving and folding --------------------------------------------------------------------------------

    def move_to(self, line: int) -> None:
        """Put the cursor on a line of what is unfolded, and bring it into sight."""
        line = max(0, min(line, len(self._lines) - 1))
        old, self.cursor = self.cursor, line
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if line < top:
            self.scroll_to(y=line, animate=False)
        elif line >= top + height:
            self.scroll_to(y=line - height + 1, animate=False)
        self.refresh_line(old)
        self.refresh_line(line)
        self.post_message(self.Moved(self))

    def move_to_field(self, position: int) -> None:
        """Unfold what is around the field at `position` of the list, and go there."""
        fields = self.tree_shown.fields
        for at, field in enumerate(fields[:position]):
            if at + field.below >= position:
                field.folded = False
        self._fold_lines()
        self.move_to(bisect_left(self._lines, position))

    def action_move(self, lines: int) -> None:
        self.move_to(self.cursor + lines)

    def action_page(self, pages: int) -> None:
        self.move_to(self.cursor + pages * max(self.size.height - 1, 1))

    def action_ends(self, end: int) -> None:
        self.move_to(len(self._lines) - 1 if end else 0)

    def action_fold_or_unfold(self) -> None:
        field = self.current
        if field is not None and field.holds:
            self.tree_shown.open(self.position)
            field.folded = not field.folded
            self._fold_lines()
            self.move_to(self.cursor)

    def action_fold(self) -> None:
        """Fold the field, or go out to the one around it."""
        field = self.current
        if field is None:
            return
        if field.holds and not field.folded:
            self.action_fold_or_unfold()
            return
        for line in range(self.cursor - 1, -1, -1):
            if self.tree_shown.fields[self._lines[line]].depth < field.depth:
                self.move_to(line)
                return

    def action_unfold(self) -> None:
        """Unfold the field, or go in to its first one."""
        field = self.current
        if field is None or not field.holds:
            return
        if field.folded:
            self.action_fold_or_unfold()
        else:
            self.move_to(self.cursor + 1)

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        line = self.scroll_offset.y + offset.y
        if line < len(self._lines):
            again = line == self.cursor
            self.move_to(line)
            if again:
                self.action_fold_or_unfold()

    def on_resize(self) -> None:
        if self._lines:
            self.move_to(self.cursor)

    def on_focus(self) -> None:
        self.refresh_line(self.cursor)
        self.post_message(self.Moved(self))

    def on_blur(self) -> None:
        self.refresh_line(self.cursor)
