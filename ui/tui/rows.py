"""Which of a capture's rows the list shows: all, or those that pass a test; counted without holding the screen up.

Only row numbers are kept (8 bytes each), and only while there is a test. Rows are looked at in slices of a few
milliseconds, so that a million of them can be searched while keys are still answered.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from time import perf_counter

from ...captures import Row

Test = Callable[[Row], bool]


class RowView:
    """A growing list of rows seen through an optional test; positions count within what is shown."""

    def __init__(self, rows: Sequence[Row]):
        self.rows = rows
        self.test: Test | None = None
        self.searched = 0
        self._hits: array[int] = array("Q")

    def __len__(self) -> int:
        return len(self.rows) if self.test is None else len(self._hits)

    def show(self, test: Test | None) -> None:
        """Start over with another test; None shows everything."""
        self.test, self.searched, self._hits = test, 0, array("Q")

    @property
    def searching(self) -> bool:
        """Whether rows are left to be looked at."""
        return self.test is not None and self.searched < len(self.rows)

    def search(self, seconds: float = 0.02) -> bool:
        """Look at further rows for about `seconds`; whether any of them is shown now."""
        if self.test is None:
            return False
        before, end, until = len(self._hits), len(self.rows), perf_counter() + seconds
        while self.searched < end:
            stop = min(self.searched + 256, end)
            for number, row in enumerate(self.rows[self.searched : stop], self.searched):
                if self.test(row):
                    self._hits.append(number)
            self.searched = stop
            if perf_counter() > until:
                break
        return len(self._hits) > before

    def number(self, position: int) -> int:
        """The row's number in the capture, from 0."""
        return position if self.test is None else self._hits[position]

    def row(self, position: int) -> Row:
        """The row at a position of what is shown."""
        return self.rows[self.number(position)]

    def position(self, number: int) -> int | None:
        """Where the capture's row `number` is shown, None if it is not."""
        if self.test is None:
            return number if number < len(self.rows) else None
        low, high = 0, len(self._hits)
        while low < high:
            middle = (low + high) // 2
            if self._hits[middle] < number:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self._hits) and self._hits[low] == number else None
