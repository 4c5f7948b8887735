"""What is known of fetching: each Fetch exchange read once for all detectors, and the session behind it (KIP-227).

In an incremental session a request names only the partitions whose position changed, and a response only those with
news; what was asked of the others is remembered here, per connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from ...codec.plan import plan
from ...connection.exchange import Exchange, State
from ...schema import facts
from ..engine.counters import BoundedDict
from ..engine.detector import Detector, Model
from ..engine.formatting import topic_name
from ..engine.layout import layout
from ..engine.traffic import ClientConnection, Traffic

FETCH = facts.api_key("Fetch")
_LINKS = 4096
"""Connections whose sessions are remembered; those beyond were never closed in what was captured."""

Place = tuple[str, int]
"""Topic (its id in base64 when the name was not seen) and partition."""


class FetchPartition(NamedTuple):
    """What a client asks of a partition. `epoch`: the leader epoch it believes in, -1 if it does not say."""

    offset: int
    max_bytes: int
    epoch: int


class PartitionData(NamedTuple):
    """What a broker answers for a partition; offsets it does not tell are -1. `replica`: where to read instead
    (KIP-392). `diverging`: (epoch, end offset) where the logs part, None when they do not. `records`: bytes."""

    place: Place
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    replica: int
    diverging: tuple[int, int] | None
    records: Any

    @property
    def size(self) -> int:
        """Bytes of records."""
        return len(self.records) if self.records is not None else 0


class FetchExchange:
    """One answered Fetch of a consumer. `positions`: everything the session asks for, this request included."""

    __slots__ = (
        "answered",
        "asked",
        "error",
        "exchange",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "new_session_id",
        "positions",
        "read_committed",
        "session_epoch",
        "throttle_ms",
    )

    exchange: Exchange
    asked: dict[Place, FetchPartition]
    answered: list[PartitionData]
    positions: dict[Place, FetchPartition]
    error: int
    throttle_ms: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_epoch: int
    new_session_id: int

    @property
    def time_ns(self) -> int:
        """When the answer came."""
        return self.exchange.response_time_ns or 0

    @property
    def full(self) -> bool:
        """Whether the request names all partitions: no session, or the first request of one."""
        return self.session_epoch <= 0

    @property
    def size(self) -> int:
        """Bytes of records in the answer."""
        return sum(a.size for a in self.answered)

    def offset(self, place: Place) -> int:
        """The offset that was asked for; -1 if not known (the session began before the capture)."""
        at = self.positions.get(place)
        return at.offset if at is not None else -1


class _Shape(NamedTuple):
    """Where the fields of one version stand, by name, at each of three levels."""

    root: Mapping[str, int]
    topic: Mapping[str, int]
    partition: Mapping[str, int]


@cache
def _shape(kind: str, version: int, topics: str) -> _Shape:
    root = plan(kind, FETCH, version).root
    return _Shape(layout(root), layout(root, topics), layout(root, topics, "partitions"))


class FetchReader(Model):
    """Reads Fetch exchanges of consumers, once for all detectors. `fetched`: what the last Fetch that was done says; None if
    it has no answer, cannot be decoded, or a replica asks (a broker's follower)."""

    id = "fetches"
    apis = frozenset({FETCH})

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._positions: BoundedDict[int, dict[Place, FetchPartition]] = BoundedDict(_LINKS)
        self.fetched: FetchExchange | None = None

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        self.fetched = self._read(conn, exchange)

    def _read(self, conn: ClientConnection, exchange: Exchange) -> FetchExchange | None:
        if exchange.state is not State.PAIRED:
            return None
        asked, answered = exchange.request_view, exchange.response_view
        if asked is None or answered is None:
            return None
        shape = _shape("request", asked.api_version, "topics")
        values = asked.values
        replica = values[shape.root["replica_id"]] if "replica_id" in shape.root else _replica(asked.values, shape)
        if replica >= 0:
            return None
        found = FetchExchange()
        found.exchange = exchange

        def field(name: str, missing: int) -> int:
            at = shape.root.get(name)
            return missing if at is None else values[at]

        found.max_wait_ms, found.min_bytes = field("max_wait_ms", 0), field("min_bytes", 0)
        found.max_bytes = field("max_bytes", 0x7FFFFFFF)
        found.read_committed = field("isolation_level", 0) == 1
        found.session_epoch = field("session_epoch", -1)
        found.asked = dict(_asked(exchange, values, shape))
        back = _shape("response", answered.api_version, "responses")
        root = answered.values
        found.throttle_ms = root[back.root["throttle_time_ms"]] if "throttle_time_ms" in back.root else 0
        found.error = root[back.root["error_code"]] if "error_code" in back.root else 0
        found.new_session_id = root[back.root["session_id"]] if "session_id" in back.root else 0
        found.answered = list(_answered(exchange, root, back))
        found.positions = self._follow(conn, found, dict.fromkeys(_forgotten(exchange, values, shape)))
        return found

    def _follow(self, conn: ClientConnection, fetched: FetchExchange, forgotten: dict[Place, None]) -> dict[Place, FetchPartition]:
        positions = self._positions.of(conn.number, dict)
        if fetched.full:
            positions.clear()
        for place in forgotten:
            positions.pop(place, None)
        positions.update(fetched.asked)
        return positions

    def closed(self, conn: ClientConnection) -> None:
        self._positions.pop(conn.number, None)


def _replica(values: tuple[Any, ...], shape: _Shape) -> int:
    """The replica's id since version 15, where it stands in a struct that consumers leave out (KIP-903)."""
    at = shape.root.get("replica_state")
    state = values[at] if at is not None else None
    replica: int = state[0] if state is not None else -1
    return replica


def _asked(exchange: Exchange, values: tuple[Any, ...], shape: _Shape) -> Iterator[tuple[Place, FetchPartition]]:
    name_at = shape.topic.get("topic", shape.topic.get("topic_id", 0))
    partitions_at = shape.topic["partitions"]
    number, offset = shape.partition["partition"], shape.partition["fetch_offset"]
    limit, epoch = shape.partition["partition_max_bytes"], shape.partition.get("current_leader_epoch")
    for topic in values[shape.root["topics"]] or ():
        name = topic_name(exchange, topic[name_at])
        for p in topic[partitions_at] or ():
            yield (name, p[number]), FetchPartition(p[offset], p[limit], p[epoch] if epoch is not None else -1)


def _forgotten(exchange: Exchange, values: tuple[Any, ...], shape: _Shape) -> Iterator[Place]:
    at = shape.root.get("forgotten_topics_data")
    for topic in (values[at] or ()) if at is not None else ():
        name = topic_name(exchange, topic[0])
        for partition in topic[1] or ():
            yield name, partition


def _answered(exchange: Exchange, values: tuple[Any, ...], shape: _Shape) -> Iterator[PartitionData]:
    name_at = shape.topic.get("topic", shape.topic.get("topic_id", 0))
    at = shape.partition
    stable, start = at.get("last_stable_offset"), at.get("log_start_offset")
    replica, diverging = at.get("preferred_read_replica"), at.get("diverging_epoch")
    for topic in values[shape.root["responses"]] or ():
        name = topic_name(exchange, topic[name_at])
        for p in topic[shape.topic["partitions"]] or ():
            diverges = p[diverging] if diverging is not None else None
            yield PartitionData(
                (name, p[at["partition_index"]]),
                p[at["error_code"]],
                p[at["high_watermark"]],
                p[stable] if stable is not None else -1,
                p[start] if start is not None else -1,
                p[replica] if replica is not None else -1,
                (diverges[0], diverges[1]) if diverges is not None and diverges[0] >= 0 else None,
                p[at["records"]],
            )


class FetchDetector(Detector):
    """A detector of consumers' fetches: subclasses override `fetched`."""

    apis = frozenset({FETCH})

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.fetches = traffic.model(FetchReader)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        """A consumer's Fetch was answered."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        fetched = self.fetches.fetched
        if fetched is not None and fetched.exchange is exchange:
            self.fetched(conn, fetched)
