"""The view of held frames: what is intercepted, the queue, and the fields and bytes of the frame under the cursor.

A frame can be resumed, answered with an error, dropped, held longer, or its connection closed. The proxy is asked for
each in a thread; what it refuses is shown, and the frame stays in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from ....decoder import DecodeError, decode_request, decode_response
from ....decoder.reference import explain
from ....decoder.schema import facts
from ....proxy.control import Control, ControlError
from ...safe import fit, visible
from ..dialogs.dialogs import Confirm, Find, Name
from ..dialogs.intercept import LONGEST, remove_intercepts
from ..exchange.body_editor import BadValue, EditTree, body_tree, from_yaml, to_yaml
from ..keys import bindings
from ..model.columns import duration
from ..model.held_queue import HeldQueue, ListedIntercept, QueuedFrame
from ..model.session import NO_CONTROL
from ..widgets.field_tree import FieldTree, Tree, field_at
from ..widgets.hex_view import HexView, Range
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Cell
from ..widgets.styled import TextPane, TitleLine
from .view import View

AT_THE_EDITOR = 900.0
"""Seconds that a frame is held at least while it is edited as text."""
WHILE_TYPING = 60.0
"""Seconds that a frame is held at least while a value is typed."""
MORE_SECONDS = 120.0
MOST_INTERCEPTS = 3
WIDE_FROM, STACKED_BELOW = 150, 100
"""Columns of the screen: from the first on, 16 bytes to a line beside the fields; below the second, 8 below them."""
FOR_A_FILE = (
    "Frames can only be held in a running proxy; this is a recording.\n\n"
    "To open this screen on a running proxy:\n"
    "  barnabas ui --attach newest --allow-edit"
)
NOTHING = (
    "Nothing is intercepted: all frames pass.\n\n"
    "i sets what to hold, by a filter: requests before they are forwarded,\n"
    "responses before they are delivered. Only the connection of a held frame waits,\n"
    "and without a decision it is passed on unchanged when its time is up."
)


class FrameBytes(NamedTuple):
    """A frame without its size bytes, its byte ranges that stay hidden, and those of its fields by path."""

    frame: bytes
    hidden: list[Range]
    spans: dict[str, Range]


def fetch_bytes(control: Control, number: int) -> FrameBytes:
    """Ask the proxy for the bytes of a held frame. Raises ControlError if it is not held any more or the proxy does not
    answer; KeyError if the proxy is too old to send bytes."""
    found = control.held_frame(number)
    frame = bytes.fromhex(found["frame"])
    return FrameBytes(frame, [(start, end) for start, end in found["hidden"]], _spans(found, frame))


def _spans(found: dict[str, Any], frame: bytes) -> dict[str, Range]:
    try:
        if found["side"] == "request":
            message = decode_request(frame)
        else:
            message = decode_response(frame, api_key=found["api_key"], api_version=found["api_version"])
    except DecodeError as fault:
        if fault.message is None:
            return {}
        message = fault.message
    return {span.path: (span.start, span.end) for span in message.map()}


class HeldBytes(HexView):
    """The pane of a held frame's bytes, linked with its fields. Edits are not in them: they are the bytes that came."""

    def __init__(self, fields: FieldTree) -> None:
        super().__init__(id="bytes")
        self._fields = fields
        self._of: QueuedFrame | None = None
        self._frame_bytes: FrameBytes | None = None

    def show_of(self, frame: QueuedFrame | None, control: Control | None) -> None:
        """Show the bytes of this frame."""
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
                found = "The proxy is older and does not send the bytes."
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
        """Set the byte ranges of the fields, and mark those of the field under the cursor."""
        if self._frame_bytes is None:
            return
        for field in self._fields.tree_shown.fields:
            field.span = self._frame_bytes.spans.get(field.path)
        self.follow()

    def follow(self) -> None:
        """Mark the bytes of the field under the cursor."""
        field = self._fields.current
        span = field.span if field is not None and self._frame_bytes is not None else None
        self.mark(span)
        self.border_subtitle = f"{field.path} @{span[0]}+{span[1] - span[0]}" if field is not None and span is not None else ""

    def find(self, at: int) -> None:
        """Move the cursor to the field that has this byte."""
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
            return NO_CONTROL if self.session.grows else FOR_A_FILE
        if self.queue.fault:
            return f"The proxy does not answer.\n\n{self.queue.fault}"
        return "" if self.queue.frames or self.queue.intercepts else NOTHING

    def state_cells(self) -> list[Cell]:
        return []  # the header of every view counts held frames

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

    def _intercept_line(self, intercept: ListedIntercept) -> list[Cell]:
        sides = " and ".join(["requests"] * intercept.request + ["responses"] * intercept.response)
        cells: list[Cell] = [
            (" holds ", "label"),
            (f" {sides} where ", "muted"),
            (visible(intercept.filter), "key"),
            (f"  {intercept.timeout:g} s each, {intercept.most} at most", "muted"),
        ]
        if intercept.passed:
            cells.append((f"  ! {intercept.passed} passed: too many, or too large", "warning"))
        if intercept.failed:
            cells.append((f"  ! {visible(intercept.failed)}", "error"))
        return cells

    def _line(self, frame: QueuedFrame) -> list[Cell]:
        left = frame.left()
        return [
            (f"= {frame.number:<5}", "waiting"),
            (f"{duration(int(frame.age() * 1e9)):>6} ", "waiting"),
            (f"{left:>4.0f}s  ", "error" if left < 5 else "muted"),
            (fit(frame.side, 9) + " ", ""),
            (fit(visible(frame.api), self._wide[0]) + " ", "title"),
            (f"v{frame.api_version:<3}", ""),
            (fit(visible(frame.client_id or frame.client), self._wide[1]) + " ", ""),
            (f"{frame.connection:>4} ", "muted"),
            (f"{frame.size:>6}", "muted"),
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
            tree.show(Tree(note="Nothing is held now." if self.queue.intercepts else ""))
            tree.border_title = "Fields"
            self.about.show([])
            self._show_bytes()
            return
        tree.border_title = f"{'Request' if frame.side == 'request' else 'Response'} {frame.api} v{frame.api_version}"
        if frame.body is None:
            tree.body = None
            tree.show(Tree(note=f"It cannot be decoded, so it cannot be edited: {visible(frame.undecoded)}"))
        else:
            try:
                tree.show_body(body_tree(*_body_type(frame), frame.body, frame.edits), same)
            except DecodeError as fault:
                tree.body = None
                tree.show(Tree(note=visible(str(fault))))
        broker = visible(f"{frame.client} -> {frame.broker}")
        self.about.show([(f" {broker}  correlation id {frame.correlation_id}", "muted"), (f"  {may}", "waiting")])
        self._show_bytes()

    # --- bytes ---------------------------------------------------------------------------------------------

    def action_bytes(self) -> None:
        self.toggle_class("hex")
        if not self.has_class("hex") and self.bytes.has_focus:
            self.fields_tree.focus()
        # After the pane has its size, so that it scrolls to the marked bytes.
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
        body = frame.body
        if body is None:
            self.notify("It cannot be decoded, so it cannot be edited.", timeout=3)
            return
        if frame.left() < AT_THE_EDITOR:
            self.extend(frame, AT_THE_EDITOR)

        def take(text: str) -> str:
            try:
                frame.edits = from_yaml(*_body_type(frame), body, text)
            except BadValue as error:
                return str(error)
            return ""

        remarks = f"{frame.name()}. Save and exit to change the fields; a forwards it.\nFields that you leave out keep their bytes."
        edit(self.app, f"Edit {frame.name()}", to_yaml(*_body_type(frame), body, frame.edits), take, remarks=remarks, done=self.update_view)

    def action_to_list(self) -> None:
        self.table.focus()

    # --- decisions -----------------------------------------------------------------------------------------

    @property
    def queue(self) -> HeldQueue:
        """Frames that are held."""
        return self.session.held

    def why_not(self) -> str:
        """Why nothing may be changed, or ""."""
        return self.session.read_only()

    def chosen(self) -> QueuedFrame | None:
        """The frame under the cursor, if it may be changed."""
        why = self.why_not()
        frame = self.current
        if why:
            self.notify(why, severity="warning", timeout=3)
            return None
        if frame is None:
            self.notify("Nothing is held.", timeout=2)
        return frame

    def _decide(self, frame: QueuedFrame, done: str, how: Callable[[Control], object]) -> None:
        """Ask the proxy to do something to a frame."""
        self.call_proxy(how, lambda _: self._done(frame, done), partial(self._refused, frame))

    def _done(self, frame: QueuedFrame, done: str) -> None:
        self.session.add_to_log(f"held #{frame.number} {frame.name()}: {done}")
        self.queue.forget(frame.number)
        self.queue.soon()
        self.barnabas.held_changed()

    def _refused(self, frame: QueuedFrame, error: ControlError) -> None:
        name, gone = f"#{frame.number} {frame.name()}", error.status == 404
        text = f"{name} is no longer held: its time was up, or its connection ended" if gone else str(error)
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
        key, version = frame.api_key, frame.api_version
        if not answerable(key, version):
            self.notify(f"A response to {frame.api} v{version} has no field for an error.", timeout=4)
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
        """Hold it `seconds` longer than it would be held now."""
        wanted = min(frame.left() + seconds, LONGEST)
        self.call_proxy(
            lambda control: control.extend(frame.number, wanted),
            lambda _: self.queue.soon(),
            partial(self._refused, frame),
        )

    def action_release(self) -> None:
        why = self.why_not()
        if why or not self.queue.intercepts:
            self.notify(why or "Nothing is intercepted.", timeout=3)
            return

        def sure(yes: bool | None) -> None:
            if yes:
                remove_intercepts(self)

        count = len(self.queue.frames)
        waiting = f" What is held ({count}) is passed on unchanged." if count else ""
        self.app.push_screen(Confirm(f"Turn holding off?{waiting}"), sure)


def _body_type(frame: QueuedFrame) -> tuple[str, int, int]:
    """The arguments of `plan`: side, API key and version."""
    return frame.side, frame.api_key, frame.api_version


def answerable(api_key: int, version: int) -> bool:
    """Whether the API's response has an error code at this version."""
    from ....plugins.answers.responses import has_error_code

    try:
        return has_error_code(api_key, version)
    except KeyError:
        return False


def error_names(api_key: int) -> list[Name]:
    """Every error but NONE: first those of this API, then those of every API, then the others."""
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
