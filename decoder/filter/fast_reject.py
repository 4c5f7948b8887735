"""Find responses that a filter cannot match, without decoding them.

Most filters over responses look for something unusual: an error, a throttle time, a long latency. The filter is evaluated once
for a response without any of these. If it is false, whatever else is in the exchange, those few fields reject most responses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .language import tree
from .language.fields import Field, ValueKind
from .language.paths import Path
from .language.tree import FieldValue, Op, Test, ValueRange
from .predicates import predicate

ANY = (1 << 62) - 1
"""No limit."""
_CODES = frozenset({"err", "errors", "partition.err", "topic.err"})


@dataclass
class FastReject:
    """A condition under which a filter is false: every error code is 0 (if `errors`), the throttle time is 0 (if `throttle`), the
    latency is at most `latency` (nanoseconds) and the response's size at most `size` (bytes)."""

    errors: bool = False
    throttle: bool = False
    latency: int = ANY
    size: int = ANY

    def both(self, other: FastReject) -> FastReject:
        """The condition under which two filters are false."""
        return FastReject(
            self.errors or other.errors,
            self.throttle or other.throttle,
            min(self.latency, other.latency),
            min(self.size, other.size),
        )


def fast_reject(node: tree.Node) -> FastReject | None:
    """The condition under which a filter is false; None if there is no simple one."""
    found = _Evaluation()
    return found.condition if found.value(node) is False else None


@dataclass
class _Evaluation:
    """Evaluates a filter for ordinary responses (None: it depends), and collects what makes a response ordinary."""

    condition: FastReject = field(default_factory=FastReject)

    def value(self, node: tree.Node) -> bool | None:
        if isinstance(node, Test):
            return self.test(node)
        if isinstance(node, tree.Not):
            found = self.value(node.term)
            return None if found is None else not found
        if isinstance(node, tree.And | tree.Or):
            values = [self.value(term) for term in node.terms]
            settles = isinstance(node, tree.Or)
            return settles if settles in values else None if None in values else not settles
        if isinstance(node, tree.SameTopicPartition):
            return self.pair(node.term)
        if isinstance(node, tree.Every | tree.Some) and (passes := self.zero(node.test)) is not None:
            if isinstance(node, tree.Every):
                return False if passes is node.test.negated else None
            return False if passes else None
        return None

    def test(self, test: Test) -> bool | None:
        if test.field.name in ("latency", "size.resp"):
            return self.bound(test)
        passes = self.zero(test)
        if passes is None:
            return None
        if test.field.name in ("err", "retriable"):
            return passes is not test.negated
        # There may be no value at all, and that passes no test.
        return None if passes else test.negated

    def pair(self, term: tree.Node) -> bool | None:
        """Whether some topic-partition passes all of these tests."""
        if isinstance(term, tree.And | tree.Or):
            values = [self.pair(each) for each in term.terms]
            never = False in values if isinstance(term, tree.And) else set(values) == {False}
            return False if never else None
        assert isinstance(term, Test)
        passes = self.zero(term)
        return False if passes is not None and passes is term.negated else None

    def zero(self, test: Test) -> bool | None:
        """Whether 0 passes a test of an error code or a throttle time, which the condition then requires; None for other fields."""
        if isinstance(test.value, FieldValue) or not self.is_read(test.field):
            return None
        found: Any = predicate(test)(False if test.field.kind is ValueKind.FLAG else 0)
        return bool(found)

    def is_read(self, of: Field | Path) -> bool:
        if of.name == "throttle" or (isinstance(of, Path) and of.name == "resp.throttle_time_ms"):
            self.condition.throttle = True
            return True
        if of.name in _CODES or of.name == "retriable":
            self.condition.errors = True
            return True
        if isinstance(of, Path) and of.side == "response" and of.kind is ValueKind.ERROR and not of.array:
            self.condition.errors = True
            return True
        return False

    def bound(self, test: Test) -> bool | None:
        """A test that only values from some bound on pass is false below it."""
        least = None if test.negated else _least(test)
        if least is None or least <= 0:
            return None
        if test.field.name == "latency":
            self.condition.latency = min(self.condition.latency, least - 1)
        else:
            self.condition.size = min(self.condition.size, least - 1)
        return False


def _least(test: Test) -> int | None:
    """The least whole number that may pass; None if there is no bound."""
    value = test.value
    if test.op is Op.IN and isinstance(value, tuple):
        lows = [each.low if isinstance(each, ValueRange) else each for each in value]
        return min(int(low) for low in lows if isinstance(low, int | float)) if _numbers(lows) else None
    if not _numbers([value]):
        return None
    assert isinstance(value, int | float)
    if test.op is Op.GREATER:
        return int(value) + 1 if isinstance(value, int) else int(value)
    return int(value) if test.op in (Op.GREATER_EQUAL, Op.EQUAL) else None


def _numbers(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
