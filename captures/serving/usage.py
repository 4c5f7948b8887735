"""The parts of a recording that live clients used: its answers, and the records that the recorded clients produced.

Three kinds of APIs differ in what *used* means:

- Changes (CreateTopics, AlterConfigs ...): every recorded answer counts, and is used when it was given.
- Reads (DescribeConfigs ...): clients may poll more or less often than in the recording. A recorded answer is used when it, or
  the same answer to the same request, was given.
- Simulated state (records, groups, offsets, transactions), the cluster (Metadata, FindCoordinator) and connections (ApiVersions,
  logins): recorded answers are not given as they were. They are used when the API was asked about the same names; recorded
  errors when they came; records when as many were produced and fetched.

Telemetry (KIP-714) is never unused: clients send it by the clock, so a faster run ends before it.

Produced records are compared by topic: a live record is as recorded if its topic has a recorded record with the same content
that no other live record matched. Partitions, order, batches, offsets and timestamps may differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...decoder import Message, records
from ...decoder.records import Partial, Record
from ...decoder.schema import facts
from ...diagnostics import contained
from .answers import Outcomes, Reply
from .logs import LogEntry, Logs, Partition
from .recorded_answers import SIMULATED, ServingProgress, describe
from .recorded_exchanges import PRODUCE, TELEMETRY, RecordedExchange, RecordedExchanges, identity, only_reads, touches

Content = Callable[[Record], Any]
"""The content of a record for comparing: equal values are the same content."""

_LOOK_AT = 1000
"""How many contents are looked at for the nearest one."""


def whole_content(record: Record) -> tuple[object, ...]:
    """Key, value and headers."""
    return record.key, record.value, record.headers


@dataclass(frozen=True, slots=True)
class UnrecordedRecord:
    """A live record with a content that was not recorded. `recorded` is the record of the topic that it may stand for: one
    that was not produced again yet, of the same key if there is one; None when all of them were."""

    topic: str
    partition: int
    live: Record
    recorded: Record | None


class Produced:
    """Compares produced records with the recorded ones. `content` None: records are only counted."""

    def __init__(self, recorded: Mapping[Partition, list[LogEntry]], content: Content | None = None) -> None:
        self._content = content
        self._open: dict[str, _Records] = defaultdict(_Records)
        self._named: dict[str, _Records] = defaultdict(_Records)
        """Recorded records that a difference names: they count as produced, and may still be produced as they were."""
        self._left: Counter[str] = Counter()
        self._news: list[UnrecordedRecord] = []
        for (topic, _), entries in sorted(recorded.items()):
            if content is None:
                self._left[topic] += _count(entries)
                continue
            for record in _records(entries):
                self._open[topic].add(_frozen(content(record)), record)

    def take(self, partition: Partition, entries: list[LogEntry]) -> None:
        """Records that were produced and accepted."""
        topic, number = partition
        if self._content is None:
            self._left[topic] -= _count(entries)
            return
        for record in _records(entries):
            try:
                content = _frozen(self._content(record))
            except Exception as error:  # the function is a user's: a record that it cannot read differs from the recorded one
                contained("the function that compares produced records", error)
                content = object()
            if self._open[topic].take(content) or self._named[topic].take(content):
                continue
            nearest = self._open[topic].nearest(record)
            if nearest is not None:
                self._open[topic].take(nearest[0])
                self._named[topic].add(*nearest)
            self._news.append(UnrecordedRecord(topic, number, record, nearest[1] if nearest else None))

    def news(self) -> list[UnrecordedRecord]:
        """Differences since the last call."""
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
    """A value as it is, hashable: content may be parsed JSON."""
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(_frozen, value))
    return value


def _count(entries: Iterable[LogEntry]) -> int:
    return sum(entry.last - entry.base + 1 for entry in entries)


def _records(entries: Iterable[LogEntry]) -> Iterator[Record]:
    """The readable records of batches."""
    for entry in entries:
        try:
            for batch in records.batches(entry.data):
                if not isinstance(batch, Partial):
                    yield from batch.records()
        except records.RecordsError:
            continue


@dataclass(frozen=True, slots=True)
class Unused:
    """Recorded answers that were not given, or records that were not produced again. `numbers`: their exchanges' places in the
    recording, counted from 0; empty for records and their errors."""

    what: str
    count: int
    numbers: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """For people."""
        if not self.numbers:
            return self.what
        shown = ", ".join(map(str, self.numbers[:4])) + (" ..." if len(self.numbers) > 4 else "")
        return f"{self.what} (number{'s' if self.count > 1 else ''} {shown})"


class Usage:
    """`by_names`: the APIs, beside those of every connection, whose answers are not given as they were recorded.
    `everything`: clients need not produce anything; the recorded records are there from the start."""

    def __init__(
        self,
        recorded: RecordedExchanges,
        progress: ServingProgress,
        logs: Logs,
        produced: Produced,
        outcomes: Iterable[Outcomes[Any]],
        by_names: frozenset[str],
        everything: bool,
    ) -> None:
        self._recorded, self._progress, self._logs, self._produced = recorded, progress, logs, produced
        self._outcomes = list(outcomes)
        self._by_names, self._everything = by_names | SIMULATED | {"ApiVersions"}, everything
        self._asked: dict[int, set[str]] = defaultdict(set)
        self._given: set[int] = set()

    def asked(self, message: Message) -> None:
        """A live request, with recorded names."""
        self._asked[message.api_key] |= touches(message, self._recorded.named)

    def given(self, reply: Reply) -> None:
        """Count a reply to a live client."""
        if reply.source is not None:
            self._given.add(reply.source.position)

    def unused(self) -> list[Unused]:
        """The unused parts so far: exchanges in the order of the recording, then records."""
        given = self._given | self._progress.given
        answers = {_answer(exchange, self._recorded) for exchange in self._recorded.all if exchange.position in given}
        errors = {exchange.position for each in self._outcomes for exchange in each.errors_to_come()}
        found: dict[str, list[int]] = defaultdict(list)
        for exchange in self._recorded.all:
            if not self._is_used(exchange, given, answers) or exchange.position in errors:
                found[describe(exchange.request, self._recorded.words(exchange))].append(exchange.position)
        exchanges = [Unused(what, len(numbers), tuple(numbers)) for what, numbers in found.items()]
        return exchanges + self._records()

    def _is_used(self, exchange: RecordedExchange, given: set[int], answers: set[Any]) -> bool:
        if exchange.position in given or exchange.api_key in TELEMETRY or (exchange.api_key == PRODUCE and self._everything):
            return True
        if exchange.api in self._by_names:
            return exchange.api_key in self._asked and self._recorded.words(exchange) <= self._asked[exchange.api_key]
        return only_reads(exchange.api_key) and _answer(exchange, self._recorded) in answers

    def _records(self) -> list[Unused]:
        found = []
        if not self._everything:
            for topic, count in sorted(self._produced.missing().items()):
                found.append(Unused(f"{_counted(count)} of {topic} not produced again", count))
            for (topic, partition), errors in sorted(self._logs.produce_errors.items()):
                for _, item in errors:
                    name = facts.error_name(item["error_code"])
                    found.append(Unused(f"the error {name} of a Produce to {topic}-{partition}", 1))
        for topic, count in sorted(self._logs.unread().items()):
            found.append(Unused(f"{_counted(count)} of {topic} not fetched", count))
        for (topic, partition, offset), items in sorted(self._logs.fetch_errors.items()):
            for item in items:
                name = facts.error_name(item["error_code"])
                found.append(Unused(f"the error {name} of a Fetch of {topic}-{partition} from offset {offset}", 1))
        return found


def _counted(count: int) -> str:
    return f"{count} record{'s' if count > 1 else ''}"


def _answer(exchange: RecordedExchange, recorded: RecordedExchanges) -> Any:
    """A question and its answer; equal for the same ones, also in another run or at another version."""
    answer = None if exchange.answer is None else identity(exchange.response, recorded.named)
    return exchange.api_key, identity(exchange.request, recorded.named), answer
