"""The table `connections`: one row per connection, when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...decoder import Exchange, ExchangeDone, RequestSeen, State
from ...decoder.connection.api_versions import PeerInfo
from ...decoder.connection.events import Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ...decoder.schema import facts
from ..reading.capture import Capture
from ..reading.context import Origin
from ..reading.reader import RequestKey
from ..reading.segment_map import IndexMismatch, SegmentMap
from ..recording.index import CUT, DTYPE, STATE_MASK, STATES
from .columns import TABLES, numpy

CONNECTIONS = TABLES["connections"]
_COUNTS = [column.name for column in CONNECTIONS.columns[CONNECTIONS.columns.index(CONNECTIONS.column("exchanges")) :]]
_DUE = State.NO_RESPONSE, State.PENDING
_API_VERSIONS, _PRODUCE = facts.api_key("ApiVersions"), facts.api_key("Produce")


class _Connection:
    """A connection that is open."""

    def __init__(self, origin: Origin, number: int) -> None:
        self.row: dict[str, Any] = {column.name: None for column in CONNECTIONS.columns}
        self.row |= {"capture_id": origin.capture_id, "connection": number, "client": "", "broker": "", "established": True}
        self.row |= dict.fromkeys(_COUNTS, 0)
        self.wanted = False

    def frame(self, exchange: Exchange, frame: bytes | None, time_ns: int | None, side: str) -> None:
        row = self.row
        if frame is None or time_ns is None:
            return
        row["first_ns"] = time_ns if row["first_ns"] is None else min(row["first_ns"], time_ns)
        row["last_ns"] = time_ns if row["last_ns"] is None else max(row["last_ns"], time_ns)
        row[side] += len(frame) + 4
        row["client"], row["broker"] = row["client"] or exchange.client, row["broker"] or exchange.broker

    def done(self, exchange: Exchange) -> None:
        row = self.row
        row["exchanges"] += 1
        row["errors"] += bool(exchange.error)
        row["orphans"] += exchange.state is State.ORPHAN
        if row["client_id"] is None:
            row["client_id"] = exchange.client_id
        if exchange.about is not None and exchange.about.software_name:
            row["software_name"] = exchange.about.software_name
            row["software_version"] = exchange.about.software_version
        if exchange.state in _DUE and not _wants_none(exchange):
            row["unanswered"] += 1


def key_of(exchange: Exchange) -> RequestKey:
    """The key of an exchange's request."""
    return RequestKey(exchange.connection, exchange.correlation_id, exchange.request_time_ns or 0)


def _wants_none(exchange: Exchange) -> bool:
    """A Produce with acks=0."""
    asked = exchange.request_message if exchange.api == "Produce" else None
    return asked is not None and asked["acks"] == 0


class PendingExchanges:
    """Adds an `ExchangeDone` for each request that was still in flight when its connection, or the capture, ended."""

    def __init__(self) -> None:
        self._in_flight: dict[int, dict[int, Exchange]] = {}

    def feed(self, event: ConnectionEvent) -> Iterator[ConnectionEvent]:
        """The event, behind what it settles."""
        in_flight = self._in_flight
        if isinstance(event, RequestSeen):
            exchange = event.exchange
            in_flight.setdefault(exchange.connection, {})[id(exchange)] = exchange
        elif isinstance(event, ExchangeDone):
            in_flight.get(event.exchange.connection, {}).pop(id(event.exchange), None)
        elif isinstance(event, (Opened, Closed)):
            yield from map(ExchangeDone, in_flight.pop(event.connection, {}).values())
        yield event

    def rest(self) -> Iterator[ConnectionEvent]:
        """The events that only the end of the capture decides."""
        for left in self._in_flight.values():
            yield from map(ExchangeDone, left.values())


class ConnectionRows:
    """The rows; with `wanted`, of the connections of which an exchange passes. Figures are of the whole connection.

    `elsewhere`: requests that were pending at the end of the file and count in the next one.
    """

    def __init__(
        self, origin: Origin, wanted: Callable[[Exchange], bool] | None = None, elsewhere: Collection[RequestKey] = ()
    ) -> None:
        self._origin, self._wanted, self._elsewhere = origin, wanted, elsewhere
        self._pending = PendingExchanges()
        self._still: dict[int, _Connection] = {}

    def _of(self, number: int) -> _Connection:
        found = self._still.get(number)
        if found is None:
            found = self._still[number] = _Connection(self._origin, number)
        return found

    def _shown(self, here: _Connection) -> bool:
        return self._wanted is None or here.wanted

    def feed(self, event: ConnectionEvent) -> Iterator[dict[str, Any]]:
        """The rows of connections that ended by it."""
        for each in self._pending.feed(event):
            yield from self._counted(each)

    def _counted(self, event: ConnectionEvent) -> Iterator[dict[str, Any]]:
        if isinstance(event, ExchangeDone):
            exchange = event.exchange
            if self._elsewhere and key_of(exchange) in self._elsewhere:
                return
            here = self._of(exchange.connection)
            if exchange.state is not State.ORPHAN:
                here.frame(exchange, exchange.request, exchange.request_time_ns, "request_bytes")
            here.frame(exchange, exchange.response, exchange.response_time_ns, "response_bytes")
            here.done(exchange)
            if self._wanted is not None and not here.wanted:
                here.wanted = self._wanted(exchange)
        elif isinstance(event, Opened):
            before = self._still.pop(event.connection, None)  # another recording in the same folder
            if before is not None and self._shown(before):
                yield self._row(before)
            here = self._of(event.connection)
            here.row |= {
                "client": event.client,
                "broker": event.broker,
                "opened_ns": event.time_ns,
                "established": event.established,
            }
        elif isinstance(event, NonKafkaData):
            self._of(event.connection).row["stray_bytes"] += len(event.opaque.data)
        elif isinstance(event, Missing):
            self._of(event.connection).row["missing_bytes"] += event.size
        elif isinstance(event, Closed):
            here = self._of(event.connection)
            del self._still[event.connection]
            if event.how:
                here.row |= {"closed_ns": event.time_ns, "end": event.how, "ended_by": event.by or None}
            if self._shown(here):
                yield self._row(here)
        elif isinstance(event, RequestSeen):
            self._of(event.exchange.connection)

    def rest(self) -> Iterator[dict[str, Any]]:
        """The rows of those that did not end."""
        for each in self._pending.rest():
            yield from self._counted(each)
        yield from (self._row(here) for here in self._still.values() if self._shown(here))

    def _row(self, here: _Connection) -> dict[str, Any]:
        return here.row | self._origin.context.broker(here.row["broker"])._asdict()


def connection_rows(
    events: Iterable[ConnectionEvent], origin: Origin, wanted: Callable[[Exchange], bool] | None = None
) -> Iterator[dict[str, Any]]:
    found = ConnectionRows(origin, wanted)
    for event in events:
        yield from found.feed(event)
    yield from found.rest()


def connections_of_parts(parts: Iterable[Mapping[str, Any]], origin: Origin) -> Iterator[dict[str, Any]]:
    """The rows of a recording, in the order in which connections ended. `parts`: rows of its segments, in their order.

    A connection that a segment leaves open goes on in the row of that number in a later one. Only open ones are held.
    """
    still: dict[int, dict[str, Any]] = {}

    def named(row: dict[str, Any]) -> dict[str, Any]:
        return row | origin.context.broker(row["broker"])._asdict()

    for part in parts:
        number = part["connection"]
        row = still.pop(number, None)
        row = dict(part) if row is None else _continued(row, part)
        if row["end"] is None:
            still[number] = row
        else:
            yield named(row)
    yield from map(named, still.values())


def _continued(row: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """One row of both parts of a connection."""
    first = {name: row[name] if row[name] not in (None, "") else part[name] for name in ("client", "broker", "client_id", "first_ns")}
    last = {name: row[name] if part[name] is None else part[name] for name in ("software_name", "software_version", "last_ns")}
    ending = {name: part[name] for name in ("closed_ns", "end", "ended_by")}
    return {**row, **first, **last, **ending, **{name: row[name] + part[name] for name in _COUNTS}}


def connections_of_index(capture: Capture, origin: Origin, numbers: Any) -> Iterator[dict[str, Any]]:
    """The rows of one closed segment, or of a capture of another tool, of whose exchanges `numbers` count: counted in its index (of 40,000 exchanges in 0.1 s of
    CPU instead of 4.5 s with `connection_rows`); only requests by which clients ask for versions, and unanswered ones, are read. Raises
    `IndexMismatch` for a file that is not as it should be, before the first row."""
    file = capture.segments[0]
    between: Sequence[ConnectionEvent]
    if file.own is None:
        if file.ends is None:
            raise IndexMismatch("bytes that are no frames, or were not captured")
        between = file.ends
        records = file.index.array() if file.index.count else numpy().empty(0, numpy().dtype(DTYPE))
    else:
        segment = SegmentMap(file)
        between, records = list(segment.between_frames()), segment.records
    figures = _figures(records[numbers], capture, numbers)
    found = ConnectionRows(origin)
    ended = [row for event in between for row in found.feed(event)]
    ended += found.rest()
    known = {row["connection"] for row in ended}
    if len(known) < len(ended) or not known >= set(figures):
        raise IndexMismatch("a number that two connections have")
    for row in ended:
        yield row | figures.get(row["connection"], {})


def _figures(records: Any, capture: Capture, rows: Any) -> dict[int, dict[str, Any]]:
    """By connection: the columns that frames and exchanges make up, of these records of the index, which are its `rows`."""
    np = numpy()
    numbers, where = np.unique(records["connection"], return_inverse=True)
    count = len(numbers)
    states, orphan = records["flags"] & STATE_MASK, STATES.index(State.ORPHAN)

    def counted(mask: Any) -> list[int]:
        found: list[int] = np.bincount(where[mask], minlength=count).tolist()
        return found

    sums = {"request_bytes": np.zeros(count, np.int64), "response_bytes": np.zeros(count, np.int64)}
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    frames = np.where(records["latency_ns"] > 0, records["latency_ns"], 0) + records["time_ns"]
    sides = (
        ("request", (records["request_offset"] >= 0) & (states != orphan), records["time_ns"]),
        ("response", records["response_offset"] >= 0, np.where(records["request_offset"] >= 0, frames, records["time_ns"])),
    )
    for side, there, times in sides:
        at = where[there]
        kept = records[f"{side}_size"].astype(np.int64)
        for number in np.flatnonzero(there & (records["flags"] & CUT != 0)):
            frame = getattr(capture.exchange(int(rows[number])), side)
            kept[number] = len(frame or b"")
        np.add.at(sums[f"{side}_bytes"], at, kept[there] + 4)
        np.minimum.at(low, at, times[there])
        np.maximum.at(high, at, times[there])
    exchanges, errors, orphans = counted(slice(None)), counted(records["error"] != 0), counted(states == orphan)
    without = np.isin(states, [STATES.index(state) for state in _DUE])
    asked = without & (records["api_key"] == _PRODUCE)
    due = without.copy()
    for number in np.flatnonzero(asked):
        due[number] = not _wants_none(capture.exchange(int(rows[number])))
    unanswered = counted(due)
    # The first one of a connection that has a client id, in the order in which they were done.
    named = np.flatnonzero(records["client_id"] != 0)
    _, firsts = np.unique(where[named], return_index=True)
    ids = {int(where[named[first]]): capture.exchange(int(rows[named[first]])).client_id for first in firsts}
    peer_infos = _abouts(records, capture, rows)
    return {
        int(number): {
            "client_id": ids.get(at),
            "software_name": peer_infos.get(int(number), (None, None))[0],
            "software_version": peer_infos.get(int(number), (None, None))[1],
            "first_ns": int(low[at]),
            "last_ns": int(high[at]),
            "exchanges": exchanges[at],
            "errors": errors[at],
            "orphans": orphans[at],
            "unanswered": unanswered[at],
            "request_bytes": int(sums["request_bytes"][at]),
            "response_bytes": int(sums["response_bytes"][at]),
        }
        for at, number in enumerate(numbers)
    }


def _abouts(records: Any, capture: Capture, rows: Any) -> dict[int, tuple[str, str]]:
    """Name and version of the clients' software, by connection."""
    found: dict[int, tuple[str, str]] = {}
    paired = records["flags"] & STATE_MASK == STATES.index(State.PAIRED)
    for number in numpy().flatnonzero((records["api_key"] == _API_VERSIONS) & paired):
        exchange, about = capture.exchange(int(rows[number])), PeerInfo()
        about.learn(exchange)
        if about.software_name:
            found[exchange.connection] = about.software_name, about.software_version
    return found
