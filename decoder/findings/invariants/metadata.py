"""Rows about Metadata, DescribeCluster, DescribeTopicPartitions and FindCoordinator: brokers, leaders, coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..engine.formatting import topic_id_text
from .items import Items, each
from .row import Check, Pair, Row, Seen

_RETRIES = "The Java client asks again after retry.backoff.ms; until then it can neither read nor write."
MOST_EPOCHS = 20_000


def _nodes(pair: Pair) -> set[int]:
    """The ids of the response's brokers: the first field of each."""
    return {broker[0] for broker in pair.answer.brokers or ()}


def _brokers(stem: str, field: str) -> Check:
    """The rows about the brokers of a response, and its controller. `stem`: what their ids begin with; `field`: the id of a broker."""

    def check(pair: Pair) -> Iterator[Seen]:
        answer = pair.answer
        nodes, controller = _nodes(pair), getattr(answer, "controller_id", -1)
        if not nodes:
            yield Seen("brokers", "is empty: the answer names no broker", f"{stem}-without-brokers")
            return
        if len(nodes) < len(answer.brokers):
            known = set()
            for i, (node, *_) in enumerate(answer.brokers):
                if node in known:
                    yield Seen(f"brokers[{i}]", f"has {field} {node}, as an earlier one has", f"{stem}-broker-twice")
                known.add(node)
        if min(nodes) < 0:
            for node in nodes:
                if node < 0:
                    yield Seen("brokers", f"names broker {node}", f"{stem}-broker-negative")
        if controller >= 0 and controller not in nodes and getattr(answer, "endpoint_type", 1) == 1:
            yield Seen("controller_id", f"is {controller}, which is none of the brokers {_list(nodes)}", f"{stem}-controller-unknown")

    return check


def _list(nodes: set[int]) -> str:
    shown = [str(node) for node in sorted(nodes)]
    return ", ".join(shown[:8]) + (" ..." if len(shown) > 8 else "")


def _leader(p: Any, nodes: set[int]) -> str:
    if p.error_code or p.leader_id < 0 or p.leader_id in nodes:
        return ""
    return f"has leader {p.leader_id} and no error, but {p.leader_id} is none of the brokers {_list(nodes)}"


def _leaderless(p: Any, nodes: set[int]) -> str:
    return "" if p.error_code or p.leader_id >= 0 else f"has leader {p.leader_id} and no error"


def _replica(p: Any, nodes: set[int]) -> str:
    for node in p.replica_nodes or ():
        if node not in nodes and node not in (p.offline_replicas or ()):
            return f"has replica {node}, which is neither one of the brokers {_list(nodes)} nor in offline_replicas"
    return ""


def _in_sync(p: Any, nodes: set[int]) -> str:
    if p.error_code:
        return ""
    outside = [node for node in p.isr_nodes or () if node not in (p.replica_nodes or ())]
    return f"has {outside[0]} in isr_nodes but not in replica_nodes" if outside else ""


def _offline(p: Any, nodes: set[int]) -> str:
    outside = [node for node in p.offline_replicas or () if node not in (p.replica_nodes or ())]
    return f"has {outside[0]} in offline_replicas but not in replica_nodes" if outside else ""


def _replica_twice(p: Any, nodes: set[int]) -> str:
    replicas = p.replica_nodes or ()
    return f"has replica_nodes {list(replicas)}" if len(set(replicas)) < len(replicas) else ""


_TESTS = {
    "metadata-leader-unknown": _leader,
    "metadata-no-leader-no-error": _leaderless,
    "metadata-replica-unknown": _replica,
    "metadata-offline-no-replica": _offline,
    "metadata-isr-no-replica": _in_sync,
    "metadata-replica-twice": _replica_twice,
}
"""What is wrong with a partition of a Metadata response, given the ids of the response's brokers, by row."""


def _partitions(pair: Pair) -> Iterable[Seen]:
    nodes = _nodes(pair)
    if not nodes:
        return ()  # a row of its own
    known = pair.response.plan.version >= 5  # offline replicas
    found: dict[str, Seen] = {}
    for i, topic in enumerate(pair.answer.topics or ()):
        for j, p in enumerate(topic.partitions or ()):
            replicas, isr = p.replica_nodes or (), p.isr_nodes or ()
            if p.leader_id in nodes and nodes.issuperset(replicas) and isr == replicas and len(replicas) == 1:
                continue
            for row, test in _TESTS.items():
                if row not in found and (known or test not in (_replica, _offline)) and (text := test(p, nodes)):
                    found[row] = Seen(f"topics[{i}].partitions[{j}]", text, row)
    return found.values()


def _partition_twice(pair: Pair) -> Iterator[Seen]:
    for path, topic in each(pair.answer, "topics"):
        numbers = [p.partition_index for p in topic.partitions or ()]
        if len(set(numbers)) < len(numbers):
            found = next(n for i, n in enumerate(numbers) if n in numbers[:i])
            yield Seen(path, f"has partition {found} of {topic.name!r} twice")
        elif numbers and min(numbers) < 0:
            yield Seen(path, f"has partition {min(numbers)} of {topic.name!r}")


class _Epochs:
    """The highest leader epoch that a connection has been told, by topic id and partition."""

    def __init__(self) -> None:
        self.highest: dict[tuple[bytes, int], int] = {}


def _epoch_back(pair: Pair) -> Iterator[Seen]:
    highest = pair.context.of_connection(_Epochs).highest
    for path, topic in each(pair.answer, "topics"):
        if topic.error_code or not any(topic.topic_id):
            continue  # without an id, a topic that was created again looks the same
        for number, p in enumerate(topic.partitions or ()):
            if p.leader_epoch < 0:
                continue
            at = topic.topic_id, p.partition_index
            known = highest.get(at, -1)
            if p.leader_epoch < known:
                where = f"{topic.name or topic_id_text(topic.topic_id)}-{p.partition_index}"
                yield Seen(
                    f"{path}.partitions[{number}].leader_epoch",
                    f"is {p.leader_epoch} for {where}, after {known} on this connection",
                )
            elif known >= 0 or len(highest) < MOST_EPOCHS:
                highest[at] = p.leader_epoch


def _pages(pair: Pair) -> bool:
    return pair.answer.next_cursor is not None or pair.asked.cursor is not None


def _no_address(pair: Pair) -> Iterator[Seen]:
    found = each(pair.answer, "coordinators") if hasattr(pair.answer, "coordinators") else [("", pair.answer)]
    for path, c in found:
        if not c.error_code and (c.node_id < 0 or not c.host or not 0 < c.port < 65536):
            where = f"{path}.node_id" if path else "node_id"
            yield Seen(where, f"is {c.node_id} at {c.host!r}, port {c.port}, without an error")


def _unknown_coordinator(pair: Pair) -> Iterator[Seen]:
    nodes = pair.context.nodes
    found = each(pair.answer, "coordinators") if hasattr(pair.answer, "coordinators") else [("", pair.answer)]
    for path, c in found:
        if nodes and not c.error_code and c.node_id >= 0 and c.node_id not in nodes:
            where = f"{path}.node_id" if path else "node_id"
            yield Seen(where, f"is {c.node_id}, which no Metadata response so far lists")


_CACHE = "MetadataCache.getTopicMetadata"
_LISTED, _DESCRIBED = _brokers("metadata", "node_id"), _brokers("describe-cluster", "broker_id")
ROWS: tuple[Row, ...] = (
    Row("metadata-without-brokers", "Metadata", "names at least the broker that answers; only one that is just "
        "starting "
        "names none, for a moment", "KafkaApis.handleTopicMetadataRequest", _LISTED, "medium",
        "The Java client asks again later. librdkafka 2.10 to 2.13 drops all its brokers and never recovers "
        "(librdkafka#5301): "
        "the client has to be restarted.", passes=True, remedy="restart the client if it "
        "does not recover, and upgrade librdkafka 2.10 to 2.13; if the broker goes on to answer so, look in its log "
        "why it is not "
        "registered with its controller, and report it to the developers of a Kafka-compatible product"),
    Row("metadata-broker-twice", "Metadata", "lists each broker once", "KafkaApis.handleTopicMetadataRequest",
        _LISTED, "medium", "Clients keep one of the two addresses."),
    Row("metadata-broker-negative", "Metadata", "gives brokers ids from 0 up", "KafkaConfig (node.id)",
        _LISTED, "medium",
        "Clients use negative ids for bootstrap addresses."),
    Row("metadata-controller-unknown", "Metadata", "names a controller that is one of the brokers, or -1",
        "KafkaApis.handleTopicMetadataRequest", _LISTED, "low",
        "Admin clients have no address for such a controller: CreateTopics and the like wait until they time out.",
        since=1, passes=True),
    Row("metadata-leader-unknown", "Metadata", "reports LEADER_NOT_AVAILABLE or LISTENER_NOT_FOUND for a leader "
        "that it does "
        "not list as a broker", _CACHE, _partitions, "high",
        "Clients have no address for such a leader: they neither read nor write the partition, and ask for Metadata "
        "again and again.",
        passes=True),
    Row("metadata-no-leader-no-error", "Metadata", "reports LEADER_NOT_AVAILABLE where a partition has no leader",
        _CACHE,
        _partitions, "medium", "Clients treat the partition as if it had a leader, or wait without a reason.",
        passes=True),
    Row("metadata-replica-unknown", "Metadata", "lists a replica whose broker is down in offline_replicas",
        _CACHE + ", KIP-112",
        _partitions, "low", "Tools show the replica as if it were online.", since=5, passes=True),
    Row("metadata-offline-no-replica", "Metadata", "lists only replicas in offline_replicas", _CACHE + ", KIP-112",
        _partitions, "low", "Tools count more replicas than there are.", since=5, passes=True),
    Row("metadata-isr-no-replica", "Metadata", "lists only replicas in isr_nodes", _CACHE, _partitions, "low",
        "Tools count more replicas than there are.", passes=True),
    Row("metadata-replica-twice", "Metadata", "lists each replica of a partition once", _CACHE, _partitions, "low",
        "Tools count more replicas than there are."),
    Row("metadata-partition-twice", "Metadata", "lists each partition of a topic once, numbered from 0", _CACHE,
        _partition_twice,
        "medium", "Clients keep one of the two, or count more partitions than there are, and write to the wrong ones."),
    Row("metadata-epoch-back", "Metadata", "never gives one connection an older leader epoch of a topic id than "
        "before: a broker's "
        "metadata only goes forward while it runs", "KRaftMetadataCache, KIP-320", _epoch_back, "low",
        "Clients ignore Metadata with an older epoch, and ask again.", since=10),
    *Items("Metadata", "topics", "topics(name|topic_id)", "topics(name|topic_id)",
        "KafkaApis.handleTopicMetadataRequest",
           "Clients wait for the topic until they time out, or report it as unknown.", all_if_empty=True).rows(),
    Row("describe-cluster-without-brokers", "DescribeCluster", "names at least the broker that answers; only one "
        "that is just "
        "starting names none, for a moment", "AuthHelper.computeDescribeClusterResponse", _DESCRIBED, "medium",
        "Admin clients show an empty cluster.", passes=True),
    Row("describe-cluster-broker-twice", "DescribeCluster", "lists each broker once",
        "AuthHelper.computeDescribeClusterResponse",
        _DESCRIBED, "low"),
    Row("describe-cluster-controller-unknown", "DescribeCluster", "names a controller that is one of the brokers, "
        "or -1",
        "AuthHelper.computeDescribeClusterResponse", _DESCRIBED, "low", "Admin clients have no address for it.",
        passes=True),
    *Items("DescribeTopicPartitions", "topics", "topics(name)", "topics(name)",
        "DescribeTopicPartitionsRequestHandler, KIP-966",
           "Tools do not show the topic.", all_if_empty=True, silent=_pages).rows(),
    Row("describe-topic-partitions-partition-twice", "DescribeTopicPartitions",
        "lists each partition of a topic once, numbered from 0",
        "DescribeTopicPartitionsRequestHandler, KIP-966", _partition_twice, "low"),
    Row("coordinator-without-address", "FindCoordinator", "gives the id, host and port of a coordinator, or an error",
        "KafkaApis.handleFindCoordinatorRequest", _no_address, "high",
        "Clients have nowhere to connect to: consumers do not join their group, transactions do not begin."),
    Row("coordinator-unknown", "FindCoordinator", "names a coordinator that Metadata lists too, or will once it is "
        "asked again",
        "KafkaApis.getCoordinator", _unknown_coordinator, "low", "Clients connect to the host and port in the answer."),
    *Items("FindCoordinator", "keys", "coordinator_keys", "coordinators(key)",
        "KafkaApis.handleFindCoordinatorRequestV4AndAbove, "
           "KIP-699", "Clients do not find the coordinator of their group or transaction, and ask again and again.",
           "high",
           strict=True, since=4).rows(),
)  # fmt: skip
