"""The offset of a stream: where it is in each recording; of a foreign capture, whether it was read.

In the checkpoint, a position is the number of the next segment, or ``[segment, exchanges]`` within one that grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..tables import Segment

Offset = dict[str, int | list[int]]


class Position(NamedTuple):
    """The next segment to read, and how many exchanges of its index were read."""

    segment: int = 0
    exchanges: int = 0


class Reach(NamedTuple):
    """How far a stream can read with one more file of a recording."""

    position: Position
    capture_id: str


class Part(NamedTuple):
    """Exchanges of a segment, by their numbers in its index: from `first` on, and before `end` (None: all that follow)."""

    segment: Segment
    first: int = 0
    end: int | None = None


def positions(offset: Mapping[str, int | list[int]]) -> dict[str, Position]:
    """The positions of an offset, by recording."""
    return {name: Position(*value) if isinstance(value, list) else Position(value) for name, value in offset.items()}


def reaches(segments: Iterable[Segment], growing: Mapping[str, Position]) -> list[Reach]:
    """How far closed segments and `growing` ones, by recording, let a stream read.

    Nothing behind a growing segment is taken, so that no exchange is passed over.
    """
    found = [Reach(position, name) for name, position in growing.items()]
    for each in segments:
        if each.capture_id not in growing or each.number < growing[each.capture_id].segment:
            found.append(Reach(Position(each.number + 1), each.capture_id))
    return sorted(found)


def latest(there: Iterable[Reach], start: Offset, limit: int | None) -> Offset:
    """The offset behind all of these, or behind the first `limit` ones that `start` is before."""
    reached = positions(start)
    taken = 0
    for position, name in there:
        if position <= reached.get(name, Position()):
            continue
        if limit is not None and taken >= limit:
            break
        reached[name] = position
        taken += 1
    return {name: list(each) if each.exchanges else each.segment for name, each in reached.items()}


def between(segments: Sequence[Segment], start: Offset, end: Offset) -> Iterator[Part]:
    """What is to be read of these segments from `start` to `end`."""
    before, behind = positions(start), positions(end)
    for segment in segments:
        first, last = before.get(segment.capture_id, Position()), behind.get(segment.capture_id, Position())
        if not first.segment <= segment.number <= last.segment:
            continue
        part = Part(
            segment,
            first.exchanges if first.segment == segment.number else 0,
            last.exchanges if last.segment == segment.number else None,
        )
        if part.end is None or part.first < part.end:
            yield part
