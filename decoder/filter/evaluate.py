"""The back end for exchanges: a filter becomes one function of closures, with the cheapest test first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from itertools import chain
from typing import Any

from ..codec.message import error_names
from ..connection.exchange import Exchange, State
from ..schema import facts
from . import values
from .entities import MessagePart, TopicPartition
from .language import tree
from .language.fields import Field, ValueKind
from .language.paths import Path
from .language.tree import FieldValue, Op, Test
from .predicates import Predicate, compare, predicate

Decide = Callable[[Exchange], bool]
Now = Callable[[], int]
Many = values.Many


def cost(node: tree.Node) -> int:
    """The relative cost of a test: index columns 0, bodies 10 and more, a search 100."""
    if isinstance(node, Test):
        return node.field.cost
    if isinstance(node, tree.Search):
        return 100
    if isinstance(node, tree.And | tree.Or):
        return max(cost(term) for term in node.terms)
    return cost(node.test if isinstance(node, tree.Every | tree.Some) else node.term)


def function(node: tree.Node, zone: tzinfo | None = None, now: Now | None = None) -> Decide:
    """The function from an exchange to whether it matches. `now`: gives nanoseconds since the epoch."""
    return Builder(zone, now, values.pairs).build(node)


def part_test(node: tree.Node, zone: tzinfo | None = None, now: Now | None = None) -> Callable[[Exchange, MessagePart], bool]:
    """The function from an exchange and a part of one of its messages to whether the exchange would match with this part alone:
    the only topic-partition, group, member, resource. Fields that the part does not have come from the exchange."""
    only: list[MessagePart] = []

    def pairs(exchange: Exchange) -> Iterator[TopicPartition]:
        pair = only[0].pair
        if pair.topic is None and pair.topic_id is None:
            return values.pairs(exchange)
        if pair.partition is not None:
            return iter((pair,))
        # of a topic: with those of its partitions that the other side names
        of_it = (each for each in values.pairs(exchange) if (each.topic, each.topic_id) == (pair.topic, pair.topic_id))
        return chain((pair,), of_it)

    def of_field(field: Field | Path) -> Many:
        whole = values.of_field(field)

        def get(exchange: Exchange) -> Iterable[Any]:
            own = values.of_part(exchange, only[0], field)
            return whole(exchange) if own is None else own

        return get

    decide = Builder(zone, now, pairs, of_field).build(node)

    def decide_of(exchange: Exchange, part: MessagePart) -> bool:
        only[:] = (part,)
        return decide(exchange)

    return decide_of


class Builder:
    """Makes functions from what a filter is asked about: an exchange, or whatever `pairs` and `of_field` read."""

    def __init__(
        self,
        zone: tzinfo | None,
        now: Now | None,
        pairs: Callable[[Any], Iterator[TopicPartition]],
        of_field: Callable[[Field | Path], Callable[[Any], Iterable[Any]]] = values.of_field,
    ) -> None:
        self.zone, self.now, self.pairs, self.of_field = zone, now, pairs, of_field

    def build(self, node: tree.Node) -> Decide:
        if isinstance(node, Test):
            return self.test(node)
        if isinstance(node, tree.Search):
            return searcher(node.text)
        if isinstance(node, tree.Not):
            inner = self.build(node.term)
            return lambda exchange: not inner(exchange)
        if isinstance(node, tree.SameTopicPartition):
            passes, pairs = self.pair(node.term), self.pairs
            return lambda exchange: any(passes(pair) for pair in pairs(exchange))
        if isinstance(node, tree.Some):
            get, fits = self.values(node.test), self.predicate(node.test)
            return lambda exchange: any(not fits(value) for value in get(exchange))
        if isinstance(node, tree.Every):
            return self.every(node.test)
        decides = [self.build(term) for term in sorted(node.terms, key=cost)]
        if isinstance(node, tree.And):
            return lambda exchange: all(decide(exchange) for decide in decides)
        return lambda exchange: any(decide(exchange) for decide in decides)

    def predicate(self, test: Test) -> Predicate:
        return predicate(test, self.zone)

    def values(self, test: Test) -> values.Many:
        item, pairs = values.TOPIC_PARTITION_FIELD.get(test.field.name), self.pairs
        if item is None or isinstance(test.field, Path):
            return self.of_field(test.field)
        return lambda exchange: (value for pair in pairs(exchange) if (value := pair[item]) is not None)

    def test(self, test: Test) -> Decide:
        if test.field.name == "pending" or (isinstance(test.value, FieldValue) and test.value.field.name == "pending"):
            decide = self.pending(test)
        elif isinstance(test.value, FieldValue):
            decide = self.fields(test, test.value)
        elif not isinstance(test.field, Path) and not test.field.many:
            decide = _one(values.ONE[test.field.name], self.predicate(test))
        else:
            decide = _some(self.values(test), self.predicate(test))
        return (lambda exchange: not decide(exchange)) if test.negated else decide

    def fields(self, test: Test, other: FieldValue) -> Decide:
        left, right, op = self.values(test), values.ONE[other.field.name], test.op
        of_left, of_right = scale(test.field.kind), scale(other.field.kind)

        def decide(exchange: Exchange) -> bool:
            against = right(exchange)
            return against is not None and any(
                compare(op, value * of_left, against * of_right) for value in left(exchange)
            )

        return decide

    def pending(self, test: Test) -> Decide:
        """``pending`` alone needs no time; how long a request is pending does."""
        if test.op is Op.TRUE:
            return lambda exchange: exchange.state is State.PENDING
        now = self.now

        def waited(exchange: Exchange) -> int | None:
            if now is None or exchange.state is not State.PENDING:
                return None
            return now() - int(values.ONE["time"](exchange))

        if not isinstance(test.value, FieldValue):
            return _one(waited, self.predicate(test))
        left = waited if test.field.name == "pending" else values.ONE[test.field.name]
        right = waited if test.value.field.name == "pending" else values.ONE[test.value.field.name]
        return lambda exchange: (
            (a := left(exchange)) is not None and (b := right(exchange)) is not None and compare(test.op, a, b)
        )

    def every(self, test: Test) -> Decide:
        get, fits, negated = self.values(test), self.predicate(test), test.negated

        def decide(exchange: Exchange) -> bool:
            seen = False
            for value in get(exchange):
                if fits(value) is negated:
                    return False
                seen = True
            return seen

        return decide

    def pair(self, node: tree.Node) -> Callable[[TopicPartition], bool]:
        if isinstance(node, Test):
            item, fits, negated = values.TOPIC_PARTITION_FIELD[node.field.name], self.predicate(node), node.negated
            return lambda pair: (value := pair[item]) is not None and fits(value) is not negated
        assert isinstance(node, tree.And | tree.Or)
        inner = [self.pair(term) for term in node.terms]
        together = all if isinstance(node, tree.And) else any
        return lambda pair: together(passes(pair) for passes in inner)


def scale(kind: ValueKind) -> int:
    """The factor that makes values of different kinds comparable."""
    return 1_000_000 if kind is ValueKind.MILLISECONDS else 1


def _one(get: Callable[[Exchange], Any], fits: Predicate) -> Decide:
    return lambda exchange: (value := get(exchange)) is not None and fits(value)


def _some(get: values.Many, fits: Predicate) -> Decide:
    return lambda exchange: any(fits(value) for value in get(exchange))


def searcher(text: str) -> Callable[[Exchange], bool]:
    """A function that tests whether a text occurs in a name or value of an exchange, in any case of letters.

    It searches what is shown: secrets are masked, keys and values of records are left out.
    """
    wanted = text.casefold()

    def found(exchange: Exchange) -> bool:
        return any(wanted in leaf.casefold() for leaf in _searched(exchange))

    return found


def _searched(exchange: Exchange) -> Iterator[str]:
    """The names and values to search, cheap ones first."""
    yield exchange.client_id or ""
    yield exchange.api
    yield exchange.client
    yield exchange.broker
    for message in (exchange.request_message, exchange.response_message):
        if message is not None:
            for _, name in error_names(message):
                yield name
    yield from _leaves(exchange.to_dict())
    yield from exchange.marks.notes
    for pair in values.pairs(exchange):
        yield pair.topic or ""


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            if name == "api_key" and isinstance(inner, int):
                yield facts.api_name(inner)
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif value is not None:
        yield str(value)
