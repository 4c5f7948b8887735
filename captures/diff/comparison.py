"""Two recordings aligned and compared.

Clients are paired by client id, ignoring counters and versions in it. Requests that a program may send any number of times
(polls, reads, heartbeats, batches of records) are compared as sets: the values that each field ever had. All others are
aligned in order, per client and scope (a group, a transaction, the cluster), so that new connections and other interleavings
do not matter; aligned pairs are compared field by field.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from ...decoder import Exchange
from ...decoder.filter import Filter
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ..reading.capture import Capture
from ..reading.selection import select
from ..replay.comparison import SHARE_GROUPS
from ..replay.policy import administrative
from ..serving.offsets import NATURAL
from .field_paths import generic_paths, item_of, message_of, places
from .flattener import Flattener, Value
from .report import Difference, DifferenceKind, DiffReport, Level
from .sides import PreparedSide, SeenExchange, counterparts, may_repeat, prepare

_REPEATED_CHANGES = frozenset(
    {"OffsetCommit", "TxnOffsetCommit", "JoinGroup", "SyncGroup", "LeaveGroup", "AddPartitionsToTxn", "ApiVersions"}
)
"""These depend on timing as polls do: commits by a timer, rebalances, partitions as records come."""
_WAITING = frozenset({"Fetch", "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat", "ShareFetch"})
_SLOWER, _SLOWER_NS, _FEW = 3.0, 10_000_000, 5
_MORE, _MORE_REQUESTS = 3.0, 20
_EXAMPLES = 5
_OFFERS = ("api_keys[", "supported_features[", "finalized_features[")
_SHOWN = 100


def compare(a: Iterable[Exchange], b: Iterable[Exchange], name_a: str = "A", name_b: str = "B") -> DiffReport:
    """The differences between two recordings, the worst first. Exchanges are numbered as they come, from 1."""
    return _Comparison(prepare(name_a, enumerate(a, 1)), prepare(name_b, enumerate(b, 1))).run()


def compare_captures(a: Capture, b: Capture, wanted: Filter | None = None) -> DiffReport:
    """As `compare`, of the exchanges that `wanted` selects (None: all), numbered as ``barnabas ui`` and ``decode`` do."""
    return _Comparison(prepare(str(a.path), _numbered(a, wanted)), prepare(str(b.path), _numbered(b, wanted))).run()


def _numbered(capture: Capture, wanted: Filter | None) -> Iterator[tuple[int, Exchange]]:
    chosen = None if wanted is None else set(select(capture, wanted))
    for number, exchange in capture.numbered_exchanges():
        if chosen is None or number in chosen:
            yield number + 1, exchange


class _Comparison:
    def __init__(self, a: PreparedSide, b: PreparedSide) -> None:
        self._a, self._b = a, b
        self._mapped = counterparts(a, b)
        names_b = {self._mapped.get(name, name) for each in b.seen for name in each.names}
        asked_for = frozenset({name for each in a.seen for name in each.names} | names_b)
        self._flat_a = Flattener(a.topics.name, {}, asked_for)
        self._flat_b = Flattener(b.topics.name, self._mapped, asked_for)
        self._scopes_a = {seen.number: seen.scope for seen in a.seen}
        self._scopes_b = {seen.number: seen.scope for seen in b.seen}
        self._found: dict[tuple[Any, ...], Difference] = {}

    def run(self) -> DiffReport:
        for client_a, client_b in self._clients():
            ours = [seen for seen in self._a.seen if seen.client == client_a]
            theirs = [seen for seen in self._b.seen if seen.client == client_b]
            client = client_a or client_b or ""
            self._versions(client, ours, theirs)
            self._polls(client, ours, theirs)
            self._sequences(client, ours, theirs)
        self._records()
        self._latencies()
        differences = sorted(self._found.values(), key=lambda d: (-d.level, list(DifferenceKind).index(d.kind), d.api, -d.count))
        return DiffReport(self._a.side, self._b.side, differences, dict(self._mapped), self._notes(differences))

    def _add(
        self, level: Level, kind: DifferenceKind, api: str, client: str, scope: str, what: str, a: Any, b: Any,
        in_a: Iterable[int] = (), in_b: Iterable[int] = (), count: int = 1,
    ) -> None:  # fmt: skip
        key = (level, kind, api, client, scope, what, a, b)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Difference(level, kind, api, client, scope, what, a, b, 0)
        found.count += count
        for numbers, new in ((found.in_a, in_a), (found.in_b, in_b)):
            numbers += [number for number in new if number not in numbers][: max(0, _EXAMPLES - len(numbers))]

    def _clients(self) -> list[tuple[str | None, str | None]]:
        ours = list(dict.fromkeys(seen.client for seen in self._a.seen))
        theirs = list(dict.fromkeys(seen.client for seen in self._b.seen))
        pairs: list[tuple[str | None, str | None]] = [(name, name) for name in ours if name in theirs]
        left_a, left_b = [n for n in ours if n not in theirs], [n for n in theirs if n not in ours]
        for name in list(left_a):
            near = difflib.get_close_matches(name, left_b, 1, 0.4) or left_b[:1]
            if near:
                pairs.append((name, near[0]))
                left_a.remove(name)
                left_b.remove(near[0])
        return pairs + [(name, None) for name in left_a] + [(None, name) for name in left_b]

    def _scope(self, scope: str) -> str:
        for theirs in sorted(self._mapped, key=len, reverse=True):
            scope = scope.replace(theirs, self._mapped[theirs])
        return scope

    def _names(self, seen: SeenExchange) -> frozenset[str]:
        return frozenset(self._mapped.get(name, name) for name in seen.names)

    def _notes(self, differences: list[Difference]) -> list[str]:
        """Whether differences come of what a replay leaves out: A has changed something that B has not."""
        made = {(seen.api, name) for seen in self._b.seen for name in self._names(seen)}
        changed: dict[str, list[SeenExchange]] = defaultdict(list)
        for seen in self._a.seen:
            for name in seen.names:
                if administrative(seen.exchange.api_key) and (seen.api, name) not in made:
                    changed[name].append(seen)
        by_number = {seen.number: seen for seen in self._a.seen} if changed else {}
        names: Counter[str] = Counter()
        apis: set[str] = set()
        of_share_groups, count = False, 0
        for found in differences:
            shown = [by_number[number] for number in found.in_a if number in by_number]
            if found.level is Level.NOISE or any(administrative(seen.exchange.api_key) for seen in shown):
                continue
            concerned = {n for seen in shown for n in seen.names if n in changed and changed[n][0].number < seen.number}
            names.update(concerned)
            apis.update(seen.api for name in concerned for seen in changed[name])
            of_share_groups |= bool(concerned) and any(seen.api.startswith("Share") for seen in shown)
            count += bool(concerned)
        if not count:
            return []
        return [
            f"{count} of the differences {'concerns' if count == 1 else 'concern'} {', '.join(sorted(names))}, which "
            f"{' and '.join(sorted(apis))} changed in A only. If B is a replay of A, it left out requests that alter or delete; "
            f"barnabas replay --include-admin sends them{SHARE_GROUPS if of_share_groups else ''}"
        ]

    # --- versions --------------------------------------------------------------------------------------------------

    def _versions(self, client: str, ours: list[SeenExchange], theirs: list[SeenExchange]) -> None:
        by_api: dict[str, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
        for side, seen in ((0, ours), (1, theirs)):
            for each in seen:
                by_api[each.api][side].add(each.exchange.api_version)
        for api, (a, b) in sorted(by_api.items()):
            if a and b and a != b:
                self._add(
                    Level.MEDIUM, DifferenceKind.VERSION, api, client, "", "version", _numbers(a), _numbers(b),
                    _first(ours, api), _first(theirs, api),
                )  # fmt: skip

    # --- polls -----------------------------------------------------------------------------------------------------

    def _polls(self, client: str, ours: list[SeenExchange], theirs: list[SeenExchange]) -> None:
        def polls(seen: list[SeenExchange]) -> dict[str, list[SeenExchange]]:
            out: dict[str, list[SeenExchange]] = defaultdict(list)
            for each in seen:
                if _may_repeat(each.api):
                    out[each.api].append(each)
            return out

        a, b = polls(ours), polls(theirs)
        both = {name for seen in ours for name in seen.names} & {name for seen in theirs for name in self._names(seen)}
        for api in sorted({*a, *b}):
            if not (a[api] and b[api]):
                self._only(api, client, "", a[api], b[api])
                continue
            self._counts(api, client, len(a[api]), len(b[api]))
            if api == "ApiVersions":
                self._offers(client, a[api], b[api])
            for side in ("request", "response"):
                self._value_sets(api, client, side, a[api], b[api], both)

    def _counts(self, api: str, client: str, a: int, b: int) -> None:
        many, few = max(a, b), min(a, b)
        if a == b:
            return
        more = many >= few * _MORE and many - few >= _MORE_REQUESTS
        self._add(Level.LOW if more else Level.NOISE, DifferenceKind.COUNT, api, client, "", "requests", str(a), str(b))

    def _only(self, api: str, client: str, scope: str, a: list[SeenExchange], b: list[SeenExchange]) -> None:
        a, b = [seen for seen in a if not seen.again], [seen for seen in b if not seen.again]
        if a or b:
            names = ", ".join(
                sorted({name for seen in a for name in seen.names} | {n for s in b for n in self._names(s)})
            )
            self._add(
                Level.MEDIUM, DifferenceKind.ONLY, api, client, scope, f"asked for {names}" if names else "asked",
                _times(len(a)), _times(len(b)), [seen.number for seen in a], [seen.number for seen in b],
            )  # fmt: skip

    def _value_sets(
        self, api: str, client: str, side: str, a: list[SeenExchange], b: list[SeenExchange], both: set[str]
    ) -> None:  # fmt: skip
        """`both`: the names that this client works with on both sides, whatever it asks of them."""
        seen_a, known_a = places(a, side, self._flat_a)
        seen_b, known_b = places(b, side, self._flat_b)
        unasked = {f"[{name}]" for name in both} & ({item_of(p) for p in seen_a} ^ {item_of(p) for p in seen_b})
        for path in seen_a.keys() | seen_b.keys():
            if api == "ApiVersions" and path.startswith(_OFFERS):
                continue
            at_a, at_b = seen_a.get(path, {}), seen_b.get(path, {})
            values_a, values_b = {v for v, _ in at_a}, {v for v, _ in at_b}
            (_, value) = next(iter(at_a or at_b))
            if values_a == values_b:
                continue
            if value.path not in (known_a & known_b):
                continue  # one side's version lacks the field
            only_a = [number for (v, _), number in at_a.items() if v not in values_b]
            only_b = [number for (v, _), number in at_b.items() if v not in values_a]
            scopes = {self._scopes_a[n] for n in only_a} | {self._scope(self._scopes_b[n]) for n in only_b}
            scope = scopes.pop() if len(scopes) == 1 else ""
            level, kind = _judge(value, values_a, values_b, api)
            if level is Level.MEDIUM and item_of(path) in unasked:
                level = Level.LOW  # e.g. a Metadata request came a moment before, or after, the name was first used
            self._add(
                level, kind, api, client, scope, f"{side} {value.shown}", _several(value, values_a), _several(value, values_b),
                only_a, only_b,
            )  # fmt: skip

    def _offers(self, client: str, a: list[SeenExchange], b: list[SeenExchange]) -> None:
        ranges = [_offered(seen) for seen in (a, b)]
        for key in sorted({*ranges[0], *ranges[1]}):
            was, now = (r.get(key) for r in ranges)
            if was != now:
                what = f"offered versions of {facts.api_name(key)}"
                self._add(
                    Level.LOW, DifferenceKind.OFFER, "ApiVersions", client, "", what,
                    "{}-{}".format(*was) if was else "", "{}-{}".format(*now) if now else "",
                    [a[0].number], [b[0].number],
                )  # fmt: skip

    # --- sequences -------------------------------------------------------------------------------------------------

    def _sequences(self, client: str, ours: list[SeenExchange], theirs: list[SeenExchange]) -> None:
        scopes: dict[str, tuple[list[SeenExchange], list[SeenExchange]]] = defaultdict(lambda: ([], []))
        for side, seen in ((0, ours), (1, theirs)):
            for each in seen:
                if _may_repeat(each.api):
                    continue
                if each.again:
                    code = facts.error_name(each.exchange.error)
                    self._add(Level.NOISE, DifferenceKind.ERROR, each.api, client, "", "tried again after", *_one(side, code))
                    continue
                scopes[each.scope if side == 0 else self._scope(each.scope)][side].append(each)
        for scope, (a, b) in sorted(scopes.items()):
            keys_a = [(seen.api, seen.names) for seen in a]
            keys_b = [(seen.api, self._names(seen)) for seen in b]
            matcher = difflib.SequenceMatcher(None, keys_a, keys_b, autojunk=False)
            left_a: list[SeenExchange] = []
            left_b: list[SeenExchange] = []
            for tag, a0, a1, b0, b1 in matcher.get_opcodes():
                if tag == "equal":
                    for one, other in zip(a[a0:a1], b[b0:b1], strict=True):
                        self._pair(client, scope, one, other)
                else:
                    left_a += a[a0:a1]
                    left_b += b[b0:b1]
            self._left(client, scope, left_a, left_b)

    def _left(self, client: str, scope: str, a: list[SeenExchange], b: list[SeenExchange]) -> None:
        """Pair requests that the order did not align; the same requests in another order count as the same."""
        rest: dict[Any, list[SeenExchange]] = defaultdict(list)
        for seen in b:
            rest[seen.api, self._names(seen)].append(seen)
        only_a: dict[Any, list[SeenExchange]] = defaultdict(list)
        for seen in a:
            others = rest.get((seen.api, seen.names))
            if others:
                other = others.pop(0)
                self._add(
                    Level.NOISE,
                    DifferenceKind.COUNT,
                    seen.api,
                    client,
                    scope,
                    "a different order",
                    "",
                    "",
                    [seen.number],
                    [other.number],
                )
                self._pair(client, scope, seen, other)
            else:
                only_a[seen.api, seen.names].append(seen)
        for key in {*only_a, *(key for key, left in rest.items() if left)}:
            self._only(key[0], client, scope, only_a.get(key, []), rest.get(key, []))

    def _pair(self, client: str, scope: str, one: SeenExchange, other: SeenExchange) -> None:
        for side in ("request", "response"):
            message_a, message_b = message_of(one, side), message_of(other, side)
            if message_a is None or message_b is None:
                if (message_a is None) != (message_b is None):
                    words = ["answered" if m is not None else "no answer" for m in (message_a, message_b)]
                    self._add(
                        Level.HIGH,
                        DifferenceKind.ERROR,
                        one.api,
                        client,
                        scope,
                        "answer",
                        words[0],
                        words[1],
                        [one.number],
                        [other.number],
                    )
                continue
            a, b = self._flat_a.flat(message_a), self._flat_b.flat(message_b)
            known = generic_paths(message_a) & generic_paths(message_b)
            for path in a.keys() | b.keys():
                value = a.get(path) or b[path]
                mine = a[path].value if path in a else None
                theirs = b[path].value if path in b else None
                if mine == theirs or value.path not in known:
                    continue
                level, kind = _judge(value, {mine}, {theirs}, one.api)
                self._add(
                    level, kind, one.api, client, scope, f"{side} {value.shown}", _words(value, mine), _words(value, theirs),
                    [one.number], [other.number],
                )  # fmt: skip

    # --- records and times -------------------------------------------------------------------------------------------

    def _records(self) -> None:
        ours = self._a.produced
        theirs = {(self._mapped.get(topic, topic), at): found for (topic, at), found in self._b.produced.items()}
        for topic in sorted({topic for topic, _ in [*ours, *theirs]}):
            a = Counter(repr(r) for (name, _), found in ours.items() if name == topic for r in found)
            b = Counter(repr(r) for (name, _), found in theirs.items() if name == topic for r in found)
            if a != b:
                only_a, only_b = a - b, b - a
                self._add(
                    Level.HIGH, DifferenceKind.RECORDS, "Produce", "", f"records of {topic}", f"records of {topic}",
                    f"{a.total()} record{'s' * (a.total() != 1)}, {only_a.total()} of them only here",
                    f"{b.total()} record{'s' * (b.total() != 1)}, {only_b.total()} of them only here",
                )  # fmt: skip

    def _latencies(self) -> None:
        for api, a in self._a.side.latencies.items():
            b = self._b.side.latencies.get(api)
            if b is None or api in _WAITING or a.p50 is None or b.p50 is None or min(a.count, b.count) < _FEW:
                continue
            slow, fast = max(a.p50, b.p50), min(a.p50, b.p50)
            if slow >= fast * _SLOWER and slow - fast >= _SLOWER_NS:
                self._add(Level.LOW, DifferenceKind.LATENCY, api, "", "", "p50", _ms(a.p50), _ms(b.p50))


def _may_repeat(api: str) -> bool:
    return api in _REPEATED_CHANGES or may_repeat(api)


def _judge(value: Value, a: set[Any], b: set[Any], api: str) -> tuple[Level, DifferenceKind]:
    if value.path.endswith("error_code"):
        table = facts.errors()
        codes = {code for code in a ^ b if code}
        natural = {code for code in codes if code in NATURAL or (code in table and table[code].retriable)}
        if codes <= natural:
            return Level.NOISE, DifferenceKind.ERROR
        return Level.HIGH, DifferenceKind.ERROR
    if value.role is Meaning.OFFSET or (value.role is Meaning.ASSIGNMENT) or (value.role is Meaning.PARTITION):
        return Level.NOISE, DifferenceKind.FIELD
    if value.role is Meaning.SUBSCRIPTION or (_may_repeat(api) and a and b and (a < b or b < a)):
        # One side has seen more values; one poll more or less is enough for that.
        return (Level.NOISE if value.role is Meaning.SUBSCRIPTION else Level.LOW), DifferenceKind.FIELD
    return Level.MEDIUM, DifferenceKind.FIELD


def _offered(seen: list[SeenExchange]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for each in seen:
        message = each.exchange.response_view
        if message is not None and message["error_code"] == 0:
            found |= {i["api_key"]: (i["min_version"], i["max_version"]) for i in message.to_dict()["api_keys"]}
    return found


def _words(value: Value, what: Any) -> str:
    if what is None:
        return ""
    if value.path.endswith("error_code"):
        return facts.error_name(what)
    if isinstance(what, bytes):
        return f"{len(what)} bytes {what[:24].hex()}" + ("…" if len(what) > 24 else "")
    if isinstance(what, tuple):
        what = ", ".join(_words(value, item) for item in what)
    text = "true" if what is True else "false" if what is False else str(what)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _several(value: Value, values: set[Any]) -> str:
    found = sorted({_words(value, each) for each in values})
    return " | ".join(found[:4]) + (f" | {len(found) - 4} more" if len(found) > 4 else "")


def _numbers(versions: set[int]) -> str:
    return "v" + ", v".join(str(version) for version in sorted(versions))


def _first(seen: list[SeenExchange], api: str) -> list[int]:
    return [each.number for each in seen if each.api == api][:1]


def _times(count: int) -> str:
    return f"{count}×" if count else "never"


def _one(side: int, text: str) -> tuple[str, str]:
    return (text, "") if side == 0 else ("", text)


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.1f} ms"
