"""From the syntax tree to typed tests: look up names, convert values, join tests about topic-partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import tzinfo

from ...records import codecs
from ...schema import facts
from . import fields, literals, paths, tree
from .errors import FilterError, nearest
from .fields import NUMBERS, Field, Need, Scope, ValueKind
from .paths import Path
from .patterns import PatternError, pattern
from .tree import Op, Test

CODECS: dict[str, int] = {codecs.name(number): number for number in range(5)}
_BOOLEANS = {"true": True, "false": False}
_NAMED = frozenset({ValueKind.API, ValueKind.ERROR, ValueKind.CODEC})
"""Kinds of numbers with names."""
_FORMER = {ValueKind.API: "api", ValueKind.ERROR: "error"}
"""Kinds whose names have former names."""
_TEXTS = frozenset({ValueKind.TEXT, ValueKind.BYTES, ValueKind.STATE, *_NAMED})
"""Kinds that ~, contains, startswith and endswith work on; of numbers, on their names."""
_WHOLE = re.compile(r"[+-]?\d{1,20}")
_I64 = 1 << 63


def check(node: tree.SyntaxNode, text: str, zone: tzinfo | None = None) -> tree.Node:
    """The meaning of a filter. `zone`: of times without an offset; None: the local zone. Raises `FilterError`."""
    return _Checker(text, zone).node(node)


def names_of(kind: ValueKind) -> dict[str, int]:
    """The names of the values of a kind that has names: APIs, errors, codecs."""
    if kind is ValueKind.API:
        return {facts.api_name(key): key for key in facts.api_keys()}
    if kind is ValueKind.ERROR:
        return {fact.name: code for code, fact in facts.errors().items()}
    return CODECS if kind is ValueKind.CODEC else {}


class _Checker:
    def __init__(self, text: str, zone: tzinfo | None) -> None:
        self.text, self.zone = text, zone

    def error(self, message: str, at: tree.SyntaxNode | tree.Word | tree.Range | tree.ValueSet) -> FilterError:
        return FilterError(message, self.text, at.start, at.end)

    def node(self, node: tree.SyntaxNode) -> tree.Node:
        if isinstance(node, tree.Comparison):
            return self.bare(node)
        if isinstance(node, tree.Text):
            if not node.word.text:
                raise self.error("an empty text matches everything", node)
            return tree.Search(node.word.text, node.start, node.end)
        if isinstance(node, tree.Quantified):
            return self.quantified(node)
        if isinstance(node, tree.Not):
            return tree.Not(self.node(node.term), node.start, node.end)
        terms = tuple(self.node(term) for term in node.terms)
        if isinstance(node, tree.Or):
            return tree.Or(terms, node.start, node.end)
        return _conjunction(terms, node)

    def bare(self, node: tree.Comparison) -> tree.Node:
        test = self.test(node)
        if not isinstance(test.field, Path):
            return test
        if test.field.many:
            raise self.error(f"{test.field.name} has many values: put the test into any(...) or all(...)", node.field)
        return tree.Some(test, node.start, node.end) if test.negated else test

    def quantified(self, node: tree.Quantified) -> tree.Node:
        test = self.test(node.comparison, zero_asks=False)
        if not (isinstance(test.field, Path) or test.field.many):
            raise self.error(
                f"{test.field.name} has one value at most, so leave out {'all' if node.every else 'any'}(...)",
                node.comparison.field,
            )
        if node.every:
            return tree.Every(test, node.start, node.end)
        return tree.Some(test, node.start, node.end) if test.negated else test

    def field(self, word: tree.Word) -> Field | Path:
        field = fields.lookup(word.text)
        if field is not None:
            return field
        if paths.is_path(word.text):
            path = paths.lookup(word.text)
            if path is None:
                raise self.error(self.no_path(word.text), word)
            return path
        near = nearest(word.text, [*fields.BY_NAME, "any", "all", "not"])
        search = f'; to search for it as a text: "{word.text[:40]}"' if word.text.isprintable() else ""
        raise self.error(f"no field is called {word.text[:60]!r}{near}{search}", word)

    def no_path(self, name: str) -> str:
        """The error text for an unknown path, with its first wrong step and the nearest one."""
        plain = re.sub(r"\[[*\d]*\]", "", name)
        side, _, steps = plain.partition(".")
        known = [path.steps for path in paths.known(paths.SIDES[side.lower()])]
        good, wrong = "", steps
        for step in steps.split("."):
            if good + step not in known:
                wrong = step
                break
            good += step + "."
        # The nearest step at this place, or else another place with that name.
        here = {steps[len(good) :].partition(".")[0] for steps in known if steps.startswith(good)}
        near = nearest(wrong, here)
        if not near:
            elsewhere = [path for path in known if path.rpartition(".")[2] == steps.rpartition(".")[2]]
            near = nearest(steps, elsewhere or known)
            near = near.replace("did you mean ", f"did you mean {side}.") if near else ""
        what = f"no version of any API has {wrong[:60]!r}"
        return f"{what} in {side}.{good[:-1]}{near}" if good else f"{what} in its {paths.SIDES[side.lower()]}{near}"

    def test(self, node: tree.Comparison, zero_asks: bool = True) -> Test:
        field = self.field(node.field)
        op = Op(node.operator) if node.operator else Op.TRUE
        value: tree.Value = None
        negated = node.negated
        if op is not Op.TRUE:
            assert node.value is not None
            self.check_operator(field, op, node)
            value = self.value(field, op, node.value)
            if zero_asks and value == 0 and op is Op.EQUAL and field.kind is ValueKind.ERROR and field.many:
                # Of many codes, "!= 0" asks whether any is an error, and "== 0" whether none is.
                op, value, negated = Op.TRUE, None, not negated
        return Test(field, op, value, negated, node.start, node.end)

    def check_operator(self, field: Field | Path, op: Op, node: tree.Comparison) -> None:
        """Raise a `FilterError` if a field's kind does not have this operator."""
        kind = field.kind
        if kind is ValueKind.STRUCT:
            raise self.error(
                f"{field.name} is a structure: add one of its fields, or use it alone", node.field
            )
        if op in tree.ORDER and kind not in NUMBERS:
            raise self.error(f"{field.name} is {_a(kind)}, which has no order: use ==, != or in", node)
        if op in tree.ON_TEXT and kind not in _TEXTS:
            raise self.error(f"{op} works on texts and names, but {field.name} is {_a(kind)}", node)

    def value(self, field: Field | Path, op: Op, value: tree.Word | tree.Range | tree.ValueSet) -> tree.Value:
        if op is Op.IN:
            items = value.items if isinstance(value, tree.ValueSet) else (value,)
            return tuple(self.item(field, item) for item in items)
        assert isinstance(value, tree.Word)
        if op is Op.MATCHES:
            try:
                return pattern(value.text)
            except PatternError as error:
                raise self.error(str(error), value) from None
        if op in tree.ON_TEXT:
            return value.text
        if field.kind in NUMBERS and not value.quoted:
            other = fields.lookup(value.text)
            if other is not None:
                return self.other(field, other, value)
        return self.scalar(field, value)

    def other(self, field: Field | Path, other: Field, word: tree.Word) -> tree.FieldValue:
        if (
            other.many
            or other.kind not in NUMBERS
            or (ValueKind.TIME in (field.kind, other.kind) and field.kind != other.kind)
        ):
            raise self.error(f"{field.name} ({field.kind}) cannot be compared with {other.name} ({other.kind})", word)
        return tree.FieldValue(other)

    def item(self, field: Field | Path, item: tree.Word | tree.Range) -> tree.Scalar | tree.ValueRange:
        if isinstance(item, tree.Word):
            return self.scalar(field, item)
        if field.kind not in NUMBERS and field.kind not in _NAMED:
            raise self.error(f"{field.name} is {_a(field.kind)}, which has no ranges: use a set, {{A, B}}", item)
        low, high = self.scalar(field, item.low), self.scalar(field, item.high)
        if isinstance(low, literals.TimeOfDay) and isinstance(high, literals.TimeOfDay):
            return tree.ValueRange(low, high)  # may go over midnight
        if not isinstance(low, int | float) or not isinstance(high, int | float):
            raise self.error("a range must be between two times of day, or between two dates", item)
        if low > high:
            raise self.error("this range is empty: write the lower value first", item)
        return tree.ValueRange(low, high)

    def scalar(self, field: Field | Path, word: tree.Word) -> tree.Scalar:
        kind, text = field.kind, word.text
        if kind is ValueKind.TEXT:
            return text + word.unit
        if kind is ValueKind.BYTES:
            return (text + word.unit).encode("utf-8", "replace")
        if kind in _NAMED:
            return self.named(field, word)
        if kind is ValueKind.STATE:
            if text.lower() not in fields.STATES:
                raise self.error(f"no state is called {text[:60]!r}; the states are {', '.join(fields.STATES)}", word)
            return text.lower()
        if kind is ValueKind.FLAG:
            if text.lower() not in _BOOLEANS:
                raise self.error(f"{field.name} is true or false: use it alone: {field.name}", word)
            return _BOOLEANS[text.lower()]
        if kind is ValueKind.ADDRESS:
            found = literals.endpoint(text)
            if found is None:
                raise self.error("not an address: write host, host:port, :port, an IP address or a network", word)
            return found
        if kind is ValueKind.UUID:
            identity = literals.topic_id(text)
            if identity is None:
                raise self.error("not an id: write its 22 letters in base64, or a UUID in hexadecimal", word)
            return identity
        return self.time(word) if kind is ValueKind.TIME else self.number(field, word)

    def named(self, field: Field | Path, word: tree.Word) -> int:
        text, names = word.text, names_of(field.kind)
        if _WHOLE.fullmatch(text):
            return int(self.bounded(int(text), word))
        for name, number in names.items():
            if name.lower() == text.lower():
                return number
        kind = _FORMER.get(field.kind, "")
        former = facts.former_name(kind, text)
        if former is not None:
            return names[former.today]
        hint = f"; {field.name} alone matches any" if text.lower() == "any" and field.kind is ValueKind.ERROR else ""
        raise self.error(f"no {field.kind} is called {text[:60]!r}{nearest(text, [*names, *(each.name for each in facts.former_names() if each.kind == kind)])}{hint}", word)

    def number(self, field: Field | Path, word: tree.Word) -> int | float:
        kind = field.kind
        found = literals.number(word.text, word.unit)
        if found is None:
            raise self.error(f"{field.name} is {_a(kind)}, but {(word.text + word.unit)[:60]!r} is not one", word)
        value, unit = found.value, found.unit
        if kind is ValueKind.DURATION:
            if unit != "time" and value != 0:
                raise self.error(f"a duration needs a unit: {word.text[:30]}ms, for example", word)
        elif kind is ValueKind.MILLISECONDS:
            if unit == "size":
                raise self.error(f"{field.name} is a duration, not a size", word)
            if unit:
                value = value // 1_000_000 if value % 1_000_000 == 0 else value / 1_000_000
        elif unit == "time":
            raise self.error(f"{field.name} is {_a(kind)}, not a duration", word)
        if isinstance(value, float) and value == int(value) and kind is not ValueKind.FLOAT:
            value = int(value)
        return self.bounded(value, word)

    def bounded(self, value: int | float, word: tree.Word) -> int | float:
        if not -_I64 <= value < _I64:
            raise self.error("the number is too large (64 bits at most)", word)
        return value

    def time(self, word: tree.Word) -> int | literals.TimeOfDay:
        of_day = literals.clock(word.text)
        if of_day is not None:
            return of_day
        ns = literals.moment(word.text, self.zone)
        if ns is None:
            found = literals.number(word.text)
            if found is None or not isinstance(found.value, int):
                raise self.error("not a time: write 12:01, 12:01:30.250, 2026-11-21T12:01:30 or 2026-11-21", word)
            ns = found.value
        if not -_I64 <= ns < _I64:
            raise self.error("this time is out of range", word)
        return ns


def _a(kind: ValueKind) -> str:
    return ("an " if kind[0] in "aeioAEIO" else "a ") + kind


def _is_topic_partition_test(node: tree.Node) -> bool:
    """Whether a term is about topic-partitions alone."""
    if isinstance(node, Test):
        return node.field.scope is Scope.PAIR
    return isinstance(node, tree.And | tree.Or) and all(map(_is_topic_partition_test, node.terms))


def _is_positive(node: tree.Node) -> bool:
    if isinstance(node, Test):
        return not node.negated or node.field.kind is ValueKind.ERROR
    return isinstance(node, tree.And | tree.Or) and any(map(_is_positive, node.terms))


def _conjunction(terms: Iterable[tree.Node], node: tree.And[tree.SyntaxNode]) -> tree.Node:
    """A conjunction whose tests about topic-partitions are joined, so that one topic-partition must pass all of them."""
    flat: list[tree.Node] = []
    for term in terms:
        if isinstance(term, tree.And):
            flat.extend(term.terms)
        elif isinstance(term, tree.SameTopicPartition):
            inner = term.term
            flat.extend(inner.terms if isinstance(inner, tree.And) else [inner])
        else:
            flat.append(term)
    pure = [term for term in flat if _is_topic_partition_test(term)]
    if len(pure) < 2 or not any(map(_is_positive, pure)):
        return tree.And(tuple(flat), node.start, node.end)
    inner = tree.And(tuple(pure), min(t.start for t in pure), max(t.end for t in pure))
    joined = tree.SameTopicPartition(inner, inner.start, inner.end)
    others = tuple(term for term in flat if not _is_topic_partition_test(term))
    if not others:
        return joined
    at = next(i for i, term in enumerate(flat) if _is_topic_partition_test(term))
    before = tuple(t for t in flat[:at] if not _is_topic_partition_test(t))
    return tree.And((*before, joined, *others[len(before) :]), node.start, node.end)


def needs(node: tree.Node) -> frozenset[Need]:
    """What must be read to decide a filter."""
    if isinstance(node, Test):
        other = node.value.field.needs if isinstance(node.value, tree.FieldValue) else frozenset[Need]()
        return node.field.needs | other
    if isinstance(node, tree.Search):
        return frozenset({Need.INDEX, Need.REQUEST, Need.RESPONSE})
    if isinstance(node, tree.And | tree.Or):
        return frozenset().union(*(needs(term) for term in node.terms))
    inner = node.test if isinstance(node, tree.Every | tree.Some) else node.term
    return needs(inner)
