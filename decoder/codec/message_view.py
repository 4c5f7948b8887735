"""A message as its definition promises it, for code that draws conclusions from fields.

The decoder reads more than a definition allows: forbidden nulls, and unknown tagged fields (KIP-482). A `Message` keeps both,
as they are facts about the bytes. A `MessageView` is the same message without them: a forbidden null becomes the empty value
of its type, and there are no unknown tags. `forbidden_nulls` still lists the nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from .message import Message
from .plan import ZERO_UUID, FieldPlan, PlanValue, StructPlan, Values
from .project import field_at, values_at

_EMPTY = {"string": "", "uuid": ZERO_UUID}


class MessageView(Message):
    """`values`, `to_dict`, ``[path]`` and `lists_at` give None only if the version allows null."""

    __slots__ = ("_as_read", "_sound")

    def __init__(self, message: Message) -> None:
        self._sound = _soundness(message.plan.root)(message.values)
        self._as_read = message
        super().__init__(
            message.plan,
            message.values if self._sound else _sound(message.plan.root, message.values),
            message.frame,
            message.body_start,
            message.header,
            message.trailing,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return MessageView, (self._as_read,)

    def forbidden_nulls(self) -> Iterator[str]:
        return iter(()) if self._sound else self._as_read.forbidden_nulls()

    def lists_at(self, *paths: str) -> tuple[list[PlanValue], ...]:
        """All values at each path (``"topics.partitions.leader_id"``), in wire order; UUIDs as 16 bytes."""
        found = values_at(self.plan, self.frame, self.body_start, paths)
        if self._sound:
            return found
        fields = (field_at(self.plan, path)[0] for path in paths)
        return tuple([_value(f, v) for v in values] for f, values in zip(fields, found, strict=True))


@cache
def _soundness(plan: StructPlan) -> Callable[[Values], bool]:
    """A function that tests whether a struct's values have no forbidden null and no unknown tag, as nearly all do."""
    flexible = plan.flexible
    never_null = tuple(i for i, f in enumerate(plan.fields) if not f.nullable)
    # Items of an array must not be null, but those with a length can be.
    named = tuple(i for i, f in enumerate(plan.fields) if f.array and f.type in ("string", "bytes", "records"))
    structs = tuple((i, f.array, _soundness(f.struct)) for i, f in enumerate(plan.fields) if f.struct is not None)

    def is_sound(values: Values) -> bool:
        if flexible and values[-1]:
            return False
        if None in values:
            for at in never_null:
                if values[at] is None:
                    return False
        for at in named:
            if values[at] is not None and None in values[at]:
                return False
        for at, array, is_sound_inside in structs:
            value = values[at]
            if value is None:
                continue
            if not array:
                if not is_sound_inside(value):
                    return False
                continue
            for item in value:
                if not is_sound_inside(item):
                    return False
        return True

    return is_sound


def _sound(plan: StructPlan, values: Values) -> Values:
    found = [_value(field, value) for field, value in zip(plan.fields, values, strict=False)]
    made: Values = plan.named._make([*found, *([()] if plan.flexible else ())])
    return made


def _value(field: FieldPlan, value: PlanValue) -> PlanValue:
    if value is None:
        return None if field.nullable else () if field.array else _of_type(field)
    if field.struct is None:
        return tuple(_of_type(field) if v is None else v for v in value) if field.array and None in value else value
    return tuple(_sound(field.struct, item) for item in value) if field.array else _sound(field.struct, value)


def _of_type(field: FieldPlan) -> PlanValue:
    return field.struct.defaults() if field.struct is not None else _EMPTY.get(field.type, b"")
