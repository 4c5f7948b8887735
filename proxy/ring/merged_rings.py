"""One reader of several rings: what the workers of one proxy have written, as one stream in the order of its times.

A recording, findings and metrics are about all connections: topics that one connection names are used on another, groups span
connections, and a recording grows at its end. So one process reads all rings, and not one process per worker. What it cannot keep up
with is lost and counted, ring by ring.

A record is yielded when every other ring has a later one, or when it is `HOLD_NS` old: a worker that was about to write an earlier one
has done so by then. The order within a connection is always exact, as each belongs to one worker. When a worker dies, the supervisor
writes `Kind.GONE` into its ring: its connections end there.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .clock import now_ns
from .reader import Lost, NativeConsumer, RingReader, RingRecord, total_before
from .ring import _W_SEQUENCE, Kind, Ring, RingWriter
from .wakeup import hush

HOLD_NS = 2_000_000
"""How long a record waits for earlier ones of other rings."""
_STEPPED_NS = 1_000_000_000
"""A time this far ahead of the clock is not waited for: the clock was set back."""
_NAP_SECONDS = 0.001
_BATCH = 512


@dataclass(frozen=True, slots=True)
class RingAccess:
    """How a process reads the rings of all workers.

    rings: file descriptors of each ring's memory, and of the bell that wakes its writer. reader: the process's number among the
    readers. bell: the descriptor that wakes it.
    """

    rings: Sequence[tuple[int, int]]
    reader: int
    bell: int

    def open(self) -> RingReader | MergedRings:
        """The reader of the one ring, or of all."""
        readers = [RingReader(Ring.attach(fd), self.reader, self.bell, room) for fd, room in self.rings]
        return readers[0] if len(readers) == 1 else MergedRings(readers, self.bell)


def resume(writer: RingWriter) -> None:
    """Let a new writer go on counting where its predecessor in the same ring has ended."""
    writer.total = total_before(writer.ring, writer.sequence) or writer.total


class _Source:
    """One ring. `head`: its next record, which was already read."""

    __slots__ = ("_records", "head", "open", "over", "reader")

    def __init__(self, reader: RingReader) -> None:
        self.reader = reader
        self.head: RingRecord | Lost | None = None
        self.open: set[int] = set()
        self.over = False
        self._records: Iterator[RingRecord | Lost] = iter(())

    def look(self) -> RingRecord | Lost | None:
        """The next record, if there is one."""
        if self.head is None:
            self.head = next(self._records, None)
            if self.head is None:
                self._records = self.reader.read(_BATCH)
                self.head = next(self._records, None)
        return self.head


class MergedRings:
    """Reads all rings as `RingReader` reads one. All ring the same bell."""

    def __init__(self, readers: list[RingReader], bell: int) -> None:
        self._sources = [_Source(reader) for reader in readers]
        self._bell = bell
        self._held = False

    @property
    def lost_chunks(self) -> int:
        return sum(source.reader.lost_chunks for source in self._sources)

    @property
    def lost_bytes(self) -> int:
        """Data bytes of all rings that were not yielded. Exact."""
        return sum(source.reader.lost_bytes for source in self._sources)

    @property
    def unread_bytes(self) -> int:
        """Data bytes of all rings that were written and not yielded yet."""
        held = [source.head for source in self._sources if isinstance(source.head, RingRecord) and source.head.kind is Kind.DATA]
        return sum(source.reader.unread_bytes for source in self._sources) + sum(len(record.data) for record in held)

    def read(self, limit: int = _BATCH, consumer: NativeConsumer | None = None) -> Iterator[RingRecord | Lost]:
        """What has been written since, at most about `limit` records. Nothing goes to native recorders: it has to be put in order first."""
        horizon = now_ns() - HOLD_NS
        for _ in range(limit):
            found: _Source | None = None
            earliest = 0
            lacking = False
            for source in self._sources:
                head = source.look()
                if head is None:
                    lacking = lacking or not source.over
                    continue
                at = head.time_ns if isinstance(head, RingRecord) else 0
                if found is None or at < earliest:
                    found, earliest = source, at
            self._held = False
            if found is None:
                return
            if lacking and horizon < earliest < horizon + _STEPPED_NS:
                horizon = now_ns() - HOLD_NS
                if earliest > horizon:
                    self._held = True
                    return
            yield from self._take(found)

    def _take(self, source: _Source) -> Iterator[RingRecord | Lost]:
        record, source.head = source.head, None
        if isinstance(record, RingRecord):
            kind = record.kind
            if kind == Kind.OPENED:
                source.open.add(record.connection)
            elif kind == Kind.CLOSED:
                if record.connection not in source.open:
                    return  # it has ended with its worker
                source.open.discard(record.connection)
            elif kind == Kind.STOP:
                source.over = True
                if not all(each.over for each in self._sources):
                    return
        if record is not None:
            yield record

    def _empty(self) -> bool:
        """Whether everything that was written has been read."""
        return not self._held and all(
            source.reader._words[_W_SEQUENCE] == source.reader._cursor for source in self._sources
        )

    def wait(self, timeout: float) -> None:
        """Sleep until there is something to read, at most `timeout` seconds."""
        time.sleep(_NAP_SECONDS)
        if not self._empty():
            return
        if self.arm():
            select.select([self._bell], [], [], timeout)
        self.disarm()

    def arm(self) -> bool:
        """Ask for the bell. False if there is something to read. Call `disarm` when the bell has rung or the time is up."""
        armed = [source.reader.arm() for source in self._sources]
        return all(armed) and not self._held

    def disarm(self) -> None:
        """No bell is needed any more."""
        for source in self._sources:
            source.reader.disarm()
        hush(self._bell)
