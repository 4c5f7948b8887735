"""The logs of all partitions as a recording tells them, and the errors that partitions answered.

Records come from recorded Fetch answers, and from Produce requests that were acknowledged. Those that recorded clients
produced themselves are *own*: by default they appear when they are produced again; everything else is there at once,
in its place among them. Errors have an anchor, so that they come in the same place: for Produce the end of the log at
the time, for Fetch the offset that was asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from .log import Entry, PartitionLog, content, read_entries
from .memory import Memory

Partition = tuple[str, int]
"""topic name, partition"""


class Logs:
    """`produced_errors`: (end of the log, answer) by partition, in order. `fetch_errors`: answers by partition and
    offset. `hidden`: how many own records are not there (yet), by partition."""

    def __init__(self, memory: Memory, everything: bool = False) -> None:
        self._memory = memory
        self._logs: dict[Partition, PartitionLog] = {}
        self.partitions: dict[str, int] = {}
        self.produce_errors: dict[Partition, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self.fetch_errors: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
        self.hidden: dict[Partition, int] = {}
        self.live: set[Partition] = set()
        self.others: set[Partition] = set()
        """Partitions into which somebody else than the recorded clients wrote."""
        self.sent: dict[Partition, list[Entry]] = defaultdict(list)
        """What recorded clients produced, and was not refused; in the order in which they did."""
        self._own: dict[Partition, list[Entry]] = defaultdict(list)
        self._unplaced: dict[Partition, list[Entry]] = defaultdict(list)
        self._fetched: dict[Partition, dict[int, Entry]] = defaultdict(dict)
        self._aborted: dict[Partition, set[tuple[int, int]]] = defaultdict(set)
        self._marks: dict[Partition, int] = {}
        self._count_partitions()
        self._read_produce()
        self._read_fetch()
        self._read_list_offsets()
        for partition in {*self._own, *self._unplaced, *self._fetched, *self._marks}:
            self._lay_out(partition, everything)

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
        for kept in self._memory.of("Metadata"):
            assert kept.answered is not None
            for topic in kept.answered.to_dict()["topics"]:
                for partition in topic["partitions"]:
                    self._see(topic["name"] or "", partition["partition_index"])

    def _read_produce(self) -> None:
        memory = self._memory
        ends: dict[Partition, int] = {}
        for kept in memory.of("Produce"):
            sent = {
                (memory.topic_of(topic), item["index"]): item["records"] or b""
                for topic in kept.asked.to_dict()["topic_data"]
                for item in topic["partition_data"]
            }
            for partition in sent:
                self._see(*partition)
            if kept.answered is None:
                for partition, data in sent.items():
                    self._unplaced[partition] += (entries := read_entries(data))
                    self.sent[partition] += entries
                continue
            for topic in kept.answered.to_dict()["responses"]:
                for item in topic["partition_responses"]:
                    partition = (memory.topic_of(topic), item["index"])
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
        memory = self._memory
        for kept in memory.of("Fetch"):
            assert kept.answered is not None
            asked = {
                (memory.topic_of(topic), item["partition"]): item["fetch_offset"]
                for topic in kept.asked.to_dict()["topics"]
                for item in topic["partitions"]
            }
            for topic in kept.answered.to_dict()["responses"]:
                for item in topic["partitions"]:
                    partition = (memory.topic_of(topic), item["partition_index"])
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
        for kept in self._memory.of("ListOffsets"):
            assert kept.answered is not None
            for topic in kept.answered.to_dict()["topics"]:
                for item in topic["partitions"]:
                    self._see(topic["name"], item["partition_index"])

    def _lay_out(self, partition: Partition, everything: bool) -> None:
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
            log.preset(entries, [], 0, end)
        else:
            first = own[0].base if own else None
            before = [entry for entry in others if first is None or entry.base < first]
            later = [entry for entry in others if first is not None and entry.base >= first]
            end = (
                first if first is not None else max((e.last + 1 for e in before), default=self._marks.get(partition, 0))
            )
            if not own and self._unplaced[partition] and not before:
                end = 0
            log.preset(before, later, 0, end)
            self.hidden[partition] = sum(entry.last - entry.base + 1 for entry in own)
        self._known_aborts(partition, log)
        self.produce_errors[partition] = [
            (log.end if anchor < 0 else anchor, item) for anchor, item in self.produce_errors[partition]
        ]

    def _known_aborts(self, partition: Partition, log: PartitionLog) -> None:
        """Transactions of others that were aborted: each ends with its producer's next marker."""
        for producer_id, first in sorted(self._aborted[partition]):
            markers = (e.base for e in [*log.entries, *log.waiting] if e.control and e.producer_id == producer_id)
            marker = next((base for base in markers if base > first), None)
            if marker is not None:
                log.aborted.append((producer_id, first, marker))
