"""What to read next: chunks of adjacent segments, the rows of which share their Parquet files.

A recorder that rotates often leaves many small segments. A Parquet file for each would be mostly footers: 229 segments of 4 kB took
9 MB and 8 s of CPU for 40 ms of rows. So segments are read together until they have 64 MiB, which is the size of one by default. A
segment that comes later joins the last chunk while there is room, and then all of that chunk is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ..segments import Segment
from .manifest import Done

CHUNK_BYTES = 64 << 20
"""Most bytes of captures in a chunk of several files."""


class Chunk(NamedTuple):
    """Adjacent segments of a recording, or one foreign capture, to be read into the same Parquet files, which have its `key`.

    `cause`: those of its files that are new or have changed, by `Segment.key`. `before`: day and name of the Parquet files that
    hold rows of these segments now, and are replaced.
    """

    segments: tuple[Segment, ...]
    cause: frozenset[str]
    before: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        return self.segments[0].key

    @property
    def capture_id(self) -> str:
        return self.segments[0].capture_id

    @property
    def foreign(self) -> bool:
        return self.segments[0].foreign

    def only(self, keys: Iterable[str]) -> Chunk:
        """With these of its files alone."""
        return self._replace(segments=tuple(each for each in self.segments if each.key in keys))


Work = list[Chunk]


class Todo(NamedTuple):
    """The work of a run: chunks to read, the number of unchanged files, and files whose rows are to be removed."""

    work: list[Chunk]
    unchanged: int
    gone: list[Done]

    @property
    def segments(self) -> list[Segment]:
        """The files that are new or have changed."""
        return [segment for chunk in self.work for segment in chunk.segments if segment.key in chunk.cause]


def todo(segments: Sequence[Segment], done: dict[str, Done], again: Iterable[str] = ()) -> Todo:
    """Files that are new or have changed; a segment also when its next one is there by now, and was not before; and those of
    `again`. Of a foreign capture that has changed, the rows under its old name go. `segments`: by recording, in order."""
    again = set(again)
    paths = {str(each.path): each.key for each in segments if each.foreign}
    new = {each.key for each in segments if each.key not in done}
    changed = {each.key for each in segments if each.key in done and (each.key in again or _has_changed(each, done[each.key]))}
    held: dict[str, list[Done]] = {}
    for each in done.values():
        held.setdefault(each.capture_id, []).append(each)
    work: list[Chunk] = []
    for capture_id, some in groupby(segments, lambda each: each.capture_id):
        work += _chunks(list(some), held.get(capture_id, []), new, changed)
    gone = [old for key, old in done.items() if old.path in paths and paths[old.path] != key]
    keys = {each.key for each in segments}
    reading = sum(len(chunk.cause) for chunk in work)
    return Todo(work, len(segments) - reading, [old for old in gone if old.key not in keys])


def _has_changed(segment: Segment, before: Done) -> bool:
    if before.size != segment.size or (not segment.foreign and before.modified_ns != segment.modified_ns):
        return True
    return bool(before.continues and segment.follows)


def _chunks(segments: list[Segment], done: list[Done], new: set[str], changed: set[str]) -> Iterator[Chunk]:
    """The chunks of one recording that are to be read."""
    there = {each.key: each for each in segments}
    open_chunk: list[Segment] = []
    open_before: tuple[tuple[str, str], ...] = ()
    last = max((each.sequence for each in done), default=-1)
    done.sort(key=lambda each: (each.chunk, each.sequence))
    for name, group in groupby(done, lambda each: each.chunk):
        members = list(group)
        if any(each.key not in there for each in members):
            continue  # rows of files that are gone are kept as they are
        files, before = [there[each.key] for each in members], ((members[0].date, name),)
        cause = frozenset(each.key for each in files if each.key in changed)
        if members[-1].sequence == last:
            open_chunk, open_before = files, before
        elif cause:
            yield Chunk(tuple(files), cause, before)
    for segment in segments:
        if segment.key not in new:
            continue
        if open_chunk and not _fits(open_chunk, segment):
            yield from _closed(open_chunk, open_before, new | changed)
            open_chunk, open_before = [], ()
        open_chunk = [*open_chunk, segment]
    yield from _closed(open_chunk, open_before, new | changed)


def _fits(chunk: list[Segment], segment: Segment) -> bool:
    """Whether a segment joins a chunk. One without a successor may have to be read again when that comes: it stays alone, so
    that this costs little, and is possible when segments before it are gone."""
    if chunk[-1].number + 1 != segment.number or not (chunk[-1].follows and segment.follows):
        return False
    return sum(each.size for each in chunk) + segment.size <= CHUNK_BYTES


def _closed(chunk: list[Segment], before: tuple[tuple[str, str], ...], causes: set[str]) -> Iterator[Chunk]:
    cause = frozenset(each.key for each in chunk if each.key in causes)
    if cause:
        yield Chunk(tuple(chunk), cause, before)
