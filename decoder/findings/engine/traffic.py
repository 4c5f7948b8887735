"""What all detectors share: connections, clients, brokers and partition leaders.

`Traffic` is updated before models and detectors are called. Its size is bounded by the number of clients, brokers and
partitions; it drops connections that have ended (a detector may keep a `ClientConnection`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ...connection.api_versions import PeerInfo
from ...connection.connection import expects_no_response
from ...connection.exchange import Exchange, State
from ...connection.hit_notes import causes_in
from ...schema.plan import API_VERSIONS
from .clusters import NAMING, Cluster, Clusters

M = TypeVar("M")

MOST_AFFECTED = 10_000
"""Most clients remembered as affected by rules."""
MOST_SEARCHED = 32
"""Most waiting requests of a connection searched for the cause of an orphan response."""


class ClientIdentity(NamedTuple):
    """What makes connections one client's. `software`: ``"librdkafka 2.3.0"``, "" if unknown."""

    host: str
    client_id: str
    software: str


@dataclass(slots=True, eq=False, repr=False)
class ClientConnection:
    """One connection between a client and a broker. Times are nanoseconds since the epoch."""

    traffic: Traffic
    number: int
    client: str
    """``host:port``, as of `broker`."""
    broker: str
    opened_ns: int
    established: bool = True
    complete: bool = True
    """See `events.Opened`, as of `tls`."""
    tls: frozenset[str] = frozenset()
    client_host: str = field(init=False)
    client_id: str | None = None
    """Of the last request."""
    about: PeerInfo = field(default_factory=PeerInfo)
    closed_ns: int | None = None
    """None while it is open. `how` and `by`: see `events.Closed`."""
    how: str = ""
    by: str = ""
    requests: int = 0
    answers: int = 0
    """Responses so far, orphans included."""
    waiting: dict[Exchange, Exchange] = field(default_factory=dict)
    """Exchanges without a response, oldest first, by identity."""
    lost: int = 0
    """Bytes that were not captured or could not be read; `gone`: by direction."""
    gone: list[int] = field(default_factory=lambda: [0, 0])
    last_ns: int = field(init=False)
    last_activity_ns: int = -1
    """When the last request found no other waiting, or the last response came; -1 before the first."""
    pause_ns: int = 0
    """The silence before the last request that found no other waiting."""
    muted_ns: int = 0
    """Until when a quota keeps the broker from reading it (KIP-219), 0 if none did (see `ResponseTimes`)."""
    rules: tuple[str, ...] = ()
    """Names of the rules that affected it."""
    seen_kinds: set[tuple[int, int, str | None]] = field(default_factory=set)
    """API, version and client id of exchanges that went well."""
    failing: bool = False
    """Whether the last exchange did not go well."""
    identity: ClientIdentity = field(init=False)
    """The client, as far as its connections have shown it."""
    _named: tuple[str | None, str, str] = (None, "", "")
    """What `identity` was made of."""

    def __post_init__(self) -> None:
        self.client_host = self.client.rpartition(":")[0]
        self.last_ns = self.opened_ns
        self.identity = ClientIdentity(self.client_host, "", "")
        self.identify()

    def forget_kinds(self) -> None:
        """Treat the next successful exchange of each kind as new again (`detector.Wanted.NEW`)."""
        self.seen_kinds.clear()

    @property
    def software(self) -> str:
        """``"librdkafka 2.3.0"``, or "" if the client has not named it."""
        return self.identity.software

    def identify(self) -> None:
        """Renew `identity`: an event may have named the client. Detectors ask for it several times an exchange."""
        about, named = self.about, self._named
        if named[1] != about.software_name or named[2] != about.software_version or named[0] != self.client_id:
            self._named = self.client_id, about.software_name, about.software_version
            software = f"{about.software_name} {about.software_version}".strip()
            self.identity = ClientIdentity(self.client_host, self.client_id or "", software)

    @property
    def who(self) -> str:
        """The client as text: ``client 'stock-1' (librdkafka 2.3.0) at 10.0.0.5``."""
        name = f"client {self.client_id!r}" if self.client_id else "a client without a client id"
        return f"{name}{f' ({self.software})' if self.software else ''} at {self.client_host or 'an unknown address'}"

    @property
    def where(self) -> str:
        """The broker as text: ``broker 2 (kafka-2:9092)``, without the number if unknown."""
        node = self.cluster.node_at(self.broker)
        return f"broker {self.broker}" if node is None else f"broker {node} ({self.broker})"

    @property
    def cluster(self) -> Cluster:
        """The cluster that the broker belongs to."""
        return self.traffic.clusters.of(self.broker)

    @property
    def facts(self) -> dict[str, Any]:
        """Client and broker as plain values, for `Finding.about`."""
        return {"client_id": self.client_id, "software": self.software, "client": self.client, "broker": self.broker}

    def facts_of(self, exchange: Exchange | None) -> dict[str, Any]:
        """`facts`, and the API of an exchange (None where there is none)."""
        api, version = (exchange.api, exchange.api_version) if exchange is not None else (None, None)
        return {"api": api, "api_version": version, **self.facts}


@lru_cache(64)
def _causes(notes: tuple[str, ...]) -> tuple[str, ...]:
    """As `causes_in`. The notes of a request are asked for again when it is answered, and they are many in a fault injection."""
    return tuple(causes_in(notes))


def _causes_of_waiting(conn: ClientConnection) -> tuple[str, ...]:
    """The rules and plugins that affected requests still waiting: the `MOST_SEARCHED` oldest ones."""
    oldest = islice(conn.waiting.values(), MOST_SEARCHED)
    return tuple(dict.fromkeys(cause for each in oldest for notes in each.marks.every_notes() for cause in causes_in(notes)))


class Traffic:
    """Everything known now. `start_ns`, `now_ns`: the times of the first and the latest event."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.start_ns = 0
        self.connections: dict[int, ClientConnection] = {}
        self.causes: tuple[str, ...] = ()
        """The rules behind the event that detectors are handling, if it is not an exchange."""
        self.models: dict[Callable[[Traffic], Any], Any] = {}
        """Models by kind, in the order in which they are called."""
        self._affected: set[tuple[str, str | None]] = set()
        self.clusters = Clusters()

    def model(self, kind: Callable[[Traffic], M]) -> M:
        """The model of that kind, made on first use."""
        found: M | None = self.models.get(kind)
        if found is None:
            found = self.models[kind] = kind(self)
        return found

    def at(self, time_ns: int | None) -> None:
        """Advance the time."""
        if time_ns:
            if time_ns > self.now_ns:
                self.now_ns = time_ns
            if time_ns < self.start_ns or not self.start_ns:
                self.start_ns = time_ns

    def opened(self, number: int, client: str, broker: str, time_ns: int, established: bool = True) -> ClientConnection:
        """A connection begins."""
        self.at(time_ns)
        conn = self.connections[number] = ClientConnection(self, number, client, broker, time_ns, established)
        return conn

    def connection_of(self, exchange: Exchange) -> ClientConnection:
        """The connection of an exchange; made if its opening was not seen."""
        conn = self.connections.get(exchange.connection)
        if conn is None:
            time_ns = exchange.request_time_ns or exchange.response_time_ns or 0
            conn = self.opened(exchange.connection, exchange.client, exchange.broker, time_ns)
        return conn

    def request(self, exchange: Exchange) -> ClientConnection:
        """A request was sent."""
        conn = self.connections.get(exchange.connection) or self.connection_of(exchange)
        self.at(exchange.request_time_ns)
        if exchange.about is not None:
            conn.about = exchange.about
        if exchange.client_id is not None:
            conn.client_id = exchange.client_id
        conn.identify()
        conn.requests += 1
        conn.last_ns = exchange.request_time_ns or conn.last_ns
        waiting = conn.waiting
        waiting[exchange] = exchange
        if len(waiting) <= 1:
            at = exchange.request_time_ns or 0
            conn.pause_ns, conn.last_activity_ns = at - conn.last_activity_ns if conn.last_activity_ns >= 0 else 0, at
        return conn

    def done(self, exchange: Exchange) -> ClientConnection:
        """An exchange is done."""
        conn = self.connections.get(exchange.connection) or self.connection_of(exchange)
        self.at(exchange.response_time_ns)
        conn.waiting.pop(exchange, None)
        conn.last_ns = exchange.response_time_ns or conn.last_ns
        conn.answers += exchange.response is not None
        if conn.last_activity_ns >= 0 and exchange.state is not State.NO_RESPONSE:
            conn.last_activity_ns = exchange.response_time_ns or 0
        if exchange.about is None:
            conn.about.learn(exchange)  # exchanges from elsewhere than a connection's decoder
            conn.identify()
        elif conn.about is not exchange.about or exchange.api_key == API_VERSIONS:
            conn.about = exchange.about
            conn.identify()  # otherwise as of the request
        if exchange.api_key in NAMING:
            self.clusters.learn(exchange)
        return conn

    def mark_injected(self, conn: ClientConnection, exchange: Exchange) -> None:
        """Mark an exchange if rules or plugins affected it, or its client earlier."""
        marks = exchange.marks
        if (
            (marks.notes or marks.broker_request is not None or marks.broker_response is not None)
            and (found := [cause for notes in marks.every_notes() for cause in (_causes(tuple(notes)) if notes else ())])
        ):
            marks.rules = tuple(dict.fromkeys(found))
            conn.rules = tuple(dict.fromkeys((*conn.rules, *found)))
            if len(self._affected) < MOST_AFFECTED:
                self._affected.add((conn.client_host, exchange.client_id))
        elif conn.rules and exchange.state is State.NO_RESPONSE and not expects_no_response(exchange):
            marks.rules = conn.rules  # it waited behind one that they affected
        elif exchange.state is State.ORPHAN and (waiting := _causes_of_waiting(conn)):
            marks.rules = waiting  # they changed the correlation id of a response or its request
        elif self._affected and (conn.client_host, exchange.client_id) in self._affected:
            marks.after_rules = True

    def forget_kinds(self) -> None:
        """`ClientConnection.forget_kinds` on all connections."""
        for conn in self.connections.values():
            conn.forget_kinds()

    def closed(self, conn: ClientConnection, time_ns: int, how: str, by: str) -> None:
        """A connection ended."""
        self.at(time_ns)
        conn.closed_ns, conn.how, conn.by = time_ns, how, by
        self.connections.pop(conn.number, None)

    def cluster_of(self, address: str) -> Cluster:
        """The cluster of a broker's address; a new one until Metadata is seen."""
        return self.clusters.of(address)
