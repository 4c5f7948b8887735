"""Test one value, for the back ends that look at values one by one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from functools import cache, lru_cache
from typing import Any

from .language.check import names_of
from .language.fields import ValueKind
from .language.literals import DAY, Endpoint, TimeOfDay, seconds_of_offset
from .language.patterns import Pattern
from .language.tree import ON_TEXT, FieldValue, Op, Test, ValueRange

Predicate = Callable[[Any], bool]
_QUARTER = 900 * 10**9  # no zone changes its offset within a quarter of an hour


@cache
def time_of_day(zone: tzinfo | None) -> Callable[[int], int]:
    """A function from nanoseconds since the epoch to nanoseconds since midnight in a zone (None: the local one)."""

    @lru_cache(4096)
    def offset(quarter: int) -> int:
        return seconds_of_offset(quarter * _QUARTER, zone) * 10**9

    return lambda ns: (ns + offset(ns // _QUARTER)) % DAY


def predicate(test: Test, zone: tzinfo | None = None) -> Predicate:
    """The function from one value to whether it passes; `negated` is the caller's. Not for `FieldValue`."""
    assert not isinstance(test.value, FieldValue)
    return of_value(test.field.kind, test.op, test.value, zone)


def of_value(kind: ValueKind, op: Op, value: Any, zone: tzinfo | None = None) -> Predicate:
    """As `predicate`, for values of a kind, an operator, and what to compare them with."""
    if op is Op.TRUE:
        return _true(kind)
    if op is Op.IN:
        return _in(kind, value, zone)
    if kind is ValueKind.ADDRESS:
        assert isinstance(value, Endpoint)
        return lambda end: value.matches(*end)
    if op in ON_TEXT:
        return _text(kind, op, value)
    compare = _COMPARE[op]
    if isinstance(value, TimeOfDay):
        at, of_day = value.ns, time_of_day(zone)
        return lambda ns: compare(of_day(ns), at)
    return lambda found: compare(found, value)


_COMPARE: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQUAL: lambda a, b: bool(a == b),
    Op.LESS: lambda a, b: bool(a < b),
    Op.LESS_EQUAL: lambda a, b: bool(a <= b),
    Op.GREATER: lambda a, b: bool(a > b),
    Op.GREATER_EQUAL: lambda a, b: bool(a >= b),
}


def compare(op: Op, left: object, right: object) -> bool:
    """Compare two values, in tests of a field against another field."""
    return _COMPARE[op](left, right)


def _true(kind: ValueKind) -> Predicate:
    if kind in (ValueKind.FLAG, ValueKind.ERROR, ValueKind.TEXT, ValueKind.BYTES, ValueKind.STRUCT):
        return bool
    return lambda value: True


def _in(kind: ValueKind, items: tuple[Any, ...], zone: tzinfo | None) -> Predicate:
    plain = frozenset(item for item in items if not isinstance(item, ValueRange | TimeOfDay | Endpoint))
    others = [_item(kind, item, zone) for item in items if isinstance(item, ValueRange | TimeOfDay | Endpoint)]
    if not others:
        return lambda value: value in plain
    return lambda value: value in plain or any(test(value) for test in others)


def _item(kind: ValueKind, item: Any, zone: tzinfo | None) -> Predicate:
    if not isinstance(item, ValueRange):
        return of_value(kind, Op.EQUAL, item, zone)
    low, high = item.low, item.high
    if isinstance(low, TimeOfDay) and isinstance(high, TimeOfDay):
        first, last, of_day = low.ns, high.ns, time_of_day(zone)
        if first <= last:
            return lambda ns: first <= of_day(ns) <= last
        return lambda ns: not last < of_day(ns) < first  # over midnight
    assert isinstance(low, int | float) and isinstance(high, int | float)
    lowest, highest = low, high
    return lambda value: bool(lowest <= value <= highest)


def _text(kind: ValueKind, op: Op, value: Any) -> Predicate:
    if kind in (ValueKind.API, ValueKind.ERROR, ValueKind.CODEC):
        passes = _text(ValueKind.STATE, op, value)
        numbers = frozenset(number for name, number in names_of(kind).items() if passes(name))
        return lambda number: number in numbers
    if kind is ValueKind.BYTES:
        passes = _text(ValueKind.TEXT, op, value)
        return lambda data: passes(data.decode("utf-8", "replace"))
    if isinstance(value, Pattern):
        return value.search
    wanted: str = value
    if kind is ValueKind.STATE:  # names of states, APIs, errors: in any case
        passes = _text(ValueKind.TEXT, op, wanted.lower())
        return lambda name: passes(name.lower())
    if op is Op.CONTAINS:
        return lambda text: wanted in text
    if op is Op.STARTS:
        return lambda text: bool(text.startswith(wanted))
    return lambda text: bool(text.endswith(wanted))
