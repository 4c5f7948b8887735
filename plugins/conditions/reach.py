"""What rules can match: the versions of a match, matches that are never true, rules that are shadowed by others.

Decided from the filters alone, on the safe side: whatever is reported is true, but not everything is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol, TypeVar

from ...decoder.codec.message import Message
from ...decoder.filter import Filter
from ...decoder.filter.analysis import apis, leaves
from ...decoder.filter.language.tree import And, FieldValue, Node, Op, SameTopicPartition, Test
from ...decoder.filter.predicates import predicate
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import StructPlan, plan
from ..answers.unanswerable import NAMES, names, repeated_in
from .when import ALWAYS, When


def _terms(node: Node) -> Iterator[Node]:
    """The terms that must all be true."""
    if isinstance(node, And):
        for term in node.terms:
            yield from _terms(term)
    else:
        yield node


def versions(wanted: Filter, api_key: int) -> list[int]:
    """The versions of an API that a filter can be true of, among those that are known."""
    found = list(facts.api(api_key).versions.every())
    for term in _terms(wanted.tree):
        if (
            isinstance(term, Test)
            and term.field.name == "ver"
            and not isinstance(term.value, FieldValue)
            and term.op is not Op.TRUE
        ):
            passes = predicate(term)
            found = [version for version in found if passes(version) is not term.negated]
    return found


def why_never(wanted: Filter) -> str:
    """Why a filter matches no exchange; empty if it may match one."""
    keys = wanted.apis()
    if keys is None:
        return ""
    if not keys:
        return "no API matches all of this at once, or has all these fields (api in {A, B} matches both)"
    known = keys & frozenset(facts.api_keys())
    if known == keys and not any(versions(wanted, key) for key in known):
        spans = ", ".join(
            f"{facts.api_name(key)} {_span(list(facts.api(key).versions.every()))}" for key in sorted(known)[:3]
        )
        return f"no version matches ({spans})"
    return ""


def unanswered(wanted: Filter) -> bool:
    """Whether a filter is only true of Produce requests with acks=0, which get no response."""
    tests = [
        (predicate(term), term.negated)
        for term in _terms(wanted.tree)
        if isinstance(term, Test)
        and term.field.name == "acks"
        and not isinstance(term.value, FieldValue)
        and term.op is not Op.TRUE
    ]
    left = [acks for acks in (0, 1, -1) if all(passes(acks) is not negated for passes, negated in tests)]
    return bool(tests) and left == [0]


KINDS = {
    "topic": Meaning.TOPIC,
    "partition": Meaning.TOPIC,
    "group": Meaning.GROUP,
    "txn": Meaning.TRANSACTIONAL_ID,
}
"""The kinds of names that fields of filters are about."""
EMPTY_IS_ALL = frozenset(map(facts.api_key, ("Metadata", "DescribeTopicPartitions")))
"""Requests that ask for everything with an empty list, too."""


def names_asked_for(wanted: Filter) -> frozenset[Meaning]:
    """The kinds of names (`NAMES`) of which a message must have one for a filter to be true."""
    terms = [each.term if isinstance(each, SameTopicPartition) else each for each in _terms(wanted.tree)]
    tests = [test for term in terms for test in _terms(term) if isinstance(test, Test) and not test.negated]
    return frozenset(KINDS[test.field.name] for test in tests if test.field.name in KINDS)


@cache
def may_ask_for_all(api_key: int, kinds: frozenset[Meaning]) -> bool:
    """Whether some request of an API names nothing of one of these kinds, and its response does."""
    return any(
        (kinds & repeated_in(api_key, version))
        - (frozenset() if api_key in EMPTY_IS_ALL else _always_named(plan("request", api_key, version).root))
        for version in facts.api(api_key).versions.every()
    )


def _always_named(struct: StructPlan) -> frozenset[Meaning]:
    """The kinds of names that are in every request; what is in a list that may be null is not."""
    found: set[Meaning] = set()
    for field in struct.fields:
        if field.nullable:
            continue
        if field.struct is not None:
            found |= _always_named(field.struct)
        elif field.meaning in NAMES:
            found.add(field.meaning)
    return frozenset(found)


def asks_for_all(request: Message, kinds: frozenset[Meaning]) -> bool:
    """Whether a request names nothing of one of these kinds, and its response may."""
    named = {kind for kind, _ in names(request)}
    return any(kind not in named for kind in kinds & repeated_in(request.api_key, request.api_version))


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


class RuleReach(Protocol):
    """The part of `rules.Rule` that decides when it fires."""

    @property
    def when(self) -> When: ...
    @property
    def late(self) -> bool: ...
    @property
    def filter(self) -> Filter: ...


R = TypeVar("R", bound=RuleReach)


def shadowed(rules: Sequence[R]) -> list[tuple[R, R]]:
    """(a rule that never fires, an earlier one that always fires in its place): only the first that fires is used."""
    found = []
    for number, rule in enumerate(rules):
        # Rules that ask for the response come when all others have left the exchange alone.
        others = [*rules[:number], *(each for each in rules[number + 1 :] if rule.late and not each.late)]
        for other in others:
            if other.when == ALWAYS and (rule.late or not other.late) and _includes(other.filter, rule.filter):
                found.append((rule, other))
                break
    return found


def _includes(wide: Filter, narrow: Filter) -> bool:
    """Whether a filter is true wherever another is."""
    there = list(_terms(narrow.tree))
    return all(_implied(term, wide, there, narrow) for term in _terms(wide.tree))


def _implied(term: Node, of: Filter, there: list[Node], narrow: Filter) -> bool:
    if any(_text(term, of) == _text(other, narrow) for other in there):
        return True
    if all(isinstance(leaf, Test) and leaf.field.name == "api" for leaf in leaves(term)):
        wide, keys = apis(term), narrow.apis()
        return keys is not None and (not keys & wide.keys if wide.outside else keys <= wide.keys)
    inner = {_text(each, of) for each in _terms(term.term if isinstance(term, SameTopicPartition) else term)}
    return any(
        inner <= {_text(each, narrow) for each in _terms(other.term)} for other in there if isinstance(other, SameTopicPartition)
    )


def _text(node: Node, of: Filter) -> str:
    if isinstance(node, SameTopicPartition):
        node = node.term
    return " ".join(of.text[node.start : node.end].split())
