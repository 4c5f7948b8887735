"""Which of a capture's rows a list shows, in which order, and a row in one line.

Only row numbers are kept (8 bytes each), and only while there is a search or an order. A search begins at the cursor and
goes both ways, in slices of a few milliseconds, so that the first matches are there at once and keys are answered while a
million rows are searched. The filter compiler is imported with the first filter.

Rows are sorted by columns of the index. With numpy ten million rows take a second or two; without it each row is read
(`SORTS`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ....captures import Capture, Row
from ....captures.reading.capture import Rows
from ....decoder import Exchange
from ....decoder.schema import facts
from ...safe import fit, visible
from ...times import clock, zone
from ..widgets.palette import Cell, Role
from .columns import api, client_name, duration, expected, result, sizes

if TYPE_CHECKING:
    from ....captures.recording.index import Index
    from .settings import ColourRule

RowFinder = Callable[[int, int], Iterable[int]]
"""The numbers of the wanted rows among rows start to stop, ascending."""
SortKey = Callable[[Row], object]
_FIRST, _MOST = 256, 1 << 18
_ROWS = 1024
"""The most rows of a `RowSlice`."""
_SLICE = 0.008
"""Seconds that one call of a `RowFinder` should take."""


class RowView:
    """The rows of a capture that a search finds, or all. Positions count the rows that are shown. Requests in flight of a live
    recording are the last ones, and searched anew each time."""

    def __init__(self, rows: Sequence[Row], numbers: Iterable[int] | None = None):
        """`numbers`: show these rows and no others."""
        self.rows = rows
        self.find: RowFinder | None = None
        self.low = self.high = 0
        """Rows `low` to `high` have been looked at."""
        self._before: array[int] = array("Q")  # descending
        self._behind: array[int] = array("Q")
        self._waiting: array[int] = array("Q")
        self._sorted: array[int] | None = None
        self._window = _FIRST
        self._fixed = numbers is not None
        if numbers is not None:
            self._behind.extend(numbers)

    def __len__(self) -> int:
        if self._sorted is not None:
            return len(self._sorted) + len(self._waiting)
        if self.find is None and not self._fixed:
            return len(self.rows)
        return len(self._before) + len(self._behind) + len(self._waiting)

    @property
    def done(self) -> int:
        """Rows of the capture without requests in flight."""
        return self.rows.done if isinstance(self.rows, Rows) else len(self.rows)

    def show(self, find: RowFinder | None, around: int = 0) -> None:
        """Start over with another search, at row `around`; None shows everything."""
        self.find, self._fixed, self._sorted = find, False, None
        self.low = self.high = max(0, min(around, self.done))
        self._before, self._behind, self._waiting = array("Q"), array("Q"), array("Q")
        self._window = _FIRST

    @property
    def searched(self) -> int:
        """How many rows have been looked at."""
        return self.high - self.low

    @property
    def searching(self) -> bool:
        """Whether rows are left to be looked at."""
        return self.find is not None and (self.low > 0 or self.high < self.done)

    def search(self, seconds: float = 0.012) -> int:
        """Search further rows for about `seconds`. Returns how many rows were found before the first one that was shown."""
        find, before, until = self.find, len(self._before), perf_counter() + seconds
        self.search_waiting()
        if find is None:
            return 0
        while self.searching:
            began = perf_counter()
            # Rows after the cursor are on the screen first, but those before it must not wait for a long list.
            if self.high < self.done and (self.low == 0 or len(self._behind) < 200 or self._window % 2):
                stop = min(self.high + self._window, self.done)
                self._behind.extend(find(self.high, stop))
                self.high = stop
            else:
                start = max(self.low - self._window, 0)
                self._before.extend(reversed(list(find(start, self.low))))
                self.low = start
            now = perf_counter()
            took = now - began
            if took < _SLICE / 2:
                self._window = min(self._window * 2, _MOST)
            elif took > _SLICE:
                self._window = max(self._window // 2, 16)
            if now >= until:
                break
        return len(self._before) - before

    def search_waiting(self) -> None:
        """Look at the requests in flight again: after the capture was refreshed, as others wait, and longer."""
        start, stop = self.done, len(self.rows)
        found = range(start, stop) if self.find is None else self.find(start, stop) if start < stop else ()
        self._waiting = array("Q", () if self._fixed else found)

    # --- order ---------------------------------------------------------------------------------------------

    def sort(self, key: SortKey | None, descending: bool = False) -> None:
        """Sort the rows that are shown now; None: as in the capture. Rows that are found later are not among them."""
        rows = self.rows
        self.put(None)
        if key is not None:
            order = sorted(self.numbers(), key=lambda number: key(rows[number]), reverse=descending)  # type: ignore[arg-type,return-value]
            self._sorted = array("Q", order)

    def numbers(self) -> Sequence[int]:
        """The numbers of the rows that are shown, as in the capture, without requests in flight."""
        if self.find is None and not self._fixed:
            return range(self.done)
        return self._before[::-1] + self._behind

    def put(self, order: bytes | None) -> None:
        """Show rows in another order, given as numbers of 8 bytes each; None: as in the capture."""
        self._sorted = None
        if order is not None:
            self._sorted = array("Q")
            self._sorted.frombytes(order)

    # --- rows ----------------------------------------------------------------------------------------------

    def number(self, position: int) -> int:
        """The row's number in the capture, from 0."""
        if self._sorted is not None:
            count = len(self._sorted)
            return self._sorted[position] if position < count else self._waiting_number(position - count)
        if self.find is None and not self._fixed:
            return position
        before, done = len(self._before), len(self._before) + len(self._behind)
        if position >= done:
            return self._waiting_number(position - done)
        return self._before[before - 1 - position] if position < before else self._behind[position - before]

    def _waiting_number(self, at: int) -> int:
        # The capture may have been refreshed since: then another row is shown until the next look.
        return min(self._waiting[at], len(self.rows) - 1)

    def row(self, position: int) -> Row:
        """The row at a position of what is shown."""
        return self.rows[self.number(position)]

    def position(self, number: int) -> int | None:
        """Where the capture's row `number` is shown, None if it is not."""
        if self._sorted is not None:
            try:
                return self._sorted.index(number)
            except ValueError:
                return None
        near = self.nearest(number)
        return near if near < len(self) and self.number(near) == number else None

    def nearest(self, number: int) -> int:
        """The position of the first row shown that is not before row `number` of the capture."""
        if self.find is None and not self._fixed:
            return min(number, len(self.rows))
        if self._waiting and number >= self._waiting[0]:
            return len(self._before) + len(self._behind) + bisect_left(self._waiting, number)
        if (self._behind and number >= self._behind[0]) or not self._before:
            return len(self._before) + bisect_left(self._behind, number)
        return bisect_left(range(len(self._before)), number, key=lambda i: self._before[len(self._before) - 1 - i])


class RowSlice(NamedTuple):
    """Rows of one segment that are read between two looks at the clock: from `start` to `stop` in its index."""

    segment: int
    start: int
    stop: int

    @classmethod
    def at(cls, capture: Capture, number: int) -> RowSlice:
        """The slice that begins with row `number` of a capture; without requests in flight."""
        segment, start = capture.locate(number)
        return cls(segment, start, min(min(capture.starts[segment + 1], capture.done) - capture.starts[segment], start + _ROWS))


class SortOrder(NamedTuple):
    """The title of the column that rows are sorted by, and which way."""

    title: str
    descending: bool


SORTS: dict[str, Callable[[Row], Any]] = {
    "No": lambda row: row.number,
    "Time": lambda row: row.time_ns,
    "Client": lambda row: row.client_id or row.client,
    "Address": lambda row: row.client,
    "Broker": lambda row: row.broker,
    "Conn": lambda row: row.connection,
    "Corr": lambda row: row.correlation_id,
    "API": lambda row: (row.api_key, row.api_version),
    "Ver": lambda row: row.api_version,
    "Latency": lambda row: -1 if row.latency_ns is None else row.latency_ns,
    "Req>Resp": lambda row: (row.request_size or 0) + (row.response_size or 0),
    "Result": lambda row: (row.undecoded, row.error, row.state),
}
"""By column title."""


def row_details(row: Row, info: str = "") -> list[Cell]:
    """Everything about a row, in one line. `info`: what its messages say (`exchange_info`)."""
    outcome, role = result(row)
    fact = facts.errors().get(row.error) if row.error else None
    retriable = f" ({expected(row)})" if expected(row) else "" if fact is None else " (retriable)" if fact.retriable else " (not retriable)"
    took = "" if row.latency_ns is None else f"{duration(row.latency_ns)} "
    return [
        (f" #{row.number + 1} ", "muted"),
        (f"{api(row)} v{row.api_version} ", "title"),
        (f"{outcome.strip()}{retriable} ", role),
        (f" {took}{client_name(row)} ", ""),
        (f" {info} " if info else "", "string"),
        (f" {visible(row.client)} -> {visible(row.broker)}  {sizes(row)} B", "muted"),
        (f"  conn {row.connection}  correlation id {row.correlation_id}", "muted"),
    ]


def row_summary(row: Row) -> list[Cell]:
    """A row in a few words."""
    outcome, role = result(row)
    return [
        (f" #{row.number + 1:<7}", "muted"),
        (f"{clock(row.time_ns)} ", "muted"),
        (fit(client_name(row), 14), ""),
        (f" {api(row)} v{row.api_version} ", "title"),
        (outcome, role),
    ]


def notes_on(exchange: Exchange) -> list[str]:
    """Notes of rules on the client's and on the broker's side."""
    return [note for notes in exchange.marks.every_notes() for note in notes]


def sort(view: RowView, capture: Capture, by: SortOrder | None) -> None:
    """Sort the rows that `view` shows; None: as in the capture."""
    if by is None:
        view.put(None)
        return
    from ....captures.reading.selection import has_numpy

    title, descending = by
    if not has_numpy():
        view.sort(SORTS[title], descending)
        return
    import numpy

    keys = _keys(capture, title)
    numbers = view.numbers()
    wanted = numpy.asarray(numbers, dtype=numpy.int64) if not isinstance(numbers, range) else None
    if wanted is not None:
        keys = keys[wanted]
    elif len(keys) > len(numbers):  # a live recording: the list has not taken these in
        keys = keys[: len(numbers)]
    order = numpy.argsort(-keys if descending else keys, kind="stable")
    view.put((order if wanted is None else wanted[order]).astype(numpy.uint64).tobytes())


def _keys(capture: Capture, title: str) -> Any:
    """A sort key for each row of the capture, as a numpy array of integers."""
    import numpy

    parts = []
    for i, file in enumerate(capture.segments):
        parts.append((file.index, file.index.array()[: capture.starts[i + 1] - capture.starts[i]]))
    if title in ("Client", "Address", "Broker"):
        return _ranks([_texts(title, index, array) for index, array in parts])
    if title == "No":
        return numpy.arange(capture.starts[-1], dtype=numpy.int64)
    return numpy.concatenate([_numbers(title, array) for _, array in parts])


def _numbers(title: str, a: Any) -> Any:
    import numpy

    from ....captures.recording.index import STATE_MASK, UNDECODED

    wide = numpy.int64
    if title == "API":
        return a["api_key"].astype(wide) << 16 | a["api_version"]
    if title == "Latency":
        return a["latency_ns"].clip(-1).astype(wide)
    if title == "Req>Resp":
        sent = numpy.where(a["request_offset"] >= 0, a["request_size"], 0).astype(wide)
        return sent + numpy.where(a["response_offset"] >= 0, a["response_size"], 0)
    if title == "Result":
        undecoded = (a["flags"] & UNDECODED != 0).astype(wide)
        return undecoded << 40 | (a["error"].astype(wide) + (1 << 16)) << 8 | _state_ranks()[a["flags"] & STATE_MASK]
    column = {"Time": "time_ns", "Conn": "connection", "Corr": "correlation_id", "Ver": "api_version"}[title]
    return a[column].astype(wide)


def _state_ranks() -> Any:
    """The rank of each state among their names, by its number in the index."""
    import numpy

    from ....captures.recording.index import STATE_MASK, STATES

    names = sorted(STATES)
    ranks: Any = numpy.zeros(STATE_MASK + 1, numpy.int64)
    ranks[: len(STATES)] = [names.index(state) for state in STATES]
    return ranks


def _texts(title: str, index: Index, a: Any) -> tuple[list[str], Any]:
    """The texts of a column, and the index of each row's text among them."""
    import numpy

    connections, which = numpy.unique(a["connection"], return_inverse=True)
    ends = [index.connections.get(n) for n in connections.tolist()]
    addresses = ["" if end is None else end.broker if title == "Broker" else end.client for end in ends]
    if title != "Client":
        return addresses, which
    ids, own = numpy.unique(a["client_id"], return_inverse=True)
    names = [index.string(n) or "" for n in ids.tolist()]
    # A client without an id goes by its address.
    nameless = numpy.array([not name for name in names])
    return [*names, *addresses], numpy.where(nameless[own], which + len(names), own)


def _ranks(parts: list[tuple[list[str], Any]]) -> Any:
    import numpy

    ranks = {text: rank for rank, text in enumerate(sorted({text for texts, _ in parts for text in texts}))}
    return numpy.concatenate([numpy.array([ranks[t] for t in texts], numpy.int64)[which] for texts, which in parts])


def row_finder(capture: Capture, text: str) -> RowFinder:
    """The rows that a filter selects. Raises `FilterError`."""
    from ....captures.reading.selection import Selection
    from ....decoder.filter import compile

    selection = Selection(capture, compile(text, zone=zone()))

    def find(start: int, stop: int) -> Iterable[int]:
        return selection.rows(start=start, stop=stop)

    return find


def is_slow(text: str, capture: Capture) -> bool:
    """Whether messages of a capture have to be decoded to decide a filter."""
    from ....captures.reading.selection import Selection
    from ....decoder.filter import compile

    wanted = compile(text)
    if wanted.columns_only or not (wanted.names_decide and capture.has_frames):
        return not wanted.columns_only
    return not Selection(capture, wanted).knows_names()


class RowTints:
    """The role that a row is drawn in: that of the first filter that selects it. Results are cached."""

    def __init__(self, capture: Capture, rules: Iterable[ColourRule]):
        self._rules = [(row_finder(capture, rule.filter), rule.role) for rule in rules]
        self._known: dict[Row, Role] = {}

    def __call__(self, row: Row) -> Role:
        if not self._rules:
            return ""
        known = self._known.get(row)
        if row.waiting_ns is not None:
            return self._decide(row)
        if known is None:
            if len(self._known) > 4096:
                self._known.clear()
            known = self._known[row] = self._decide(row)
        return known

    def _decide(self, row: Row) -> Role:
        return next((role for find, role in self._rules if any(True for _ in find(row.number, row.number + 1))), "")


RowTint = Callable[[Row], Role]
