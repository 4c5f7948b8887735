"""A message as its definition promises it, for code that draws conclusions from fields.

The decoder reads more than a definition allows: forbidden nulls, and unknown tagged fields (KIP-482). A `Message` keeps both,
as they are facts about the bytes. A `MessageView` is the same message without them: a forbidden null becomes the empty value
of its type, and there are no unknown tags. `forbidden_nulls` still lists the nulls. Nearly all messages are their own view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NewType

from ..schema.plan import ZERO_UUID, FieldPlan, PlanValue, StructPlan, Values
from .message import Message
from .project import field_at, values_at

_EMPTY = {"string": "", "uuid": ZERO_UUID}

MessageView = NewType("MessageView", Message)
"""`values`, `to_dict`, ``[path]`` and `lists_at` give None only if the version allows null."""


def view_of(message: Message) -> MessageView:
    """The view of a message: itself if it is `sound`."""
    return MessageView(message if message.sound else _Corrected(message))


def lists_at(view: MessageView, *paths: str) -> tuple[list[PlanValue], ...]:
    """All values at each path (``"topics.partitions.leader_id"``), in wire order; UUIDs as 16 bytes."""
    found = values_at(view.plan, view.frame, view.body_start, paths)
    if not isinstance(view, _Corrected):
        return found
    fields = (field_at(view.plan, path)[0] for path in paths)
    return tuple([_value(f, v) for v in values] for f, values in zip(fields, found, strict=True))


class _Corrected(Message):
    """The view of a message that is not sound. `encode` gives the bytes that were read."""

    __slots__ = ("_as_read",)

    def __init__(self, message: Message) -> None:
        self._as_read = message
        values = _sound(message.plan.root, message.values)
        super().__init__(message.plan, values, message.frame, message.body_start, message.header, message.trailing)

    def __reduce__(self) -> tuple[Any, ...]:
        return view_of, (self._as_read,)

    def forbidden_nulls(self) -> Iterator[str]:
        return self._as_read.forbidden_nulls()


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
