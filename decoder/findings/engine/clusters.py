"""The clusters of a capture, as Metadata and DescribeCluster responses describe them: ids, addresses of brokers, partition leaders."""

from __future__ import annotations

from typing import NamedTuple

from ...codec.codec import decode_response
from ...codec.message_view import MessageView, lists_at, view_of
from ...connection.exchange import Exchange, State
from ...errors import DecodeError
from ...schema import facts
from .counters import BoundedDict
from .layout import layout

_METADATA, _DESCRIBE_CLUSTER = facts.api_key("Metadata"), facts.api_key("DescribeCluster")
_BROKERS = {
    key: (f"brokers.{node}", "brokers.host", "brokers.port")
    for key, node in ((_METADATA, "node_id"), (_DESCRIBE_CLUSTER, "broker_id"))
}
NAMING = frozenset(_BROKERS)
"""APIs whose responses name the brokers of a cluster: `Clusters.learn` ignores all others."""
_CONTROLLERS = 2
"""The `endpoint_type` of a DescribeCluster response that lists controllers (KIP-919)."""


_MOST_NODES, _MOST_TOPICS, _MOST_PARTITIONS = 1 << 12, 1 << 16, 1 << 18
"""Of a cluster that are remembered: more than real ones have; a hostile broker can name any number."""


class Leader(NamedTuple):
    """The leader of a partition: node id (-1: none), leader epoch (-1 before Metadata v7), when that was first seen,
    and the broker that answered so."""

    node: int
    epoch: int
    time_ns: int
    broker: str = ""


class Cluster:
    """A cluster as its Metadata responses show it. `nodes`: the advertised address, by node id; `left`: the node id of a broker, by an address
    that it had before. `told_ns`: when Metadata last had a topic, for those that detectors put in. `older`: the leaders
    of the last Metadata response whose epochs are lower than those of `leaders`.
    """

    def __init__(self, cluster_id: str) -> None:
        self.id = cluster_id
        self.nodes: dict[int, str] = BoundedDict(_MOST_NODES)
        self.left: dict[str, int] = BoundedDict(_MOST_NODES)
        self.leaders: dict[tuple[str, int], Leader] = BoundedDict(_MOST_PARTITIONS)
        self.topic_ids: dict[str, bytes] = BoundedDict(_MOST_TOPICS)
        self.told_ns: dict[str, int] = BoundedDict(_MOST_NODES)
        self.older: dict[tuple[str, int], Leader] = {}
        self._node_ids: dict[str, int] = BoundedDict(_MOST_NODES)

    def node_at(self, address: str) -> int | None:
        """The node id of a broker's address (as advertised, or behind the proxy); None if unknown."""
        return self._node_ids.get(address)

    def learn(self, message: MessageView, brokers: list[tuple[int, str]], time_ns: int, broker: str = "") -> None:
        """Update from a Metadata or DescribeCluster response of a broker, and the `brokers_of` it."""
        self.older = {}
        for node, address in brokers:
            if (before := self.nodes.get(node, address)) != address:
                self.left[before] = node
            self.nodes[node] = address
            self._node_ids[address] = node
        if message.plan.api_key != _METADATA:
            return
        root = message.plan.root
        fields, part = layout(root, "topics"), layout(root, "topics", "partitions")
        epoch_at = part.get("leader_epoch")
        made: dict[tuple[int, int], Leader] = {}  # partitions share it: 60,000 take 6.9 instead of 11 MiB
        for topic in message.values[layout(root)["topics"]] or ():
            name = topic[fields["name"]]
            if not name:
                continue
            if self.told_ns and name in self.told_ns:
                self.told_ns[name] = time_ns
            made_anew = False
            if "topic_id" in fields and any(topic_id := topic[fields["topic_id"]]):
                made_anew = self.topic_ids.get(name, topic_id) != topic_id  # its epochs begin at 0 again
                self.topic_ids[name] = topic_id
            for partition in topic[fields["partitions"]] or ():  # null is forbidden here, but accepted
                epoch = partition[epoch_at] if epoch_at is not None else -1
                at = name, partition[part["partition_index"]]
                known = self.leaders.get(at)
                leader = partition[part["leader_id"]]
                if known is not None and 0 <= epoch < known.epoch and not made_anew:
                    self.older[at] = Leader(leader, epoch, time_ns, broker)
                elif known is None or (known.node, known.epoch) != (leader, epoch):
                    self.leaders[at] = made.setdefault((leader, epoch), Leader(leader, epoch, time_ns, broker))

    def name_address(self, node: int, address: str) -> None:
        """Add another address of a node: the one behind the proxy."""
        self._node_ids[address] = node


def brokers_of(message: MessageView) -> list[tuple[int, str]]:
    """(node id, ``host:port``) of every broker in a Metadata or DescribeCluster response."""
    nodes, hosts, ports = lists_at(message, *_BROKERS[message.plan.api_key])
    named = zip(nodes, hosts, ports, strict=True)
    return [(n, f"[{h}]:{p}" if ":" in h else f"{h}:{p}") for n, h, p in named]


class Clusters:
    """All clusters that a capture shows, by the addresses of their brokers."""

    def __init__(self) -> None:
        self._last: tuple[Exchange | None, list[tuple[int, str]]] = None, []
        self._by_id: dict[str, Cluster] = BoundedDict(_MOST_NODES)
        self._by_address: dict[str, Cluster] = BoundedDict(_MOST_NODES)

    def of(self, address: str) -> Cluster:
        """The cluster of a broker's address; a new one until Metadata is seen."""
        cluster = self._by_address.get(address)
        if cluster is None:
            cluster = self._by_address[address] = Cluster("")
        return cluster

    @property
    def addresses(self) -> dict[str, Cluster]:
        """The cluster of every address that was seen."""
        return self._by_address

    def named(self, exchange: Exchange) -> list[tuple[int, str]]:
        """The `brokers_of` the response of an exchange; [] without one. Keeps the last one read: several ask one after the other."""
        if self._last[0] is not exchange:
            message = exchange.response_view
            self._last = exchange, [] if message is None else brokers_of(message)
        return self._last[1]

    def learn(self, exchange: Exchange) -> None:
        """Update from a Metadata or DescribeCluster exchange; others are ignored."""
        if exchange.api_key not in _BROKERS or exchange.state is not State.PAIRED:
            return
        message = exchange.response_view
        if message is None:
            return
        fields = layout(message.plan.root)
        if "endpoint_type" in fields and message["endpoint_type"] == _CONTROLLERS:
            return
        brokers = self.named(exchange)
        cluster_id = message["cluster_id"] if "cluster_id" in fields else None
        # Before Metadata v2 there is no cluster id: brokers named together are one cluster.
        cluster = self._by_id.get(cluster_id) if cluster_id else None
        if cluster is None:
            cluster = next((self._by_address[a] for _, a in brokers if a in self._by_address), None)
            if cluster is None or (cluster_id and cluster.id and cluster.id != cluster_id):
                cluster = self.of(exchange.broker)
                if cluster_id and cluster.id and cluster.id != cluster_id:
                    cluster = Cluster(cluster_id)
            cluster.id = cluster.id or cluster_id or ""
            if cluster_id:
                self._by_id[cluster_id] = cluster
        self._by_address[exchange.broker] = cluster
        for _, address in brokers:
            self._by_address[address] = cluster
        cluster.learn(message, brokers, exchange.response_time_ns or 0, exchange.broker)
        if (original := exchange.marks.broker_response) is not None:
            # Behind a proxy the advertised addresses are not the brokers' own.
            try:
                real = view_of(decode_response(original.frame, api_key=exchange.api_key, api_version=exchange.api_version))
            except DecodeError:
                return
            for node, address in brokers_of(real):
                cluster.name_address(node, address)
                self._by_address[address] = cluster
