"""The rules in their order, with their counts: which of them fires for an exchange, and what then happens to it."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence

from .. import decoder
from ..decoder import Exchange, facts
from ..decoder.filter.fields import Need
from .actions import Scene, Seen
from .fate import Fate
from .rules import Rule
from .when import Clockwork

PRODUCE = facts.api_key("Produce")
API_VERSIONS = facts.api_key("ApiVersions")
METADATA = facts.api_key("Metadata")
KNOWN = frozenset(facts.api_keys())


class Standing:
    """A rule at work."""

    __slots__ = ("apis", "clock", "decides", "random", "rule", "selects")

    def __init__(self, rule: Rule, begun_ns: int, matched: int = 0, hits: int = 0) -> None:
        self.rule = rule
        self.clock = Clockwork(rule.when, begun_ns, matched, hits)
        keys = rule.filter.apis()
        self.apis = KNOWN if keys is None else keys
        seed = rule.when.seed if rule.when.seed is not None else zlib.crc32(rule.name.encode())
        # A stream of its own, so that what an action draws does not change which matches fire.
        self.random = random.Random(seed ^ 0x5EED)
        self.selects = rule.filter.narrowed()


class RuleBook:
    """The rules of a relay. `seen`: what they have learned of the cluster, kept when the rules change."""

    def __init__(self, rules: Sequence[Rule], seen: Seen | None = None, now_ns: int | None = None) -> None:
        begun = time.time_ns() if now_ns is None else now_ns
        self._standing = [Standing(rule, begun) for rule in rules]
        self.seen = seen if seen is not None else Seen()
        self._sort()

    def _sort(self) -> None:
        self._interest = frozenset().union(*(each.apis for each in self._standing))
        self._late = frozenset().union(*(each.apis for each in self._standing if each.rule.late))
        if any(Need.CONNECTION in each.rule.filter.needs for each in self._standing):
            # Clients and brokers say there what they are.
            self._interest |= {API_VERSIONS}
            self._late |= {API_VERSIONS}

    def begin(self, now_ns: int) -> None:
        """Let the rules begin at this time (nanoseconds since the epoch): windows of time count from there."""
        for each in self._standing:
            each.clock.begun_ns = now_ns

    @property
    def rules(self) -> list[Rule]:
        return [each.rule for each in self._standing]

    def interest(self) -> frozenset[int]:
        """Api keys whose requests have to be shown to `decide`."""
        return self._interest

    def late(self) -> frozenset[int]:
        """Api keys whose responses have to be shown to `judge`: rules ask for what the response says."""
        return self._late

    def names_topics(self) -> bool:
        """Whether a rule asks for topics by name."""
        return any(each.rule.filter.names_topics for each in self._standing)

    def hits(self) -> dict[str, int]:
        """How often each rule has fired, by name."""
        return {each.rule.name: each.clock.hits for each in self._standing}

    def counts(self) -> dict[str, tuple[int, int]]:
        """How often each rule has matched and fired, by name."""
        return {each.rule.name: (each.clock.matched, each.clock.hits) for each in self._standing}

    def renewed(self, rules: Sequence[Rule], counts: Mapping[str, tuple[int, int]]) -> RuleBook:
        """A book with other rules that has seen the same; rules named in `counts` go on counting from there, and those
        that were here before keep the time they began at."""
        book = RuleBook((), self.seen)
        began = {each.rule.name: each.clock.begun_ns for each in self._standing}
        now = time.time_ns()
        book._standing = [
            Standing(rule, began.get(rule.name, now) if rule.name in counts else now, *counts.get(rule.name, (0, 0)))
            for rule in rules
        ]
        book._sort()
        return book

    def learn(self, exchange: Exchange) -> None:
        """Take topic names and brokers from a response as the client gets it."""
        self.seen.topics.learn(exchange)
        if exchange.api_key == METADATA and (message := exchange.response_message) is not None:
            for broker in message.to_dict()["brokers"]:
                self.seen.brokers[broker["node_id"]] = (broker["host"], broker["port"])

    def decide(self, exchange: Exchange) -> Fate | None:
        """What happens to a request: the fate of the first rule that fires; None if it passes.

        A Produce with acks=0 gets no answer from a broker; rules that would answer it leave it alone.
        """
        if exchange.api_key not in self._interest:
            return None
        return self._first(exchange, late=False)

    def judge(self, exchange: Exchange) -> Fate | None:
        """What happens to a response, for rules that ask what it says."""
        if exchange.api_key not in self._late:
            return None
        return self._first(exchange, late=True)

    def _first(self, exchange: Exchange, late: bool) -> Fate | None:
        for each in self._matching(exchange, late):
            if each.clock.fires(exchange):
                fate = Fate(each.rule.name, each.clock.hits)
                scene = Scene(self.seen, each.random, each.selects, each.clock.hits)
                for action in each.rule.do:
                    action.shape(fate, exchange, scene)
                return fate
        return None

    def _matching(self, exchange: Exchange, late: bool) -> Iterator[Standing]:
        silent = exchange.api_key == PRODUCE and not late and _acks(exchange) == 0
        for each in self._standing:
            if each.rule.late is not late or exchange.api_key not in each.apis or each.clock.spent:
                continue
            if silent and any(not action.early or action.KEYS[0] in ("error", "respond") for action in each.rule.do):
                continue
            if each.rule.filter(exchange):
                yield each


def _acks(exchange: Exchange) -> int | None:
    message = exchange.request_message
    acks: int | None = message["acks"] if message is not None else None
    return acks


def exchange_of(frame: bytes) -> Exchange:
    """The exchange that a request frame (without its size) begins, when nothing is known of its connection."""
    key, version, correlation = decoder.peek_request(frame)
    return Exchange(
        api_key=key, api_version=version, correlation_id=correlation, request=frame, request_time_ns=time.time_ns()
    )
