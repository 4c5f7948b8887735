"""The fields of one frame as a foldable tree: a flat list of fields, and the widget that draws it by line.

A field knows its depth and how many fields below it follow, so folding is arithmetic and nothing is nested. The
text is safe for the terminal here already. Byte positions count from the frame's first byte.

In a large frame the items of long arrays are made when somebody opens them (`TreeField.later`, `Tree.open`).
"""

from __future__ import annotations

import textwrap
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ....decoder.values import View
from ...safe import fit
from ..keys import bindings
from .palette import Cell, Role
from .styled import StyledWidget, scroll_to_line


@dataclass(slots=True, eq=False)
class TreeField:
    """One line of the tree. `below`: how many of the next fields are inside; `span`: its bytes, (start, end); `later`: makes
    the fields inside, if they are not made yet; `hidden`: of a record batch, the bytes with keys and values; `data`, `whole`: the
    bytes of a record's key, value or header that is shown, and what makes all of them readable."""

    depth: int
    name: str
    value: str = ""
    role: Role = ""
    path: str = ""
    span: tuple[int, int] | None = None
    below: int = 0
    folded: bool = False
    error: bool = False
    later: Callable[[], list[TreeField]] | None = None
    opened: bool = False
    hidden: tuple[int, int] | None = None
    data: bytes | None = None
    whole: Callable[[], View] | None = None

    @property
    def has_children(self) -> bool:
        """Whether there are fields inside."""
        return self.below > 0 or self.later is not None


@dataclass(slots=True)
class Tree:
    """One side of an exchange. `frame`: its bytes; `hidden`: byte ranges of them that are not shown; `fault`: why it could
    not be decoded, at byte `fault_at`; `note`: shown where there is no frame; `failures`: in a large message, the first
    error inside of each field, by path."""

    fields: list[TreeField] = field(default_factory=list)
    frame: bytes = b""
    hidden: list[tuple[int, int]] = field(default_factory=list)
    fault: str | None = None
    fault_at: int | None = None
    note: str = ""
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def octets(self) -> str:
        """The size for a title."""
        return f"  {len(self.frame)} B" if self.frame else "  none"

    def open(self, at: int) -> None:
        """Make the fields inside of the one at position `at`, if they are not made yet."""
        opened = self.fields[at]
        if opened.later is None:
            return
        inside, opened.later, opened.opened = opened.later(), None, True
        self.fields[at + 1 : at + 1] = inside
        opened.below = len(inside)
        depth = opened.depth
        for around in range(at - 1, -1, -1):
            if depth == 0:
                break
            if self.fields[around].depth < depth:
                self.fields[around].below += len(inside)
                depth = self.fields[around].depth

    def reveal(self, path: str) -> int | None:
        """The position of the field with this path, which is made if need be; None if there is none."""
        while True:
            closed = None
            for at, each in enumerate(self.fields):
                if each.path == path and each.path:
                    return at
                if each.later is not None and path.startswith(each.path) and path[len(each.path) :][:1] in ("[", "."):
                    closed = at
            if closed is None:
                return None
            self.open(closed)

    def next_error(self, behind: int, errors: Iterable[tuple[str, int]]) -> int | None:
        """The position of the first error code after position `behind`, or else of the first one; None without any.
        `errors`: paths and codes of the message."""
        places: list[tuple[float, str]] = [(at, "") for at, each in enumerate(self.fields) if each.error]
        closed = {each.path: at for at, each in enumerate(self.fields) if each.later is not None}
        for path, _ in errors if closed else ():
            around = path
            while around and around not in closed:
                around = around[: max(around.rfind("."), around.rfind("["), 0)]
            if around:  # behind the field that it is in, and before the next
                places.append((closed[around] + 0.5, path))
        places.sort(key=lambda place: place[0])
        if not places:
            return None
        position, path = next((place for place in places if place[0] > behind), places[0])
        return self.reveal(path) if path else int(position)

    def headed(self, at: int) -> TreeField:
        """The field at a position, with a headline if it is an item that was not opened."""
        found = self.fields[at]
        if found.later is not None and not found.value and found.name.startswith("["):
            found.value, found.role = headline(found.later(), found.depth + 1, self.failures.get(found.path, ""))
        return found

    def complete(self) -> None:
        """Make all fields. Some hundred thousand fields take a second."""
        made: list[TreeField] = []
        waiting = [iter(self.fields)]
        while waiting:
            each = next(waiting[-1], None)
            if each is None:
                waiting.pop()
                continue
            made.append(each)
            if each.later is not None:
                waiting.append(iter(each.later()))
                each.later, each.opened = None, True
        nest(made)
        self.fields = made


def nest(fields: list[TreeField]) -> None:
    """Set how many fields are inside of each, from their depths."""
    around: list[int] = []
    for at, depth in enumerate([*(each.depth for each in fields), 0]):
        while around and fields[around[-1]].depth >= depth:
            parent = around.pop()
            fields[parent].below = at - 1 - parent
        around.append(at)


def headline(inside: list[TreeField], depth: int, error: str = "") -> Cell:
    """The text of a folded array item and its role: the first field with a value, and the error if there is one. `depth`: of
    the item's own fields among those `inside`; `error`: the first one, where not all fields are made."""
    error = error or next((f.value for f in inside if f.error), "")
    own = (f for f in inside if f.depth == depth and f.value and not f.name.endswith("error_code"))
    first_one = next(own, None)
    naming = ""
    if first_one is not None:
        naming = first_one.value if first_one.role == "string" else f"{first_one.name} {first_one.value}"
    return "  ".join(
        part for part in (naming[:40], f"! {error}" if error else "") if part
    ), "error" if error else "muted"


def visible_fields(tree: Tree) -> Iterator[int]:
    """The positions of the fields that are not inside of a folded one."""
    at, fields = 0, tree.fields
    while at < len(fields):
        yield at
        at += 1 + (fields[at].below if fields[at].folded else 0)


def field_at(tree: Tree, at: int) -> int | None:
    """The position of the innermost field with this byte, which is made if need be; None if there is none."""
    while True:
        best: int | None = None
        width = 1 << 62
        for position, each in enumerate(tree.fields):
            if each.span is not None and each.span[0] <= at < each.span[1] and each.span[1] - each.span[0] <= width:
                best, width = position, each.span[1] - each.span[0]
        if best is None or tree.fields[best].later is None:
            return best
        tree.open(best)


class FieldTree(ScrollView, StyledWidget, can_focus=True):
    """Fields with a cursor; arrays and structs fold. `show` replaces the tree."""

    DEFAULT_CSS = """
    FieldTree {
        border-title-color: $text-muted; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; border: round $border-blurred; }
    FieldTree:focus { border: round $primary; border-title-color: $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("tree")

    class Moved(Message):
        """The cursor is on another field."""

        def __init__(self, tree: FieldTree):
            super().__init__()
            self.field_tree = tree

    class Opened(Message):
        """Enter on a field without fields inside."""

        def __init__(self, tree: FieldTree, field: TreeField):
            super().__init__()
            self.field_tree, self.field = tree, field

    def __init__(self, title: str, id: str):
        super().__init__(id=id)
        self.tree_shown = Tree()
        self.cursor = 0
        self._lines: list[int] = []
        self.border_title = title

    def show(self, tree: Tree, keep_place: bool = False) -> None:
        """Show another tree. `keep_place`: it is of the same frame, so the cursor and folds stay."""
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
            # After the folded header.
            self.cursor = 1 if len(self._lines) > 1 and tree.fields[0].name == "header" else 0
        self.cursor = min(self.cursor, max(len(self._lines) - 1, 0))

    @property
    def position(self) -> int:
        """Where the field under the cursor is in the list of fields; -1 in an empty tree."""
        return self._lines[self.cursor] if self.cursor < len(self._lines) else -1

    @property
    def current(self) -> TreeField | None:
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
        field = self.tree_shown.headed(self._lines[line])
        if line == self.cursor:
            base += self.palette.cursor if self.has_focus else self.palette.cursor_away
        glyph = ("+ " if field.folded else "- ") if field.has_children else "  "
        indent = "  " * field.depth
        head = [Segment(indent + glyph, base + self.palette.muted)]
        name_role: Role = "error" if field.error else ("muted" if field.name.startswith("[") else "name")
        head.append(Segment(field.name, base + self.palette.of(name_role)))
        if field.value:
            head.append(Segment(": " if not field.has_children else "  ", base + self.palette.muted))
            head.append(Segment(field.value, base + self.palette.of(field.role)))
        strip = Strip(head)
        if strip.cell_length > width:
            return Strip([*strip.crop(0, width - 1), Segment("…", base + self.palette.muted)])
        return strip.extend_cell_length(width, base)

    # --- moving and folding --------------------------------------------------------------------------------

    def move_to(self, line: int) -> None:
        """Put the cursor on a line, and scroll to it."""
        line = max(0, min(line, len(self._lines) - 1))
        old, self.cursor = self.cursor, line
        scroll_to_line(self, line)
        self.refresh_line(old)
        self.refresh_line(line)
        self.post_message(self.Moved(self))

    def move_to_field(self, position: int) -> None:
        """Put the cursor on the field at `position` of the list, and unfold the fields around it."""
        fields = self.tree_shown.fields
        for at, around in enumerate(fields[:position]):
            if at + around.below >= position:
                around.folded = False
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
        if field is not None and field.has_children:
            self.tree_shown.open(self.position)
            field.folded = not field.folded
            self._fold_lines()
            self.move_to(self.cursor)
        elif field is not None:
            self.post_message(self.Opened(self, field))

    def action_fold(self) -> None:
        """Fold the field, or go out to the one around it."""
        field = self.current
        if field is None:
            return
        if field.has_children and not field.folded:
            self.action_fold_or_unfold()
            return
        for line in range(self.cursor - 1, -1, -1):
            if self.tree_shown.fields[self._lines[line]].depth < field.depth:
                self.move_to(line)
                return

    def action_unfold(self) -> None:
        """Unfold the field, or go in to its first one."""
        field = self.current
        if field is None or not field.has_children:
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
