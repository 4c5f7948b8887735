"""Rules in their order, with their counts: which of them fires for an exchange, and what it does."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence

from ... import decoder
from ...decoder import Exchange
from ...decoder.filter.fast_reject import FastReject
from ...decoder.filter.language.fields import Known, Need
from ...decoder.filter.language.patterns import within
from ...decoder.schema import facts
from ..actions import ActionContext, ClusterView
from ..actions.answering import Error
from ..actions.fault_plan import FaultPlan
from ..answers import fetch_sessions
from ..answers.responses import METADATA, cluster_of
from ..conditions import reach
from ..conditions.when import LocalCounter, RuleCounter, Trigger
from .rules import Rule

SEARCH_SECONDS = 0.05
"""How long the regular expressions of all rules may take for one frame. Past that it passes as if no rule had matched."""
PRODUCE = facts.api_key("Produce")
API_VERSIONS = facts.api_key("ApiVersions")
KNOWN = frozenset(facts.api_keys())


class ActiveRule:
    """A rule with its trigger, and what its filter needs."""

    __slots__ = ("apis", "by_header_prefix", "kinds", "open", "random", "rule", "selects", "stable", "trigger", "whole_fetches")

    def __init__(self, rule: Rule, count: RuleCounter) -> None:
        self.rule = rule
        self.trigger = Trigger(rule.when, count)
        keys = rule.filter.apis()
        self.apis = KNOWN if keys is None else keys
        seed = rule.when.seed if rule.when.seed is not None else zlib.crc32(rule.name.encode())
        # Separate from the trigger's, so that draws of actions do not change which matches fire.
        self.random = random.Random(seed ^ 0x5EED)
        self.selects = rule.filter.part_test()
        self.stable = rule.filter.known is Known.BEGINNING
        self.by_header_prefix = rule.filter.known <= Known.HEADER_PREFIX
        self.kinds = reach.names_asked_for(rule.filter)
        on_responses = not rule.late and all(not action.early or isinstance(action, Error) for action in rule.do)
        self.open = frozenset(
            key for key in self.apis & KNOWN if on_responses and self.kinds and reach.may_ask_for_all(key, self.kinds)
        )
        """APIs whose requests may ask for everything: then the names in the response decide."""
        self.whole_fetches = not rule.late and fetch_sessions.names_topics(rule.filter)


class RuleEngine:
    """Decides without sockets which rule applies to an exchange: `decide` for requests, `judge` for responses.

    `cluster_view`: what the rules know about the cluster; it is kept when the rules change. `now_ns`: the time from which
    `when` counts.
    """

    def __init__(self, rules: Sequence[Rule], cluster_view: ClusterView | None = None, now_ns: int | None = None) -> None:
        begun = time.time_ns() if now_ns is None else now_ns
        self._active = [ActiveRule(rule, LocalCounter(begun)) for rule in rules]
        self.cluster_view = cluster_view if cluster_view is not None else ClusterView()
        self._sort()

    def _sort(self) -> None:
        self._interest = frozenset().union(*(each.apis for each in self._active))
        self._late = frozenset().union(*(each.apis if each.rule.late else each.open for each in self._active))
        if any(
            Need.CONNECTION in each.rule.filter.needs or any(action.needs_offers(each.apis) for action in each.rule.do)
            for each in self._active
        ):
            # It carries the software of clients and the versions of brokers.
            self._interest |= {API_VERSIONS}
            self._late |= {API_VERSIONS}

    def early(self, api_key: int) -> bool:
        """Whether a rule for an API is decided by the request alone."""
        return any(api_key in each.apis and not each.rule.late for each in self._active)

    def kept(self) -> frozenset[int]:
        """API keys whose requests must be kept until the response comes."""
        return self._late - {API_VERSIONS}

    def fast_reject(self, api_key: int) -> FastReject | None:
        """A test for responses of an API that no rule applies to; None if each must be judged."""
        found = FastReject()
        for each in self._active:
            if api_key in each.open:
                return None
            if each.rule.late and api_key in each.apis:
                if (fast_reject := each.rule.filter.fast_reject) is None:
                    return None
                found = found.both(fast_reject)
        return found

    def stable(self, api_key: int) -> bool:
        """If no rule applies to a request, whether this also holds for requests on its connection that begin the same way."""
        return all(each.stable and api_key not in each.open for each in self._active if api_key in each.apis and not each.rule.late)

    def by_header_prefix(self, api_key: int) -> bool:
        """Whether all rules for an API can be decided by the header prefix of its messages."""
        return all(each.by_header_prefix for each in self._active if api_key in each.apis)

    def concerns(self, exchange: Exchange, late: bool = False) -> bool:
        """Whether a rule applies to a request (or with `late`, a response) and may fire. Does not count it."""
        with within(SEARCH_SECONDS, time.monotonic):
            return any(True for _ in self._matching(exchange, late))

    def whole_fetches(self) -> bool:
        """Whether a rule that can still fire needs all topics of a Fetch (see `fetch_sessions`)."""
        return any(each.whole_fetches and not each.trigger.spent for each in self._active)

    def begin(self, now_ns: int) -> None:
        """Set the time (nanoseconds since the epoch) from which `from` and `until` of rules count."""
        for each in self._active:
            each.trigger.count.begun_ns = now_ns

    @property
    def rules(self) -> list[Rule]:
        return [each.rule for each in self._active]

    def interest(self) -> frozenset[int]:
        """API keys whose requests must be passed to `decide`."""
        return self._interest

    def late(self) -> frozenset[int]:
        """API keys whose responses must be passed to `judge`: rules match on the response."""
        return self._late

    def hits(self) -> dict[str, int]:
        """How often each rule has fired, by name."""
        return {each.rule.name: each.trigger.count.hits for each in self._active}

    def counts(self) -> dict[str, tuple[int, int]]:
        """How often each rule has matched and fired, by name."""
        return {each.rule.name: (each.trigger.count.matched, each.trigger.count.hits) for each in self._active}

    def with_rules(
        self,
        rules: Sequence[Rule],
        counts: Mapping[str, tuple[int, int]],
        shared: Mapping[str, RuleCounter] | None = None,
    ) -> RuleEngine:
        """An engine with other rules and the same view of the cluster. Rules named in `counts` continue from these
        counts, and with their start time if they were in this engine. `shared`: counters that workers share, by name."""
        engine = RuleEngine((), self.cluster_view)
        began = {each.rule.name: each.trigger.count.begun_ns for each in self._active}
        now = time.time_ns()
        for rule in rules:
            count: RuleCounter | None = shared.get(rule.name) if shared is not None else None
            if count is None:
                begun = began.get(rule.name, now) if rule.name in counts else now
                count = LocalCounter(begun, *counts.get(rule.name, (0, 0)))
            engine._active.append(ActiveRule(rule, count))
        engine._sort()
        return engine

    def learn(self, exchange: Exchange) -> None:
        """Learn topic names and brokers from a response as the client receives it."""
        self.cluster_view.topics.learn(exchange)
        if exchange.api_key == METADATA and (message := exchange.response_message) is not None:
            self.cluster_view.cluster = cluster_of(message) or self.cluster_view.cluster
            self.cluster_view.leaders.learn(message)

    def decide(self, exchange: Exchange) -> FaultPlan | None:
        """What happens to a request: the fault plan of the first rule that fires; None if it passes.

        A broker does not answer a Produce with acks=0; rules that would answer it do not apply.
        """
        if exchange.api_key not in self._interest:
            return None
        with within(SEARCH_SECONDS, time.monotonic):
            return self._first(exchange, late=False)

    def judge(self, exchange: Exchange) -> FaultPlan | None:
        """What happens to a response, for rules that match on it."""
        if exchange.api_key not in self._late:
            return None
        with within(SEARCH_SECONDS, time.monotonic):
            return self._first(exchange, late=True)

    def _first(self, exchange: Exchange, late: bool) -> FaultPlan | None:
        for each in self._matching(exchange, late):
            if hit := each.trigger.fires(exchange):
                faults = FaultPlan(each.rule.name, hit)
                context = ActionContext(self.cluster_view, each.random, each.selects, hit)
                for action in each.rule.do:
                    action.add_to(faults, exchange, context)
                faults.apply_changes_to_answer(exchange)
                return faults
        return None

    def _matching(self, exchange: Exchange, late: bool) -> Iterator[ActiveRule]:
        silent = exchange.api_key == PRODUCE and not late and _acks(exchange) == 0
        for each in self._active:
            if exchange.api_key not in each.apis or each.trigger.spent:
                continue
            if each.rule.late is not late and not (late and _names_all(each, exchange)):
                continue
            if silent and any(not action.early or action.KEYS[0] in ("error", "respond") for action in each.rule.do):
                continue
            if each.rule.filter(exchange):
                yield each


def _names_all(rule: ActiveRule, exchange: Exchange) -> bool:
    """Whether a request asks for everything, so that its response decides about a rule that needs only the request."""
    if exchange.api_key not in rule.open or (message := exchange.request_message) is None:
        return False
    return reach.asks_for_all(message, rule.kinds)


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
