"""Clients and brokers that contradict earlier messages: about leaders, topic ids and producer ids.

Contradictions on a single connection are in `odd_connections`, versions of another broker in `mixed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from ....codec.message_view import MessageView, lists_at
from ....connection.exchange import Exchange, State
from ....records import Batch
from ....schema import facts
from ...engine.clusters import Cluster, brokers_of
from ...engine.counters import BoundedDict, Tally
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import SECOND, topic_id_text, topic_name
from ...engine.traffic import ClientConnection
from ...models.offered_versions import FETCH, METADATA, PRODUCE
from ...models.produce import PartitionProduceResponse, ProduceDetector

LIST_OFFSETS = facts.api_key("ListOffsets")
INIT_PRODUCER_ID = facts.api_key("InitProducerId")


class FailedPartition(NamedTuple):
    """A partition with an error in a Produce or Fetch response. `topic_id`: None where the version names topics by name."""

    topic: str
    topic_id: bytes | None
    partition: int
    error: int


def failed(exchange: Exchange, codes: frozenset[int]) -> Iterator[FailedPartition]:
    """The partitions for which a Produce, Fetch or ListOffsets response has one of the codes."""
    if exchange.state is not State.PAIRED or not exchange.error:
        return
    message = exchange.response_view
    body = message.to_dict() if message is not None else {}
    for topic in body.get("responses", body.get("topics")) or ():
        found = topic.get("topic_id")
        topic_id = found.bytes if found is not None else None
        name = topic.get("name") or topic.get("topic") or topic_name(exchange, topic_id or "")
        for partition in topic.get("partition_responses", topic.get("partitions", ())):
            if partition["error_code"] in codes:
                number = partition.get("index", partition.get("partition_index"))
                yield FailedPartition(name, topic_id, number, partition["error_code"])


class MetadataIgnored(Detector):
    id = "metadata-ignored"
    severity = Severity.MEDIUM
    title = "a client produces to or fetches from a broker that its metadata does not show as the leader"
    why = (
        "a client must send these requests to the leader that Metadata names. This one received the new leader and "
        "keeps using the old broker: none of its requests succeed until it switches."
    )
    remedy = (
        "upgrade the client; if it is already current, look for an address that leads to the wrong broker (DNS, load "
        "balancer, port forwarding: every broker needs its own advertised.listeners)"
    )
    apis = frozenset({METADATA, PRODUCE, FETCH, LIST_OFFSETS})
    explains = ("produce-leader-retries",)

    CODES = facts.error_code_set("NOT_LEADER_OR_FOLLOWER")
    TIMES = 5
    """Requests already in flight when Metadata arrived fail fewer times than this ..."""
    SPAN_NS = 2 * SECOND
    """... and over a shorter time."""

    def setup(self) -> None:
        # By client and topic: when a Metadata response last named the topic.
        self._metadata_ns: BoundedDict[tuple[str, str], BoundedDict[str, int]] = BoundedDict()
        self._tallies: BoundedDict[object, Tally] = BoundedDict()
        # By cluster: the addresses of its brokers as last named; by cluster and address that a broker has left: that broker.
        self._named: BoundedDict[Cluster, BoundedDict[int, str]] = BoundedDict(256)
        self._left: BoundedDict[tuple[Cluster, str], int] = BoundedDict()

    def _learn_addresses(self, cluster: Cluster, message: MessageView) -> None:
        named = self._named.of(cluster, BoundedDict)
        for node, address in brokers_of(message):
            if named.get(node, address) != address:
                self._left[cluster, named[node]] = node
            named[node] = address

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        who = conn.client_host, conn.client_id or ""
        if exchange.api_key == METADATA:
            message = exchange.response_view if exchange.state is State.PAIRED else None
            if message is not None and exchange.response_time_ns:
                self._learn_addresses(conn.cluster, message)
                metadata_ns = self._metadata_ns.of(who, BoundedDict)
                for name in lists_at(message, "topics.name")[0]:
                    if name:
                        metadata_ns.pop(name, None)
                        metadata_ns.of(name, lambda: exchange.response_time_ns or 0)
            return
        for topic, _, partition, _code in failed(exchange, self.CODES):
            self._refused(conn, exchange, who, topic, partition)

    def _refused(
        self, conn: ClientConnection, exchange: Exchange, who: tuple[str, str], topic: str, partition: int
    ) -> None:
        cluster = conn.cluster
        node, leader = cluster.node_at(conn.broker), cluster.leaders.get((topic, partition))
        metadata_ns = self._metadata_ns.of(who, BoundedDict).get(topic, 0)
        sent = exchange.request_time_ns or 0
        if node is None or leader is None or leader.node in (-1, node) or not leader.time_ns <= metadata_ns < sent:
            return
        key = conn.identity, topic, partition, conn.broker
        tally = self._tallies.of(key, Tally)
        tally.add(sent)
        if tally.count < self.TIMES or tally.span_ns < self.SPAN_NS:
            return
        finding = self.report(
            key, exchange, topic=topic, partition=partition, leader=leader.node, error="NOT_LEADER_OR_FOLLOWER"
        )
        finding.count = tally.count
        if exchange.api_key == LIST_OFFSETS:
            finding.why = (
                "only the leader answers ListOffsets; a follower serves Fetch alone (KIP-392). Metadata names the leader, and the client goes "
                "on asking the other broker, so it never learns where to begin."
            )
        finding.seen = (
            f"{conn.who} sent {tally.count} {exchange.api} requests for {topic}-{partition} to {conn.where} within "
            f"{tally.span_ns / SECOND:.1f} s, although Metadata had named broker {leader.node} as leader"
        )
        address = self._named.of(cluster, BoundedDict).get(leader.node, "")
        if address and self._left.get((cluster, conn.broker)) == leader.node:
            finding.seen += f", at {address} since it has moved from {conn.broker.rpartition(':')[0]}"
            finding.why = (
                f"broker {leader.node} has got another address, and its old one leads to another broker now. The client goes on using the "
                "connection that it opened to the old address: it still works, and clients do not compare it with Metadata (Java: KAFKA-20394)."
            )
            finding.remedy = (
                "restart the client, or end its connections to the old address; give each broker a name and address that no other broker gets "
                "(Kubernetes: a name per pod in advertised.listeners, and no proxy or mesh that keeps connections to pods that are gone)"
            )


class TopicRecreated(Detector):
    id = "topic-recreated"
    severity = Severity.INFO
    title = "a topic was deleted and created again: its id has changed (KIP-516)"
    why = (
        "the topic was deleted and created again. Its offsets start over, committed offsets belong to the old topic, "
        "and clients that name topics without their id (Fetch before v13) do not notice."
    )
    remedy = "if this was intended, reset the offsets of the groups that read it (kafka-consumer-groups.sh --reset-offsets)"
    apis = frozenset({METADATA})

    def setup(self) -> None:
        self._ids: BoundedDict[tuple[str, str], bytes] = BoundedDict()

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        return version >= 10

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        message = exchange.response_view if exchange.state is State.PAIRED else None
        if message is None:
            return
        names, ids = lists_at(message, "topics.name", "topics.topic_id")
        cluster = conn.cluster.id or conn.broker
        for name, topic_id in zip(names, ids, strict=True):
            if not name or not any(topic_id):
                continue
            old = self._ids.of((cluster, name), lambda new=topic_id: bytes(new))  # type: ignore[misc]
            if old != topic_id and (cluster, name) not in self._found:
                before, now = topic_id_text(old), topic_id_text(bytes(topic_id))
                self.report(
                    (cluster, name),
                    exchange,
                    seen=f"the id of topic {name!r} changed from {before} to {now}, according to {conn.where}",
                    topic=name,
                    old_id=before,
                    new_id=now,
                    facts=conn.facts,
                )


class OldTopicId(Detector):
    id = "old-topic-id"
    severity = Severity.HIGH
    title = "a client keeps using a topic id that no longer exists"
    apis = frozenset({PRODUCE, FETCH})
    wanted = Wanted.FAILED

    CODES = facts.error_code_set("UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID")
    TIMES = 5
    """With a new id known: a client that refreshes its Metadata after the first error needs a few tries ..."""
    SPAN_NS = 2 * SECOND
    """... and backs off between them for a second at most (retry.backoff.max.ms)."""
    GONE_TIMES = 10
    GONE_SPAN_NS = 10 * SECOND
    """Without a new id: recreating a topic takes time, and clients keep asking meanwhile."""

    RECREATED = (
        "The topic was deleted and created again: it has a new id, which the client can learn from Metadata. Until "
        "then, it can neither read nor write the topic.",
        "upgrade or restart the client: on this error it must refresh its Metadata and switch to the new topic, whose "
        "offsets start over",
    )
    GONE = (
        "The brokers do not know this id, and no Metadata seen here gives the topic a newer one.",
        "check whether the topic was deleted (kafka-topics.sh --describe): if so, stop its clients or create it "
        "again. If it exists, one broker is behind the others",
    )

    def setup(self) -> None:
        self._tallies: BoundedDict[object, Tally] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        for topic, topic_id, partition, code in failed(exchange, self.CODES):
            if topic_id is None:
                continue
            now = conn.cluster.topic_ids.get(topic)
            anew = now if now != topic_id else None
            # What failed before the new topic was there does not count against the client.
            key = conn.identity, topic_id, code, anew is not None
            tally = self._tallies.of(key, Tally)
            tally.add(exchange.request_time_ns or 0)
            times, span = (self.TIMES, self.SPAN_NS) if anew else (self.GONE_TIMES, self.GONE_SPAN_NS)
            if tally.count < times or tally.span_ns < span:
                continue
            why, remedy = self.RECREATED if anew else self.GONE
            finding = self.report(
                key,
                exchange,
                "since Fetch v13 and Produce v13 a topic is named by its id (KIP-516). " + why,
                remedy,
                severity=Severity.HIGH if anew else Severity.MEDIUM,
                topic=topic,
                topic_id=topic_id_text(topic_id),
                new_id=topic_id_text(anew) if anew else None,
                recreated=anew is not None,
                partition=partition,
                error=facts.error_name(code),
            )
            finding.count = tally.count
            finding.seen = (
                f"{conn.who} used the id {topic_id_text(topic_id)} of topic {topic!r} {tally.count} times within "
                f"{tally.span_ns / SECOND:.1f} s and got "
                f"{facts.error_name(code)}{f'; the topic was recreated with id {topic_id_text(anew)}' if anew else ''}"
            )


class ProducerIdNotRenewed(ProduceDetector):
    id = "producer-id-not-renewed"
    severity = Severity.HIGH
    title = "an idempotent producer keeps failing and never asks for a new producer id or epoch"
    remedy = (
        "close the producer and create a new one when the client reports this error as fatal (Java: "
        "OutOfOrderSequenceException, ProducerFencedException; librdkafka: a fatal error). If the client does not "
        "report it, upgrade it: librdkafka 1.7 and newer and Java 2.5 and newer recover"
    )
    apis = frozenset({PRODUCE, INIT_PRODUCER_ID})

    _MEANS: ClassVar[dict[int, str]] = {
        facts.error_code(name): meaning
        for name, meaning in {
            "OUT_OF_ORDER_SEQUENCE_NUMBER": "the broker misses the batch before it",
            "UNKNOWN_PRODUCER_ID": "the broker has forgotten the producer id",
            "INVALID_PRODUCER_EPOCH": "the broker knows a newer epoch of this producer",
            "PRODUCER_FENCED": "another producer has taken over its transactional id",
        }.items()
    }
    CODES = frozenset(_MEANS)
    TIMES = 10
    """After one lost batch up to five in flight fail, and once more when they are sent again in order ..."""
    SPAN_NS = 2 * SECOND
    """... which is over in a few round trips."""

    def setup(self) -> None:
        # By client: tallies by (producer id, epoch).
        self._tallies: BoundedDict[tuple[str, str], BoundedDict[tuple[int, int], Tally]] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        who = conn.client_host, conn.client_id or ""
        if exchange.api_key == INIT_PRODUCER_ID:
            if exchange.state is State.PAIRED and not exchange.error:
                self._tallies.pop(who, None)
            return
        refused = [r for r in self.produce.results(exchange) if r.error in self.CODES]
        sent = self.produce.sent(exchange) if refused else None
        batches = {(p.topic, p.partition): p.batch for p in sent.parts} if sent is not None else {}
        for result in refused:
            batch = batches.get((result.topic, result.partition))
            if batch is None or batch.producer_id < 0:
                continue
            tally = self._tallies.of(who, BoundedDict).of((batch.producer_id, batch.producer_epoch), Tally)
            tally.add(exchange.request_time_ns or 0)
            if tally.count >= self.TIMES and tally.span_ns >= self.SPAN_NS:
                self._state(conn, exchange, result, batch, tally)

    def _state(
        self, conn: ClientConnection, exchange: Exchange, result: PartitionProduceResponse, batch: Batch, tally: Tally
    ) -> None:
        error = facts.error_name(result.error)
        finding = self.report(
            (conn.identity, (batch.producer_id, batch.producer_epoch)),
            exchange,
            f"after this error, the producer id and epoch can no longer be used: {self._MEANS[result.error]}. The producer must get a new "
            "epoch or id (InitProducerId, KIP-360) or stop. This one keeps retrying, and none of its records are written.",
            topic=result.topic,
            partition=result.partition,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            error=error,
        )
        finding.count = tally.count
        finding.seen = (
            f"{conn.who} got {error} for {tally.count} batches of producer id {batch.producer_id} epoch {batch.producer_epoch} "
            f"({result.topic}-{result.partition}) within {tally.span_ns / SECOND:.1f} s, and has not asked for a new one"
        )
