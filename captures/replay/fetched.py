"""Records that came back: what the recorded consumers fetched against what the replay fetched, by offset.

A fetch is answered sooner or later, and with more or fewer records, as it happens: single answers are not compared. At
the end, every batch that was fetched when recorded has to have been fetched again, at the offset that belongs to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from ...decoder import Exchange
from ...decoder.message import Message
from ...decoder.records import Batch, Partial, RecordsError, batches
from ...decoder.records.batch import CONTROL, HEADER_SIZE
from .mapping import IdMapping
from .rewriting import read
from .roles import Role

Digests = dict[int, int]
_LEADING = 4


class Unlike(NamedTuple):
    """A batch that the replay did not fetch as it was recorded. `got` is False where it was not fetched at all."""

    topic: str
    partition: int
    offset: int
    target_offset: int
    got: bool


class FetchedRecords:
    """Keeps a number for each batch, by partition and offset, not the records."""

    def __init__(self, mapping: IdMapping) -> None:
        self._mapping = mapping
        self._recorded: dict[tuple[str, int], Digests] = {}
        self._got: dict[tuple[str, int], Digests] = {}
        self._single: set[tuple[str, int]] = set()

    def answers(self, exchange: Exchange, recorded: Message, got: Message) -> None:
        """Take the records of a recorded answer, and of the target's to the same request."""
        names = {self._mapping.names.topic(name): name for name in self._names(recorded)}
        single = exchange.api_version < _LEADING  # message sets then; the target may have batches
        self._take(recorded, self._recorded, None, single)
        self._take(got, self._got, names, single)

    def again(self, got: Message, recorded: Message, single: bool = False) -> None:
        """Take the records of an answer that was asked for once more."""
        self._take(got, self._got, {self._mapping.names.topic(n): n for n in self._names(recorded)}, single)

    def _names(self, message: Message) -> Iterator[str]:
        for role, _, scope, _ in read(message):
            if role is Role.PARTITION:
                name = self._mapping.topic_of(scope)
                if name is not None:
                    yield name

    def _take(
        self, message: Message, into: dict[tuple[str, int], Digests], names: dict[str, str] | None, single: bool
    ) -> None:
        for role, value, scope, _ in read(message):
            if role is not Role.RECORDS or not value:
                continue
            topic = self._topic(scope, names)
            partition = scope.get(Role.PARTITION)
            if topic is None or partition is None:
                continue
            kept = into.setdefault((topic, partition), {})
            kept.update(_single(value) if single else _batches(value))

    def _topic(self, scope: dict[Role, object] | object, names: dict[str, str] | None) -> str | None:
        assert isinstance(scope, dict)
        if names is None:
            return self._mapping.topic_of(scope)
        name = scope.get(Role.TOPIC)
        if not name:
            there = scope.get(Role.TOPIC_ID)
            name = next((n for n, i in self._mapping.topics.items() if i == there), None)
            if name is None:
                recorded = next((r for r, t in self._mapping.topic_ids.items() if t == there), None)
                return self._mapping.recorded.topics.get(recorded) if recorded is not None else None
        back = {target: recorded for recorded, target in self._mapping.names.topics.items()}
        return names.get(str(name)) or back.get(str(name), str(name))

    def places(self, recorded: Message) -> Iterator[tuple[str, int]]:
        """The partitions that a recorded answer has records of."""
        for role, value, scope, _ in read(recorded):
            if role is Role.RECORDS and value:
                topic, partition = self._topic(scope, None), scope.get(Role.PARTITION)
                if topic is not None and partition is not None:
                    yield topic, partition

    def unlike(self) -> Iterator[Unlike]:
        """What was fetched when recorded, and not, or otherwise, now."""
        for (topic, partition), recorded in self._recorded.items():
            got = self._got.get((topic, partition), {})
            offsets = self._mapping.offsets_of(topic, partition)
            for offset, digest in sorted(recorded.items()):
                there = offsets.target(offset)
                if got.get(there) != digest:
                    yield Unlike(topic, partition, offset, there, there in got)

    @property
    def counts(self) -> tuple[int, int]:
        """How many batches were fetched: (recorded, replayed)."""
        return sum(map(len, self._recorded.values())), sum(map(len, self._got.values()))


def _batches(data: bytes) -> Iterator[tuple[int, int]]:
    """(base offset, number) of every whole batch; the producer, the times of appending and the CRC over them count not."""
    try:
        for entry in batches(data):
            if isinstance(entry, Partial):
                return
            if not isinstance(entry, Batch):
                yield from _of_records(entry)
            elif entry.attributes & CONTROL:
                yield entry.base_offset, -1  # its value holds an epoch of the coordinator
            else:
                payload = memoryview(data)[entry.start + HEADER_SIZE : entry.end]
                yield entry.base_offset, zlib.crc32(payload, entry.record_count)
    except RecordsError:
        return


def _single(data: bytes) -> Iterator[tuple[int, int]]:
    try:
        for entry in batches(data):
            if not isinstance(entry, Partial):
                yield from _of_records(entry)
    except RecordsError:
        return


def _of_records(entry: object) -> Iterator[tuple[int, int]]:
    assert not isinstance(entry, Partial)
    for record in entry.records():  # type: ignore[attr-defined]
        yield record.offset, zlib.crc32(record.value or b"", zlib.crc32(record.key or b""))
