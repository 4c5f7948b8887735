"""What the schema does not state: how the meaning of a message changes between one version and the next.

A step belongs to one message of one API and to the boundary below a version. Going from version 0 to 4 passes the
boundaries 1, 2, 3 and 4 upward, in that order; the fields are a dict that may hold fields of any version. Fields that are
only added or removed need no step (see `fields`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...decoder.schema import facts
from ...errors import BarnabasError
from .fields import Fields


class Unbridgeable(BarnabasError):
    """A request cannot be converted to a version that the broker serves; the text gives the reason, `error` is the
    answer."""

    def __init__(self, why: str, error: str = "UNSUPPORTED_VERSION") -> None:
        super().__init__(why)
        self.error = error


@dataclass(slots=True)
class ConversionContext:
    """One exchange: the client's request, at `version`, and the version at which the broker gets it (`served`).

    `request`: the client's fields at the client's version (of a request that was split, this part's). `offset_overrides`:
    of a connection, (topic, partition) -> the fetch offset of the client, and the one that replaces it. `notes`: what has
    another meaning or was left out, for the recording.
    """

    api_key: int
    version: int
    served: int
    request: Fields
    offset_overrides: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)


Step = Callable[[Fields, ConversionContext], None]
Split = Callable[[Fields, ConversionContext], list[Fields]]
Join = Callable[[list[Fields], ConversionContext], Fields]

_STEPS: dict[tuple[str, str, int, int], Step] = {}
_SPLITS: dict[int, list[tuple[int, bool, Split, Join]]] = {}
_DROPPABLE: dict[tuple[int, str], str] = {}
_WHY: dict[tuple[int, int, bool], str] = {}
_MEANS: dict[tuple[int, int, bool], list[str]] = {}


def up(kind: str, api: str, version: int) -> Callable[[Step], Step]:
    """Decorates the step of an API's ``"request"`` or ``"response"`` from ``version - 1`` to `version`."""
    return _register(kind, "up", api, version)


def down(kind: str, api: str, version: int) -> Callable[[Step], Step]:
    """Decorates the step from `version` to ``version - 1``."""
    return _register(kind, "down", api, version)


def _register(kind: str, way: str, api: str, version: int) -> Callable[[Step], Step]:
    def keep(step: Step) -> Step:
        _STEPS[kind, way, facts.api_key(api), version] = step
        return step

    return keep


def split(api: str, version: int, split: Split, join: Join, *, upward: bool = False) -> None:
    """Requests of `version` and newer become several ones below it (`upward`: older ones become several ones from it on).

    The parts, and what `join` takes and returns, are at the client's version.
    """
    _SPLITS.setdefault(facts.api_key(api), []).append((version, upward, split, join))


def split_list(api: str, version: int, requested: str, answered: str) -> None:
    """A `split` into a request for each entry of the list `requested`; the lists `answered` of the responses are joined."""

    def parts(fields: Fields, context: ConversionContext) -> list[Fields]:
        return [{**fields, requested: [entry]} for entry in fields[requested]]

    def joined(parts: list[Fields], context: ConversionContext) -> Fields:
        return {**parts[0], answered: [entry for part in parts for entry in part[answered]]}

    split(api, version, parts, joined)


def droppable(api: str, path: str, why: str) -> None:
    """A field of a request that may be dropped although the definition does not call it ignorable."""
    _DROPPABLE[facts.api_key(api), path] = why


def impossible(api: str, version: int, why: str, *, upward: bool = False) -> None:
    """A boundary that requests cannot cross downward (or `upward`)."""
    _WHY[facts.api_key(api), version, upward] = why


def difference(api: str, version: int, text: str, *, upward: bool = False) -> None:
    """A difference that remains after requests have crossed a boundary."""
    _MEANS.setdefault((facts.api_key(api), version, upward), []).append(text)


def differences(api_key: int, source: int, target: int) -> list[str]:
    """The differences for requests of version `source` that are sent at `target`, and for their responses."""
    upward = target > source
    return [text for boundary in boundaries(source, target) for text in _MEANS.get((api_key, boundary, upward), ())]


def why_droppable(api_key: int, path: str) -> str | None:
    """Why a field may be dropped; None if it must not."""
    return _DROPPABLE.get((api_key, path))


def why_impossible(api_key: int, source: int, target: int) -> str | None:
    """Why no request of version `source` can be converted to `target`; None if it can."""
    upward = target > source
    for boundary in boundaries(source, target):
        if reason := _WHY.get((api_key, boundary, upward)):
            return reason
    return None


def splitting(api_key: int, source: int, target: int) -> tuple[Split, Join] | None:
    """How a request is split between the versions `source` and `target`; None: it is not."""
    passed = boundaries(source, target)
    for version, upward, split, join in _SPLITS.get(api_key, ()):
        if version in passed and upward == (target > source):
            return split, join
    return None


def boundaries(source: int, target: int) -> range:
    """The boundaries between two versions in the order in which they are crossed."""
    return range(source + 1, target + 1) if target > source else range(source, target, -1)


def walk(kind: str, api_key: int, source: int, target: int, fields: Fields, context: ConversionContext) -> None:
    """Change `fields` in place from the meaning of version `source` to that of `target`."""
    way = "up" if target > source else "down"
    for boundary in boundaries(source, target):
        step = _STEPS.get((kind, way, api_key, boundary))
        if step is not None:
            step(fields, context)


def has_step(kind: str, way: str, api_key: int, boundary: int) -> bool:
    """Whether there is a step at a boundary; `way`: "up" or "down"."""
    return (kind, way, api_key, boundary) in _STEPS


def each_partition(fields: Mapping[str, Any], topics: str = "topics", partitions: str = "partitions") -> list[Fields]:
    """Every partition entry of a message that lists partitions within topics."""
    return [partition for topic in fields.get(topics) or () for partition in topic[partitions]]
