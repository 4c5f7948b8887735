"""The replica that a consumer reads, and diverging logs: KIP-392, KIP-320, KIP-595."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, several, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.fetch import FETCH, FetchDetector, FetchExchange, PartitionData, Place

OFFSET_FOR_LEADER_EPOCH = facts.api_key("OffsetForLeaderEpoch")


@dataclass(slots=True)
class _Sent:
    """A partition whose leader sends a client to another replica. `asked`: whether the client has fetched from that one; `error`: its last
    answer."""

    replica: int = -1
    times_ns: deque[int] = field(default_factory=deque)
    asked: bool = False
    error: int = 0


class ReadReplicaBouncing(FetchDetector):
    id = "read-replica-bouncing"
    severity = Severity.LOW
    title = "a consumer is repeatedly sent to a closer replica but does not stay there (KIP-392)"

    COUNT = 5
    WITHIN_NS = 60 * SECOND
    """A consumer stays with its replica for metadata.max.age.ms (5 min): five changes in a minute are bouncing."""

    def setup(self) -> None:
        self._sent: BoundedDict[tuple[ClientIdentity, Place], _Sent] = BoundedDict(5000)
        self._unreachable: BoundedDict[tuple[str, str], bool] = BoundedDict(1000)  # client's host, broker's address

    def opened(self, conn: ClientConnection) -> None:
        if not conn.established:
            self._unreachable[conn.client_host, conn.broker] = True

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        for answer in fetched.answered:
            if answer.replica < 0:
                sent = self._sent.get((conn.identity, answer.place)) if self._sent else None
                if sent is not None and conn.cluster.node_at(conn.broker) == sent.replica:
                    sent.asked, sent.error = True, answer.error
            elif not answer.size and (not conn.cluster.nodes or answer.replica in conn.cluster.nodes):
                # Otherwise the answer itself is wrong: Kafka sends no records with it, and names a broker of the cluster.
                self._elsewhere(conn, fetched, answer)

    def _elsewhere(self, conn: ClientConnection, fetched: FetchExchange, answer: PartitionData) -> None:
        sent = self._sent.of((conn.identity, answer.place), _Sent)
        if sent.replica != answer.replica:
            sent.replica, sent.asked, sent.error = answer.replica, False, 0
        sent.times_ns.append(fetched.time_ns)
        if len(sent.times_ns) > self.COUNT:
            sent.times_ns.popleft()
        if len(sent.times_ns) < self.COUNT or fetched.time_ns - sent.times_ns[0] > self.WITHIN_NS:
            return
        finding = self.report(
            (conn.identity, answer.place[0]), fetched.exchange, topic=answer.place[0], partition=answer.place[1]
        )
        if finding.count == 1:
            finding.count = len(sent.times_ns)
        first = finding.first_ns = min(finding.first_ns or sent.times_ns[0], sent.times_ns[0])
        finding.about["replica"] = answer.replica
        outcome, why, finding.remedy = self._outcome(conn, sent)
        finding.why = (
            "with client.rack and replica.selector.class, a leader answers with preferred_read_replica and no records "
            f"(KIP-392), and the consumer must read there. {why}"
        )
        finding.seen = (
            f"{conn.where} sent {conn.who} to broker {answer.replica} for {answer.place[0]}-{answer.place[1]} "
            f"{times(finding.count)} in {duration((finding.last_ns or 0) - first)}: {outcome}"
        )

    def _outcome(self, conn: ClientConnection, sent: _Sent) -> tuple[str, str, str]:
        """What the client did there, why that matters, and the remedy."""
        address = conn.cluster.nodes.get(sent.replica, "")
        off = "remove client.rack from the client, or replica.selector.class from the brokers"
        if sent.asked and sent.error:
            error = facts.error_name(sent.error)
            return (
                f"that broker answers with {error}, and it comes back each time",
                "That replica refuses, so the consumer returns to the leader without records.",
                f"check why broker {sent.replica} answers {error}: its replica may be behind or moved; until then, {off}",
            )
        if sent.asked:
            return (
                "it reads there, but comes back each time",
                "It must stay there until metadata.max.age.ms is over or the replica answers with an error.",
                f"upgrade the client, or {off}",
            )
        if (conn.client_host, address) in self._unreachable:
            return (
                f"it could not connect to {address}, and comes back each time",
                "It cannot reach that replica, so it gets no records.",
                f"make {address} reachable for this client (advertised.listeners, firewall), or {off}",
            )
        return (
            "it asks the leader again each time, and was not seen to ask that broker",
            "This one does not: it ignores the field, or it cannot reach that replica (its attempts are not in the capture).",
            f"upgrade a client that ignores preferred_read_replica; check that {address or 'the replica'} is reachable; or {off}",
        )


class LogTruncated(FetchDetector):
    id = "log-truncated"
    severity = Severity.MEDIUM
    title = "a log was truncated below a consumer's position: records it read are gone (KIP-320)"
    why = (
        "after an unclean leader election, or with acks other than all, a new leader may lack records that consumers "
        "have already read; other records get their offsets (KIP-320). Java clients raise LogTruncationException or "
        "reset, librdkafka resets according to auto.offset.reset; others keep reading without noticing."
    )
    remedy = (
        "treat everything processed beyond that offset as uncertain; to prevent it, set "
        "unclean.leader.election.enable=false, min.insync.replicas=2 with replication factor 3, and acks=all"
    )
    apis = frozenset({FETCH, OFFSET_FOR_LEADER_EPOCH})

    def setup(self) -> None:
        # By client: the last offset that records were asked from.
        self._positions: BoundedDict[ClientIdentity, BoundedDict[Place, int]] = BoundedDict(1000)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        read: BoundedDict[Place, int] | None = None
        for answer in fetched.answered:
            if answer.diverging is not None:
                epoch, end = answer.diverging
                self._cut(conn, fetched.exchange, answer.place, fetched.offset(answer.place), epoch, end)
            elif answer.size and not answer.error:
                # Records were returned: a later OffsetForLeaderEpoch is about this position or a later one.
                if read is None:
                    read = self._read_by(conn)
                read[answer.place] = fetched.offset(answer.place)

    def _read_by(self, conn: ClientConnection) -> BoundedDict[Place, int]:
        return self._positions.of(conn.identity, lambda: BoundedDict(2000))

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == FETCH:
            super().done(conn, exchange)
            return
        asked, answered = exchange.request_view, exchange.response_view
        if exchange.state is not State.PAIRED or asked is None or answered is None:
            return
        if asked.to_dict().get("replica_id", -1) >= 0:
            return
        read = self._read_by(conn)
        current = {
            (topic["topic"], p["partition"])
            for topic in asked.to_dict()["topics"]
            for p in topic["partitions"]
            if p.get("current_leader_epoch", -1) == p["leader_epoch"]
        }
        for topic in answered.to_dict()["topics"]:
            for p in topic["partitions"]:
                place = topic["topic"], p["partition"]
                position, epoch = read.get(place, -1), p.get("leader_epoch", -1)
                if not p["error_code"] and 0 <= p["end_offset"] < position:
                    if place in current:
                        self._contradicted(conn, exchange, place, position, epoch, p["end_offset"])
                    else:
                        self._cut(conn, exchange, place, position, epoch, p["end_offset"])

    def _contradicted(
        self, conn: ClientConnection, exchange: Exchange, place: Place, position: int, epoch: int, end: int
    ) -> None:
        """The epoch has not ended: no other leader can have truncated the log, so the answer is wrong."""
        self.report(
            ("current", conn.identity, place[0]),
            exchange,
            "the epoch asked for is the partition's current one (current_leader_epoch), so no election lies between: the log cannot "
            "end below records that this client was given in the same epoch, and nothing was truncated. The broker's answer is "
            "wrong (a broker that answers with an offset that is not committed yet, or of another replica). Clients believe it: "
            "they report lost records, or reset and read them twice (KIP-320).",
            "report it to the developers of the broker or service (redpanda#5435 is of this kind); the records are there: clients may "
            "go on from their position",
            severity=Severity.HIGH,
            seen=f"{conn.where} ends epoch {epoch} of {place[0]}-{place[1]} at offset {end}, but {conn.who} had read records from "
            f"offset {position} in that epoch, which is still the current one",
            topic=place[0],
            partition=place[1],
            offset=position,
            end_offset=end,
            epoch=epoch,
        )

    def _cut(
        self, conn: ClientConnection, exchange: Exchange, place: Place, position: int, epoch: int, end: int
    ) -> None:
        finding = self.report(
            (conn.identity, place[0]),
            exchange,
            seen=f"{conn.who} is at offset {position} of {place[0]}-{place[1]}, but {conn.where} ends epoch {epoch} at "
            f"offset {end}: its log was truncated by {several(max(position - end, 0), 'record')}",
            topic=place[0],
            partition=place[1],
            offset=position,
            end_offset=end,
            epoch=epoch
        )
        cut = finding.about.setdefault("partitions", [])
        if place[1] not in cut:
            cut.append(place[1])
            if len(cut) == 2:
                finding.seen += "; other partitions of the topic too"
