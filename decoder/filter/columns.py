"""The back end for the index of a recording: a filter over columns of numbers. Nothing is decoded.

A filter becomes a generated function over unpacked records: an expression over column names; texts (client ids, addresses) become
sets of ids. The generated source has names of columns and constants only, never text of the filter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Protocol

from ..connection.api_versions import PeerInfo
from ..connection.exchange import State
from ..connection.topics import Topics
from . import analysis, values
from . import names as exchange_names
from .evaluate import Now
from .language import tree
from .language.literals import TimeOfDay
from .language.tree import FieldValue, Op, Test, ValueRange
from .names import UNKNOWN_ID, NameColumn, Names
from .predicates import predicate, time_of_day


@dataclass(frozen=True, slots=True)
class Layout:
    """How an index stores exchanges. `columns`: the names of a record's numbers, in order. `flags`: the bits of undecoded, cut,
    surplus, changed, noted and carried in the column ``flags``. `states`: by the number in ``flags & state_mask``."""

    columns: tuple[str, ...]
    state_mask: int
    states: tuple[State, ...]
    flags: Mapping[str, int]


class Columns(Protocol):
    """The records of an index: numbers by column name, as in docs/formats.md, and the meaning of ids."""

    @property
    def layout(self) -> Layout:
        """How the index stores an exchange."""

    @property
    def strings(self) -> Sequence[str | None]:
        """Texts by id, of the column ``client_id``."""

    @property
    def ends(self) -> Mapping[int, tuple[str, str]]:
        """(client, broker) as ``host:port``, by the number in the column ``connection``."""

    @property
    def peer_infos(self) -> Mapping[int, PeerInfo]:
        """The known peer info of connections, by the number in ``connection``."""

    @property
    def names(self) -> NameColumn | None:
        """The names of the exchanges, as far as they are known; None if nobody remembers them."""

    @property
    def topics(self) -> Topics | None:
        """Names of topic ids."""

    def __len__(self) -> int: ...
    def tuples(self, names: Sequence[str], start: int, stop: int) -> Iterable[tuple[int, ...]]:
        """The values of these columns, record by record. `names` are in the order of the layout."""


_VALUE = {
    "api": "api_key", "ver": "api_version", "err": "error", "latency": "latency_ns", "size.req": "request_size",
    "size.resp": "response_size", "size": "(request_size + response_size)", "time": "time_ns", "conn": "connection",
    "corr": "correlation_id", "pending": "(now - time_ns)", "broker.min": "lowest ( connection , api_key )",
    "broker.max": "highest ( connection , api_key )",
}  # fmt: skip
_PRESENT = {
    "api": "api_key >= 0", "ver": "api_key >= 0", "latency": "latency_ns >= 0", "size.req": "request_offset >= 0",
    "size.resp": "response_offset >= 0",
}  # fmt: skip
_NOT_OFFERED = -(1 << 15) - 1  # less than any version
_IS_STATE = {"paired": State.PAIRED, "no_response": State.NO_RESPONSE, "orphan": State.ORPHAN}
_SIGN = {Op.EQUAL: "==", Op.LESS: "<", Op.LESS_EQUAL: "<=", Op.GREATER: ">", Op.GREATER_EQUAL: ">="}


class _Expression:
    """Writes a tree as an expression."""

    def __init__(self, columns: Columns, zone: tzinfo | None, now: Now | None) -> None:
        self.columns, self.zone, self.now = columns, zone, now
        self.names: dict[str, Any] = {}
        self.used: dict[str, None] = {}

    def constant(self, value: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def column(self, expression: str) -> str:
        """Note which columns an expression uses."""
        for word in expression.replace("(", " ").replace(")", " ").split():
            if word in ("lowest", "highest"):
                self.names[word] = self.offered(int(word == "highest"))
            elif word.isidentifier() and word not in self.names:
                self.used[word] = None
        return expression

    def needs_now(self) -> bool:
        """Define the name ``now``; False without a clock. Reading the time may take long."""
        if self.now is not None and "now" not in self.names:
            self.names["now"] = self.now()
        return self.now is not None

    def all_of(self, terms: Sequence[str]) -> str:
        return "(" + " and ".join(terms) + ")"

    def any_of(self, terms: Sequence[str]) -> str:
        return "(" + " or ".join(terms) + ")"

    def negation(self, term: str) -> str:
        return f"(not {term})"

    def node(self, node: tree.Node) -> str:
        if analysis.names_only(node):
            return self.by_names(node)
        if isinstance(node, Test):
            found = self.test(node)
            return self.negation(found) if node.negated else found
        if isinstance(node, tree.Not):
            return self.negation(self.node(node.term))
        if isinstance(node, tree.Some | tree.Every):  # of both ends of a connection
            return self.connections(node.test, every=isinstance(node, tree.Every), some=isinstance(node, tree.Some))
        assert isinstance(node, tree.And | tree.Or)
        terms = [self.node(term) for term in node.terms]
        return self.all_of(terms) if isinstance(node, tree.And) else self.any_of(terms)

    def by_names(self, node: tree.Node) -> str:
        """Tests of names, which are decided once per set of names."""
        column = self.columns.names
        assert column is not None
        decided = _DecidedNames(exchange_names.function(node, self.columns.topics), column.sets)
        return f"{self.constant(decided.one)}({self.column('names')})"

    def state(self, state: State) -> str:
        layout = self.columns.layout
        return f"(({self.column('flags')} & {layout.state_mask}) == {layout.states.index(state)})"

    def test(self, test: Test) -> str:
        name, op, value = test.field.name, test.op, test.value
        if isinstance(value, FieldValue):
            return self.compared(name, op, value.field.name)
        if name in _IS_STATE:
            return self.flag(self.state(_IS_STATE[name]), test)
        if name in self.columns.layout.flags:
            return self.flag(f"(({self.column('flags')} & {self.columns.layout.flags[name]}) != 0)", test)
        if name == "retriable":
            return self.flag(self.member(self.column("error"), values.retriable()), test)
        if name == "state":
            states = [s for s in self.columns.layout.states if predicate(test, self.zone)(str(s))]
            return self.any_of([self.state(s) for s in states]) if states else "False"
        if name == "client":
            return self.clients(test)
        if name not in _VALUE:
            return self.connections(test)
        return self.number(test)

    def flag(self, expression: str, test: Test) -> str:
        """A flag, alone or compared with true and false."""
        fits = predicate(test)
        truths = [truth for truth in (True, False) if fits(truth)]
        if len(truths) != 1:
            return str(bool(truths))
        return expression if truths[0] else self.negation(expression)

    def present(self, name: str) -> str | None:
        if name == "pending":
            return self.state(State.PENDING)
        if name in ("broker.min", "broker.max"):
            return f"({self.column(_VALUE[name])} > {_NOT_OFFERED})"
        found = _PRESENT.get(name)
        return None if found is None else f"({self.column(found)})"

    def number(self, test: Test) -> str:
        name, op, value = test.field.name, test.op, test.value
        present = self.present(name)
        if op is Op.TRUE:
            if name == "err":
                return f"({self.column('error')} != 0)"
            return present if present is not None else "True"
        if name == "pending" and not self.needs_now():
            return "False"
        expression = self.column(_VALUE[name])
        if op in tree.ON_TEXT:
            fits = predicate(test)
            found = self.member(expression, frozenset(code for code in range(-1, 1 << 10) if fits(code)))
        elif op is Op.IN:
            assert isinstance(value, tuple)
            found = self.items(expression, value)
        elif isinstance(value, TimeOfDay):
            found = f"({self.of_day(expression)} {_SIGN[op]} {self.constant(value.ns)})"
        else:
            found = f"({expression} {_SIGN[op]} {self.constant(value)})"
        return found if present is None or self.implied(test) else self.all_of([present, found])

    def implied(self, test: Test) -> bool:
        """Whether no absent value, which is stored as -1, can pass."""
        if test.field.name not in ("api", "latency"):
            return False
        if test.op is Op.IN:
            assert isinstance(test.value, tuple)
            return all(isinstance(item, int) and item >= 0 for item in test.value)
        above = test.op in (Op.EQUAL, Op.GREATER, Op.GREATER_EQUAL)
        return above and isinstance(test.value, int | float) and test.value >= 0

    def items(self, expression: str, items: tuple[Any, ...]) -> str:
        plain = frozenset(item for item in items if not isinstance(item, ValueRange | TimeOfDay))
        terms = [self.member(expression, plain)] if plain else []
        for item in items:
            if isinstance(item, TimeOfDay):
                terms.append(f"({self.of_day(expression)} == {self.constant(item.ns)})")
            elif isinstance(item, ValueRange):
                terms.append(self.span(expression, item))
        return self.any_of(terms) if terms else "False"

    def span(self, expression: str, span: ValueRange) -> str:
        low, high = span.low, span.high
        if isinstance(low, TimeOfDay) and isinstance(high, TimeOfDay):
            of_day = self.of_day(expression)
            bounds = [f"({of_day} >= {self.constant(low.ns)})", f"({of_day} <= {self.constant(high.ns)})"]
            return self.all_of(bounds) if low.ns <= high.ns else self.any_of(bounds)
        return self.all_of([f"({expression} >= {self.constant(low)})", f"({expression} <= {self.constant(high)})"])

    def of_day(self, expression: str) -> str:
        return f"{self.constant(time_of_day(self.zone))}({expression})"

    def member(self, expression: str, numbers: frozenset[Any]) -> str:
        if not numbers:
            return "False"
        if len(numbers) == 1:
            return f"({expression} == {self.constant(next(iter(numbers)))})"
        return f"({expression} in {self.constant(numbers)})"

    def compared(self, left: str, op: Op, right: str) -> str:
        """A field against another."""
        if "pending" in (left, right) and not self.needs_now():
            return "False"
        terms = [present for name in (left, right) if (present := self.present(name)) is not None]
        return self.all_of([*terms, f"({self.column(_VALUE[left])} {_SIGN[op]} {self.column(_VALUE[right])})"])

    def clients(self, test: Test) -> str:
        fits = predicate(test)
        strings = self.columns.strings
        passing = frozenset(i for i, text in enumerate(strings) if text is not None and fits(text))
        return self.member(self.column("client_id"), passing)

    def offered(self, which: int) -> Callable[[int, int], int]:
        """A function from (connection, api key) to the lowest (0) or highest (1) version that the broker offers."""
        peer_infos = self.columns.peer_infos

        def bound(connection: int, api_key: int) -> int:
            about = peer_infos.get(connection)
            found = about.range(api_key) if about is not None else None
            return _NOT_OFFERED if found is None else found[which]

        return bound

    def connections(self, test: Test, every: bool = False, some: bool = False) -> str:
        """Tests of addresses, ports and software, which are decided once per connection."""
        fits = predicate(test)
        passing = []
        known: Iterable[tuple[int, tuple[Any, ...]]]
        if test.field.name in _SOFTWARE:
            read = _SOFTWARE[test.field.name]
            known = ((number, (read(about) or None,)) for number, about in self.columns.peer_infos.items())
        else:
            of = _ENDS[test.field.name]
            known = ((number, tuple(of(*ends))) for number, ends in self.columns.ends.items())
        for connection, ends in known:
            found = [fits(value) for value in ends if value is not None]
            if every:
                good = bool(found) and all(each is not test.negated for each in found)
            else:
                good = any(each is not some for each in found)
            if good:
                passing.append(connection)
        return self.member(self.column("connection"), frozenset(passing))


_ENDS: dict[str, Callable[[str, str], Iterable[Any]]] = {
    "addr": lambda client, broker: (values.end_of(client),),
    "broker": lambda client, broker: (values.end_of(broker),),
    "ends": lambda client, broker: (values.end_of(client), values.end_of(broker)),
    "client.port": lambda client, broker: (values.port_of(client),),
    "broker.port": lambda client, broker: (values.port_of(broker),),
    "port": lambda client, broker: (values.port_of(client), values.port_of(broker)),
}


_SOFTWARE: dict[str, Callable[[PeerInfo], str]] = {
    "software": lambda about: about.software_name,
    "software.version": lambda about: about.software_version,
}


class _DecidedNames:
    """What a filter says of each set of names, also of those that are added later."""

    def __init__(self, decide: Callable[[Names], bool], sets: Sequence[Names]) -> None:
        self._decide, self._sets, self._passes = decide, sets, bytearray()

    def one(self, number: int) -> int:
        while len(self._passes) <= number:
            self._passes.append(self._decide(self._sets[len(self._passes)]))
        return self._passes[number]


class ColumnTest:
    """A filter for the records of one index. `node` must need the index only (see `analysis.index_part`), and `named` no more than
    that and names: it decides records whose names are known, and `node` the others. None: all of them pass."""

    def __init__(
        self, node: tree.Node | None, columns: Columns, zone: tzinfo | None = None, now: Now | None = None, named: tree.Node | None = None
    ) -> None:
        self._node, self._columns, self._zone, self._now, self._named = node, columns, zone, now, named
        self._passing: tuple[tuple[str, ...], Callable[..., Iterator[int]]] | None = None

    def rows(self, start: int, stop: int, base: int = 0) -> Iterator[int]:
        """The numbers of the records `start` to `stop` that pass, plus `base`."""
        if self._passing is None:
            expression = _Expression(self._columns, self._zone, self._now)
            source = "True" if self._node is None else expression.node(self._node)
            if self._named is not None:
                source = f"({expression.node(self._named)} if {expression.column('names')} != {UNKNOWN_ID} else {source})"
            used = tuple(name for name in self._columns.layout.columns if name in expression.used) or ("flags",)
            named = ", names" if self._named is not None else ""
            lines = [
                "def passing(records, count):",
                f"    for {'(' if named else ''}{', '.join(used)},{')' if named else ''}{named} in records:",
                f"        if {source}: yield next(count)",
                "        else: next(count)",
            ]
            names = dict(expression.names)
            exec(compile("\n".join(lines), "<filter over records>", "exec"), names)
            self._passing = used, names["passing"]
        used, passing = self._passing
        records: Iterable[Any] = self._columns.tuples(used, start, stop)
        if self._named is not None:
            assert self._columns.names is not None
            records = zip(records, self._columns.names.ids[start:stop], strict=True)
        return passing(records, itertools.count(base + start))
