"""One connection as a conversation: its requests and responses in order of time, the pauses between them, and a summary of each
message: the topics, groups and transactions it names, and its error codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar, NamedTuple

from textual.binding import BindingType
from textual.widget import Widget

from ....captures import Capture, Row
from ....decoder import Message
from ....decoder.schema import facts
from ....decoder.schema.meaning import Meaning
from ....decoder.schema.plan import StructPlan, Value
from ...safe import visible
from ...times import clock
from ..keys import bindings
from ..model.columns import api, duration, result, size
from ..model.rows import RowView, row_finder
from ..widgets.line_list import LineList, Lines
from ..widgets.palette import Cell
from .side_screen import SideScreen

_NAMES = frozenset({Meaning.TOPIC, Meaning.GROUP, Meaning.TRANSACTIONAL_ID})
_MOST = 3
_MOST_READ = 64
"""Names and error codes of a message that are read for its summary."""


class Summary(NamedTuple):
    """Names and errors of a message, each "" where there are none; safe for the terminal."""

    names: str = ""
    errors: str = ""


def summarize(message: Message | None) -> Summary:
    """What a message is about."""
    if message is None:
        return Summary()
    names = list(dict.fromkeys(islice(_names(message.plan.root, message.values), _MOST_READ)))
    codes = list(dict.fromkeys(facts.error_name(code) for _, code in islice(message.errors(), _MOST_READ)))
    return Summary(visible(_few(names)), visible(_few(codes)))


def _few(words: list[str]) -> str:
    more = len(words) - _MOST
    return ", ".join(words[:_MOST]) + (f", {more} more" if more > 0 else "")


def _names(of: StructPlan, values: tuple[Value, ...]) -> Iterator[str]:
    for field, value in zip(of.fields, values, strict=False):
        if value is None:
            continue
        if field.struct is not None:
            for item in value if field.array else (value,):
                yield from _names(field.struct, item)
        elif field.meaning in _NAMES:
            yield from (item for item in (value if field.array else (value,)) if item)


AROUND = 2000
"""Exchanges of the connection that are shown before and after the one it was opened from."""
_DECODED = 1 << 16
"""Bytes of the largest frame that is decoded for its summary."""
PAUSE_NS = 100_000_000
"""The shortest pause that is highlighted."""


class Line(NamedTuple):
    """One frame. `number`: its exchange's row; `pause_ns`: since the frame before."""

    time_ns: int
    number: int
    response: bool
    pause_ns: int


def lines_of(rows: list[Row]) -> list[Line]:
    """The frames of exchanges in order of time."""
    found: list[tuple[int, int, bool]] = []
    for row in rows:
        if row.state != "orphan":
            found.append((row.time_ns, row.number, False))
        if row.state == "orphan":
            found.append((row.time_ns, row.number, True))
        elif row.state == "paired" and row.latency_ns is not None:
            found.append((row.time_ns + row.latency_ns, row.number, True))
    found.sort()
    lines: list[Line] = []
    before = found[0][0] if found else 0
    for time_ns, number, response in found:
        lines.append(Line(time_ns, number, response, time_ns - before))
        before = time_ns
    return lines


class FrameLines(Lines):
    """The frames. A frame is read when its line is drawn."""

    def __init__(self, capture: Capture):
        self.capture = capture
        self.lines: list[Line] = []
        self._summaries: dict[tuple[int, bool, str], Summary] = {}

    def count(self) -> int:
        return len(self.lines)

    def row(self, position: int) -> Row:
        """The exchange of a line."""
        return self.capture.rows()[self.lines[position].number]

    def state(self, position: int, width: int) -> object:
        return self.lines[position], self.row(position)

    def cells(self, position: int, width: int, chosen: bool) -> list[Cell]:
        line, row = self.lines[position], self.row(position)
        outcome, role = result(row)
        slow = line.pause_ns >= PAUSE_NS
        cells: list[Cell] = [
            (f"{clock(line.time_ns)} ", "muted"),
            (f"{'+' + duration(line.pause_ns):>8} ", "warning" if slow else "muted"),
        ]
        octets = row.response_size if line.response else row.request_size
        names, errors = self._summary(line, row)
        about = f" {size(octets)}B" if octets is not None else ""
        if line.response:
            took = "" if row.latency_ns is None else f" after {duration(row.latency_ns)}"
            cells += [
                ("    <-- ", role if row.error else "ok"),
                (f"#{row.number + 1} {api(row)}", "title"),
                (f" {outcome.strip()}", role),
                (f"{took}{about} ", "muted"),
                (names, "string"),
                (f"  ! {errors}" if errors and not row.error else "", "error"),
            ]
        else:
            unanswered = "" if row.state == "paired" else f"  {outcome}"
            cells += [
                ("--> ", "waiting"),
                (f"#{row.number + 1} {api(row)} v{row.api_version}", "title"),
                (f"{about} ", "muted"),
                (names, "string"),
                (unanswered, role),
            ]
        return cells

    def _summary(self, line: Line, row: Row) -> Summary:
        octets = row.response_size if line.response else row.request_size
        if octets is None or octets > _DECODED or row.undecoded:
            return Summary()
        key = line.number, line.response, row.state
        found = self._summaries.get(key)
        if found is None:
            if len(self._summaries) > 4096:
                self._summaries.clear()
            exchange = self.capture.exchange(row)
            message = None if exchange is None else exchange.response_message if line.response else exchange.request_message
            found = self._summaries[key] = summarize(message)
        return found


class FrameList(LineList):
    """The frames, drawn by line."""

    source: FrameLines

    def __init__(self, capture: Capture):
        super().__init__(FrameLines(capture))

    @property
    def lines(self) -> list[Line]:
        """What is shown."""
        return self.source.lines

    def show(self, lines: list[Line]) -> None:
        """Show other lines; the cursor stays on its frame."""
        here = self.lines[self.cursor] if self.cursor < len(self.lines) else None
        self.source.lines = lines
        self._drawn.clear()
        self.rows_changed()
        if here is not None:
            same = next((i for i, line in enumerate(lines) if line[:3] == here[:3]), None)
            if same is not None and not self.following:
                self.move_to(same)
        self.refresh()

    def row(self, position: int) -> Row:
        """The exchange of a line."""
        return self.source.row(position)


class ConversationScreen(SideScreen):
    """The connection of `row`, with the cursor on its request."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("dialogue")
    AUTO_FOCUS = "FrameList"
    context = "dialogue"
    contexts = ("dialogue", "list", "app")
    bar_contexts = ("dialogue", "list")

    def __init__(self, capture: Capture, row: Row):
        super().__init__()
        self.capture, self.start = capture, row
        self.connection = row.connection
        self.view = RowView(capture.rows())
        self.list = FrameList(capture)
        self._placed = False

    def body(self) -> Iterable[Widget]:
        return (self.list,)

    def begin(self) -> None:
        self.view.show(row_finder(self.capture, f"conn == {self.connection}"), self.start.number)
        self._searching = self.set_interval(0.03, self._search)
        self._search()

    def _enough(self) -> bool:
        here = self.view.nearest(self.start.number)
        behind = len(self.view) - here
        return (here >= AROUND or self.view.low == 0) and (behind >= AROUND or self.view.high >= len(self.view.rows))

    def _search(self) -> None:
        self.view.search(0.02)
        if self._enough() or not self.view.searching:
            self._searching.pause()
            self._show()

    def capture_grew(self) -> None:
        if self._enough() and not self.view.searching and not self._waiting():
            return
        self._searching.resume()

    def _waiting(self) -> bool:
        """Whether one of the last requests that are shown has no response."""
        answered = {line.number for line in self.list.lines if line.response}
        return any(line.number not in answered for line in self.list.lines[-64:])

    def _show(self) -> None:
        here = self.view.nearest(self.start.number)
        low, high = max(here - AROUND, 0), min(here + AROUND, len(self.view))
        rows = [self.view.row(i) for i in range(low, high)]
        lines = lines_of(rows)
        if lines != self.list.lines:
            self.list.show(lines)
        if not self._placed and lines:
            self._placed = True
            self.list.move_to(next((i for i, line in enumerate(lines) if line.number == self.start.number), 0))
        row = self.start
        cut = f"  {AROUND:,} exchanges on either side" if low or high < len(self.view) else ""
        errors = sum(bool(each.error) for each in rows)
        self.headline.show([
            (f" connection {self.connection} ", "label"),
            (f" {visible(row.client_id or '')} {visible(row.client)} -> {visible(row.broker)}", "title"),
            (f"  {len(rows):,} exchange{'s' * (len(rows) != 1)}", ""), (f"  ! {errors} error{'s' * (errors != 1)}" if errors else "", "error"), (cut, "waiting"),
        ])  # fmt: skip
        self._about()

    def _about(self) -> None:
        if self.list.cursor >= len(self.list.lines):
            return
        line = self.list.lines[self.list.cursor]
        since = line.time_ns - self.list.lines[0].time_ns
        side = "response" if line.response else "request"
        self.about.show([(f" {side}, {duration(since)} after the first frame shown", "muted")])

    def on_line_list_moved(self) -> None:
        self._about()

    # --- keys ----------------------------------------------------------------------------------------------

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        position = self.view.position(self.list.lines[event.position].number)
        if position is not None:
            self.barnabas.open_exchange(self.view, position)

    def action_error(self) -> None:
        """Go to the next response with an error code, after the last one to the first."""
        if not self.list.move_to_next(1, lambda at: self.list.lines[at].response and bool(self.list.row(at).error)):
            self.notify("No error code on this connection.", timeout=2)

    def action_filter(self) -> None:
        """Show the connection in the list of exchanges."""
        number = self.list.lines[self.list.cursor].number if self.list.lines else self.start.number
        self.barnabas.show_exchanges(f"conn == {self.connection}", number)
