"""Fetch exchanges, each read once for all detectors, and the sessions behind them (KIP-227).

In an incremental session a request names only the partitions whose position changed, and a response only those with
news; what was asked of the others is remembered here, per connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...codec.message_view import MessageView
from ...connection.exchange import Exchange, State
from ...schema import facts
from ..engine.counters import BoundedDict
from ..engine.detector import Detector, Model
from ..engine.formatting import topic_name
from ..engine.layout import layout, partition_places
from ..engine.traffic import ClientConnection, Traffic

FETCH = facts.api_key("Fetch")
_LINKS = 4096
"""Most connections whose sessions are kept: a capture may not show the end of some."""

Place = tuple[str, int]
"""Topic (its id in base64 when the name was not seen) and partition."""


class FetchPartition(NamedTuple):
    """A partition of a Fetch request. `epoch`: the leader epoch that the client knows, -1 if not given."""

    offset: int
    max_bytes: int
    epoch: int


class PartitionData(NamedTuple):
    """A partition of a Fetch response; missing offsets are -1. `replica`: where to read instead (KIP-392). `diverging`:
    (epoch, end offset) where the logs diverge, None if they do not. `records`: bytes, `size` of them."""

    place: Place
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    replica: int
    diverging: tuple[int, int] | None
    records: Any
    size: int


@dataclass(slots=True, eq=False)
class FetchExchange:
    """One answered Fetch of a consumer. `positions`: everything the session asks for, this request included. `size`: bytes of records in
    the response."""

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
    size: int

    @property
    def time_ns(self) -> int:
        """When the response arrived."""
        return self.exchange.response_time_ns or 0

    @property
    def full(self) -> bool:
        """Whether the request names all partitions: no session, or the first request of one."""
        return self.session_epoch <= 0

    def offset(self, place: Place) -> int:
        """The requested offset; -1 if unknown (the session began before the capture)."""
        at = self.positions.get(place)
        return at.offset if at is not None else -1


class FetchReader(Model):
    """Reads the Fetch exchanges of consumers, once for all detectors. `fetched`: the last finished Fetch; None without a
    response, if it cannot be decoded, or if it is a follower's."""

    id = "fetches"
    apis = frozenset({FETCH})

    def setup(self) -> None:
        self._positions: BoundedDict[int, dict[Place, FetchPartition]] = BoundedDict(_LINKS)
        self.fetched: FetchExchange | None = None

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        self.fetched = self._read(conn, exchange)

    def _read(self, conn: ClientConnection, exchange: Exchange) -> FetchExchange | None:
        if exchange.state is not State.PAIRED:
            return None
        request, response = exchange.request_view, exchange.response_view
        if request is None or response is None:
            return None
        at, values = layout(request.plan.root), request.values
        if from_follower(request):
            return None
        back, answers = layout(response.plan.root), response.values
        partitions = _asked(exchange, request)
        session_epoch = values[at["session_epoch"]] if "session_epoch" in at else -1
        positions = self._positions.of(conn.number, dict)
        if session_epoch <= 0:
            positions.clear()
        for place in _forgotten(exchange, values, at):
            positions.pop(place, None)
        positions.update(partitions)
        answered = _answered(exchange, response)
        return FetchExchange(
            exchange,
            partitions,
            answered,
            positions,
            answers[back["error_code"]] if "error_code" in back else 0,
            answers[back["throttle_time_ms"]] if "throttle_time_ms" in back else 0,
            values[at["max_wait_ms"]],
            values[at["min_bytes"]],
            values[at["max_bytes"]] if "max_bytes" in at else 0x7FFFFFFF,
            "isolation_level" in at and values[at["isolation_level"]] == 1,
            session_epoch,
            answers[back["session_id"]] if "session_id" in back else 0,
            sum([part.size for part in answered]),
        )

    def closed(self, conn: ClientConnection) -> None:
        self._positions.pop(conn.number, None)


@dataclass(slots=True)
class Bounds:
    """The log start and high watermark of a partition, as `broker` answered them last (`time_ns`)."""

    start: int = -1
    end: int = -1
    broker: str = ""
    time_ns: int = 0


class LogBounds(Model):
    """The logs of partitions, as Fetch responses show them: `known` by place."""

    id = "log-bounds"
    apis = frozenset({FETCH})

    def setup(self) -> None:
        self._reader = self.traffic.model(FetchReader)
        self.known: BoundedDict[Place, Bounds] = BoundedDict(20_000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        fetched = self._reader.fetched
        for answer in fetched.answered if fetched is not None else ():
            if not answer.error:
                bounds = self.known.of(answer.place, Bounds)
                bounds.start, bounds.end, bounds.broker = answer.log_start, answer.high_watermark, conn.broker
                bounds.time_ns = exchange.response_time_ns or 0


def from_follower(request: MessageView) -> bool:
    """Whether a broker sends a request (Fetch, ListOffsets ...) as a follower. From Fetch v15 on its id is in a struct that consumers leave
    out (KIP-903)."""
    at, values = layout(request.plan.root), request.values
    state = values[at["replica_state"]] if "replica_state" in at else None
    replica: int = values[at["replica_id"]] if "replica_id" in at else state[0] if state is not None else -1
    return replica >= 0


def _asked(exchange: Exchange, message: MessageView) -> dict[Place, FetchPartition]:
    places = partition_places(message.plan.root, "topics", "partitions")
    at = places.fields
    number, offset, limit, epoch = at["partition"], at["fetch_offset"], at["partition_max_bytes"], at.get("current_leader_epoch")
    found = {}
    for topic in message.values[places.topics] or ():
        name = topic_name(exchange, topic[places.name])
        for p in topic[places.partitions] or ():
            found[name, p[number]] = FetchPartition(p[offset], p[limit], p[epoch] if epoch is not None else -1)
    return found


def _forgotten(exchange: Exchange, values: tuple[Any, ...], root: Mapping[str, int]) -> Iterator[Place]:
    at = root.get("forgotten_topics_data")
    for topic in (values[at] or ()) if at is not None else ():
        name = topic_name(exchange, topic[0])
        for partition in topic[1] or ():
            yield name, partition


def _answered(exchange: Exchange, message: MessageView) -> list[PartitionData]:
    places = partition_places(message.plan.root, "responses", "partitions")
    at = places.fields
    number, error, high, records = at["partition_index"], at["error_code"], at["high_watermark"], at["records"]
    stable, start = at.get("last_stable_offset"), at.get("log_start_offset")
    replica, diverging = at.get("preferred_read_replica"), at.get("diverging_epoch")
    found = []
    for topic in message.values[places.topics] or ():
        name = topic_name(exchange, topic[places.name])
        for p in topic[places.partitions] or ():
            diverges, data = p[diverging] if diverging is not None else None, p[records]
            found.append(PartitionData(
                (name, p[number]),
                p[error],
                p[high],
                p[stable] if stable is not None else -1,
                p[start] if start is not None else -1,
                p[replica] if replica is not None else -1,
                (diverges[0], diverges[1]) if diverges is not None and diverges[0] >= 0 else None,
                data,
                len(data) if data is not None else 0,
            ))
    return found


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
