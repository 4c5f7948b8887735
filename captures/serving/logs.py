"""The logs of a recording's partitions, the records produced to them now, and the errors that partitions answered.

A `PartitionLog` is that of one partition. Bytes stay as they were: only offsets and leader epochs, which no CRC covers, are
rewritten. Transactions are followed as far as consumers see them: last stable offset, markers, aborted transactions.

`Logs` are all of them. Records come from recorded Fetch answers, and from Produce requests that were acknowledged. Those that
recorded clients produced themselves are *own*: by default they appear when they are produced again; all others are there
from the start, in their order. Errors have an anchor, so that they come in the same place: for Produce the end of the log at
the time, for Fetch the offset that was asked for.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...decoder import records
from ...decoder.records import Batch, Message, Partial, Record
from .recorded_exchanges import RecordedExchanges

_BASE = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_MARKER_KEY, _MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")
_SEQUENCES_KEPT = 8


@dataclass(slots=True)
class LogEntry:
    """One batch, or one message of the old formats, with the offsets that it covers."""

    base: int
    last: int
    data: bytes
    timestamp: int
    """of its latest record, in ms; -1 when it has none"""
    producer_id: int = -1
    control: bool = False
    transactional: bool = False

    def moved(self, base: int) -> LogEntry:
        """The same records at another offset."""
        return LogEntry(
            base, base + self.last - self.base, _placed(self.data, base, self.last - self.base), self.timestamp,
            self.producer_id, self.control, self.transactional,
        )  # fmt: skip


def read_entries(data: bytes) -> list[LogEntry]:
    """The whole entries of a records field; what cannot be read, and an unfinished last one, are left out."""
    found: list[LogEntry] = []
    try:
        for batch in records.batches(data):
            if isinstance(batch, Partial):
                break
            whole = bytes(data[batch.start : batch.end])
            if isinstance(batch, Batch):
                found.append(
                    LogEntry(
                        batch.base_offset, batch.last_offset, whole, batch.max_timestamp, batch.producer_id,
                        batch.control, batch.transactional,
                    )
                )  # fmt: skip
            else:
                offsets = [record.offset for record in batch.records()] if batch.codec else [batch.offset]
                base, last = min(offsets, default=batch.offset), max(offsets, default=batch.offset)
                found.append(LogEntry(base, last, whole, -1 if batch.timestamp is None else batch.timestamp))
    except records.RecordsError:
        pass
    return found


def content(data: bytes) -> bytes:
    """The bytes of a batch that do not depend on where it is written: all but offset, leader epoch and CRC."""
    return data[8:12] + data[16:17] + data[21:]


class TimedOffset(NamedTuple):
    """A record's offset and timestamp in ms; -1 for both where there is none."""

    offset: int = -1
    timestamp: int = -1


@dataclass
class PartitionLog:
    """`start` is the first offset, `end` the next one. `waiting` are recorded entries of others that come later."""

    start: int = 0
    end: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    waiting: list[LogEntry] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer id, first offset, offset of the marker)"""
    open: dict[int, int] = field(default_factory=dict)
    """first offset of each producer's transaction that has not ended"""
    read_out: dict[int, int] = field(default_factory=dict)
    """How many offsets the entries have that consumers were given, by their bases; without markers."""
    _sequences: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)

    def begin_with(self, entries: list[LogEntry], waiting: list[LogEntry], start: int, end: int) -> None:
        """Set the content before anything is produced."""
        self.start, self.end, self.entries, self.waiting = start, end, entries, waiting
        self._take_waiting()

    @property
    def stable(self) -> int:
        """The last stable offset: what read_committed consumers may read up to."""
        return min(self.open.values(), default=self.end)

    def append(self, data: bytes) -> tuple[int, list[LogEntry]]:
        """Take the records of a Produce request: the offset of the first one, and what was taken. A batch that is sent
        again (the same producer, epoch and sequence) is not taken twice."""
        first = self.end
        taken: list[LogEntry] = []
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

    def _placed_message(self, message: Message) -> LogEntry:
        """A message of the old formats, at the end of the log."""
        inner = list(message.records()) if message.codec else None
        if inner is None:
            data = _placed(bytes(message.data[message.start : message.end]), self.end, 0)
            count = 1
        else:
            # The offsets inside are counted anew: those of format 0 are absolute, and producers count from 0.
            moved = [record._replace(offset=self.end + at) for at, record in enumerate(inner)]
            data, count = records.encode_messages_like(message, moved), len(moved)
        timestamp = -1 if message.timestamp is None else message.timestamp
        return LogEntry(self.end, self.end + count - 1, data, timestamp)

    def _add(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        self.end = entry.last + 1
        self._take_waiting()

    def _take_waiting(self) -> None:
        """Append records of others at their recorded offset, or at the end of the log if that is behind it."""
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
        self._add(LogEntry(self.end, self.end, data, time_ms, producer_id, True, True))

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

    def offset_for_time(self, timestamp: int) -> TimedOffset:
        """The first record that is not older than `timestamp` in ms."""
        for entry in self.entries:
            if entry.timestamp >= timestamp and not entry.control:
                for batch in records.batches(entry.data):
                    for record in batch.records():
                        if record.timestamp is not None and record.timestamp >= timestamp:
                            return TimedOffset(record.offset, record.timestamp)
        return TimedOffset()

    def latest_timestamp(self) -> TimedOffset:
        """The record with the latest timestamp."""
        newest = max((e for e in self.entries if not e.control), key=lambda e: e.timestamp, default=None)
        return TimedOffset() if newest is None else self.offset_for_time(newest.timestamp)

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


Partition = tuple[str, int]
"""topic name, partition"""


class Logs:
    """`produced_errors`: (end of the log, answer) by partition, in order. `fetch_errors`: answers by partition and
    offset. `hidden`: how many own records are not there (yet), by partition."""

    def __init__(self, recorded: RecordedExchanges, everything: bool = False) -> None:
        self._recorded = recorded
        self._logs: dict[Partition, PartitionLog] = {}
        self.partitions: dict[str, int] = {}
        self.produce_errors: dict[Partition, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self.fetch_errors: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
        self.hidden: dict[Partition, int] = {}
        self.live: set[Partition] = set()
        self.others: set[Partition] = set()
        """Partitions into which others than the recorded clients wrote."""
        self.sent: dict[Partition, list[LogEntry]] = defaultdict(list)
        """Records that recorded clients produced and brokers accepted, in order."""
        self._own: dict[Partition, list[LogEntry]] = defaultdict(list)
        self._unplaced: dict[Partition, list[LogEntry]] = defaultdict(list)
        self._fetched: dict[Partition, dict[int, LogEntry]] = defaultdict(dict)
        self._aborted: dict[Partition, set[tuple[int, int]]] = defaultdict(set)
        self._marks: dict[Partition, int] = {}
        self._count_partitions()
        self._read_produce()
        self._read_fetch()
        self._read_list_offsets()
        for partition in {*self._own, *self._unplaced, *self._fetched, *self._marks}:
            self._build_log(partition, everything)

    def knows(self, topic: str) -> bool:
        """Whether the recording has this topic."""
        return topic in self.partitions

    def log(self, partition: Partition) -> PartitionLog | None:
        """The log of a partition; None if the recording does not know it."""
        found = self._logs.get(partition)
        if found is None and 0 <= partition[1] < self.partitions.get(partition[0], 0):
            found = self._logs[partition] = PartitionLog()
        return found

    def produced(self, partition: Partition) -> bool:
        """Whether anything was produced to a partition live."""
        return partition in self.live

    def unread(self) -> dict[str, int]:
        """By topic, how many records recorded clients have fetched that live ones have not."""
        left: Counter[str] = Counter()
        for (topic, _), entries in self._fetched.items():
            left[topic] += sum(entry.last - entry.base + 1 for entry in entries.values() if not entry.control)
        for (topic, _), log in self._logs.items():
            left[topic] -= sum(log.read_out.values())
        return {topic: count for topic, count in left.items() if count > 0}

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        for (name, _), log in self._logs.items():
            if name == topic:
                log.forget()

    def _see(self, topic: str, partition: int) -> None:
        if topic:
            self.partitions[topic] = max(self.partitions.get(topic, 0), partition + 1)

    def _count_partitions(self) -> None:
        for exchange in self._recorded.of("Metadata"):
            for topic in exchange.response.to_dict()["topics"]:
                for partition in topic["partitions"]:
                    self._see(topic["name"] or "", partition["partition_index"])

    def _read_produce(self) -> None:
        recorded = self._recorded
        ends: dict[Partition, int] = {}
        for exchange in recorded.of("Produce"):
            sent = {
                (recorded.topic_of(topic), item["index"]): item["records"] or b""
                for topic in exchange.request.to_dict()["topic_data"]
                for item in topic["partition_data"]
            }
            for partition in sent:
                self._see(*partition)
            if exchange.answer is None:
                for partition, data in sent.items():
                    self._unplaced[partition] += (entries := read_entries(data))
                    self.sent[partition] += entries
                continue
            for topic in exchange.response.to_dict()["responses"]:
                for item in topic["partition_responses"]:
                    partition = (recorded.topic_of(topic), item["index"])
                    if item["error_code"]:
                        self.produce_errors[partition].append((ends.get(partition, -1), item))
                        continue
                    base = max(item["base_offset"], 0)
                    self.sent[partition] += (entries := read_entries(sent.get(partition, b"")))
                    for entry in entries:
                        self._own[partition].append(entry.moved(base))
                        base += entry.last - entry.base + 1
                    ends[partition] = base

    def _read_fetch(self) -> None:
        recorded = self._recorded
        for exchange in recorded.of("Fetch"):
            asked = {
                (recorded.topic_of(topic), item["partition"]): item["fetch_offset"]
                for topic in exchange.request.to_dict()["topics"]
                for item in topic["partitions"]
            }
            for topic in exchange.response.to_dict()["responses"]:
                for item in topic["partitions"]:
                    partition = (recorded.topic_of(topic), item["partition_index"])
                    self._see(*partition)
                    if item["error_code"]:
                        if partition in asked:
                            self.fetch_errors[(*partition, asked[partition])].append(item)
                        continue
                    self._fetched[partition].update((e.base, e) for e in read_entries(item["records"] or b""))
                    self._marks[partition] = max(self._marks.get(partition, 0), item["high_watermark"])
                    for aborted in item.get("aborted_transactions") or ():
                        self._aborted[partition].add((aborted["producer_id"], aborted["first_offset"]))

    def _read_list_offsets(self) -> None:
        for exchange in self._recorded.of("ListOffsets"):
            for topic in exchange.response.to_dict()["topics"]:
                for item in topic["partitions"]:
                    self._see(topic["name"], item["partition_index"])

    def _build_log(self, partition: Partition, everything: bool) -> None:
        own = sorted(self._own[partition], key=lambda entry: entry.base)
        covered = {offset for entry in own for offset in range(entry.base, entry.last + 1)}
        producers = {entry.producer_id for entry in own if entry.producer_id >= 0}
        unplaced = {content(entry.data) for entry in self._unplaced[partition]}
        others = []
        for entry in sorted(self._fetched[partition].values(), key=lambda entry: entry.base):
            if entry.base in covered or (entry.control and entry.producer_id in producers):
                if everything and entry.control:
                    own.append(entry)
            elif content(entry.data) in unplaced:
                own.append(entry)
            else:
                others.append(entry)
        own.sort(key=lambda entry: entry.base)
        log = self._logs[partition] = PartitionLog()
        if others:
            self.others.add(partition)
        if everything:
            entries = sorted([*own, *others], key=lambda entry: entry.base)
            end = max((entry.last + 1 for entry in entries), default=self._marks.get(partition, 0))
            log.begin_with(entries, [], 0, end)
        else:
            first = own[0].base if own else None
            before = [entry for entry in others if first is None or entry.base < first]
            later = [entry for entry in others if first is not None and entry.base >= first]
            end = (
                first if first is not None else max((e.last + 1 for e in before), default=self._marks.get(partition, 0))
            )
            if not own and self._unplaced[partition] and not before:
                end = 0
            log.begin_with(before, later, 0, end)
            self.hidden[partition] = sum(entry.last - entry.base + 1 for entry in own)
        self._add_aborts(partition, log)
        self.produce_errors[partition] = [
            (log.end if anchor < 0 else anchor, item) for anchor, item in self.produce_errors[partition]
        ]

    def _add_aborts(self, partition: Partition, log: PartitionLog) -> None:
        """Transactions of others that were aborted: each ends with its producer's next marker."""
        for producer_id, first in sorted(self._aborted[partition]):
            markers = (e.base for e in [*log.entries, *log.waiting] if e.control and e.producer_id == producer_id)
            marker = next((base for base in markers if base > first), None)
            if marker is not None:
                log.aborted.append((producer_id, first, marker))
