"""The most common form of rows: a response answers the items of its request, each of them once, and no others.

Where the items stand is text: ``"topics(name|topic_id).partitions(partition_index)"`` are the partitions of topics
that have a name or an id. An array without a key in brackets, ``"topics(name).partition_indexes"``, has the keys
themselves; ``dirs()`` only leads to others. ``a + b`` joins two lists; of ``a / b`` the first that the version has is
meant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from ...schema.plan import StructPlan
from ..engine.formatting import topic_id_text
from .row import Check, Pair, Row, Seen

_STEP = re.compile(r"(\w+)(\([\w|,]*\))?")
_SHOWN = 3
"""Items of one response that are named."""

Key = tuple[Any, ...]
Keys = tuple[Key, ...]
"""All keys of one item: it may have a name and an id."""


class _Step(NamedTuple):
    """An array: its position and name, and the positions of the alternatives of each part of its items' keys; None
    where the items are the keys."""

    at: int
    name: str
    parts: tuple[tuple[int, ...], ...] | None


class _Item(NamedTuple):
    keys: Keys
    path: str


@cache
def _steps(root: StructPlan, places: str) -> tuple[tuple[_Step, ...], ...]:
    """A list of steps for each of the lists that are joined. Empty if the version has none of them."""
    for way in places.split(" / "):
        found = [_way(root, each) for each in way.split(" + ")]
        if all(found):
            return tuple(found)
    return ()


def _way(struct: StructPlan, text: str) -> tuple[_Step, ...]:
    steps = []
    for match in _STEP.finditer(text):
        names = [f.name for f in struct.fields]
        if match[1] not in names:
            return ()
        at = names.index(match[1])
        inner = struct.fields[at].struct
        if match[2] is None or inner is None:
            steps.append(_Step(at, match[1], None))
            break
        fields = [f.name for f in inner.fields]
        parts = [
            tuple(fields.index(n) for n in part.split("|") if n in fields) for part in match[2][1:-1].split(",") if part
        ]
        steps.append(_Step(at, match[1], tuple(parts)))
        struct = inner
    return tuple(steps)


@cache
def _flat(root: StructPlan, places: str) -> Callable[[Any], list[Key]] | None:
    """A fast reader of lists whose items have one key each; None for others."""
    ways = _steps(root, places)
    alone = ways[0][0] if len(ways) == 1 and len(ways[0]) == 1 else None
    if alone is not None and alone.parts is not None and len(alone.parts) == 1 and alone.parts[0]:
        at, ((key, *others),) = alone.at, alone.parts
        if others:  # an item has several keys: the first that both sides have identifies it
            return lambda values: _alone(values[at], key)
        return lambda values: [(v[key],) for v in values[at] or ()]
    if len(ways) != 1 or any(step.parts is not None and any(len(p) != 1 for p in step.parts) for step in ways[0]):
        return None
    steps = ways[0]
    if len(steps) == 2 and steps[0].parts is not None and len(steps[0].parts) == 1:
        outer, ((key,),), (inner, _, parts) = steps[0].at, steps[0].parts, steps[1]
        if parts is None:
            return lambda values: [(t[key], p) for t in values[outer] or () for p in t[inner] or ()]
        if len(parts) == 1:
            ((number,),) = parts
            return lambda values: [(t[key], p[number]) for t in values[outer] or () for p in t[inner] or ()]
    return None


def _alone(items: Any, key: int) -> list[Any]:
    """The key of the only item; what equals nothing if there are more, or it has no such key."""
    if not items:
        return []
    return [(items[0][key],)] if len(items) == 1 and _named(items[0][key]) else [object()]


def items_in(root: StructPlan, places: str, values: Any) -> list[_Item]:
    """The items of a struct at these places."""
    return [item for way in _steps(root, places) for item in _walk(values, way, ((),), "")]


def _walk(values: Any, way: tuple[_Step, ...], outer: Keys, prefix: str) -> Iterator[_Item]:
    step = way[0]
    for number, item in enumerate(values[step.at] or ()):
        path = f"{prefix}{step.name}[{number}]"
        if step.parts is None:
            keys: Keys = tuple((*key, item) for key in outer)
        else:
            keys = outer
            for part in step.parts:
                found = [item[at] for at in part if _named(item[at])] or [item[at] for at in part[:1]]
                keys = tuple((*key, value) for key in keys for value in found)
        if len(way) == 1:
            yield _Item(keys, path)
        else:
            yield from _walk(item, way[1:], keys, path + ".")


def _named(value: Any) -> bool:
    return value is not None and (not isinstance(value, bytes) or any(value))


def name(key: Key) -> str:
    """A key as text: ``orders-3``, ``'orders'``."""
    texts = [topic_id_text(part) if isinstance(part, bytes) and len(part) == 16 else str(part) for part in key]
    if len(key) > 1 and isinstance(key[-1], int):
        return f"{' '.join(texts[:-1])}-{texts[-1]}"
    return " ".join(repr(t) if isinstance(p, str) else t for t, p in zip(texts, key, strict=True))


class Difference(NamedTuple):
    """What a response has of what was asked: `missing` keys, and paths and keys of `unasked` ones and of those that
    are there `twice`."""

    missing: list[Key]
    unasked: list[tuple[str, Key]]
    twice: list[tuple[str, Key]]


def difference(asked: Iterable[Keys], answered: Iterable[_Item]) -> Difference:
    """Compare two lists of items."""
    wanted = list(asked)
    known = {key for keys in wanted for key in keys}
    found: Counter[Key] = Counter()
    unasked, twice = [], []
    for item in answered:
        if not any(key in known for key in item.keys):
            unasked.append((item.path, item.keys[0]))
        if any(found[key] for key in item.keys):
            twice.append((item.path, item.keys[0]))
        found.update(item.keys)
    repeated = {key for key, count in Counter(key for keys in wanted for key in keys).items() if count > 1}
    twice = [(path, key) for path, key in twice if key not in repeated]
    missing = [keys[0] for keys in wanted if not any(found[key] for key in keys)]
    return Difference(missing, unasked, twice)


class Items(NamedTuple):
    """The items of a request and of its response: a row for each way in which they can differ (`ways`).

    `what`: their plural. `all_if_empty`: an empty list asks for all, as null always does. `silent`: tells answers that
    may leave items out. `severity`: of missing items; those that nobody asked for have it too where `strict`.
    """

    api: str
    what: str
    asked: str
    answered: str
    source: str
    clients: str = ""
    severity: str = "medium"
    strict: bool = False
    all_if_empty: bool = False
    ways: tuple[str, ...] = ("missing", "unasked", "twice")
    silent: Callable[[Pair], bool] | None = None
    since: int = 0
    until: int = 0x7FFF
    named: str = ""
    """The beginning of the rows' ids, if not the API's name."""

    def rows(self) -> Iterator[Row]:
        """The rows."""
        texts = {
            "missing": f"answers all {self.what} that were asked for",
            "unasked": f"answers no {self.what} that were not asked for",
            "twice": f"answers each of the {self.what} once",
        }
        for way in self.ways:
            severity = self.severity if way == "missing" or (self.strict and way == "unasked") else "low"
            yield Row(
                f"{self.stem}-{way}", self.api, texts[way], self.source, self.check, severity, self.clients,
                since=self.since, until=self.until,
            )  # fmt: skip

    @property
    def stem(self) -> str:
        """What the rows' ids begin with."""
        return self.named or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.api).lower()

    def check(self, pair: Pair) -> Iterable[Seen]:
        """What differs."""
        found = self.compared(pair)
        return () if found is None else self.seen(pair, found)

    def seen(self, pair: Pair, found: Difference) -> Iterator[Seen]:
        """The difference in words."""
        if found.missing and "missing" in self.ways and not (self.silent is not None and self.silent(pair)):
            first = self.answered.split("(")[0].split(".")[0]
            names = ", ".join(name(key) for key in found.missing[:_SHOWN])
            more = len(found.missing) - _SHOWN
            text = f"lacks {names}{f' and {more} more' if more > 0 else ''}, which the request asks for"
            yield Seen(first, text, f"{self.stem}-missing")
        if found.unasked and "unasked" in self.ways:
            path, key = found.unasked[0]
            yield Seen(path, f"is {name(key)}, which the request does not ask for", f"{self.stem}-unasked")
        if found.twice and "twice" in self.ways:
            path, key = found.twice[0]
            yield Seen(path, f"is {name(key)}, which the response has twice", f"{self.stem}-twice")

    def compared(self, pair: Pair) -> Difference | None:
        """How request and response differ, None if they do not, or if all items are asked for."""
        asking, answering = pair.request.plan.root, pair.response.plan.root
        fast, fast_answer = _flat(asking, self.asked), _flat(answering, self.answered)
        if fast is not None and fast_answer is not None and fast(pair.asked) == fast_answer(pair.answer):
            return None
        ways = _steps(asking, self.asked)
        if not ways or not _steps(answering, self.answered) or any(pair.asked[way[0].at] is None for way in ways):
            return None
        asked = items_in(asking, self.asked, pair.asked)
        if not asked and self.all_if_empty:
            return None
        return difference((item.keys for item in asked), items_in(answering, self.answered, pair.answer))


def same_count(asked: str, answered: str) -> Check:
    """A check that two top arrays have as many items."""

    def check(pair: Pair) -> Iterator[Seen]:
        wanted, found = len(getattr(pair.asked, asked) or ()), len(getattr(pair.answer, answered) or ())
        if wanted != found:
            yield Seen(answered, f"has {found} items for the {wanted} {asked} of the request")

    return check


def each(values: Any, *arrays: str) -> Iterator[tuple[str, Any]]:
    """Path and values of every item of nested arrays."""
    for number, item in enumerate(getattr(values, arrays[0], None) or ()):
        path = f"{arrays[0]}[{number}]"
        if len(arrays) == 1:
            yield path, item
        else:
            for inner, found in each(item, *arrays[1:]):
                yield f"{path}.{inner}", found
