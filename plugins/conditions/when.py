"""When a matching rule fires: after a number of matches, a number of times, every nth, by chance, in a window of time."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from ...decoder import Exchange
from ...decoder.filter import Filter, FilterError, compile
from ...decoder.filter.language.literals import number as literal
from .input_value import InputValue

KEYS = ("after", "times", "every", "probability", "seed", "from", "until")


@dataclass(frozen=True, slots=True)
class When:
    """When a rule fires. `after`: matches that pass first. `times`: how often it fires at most; None: without limit.
    `every`: of the matches after those, every nth, beginning with the first. `probability`, `seed`: each of those by
    chance; the same seed gives the same choices. `start`, `until`: a duration since the rule began (``10s``), a time of
    day or a date and time, as in filters; empty: no bound.
    """

    after: int = 0
    times: int | None = None
    every: int = 1
    probability: float = 1.0
    seed: int | None = None
    start: str = ""
    until: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As a rules file writes it; only what differs from the default."""
        return {key: value for key, value, usual in zip(KEYS, astuple(self), astuple(ALWAYS), strict=True) if value != usual}


ALWAYS = When()


def read(given: InputValue) -> When:
    """The `when` of a rule."""
    fields = given.mapping(KEYS, "'when'")
    found = When(
        after=fields["after"].number("after", 0) if "after" in fields else 0,
        times=fields["times"].number("times", 1) if "times" in fields else None,
        every=fields["every"].number("every", 1) if "every" in fields else 1,
        probability=fields["probability"].probability("probability") if "probability" in fields else 1.0,
        seed=fields["seed"].number("seed", 0) if "seed" in fields else None,
        start=fields["from"].text("from") if "from" in fields else "",
        until=fields["until"].text("until") if "until" in fields else "",
    )
    if found.seed is not None and found.probability == 1.0:
        fields["seed"].invalid("a seed has no effect without a probability below 1")
    bounds = {}
    for key, text in (("from", found.start), ("until", found.until)):
        if text:
            try:
                bounds[key] = _bound(text)
            except FilterError as error:
                fields[key].invalid(
                    f"{key!r} must be a duration since the rule began (10s), a time of day (22:00) or a date and time: "
                    f"{error.message}"
                )
    first, last = bounds.get("from"), bounds.get("until")
    if isinstance(first, int) and isinstance(last, int) and last <= first:
        fields["until"].invalid("'until' is not later than 'from': the rule would never fire")
    return found


def _bound(text: str) -> int | str:
    """Nanoseconds since the rule began, or a time that filters understand."""
    found = literal(text)
    if found is not None and (found.unit == "time" or found.value == 0):
        return int(found.value)
    compile(f"time >= {text}")
    return text


class RuleCounter(Protocol):
    """The counts of a rule. `begun_ns`: when it began. `locked` excludes other processes that share it."""

    matched: int
    hits: int
    begun_ns: int

    def locked(self) -> AbstractContextManager[object]: ...


class LocalCounter:
    """The counts of a rule in one process."""

    __slots__ = ("begun_ns", "hits", "matched")

    def __init__(self, begun_ns: int, matched: int = 0, hits: int = 0) -> None:
        self.begun_ns, self.matched, self.hits = begun_ns, matched, hits

    def locked(self) -> AbstractContextManager[object]:
        return _NOTHING


_NOTHING: AbstractContextManager[object] = nullcontext()


class Trigger:
    """Decides when a rule fires, by its `count`."""

    __slots__ = ("_drawn", "_from", "_random", "_span", "_until", "count", "when")

    def __init__(self, when: When, count: RuleCounter) -> None:
        self.when, self.count = when, count
        self._drawn = 0
        self._random = random.Random(when.seed) if when.probability < 1 else None
        self._span: Filter | None = None
        self._from = self._until = 0
        first, last = (_bound(text) if text else None for text in (when.start, when.until))
        texts = []
        if isinstance(first, int):
            self._from = first
        elif first:
            texts.append(f"time >= {first}")
        if isinstance(last, int):
            self._until = last
        elif last:
            texts.append(f"time <= {last}")
        if len(texts) == 2:
            texts = [f"time in {first}..{last}"]  # times of day may go over midnight
        if texts:
            self._span = compile(texts[0])

    @property
    def spent(self) -> bool:
        """Whether it can never fire again."""
        return self.when.times is not None and self.count.hits >= self.when.times

    def fires(self, exchange: Exchange) -> int:
        """Count a match. The number of the hit if the rule fires, else 0."""
        if self._from or self._until:
            age = (exchange.request_time_ns or self.count.begun_ns) - self.count.begun_ns
            if age < self._from or (self._until and age >= self._until):
                return 0
        if self._span is not None and not self._span(exchange):
            return 0
        count = self.count
        with count.locked():
            count.matched += 1
            if not self._falls_on(count.matched) or self.spent:
                return 0
            count.hits += 1
            return count.hits

    def _falls_on(self, matched: int) -> bool:
        """Whether the rule fires for this match, by number and by chance."""
        beyond = matched - self.when.after - 1
        if beyond < 0 or beyond % self.when.every:
            return False
        if self._random is None:
            return True
        # A choice for each turn, whichever process counted those before.
        while self._drawn < beyond // self.when.every:
            self._random.random()
            self._drawn += 1
        self._drawn += 1
        return self._random.random() < self.when.probability
