"""What the detectors know in common: the connections, who their clients are, the brokers and who leads what.

The scene is told everything first. It keeps only what is bounded by the number of clients, brokers and partitions;
connections that ended are forgotten by it (a detector may hold on to a `Link`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ...codec.codec import decode_response
from ...codec.message_view import MessageView
from ...connection.api_versions import PeerInfo
from ...connection.connection import expects_no_response
from ...connection.exchange import Exchange, State
from ...connection.hit_notes import causes_in
from ...errors import DecodeError
from ...schema import facts

M = TypeVar("M")

MOST_TOUCHED = 10_000
"""Clients of which it is remembered that rules did something to them."""
MOST_WAITING = 32
"""Requests of a connection that are looked at when an answer belongs to none of them."""
"""Marks with notes; of a response that was not given, only the broker's leg has one."""
_METADATA = facts.api_key("Metadata")
_BROKERS = ("brokers.node_id", "brokers.host", "brokers.port")


class Link:
    """One connection between a client and a broker.

    `client`, `broker`: ``host:port``. `client_id`: the last one that a request named. `closed_ns`, `how`, `by`: see
    `happening.Closed`; `closed_ns` is None while open. `requests`: how many were sent. `waiting`: the exchanges
    without an answer, oldest first, by identity. `answers`: responses so far, orphans too. `lost`: bytes of it that were not
    captured or could not be read, so far; `gone`: by direction. `complete`: see `happening.Opened`. `tls`: see `happening.Opened`.
    `client_host`: the client's address without its port. `sign_ns`: the last sign of life, -1 before the first; `pause_ns`: from the one before to
    the last request that met nobody waiting. `rules`: those that did something to it, by name. `muted_ns`:
    until when a quota keeps the broker from reading it (KIP-219), 0 if none did (see `waits.Waits`).
    `kinds`: the APIs, versions and client ids of exchanges that went well on it; `troubled`: the last exchange did not.
    """

    __slots__ = (
        "_identity",
        "about",
        "answers",
        "broker",
        "by",
        "client",
        "client_host",
        "client_id",
        "closed_ns",
        "complete",
        "established",
        "gone",
        "how",
        "kinds",
        "last_ns",
        "lost",
        "muted_ns",
        "number",
        "opened_ns",
        "pause_ns",
        "requests",
        "rules",
        "scene",
        "sign_ns",
        "tls",
        "troubled",
        "waiting",
    )

    def __init__(self, scene: Scene, number: int, client: str, broker: str, opened_ns: int, established: bool = True):
        self.scene, self.number, self.client, self.broker = scene, number, client, broker
        self.rules: tuple[str, ...] = ()
        self.opened_ns, self.established = opened_ns, established
        self.client_id: str | None = None
        self.about = PeerInfo()
        self.closed_ns: int | None = None
        self.how = self.by = ""
        self.requests = self.answers = self.lost = 0
        self.gone = [0, 0]
        self.complete = True
        self.tls: frozenset[str] = frozenset()
        self.last_ns = opened_ns
        self.waiting: dict[int, Exchange] = {}
        self.client_host = client.rpartition(":")[0]
        self.sign_ns, self.pause_ns, self.muted_ns = -1, 0, 0
        self.kinds: set[tuple[int, int, str | None]] = set()
        self.troubled = False
        self._identity: tuple[str | None, str, str, tuple[str, str, str]] | None = None

    def tell_again(self) -> None:
        """The next exchange of each kind that goes well is told as the first one was (`detector.Wanted.NEW`)."""
        self.kinds.clear()

    @property
    def software(self) -> str:
        """``"librdkafka 2.3.0"``, or "" when the client has not said."""
        return self.identity[2]

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes connections one client's: host, client id, software."""
        about, known = self.about, self._identity
        if known is None or known[:3] != (self.client_id, about.software_name, about.software_version):
            software = f"{about.software_name} {about.software_version}".strip()
            who = self.client_host, self.client_id or "", software
            known = self._identity = self.client_id, about.software_name, about.software_version, who
        return known[3]

    @property
    def who(self) -> str:
        """The client in words: ``client 'stock-1' (librdkafka 2.3.0) at 10.0.0.5``."""
        name = f"client {self.client_id!r}" if self.client_id else "a client without client id"
        return f"{name}{f' ({self.software})' if self.software else ''} at {self.client_host or 'an unknown address'}"

    @property
    def where(self) -> str:
        """The broker in words: ``broker 2 (kafka-2:9092)``, without the number when it is not known."""
        node = self.cluster.node_at(self.broker)
        return f"broker {self.broker}" if node is None else f"broker {node} ({self.broker})"

    @property
    def cluster(self) -> Cluster:
        """The cluster that the broker belongs to."""
        return self.scene.cluster_of(self.broker)

    @property
    def facts(self) -> dict[str, Any]:
        """For `Finding.about`: who and where as plain values."""
        return {"client_id": self.client_id, "software": self.software, "client": self.client, "broker": self.broker}


class Leader(NamedTuple):
    """Who leads a partition: node id (-1: nobody), leader epoch (-1 before Metadata v7), and since when we know."""

    node: int
    epoch: int
    time_ns: int


class Cluster:
    """A cluster as its Metadata responses show it. `nodes`: the address that clients are told, by node id."""

    def __init__(self, cluster_id: str) -> None:
        self.id = cluster_id
        self.nodes: dict[int, str] = {}
        self.leaders: dict[tuple[str, int], Leader] = {}
        self.topic_ids: dict[str, bytes] = {}
        self._node_ids: dict[str, int] = {}

    def node_at(self, address: str) -> int | None:
        """The node id of a broker's address (as advertised, or behind the proxy), None if unknown."""
        return self._node_ids.get(address)

    def learn(self, message: MessageView, time_ns: int, topics: object = None) -> None:
        """Take what a Metadata response says."""
        for node, address in brokers_of(message):
            self.nodes[node] = address
            self._node_ids[address] = node
        names = {f.name: i for i, f in enumerate(message.plan.root.fields)}
        struct = message.plan.root.fields[names["topics"]].struct
        assert struct is not None
        field = {f.name: i for i, f in enumerate(struct.fields)}
        inner = struct.fields[field["partitions"]].struct
        assert inner is not None
        part = {f.name: i for i, f in enumerate(inner.fields)}
        epoch_at = part.get("leader_epoch")
        for topic in message.values[names["topics"]] or ():
            name = topic[field["name"]]
            if not name:
                continue
            if "topic_id" in field and any(topic[field["topic_id"]]):
                self.topic_ids[name] = topic[field["topic_id"]]
            for partition in topic[field["partitions"]] or ():  # a forbidden null is read all the same
                epoch = partition[epoch_at] if epoch_at is not None else -1
                at = name, partition[part["partition_index"]]
                known = self.leaders.get(at)
                if known is None or epoch >= known.epoch or epoch < 0:
                    leader = partition[part["leader_id"]]
                    if known is None or (known.node, known.epoch) != (leader, epoch):
                        self.leaders[at] = Leader(leader, epoch, time_ns)

    def name_address(self, node: int, address: str) -> None:
        """Another address of a node: the one behind the proxy."""
        self._node_ids[address] = node


def _causes_of_waiting(link: Link) -> tuple[str, ...]:
    """The rules and plugins that did something to requests that still wait, the `MOST_WAITING` that have waited longest."""
    asked = islice(link.waiting.values(), MOST_WAITING)
    return tuple(dict.fromkeys(cause for each in asked for notes in each.marks.every_notes() for cause in causes_in(notes)))


def brokers_of(message: MessageView) -> list[tuple[int, str]]:
    """(node id, ``host:port``) of every broker that a Metadata response names."""
    nodes, hosts, ports = message.lists_at(*_BROKERS)
    named = zip(nodes, hosts, ports, strict=True)
    return [(n, f"[{h}]:{p}" if ":" in h else f"{h}:{p}") for n, h, p in named]


class Scene:
    """Everything that is known now. `now_ns`: the time of the latest happening."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.start_ns = 0
        self.links: dict[int, Link] = {}
        self.causes: tuple[str, ...] = ()
        """The rules that did what detectors are told of just now, where that is no exchange."""
        self.models: dict[Callable[[Scene], Any], Any] = {}
        """What detectors share, by kind, in the order in which they are told what happens."""
        self._touched: set[tuple[str, str | None]] = set()
        self._clusters: dict[str, Cluster] = {}
        self._by_address: dict[str, Cluster] = {}

    def model(self, kind: Callable[[Scene], M]) -> M:
        """The model of that kind, the same for all that ask."""
        found: M | None = self.models.get(kind)
        if found is None:
            found = self.models[kind] = kind(self)
        return found

    def at(self, time_ns: int | None) -> None:
        """Time passes."""
        if time_ns:
            if time_ns > self.now_ns:
                self.now_ns = time_ns
            if time_ns < self.start_ns or not self.start_ns:
                self.start_ns = time_ns

    def opened(self, number: int, client: str, broker: str, time_ns: int, established: bool = True) -> Link:
        """A connection begins."""
        self.at(time_ns)
        link = self.links[number] = Link(self, number, client, broker, time_ns, established)
        return link

    def link(self, exchange: Exchange) -> Link:
        """The connection of an exchange; made up if nobody said that it was opened."""
        link = self.links.get(exchange.connection)
        if link is None:
            time_ns = exchange.request_time_ns or exchange.response_time_ns or 0
            link = self.opened(exchange.connection, exchange.client, exchange.broker, time_ns)
        return link

    def request(self, exchange: Exchange) -> Link:
        """A request was sent."""
        link = self.link(exchange)
        self.at(exchange.request_time_ns)
        if exchange.about is not None:
            link.about = exchange.about
        link.client_id = exchange.client_id if exchange.client_id is not None else link.client_id
        link.requests += 1
        link.last_ns = exchange.request_time_ns or link.last_ns
        waiting = link.waiting
        waiting[id(exchange)] = exchange
        if len(waiting) <= 1:
            at = exchange.request_time_ns or 0
            link.pause_ns, link.sign_ns = at - link.sign_ns if link.sign_ns >= 0 else 0, at
        return link

    def done(self, exchange: Exchange) -> Link:
        """An exchange is done."""
        link = self.link(exchange)
        self.at(exchange.response_time_ns)
        link.waiting.pop(id(exchange), None)
        link.last_ns = exchange.response_time_ns or link.last_ns
        link.answers += exchange.response is not None
        if link.sign_ns >= 0 and exchange.state is not State.NO_RESPONSE:
            link.sign_ns = exchange.response_time_ns or 0
        if exchange.about is None:
            link.about.learn(exchange)  # nobody followed the connection
        else:
            link.about = exchange.about
        if exchange.api_key == _METADATA and exchange.state is State.PAIRED:
            self._metadata(link, exchange)
        return link

    def blame(self, link: Link, exchange: Exchange) -> None:
        """Mark an exchange that rules or plugins did something to, or to its client before."""
        marks = exchange.marks
        if found := [cause for notes in marks.every_notes() for cause in causes_in(notes)]:
            marks.rules = tuple(dict.fromkeys(found))
            link.rules = tuple(dict.fromkeys((*link.rules, *found)))
            if len(self._touched) < MOST_TOUCHED:
                self._touched.add((link.client_host, exchange.client_id))
        elif link.rules and exchange.state is State.NO_RESPONSE and not expects_no_response(exchange):
            marks.rules = link.rules  # it waited behind what they did
        elif exchange.state is State.ORPHAN and (waiting := _causes_of_waiting(link)):
            marks.rules = waiting  # they gave an answer, or its request, another correlation id
        elif self._touched and (link.client_host, exchange.client_id) in self._touched:
            marks.after_rules = True

    def tell_again(self) -> None:
        """On all connections: see `Link.tell_again`."""
        for link in self.links.values():
            link.tell_again()

    def closed(self, link: Link, time_ns: int, how: str, by: str) -> None:
        """A connection ended."""
        self.at(time_ns)
        link.closed_ns, link.how, link.by = time_ns, how, by
        self.links.pop(link.number, None)

    def cluster_of(self, address: str) -> Cluster:
        """The cluster of a broker's address; one of its own until Metadata says more."""
        cluster = self._by_address.get(address)
        if cluster is None:
            cluster = self._by_address[address] = Cluster("")
        return cluster

    def _metadata(self, link: Link, exchange: Exchange) -> None:
        message = exchange.response_view
        if message is None:
            return
        told = brokers_of(message)
        cluster_id = message["cluster_id"] if any(f.name == "cluster_id" for f in message.plan.root.fields) else None
        # Before Metadata v2 no cluster id is told: brokers that are named together are one cluster.
        cluster = self._clusters.get(cluster_id) if cluster_id else None
        if cluster is None:
            cluster = next((self._by_address[a] for _, a in told if a in self._by_address), None)
            if cluster is None or (cluster_id and cluster.id and cluster.id != cluster_id):
                cluster = self.cluster_of(link.broker)
                if cluster_id and cluster.id and cluster.id != cluster_id:
                    cluster = Cluster(cluster_id)
            cluster.id = cluster.id or cluster_id or ""
            if cluster_id:
                self._clusters[cluster_id] = cluster
        self._by_address[link.broker] = cluster
        for _, address in told:
            self._by_address[address] = cluster
        cluster.learn(message, exchange.response_time_ns or 0)
        if (original := exchange.marks.broker_response) is not None:
            # Behind a proxy clients are told other addresses than the brokers have.
            try:
                real = MessageView(decode_response(original.frame, api_key=_METADATA, api_version=exchange.api_version))
            except DecodeError:
                return
            for node, address in brokers_of(real):
                cluster.name_address(node, address)
                self._by_address[address] = cluster
