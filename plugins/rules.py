"""Fault rules: read from a YAML file, matched against requests, counted.

    rules:
      - name: leader moved
        match: api == Produce and topic == orders and partition == 3
        do: {error: NOT_LEADER_OR_FOLLOWER, broker: skipped}
        when: {after: 10, times: 3}

`broker: skipped` (the default): the request never reaches the broker. As a request is passed or not as a whole, all
of its partitions get the error, also when `match` names one of them. `broker: executed`: the broker does what was
asked, and the error replaces the result in the partitions that match. `after`: so many matches pass first;
`times`: the rule fires at most so often (default: always).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import decoder
from ..decoder import facts
from ..decoder.message import Message
from .answers import error_response, partition_number, partitions, with_errors
from .rules_file import Entry, RuleError, read, read_text


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `forward`: the broker executes the request; `times` None: no end."""

    name: str
    api_key: int
    error_code: int
    topic: str | None = None
    partition: int | None = None
    forward: bool = False
    after: int = 0
    times: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Rule:
        return cls(**fields)

    def source(self) -> dict[str, Any]:
        """The rule as a rules file says it."""
        words = [f"api == {facts.api_name(self.api_key)}"]
        if self.topic is not None:
            quote = "'" if '"' in self.topic else '"'
            words.append(f"topic == {quote}{self.topic}{quote}")
        if self.partition is not None:
            words.append(f"partition == {self.partition}")
        broker = "executed" if self.forward else "skipped"
        source: dict[str, Any] = {
            "name": self.name,
            "match": " and ".join(words),
            "do": {"error": facts.error_name(self.error_code), "broker": broker},
        }
        when = {"after": self.after, "times": self.times}
        if wanted := {key: value for key, value in when.items() if value}:
            source["when"] = wanted
        return source


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule that fired does to one exchange. `hits`: how often the rule has fired, this time included."""

    rule: str
    hits: int
    error_code: int
    forward: bool
    request: Message
    _topics: Mapping[bytes, str]
    _rule: Rule

    @property
    def note(self) -> str:
        """A line for the recording."""
        done = "executed by the broker" if self.forward else "not forwarded"
        return f"rule {self.rule!r} (hit {self.hits}): {facts.error_name(self.error_code)}, {done}"

    def encode(self, correlation_id: int) -> bytes:
        """The response frame instead of the broker's (without the 4 size bytes)."""
        return error_response(self.request, self.error_code, correlation_id)

    def apply(self, frame: bytes) -> bytes:
        """The broker's response frame with the error put in; DecodeError if it cannot be read."""
        message = decoder.decode_response(
            frame, api_key=self.request.api_key, api_version=self.request.api_version
        )
        return with_errors(
            message,
            self.error_code,
            lambda topic, partition: _means(self._rule, self._topics, topic, partition),
        ).encode()


class RuleBook:
    """The rules in their order, with their counts. One per relay."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = list(rules)
        self._interest = frozenset(rule.api_key for rule in rules)
        self._matched = [0] * len(self._rules)
        self._hits = [0] * len(self._rules)
        self._topics: dict[bytes, str] = {}

    def interest(self) -> frozenset[int]:
        """Api keys whose requests have to be shown to `decide`."""
        return self._interest

    def learn(self, topic_id: uuid.UUID, name: str) -> None:
        """A topic's name (from a Metadata response), for requests that carry only its id."""
        self._topics[topic_id.bytes] = name

    def hits(self) -> dict[str, int]:
        """How often each rule has fired, by name."""
        return {rule.name: hits for rule, hits in zip(self._rules, self._hits, strict=True)}

    def counts(self) -> dict[str, tuple[int, int]]:
        """How often each rule has matched and fired, by name."""
        return {
            rule.name: (matched, hits)
            for rule, matched, hits in zip(self._rules, self._matched, self._hits, strict=True)
        }

    def renewed(self, rules: Sequence[Rule], counts: Mapping[str, tuple[int, int]]) -> RuleBook:
        """A book with other rules that knows the same topics; rules named in `counts` go on counting from there."""
        book = RuleBook(rules)
        book._topics = self._topics
        for number, rule in enumerate(rules):
            book._matched[number], book._hits[number] = counts.get(rule.name, (0, 0))
        return book

    def decide(self, api_key: int, api_version: int, request: Message) -> Answer | None:
        """The answer of the first rule that fires, None if the request passes.

        A Produce with acks=0 gets no answer from a broker and none from here.
        """
        if api_key not in self._interest or ("acks" in _names(request) and request["acks"] == 0):
            return None
        found: list[tuple[Mapping[str, Any], Mapping[str, Any]]] | None = None
        for number, rule in enumerate(self._rules):
            if rule.api_key != api_key or (rule.times is not None and self._hits[number] >= rule.times):
                continue
            if rule.topic is not None or rule.partition is not None:
                if found is None:
                    found = [(topic, partition) for _, _, topic, _, _, partition in partitions(request)]
                if not any(_means(rule, self._topics, topic, partition) for topic, partition in found):
                    continue
            self._matched[number] += 1
            if self._matched[number] <= rule.after:
                continue
            self._hits[number] += 1
            return Answer(
                rule.name, self._hits[number], rule.error_code, rule.forward, request, self._topics, rule
            )
        return None


def _names(request: Message) -> set[str]:
    return {field.name for field in request.plan.root.fields}


def _means(rule: Rule, topics: Mapping[bytes, str], topic: Mapping[str, Any], partition: Mapping[str, Any]) -> bool:
    if rule.topic is not None:
        name = topic.get("name")
        topic_id = topic.get("topic_id")
        if not name and isinstance(topic_id, uuid.UUID):
            name = topics.get(topic_id.bytes)
        if name != rule.topic:
            return False
    return rule.partition is None or partition_number(partition) == rule.partition


def load(path: str | Path) -> list[Rule]:
    """The rules of a file; RuleError names file, line, column and what is possible."""
    return [_rule(entry) for entry in read(Path(path))]


def parse(text: str, name: str = "rules", first: int = 1) -> list[Rule]:
    """The rules of a text: a rules file's content, a list of rules or one rule, in YAML or JSON.

    RuleError as of `load`, with `name` for the file. Rules without a name are numbered from `first`.
    """
    return [_rule(entry) for entry in read_text(text, name, first)]


def _rule(entry: Entry) -> Rule:
    match = entry.match
    return Rule(
        entry.name,
        match.api_key,
        entry.error_code,
        match.topic,
        match.partition,
        entry.forward,
        entry.after,
        entry.times,
    )


__all__ = ["Answer", "Rule", "RuleBook", "RuleError", "load", "parse"]
