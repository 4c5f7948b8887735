"""A produced and a recorded record in a line each: the parts that differ, and of long values only the place of the
difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...captures.serving import UnrecordedRecord
from ...decoder.records import Record

_BEFORE, _SHOWN = 24, 72
"""Bytes of a value that are shown, and how many of them before the first that differs."""


def show_both(difference: UnrecordedRecord) -> tuple[str, str]:
    """(the live record, the recorded one), each with the parts that differ; "" for a record that is not there."""
    live, recorded = difference.live, difference.recorded
    if recorded is None:
        return _parts(live, live, ("key", "value", "headers")), ""
    names = [name for name in ("key", "value", "headers") if getattr(live, name) != getattr(recorded, name)]
    return _parts(live, recorded, names or ("value",)), _parts(recorded, live, names or ("value",))


def _parts(record: Record, other: Record, names: Sequence[str]) -> str:
    found = []
    for name in names:
        value, beside = getattr(record, name), getattr(other, name)
        if name != "headers" or value or beside:
            found.append(f"{name} {_shown(value, beside)}")
    return ", ".join(found)


def _shown(value: Any, other: Any) -> str:
    if not isinstance(value, bytes):
        text = "null" if value is None else repr(dict(value))
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    same = 0
    if isinstance(other, bytes) and other != value:
        shorter = min(len(value), len(other))
        same = next((at for at in range(shorter) if value[at] != other[at]), shorter)
    begin = max(0, same - _BEFORE) if len(value) > _SHOWN else 0
    end = begin + _SHOWN
    text = value[begin:end].decode("utf-8", "backslashreplace")
    return f"{'...' if begin else ''}{text}{'...' if end < len(value) else ''}"
