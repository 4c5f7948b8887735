"""Frames that wait for a decision: what is intercepted, the queue, and the fields of the one under the cursor.

What can be decided: let it go on, answer with an error, drop it, end its connection, hold it longer. Each is asked of the
proxy in a thread. What is refused is told, and the frame waits on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from ....decoder import DecodeError, decode_request, decode_response
from ....decoder.reference import explain
from ....decoder.schema import facts
from ....proxy.control import ControlError
from ...safe import fit, visible
from ..dialogs.dialogs import Confirm, Find, Name
from ..dialogs.intercept import remove_intercepts
from ..exchange.body_editor import BadValue, EditTree, body_tree, from_yaml, to_yaml
from ..keys import bindings
from ..model.columns import Cell, duration
from ..model.held_queue import HeldQueue, QueuedFrame
from ..shell import View
from ..widgets.field_tree import FieldTree, Tree, field_at
from ..widgets.hex_view import HexView, Range
from ..widgets.line_list import LineList, Table
from ..widgets.styled import TextPane, TitleLine

if TYPE_CHECKING:
    from ....proxy.control import Control

AT_THE_EDITOR = 900.0
"""Seconds that a frame waits at least while somebody edits it as a text."""
WHILE_TYPING = 60.0
"""And while a value is typed."""
MORE_SECONDS = 120.0
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


class FrameBytes(NamedTuple):
    """A frame without its size, the ranges of it that stay hidden, and where each field stands, by its path."""

    frame: bytes
    hidden: list[Range]
    spans: dict[str, Range]


def fetch_bytes(control: Control, number: int) -> FrameBytes:
    """What the proxy tells of a frame that waits. ControlError if it waits no more, or if nobody answers; KeyError if the
    proxy is one that tells no bytes."""
    said = control.held_frame(number)
    frame = bytes.fromhex(said["frame"])
    return FrameBytes(frame, [(start, end) for start, end in said["hidden"]], _spans(said, frame))


def _spans(said: dict[str, Any], frame: bytes) -> dict[str, Range]:
    try:
        if said["side"] == "request":
            message = decode_request(frame)
        else:
            message = decode_response(frame, api_key=said["api_key"], api_version=said["api_version"])
    except DecodeError as fault:
        if fault.message is None:
            return {}
        message = fault.message
    return {span.path: (span.start, span.end) for span in message.map()}


class HeldBytes(HexView):
    """The pane. What somebody has changed is not in it: the frame is shown as it waits."""

    def __init__(self, fields: FieldTree) -> None:
        super().__init__(id="bytes")
        self._fields = fields
        self._of: QueuedFrame | None = None
        self._frame_bytes: FrameBytes | None = None

    def show_of(self, frame: QueuedFrame | None, control: Control | None) -> None:
        """The bytes of this frame from now on, linked with the fields that are shown."""
        same = frame is not None and self._of is not None and frame.number == self._of.number
        self._of = frame
        if not same:
            self._frame_bytes = None
            self.show(b"", [])
            self.border_title, self.border_subtitle = "Bytes", ""
            if frame is not None and control is not None:
                self._ask(control, frame.number)
        self.link()

    def _ask(self, control: Control, number: int) -> None:
        def work() -> None:
            found: FrameBytes | str
            try:
                found = fetch_bytes(control, number)
            except ControlError as error:
                found = visible(str(error))
            except KeyError:
                found = "The proxy is an older one, which tells no bytes."
            self.app.call_from_thread(self._take, number, found)

        self.run_worker(work, thread=True, exclusive=True, group="bytes", exit_on_error=False)

    def _take(self, number: int, found: FrameBytes | str) -> None:
        if self._of is None or self._of.number != number:
            return
        if isinstance(found, str):
            self.border_title = found
            return
        self._frame_bytes = found
        hidden = "  ·· record bytes hidden" if found.hidden else ""
        self.border_title = f"Bytes of the {self._of.side}, as it waits{hidden}"
        self.show(found.frame, found.hidden)
        self.link()

    def link(self) -> None:
        """Say of the fields where they are, and mark the one under the cursor."""
        if self._frame_bytes is None:
            return
        for field in self._fields.tree_shown.fields:
            field.span = self._frame_bytes.spans.get(field.path)
        self.follow()

    def follow(self) -> None:
        """Mark the field under the cursor."""
        field = self._fields.current
        span = field.span if field is not None and self._frame_bytes is not None else None
        self.mark(span)
        self.border_subtitle = f"{field.path} @{span[0]}+{span[1] - span[0]}" if field is not None and span is not None else ""

    def find(self, at: int) -> None:
        """From a byte to its field."""
        position = field_at(self._fields.tree_shown, at)
        if position is not None and position != self._fields.position:
            self._fields.move_to_field(position)
        elif position is not None:
            self.follow()


class HeldScreen(View):
    """The queue of the proxy that this is attached to."""

    DEFAULT_CSS = """
    HeldScreen TextPane { height: auto; max-height: 3; padding: 0 1; }
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
        self.intercepted, self.titles, self.table = TextPane(), TitleLine(), Table()
        self.fields_tree = EditTree("Fields", id="fields")
        self.bytes = HeldBytes(self.fields_tree)
        return self.intercepted, self.titles, self.table, Container(self.fields_tree, self.bytes, id="panes")

    def empty_text(self) -> str:
        if self.session.control is None:
            return FOR_A_FILE
        if self.queue.fault:
            return f"The proxy does not answer.\n\n{self.queue.fault}"
        return "" if self.queue.frames or self.queue.intercepts else NOTHING

    def state_cells(self) -> list[Cell]:
        return []  # the count of what is held stands in every header

    def update_rows(self) -> None:
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

    def _line(self, frame: QueuedFrame) -> list[Cell]:
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
    def current(self) -> QueuedFrame | None:
        """The frame under the cursor."""
        frames = self.queue.frames
        return frames[self.table.cursor] if self.table.cursor < len(frames) else None

    def _fields(self) -> None:
        frame = self.current
        may = self.why_not()
        self.fields_tree.refused = may
        shown = (None,) if frame is None else (frame.number, *sorted(frame.edits), repr(frame.edits))
        if shown == self._shown:
            return
        same = bool(self._shown) and shown[0] == self._shown[0]
        self._shown = shown
        tree = self.fields_tree
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
            self.fields_tree.focus()
        # The pane gets its size first, so that the marked bytes come into sight.
        self.call_after_refresh(self._show_bytes)

    def _show_bytes(self) -> None:
        self.bytes.show_of(self.current if self.has_class("hex") else None, self.session.control)

    def on_field_tree_moved(self, event: FieldTree.Moved) -> None:
        self.bytes.follow()

    def on_hex_view_pointed(self, event: HexView.Pointed) -> None:
        self.bytes.find(event.at)
        if event.chosen:
            self.fields_tree.focus()

    def on_line_list_moved(self) -> None:
        self._fields()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        self.fields_tree.focus()

    # --- changing ------------------------------------------------------------------------------------------

    def on_edit_tree_changed(self, event: EditTree.Changed) -> None:
        frame = self.current
        if frame is not None:
            frame.edits[event.path] = event.value
            self.update_view()

    def on_edit_tree_asking(self) -> None:
        frame = self.current
        if frame is not None and frame.left() < WHILE_TYPING:
            self.extend(frame, WHILE_TYPING)

    def action_undo(self) -> None:
        frame = self.current
        if frame is not None and frame.edits:
            frame.edits.clear()
            self.update_view()

    def action_editor(self) -> None:
        from ..dialogs.editor import edit

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
        edit(self.app, f"Edit {frame.name()}", to_yaml(*_what(frame), body, frame.edits), take, remarks=remarks, done=self.update_view)

    def action_to_list(self) -> None:
        self.table.focus()

    # --- decisions -----------------------------------------------------------------------------------------

    @property
    def queue(self) -> HeldQueue:
        """What waits."""
        return self.session.held

    def why_not(self) -> str:
        """Why nothing may be changed, or ""."""
        if self.session.control is None:
            return "This is a recording: there is no traffic to change."
        if not self.session.allow_edit:
            return "Read-only: start with --allow-edit, or :edit on."
        return ""

    def chosen(self) -> QueuedFrame | None:
        """The frame under the cursor, if anything may be done to it."""
        why = self.why_not()
        frame = self.current
        if why:
            self.notify(why, severity="warning", timeout=3)
            return None
        if frame is None:
            self.notify("Nothing is held.", timeout=2)
        return frame

    def _decide(self, frame: QueuedFrame, done: str, how: Callable[[Any], object]) -> None:
        """Do something to a held frame, in a thread. What is refused is told, and the frame waits on."""
        name, control, app = f"#{frame.number} {frame.name()}", self.session.control, self.app

        def work() -> None:
            try:
                how(control)
            except ControlError as error:
                app.call_from_thread(self._refused, frame, name, error)
            else:
                app.call_from_thread(self._done, frame.number, f"held {name}: {done}")

        self.run_worker(work, thread=True, group="held", exit_on_error=False)

    def _done(self, number: int, text: str) -> None:
        self.session.add_to_log(text)
        self.queue.forget(number)
        self.queue.soon()
        self.barnabas.held_changed()

    def _refused(self, frame: QueuedFrame, name: str, error: ControlError) -> None:
        gone = error.status == 404
        text = f"{name} does not wait any more: its time was up, or its connection ended" if gone else str(error)
        self.session.add_to_log(f"held {name}: {text}", True)
        self.notify(visible(text), severity="error", timeout=6, markup=False)
        self.queue.soon()

    def action_resume(self) -> None:
        frame = self.chosen()
        if frame is not None:
            self._resume(frame)

    def action_resume_all(self) -> None:
        if self.chosen() is None:
            return
        for frame in list(self.queue.frames):
            self._resume(frame)

    def _resume(self, frame: QueuedFrame) -> None:
        edits = dict(frame.edits)
        self._decide(frame, "resumed, changed" if edits else "resumed", lambda c: c.resume(frame.number, edits))

    def action_drop(self) -> None:
        frame = self.chosen()
        if frame is not None:
            self._decide(frame, "dropped", lambda c: c.drop(frame.number, silent=True))

    def action_kill(self) -> None:
        frame = self.chosen()
        if frame is not None:
            self._decide(frame, "connection closed", lambda c: c.drop(frame.number, close="rst"))

    def action_fail(self) -> None:
        frame = self.chosen()
        if frame is None:
            return
        key, version = frame.said["api_key"], frame.said["api_version"]
        if not answerable(key, version):
            self.notify(f"A response to {frame.said['api']} v{version} has no place for an error.", timeout=4)
            return

        def named(name: str | None) -> None:
            if name is not None:
                self._decide(frame, f"answered with {name}", lambda c: c.drop(frame.number, error=name))

        self.app.push_screen(Find(f"Answer {frame.name()} with", error_names(key)), named)

    def action_more_time(self) -> None:
        frame = self.chosen()
        if frame is not None:
            self.extend(frame, MORE_SECONDS)

    def extend(self, frame: QueuedFrame, seconds: float) -> None:
        """Hold it so much longer than it would be held now."""
        control, wanted = self.session.control, frame.left() + seconds
        assert control is not None

        def work() -> None:
            try:
                control.extend(frame.number, min(wanted, 3600.0))
            except ControlError as error:
                self.app.call_from_thread(self._refused, frame, f"#{frame.number} {frame.name()}", error)
            self.queue.soon()

        self.run_worker(work, thread=True, group="held", exit_on_error=False)

    def action_release(self) -> None:
        """Hold nothing any more."""
        why = self.why_not()
        if why or not self.queue.intercepts:
            self.notify(why or "Nothing is intercepted.", timeout=3)
            return

        def sure(yes: bool | None) -> None:
            if yes:
                remove_intercepts(self)

        count = len(self.queue.frames)
        waiting = f" What is held ({count}) goes on as it came." if count else ""
        self.app.push_screen(Confirm(f"Hold nothing any more?{waiting}"), sure)


def _what(frame: QueuedFrame) -> tuple[str, int, int]:
    """Side, api key, and the version that its body has."""
    return frame.side, frame.said["api_key"], frame.said["api_version"]


def answerable(api_key: int, version: int) -> bool:
    """Whether the API's response has a place for an error code at this version."""
    from ....plugins.answers import carries

    try:
        return carries(api_key, version)
    except KeyError:
        return False


def error_names(api_key: int) -> list[Name]:
    """Every error but NONE: first what brokers answer to this API, then what they answer to any, then the others."""
    api = facts.api_name(api_key)
    found: list[tuple[int, Name]] = []
    for code, fact in facts.errors().items():
        if not code:
            continue
        text = explain.error(code)
        own = api in text.apis
        rank = 0 if own else 1 if text.every else 2
        again = "retriable" if fact.retriable else "not retriable"
        where = "" if rank < 2 else "; brokers do not send it for this API"
        found.append((rank, Name(fact.name, f"{code:>4}  {again}{where}")))
    return [name for _, name in sorted(found, key=lambda each: each[0])]
