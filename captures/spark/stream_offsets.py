"""The offset of a stream: the number of the next segment, by recording; of a foreign capture, whether it was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..tables import Segment

Offset = dict[str, int]


def latest(segments: Iterable[Segment], live: Mapping[str, int], start: Mapping[str, int], limit: int | None) -> Offset:
    """The offset behind all of these segments, or behind the first `limit` ones that `start` is before.

    `live`: by recording, the number of the first segment that is still written to: nothing behind it is taken, so that no
    segment is passed over.
    """
    reached = dict(start)
    taken = 0
    for segment in sorted(segments, key=lambda each: (each.number, each.capture_id)):
        name = segment.capture_id
        if segment.number < reached.get(name, 0) or segment.number >= live.get(name, segment.number + 1):
            continue
        if limit is not None and taken >= limit:
            break
        reached[name] = segment.number + 1
        taken += 1
    return reached


def between(segments: Sequence[Segment], start: Mapping[str, int], end: Mapping[str, int]) -> Iterator[Segment]:
    """The segments from `start` to `end`."""
    for segment in segments:
        if start.get(segment.capture_id, 0) <= segment.number < end.get(segment.capture_id, 0):
            yield segment
