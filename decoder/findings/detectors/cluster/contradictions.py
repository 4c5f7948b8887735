"""Clients and brokers that contradict earlier messages: about leaders, topic ids and producer ids.

Contradictions on a single connection are in `odd_connections`, versions of another broker in `mixed`.
"""

from __future__ import annotations

from ....codec.message_view import lists_at
from ....connection.exchange import Exchange, State
from ....reference import explain
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, times, topic_id_text
from ...engine.traffic import ClientConnection
from ...models.next_steps import FollowingDetector, PendingStep, place_of
from ...models.offered_versions import METADATA

LIST_OFFSETS = facts.api_key("ListOffsets")


class MetadataIgnored(FollowingDetector):
    id = "metadata-ignored"
    severity = Severity.MEDIUM
    title = "a client produces to or fetches from a broker that its metadata does not show as the leader"
    why = (
        "a client must send these requests to the leader that Metadata names. This one keeps using the old broker: none of its requests "
        "succeed until it switches."
    )
    remedy = (
        "upgrade the client; if it is already current, look for an address that leads to the wrong broker (DNS, load "
        "balancer, port forwarding: every broker needs its own advertised.listeners)"
    )
    explains = ("produce-leader-retries",)
    STEPS = frozenset({"find-leader"})

    def refused(self, pending: PendingStep, exchange: Exchange) -> None:
        if not pending.named or not pending.ignored:
            return
        conn, (topic, partition) = pending.conn, place_of(pending, exchange)
        leader = conn.cluster.leaders[topic, partition].node
        key = conn.identity, topic, partition, conn.broker
        error = facts.error_name(pending.code)
        finding = self.report(key, exchange, topic=topic, partition=partition, leader=leader, error=error)
        finding.count = pending.refused.count
        if exchange.api_key == LIST_OFFSETS:
            finding.why = (
                "only the leader answers ListOffsets; a follower serves Fetch alone (KIP-392). Metadata names the leader, and the client goes "
                "on asking the other broker, so it never learns where to begin."
            )
        finding.seen = (
            f"{conn.who} sent {finding.count} {exchange.api} requests for {topic}-{partition} to {conn.where} within "
            f"{duration(pending.refused.span_ns)}, although Metadata names {pending.named}: it {pending.did}"
        )
        if conn.cluster.left.get(conn.broker) == leader:
            finding.seen += f", at {conn.cluster.nodes[leader]} since it has moved from {conn.broker.rpartition(':')[0]}"
            finding.why = (
                f"broker {leader} has got another address, and its old one leads to another broker now. The client goes on using the "
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


class OldTopicId(FollowingDetector):
    id = "old-topic-id"
    severity = Severity.HIGH
    title = "a client keeps using a topic id that no longer exists"
    STEPS = frozenset({"find-topic-id"})

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

    def refused(self, pending: PendingStep, exchange: Exchange) -> None:
        conn, refused, anew = pending.conn, pending.refused, pending.named
        topic, partition = place_of(pending, exchange)
        lasting = pending.ignored if anew else refused.count >= self.GONE_TIMES and refused.span_ns >= self.GONE_SPAN_NS
        if not lasting or not isinstance(pending.subject[-2], bytes):
            return
        topic_id, error = topic_id_text(pending.subject[-2]), facts.error_name(pending.code)
        why, remedy = self.RECREATED if anew else self.GONE
        finding = self.report(
            (conn.identity, topic_id, error, bool(anew)),
            exchange,
            "since Fetch v13 and Produce v13 a topic is named by its id (KIP-516). " + why,
            remedy,
            severity=Severity.HIGH if anew else Severity.MEDIUM,
            topic=topic,
            topic_id=topic_id,
            new_id=anew or None,
            recreated=bool(anew),
            partition=partition,
            error=error,
        )
        finding.count = max(finding.count, refused.count)
        finding.seen = (
            f"{conn.who} used the id {topic_id} of topic {topic!r} {times(refused.count)} within {duration(refused.span_ns)} and got {error}"
            + (f"; the topic was recreated with id {anew}" if anew else "")
        )


class ProducerIdNotRenewed(FollowingDetector):
    id = "producer-id-not-renewed"
    severity = Severity.HIGH
    title = "an idempotent producer keeps failing and never asks for a new producer id or epoch"
    remedy = (
        "close the producer and create a new one when the client reports this error as fatal (Java: "
        "OutOfOrderSequenceException, ProducerFencedException; librdkafka: a fatal error). If the client does not "
        "report it, upgrade it: librdkafka 1.7 and newer and Java 2.5 and newer recover"
    )
    STEPS = frozenset({"renew-producer"})

    def refused(self, pending: PendingStep, exchange: Exchange) -> None:
        (producer_id, epoch), (topic, partition) = pending.per[0], place_of(pending, exchange)
        if not pending.ignored or producer_id < 0:
            return
        error = facts.error_name(pending.code)
        finding = self.report(
            (pending.conn.identity, pending.per),
            exchange,
            f"{explain.error(pending.code).of(exchange.api).what} After this error, the producer must "
            f"{pending.step.must} ({pending.step.source}). This one keeps retrying, and writes none of its records.",
            topic=topic,
            partition=partition,
            producer_id=producer_id,
            producer_epoch=epoch,
            error=error,
        )
        finding.count = pending.refused.count
        finding.seen = (
            f"{pending.conn.who} got {error} for {finding.count} batches of producer id {producer_id} epoch {epoch} "
            f"({topic}-{partition}) within {duration(pending.refused.span_ns)}, and has not asked for a new one"
        )
