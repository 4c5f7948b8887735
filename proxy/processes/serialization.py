"""Dataclasses as JSON, and back: what one process of the proxy sends to another.

Fields may be plain values, paths, other dataclasses, and lists, tuples and dicts of these. A class with `to_dict` and `from_dict` is
converted by those.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import repeat
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A value as `json` takes it."""
    if isinstance(value, (int, str, float, NoneType)):
        return value
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    return os.fspath(value) if isinstance(value, Path) else value


def from_plain(kind: type[T], value: Any) -> T:
    """What `to_plain` made of a `kind`, after JSON has turned tuples into lists and keys into texts."""
    restored: T = _restored(kind, value)
    return restored


def to_json(value: object) -> bytes:
    return json.dumps(to_plain(value)).encode()


def from_json(kind: type[T], data: bytes) -> T:
    return from_plain(kind, json.loads(data))


def to_named(message: object) -> dict[str, Any]:
    """A message (a dataclass) with the name of its class."""
    return {"message": type(message).__name__, **to_plain(message)}


def from_named(kinds: UnionType, fields: dict[str, Any]) -> Any:
    """What `to_named` made of a message of one of these classes."""
    return from_plain(_by_name(kinds)[fields.pop("message")], fields)


@cache
def _by_name(kinds: UnionType) -> dict[str, type]:
    return {kind.__name__: kind for kind in get_args(kinds)}


@cache
def _converted(kind: type) -> dict[str, Any]:
    """The fields of a dataclass that JSON does not hold as they are, with their types."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if hints[each.name] not in (int, float, str, bool, Any)}


def _restored(kind: Any, value: Any) -> Any:
    origin, of = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin is UnionType:
        return _restored(next(each for each in of if each is not NoneType), value)
    if origin is tuple:
        kinds = repeat(of[0]) if of[-1] is Ellipsis else of
        return tuple(_restored(each, item) for each, item in zip(kinds, value, strict=False))
    if origin in (list, Sequence):
        return [_restored(of[0], item) for item in value]
    if origin in (dict, Mapping):
        return {of[0](key): _restored(of[1], item) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if is_dataclass(kind):
        converted = _converted(kind).items()  # type: ignore[arg-type]
        return kind(**value | {name: _restored(each, value[name]) for name, each in converted})  # type: ignore[operator]
    return Path(value) if kind is Path else value
