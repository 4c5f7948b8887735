"""Addresses that brokers advertise: never reached, broken, duplicate, changing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ....codec.codec import decode_response
from ....codec.message_view import MessageView, lists_at, view_of
from ....connection.exchange import Exchange, State
from ....errors import DecodeError
from ....schema import facts
from ...engine.clusters import brokers_of
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Model
from ...engine.finding import Finding, Severity
from ...engine.host import host_port, is_loopback, is_number, is_private, is_unspecified, same_place, split
from ...engine.layout import layout
from ...engine.traffic import ClientConnection

_METADATA = facts.api_key("Metadata")
_FIND_COORDINATOR = facts.api_key("FindCoordinator")
_DESCRIBE_CLUSTER = facts.api_key("DescribeCluster")
_NAMING = frozenset({_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER})
# Requests that any broker answers: they do not show that the client reached the advertised one.
_OF_ANYBODY = _NAMING | {
    facts.api_key(name)
    for name in (
        "ApiVersions", "SaslHandshake", "SaslAuthenticate", "InitProducerId", "GetTelemetrySubscriptions",
        "PushTelemetry", "DescribeTopicPartitions",
    )
}  # fmt: skip
_JAVA = "apache-kafka-java"
_CONTAINER = re.compile(r"[0-9a-f]{12}")
"""The host name that Docker gives a container."""
_KUBERNETES = re.compile(r"\.svc(\.|$)|\.cluster\.local$|-headless(\.|$)")
"""Names that Kubernetes gives services and pods; its DNS alone resolves them."""
_PATIENCE_NS = 15_000_000_000  # a client that waits longer before it asks again is not stuck
MOST_CLIENTS = 4096
MOST_ADDRESSES = 4096


class _AdvertisedAddresses(Model):
    """Reads the responses of `_NAMING`. Keeps the last one read: detectors ask one after the other."""

    id = "addresses"

    def setup(self) -> None:
        self._last: tuple[Exchange | None, list[tuple[int, str]]] = None, []

    def named(self, exchange: Exchange) -> list[tuple[int, str]]:
        """(node id, ``host:port``) of every broker in a response; [] for refusals."""
        if self._last[0] is not exchange:
            message = exchange.response_view
            found = self.traffic.clusters.named(exchange) if exchange.api_key == _METADATA else [] if message is None else _named(message)
            self._last = exchange, found
        return self._last[1]


def _named(message: MessageView) -> list[tuple[int, str]]:
    if message.api_key == _METADATA:
        return brokers_of(message)
    names = {f.name for f in message.plan.root.fields}
    if message.api_key == _DESCRIBE_CLUSTER:
        paths: tuple[str, ...] = ("brokers.broker_id", "brokers.host", "brokers.port")
    elif "coordinators" in names:
        paths = ("coordinators.node_id", "coordinators.host", "coordinators.port")
    else:
        paths = ("node_id", "host", "port")
    found = lists_at(message, *paths)
    return [(node, host_port(host, port)) for node, host, port in zip(*found, strict=True) if node >= 0]


@dataclass(slots=True)
class _Seeker:
    """A client that asks where brokers are: the addresses it got, and whether it uses them."""

    conn: ClientConnection
    addresses: dict[str, int] = field(default_factory=dict)
    exchange: Exchange | None = None
    wants: bool = False
    asked: int = 0
    connections: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def reset(self) -> None:
        """It used an address: count from zero."""
        self.asked = self.connections = self.first_ns = self.last_ns = 0

    def learn(self, conn: ClientConnection, exchange: Exchange, answers: list[tuple[int, str]], wants: bool) -> None:
        now = exchange.response_time_ns or 0
        if now - self.last_ns > _PATIENCE_NS:
            self.reset()
        if exchange.api_key == _METADATA:
            self.addresses = {}
        self.addresses.update((address, node) for node, address in answers)
        self.connections += not self.asked or self.conn.number != conn.number
        self.conn, self.exchange, self.wants = conn, exchange, self.wants or wants
        self.asked += 1
        self.last_ns = now
        self.first_ns = self.first_ns or self.last_ns


class UnreachableAdvertisedAddress(Detector):
    """A client gets a broker's address and never reaches it.

    A connection that is refused or unanswered proves it. Without an attempt (a name that does not resolve, a capture
    taken elsewhere), the sign is a client that asks for the same topics or coordinator again and again and does nothing
    with valid responses; fewer times suffice if the address is implausible for it.
    """

    id = "unreachable-advertised-address"
    severity = Severity.HIGH
    title = "a client gets a broker's address and never reaches it (advertised.listeners)"
    usual_apis = _NAMING

    REFUSALS = 3
    """Failed attempts; one or two happen while a broker starts."""
    LOOKUPS, CONNECTIONS, LOOKUP_NS = 5, 3, 5_000_000_000
    """Responses without effect, their connections, and over how long: clients refresh metadata every 5 minutes, and at
    their start ask 2 or 3 times within a second. A monitor that asks every second uses one connection; a client that is
    stuck reconnects."""
    HINTED, HINTED_NS = 3, 2_000_000_000
    """The same, on any connection, where the address hints at the fault."""

    def setup(self) -> None:
        self._addresses = self.traffic.model(_AdvertisedAddresses)
        self._seekers: BoundedDict[tuple[str, str], _Seeker] = BoundedDict(MOST_CLIENTS)
        self._reached: BoundedDict[tuple[str, str], None] = BoundedDict(MOST_ADDRESSES)
        self._tried: BoundedDict[tuple[str, str], int] = BoundedDict(MOST_ADDRESSES)

    def opened(self, conn: ClientConnection) -> None:
        if conn.established:
            self._reached[conn.client_host, conn.broker] = None

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        if self._seekers and exchange.api_key not in _OF_ANYBODY:
            seeker = self._seekers.get((conn.client_host, conn.client_id or ""))
            if seeker is not None and seeker.asked:
                seeker.reset()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key not in _NAMING or exchange.state is not State.PAIRED or exchange.error:
            return
        answers = self._addresses.named(exchange)
        if not answers:
            return
        seeker = self._seekers.of((conn.client_host, conn.client_id or ""), lambda: _Seeker(conn))
        seeker.learn(conn, exchange, answers, _wants(exchange))
        self._silent(seeker)

    def closed(self, conn: ClientConnection) -> None:
        if conn.established or conn.how not in ("refused", "unreached"):
            return
        key = conn.client_host, conn.broker
        self._tried[key] = self._tried.get(key, 0) + 1
        if self._tried[key] < self.REFUSALS or key in self._reached:
            return
        for (host, _), seeker in self._seekers.items():
            for address, node in seeker.addresses.items() if host == conn.client_host else ():
                # Behind a proxy clients get its address, and the connection tried is to the broker's own.
                tried = same_place(address, conn.broker) or seeker.conn.cluster.node_at(conn.broker) == node
                if tried and not self._got_there(seeker, address, node):
                    word = "is refused" if conn.how == "refused" else "gets no answer"
                    found = self._report(seeker, address, node, conn.closed_ns)
                    found.count = max(found.count, self._tried[key])
                    where = address if same_place(address, conn.broker) else conn.broker
                    found.seen = (
                        f"{seeker.conn.who} got the address {where} for broker {node} from {seeker.conn.where}, and "
                        f"{word} there, {self._tried[key]} times"
                    )
                    return

    def _silent(self, seeker: _Seeker) -> None:
        """Report addresses that the client asks for again and again without using them."""
        if seeker.asked < self.HINTED:
            return
        if any(self._got_there(seeker, address, node) for address, node in seeker.addresses.items()):
            return  # one was reached, so the addresses are plausible
        lasted = seeker.last_ns - seeker.first_ns
        stuck = seeker.asked >= self.LOOKUPS and seeker.connections >= self.CONNECTIONS and lasted >= self.LOOKUP_NS
        for address, node in seeker.addresses.items():
            if not seeker.wants and not (seeker.conn.about.software_name == _JAVA and _hint(seeker.conn, address)):
                continue  # clients that only list what there is can do so over their first connection; Java uses it for the first Metadata alone
            if not stuck and (lasted < self.HINTED_NS or not _hint(seeker.conn, address)):
                continue
            seconds = lasted / 1e9
            found = self._report(seeker, address, node, seeker.last_ns)
            found.severity = self.severity if seeker.wants else Severity.LOW
            found.count = max(found.count, seeker.asked)
            found.seen = (
                f"{seeker.conn.who} got the address {address} for broker {node} from {seeker.conn.where}, never "
                f"connects there, and keeps asking: {seeker.asked} times in {seconds:.0f} s"
            )

    def _got_there(self, seeker: _Seeker, address: str, node: int) -> bool:
        host = seeker.conn.client_host
        if (host, address) in self._reached or seeker.conn.broker == address:
            return True
        cluster = seeker.conn.cluster
        return any(h == host and cluster.node_at(broker) == node for h, broker in self._reached)

    def _report(self, seeker: _Seeker, address: str, node: int, time_ns: int | None) -> Finding:
        hint = _hint(seeker.conn, address)
        return self.report(
            (seeker.conn.client_host, seeker.conn.client_id, address),
            seeker.exchange,
            "clients use the addresses in bootstrap.servers for the first connection only; after that they connect to "
            f"the addresses that brokers advertise.{' ' + hint if hint else ''} The client keeps waiting, or fails "
            "with a timeout that does not name the cause.",
            "set advertised.listeners on the broker to a name and port that this client can resolve and reach (with "
            "several networks: one listener each, in listener.security.protocol.map); for containers, use the "
            "published host name and port. To check, run this on the client's machine: nc -vz "
            f"{' '.join(split(address))}",
            time_ns=time_ns,
            node=node,
            advertised=address,
            facts=seeker.conn.facts_of(seeker.exchange),
        )


def _wants(exchange: Exchange) -> bool:
    """Whether the request precedes work: it is for certain topics, or a coordinator. Listings are not."""
    if exchange.api_key != _METADATA:
        return exchange.api_key == _FIND_COORDINATOR
    asked = exchange.request_view
    return asked is not None and bool(asked.values[layout(asked.plan.root)["topics"]])


def _hint(conn: ClientConnection, address: str) -> str:
    """Why the address is implausible for the client; "" if it is not."""
    host, _ = split(address)
    client, broker = conn.client_host, split(conn.broker)[0]
    if is_unspecified(host):
        return (
            f"{host} is not an address that clients can connect to: do not copy the bind address of `listeners` to "
            "advertised.listeners."
        )
    if is_loopback(host) and is_number(client) and not is_loopback(client) and client != broker:
        return f"{host} is the client's own machine ({client}), not the broker's ({broker})."
    if _CONTAINER.fullmatch(host):
        return f"{host} looks like the id of a container, which nothing outside of its network resolves."
    if is_private(host) and is_number(client) and not is_private(client) and not is_loopback(client):
        return f"{host} is private, and the client comes from {client}."
    if _KUBERNETES.search(host) and is_number(broker) and not is_private(broker) and not is_loopback(broker):
        return f"{host} is a name within a Kubernetes cluster, and the client reached {broker}, its public address."
    return ""


class BrokenBrokerAddress(Detector):
    id = "broken-broker-address"
    severity = Severity.HIGH
    title = "brokers advertise the same address twice, or an empty host, or port 0"
    apis = _NAMING

    def setup(self) -> None:
        self._addresses = self.traffic.model(_AdvertisedAddresses)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        # Behind a proxy the client's copy names the proxy's listeners; the fault would be in the original.
        original = exchange.marks.broker_response
        owner: dict[str, int] = {}
        for node, address in _read(original.frame, exchange) if original else self._addresses.named(exchange):
            host, port = split(address)
            if not host or not 0 < int(port) < 65536:
                self._empty(conn, exchange, node, address)
            elif owner.setdefault(address, node) != node:
                self._double(conn, exchange, address, owner[address], node)

    def _empty(self, conn: ClientConnection, exchange: Exchange, node: int, address: str) -> None:
        self.report(
            (conn.cluster.id, node),
            exchange,
            "no client can connect there, so the partitions and groups that this broker leads or coordinates cannot "
            "be used.",
            "set advertised.listeners on that broker to its host name and port",
            seen=f"{conn.where} gives broker {node} the address {address!r}",
            node=node,
            advertised=address,
        )

    def _double(self, conn: ClientConnection, exchange: Exchange, address: str, one: int, other: int) -> None:
        self.report(
            (conn.cluster.id, address),
            exchange,
            "clients send requests for one broker to the other: they keep getting NOT_LEADER_OR_FOLLOWER and "
            "NOT_COORDINATOR, and requests succeed only by chance.",
            "give every broker its own advertised.listeners; behind one load balancer, use a port or a name (SNI) per "
            "broker. A copied server.properties is the usual cause.",
            seen=f"{conn.where} gives brokers {one} and {other} the same address {address}",
            nodes=[one, other],
            advertised=address,
        )


def _read(original: bytes, exchange: Exchange) -> list[tuple[int, str]]:
    try:
        message = decode_response(original, api_key=exchange.api_key, api_version=exchange.api_version)
    except DecodeError:
        return []
    return _named(view_of(message))


class FlappingBrokerAddress(Detector):
    """A broker's address alternates, as one client gets it from one broker's address.

    A single move (from A to B) is not a fault, and each listener is an address of its own.
    """

    id = "flapping-broker-address"
    severity = Severity.MEDIUM
    title = "a broker's advertised address changes back and forth"
    why = (
        "clients close their connections to a broker whose address changes and connect again; if two processes have "
        "the same node.id, half of the requests reach the wrong one."
    )
    remedy = (
        "look for two brokers with the same node.id (a copied server.properties, an old pod that is still running), "
        "or for a load balancer in front of brokers of two clusters"
    )
    apis = _NAMING
    RETURNS = 2
    """Times that the previous address returned: A, B, A, B."""

    def setup(self) -> None:
        self._addresses = self.traffic.model(_AdvertisedAddresses)
        self._moves: BoundedDict[tuple[str, str, str, int], tuple[str, str, int]] = BoundedDict(MOST_ADDRESSES)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        for node, address in self._addresses.named(exchange):
            key = conn.broker, conn.client_host, conn.client_id or "", node
            before, now, returns = self._moves.get(key, ("", address, 0))
            if address != now:
                returns = returns + 1 if address == before else 0
                before, now = now, address
            elif key in self._moves:
                continue
            self._moves[key] = before, now, returns
            if returns < self.RETURNS:
                continue
            place = conn.cluster.id, conn.broker, node
            found = self.report(place, exchange, node=node, addresses=sorted((before, now)))
            found.seen = (
                f"{conn.where} alternates between {now} and {before} as the address of broker {node}; it changed back "
                f"{found.count + self.RETURNS - 1} times"
            )
