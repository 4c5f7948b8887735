"""Clients that end their connections right after the same answer, again and again: they fail on what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, times
from ...engine.traffic import ClientConnection, ClientIdentity, Traffic
from ...models.fetch import FETCH, FetchReader
from .unusual import REBALANCED, Case, Unusual, unusual

_METADATA = facts.api_key("Metadata")
_STAGES = (
    facts.api_key_set("ApiVersions", "SaslHandshake", "SaslAuthenticate"),
    facts.api_key_set("Metadata", "DescribeCluster", "GetTelemetrySubscriptions", "PushTelemetry"),
    facts.api_key_set("FindCoordinator", "InitProducerId"),
)
"""What clients send first, in this order; everything else is what they are there for."""
_ON_THE_WAY = facts.api_key_set(
    "ApiVersions", "SaslAuthenticate", "FindCoordinator", "InitProducerId", "JoinGroup", "AddPartitionsToTxn"
)
"""APIs after whose answers a client goes on. After all others, one that is ready ends, too."""
_KEPT = 1 << 16
"""Bytes of an answer that is kept until its connection ends; larger ones are looked at at once."""


class _Place(NamedTuple):
    """What a Fetch with records was asked for; None for other APIs, as their requests may differ each time."""

    topic: str
    partition: int
    offset: int


class _Answer(NamedTuple):
    """The last answer of a connection. `exchange`: None if it is large; then `found` has been looked for."""

    api_key: int
    version: int
    time_ns: int
    place: _Place | None
    exchange: Exchange | None
    found: list[Unusual]


@dataclass(slots=True)
class _Begun:
    """A connection so far: the APIs answered, and the last answer if all went well. `looked`: at large answers."""

    conn: ClientConnection
    apis: set[int] = field(default_factory=set)
    last: _Answer | None = None
    looked: int = 0


@dataclass(slots=True)
class _Ended:
    """Connections that ended after the same answer. `apis`: what was answered on them."""

    conn: ClientConnection
    answer: _Answer
    first_ns: int
    count: int = 0
    resets: int = 0
    apis: set[int] = field(default_factory=set)


def _stage(api_key: int) -> int:
    return next((i for i, apis in enumerate(_STAGES) if api_key in apis), len(_STAGES))


class EndsAfterAnswer(Detector):
    id = "ends-after-answer"
    severity = Severity.MEDIUM
    title = "a client ends its connection right after the same answer, again and again, and never gets further"
    explains = ("connection-churn", "batch-over-fetch-limit", "closed-without-leaving", "commit-failed")

    TIMES = 3
    AT_ONCE_NS = 2 * SECOND
    FAST_NS = 10 * SECOND
    """From one connection to the next: probes run every 10 s or more (Kubernetes' default); a client that fails begins
    again sooner."""
    MOST_ANSWERS = 32
    """A client with more answers on a connection works."""
    LOOKS = 2
    """Large answers of a connection that are looked at: a client that fails on one gets no more of them."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.fetches = traffic.model(FetchReader)

    def setup(self) -> None:
        self._begun: BoundedDict[int, _Begun] = BoundedDict()
        self._ended: BoundedDict[tuple[ClientIdentity, int, _Place | None], _Ended] = BoundedDict()
        self._reached: BoundedDict[ClientIdentity, dict[int, int]] = BoundedDict()
        """By client: when each API was last answered on a connection that has ended."""
        self._working: BoundedDict[ClientIdentity, ClientConnection] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if conn.answers > self.MOST_ANSWERS:
            if self._begun.pop(conn.number, None) is not None:
                self._working[conn.identity] = conn
            return
        begun = self._begun.get(conn.number)
        if begun is None:
            begun = self._begun[conn.number] = _Begun(conn)
        begun.last = None
        if exchange.state is not State.PAIRED or exchange.response_view is None:
            return
        begun.apis.add(exchange.api_key)
        if not exchange.error or exchange.api_key == _METADATA or exchange.error in REBALANCED:
            begun.last = self._answer(begun, exchange)

    def _answer(self, begun: _Begun, exchange: Exchange) -> _Answer | None:
        place, fetched = None, self.fetches.fetched if exchange.api_key == FETCH else None
        if fetched is not None and (part := next((part for part in fetched.answered if part.size), None)) is not None:
            place = _Place(*part.place, fetched.offset(part.place))
        large = (exchange.response_size or 0) > _KEPT or place is not None
        begun.looked += large
        if large and begun.looked > self.LOOKS:
            return None
        found = unusual(Case(begun.conn, exchange, begun.apis, fetched)) if large else []
        at, kept = exchange.response_time_ns or 0, None if large else exchange
        return _Answer(exchange.api_key, exchange.api_version, at, place, kept, found)

    def closed(self, conn: ClientConnection) -> None:
        begun = self._begun.pop(conn.number, None)
        if begun is None:
            return
        reached = self._reached.of(conn.identity, dict)
        for api in begun.apis:
            reached[api] = conn.last_ns
        last, at = begun.last, conn.closed_ns or 0
        if last is None or conn.waiting or conn.lost or conn.by != "client" or at - last.time_ns > self.AT_ONCE_NS:
            return
        key = conn.identity, last.api_key, last.place
        ended = self._ended.of(key, lambda: _Ended(conn, last, at))
        ended.conn, ended.answer, ended.count = conn, last, ended.count + 1
        ended.resets += conn.how == "rst"
        ended.apis |= begun.apis

    def _got_further(self, identity: ClientIdentity, ended: _Ended, now: dict[int, int]) -> bool:
        """Whether the client did something else afterwards. `now`: when APIs were answered on its open connections."""
        working = self._working.get(identity)
        if working is not None and working.last_ns >= ended.first_ns:
            return True
        seen, stage = (self._reached.get(identity) or {}) | now, _stage(ended.answer.api_key)
        return any(at >= ended.first_ns and api not in ended.apis and _stage(api) >= stage for api, at in seen.items())

    def after_others(self, found: list[Finding]) -> None:
        self._for_now.clear()
        now: dict[ClientIdentity, dict[int, int]] = {}
        for begun in self._begun.values() if self._ended else ():
            now.setdefault(begun.conn.identity, {}).update(dict.fromkeys(begun.apis, begun.conn.last_ns))
        for key, ended in self._ended.items():
            if ended.count >= self.TIMES and not self._got_further(key[0], ended, now.get(key[0], {})):
                answer, conn = ended.answer, ended.conn
                seen = unusual(Case(conn, answer.exchange, ended.apis)) if answer.exchange is not None else answer.found
                sure = bool(seen) and not seen[0].row.usual
                if sure or ((self._may_fail(ended) or key[1] in _ON_THE_WAY) and not _explained(found, conn)):
                    self._for_now[key] = self._state(ended, seen)

    def _fast(self, ended: _Ended) -> bool:
        return ended.answer.time_ns - ended.first_ns < self.FAST_NS * (ended.count - 1)

    def _may_fail(self, ended: _Ended) -> bool:
        """Whether the client may fail on an answer after which tools end, too: it has records, or is asked for soon."""
        admin = (ended.conn.client_id or "").startswith("adminclient")
        return ended.answer.place is not None or (ended.answer.api_key == _METADATA and not admin and self._fast(ended))

    def _state(self, ended: _Ended, found: list[Unusual]) -> Finding:
        conn, answer, place = ended.conn, ended.answer, ended.answer.place
        sure, fails = bool(found) and not found[0].row.usual, ended.resets or self._fast(ended)
        about = conn.facts | {"api": facts.api_name(answer.api_key), "api_version": answer.version}
        about |= place._asdict() if place is not None else {}
        where = f" for {place.topic}-{place.partition} from offset {place.offset}" if place is not None else ""
        finding = self.finding(
            f"{conn.who} ends its connection to {conn.where} right after the answer to {about['api']} "
            f"v{answer.version}{where} ({times(ended.count)}, each time on a new "
            f"one{', by a reset' * bool(ended.resets)}): "
            + ("; ".join(each.text for each in found[:3]) or "nothing in it is unusual"),
            "the client sends nothing after this answer, though it could go on. "
            + (
                f"Likeliest first: {'; '.join(dict.fromkeys(each.row.why for each in found[:3]))}."
                if found
                else "The reason is not on the wire. Likeliest first: a probe or tool that only checks whether the "
                "broker answers; a client that fails on its own settings (SASL mechanism, idempotence, codec) or finds "
                "no common version of an API that it needs, and says so in its log."
            ),
            next((each.row.remedy for each in found[:3] if each.row.remedy), "")
            or "read the client's log at that time; upgrade its library; compare what it needs with: barnabas versions "
            f"{conn.broker}",
            (Severity.HIGH if fails else Severity.MEDIUM) if sure else Severity.LOW,
            unusual=[each.text for each in found],
            **about,
        )
        if sure and fails:
            finding.explains += ("partition-without-leader",)
        finding.add_evidence(answer.exchange, answer.time_ns)
        finding.first_ns, finding.count = min(ended.first_ns, finding.first_ns or ended.first_ns), ended.count
        return finding


def _explained(found: list[Finding], conn: ClientConnection) -> bool:
    """Whether another finding already says what is wrong with this client."""
    return any(
        each.severity is not Severity.INFO and each.about.get("client_id") == conn.client_id
        and str(each.about.get("client") or "").startswith(f"{conn.client_host}:")
        for each in found
    )  # fmt: skip
