"""Facts about a filter, from its tree: the APIs that it can match, whether the request decides it, and the part that index
columns decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..schema import facts
from . import entities
from .language import tree
from .language.check import needs
from .language.fields import BY_NAME, Field, Known, Need
from .language.paths import Path
from .language.tree import FieldValue, Op, Test
from .predicates import predicate

INDEX_ONLY = frozenset({Need.INDEX})
COLUMNS = frozenset({Need.INDEX, Need.CONNECTION})
"""Known without reading an exchange: its record in the index, and the peer info of its connection."""
NAMED = frozenset({"topic", "topic.id", "group", "txn"})
"""The fields whose values are the names of an exchange (see `names`)."""


class Apis(NamedTuple):
    """These API keys (`outside` False), or all others (`outside` True)."""

    keys: frozenset[int]
    outside: bool = False

    def both(self, other: Apis) -> Apis:
        if self.outside and other.outside:
            return Apis(self.keys | other.keys, True)
        if self.outside:
            return Apis(other.keys - self.keys)
        return Apis(self.keys - other.keys if other.outside else self.keys & other.keys)

    def either(self, other: Apis) -> Apis:
        return self.opposite().both(other.opposite()).opposite()

    def opposite(self) -> Apis:
        return Apis(self.keys, not self.outside)


ALL = Apis(frozenset(), True)


def apis(node: tree.Node, negated: bool = False) -> Apis:
    """The API keys of exchanges that can match a filter, or its opposite."""
    if isinstance(node, tree.Not):
        return apis(node.term, not negated)
    if isinstance(node, tree.And | tree.Or):
        found = [apis(term, negated) for term in node.terms]
        together = Apis.both if isinstance(node, tree.And) is not negated else Apis.either
        result = found[0]
        for each in found[1:]:
            result = together(result, each)
        return result
    if isinstance(node, Test) and node.field.name == "api":
        return _of_api(node, negated is not node.negated)
    if isinstance(node, Test):
        return ALL if negated is not node.negated else _holding(node.field)
    if isinstance(node, tree.Some | tree.Every):
        return ALL if negated else _holding(node.test.field)
    if isinstance(node, tree.SameTopicPartition):
        return ALL if negated else Apis(entities.apis("request", "topic") | entities.apis("response", "topic"))
    return ALL


def _of_api(test: Test, negated: bool) -> Apis:
    if isinstance(test.value, FieldValue):
        return ALL
    if test.op is Op.TRUE:
        found = Apis(frozenset({-1}), True)  # an orphan has none
    else:
        passes = predicate(test)
        found = Apis(frozenset(key for key in _candidates(test) if passes(key)))
    return found.opposite() if negated else found


def _candidates(test: Test) -> set[int]:
    """Keys that may pass: the known ones, and those in the test."""
    items = test.value if isinstance(test.value, tuple) else (test.value,)
    found = set(facts.api_keys())
    for item in items:
        if isinstance(item, int):
            found.add(item)
        elif isinstance(item, tree.ValueRange) and isinstance(item.low, int) and isinstance(item.high, int):
            found.update(range(max(item.low, 0), min(item.high, 0x7FFF) + 1))
    return found


def _holding(field: Field | Path) -> Apis:
    if isinstance(field, Path):
        return Apis(field.apis)
    if not field.needs & {Need.REQUEST, Need.RESPONSE}:
        return ALL
    sides = [side for side in (Need.REQUEST, Need.RESPONSE) if side in field.needs]
    return Apis(frozenset().union(*(entities.apis(str(side), field.name) for side in sides)))


def leaves(node: tree.Node) -> Iterator[Test | tree.Search]:
    """Every test of a filter, and every search."""
    if isinstance(node, Test | tree.Search):
        yield node
    elif isinstance(node, tree.And | tree.Or):
        for term in node.terms:
            yield from leaves(term)
    else:
        yield from leaves(node.test if isinstance(node, tree.Some | tree.Every) else node.term)


def fields_of(leaf: Test | tree.Search) -> Iterator[Field | Path]:
    """The field of a test, and the one that it is compared with."""
    if isinstance(leaf, Test):
        yield leaf.field
        if isinstance(leaf.value, FieldValue):
            yield leaf.value.field


def first_needing_response(node: tree.Node) -> Test | tree.Search | None:
    """The first test that the request alone does not decide; None if there is none."""
    for leaf in sorted(leaves(node), key=lambda leaf: leaf.start):
        if isinstance(leaf, tree.Search) or not all(field.known_at_request for field in fields_of(leaf)):
            return leaf
    return None


def known(node: tree.Node) -> Known:
    """How much of a message in transit decides it."""
    return max(
        Known.MESSAGE if isinstance(leaf, tree.Search) else max(field.known for field in fields_of(leaf)) for leaf in leaves(node)
    )


def first_completed_only(node: tree.Node) -> str | None:
    """The first field that only completed or recorded exchanges have; None if there is none."""
    fields = (field for leaf in sorted(leaves(node), key=lambda leaf: leaf.start) for field in fields_of(leaf))
    return next((field.name for field in fields if field.known is Known.COMPLETED), None)


def names_topics(node: tree.Node) -> bool:
    """Whether it needs topic names, which newer messages do not have: they have ids."""
    return any(isinstance(leaf, tree.Search) or leaf.field.name == "topic" for leaf in leaves(node))


def needs_now(node: tree.Node) -> bool:
    """Whether it needs the current time."""
    tests = (leaf for leaf in leaves(node) if isinstance(leaf, Test) and leaf.op is not Op.TRUE)
    return any(field.name == "pending" for test in tests for field in fields_of(test))


def has_names(node: tree.Node) -> bool:
    """Whether it asks for names."""
    return any(isinstance(leaf, Test) and leaf.field.name in NAMED for leaf in leaves(node))


def names_only(node: tree.Node) -> bool:
    """Whether it asks for names alone."""
    return all(isinstance(leaf, Test) and leaf.field.name in NAMED for leaf in leaves(node))


def columns_decide(node: tree.Node, names: bool = False) -> bool:
    """Whether `Columns` decide it. `names`: those of the exchange are known."""
    if isinstance(node, tree.Not):
        return columns_decide(node.term, names)
    if isinstance(node, tree.And | tree.Or):
        return all(columns_decide(term, names) for term in node.terms)
    return needs(node) <= COLUMNS or (names and names_only(node))


def index_part(node: tree.Node, negated: bool = False, names: bool = False) -> tree.Node | None:
    """A filter for `Columns` alone that is true of every exchange for which `node`, or its opposite, is. None: there is none.
    `names`: the names of the exchange are known.

    If the columns decide the filter, this is the filter itself.
    """
    if columns_decide(node, names):
        return tree.Not(node, node.start, node.end) if negated else node
    if isinstance(node, tree.Not):
        return index_part(node.term, not negated, names)
    if isinstance(node, tree.And | tree.Or):
        parts = [index_part(term, negated, names) for term in node.terms]
        known = tuple(part for part in parts if part is not None)
        if isinstance(node, tree.And) is not negated:
            return tree.And(known, node.start, node.end) if len(known) > 1 else known[0] if known else None
        return tree.Or(known, node.start, node.end) if len(known) == len(parts) else None
    if isinstance(node, Test) and node.field.name == "rule" and negated is node.negated:
        marked = (Test(BY_NAME[name], Op.TRUE, None, False, node.start, node.end) for name in ("noted", "carried"))
        return tree.Or(tuple(marked), node.start, node.end)
    if isinstance(node, tree.SameTopicPartition) and names and not negated and (pair := _topic_part(node.term)) is not None:
        return tree.SameTopicPartition(pair, node.start, node.end)
    found = apis(node, negated)
    if found.outside:
        return None
    return Test(BY_NAME["api"], Op.IN, tuple(sorted(found.keys)), False, node.start, node.end)


def _topic_part(term: tree.Node) -> tree.Node | None:
    """The part of the tests of a topic-partition that is about its topic, and true if the whole is. None: there is none."""
    if isinstance(term, tree.And | tree.Or):
        parts = [_topic_part(each) for each in term.terms]
        known = tuple(part for part in parts if part is not None)
        if isinstance(term, tree.And):
            return tree.And(known, term.start, term.end) if known else None
        return tree.Or(known, term.start, term.end) if len(known) == len(parts) else None
    return term if names_only(term) else None
