"""Frames that wait for a decision: what is intercepted, the queue, and the fields of the one under the cursor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from ....decoder import DecodeError
from ..body_fields import body_tree, from_yaml, to_yaml
from ..columns import Cell, duration
from ..edit_tree import EditTree
from ..field_list import Tree
from ..field_tree import FieldTree
from ..field_values import BadValue
from ..held_acts import HeldActs
from ..held_bytes import HeldBytes
from ..held_queue import HeldFrame
from ..hex_view import HexView
from ..keys import bindings
from ..line_list import LineList, Table
from ..safe import fit, visible
from ..titles import Picture, Titles

AT_THE_EDITOR = 900.0
"""Seconds that a frame waits at least while somebody edits it as a text."""
WHILE_TYPING = 60.0
"""And while a value is typed."""
MOST_INTERCEPTS = 3
WIDE_FROM, STACKED_BELOW = 150, 100
"""Columns; the bytes stand beside the fields, sixteen or eight to a line, or below them."""
FOR_A_FILE = (
    "Frames are held in a proxy that runs; this is a recording.\n\n"
    "This screen on a proxy that runs:\n"
    "  barnabas ui --attach newest --allow-edit"
)
NOTHING = (
    "Nothing is intercepted: all frames pass.\n\n"
    "i says what is to be held, by a filter: requests before they are forwarded,\n"
    "responses before they are delivered. Only the connection of a held frame waits,\n"
    "and a frame that nobody decides about goes on as it came when its time is up."
)


class HeldScreen(HeldActs):
    """The queue of the proxy that this is attached to."""

    DEFAULT_CSS = """
    HeldScreen Picture { height: auto; max-height: 3; padding: 0 1; }
    HeldScreen Table { height: 30%; min-height: 3; }
    HeldScreen #panes { layout: horizontal; height: 1fr; }
    HeldScreen EditTree { width: 1fr; height: 1fr; }
    HeldScreen HeldBytes { display: none; width: 44; height: 1fr; }
    HeldScreen.hex HeldBytes { display: block; }
    HeldScreen.wide HeldBytes { width: 78; }
    HeldScreen.stacked #panes { layout: vertical; }
    HeldScreen.stacked HeldBytes { width: 1fr; height: 6; }
    HeldScreen.stacked.hex Table { height: 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("held")
    AUTO_FOCUS = "Table"
    number = 9
    context = "held"
    contexts = ("held", "list", "tree", "hex", "view", "app")

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[object, ...] = ()
        self._wide = (16, 12)

    def body(self) -> Iterable[Widget]:
        self.intercepted, self.titles, self.table = Picture(), Titles(), Table()
        self.tree_of = EditTree("Fields", id="fields")
        self.bytes = HeldBytes(self.tree_of)
        return self.intercepted, self.titles, self.table, Container(self.tree_of, self.bytes, id="panes")

    def empty_text(self) -> str:
        if self.session.control is None:
            return FOR_A_FILE
        if self.queue.fault:
            return f"The proxy does not answer.\n\n{self.queue.fault}"
        return "" if self.queue.frames or self.queue.intercepts else NOTHING

    def state_cells(self) -> list[Cell]:
        return []  # the count of what is held stands in every header

    def take_in(self) -> None:
        lines = [self._intercept_line(each) for each in self.queue.intercepts]
        if len(lines) > MOST_INTERCEPTS:
            left = len(lines) - MOST_INTERCEPTS + 1
            lines[MOST_INTERCEPTS - 1 :] = [[(f" and {left} more", "muted")]]
        self.intercepted.styles.height = max(len(lines), 1)
        self.intercepted.show(lines)
        self.set_class(self.app.size.width >= WIDE_FROM, "wide")
        self.set_class(self.app.size.width < STACKED_BELOW, "stacked")
        self._wide = (21, 18) if self.app.size.width >= 96 else (16, 12)
        api, client = self._wide
        self.titles.show(f"   No    Waits  Left   Side      {fit('API', api)} Ver {fit('Client', client)} Conn   Size")
        self.table.show([self._line(frame) for frame in self.queue.frames])
        self._fields()

    def _intercept_line(self, said: dict[str, Any]) -> list[Cell]:
        sides = " and ".join(f"{side}s" for side in ("request", "response") if said[side])
        cells: list[Cell] = [
            (" holds ", "label"),
            (f" {sides} where ", "muted"),
            (visible(said["filter"]), "key"),
            (f"  {said['timeout']:g} s each, {said['most']} at most", "muted"),
        ]
        if said["passed"]:
            cells.append((f"  ! {said['passed']} passed: too many, or too large", "warning"))
        if said["failed"]:
            cells.append((f"  ! {visible(said['failed'])}", "error"))
        return cells

    def _line(self, frame: HeldFrame) -> list[Cell]:
        said, left = frame.said, frame.left()
        return [
            (f"= {frame.number:<5}", "waiting"),
            (f"{duration(int(frame.age() * 1e9)):>6} ", "waiting"),
            (f"{left:>4.0f}s  ", "error" if left < 5 else "muted"),
            (fit(frame.side, 9) + " ", ""),
            (fit(visible(said["api"]), self._wide[0]) + " ", "title"),
            (f"v{said['api_version']:<3}", ""),
            (fit(visible(said["client_id"] or said["client"]), self._wide[1]) + " ", ""),
            (f"{said['connection']:>4} ", "muted"),
            (f"{said['size']:>6}", "muted"),
            (f"  * {len(frame.edits)} changed" if frame.edits else "", "warning"),
        ]

    @property
    def current(self) -> HeldFrame | None:
        """The frame under the cursor."""
        frames = self.queue.frames
        return frames[self.table.cursor] if self.table.cursor < len(frames) else None

    def _fields(self) -> None:
        frame = self.current
        may = self.why_not()
        self.tree_of.refused = may
        shown = (None,) if frame is None else (frame.number, *sorted(frame.edits), repr(frame.edits))
        if shown == self._shown:
            return
        same = bool(self._shown) and shown[0] == self._shown[0]
        self._shown = shown
        tree = self.tree_of
        if frame is None:
            tree.body = None
            tree.show(Tree(note="Nothing is held just now." if self.queue.intercepts else ""))
            tree.border_title = "Fields"
            self.about.show([])
            self._show_bytes()
            return
        said = frame.said
        tree.border_title = f"{'Request' if frame.side == 'request' else 'Response'} {said['api']} v{said['api_version']}"
        if said.get("body") is None:
            tree.body = None
            tree.show(Tree(note=f"It cannot be decoded, so it cannot be edited: {visible(str(said['undecoded']))}"))
        else:
            try:
                tree.show_body(body_tree(*_what(frame), said["body"], frame.edits), same)
            except DecodeError as fault:
                tree.body = None
                tree.show(Tree(note=visible(str(fault))))
        broker = visible(f"{said['client']} -> {said['broker']}")
        self.about.show([(f" {broker}  correlation id {said['correlation_id']}", "muted"), (f"  {may}", "waiting")])
        self._show_bytes()

    # --- bytes ---------------------------------------------------------------------------------------------

    def action_bytes(self) -> None:
        self.toggle_class("hex")
        if not self.has_class("hex") and self.bytes.has_focus:
            self.tree_of.focus()
        # The pane gets its size first, so that the marked bytes come into sight.
        self.call_after_refresh(self._show_bytes)

    def _show_bytes(self) -> None:
        self.bytes.show_of(self.current if self.has_class("hex") else None, self.session.control)

    def on_field_tree_moved(self, event: FieldTree.Moved) -> None:
        self.bytes.follow()

    def on_hex_view_pointed(self, event: HexView.Pointed) -> None:
        self.bytes.find(event.at)
        if event.chosen:
            self.tree_of.focus()

    def on_line_list_moved(self) -> None:
        self._fields()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        self.tree_of.focus()

    # --- changing ------------------------------------------------------------------------------------------

    def on_edit_tree_changed(self, event: EditTree.Changed) -> None:
        frame = self.current
        if frame is not None:
            frame.edits[event.path] = event.value
            self.look()

    def on_edit_tree_asking(self) -> None:
        frame = self.current
        if frame is not None and frame.left() < WHILE_TYPING:
            self.extend(frame, WHILE_TYPING)

    def action_undo(self) -> None:
        frame = self.current
        if frame is not None and frame.edits:
            frame.edits.clear()
            self.look()

    def action_editor(self) -> None:
        from ..editor import edit

        frame = self.chosen()
        if frame is None:
            return
        body = frame.said.get("body")
        if body is None:
            self.notify("It cannot be decoded, so it cannot be edited.", timeout=3)
            return
        if frame.left() < AT_THE_EDITOR:
            self.extend(frame, AT_THE_EDITOR)

        def take(text: str) -> str:
            try:
                frame.edits = from_yaml(*_what(frame), body, text)
            except BadValue as error:
                return str(error)
            return ""

        remarks = f"{frame.name()}. Save and leave: the fields are changed; a lets it go on.\nWhat is left out keeps its bytes."
        edit(self.app, f"Edit {frame.name()}", to_yaml(*_what(frame), body, frame.edits), take, remarks=remarks, done=self.look)

    def action_to_list(self) -> None:
        self.table.focus()


def _what(frame: HeldFrame) -> tuple[str, int, int]:
    """Side, api key, and the version that its body has."""
    return frame.side, frame.said["api_key"], frame.said["api_version"]
