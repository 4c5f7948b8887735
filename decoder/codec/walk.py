"""Walk: the slow reader of a plan, which knows where it is.

It gives the byte map of a message (path, start and end of every field), and for bytes that the compiled decoder refused
the exact fault: what is wrong, at which path and offset, and what was read before it.
"""

from __future__ import annotations

import struct as _struct
from typing import NamedTuple

from ..errors import BadLength, BadUtf8, DecodeError, LimitExceeded, Truncated
from ..schema.plan import FieldPlan, Fields, Plan, StructPlan, Value
from ..wire.varint import VarintCut, VarintTooLong, read_uvarint
from .decode import FAULTS, FIXED, FREE_ITEMS, LENGTH_FORMAT, item_skipper, most_items
from .encode import UNKNOWN_TAGS

_KEPT = 1 << 14
"""Array items that `Walker.explain` keeps, so that a fault at the end of a large message takes no more memory than the message."""
_LAYOUTS = {name: _struct.Struct(">" + letter) for name, letter in FIXED.items()}


class FieldSpan(NamedTuple):
    """The bytes of a field: ``data[start:end]``, length bytes included."""

    path: str
    start: int
    end: int


class Walker:
    """Reads `data` from `position` on by `plan`. ``tree`` and ``spans`` have what was read, even after a fault.

    `missing`: how many bytes of the message are known to be missing after `data`.
    """

    def __init__(self, plan: Plan, data: bytes, position: int = 0, missing: int = 0):
        self.plan, self.data, self.position = plan, data, position
        self._missing = missing
        self.tree: Fields = {}
        self.spans: list[FieldSpan] = []
        self._items = 0
        self._kept = 0
        self._brief = False
        # Where the current field belongs. Structs and arrays are put there before they are filled, so that the tree
        # has what was read when a fault ends the walk.
        self._place: tuple[Fields, str] = (self.tree, "")

    def run(self) -> None:
        """Read to the end of the message. Raises `DecodeError` with path, offset and partial tree."""
        self._struct(self.plan.root, self.tree, "")

    def explain(self) -> DecodeError:
        """What is wrong with bytes that the compiled decoder refused. `partial` of a large message has its first items and the
        one at fault."""
        self._brief = True
        try:
            self.run()
        except DecodeError as fault:
            return fault
        if len(self.data) > FREE_ITEMS:  # skipped items were not counted
            text = f"limit: there are more than the {most_items(len(self.data))} items that {len(self.data)} bytes may hold"
            return self._fail(LimitExceeded, text, "", self.position)
        return self._fail(BadLength, "the bytes cannot be read", "", self.position)

    def _fail(self, kind: type[DecodeError], text: str, path: str, offset: int) -> DecodeError:
        return kind(text, api=self.plan.api, version=self.plan.version, path=path, offset=offset, partial=self.tree)

    def _struct(self, plan: StructPlan, into: Fields, prefix: str) -> None:
        for field in plan.fields[: plan.untagged]:
            self._place = into, field.name
            into[field.name] = self._field(field, prefix + field.name)
        if plan.flexible:
            self._tags(plan, into, prefix)

    def _tags(self, plan: StructPlan, into: Fields, prefix: str) -> None:
        for field in plan.fields[plan.untagged :]:
            into[field.name] = field.default
        path = prefix + "_tagged_fields"
        start = self.position
        count = self._uvarint(path)
        if not count:
            return
        if count * 2 > len(self.data) - self.position + self._missing:
            raise self._fail(BadLength, f"{count} tagged fields do not fit in the remaining bytes", path, start)
        self._count(count, path, start)
        for _ in range(count):
            at = self.position
            tag, size = self._uvarint(path), self._uvarint(path)
            end = self.position + size
            if end > len(self.data):
                raise self._fail(Truncated, f"tagged field {tag} of {size} bytes extends past the end", path, at)
            known = plan.tags.get(tag)
            if known is None:
                into.setdefault(UNKNOWN_TAGS, {})[tag] = self.data[self.position : end]
                self.position = end
                self.spans.append(FieldSpan(f"{prefix}{UNKNOWN_TAGS}[{tag}]", at, end))
                continue
            field = plan.fields[known]
            self._place = into, field.name
            into[field.name] = self._field(field, prefix + field.name)
            if self.position != end:
                raise self._fail(
                    BadLength,
                    f"tagged field {tag} declares {size} bytes, but its value has a different length",
                    prefix + field.name,
                    at,
                )

    def _field(self, field: FieldPlan, path: str) -> Value:
        start = self.position
        if field.struct is None and not field.array:
            value: Value = self._item(field, path)
            self.spans.append(FieldSpan(path, start, self.position))
            return value
        into, name = self._place
        value = None
        if field.array:
            count = self._length(field, "i", 4, path)
            if count is not None:
                if count > len(self.data) - self.position + self._missing:
                    raise self._fail(BadLength, f"{count} items do not fit in the remaining bytes", path, start)
                if field.type not in FIXED:
                    self._count(count, path, start)
                items: list[Value] = []
                into[name] = value = items
                for i in range(count):
                    self._kept += 1
                    if self._brief and self._kept > _KEPT and self._passes(field):
                        continue
                    if field.struct:
                        items.append({})
                        self._filled(field.struct, items[-1], f"{path}[{i}]")
                    else:
                        items.append(self._item(field, f"{path}[{i}]"))
        elif field.struct and field.nullable:
            mark = self._take(1, path)[0]
            null = 255 if field.tag is None else 0
            if mark not in (1, null):
                raise self._fail(
                    BadLength, f"a nullable struct starts with 1 or {'-1' if null else '0'}, not {mark}", path, start
                )
            if mark == 1:
                into[name] = value = {}
                self._struct(field.struct, value, path + ".")
        elif field.struct:
            into[name] = value = {}
            self._filled(field.struct, value, path)
        if field.array or field.nullable:
            self.spans.append(FieldSpan(path, start, self.position))
        return value

    def _passes(self, field: FieldPlan) -> bool:
        """Skip an item of an array. False if it cannot be read."""
        try:
            self.position = item_skipper(field)(self.data, self.position)
        except FAULTS:
            return False
        return True

    def _filled(self, struct: StructPlan, value: Fields, path: str) -> None:
        start = self.position
        self._struct(struct, value, path + ".")
        self.spans.append(FieldSpan(path, start, self.position))

    def _count(self, more: int, path: str, offset: int) -> None:
        self._items += more
        most = most_items(len(self.data))
        if self._items > most:
            size = len(self.data)
            text = f"limit: {self._items} items declared, but {size} bytes may hold at most {most}"
            raise self._fail(LimitExceeded, text, path, offset)

    def _item(self, field: FieldPlan, path: str) -> Value:
        layout = _LAYOUTS.get(field.type)
        if layout is not None:
            start = self.position
            if start + layout.size > len(self.data):
                self._take(layout.size, path)  # raises
            self.position = start + layout.size
            return layout.unpack_from(self.data, start)[0]
        letter, size = LENGTH_FORMAT[field.type]
        length = self._length(field, letter, size, path)
        if length is None:
            return None
        data = self._take(length, path)
        if field.type != "string":
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self._fail(BadUtf8, "not UTF-8", path, self.position - length + error.start) from None

    def _length(self, field: FieldPlan, letter: str, size: int, path: str) -> int | None:
        start = self.position
        if field.compact:
            length = self._uvarint(path) - 1
        else:
            length = _struct.unpack(">" + letter, self._take(size, path))[0]
        if length >= 0:
            return int(length)
        if length < -1:
            raise self._fail(BadLength, f"invalid length {length}", path, start)
        return None

    def _uvarint(self, path: str) -> int:
        start = self.position
        if start < len(self.data) and self.data[start] < 0x80:  # nearly all are one byte
            self.position += 1
            return self.data[start]
        try:
            value, self.position = read_uvarint(self.data, self.position)
        except VarintTooLong:
            raise self._fail(BadLength, "a varint of more than 5 bytes", path, start) from None
        except VarintCut:
            raise self._fail(Truncated, "the data ends inside a varint", path, start) from None
        return value

    def _take(self, size: int, path: str) -> bytes:
        end = self.position + size
        if end > len(self.data):
            left = len(self.data) - self.position
            raise self._fail(Truncated, f"expected {size} bytes, only {left} left", path, self.position)
        data = self.data[self.position : end]
        self.position = end
        return data
