"""The log of one partition: what the recording holds of it, and what is produced to it now.

Bytes stay as they were: only offsets and leader epochs, which no CRC covers, are written anew. Transactions are
followed as far as consumers see them: last stable offset, markers, aborted transactions.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass, field

from ...decoder import records
from ...decoder.records import Batch, Message, Partial, Record

_BASE = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_MARKER_KEY, _MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")
_SEQUENCES_KEPT = 8


@dataclass(slots=True)
class Entry:
    """One batch, or one message of the old formats, with the offsets that it covers."""

    base: int
    last: int
    data: bytes
    timestamp: int
    """of its latest record, in ms; -1 when it has none"""
    producer_id: int = -1
    control: bool = False
    transactional: bool = False

    def moved(self, base: int) -> Entry:
        """The same records at another offset."""
        return Entry(
            base, base + self.last - self.base, _placed(self.data, base, self.last - self.base), self.timestamp,
            self.producer_id, self.control, self.transactional,
        )  # fmt: skip


def read_entries(data: bytes) -> list[Entry]:
    """The whole entries of a records field; what cannot be read, and an unfinished last one, are left out."""
    found: list[Entry] = []
    try:
        for batch in records.batches(data):
            if isinstance(batch, Partial):
                break
            kept = bytes(data[batch.start : batch.end])
            if isinstance(batch, Batch):
                found.append(
                    Entry(
                        batch.base_offset, batch.last_offset, kept, batch.max_timestamp, batch.producer_id,
                        batch.control, batch.transactional,
                    )
                )  # fmt: skip
            else:
                offsets = [record.offset for record in batch.records()] if batch.codec else [batch.offset]
                base, last = min(offsets, default=batch.offset), max(offsets, default=batch.offset)
                found.append(Entry(base, last, kept, -1 if batch.timestamp is None else batch.timestamp))
    except records.RecordsError:
        pass
    return found


def content(data: bytes) -> bytes:
    """What stays of a batch wherever it is written: everything but offset, leader epoch and CRC."""
    return data[8:12] + data[16:17] + data[21:]


@dataclass
class PartitionLog:
    """`start` is the first offset, `end` the next one. `waiting` are recorded entries of others that come later."""

    start: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)
    waiting: list[Entry] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer id, first offset, offset of the marker)"""
    open: dict[int, int] = field(default_factory=dict)
    """first offset of each producer's transaction that has not ended"""
    read_out: dict[int, int] = field(default_factory=dict)
    """How many offsets the entries have that consumers were given, by their bases; without markers."""
    _sequences: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)

    def preset(self, entries: list[Entry], waiting: list[Entry], start: int, end: int) -> None:
        """What is there before anything is produced."""
        self.start, self.end, self.entries, self.waiting = start, end, entries, waiting
        self._take_waiting()

    @property
    def stable(self) -> int:
        """The last stable offset: what read_committed consumers may read up to."""
        return min(self.open.values(), default=self.end)

    def append(self, data: bytes) -> tuple[int, list[Entry]]:
        """Take the records of a Produce request: the offset of the first one, and what was taken. A batch that is sent
        again (the same producer, epoch and sequence) is not taken twice."""
        first = self.end
        taken: list[Entry] = []
        for batch in records.batches(data):
            if isinstance(batch, Batch):
                again = self._again(batch)
                if again is not None:
                    first = again
                    continue
                entry = read_entries(bytes(data[batch.start : batch.end]))[0].moved(self.end)
                if batch.transactional:
                    self.open.setdefault(batch.producer_id, self.end)
            elif isinstance(batch, Message):
                entry = self._placed_message(batch)
            else:
                continue
            taken.append(entry)
            self._add(entry)
        return first, taken

    def _again(self, batch: Batch) -> int | None:
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return None
        seen = self._sequences.setdefault((batch.producer_id, batch.producer_epoch), [])
        for sequence, offset in seen:
            if sequence == batch.base_sequence:
                return offset
        seen.append((batch.base_sequence, self.end))
        del seen[:-_SEQUENCES_KEPT]
        return None

    def _placed_message(self, message: Message) -> Entry:
        """A message of the old formats, at the end of the log."""
        kept = list(message.records()) if message.codec else None
        if kept is None:
            data = _placed(bytes(message.data[message.start : message.end]), self.end, 0)
            count = 1
        else:
            # The offsets inside are counted anew: those of format 0 are absolute, and producers count from 0.
            moved = [record._replace(offset=self.end + at) for at, record in enumerate(kept)]
            data, count = records.encode_messages_like(message, moved), len(moved)
        timestamp = -1 if message.timestamp is None else message.timestamp
        return Entry(self.end, self.end + count - 1, data, timestamp)

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.end = entry.last + 1
        self._take_waiting()

    def _take_waiting(self) -> None:
        """What others wrote comes where it was, or behind what is there by now."""
        while self.waiting and self.waiting[0].base <= self.end:
            entry = self.waiting.pop(0)
            self.entries.append(entry if entry.base == self.end else entry.moved(self.end))
            self.end = self.entries[-1].last + 1

    def end_transaction(self, producer_id: int, epoch: int, commit: bool, time_ms: int) -> None:
        """Write a producer's marker, if it has an open transaction or none was seen to be."""
        first = self.open.pop(producer_id, None)
        if not commit and first is not None:
            self.aborted.append((producer_id, first, self.end))
        key, value = _MARKER_KEY.pack(0, int(commit)), _MARKER_VALUE.pack(0, 0)
        data = records.encode_batch(
            [Record(self.end, time_ms, key, value)], transactional=True, control=True, producer_id=producer_id,
            producer_epoch=epoch, partition_leader_epoch=0,
        )  # fmt: skip
        self._add(Entry(self.end, self.end, data, time_ms, producer_id, True, True))

    def read(self, offset: int, limit: int, committed: bool) -> tuple[bytes, list[tuple[int, int]]]:
        """Whole entries from `offset` on, up to `limit` bytes but at least one; and the (producer id, first offset) of
        aborted transactions among them."""
        until = self.stable if committed else self.end
        at = bisect_left(self.entries, offset, key=lambda entry: entry.last)
        out: list[bytes] = []
        size, last = 0, offset
        for entry in self.entries[at:]:
            if entry.base >= until or (out and size + len(entry.data) > limit):
                break
            out.append(entry.data)
            if not entry.control:
                self.read_out[entry.base] = entry.last - entry.base + 1
            size, last = size + len(entry.data), entry.last
        aborted = [(who, first) for who, first, marker in self.aborted if marker >= offset and first <= last]
        return b"".join(out), aborted if committed and out else []

    def offset_for_time(self, timestamp: int) -> tuple[int, int]:
        """(offset, timestamp) of the first record that is not older than `timestamp` in ms; (-1, -1) if none is."""
        for entry in self.entries:
            if entry.timestamp >= timestamp and not entry.control:
                for batch in records.batches(entry.data):
                    for record in batch.records():
                        if record.timestamp is not None and record.timestamp >= timestamp:
                            return record.offset, record.timestamp
        return -1, -1

    def latest_timestamp(self) -> tuple[int, int]:
        """(offset, timestamp) of the record with the latest timestamp; (-1, -1) of an empty log."""
        newest = max((e for e in self.entries if not e.control), key=lambda e: e.timestamp, default=None)
        return (-1, -1) if newest is None else self.offset_for_time(newest.timestamp)

    def forget(self) -> None:
        """The topic was deleted."""
        self.start = self.end = 0
        self.entries, self.waiting, self.aborted = [], [], []
        self.open.clear()
        self._sequences.clear()


def _placed(data: bytes, base: int, delta: int) -> bytes:
    """An entry with another offset. Of the old formats the offset is that of the last message inside, and those inside
    are counted from the first (format 1); format 0 has absolute ones, which have to be written anew."""
    magic = data[16]
    if magic == 2:
        return _BASE.pack(base) + data[8:12] + _EPOCH.pack(0) + data[16:]
    (message,) = records.batches(data)
    if magic == 0 and isinstance(message, Message) and message.codec:
        moved = [record._replace(offset=base + at) for at, record in enumerate(message.records())]
        return records.encode_messages_like(message, moved)
    return _BASE.pack(base + delta) + data[8:]
