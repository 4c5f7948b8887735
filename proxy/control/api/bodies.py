"""Bodies of requests: dataclasses whose fields say how they are read from JSON and how the description shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, Protocol, TypeVar, get_type_hints

from aiohttp import web

from ....decoder.filter import named_zone
from ...events import Address
from ...processes.control_messages import Failure, Json
from ..async_channel import CommandFailed
from .api import body_of, number
from .bounds import (
    HELD_AT_ONCE,
    HOLD_SECONDS,
    HOLD_TIMEOUT,
    LEASE,
    LONGEST_TEXT,
    MOST_DOWN,
    MOST_HELD,
    SECONDS,
    SIZE,
    TIMES,
    Bounds,
)

T = TypeVar("T")


class _Kind(Protocol):
    """What a field may be. `read` raises CommandFailed with the field's name."""

    def read(self, name: str, given: Any) -> Any: ...
    def schema(self) -> Json: ...


def _described(schema: Json, about: str) -> Json:
    return schema | {"description": about} if about else schema


@dataclass(frozen=True, slots=True)
class Number:
    bounds: Bounds
    about: str = ""
    whole: bool = False

    def read(self, name: str, given: Any) -> Any:
        return number(name, given, self.bounds, self.whole)

    def schema(self) -> Json:
        return _described(self.bounds.schema("integer" if self.whole else "number"), self.about)


@dataclass(frozen=True, slots=True)
class Text:
    """longest: characters, 0 for no limit. choice: what it may be, if not anything. check: reads it instead."""

    about: str = ""
    longest: int = 0
    choice: tuple[str, ...] = ()
    check: Callable[[str, Any], str] | None = None

    def read(self, name: str, given: Any) -> str:
        if self.check is not None:
            return self.check(name, given)
        if self.choice and given not in self.choice:
            raise CommandFailed(Failure.INVALID, f"{name} must be {' or '.join(self.choice)}")
        if not isinstance(given, str) or len(given) > (self.longest or len(given)):
            limit = f" of up to {self.longest} characters" if self.longest else ""
            raise CommandFailed(Failure.INVALID, f"{name} must be a string{limit}")
        return given

    def schema(self) -> Json:
        if self.choice:
            return _described({"enum": list(self.choice)}, self.about)
        return _described({"type": "string"} | ({"maxLength": self.longest} if self.longest else {}), self.about)


@dataclass(frozen=True, slots=True)
class Flag:
    """only_true: false means nothing."""

    about: str = ""
    only_true: bool = False

    def read(self, name: str, given: Any) -> bool:
        if not isinstance(given, bool) or (self.only_true and not given):
            raise CommandFailed(Failure.INVALID, f"{name} must be true" + ("" if self.only_true else " or false"))
        return given

    def schema(self) -> Json:
        return _described({"const": True} if self.only_true else {"type": "boolean"}, self.about)


@dataclass(frozen=True, slots=True)
class MessageFields:
    def read(self, name: str, given: Any) -> Json:
        if not isinstance(given, dict):
            raise CommandFailed(Failure.INVALID, f"{name} must be an object: fields and their values")
        return given

    def schema(self) -> Json:
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class Addresses:
    def read(self, name: str, given: Any) -> list[Address]:
        if not isinstance(given, list) or len(given) > MOST_DOWN or not all(map(_is_address, given)):
            raise CommandFailed(Failure.INVALID, f"{name} must be a list of up to {MOST_DOWN} addresses: [host, port]")
        return [(host, port) for host, port in given]

    def schema(self) -> Json:
        return {"type": "array", "items": ADDRESS, "maxItems": MOST_DOWN}


ADDRESS: Json = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "maxItems": 2}


def _is_address(given: Any) -> bool:
    if not isinstance(given, list) or len(given) != 2:
        return False
    host, port = given
    return isinstance(host, str) and 0 < len(host) <= LONGEST_TEXT and type(port) is int and 0 < port < 65536


def _filter_text(name: str, given: Any) -> str:
    if not isinstance(given, str) or not given.strip():
        raise CommandFailed(Failure.INVALID, f"{name} must be a filter expression")
    return given


def _absolute(name: str, given: Any) -> str:
    if not isinstance(given, str) or not given.startswith("/") or "\0" in given:
        raise CommandFailed(Failure.INVALID, f"{name} must be an absolute path")
    return given


def zone(name: str, given: Any) -> str:
    """The name of a time zone; UTC where nothing is given."""
    try:
        if given is not None and not isinstance(given, str):
            raise ValueError(f"must be a name, not {given!r}")
        named_zone(given or "UTC")
    except ValueError as error:
        raise CommandFailed(Failure.INVALID, f"{name}: {error}") from None
    return given or "UTC"


# -- the bodies --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokersDown:
    brokers: Annotated[list[Address], Addresses()]


@dataclass(frozen=True, slots=True)
class RecordingAsked:
    directory: Annotated[str, Text("An absolute path; created if it does not exist.", check=_absolute)]
    rotate_bytes: Annotated[int | None, Number(SIZE, "Size of a segment (default: as set when the proxy started).", True)] = None
    rotate_seconds: Annotated[float | None, Number(SECONDS)] = None
    keep_bytes: Annotated[int | None, Number(SIZE, "The oldest segments are removed when the total is larger.", True)] = None
    keep_seconds: Annotated[float | None, Number(SECONDS, "Segments are removed when they are older.")] = None


@dataclass(frozen=True, slots=True)
class FlightAsked:
    label: Annotated[str, Text("Prefix of the flight recording's name.", LONGEST_TEXT)] = ""
    reason: Annotated[str, Text("Stored in the flight recording.", LONGEST_TEXT)] = ""


@dataclass(frozen=True, slots=True)
class InterceptAsked:
    filter: Annotated[str, Text("A filter in the filter language; for requests, one that needs no response.", check=_filter_text)]
    zone: Annotated[str, Text("The time zone of times without an offset in the filter, such as Europe/Berlin (default: UTC).", LONGEST_TEXT, check=zone)] = "UTC"
    request: Annotated[bool | None, Flag("Hold requests before they are forwarded.")] = None
    response: Annotated[bool | None, Flag("Hold responses before they are delivered.")] = None
    timeout: Annotated[float, Number(HOLD_TIMEOUT, "Seconds after which a frame is forwarded unchanged.")] = HOLD_SECONDS
    most: Annotated[int, Number(MOST_HELD, "Maximum number of frames held at one time; others pass.", True)] = HELD_AT_ONCE
    times: Annotated[int | None, Number(TIMES, "Hold at most this many in total (default: no limit).", True)] = None
    lease: Annotated[float | None, Number(LEASE, "Seconds after which the intercept ends unless it is renewed (default: no limit).")] = None


@dataclass(frozen=True, slots=True)
class Resume:
    edits: Annotated[Json, MessageFields()] = field(default_factory=dict)
    body: Annotated[Json, MessageFields()] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drop:
    error: Annotated[str | None, Text("The name of a Kafka error code.")] = None
    close: Annotated[str | None, Text(choice=("fin", "rst"))] = None
    silent: Annotated[bool | None, Flag("Discard the frame without an answer.", only_true=True)] = None


@dataclass(frozen=True, slots=True)
class Extend:
    timeout: Annotated[float, Number(HOLD_TIMEOUT, "Seconds from now on.")] = HOLD_SECONDS


BODIES = (BrokersDown, RecordingAsked, FlightAsked, InterceptAsked, Resume, Drop, Extend)


def _kinds(body: type) -> dict[str, _Kind]:
    """How each field of a body is read."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(body, include_extras=True).items()}


def schema(body: type) -> Json:
    """A body as the description shows it."""
    required = [each.name for each in fields(body) if each.default is MISSING and each.default_factory is MISSING]
    properties = {name: kind.schema() for name, kind in _kinds(body).items()}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


async def read(request: web.Request, body: type[T]) -> T:
    """The body of a request; a field that is null counts as not given. CommandFailed names what is wrong."""
    given, kinds = await body_of(request), _kinds(body)
    for name in given:
        if name not in kinds:
            raise CommandFailed(Failure.INVALID, f"no field {name!r} here, only {', '.join(kinds)}")
    found = {name: kind.read(name, given[name]) for name, kind in kinds.items() if given.get(name) is not None}
    for name in schema(body)["required"]:
        if name not in found:
            kinds[name].read(name, None)  # which raises
    return body(**found)
