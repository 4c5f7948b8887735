"""Which of a capture's rows the list shows, and in which order; found without holding the screen up.

Only row numbers are kept (8 bytes each), and only while there is a search or an order. A search begins where the cursor
is and goes both ways, in slices of a few milliseconds, so that the first hits are there at once and keys are answered
while a million rows are looked at.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

from ...captures import Row

Find = Callable[[int, int], Iterable[int]]
"""The numbers of the wanted rows among rows start to stop, ascending."""
SortKey = Callable[[Row], object]
_FIRST, _MOST = 256, 1 << 18
_SLICE = 0.008
"""Seconds that one call of a search should take."""


class RowView:
    """A growing list of rows seen through an optional search; positions count within what is shown."""

    def __init__(self, rows: Sequence[Row], numbers: Iterable[int] | None = None):
        """`numbers`: show these rows and no others."""
        self.rows = rows
        self.find: Find | None = None
        self.low = self.high = 0
        """Rows `low` to `high` have been looked at."""
        self._before: array[int] = array("Q")  # descending
        self._behind: array[int] = array("Q")
        self._sorted: array[int] | None = None
        self._window = _FIRST
        self._fixed = numbers is not None
        if numbers is not None:
            self._behind.extend(numbers)

    def __len__(self) -> int:
        if self._sorted is not None:
            return len(self._sorted)
        if self.find is None and not self._fixed:
            return len(self.rows)
        return len(self._before) + len(self._behind)

    def show(self, find: Find | None, around: int = 0) -> None:
        """Start over with another search, at row `around`; None shows everything."""
        self.find, self._fixed, self._sorted = find, False, None
        self.low = self.high = max(0, min(around, len(self.rows)))
        self._before, self._behind = array("Q"), array("Q")
        self._window = _FIRST

    @property
    def searched(self) -> int:
        """How many rows have been looked at."""
        return self.high - self.low

    @property
    def searching(self) -> bool:
        """Whether rows are left to be looked at."""
        return self.find is not None and (self.low > 0 or self.high < len(self.rows))

    def search(self, seconds: float = 0.012) -> int:
        """Look at further rows for about `seconds`. How many rows came before the first one that was shown."""
        find, before, until = self.find, len(self._before), perf_counter() + seconds
        if find is None:
            return 0
        while self.searching:
            began = perf_counter()
            # What is behind the cursor is seen first; but a long list must not keep the other side waiting.
            if self.high < len(self.rows) and (self.low == 0 or len(self._behind) < 200 or self._window % 2):
                stop = min(self.high + self._window, len(self.rows))
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

    # --- order ---------------------------------------------------------------------------------------------

    def sort(self, key: SortKey | None, descending: bool = False) -> None:
        """Put what is shown now in an order; None: as in the capture. What is found later is not among it."""
        rows = self.rows
        self.put(None)
        if key is not None:
            order = sorted(self.numbers(), key=lambda number: key(rows[number]), reverse=descending)  # type: ignore[arg-type,return-value]
            self._sorted = array("Q", order)

    def numbers(self) -> Sequence[int]:
        """The numbers of the rows that are shown, as in the capture."""
        if self.find is None and not self._fixed:
            return range(len(self.rows))
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
            return self._sorted[position]
        if self.find is None and not self._fixed:
            return position
        before = len(self._before)
        return self._before[before - 1 - position] if position < before else self._behind[position - before]

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
        if (self._behind and number >= self._behind[0]) or not self._before:
            return len(self._before) + bisect_left(self._behind, number)
        return bisect_left(range(len(self._before)), number, key=lambda i: self._before[len(self._before) - 1 - i])
