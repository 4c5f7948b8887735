"""The bytes of the held frame under the cursor, beside its fields: asked for in a thread, once for each frame.

The fields come from the body that the proxy told; where they stand is read from the bytes, in which secrets are masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ....decoder import DecodeError, decode_request, decode_response
from ....proxy.control import ControlError
from ...safe import visible
from ..exchange.field_list import field_at
from ..model.held_queue import HeldFrame
from ..widgets.field_tree import FieldTree
from ..widgets.hex_view import HexView, Range

if TYPE_CHECKING:
    from ....proxy.control import Control


class Octets(NamedTuple):
    """A frame without its size, the ranges of it that stay hidden, and where each field stands, by its path."""

    frame: bytes
    hidden: list[Range]
    spans: dict[str, Range]


def ask(control: Control, number: int) -> Octets:
    """What the proxy tells of a frame that waits. ControlError if it waits no more, or if nobody answers; KeyError if the
    proxy is one that tells no bytes."""
    said = control.held_frame(number)
    frame = bytes.fromhex(said["frame"])
    return Octets(frame, [(start, end) for start, end in said["hidden"]], _spans(said, frame))


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
        self._of: HeldFrame | None = None
        self._octets: Octets | None = None

    def show_of(self, frame: HeldFrame | None, control: Control | None) -> None:
        """The bytes of this frame from now on, linked with the fields that are shown."""
        same = frame is not None and self._of is not None and frame.number == self._of.number
        self._of = frame
        if not same:
            self._octets = None
            self.show(b"", [])
            self.border_title, self.border_subtitle = "Bytes", ""
            if frame is not None and control is not None:
                self._ask(control, frame.number)
        self.link()

    def _ask(self, control: Control, number: int) -> None:
        def work() -> None:
            found: Octets | str
            try:
                found = ask(control, number)
            except ControlError as error:
                found = visible(str(error))
            except KeyError:
                found = "The proxy is an older one, which tells no bytes."
            self.app.call_from_thread(self._take, number, found)

        self.run_worker(work, thread=True, exclusive=True, group="bytes", exit_on_error=False)

    def _take(self, number: int, found: Octets | str) -> None:
        if self._of is None or self._of.number != number:
            return
        if isinstance(found, str):
            self.border_title = found
            return
        self._octets = found
        hidden = "  ·· record bytes hidden" if found.hidden else ""
        self.border_title = f"Bytes of the {self._of.side}, as it waits{hidden}"
        self.show(found.frame, found.hidden)
        self.link()

    def link(self) -> None:
        """Say of the fields where they are, and mark the one under the cursor."""
        if self._octets is None:
            return
        for field in self._fields.tree_shown.fields:
            field.span = self._octets.spans.get(field.path)
        self.follow()

    def follow(self) -> None:
        """Mark the field under the cursor."""
        field = self._fields.current
        span = field.span if field is not None and self._octets is not None else None
        self.mark(span)
        self.border_subtitle = f"{field.path} @{span[0]}+{span[1] - span[0]}" if field is not None and span is not None else ""

    def find(self, at: int) -> None:
        """From a byte to its field."""
        position = field_at(self._fields.tree_shown, at)
        if position is not None and position != self._fields.position:
            self._fields.move_to_field(position)
        elif position is not None:
            self.follow()
