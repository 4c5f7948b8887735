"""Which recorded answers live clients were given, and which were never asked for.

Three kinds of APIs differ in what *used* means:

- What changes something (CreateTopics, AlterConfigs ...): every recorded answer counts, and is used when it was given.
- What only reads (DescribeConfigs ...): clients poll more or less often than in the recording. A recorded answer is used
  when it, or the same answer to the same question, was given.
- What is kept up with live clients (records, groups, offsets, transactions), the cluster (Metadata, FindCoordinator) and what
  belongs to a connection (ApiVersions, logins): recorded answers are not given as they were. They are used when the API
  was asked about the same names; recorded errors when they came; records when as many were produced and fetched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...decoder import Message
from ...decoder.schema import facts
from .answers import Outcomes, Reply
from .logs import Logs
from .produced import Produced
from .questions import identity, only_reads, touches
from .recorded_answers import KEPT_UP, Progress, describe
from .recorded_exchanges import PRODUCE, RecordedExchange, RecordedExchanges


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
        progress: Progress,
        logs: Logs,
        produced: Produced,
        outcomes: Iterable[Outcomes],
        by_names: frozenset[str],
        everything: bool,
    ) -> None:
        self._recorded, self._progress, self._logs, self._produced = recorded, progress, logs, produced
        self._outcomes = list(outcomes)
        self._by_names, self._everything = by_names | KEPT_UP | {"ApiVersions"}, everything
        self._asked: dict[int, set[str]] = defaultdict(set)
        self._given: set[int] = set()

    def asked(self, message: Message) -> None:
        """A live request, with recorded names."""
        self._asked[message.api_key] |= touches(message, self._recorded.named)

    def given(self, reply: Reply) -> None:
        """What a live client was answered."""
        if reply.source is not None:
            self._given.add(reply.source.position)

    def unused(self) -> list[Unused]:
        """What was not used so far: exchanges in the order of the recording, then records."""
        given = self._given | self._progress.given
        answers = {_answer(kept, self._recorded) for kept in self._recorded.kept if kept.position in given}
        errors = {kept.position for each in self._outcomes for kept in each.errors_to_come()}
        found: dict[str, list[int]] = defaultdict(list)
        for kept in self._recorded.kept:
            if not self._is_used(kept, given, answers) or kept.position in errors:
                found[describe(kept.asked, self._recorded.words(kept))].append(kept.position)
        exchanges = [Unused(what, len(numbers), tuple(numbers)) for what, numbers in found.items()]
        return exchanges + self._records()

    def _is_used(self, kept: RecordedExchange, given: set[int], answers: set[Any]) -> bool:
        if kept.position in given or (kept.api_key == PRODUCE and self._everything):
            return True
        if kept.api in self._by_names:
            return kept.api_key in self._asked and self._recorded.words(kept) <= self._asked[kept.api_key]
        return only_reads(kept.api_key) and _answer(kept, self._recorded) in answers

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


def _answer(kept: RecordedExchange, recorded: RecordedExchanges) -> Any:
    """A question and its answer; equal for the same ones, also in another run or at another version."""
    answer = None if kept.answered is None else identity(kept.answered, recorded.named)
    return kept.api_key, identity(kept.asked, recorded.named), answer
