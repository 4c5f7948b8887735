"""The replica that a consumer reads, and diverging logs: KIP-392, KIP-320, KIP-595."""

from __future__ import annotations

from collections import deque

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, several, times
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.fetch import FETCH, FetchDetector, FetchExchange, Place

OFFSET_FOR_LEADER_EPOCH = facts.api_key("OffsetForLeaderEpoch")


class ReadReplicaBouncing(FetchDetector):
    id = "read-replica-bouncing"
    severity = Severity.LOW
    title = "a consumer is repeatedly sent to a closer replica but does not stay there (KIP-392)"
    why = (
        "with client.rack and replica.selector.class, a leader answers with preferred_read_replica and no records "
        "(KIP-392). A consumer that does not read from that replica (not reachable, not in sync, "
        "OFFSET_NOT_AVAILABLE, a client that ignores the field) asks the leader again: the round trips return no "
        "records."
    )
    remedy = (
        "check whether the client can reach the replica, and what it answers; remove client.rack from the client, or "
        "replica.selector.class from the brokers; upgrade a client that ignores preferred_read_replica"
    )

    COUNT = 5
    WITHIN_NS = 60 * SECOND
    """A consumer stays with its replica for metadata.max.age.ms (5 min): five changes in a minute are bouncing."""

    def setup(self) -> None:
        self._sent: BoundedDict[tuple[ClientIdentity, Place], deque[int]] = BoundedDict(5000)

    def fetched(self, conn: ClientConnection, fetched: FetchExchange) -> None:
        for answer in fetched.answered:
            if answer.replica < 0:
                continue
            sent = self._sent.of((conn.identity, answer.place), lambda: deque(maxlen=self.COUNT))
            sent.append(fetched.time_ns)
            if len(sent) < self.COUNT or sent[-1] - sent[0] > self.WITHIN_NS:
                continue
            finding = self.report(
                (conn.identity, answer.place[0]), fetched.exchange, topic=answer.place[0], partition=answer.place[1]
            )
            if finding.count == 1:
                finding.count = len(sent)
            finding.first_ns = min(finding.first_ns or sent[0], sent[0])
            finding.about["replica"] = answer.replica
            finding.seen = (
                f"{conn.where} sent {conn.who} to broker {answer.replica} for {answer.place[0]}-{answer.place[1]} "
                f"{times(finding.count)} in {duration((finding.last_ns or 0) - finding.first_ns)}: it comes back each time"
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
