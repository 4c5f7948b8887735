"""Edit a message in place: only the bytes of the changed fields, and the sizes of tagged fields around them, are written.

A message may differ from its canonical form: lengths longer than needed, tags out of order, unknown tags, explicit
defaults. Fields that are not edited keep such bytes.

`BodySplicer` reads the original by its plan and writes the new message beside it. Unchanged values are recognised by identity:
edits copy the values along their path and share all others.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Callable, Iterable
from operator import is_not
from typing import Any, Protocol, TypeVar

from ..schema.plan import FieldPlan, PlanValue, StructPlan, Values
from ..wire.varint import read_uvarint, write_uvarint
from .decode import field_skipper
from .encode import encode_field


class Branch(Protocol):
    """A field of a struct that may be changed."""

    @property
    def at(self) -> int: ...
    @property
    def field(self) -> FieldPlan: ...


B = TypeVar("B", bound=Branch)


def changed_fields(values: Values, branches: Iterable[B], change: Callable[[B, Any], Any]) -> Values:
    """A struct's values after `change` of these fields, of each item where they are arrays; nulls stay. The same object if nothing changes."""
    new: list[Any] | None = None
    for branch in branches:
        old = values[branch.at]
        if old is None:
            continue
        if branch.field.array:
            items = [change(branch, item) for item in old]
            value = tuple(items) if any(map(is_not, old, items)) else old
        else:
            value = change(branch, old)
        if value is not old:
            new = list(values) if new is None else new
            new[branch.at] = value
    return values if new is None else tuple(new)


class BodySplicer:
    """Writes `new` values over `old` ones; both belong to the body of `frame` that starts at `position`."""

    def __init__(self, frame: bytes, position: int):
        self.data, self.at = frame, position
        self.out = bytearray(frame[:position])

    def _copy(self, end: int) -> None:
        self.out += self.data[self.at : end]
        self.at = end

    def root(self, plan: StructPlan, old: Values, new: Values) -> bytes:
        """The whole frame. After the last change the rest is copied without being read."""
        last = max((i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a is not b), default=-1)
        self.struct(plan, old, new, last)
        self._copy(len(self.data))
        return bytes(self.out)

    def struct(self, plan: StructPlan, old: Values, new: Values, last: int | None = None) -> None:
        """A struct; with `last`, only up to the field with that number."""
        for i, field in enumerate(plan.fields[: plan.untagged]):
            if last is not None and i > last:
                return
            self.field(field, old[i], new[i])
        if plan.flexible and (last is None or last >= plan.untagged):
            self.tags(plan, old, new)

    def field(self, field: FieldPlan, old: PlanValue, new: PlanValue) -> None:
        """One field, with its length and null marker."""
        end = None
        if old is new:
            self._copy(field_skipper(field)(self.data, self.at))
        elif old is None or new is None or field.struct is None:
            end = field_skipper(field)(self.data, self.at)
        elif not field.array:
            self._copy(self.at + field.nullable)
            self.struct(field.struct, old, new)
        elif len(old) == len(new):
            self._copy(self._behind_count(field))
            for a, b in zip(old, new, strict=True):
                self.struct(field.struct, a, b)
        else:
            end = field_skipper(field)(self.data, self.at)
        if end is not None:
            encode_field(field, new, self.out)
            self.at = end

    def _behind_count(self, field: FieldPlan) -> int:
        return read_uvarint(self.data, self.at)[1] if field.compact else self.at + _struct.calcsize(">i")

    def tags(self, plan: StructPlan, old: Values, new: Values) -> None:
        """The tagged fields: each tag keeps its place, and a new one goes before the next higher one."""
        fields, known = plan.fields, plan.tags
        count, behind = read_uvarint(self.data, self.at)
        missing = {tag: i for tag, i in known.items() if old[i] is not new[i]}
        unknown = dict(new[-1]) if new[-1] is not old[-1] else None
        counted = self.data[self.at : behind]
        self.at = behind
        entries: list[tuple[int, bytes]] = []
        last = self._last_of(count) if missing else {}
        for _ in range(count):
            start = self.at
            tag, position = read_uvarint(self.data, start)
            size, position = read_uvarint(self.data, position)
            if tag in missing:
                i = missing[tag]
                if start < last[tag]:
                    self.at = position + size  # a repeated tag: the last one counts, the others are dropped
                elif new[i] == fields[i].default:
                    self.at = position + size  # the default is left out, as Kafka does
                    del missing[tag]
                else:
                    entries.append((tag, self._tag(start, position, fields[i], old[i], new[i])))
                    del missing[tag]
                continue
            self.at = position + size
            if tag in known or unknown is None or unknown.pop(tag, None) == self.data[position : position + size]:
                entries.append((tag, self.data[start : self.at]))
        added = {tag: self._encoded(fields[i], new[i]) for tag, i in missing.items() if new[i] != fields[i].default}
        for tag, data in sorted({**added, **(unknown or {})}.items()):
            entry = bytearray()
            write_uvarint(entry, tag)
            write_uvarint(entry, len(data))
            place = next((i for i, (other, _) in enumerate(entries) if other > tag), len(entries))
            entries.insert(place, (tag, bytes(entry) + data))
        if len(entries) == count:
            self.out += counted
        else:
            write_uvarint(self.out, len(entries))
        for _, raw in entries:
            self.out += raw

    def _last_of(self, count: int) -> dict[int, int]:
        """For each tag, where its last field starts among the next `count` ones."""
        last: dict[int, int] = {}
        at = self.at
        for _ in range(count):
            tag, position = read_uvarint(self.data, at)
            last[tag] = at
            size, position = read_uvarint(self.data, position)
            at = position + size
        return last

    def _tag(self, start: int, position: int, field: FieldPlan, old: PlanValue, new: PlanValue) -> bytes:
        outside, self.out = self.out, bytearray()
        self.at = position
        self.field(field, old, new)
        value, self.out = self.out, outside
        entry = bytearray(self.data[start : read_uvarint(self.data, start)[1]])
        write_uvarint(entry, len(value))
        return bytes(entry + value)

    @staticmethod
    def _encoded(field: FieldPlan, value: PlanValue) -> bytes:
        out = bytearray()
        encode_field(field, value, out)
        return bytes(out)
