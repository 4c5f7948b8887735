"""Clients as observed on connections: the versions they used, how often and when, what brokers offered and refused.

`ClientTracker` takes requests as an index lists them. Only ApiVersions exchanges, and Produce requests of versions that may have
old message formats, have to be decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from ..connection.api_versions import PeerInfo
from ..connection.exchange import Exchange, State
from ..records import RecordsError, batches
from ..reference import clients
from ..reference.releases import served_from
from ..schema import facts

API_VERSIONS = facts.api_key("ApiVersions")
PRODUCE = facts.api_key("Produce")
_FIRST_WITH_NAME = 3  # ApiVersions v3 names the client's software (KIP-511)
NEWEST_OLD_FORMAT = 2  # Produce v3 and up take magic 2 alone (KIP-98)
_UNSUPPORTED_VERSION = facts.error_code("UNSUPPORTED_VERSION")

Range = tuple[int, int]


class IndexedRequest(NamedTuple):
    """One request as an index has it. `client` and `broker` are ``host:port``, `error` is the response's first error code."""

    connection: int
    client: str
    broker: str
    client_id: str | None
    api_key: int
    api_version: int
    time_ns: int
    error: int
    state: State
    correlation_id: int = 0


class Negotiation(StrEnum):
    """Whether a client asks which versions the broker offers (KIP-35)."""

    ASKS = "asks"
    UNANSWERED = "unanswered"
    """It asked, and no broker answered: brokers before 0.10.0 do not know ApiVersions."""
    NEVER = "never"
    """It uses the versions that it was built or configured for."""
    UNKNOWN = "unknown"
    """Its connections began before the capture."""


@dataclass(slots=True)
class VersionUse:
    """One version of one API in use. `refused`: answered with UNSUPPORTED_VERSION, or by closing the connection if the broker
    does not offer it. `unanswered`: no response for another reason. Times are ns since the epoch."""

    api_key: int
    version: int
    count: int = 0
    refused: int = 0
    unanswered: int = 0
    first_ns: int = 0
    last_ns: int = 0

    @property
    def api(self) -> str:
        """The API's name."""
        return facts.api_name(self.api_key)

    def add(self, other: VersionUse) -> None:
        """Add the counts of another one."""
        self.first_ns = min(self.first_ns, other.first_ns) if self.count else other.first_ns
        self.last_ns = max(self.last_ns, other.last_ns)
        self.count += other.count
        self.refused += other.refused
        self.unanswered += other.unanswered


VersionUses = dict[tuple[int, int], VersionUse]


class _Identity(NamedTuple):
    """What the connections of one client have in common."""

    host: str
    client_id: str
    software_name: str
    software_version: str


@dataclass(slots=True)
class _Connection:
    host: str
    broker: str
    began: bool
    client_id: str = ""
    about: PeerInfo = field(default_factory=PeerInfo)
    asked: bool = False
    uses: VersionUses = field(default_factory=dict)
    formats: Counter[int] = field(default_factory=Counter)

    @property
    def first_ns(self) -> int:
        """When its first request was sent."""
        return min(use.first_ns for use in self.uses.values())

    @property
    def may_be_unnamed(self) -> bool:
        """Whether the connection could not name its software: it began before the capture, or its broker's ApiVersions is too
        old for it. Other connections may name it."""
        offered = self.about.range(API_VERSIONS)
        return not (self.began or self.asked) or (offered is not None and offered[1] < _FIRST_WITH_NAME)


@dataclass(slots=True)
class ObservedClient:
    """One client: connections of one host with one client id and one software.

    `offered`: by broker, as it answered this or another client. `formats`: how many messages of old formats it produced, by
    magic (0 or 1; magic 2 is not counted).
    """

    host: str
    client_id: str
    software_name: str
    software_version: str
    negotiation: Negotiation = Negotiation.UNKNOWN
    connections: int = 0
    uses: VersionUses = field(default_factory=dict)
    offered: dict[str, dict[int, Range]] = field(default_factory=dict)
    formats: Counter[int] = field(default_factory=Counter)

    @property
    def software_label(self) -> str:
        """Name and version of the software as the client sends them, or ""."""
        return f"{self.software_name} {self.software_version}".strip()

    @property
    def software(self) -> clients.Software | None:
        """What is known of this software."""
        return clients.software(self.software_name, self.software_version, self.client_id)

    @property
    def first_ns(self) -> int:
        """When it was first seen."""
        return min(use.first_ns for use in self.uses.values())

    @property
    def last_ns(self) -> int:
        """When it was last seen."""
        return max(use.last_ns for use in self.uses.values())

    @property
    def requests(self) -> int:
        """How many requests it sent."""
        return sum(use.count for use in self.uses.values())

    def ranges(self, api_key: int) -> list[Range]:
        """The different ranges of an API that its brokers offer, ascending; empty if none is known."""
        return sorted({offer[api_key] for offer in self.offered.values() if api_key in offer})

    def versions(self, api_key: int) -> dict[int, VersionUse]:
        """The versions of an API that it used, ascending."""
        return {use.version: use for _, use in sorted(self.uses.items()) if use.api_key == api_key}


class ClientTracker:
    """Follows the clients of captures, one capture after another."""

    def __init__(self) -> None:
        self._capture = 0
        self._own = True
        self._connections: dict[tuple[int, int], _Connection] = {}

    def capture(self, own: bool) -> None:
        """Begin another capture, with connection numbers of its own. `own`: it has every connection from the start."""
        self._capture += 1
        self._own = own

    def request(self, seen: IndexedRequest) -> None:
        """Count a request. Responses without a request (orphans) are ignored."""
        if seen.state is State.ORPHAN or seen.api_key < 0:
            return
        connection = self._connection(seen)
        if seen.client_id:
            connection.client_id = seen.client_id
        use = connection.uses.get((seen.api_key, seen.api_version))
        if use is None:
            use = connection.uses[seen.api_key, seen.api_version] = VersionUse(seen.api_key, seen.api_version, first_ns=seen.time_ns)
        use.count += 1
        use.first_ns, use.last_ns = min(use.first_ns, seen.time_ns), max(use.last_ns, seen.time_ns)
        if seen.error == _UNSUPPORTED_VERSION:
            use.refused += 1
        elif seen.state is State.NO_RESPONSE:
            use.unanswered += 1

    def api_versions(self, seen: IndexedRequest, exchange: Exchange) -> None:
        """Learn from an ApiVersions exchange, after `request` was called for it."""
        connection = self._connection(seen)
        connection.asked = True
        connection.about.learn(exchange)

    def produced(self, seen: IndexedRequest, exchange: Exchange) -> None:
        """Count the old message formats of a Produce request, after `request` was called for it."""
        connection, message = self._connection(seen), exchange.request_view
        if message is None or seen.api_version > NEWEST_OLD_FORMAT:
            return
        for topic in message.to_dict()["topic_data"]:
            for partition in topic["partition_data"]:
                connection.formats.update(magic for magic in _magics(partition["records"] or b"") if magic in (0, 1))

    def _connection(self, seen: IndexedRequest) -> _Connection:
        key = self._capture, seen.connection
        connection = self._connections.get(key)
        if connection is None:
            # In other captures than our own a connection may have begun before. Most clients count from 0 or 1.
            began = self._own or seen.correlation_id in (0, 1)
            host = seen.client.rpartition(":")[0].strip("[]")
            connection = self._connections[key] = _Connection(host, seen.broker, began)
        return connection

    def clients(self) -> list[ObservedClient]:
        """All clients that were seen, by host, client id and software."""
        groups: dict[_Identity, list[_Connection]] = {}
        for connection in self._connections.values():
            if connection.uses:
                about = connection.about
                key = _Identity(connection.host, connection.client_id, about.software_name, about.software_version)
                groups.setdefault(key, []).append(connection)
        for key in [key for key in groups if not key.software_name]:
            candidates = [other for other in groups if other[:2] == key[:2] and other.software_name]
            if len(candidates) != 1:
                continue
            theirs, rest = groups[candidates[0]], list[_Connection]()
            known = clients.software(candidates[0].software_name, candidates[0].software_version)
            # Of unknown software, one client too few is better than a client reported as never asking.
            once = known is None or known.client.asks == "once"
            asked_ns = min(connection.first_ns for connection in theirs)
            for connection in groups.pop(key):
                same_software = once and not connection.asked and connection.first_ns >= asked_ns
                (theirs if same_software or connection.may_be_unnamed else rest).append(connection)
            if rest:
                groups[key] = rest
        offers: dict[str, dict[int, Range]] = {}
        for connection in self._connections.values():
            if connection.about.offered:
                offers.setdefault(connection.broker, {}).update(connection.about.offered)
        return [_client(key, connections, offers) for key, connections in sorted(groups.items())]


def _magics(data: bytes) -> Iterable[int]:
    try:
        for entry in batches(data):
            yield -1 if entry.magic is None else entry.magic
    except RecordsError:
        return


def _client(key: _Identity, connections: list[_Connection], offers: dict[str, dict[int, Range]]) -> ObservedClient:
    seen = ObservedClient(*key, connections=len(connections))
    for connection in connections:
        seen.formats += connection.formats
        offered = offers.get(connection.broker)
        if offered is not None:
            seen.offered[connection.broker] = offered
        for (api_key, version), use in connection.uses.items():
            seen.uses.setdefault((api_key, version), VersionUse(api_key, version)).add(_with_refusals(use, offered))
    if any(connection.about.offered for connection in connections):
        seen.negotiation = Negotiation.ASKS
    elif any(connection.asked for connection in connections):
        seen.negotiation = Negotiation.UNANSWERED
    elif all(connection.began for connection in connections):
        seen.negotiation = Negotiation.NEVER
    return seen


def _with_refusals(use: VersionUse, offered: dict[int, Range] | None) -> VersionUse:
    """The use with missing responses counted as refusals if the broker does not serve the version."""
    if not use.unanswered:
        return use
    if offered is not None and use.api_key != API_VERSIONS:
        ends = offered.get(use.api_key)
        if ends is None or not served_from(use.api_key, ends) <= use.version <= ends[1]:
            return replace(use, refused=use.refused + use.unanswered, unanswered=0)
    # With acks=0 there is no response.
    return replace(use, unanswered=0) if use.api_key == PRODUCE else use
