"""What live clients produce, held to what the recorded ones produced.

Records are compared by topic: a live record is as recorded if its topic has a recorded record with the same content that
no other live record was taken for. Partitions, order, batches, offsets and timestamps are another run's own.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...decoder import records
from ...decoder.records import Partial, Record
from .logs import Entry, Partition

Content = Callable[[Record], Any]
"""What is compared of a record: equal values are the same content."""


_LOOK_AT = 1000
"""How many contents are looked at for the nearest one."""


def whole_content(record: Record) -> tuple[Any, ...]:
    """Key, value and headers."""
    return record.key, record.value, record.headers


@dataclass(frozen=True, slots=True)
class Difference:
    """A live record with a content that was not recorded. `recorded` is the record of the topic that it may stand for: one
    that was not produced again yet, of the same key if there is one; None when all of them were."""

    topic: str
    partition: int
    live: Record
    recorded: Record | None


class Produced:
    """`content` None: records are only counted."""

    def __init__(self, recorded: Mapping[Partition, list[Entry]], content: Content | None = None) -> None:
        self._content = content
        self._open: dict[str, _Records] = defaultdict(_Records)
        self._named: dict[str, _Records] = defaultdict(_Records)
        """Recorded records that a difference names: they count as produced, and may still be produced as they were."""
        self._left: Counter[str] = Counter()
        self._news: list[Difference] = []
        for (topic, _), entries in sorted(recorded.items()):
            if content is None:
                self._left[topic] += _count(entries)
                continue
            for record in _records(entries):
                self._open[topic].add(_frozen(content(record)), record)

    def take(self, partition: Partition, entries: list[Entry]) -> None:
        """Records that were produced and accepted."""
        topic, number = partition
        if self._content is None:
            self._left[topic] -= _count(entries)
            return
        for record in _records(entries):
            try:
                content = _frozen(self._content(record))
            except Exception:  # the function is a user's: what it cannot read is not what was recorded
                content = object()
            if self._open[topic].take(content) or self._named[topic].take(content):
                continue
            nearest = self._open[topic].nearest(record)
            if nearest is not None:
                self._open[topic].take(nearest[0])
                self._named[topic].add(*nearest)
            self._news.append(Difference(topic, number, record, nearest[1] if nearest else None))

    def news(self) -> list[Difference]:
        """What differed since this was last asked."""
        news, self._news = self._news, []
        return news

    def missing(self) -> dict[str, int]:
        """By topic, how many of the recorded records were not produced again. Those that differences name are not counted."""
        left = self._left if self._content is None else {topic: each.count() for topic, each in self._open.items()}
        return {topic: count for topic, count in left.items() if count > 0}


class _Records:
    """Records by their content, in the order in which they were added."""

    def __init__(self) -> None:
        self._by_content: dict[Any, deque[Record]] = {}

    def add(self, content: Any, record: Record) -> None:
        self._by_content.setdefault(content, deque()).append(record)

    def take(self, content: Any) -> bool:
        """Take the first of this content out; whether there was one."""
        there = self._by_content.get(content)
        if not there:
            return False
        there.popleft()
        if not there:
            del self._by_content[content]
        return True

    def nearest(self, record: Record) -> tuple[Any, Record] | None:
        """(content, record): the first with the same key, else the first."""
        first = None
        for content, there in islice(self._by_content.items(), _LOOK_AT):
            if there[0].key == record.key:
                return content, there[0]
            first = first or (content, there[0])
        return first

    def count(self) -> int:
        return sum(map(len, self._by_content.values()))


def _frozen(value: Any) -> Any:
    """A value as it is, hashable: content may be what a JSON text says."""
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(_frozen, value))
    return value


def _count(entries: Iterable[Entry]) -> int:
    return sum(entry.last - entry.base + 1 for entry in entries)


def _records(entries: Iterable[Entry]) -> Iterator[Record]:
    """The readable records of batches."""
    for entry in entries:
        try:
            for batch in records.batches(entry.data):
                if not isinstance(batch, Partial):
                    yield from batch.records()
        except records.RecordsError:
            continue
