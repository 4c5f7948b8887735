"""Drafts: message layouts that were proposed but never shipped in that form. They are read and written by name.

A name is the proposal and the message: ``"kip-35.Metadata"``. Functions accept it in any case, and also in the drafts'
other spellings: in the singular, with Request or Response at the end. The files are in ``schema/definitions/drafts/``.
Nothing else in the decoder uses them: a draft may have the API key and version of a message that shipped with other bytes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from ...codec.encode import encode_struct, values_from
from ...codec.message import Message, steps
from ...codec.walk import FieldSpan, Walker
from ...errors import EncodeError, TrailingBytes, UnknownApi, UnknownVersion
from ...schema import facts
from ...schema.notation import Definition, VersionRange, parse
from ...schema.plan import FieldPlan, Fields, Plan, PlanValue, StructPlan, Value, Values, compile_plan

# Drafts that write an optional value of any type as KIP-4's MaybeOf: one byte, 0 for absent, then the value.
MAYBE_OF = frozenset({"kip-4"})


@cache
def _definitions() -> dict[str, dict[str, Definition]]:
    """Name -> kind -> definition."""
    found: dict[str, dict[str, Definition]] = {}
    folder = facts.schema_folder() / "drafts"
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if not entry.name.endswith(".kafka"):
            continue
        for definition in parse(entry.read_text("utf-8"), entry.name):
            message = definition.name.removesuffix("Request").removesuffix("Response")
            name = f"{entry.name.removesuffix('.kafka')}.{message}"
            found.setdefault(name, {})[definition.kind] = definition
    return found


def names() -> list[str]:
    """The names of all drafts, such as ``"kip-4.DescribeTopic"``, sorted."""
    return sorted(_definitions())


def is_draft(name: str) -> bool:
    """Whether a name has the form of a draft's name, with a proposal in front."""
    return re.match(r"kip-\d+\.", name, re.I) is not None


def named(name: str) -> str:
    """A draft's name as `names` has it. Raises `UnknownApi` with the nearest name."""
    known = {each.lower(): each for each in names()}
    plain = re.sub("(request|response)$", "", name.lower())
    found = known.get(plain) or known.get(f"{plain}s")
    if found is None:
        near = difflib.get_close_matches(plain, known, 1, 0.5)
        raise UnknownApi(
            f"there is no draft {name!r}" + (f", did you mean {known[near[0]]!r}?" if near else ""), path="draft"
        )
    return found


def versions(name: str) -> VersionRange:
    """The versions of a draft. Raises `UnknownApi` if there is none of that name."""
    return definition(name, "request").versions


def definition(name: str, kind: str) -> Definition:
    """The definition of a draft's ``"request"`` or ``"response"``. Raises `UnknownApi` if there is none."""
    return _definitions()[named(name)][kind]


@cache
def layout(name: str, kind: str, version: int) -> Plan:
    """The plan of a draft's body. Raises `UnknownApi` and `UnknownVersion`."""
    of = definition(name, kind)
    if version not in of.versions:
        raise UnknownVersion(f"version {version} is not known; known versions: {of.versions}", api=name, version=version)
    return compile_plan(of, version, -1 if of.key is None else of.key)


def decode(name: str, kind: str, version: int, data: bytes) -> Message:
    """Decode a draft's body, without header. Raises `DecodeError`."""
    name, data = named(name), bytes(data)
    plan = layout(name, kind, version)
    walker = _walker(name, plan, data)
    walker.run()
    end = walker.position
    message = DraftMessage(name, plan, _values(plan.root, walker.tree), data, data[end:])
    if end != len(data):
        raise TrailingBytes(
            f"{len(data) - end} byte{'s' * (len(data) - end != 1)} left over",
            api=name,
            version=version,
            path="(after the message)",
            offset=end,
            partial=message.to_dict(),
            message=message,
        )
    return message


def encode(name: str, kind: str, version: int, fields: Mapping[str, Value]) -> bytes:
    """Encode a draft's body, without header, from nested dicts with snake_case names. Raises `EncodeError`."""
    name = named(name)
    plan = layout(name, kind, version)
    return _bytes(name, plan, values_from(plan.root, fields))


class DraftMessage(Message):
    """A message of a draft. Its `replace` and `map` follow the draft's rule for optional values."""

    __slots__ = ("name",)

    def __init__(self, name: str, plan: Plan, values: Values, data: bytes, trailing: bytes = b""):
        super().__init__(plan, values, data, trailing=trailing)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return DraftMessage, (self.name, self.plan, self.values, self.frame, self.trailing)

    def replace(self, edits: Mapping[str, Value]) -> Message:
        """A new message with the fields at these paths changed. Raises `EncodeError`."""
        fields = self.to_dict()
        for path, new in edits.items():
            *way, last = steps(path)
            at: Value = fields
            try:
                for step in way:
                    at = at[step]
                at[last]  # only existing fields can be replaced
                at[last] = new
            except (KeyError, IndexError, TypeError):
                raise EncodeError("no such field in this message", path) from None
        values = values_from(self.plan.root, fields)
        return DraftMessage(
            self.name, self.plan, values, _bytes(self.name, self.plan, values) + self.trailing, self.trailing
        )

    def map(self) -> list[FieldSpan]:
        """The ``(path, start, end)`` of every field; the span of an optional field begins with its byte of presence."""
        walker = _walker(self.name, self.plan, self.frame)
        walker.run()
        return sorted(walker.spans, key=lambda s: (s.start, -s.end))


def _maybe_of(name: str) -> bool:
    return name.split(".")[0] in MAYBE_OF


def _walker(name: str, plan: Plan, data: bytes) -> Walker:
    return _MaybeWalker(plan, data) if _maybe_of(name) else Walker(plan, data)


class _MaybeWalker(Walker):
    """Reads a nullable field as MaybeOf."""

    def _field(self, field: FieldPlan, path: str) -> Value:
        if not field.nullable:
            return super()._field(field, path)
        start, known = self.position, len(self.spans)
        present = self._take(1, path)[0]
        value = super()._field(replace(field, nullable=False), path) if present else None
        # One span for the field with its byte of presence replaces that of the value alone.
        self.spans[known:] = [span for span in self.spans[known:] if span.path != path]
        self.spans.append(FieldSpan(path, start, self.position))
        return value


def _values(plan: StructPlan, tree: Fields) -> Values:
    """The tree that a walker read, in plan order."""
    made: Values = plan.named._make(_value(field, tree[field.name]) for field in plan.fields)
    return made


def _value(field: FieldPlan, value: Value) -> PlanValue:
    if isinstance(value, list):
        return tuple(_values(field.struct, item) if field.struct else item for item in value)
    return _values(field.struct, value) if field.struct and value is not None else value


def _bytes(name: str, plan: Plan, values: Values) -> bytes:
    out = bytearray()
    if _maybe_of(name):
        _write(plan.root, values, out, "")
    else:
        encode_struct(plan.root, values, out)
    return bytes(out)


def _write(plan: StructPlan, values: Values, out: bytearray, path: str) -> None:
    """Like `encode_struct`, with MaybeOf for nullable fields."""
    for field, value in zip(plan.fields, values, strict=True):
        where = f"{path}.{field.name}" if path else field.name
        if field.nullable:
            out.append(value is not None)
            if value is None:
                continue
        if field.struct and field.array:
            out += len(value).to_bytes(4, "big")
            for i, item in enumerate(value):
                _write(field.struct, item, out, f"{where}[{i}]")
        elif field.struct:
            _write(field.struct, value, out, where)
        else:
            encode_struct(StructPlan(plan.name, False, (field,), 1), (value,), out, path)
