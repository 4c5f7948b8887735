"""How long each response took, and how much of that was waiting: for records, behind another request, for a quota.

A broker answers the requests of a connection one after the other. A request that arrives while another is being answered
waits for that one first; its own time is counted from then on.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import NamedTuple

from ...codec.codec import UNSUPPORTED_VERSION
from ...connection.exchange import Exchange, State
from ...errors import DecodeError
from ...schema import facts
from ...schema.plan import API_VERSIONS, Plan, plan
from ..engine.counters import BoundedDict, DurationHistogram
from ..engine.detector import Model
from ..engine.layout import layout
from ..engine.traffic import ClientConnection
from .offered_versions import OfferedVersions

FETCH = facts.api_key("Fetch")
JOIN_GROUP, SYNC_GROUP = facts.api_key("JoinGroup"), facts.api_key("SyncGroup")
SHARE_FETCH = facts.api_key("ShareFetch")
LONG_POLLS = frozenset({FETCH, JOIN_GROUP, SYNC_GROUP, SHARE_FETCH})
"""Requests that a broker holds on purpose until records or members arrive."""
_SYNC_WAIT_NS = 300_000_000_000
"""SyncGroup does not carry how long it may wait: the leader's assignment comes within the rebalance timeout (5 min)."""
_FIELDS = ("max_wait_ms", "rebalance_timeout_ms", "session_timeout_ms", "timeout_ms")
_TIMED = facts.api_key_set(
    "Fetch", "JoinGroup", "ShareFetch", "Produce", "ListOffsets", "CreateTopics", "DeleteTopics", "CreatePartitions",
    "DeleteRecords", "ElectLeaders", "UpdateFeatures", "AlterPartitionReassignments", "ListPartitionReassignments",
)  # fmt: skip
"""Requests that name how long the broker may take. In other APIs, fields of these names mean something else."""


_NOTHING_NS = 1_000
"""`DurationHistogram` counts all shorter times as one."""


@cache
def _wait_at(api_key: int, version: int) -> tuple[int, ...]:
    try:
        fields = plan("request", api_key, version).root.fields
    except DecodeError:
        return ()
    return tuple(i for i, f in enumerate(fields) if f.name in _FIELDS and f.type == "int32")


def own_wait_ns(exchange: Exchange) -> int:
    """How long a request allows the broker to wait, in ns; 0 if it is answered at once."""
    if exchange.api_key == SYNC_GROUP:
        return _SYNC_WAIT_NS
    if exchange.api_key not in _TIMED:
        return 0
    message = exchange.request_view
    if message is None:
        return 0
    waits = _wait_at(message.api_key, message.api_version)
    values = message.values
    longest = values[waits[0]] if len(waits) == 1 else max((values[at] for at in waits), default=0)
    return longest * 1_000_000 if longest > 0 else 0


@cache
def _names_throttle(of: Plan) -> bool:
    return "throttle_time_ms" in layout(of.root)


def throttle_ms(exchange: Exchange) -> int:
    """The throttle time of a response in ms; 0 without one."""
    message = exchange.response_view if exchange.state is State.PAIRED else None
    if message is None:
        return 0
    if exchange.api_key == API_VERSIONS and exchange.error == UNSUPPORTED_VERSION:
        return 0  # a refusal is a version 0 body (KIP-511); librdkafka's mock sends another, which reads as anything
    found: int = message["throttle_time_ms"] if _names_throttle(message.plan) else 0
    return found if found > 0 else 0


_PRODUCE = facts.api_key("Produce")
_AT_ONCE_FROM = 6
"""The version of Produce that came with KIP-219 (Kafka 2.0)."""


def kept_back(conn: ClientConnection, exchange: Exchange, throttle: int) -> bool:
    """Whether the broker delayed the response by its throttle time (ms), as brokers before Kafka 2.0 do. Newer ones answer at
    once and then stop reading (KIP-219). Judged by the versions that the broker offers, else by the latency."""
    offered = conn.traffic.model(OfferedVersions).of(conn)
    ends = None if offered is None else offered.get(_PRODUCE)
    if ends is not None:
        return ends[1] < _AT_ONCE_FROM
    if exchange.api_key == _PRODUCE and exchange.api_version >= _AT_ONCE_FROM:
        return False
    return (exchange.latency_ns or 0) >= throttle * 1_000_000


class ResponseTime(NamedTuple):
    """The time of one response, in ns. `work`: the broker's own time (not behind another request, not muted by a quota).
    `held`: `work` beyond what the request allowed the broker to wait. `behind`: the time spent waiting for the response to
    `blocker`, an api key of `LONG_POLLS` (-1 for none). `throttle_ms`: see the function."""

    work: int
    held: int
    behind: int
    blocker: int
    throttle_ms: int


def _last_answers() -> deque[tuple[int, int, int]]:
    return deque(maxlen=64)


def own_time_ns(held: DurationHistogram | None, share: float) -> int | None:
    """The broker's own time that `share` of the responses do not exceed. None where it cannot be known: a long poll that was answered
    within the time it allowed, or a response that came together with the one before it, shows 0."""
    found = 0 if held is None else int(held.quantile(share))
    return found if found > _NOTHING_NS else None


class ResponseTimes(Model):
    """Measures each exchange once for all detectors, and sets `ClientConnection.muted_ns`.

    `response_time`: of the exchange that has just finished, None without a response. `histograms`: of `held`, by broker and
    api key; without JoinGroup and SyncGroup, which wait for other members, and without throttled responses.
    """

    id = "waits"

    def setup(self) -> None:
        self.traffic.model(OfferedVersions)
        self.response_time: ResponseTime | None = None
        # By connection, the last responses: time, `work`, api key.
        self._answers: BoundedDict[int, deque[tuple[int, int, int]]] = BoundedDict(4096)
        self.histograms: BoundedDict[tuple[str, int], DurationHistogram] = BoundedDict(4096)

    def by_api(self) -> dict[int | None, DurationHistogram]:
        """The `histograms` of all brokers together, by api key; None: of all APIs but `LONG_POLLS`."""
        found: dict[int | None, DurationHistogram] = {}
        for (_, key), histogram in self.histograms.items():
            for each in (key,) if key in LONG_POLLS else (key, None):
                found.setdefault(each, DurationHistogram()).take(histogram)
        return found

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        self.response_time = self._read(conn, exchange)

    def _read(self, conn: ClientConnection, exchange: Exchange) -> ResponseTime | None:
        asked_ns, answered_ns = exchange.request_time_ns, exchange.response_time_ns
        if exchange.state is not State.PAIRED or asked_ns is None or answered_ns is None:
            return None
        answers = self._answers.get(conn.number)
        if answers is None:
            answers = self._answers[conn.number] = _last_answers()
        key = exchange.api_key
        polls = key in LONG_POLLS
        last_ns = answers[-1][0] if answers else 0
        free_ns = asked_ns if asked_ns > last_ns else last_ns
        if conn.muted_ns > free_ns:
            free_ns = conn.muted_ns
        work = answered_ns - free_ns if answered_ns > free_ns else 0
        behind, blocker = 0, -1
        if last_ns > asked_ns and not polls:
            for ended_ns, took, api in reversed(answers):
                overlap = ended_ns - max(asked_ns, ended_ns - took)
                if ended_ns <= asked_ns:
                    break
                if overlap > behind and api in LONG_POLLS:
                    behind, blocker = overlap, api
        answers.append((answered_ns, work, key))
        throttle = throttle_ms(exchange)
        if throttle and not kept_back(conn, exchange, throttle):
            conn.muted_ns = max(conn.muted_ns, answered_ns + throttle * 1_000_000)
        held = max(work - own_wait_ns(exchange), 0) if polls else work
        if not throttle and key != JOIN_GROUP and key != SYNC_GROUP:
            histogram = self.histograms.get((conn.broker, key))
            if histogram is None:
                histogram = self.histograms[conn.broker, key] = DurationHistogram()
            histogram.add(held)
        return ResponseTime(work, held, behind, blocker, throttle)

    def closed(self, conn: ClientConnection) -> None:
        self._answers.pop(conn.number, None)
