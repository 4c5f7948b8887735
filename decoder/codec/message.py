"""A decoded message: the bytes of its frame, its plan, and the values."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from typing import Any, Protocol

from ..errors import EncodeError
from ..native.accelerator import native
from ..records import RecordsError
from ..records.places import part_of, with_part
from ..schema import facts
from ..schema.meaning import Meaning
from ..schema.plan import FieldPlan, Fields, Plan, PlanValue, StructPlan, Value, Values
from .encode import UNKNOWN_TAGS, value_from
from .splice import BodySplicer
from .walk import FieldSpan, Walker

_START, _END = itemgetter(1), itemgetter(2)
JSON_SCALARS = frozenset((int, str, bool, float, type(None)))
"""Types whose values JSON has as they are."""
_STEP = re.compile(r"([A-Za-z_]\w*)|\[(\d+)\]|\.")


if native is None:

    class MessageBase:
        """What a message holds. The accelerator's reads `values`, `header` and `first_code` (for `project.first_error`) out of the
        frame when they are asked for, and notices while it checks a frame whether the message is `sound`."""

        __slots__ = ("body_start", "frame", "header", "plan", "trailing", "values")
        known_sound = False
        first_code: int | None = None

        def __init__(self, plan: Plan, values: Values, frame: bytes, body_start: int, header: Fields, trailing: bytes):
            self.plan, self.values, self.frame, self.body_start = plan, values, frame, body_start
            self.header, self.trailing = header, trailing

        def __getitem__(self, path: str) -> Value:
            place = plain_places(self.plan.root).get(path)
            return self._value_at(path) if place is None else self.values[place]

        def _value_at(self, path: str) -> Value:
            raise NotImplementedError
else:
    MessageBase = native.MessageBase  # type: ignore[misc]


class Message(MessageBase):
    """One request or response, decoded. ``message[path]`` is the value at a path such as
    ``"topics[0].partitions[1].error_code"``, as `to_dict` has it; KeyError names a step that does not exist.

    ``frame``: its bytes, header included, without the 4 size bytes; the body starts at ``body_start``. ``header``: the
    header's fields as a dict, empty for a bare body. ``plan``: the layout of the body. ``values``: its values in that order,
    as named tuples: ``message.values.topics[0].partitions[1].error_code``; UUIDs are 16 bytes. ``trailing``: bytes after the
    message's end; `encode` writes them again.
    """

    __slots__ = ()

    def __init__(
        self,
        plan: Plan,
        values: Values,
        frame: bytes,
        body_start: int = 0,
        header: Fields | None = None,
        trailing: bytes = b"",
    ):
        super().__init__(plan, values, frame, body_start, header or {}, trailing)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.plan, self.values, self.frame, self.body_start, self.header, self.trailing)

    def __repr__(self) -> str:
        return f"<{self.plan.name} v{self.plan.version}, {len(self.frame)} bytes>"

    @property
    def api_key(self) -> int:
        """The API's key; -1 for a definition that does not belong to an API."""
        return self.plan.api_key

    @property
    def api_version(self) -> int:
        """The version of the body; of an ApiVersions response that refuses the requested version, 0."""
        return self.plan.version

    @property
    def api(self) -> str:
        """The API's name, such as ``"Metadata"``."""
        return self.plan.api

    def encode(self) -> bytes:
        """The frame: the bytes that were read, unless something was replaced."""
        return self.frame

    def to_dict(self) -> Fields:
        """The body with Kafka's field names in snake_case; UUIDs as `uuid.UUID`, byte fields as bytes."""
        return _struct_dict(self.plan.root, self.values)

    def to_json(self) -> Fields:
        """Like `to_dict`, but with JSON types only: UUIDs in Kafka's base64 form, bytes in hexadecimal. Secrets are not
        masked."""
        plain: Fields = jsonable(self.to_dict())
        return plain

    def _value_at(self, path: str) -> Value:
        # of ``message[path]``, where the accelerator does not have it
        plan: StructPlan | None = self.plan.root
        value: PlanValue = self.values
        field: FieldPlan | None = None
        whole = True  # an array as a whole, not one of its items
        walked = list(steps(path))
        for at, step in enumerate(walked):
            if isinstance(step, int) and field is not None and field.type == "records" and value is not None:
                return part_of(value, walked[at:])
            if isinstance(step, int):
                if field is None or not whole or not field.array or value is None or step >= len(value):
                    raise KeyError(f"{path}: no item [{step}]")
                value, whole = value[step], False
            else:
                names = [f.name for f in plan.fields] if plan else []
                of_array = field is not None and field.array and whole
                if plan is None or step not in names or value is None or of_array:
                    raise KeyError(f"{path}: no field {step!r}" + (f"; the fields are {', '.join(names)}" if names else ""))
                field = plan.fields[names.index(step)]
                value, plan, whole = value[names.index(step)], field.struct, True
        return shown_value(field, value, whole) if field else self.to_dict()

    def replace(self, edits: Mapping[str, Value]) -> Message:
        """A new message with the fields at these paths changed. All other fields keep their bytes, canonical or not.

        A path may go on into records: ``topics[0].partitions[0].records[0].records[2].value`` is the value of the third record in
        the first batch (also ``key`` and ``headers``). Raises `EncodeError` for a path that does not exist or a value that is not valid.
        """
        values = self.values
        for path, new in edits.items():
            values = _replaced(self.plan.root, values, list(steps(path)), new, path)
        return self.with_values(values)

    def with_values(self, values: Values) -> Message:
        """A new message with these values, in plan form. Values that are identical objects to its own keep their bytes."""
        frame = BodySplicer(self.frame, self.body_start).root(self.plan.root, self.values, values)
        return Message(self.plan, values, frame, self.body_start, self.header, self.trailing)

    def map(self) -> list[FieldSpan]:
        """The ``(path, start, end)`` of every field and struct, length bytes included. Offsets count from the frame's first byte."""
        walker = Walker(self.plan, self.frame, self.body_start)
        walker.run()
        # by start, and of those that start together the longest first
        walker.spans.sort(key=_END, reverse=True)
        walker.spans.sort(key=_START)
        return walker.spans

    def errors(self) -> Iterator[tuple[str, int]]:
        """The ``(path, code)`` of every error code in the body that is not 0, in wire order."""
        return _errors(self.plan.root, self.values, "")

    @property
    def sound(self) -> bool:
        """Whether it has no null that its version forbids and no unknown tagged field, as nearly all messages."""
        return self.known_sound or _soundness(self.plan.root)(self.values)

    def forbidden_nulls(self) -> Iterator[str]:
        """Paths of fields that are null although the definition does not allow it at this version."""
        return iter(()) if self.known_sound else _forbidden_nulls(self.plan.root, self.values, "")


def steps(path: str) -> Iterator[str | int]:
    """``"a.b[0].c"`` -> ``"a", "b", 0, "c"``. Raises KeyError if it is no path."""
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if not match:
            raise KeyError(f"not a path: {path!r}")
        at = match.end()
        if match[1]:
            yield match[1]
        elif match[2]:
            yield int(match[2])


def _struct_dict(plan: StructPlan, values: Values) -> Fields:
    shown = zip(_shown_fields(plan), values, strict=False)
    out = {name: value if field is None else shown_value(field, value) for (name, field), value in shown}
    if plan.flexible and values[-1]:
        out[UNKNOWN_TAGS] = dict(values[-1])
    return out


@cache
def _shown_fields(plan: StructPlan) -> tuple[tuple[str, FieldPlan | None], ...]:
    """The fields' names; with the field if `to_dict` shows its value in another form than the plan's."""
    return tuple((f.name, f if f.struct or f.array or f.type == "uuid" else None) for f in plan.fields)


@cache
def plain_places(plan: StructPlan) -> dict[str, int]:
    """The places of the fields that have the same value in `Message.values` and in `Message.to_dict`, but for tagged ones."""
    return {name: at for at, (name, field) in enumerate(_shown_fields(plan)[: plan.untagged]) if field is None}


def shown_value(field: FieldPlan, value: PlanValue, whole: bool = True) -> Value:
    """A value in plan form as `Message.to_dict` has it. `whole`: the array itself, not one of its items."""
    if value is None:
        return None
    if field.array and whole:
        if field.struct:
            return [None if item is None else _struct_dict(field.struct, item) for item in value]
        return [uuid.UUID(bytes=item) for item in value] if field.type == "uuid" else list(value)
    if field.struct:
        return _struct_dict(field.struct, value)
    return uuid.UUID(bytes=value) if field.type == "uuid" else value


def jsonable(value: Value) -> Value:
    """Values of `Message.to_dict` in JSON's types."""
    if isinstance(value, dict):
        return {str(k): v if type(v) in JSON_SCALARS else jsonable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [v if type(v) in JSON_SCALARS else jsonable(v) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return value


def _replaced(plan: StructPlan, values: Values, path: list[str | int], new: Value, whole: str) -> Values:
    name, rest = path[0], path[1:]
    index = next((i for i, f in enumerate(plan.fields) if f.name == name), None)
    if index is None:
        raise EncodeError(f"{plan.name} has no field {name!r}; the fields are {', '.join(f.name for f in plan.fields)}", whole)
    field, value = plan.fields[index], values[index]
    made: Values = plan.named._make([*values[:index], _replaced_value(field, value, rest, new, whole), *values[index + 1 :]])
    return made


def _replaced_value(field: FieldPlan, value: PlanValue, rest: list[str | int], new: Value, whole: str) -> PlanValue:
    if not rest:
        return value_from(field, new, whole)
    step = rest[0]
    if isinstance(step, int) and field.type == "records" and value is not None:
        try:
            return with_part(value, rest, new)
        except (KeyError, TypeError, RecordsError) as error:
            raise EncodeError(error.args[0] if error.args else str(error), whole) from None
    if isinstance(step, int):
        if not field.array or value is None or step >= len(value):
            raise EncodeError(f"{field.name} has no item [{step}]", whole)
        if len(rest) == 1:
            item = value_from(field, [new], whole)[0]
        else:
            item = _replaced_in(field, value[step], rest[1:], new, whole)
        return (*value[:step], item, *value[step + 1 :])
    return _replaced_in(field, value, rest, new, whole)


def _replaced_in(field: FieldPlan, value: PlanValue, rest: list[str | int], new: Value, whole: str) -> PlanValue:
    if field.struct is None or value is None:
        raise EncodeError(f"{field.name} has no fields", whole)
    return _replaced(field.struct, value, rest, new, whole)


def _errors(plan: StructPlan, values: Values, prefix: str) -> Iterator[tuple[str, int]]:
    for at, field in _error_places(plan):
        value = values[at]
        if field.struct is None:
            if value:
                yield prefix + field.name, value
        elif value is not None:
            for i, item in enumerate(value if field.array else (value,)):
                inner = f"{prefix}{field.name}[{i}]." if field.array else f"{prefix}{field.name}."
                yield from _errors(field.struct, item, inner)


@cache
def _error_places(plan: StructPlan) -> tuple[tuple[int, FieldPlan], ...]:
    """Position and field of error codes, and of structs that contain some."""
    places = enumerate(plan.fields)
    return tuple((i, f) for i, f in places if (_error_places(f.struct) if f.struct else is_error_code(f)))


@cache
def _soundness(plan: StructPlan) -> Callable[[Values], bool]:
    """A function that tests whether a struct's values have no forbidden null and no unknown tag."""
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


def _forbidden_nulls(plan: StructPlan, values: Values, prefix: str) -> Iterator[str]:
    for field, value in zip(plan.fields, values, strict=False):
        if value is None:
            # Old brokers wrote null records at versions for which later definitions forbid it.
            if not field.nullable and field.type != "records":
                yield prefix + field.name
        elif field.struct is not None:
            for i, item in enumerate(value if field.array else (value,)):
                inner = f"{prefix}{field.name}[{i}]." if field.array else f"{prefix}{field.name}."
                yield from _forbidden_nulls(field.struct, item, inner)
        elif field.array and None in value:
            yield from (f"{prefix}{field.name}[{i}]" for i, item in enumerate(value) if item is None)


def is_error_code(field: FieldPlan) -> bool:
    """Whether a field holds one of Kafka's error codes."""
    return field.meaning is Meaning.ERROR


def error_names(message: Message) -> list[tuple[str, str]]:
    """`Message.errors` with names instead of numbers."""
    return [(path, facts.error_name(code)) for path, code in message.errors()]


class MessagePair(Protocol):
    """A request and its response as messages, as an `Exchange` has them. None: not there, or cannot be decoded."""

    @property
    def api_key(self) -> int: ...
    @property
    def response(self) -> bytes | None: ...
    @property
    def request_message(self) -> Message | None: ...
    @property
    def response_message(self) -> Message | None: ...
