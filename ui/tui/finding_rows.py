"""Filters as searches of a `RowView`. What compiles them is loaded when there is one: the first screen needs none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...captures import Capture, Row
from ..times import zone
from .rows import Find


def finder(capture: Capture, text: str) -> Find:
    """The rows that a filter selects. Raises `FilterError`."""
    from ...captures.selection import Selection
    from ...decoder.filter import compile

    selection = Selection(capture, compile(text, zone=zone()))

    def find(start: int, stop: int) -> Iterable[int]:
        return selection.rows(start=start, stop=stop)

    return find


def is_slow(text: str) -> bool:
    """Whether messages have to be decoded to decide it."""
    from ...decoder.filter import compile

    return not compile(text).columns_only


class Looks:
    """Roles of rows by filters, the first that fits; what was decided is remembered."""

    def __init__(self, capture: Capture, rules: Iterable[tuple[str, str]]):
        self._rules = [(finder(capture, text), role) for text, role in rules]
        self._known: dict[Row, str] = {}

    def __call__(self, row: Row) -> str:
        if not self._rules:
            return ""
        known = self._known.get(row)
        if known is None:
            if len(self._known) > 4096:
                self._known.clear()
            known = self._known[row] = self._decide(row)
        return known

    def _decide(self, row: Row) -> str:
        return next((role for find, role in self._rules if any(True for _ in find(row.number, row.number + 1))), "")


Look = Callable[[Row], str]
