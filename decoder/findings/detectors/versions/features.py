"""Features that brokers offer and clients do not use."""

from __future__ import annotations

from dataclasses import dataclass

from ....codec.message_view import lists_at
from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.traffic import ClientConnection, ClientIdentity, Traffic
from ...models.offered_versions import FETCH, METADATA, PRODUCE, OfferedVersions
from ...models.produce import ProduceReader

INIT_PRODUCER_ID = facts.api_key("InitProducerId")
JOIN_GROUP = facts.api_key("JoinGroup")
LEAVE_GROUP = facts.api_key("LeaveGroup")
CONSUMER_GROUP_HEARTBEAT = facts.api_key("ConsumerGroupHeartbeat")


class _Feature(Detector):
    """A detector of an unused feature."""

    severity = Severity.INFO

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.offers = traffic.model(OfferedVersions)

    def offered(self, conn: ClientConnection, api_key: int) -> int:
        """The newest version of an API that the broker offers; -1 if it does not, or that is unknown."""
        return (self.offers.of(conn) or {}).get(api_key, (-1, -1))[1]


class IdempotenceUnused(_Feature):
    id = "idempotence-unused"
    title = "a producer uses acks=all without idempotence (KIP-98)"
    why = (
        "acks=all keeps acknowledged records; only idempotence prevents duplicates and wrong order after retries "
        "(KIP-98). It costs almost nothing. Java producers have enabled it by default since 3.0 (KIP-679), librdkafka "
        "does not."
    )
    remedy = "set enable.idempotence=true (Java, librdkafka) or enable_idempotence=True (kafka-python, aiokafka)"
    apis = frozenset({PRODUCE, INIT_PRODUCER_ID})

    REQUESTS = 50
    """Produce requests checked that had no producer id."""

    def setup(self) -> None:
        self.produce = self.traffic.model(ProduceReader)
        self._plain: BoundedDict[ClientIdentity, int] = BoundedDict()  # requests that were checked
        self._idempotent: BoundedDict[ClientIdentity, bool] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        client = conn.identity
        if exchange.api_key == INIT_PRODUCER_ID:
            self._idempotent[client] = True
            self._found.pop(client, None)
        if client in self._idempotent or exchange.api_key != PRODUCE or self.offered(conn, INIT_PRODUCER_ID) < 0:
            return
        count = self._plain.get(client, 0)
        if count < self.REQUESTS and not self._is_plain(exchange, client):
            return
        count = self._plain[client] = count + 1
        if count < self.REQUESTS:
            return
        finding = self.report(client, exchange)
        finding.count = count
        finding.seen = f"{conn.who} sent {count} Produce requests with acks=all and no producer id to {conn.where}"

    def _is_plain(self, exchange: Exchange, client: ClientIdentity) -> bool:
        sent = self.produce.sent(exchange)
        batches = [part.batch for part in sent.parts if part.batch is not None] if sent is not None else []
        if any(batch.producer_id >= 0 for batch in batches):
            self._idempotent[client] = True
            return False
        return bool(batches) and sent is not None and sent.acks == -1


@dataclass(slots=True)
class _Moves:
    """Members of a client and group that left and have not come back, and that came back."""

    away: int = 0
    back: int = 0


class StaticMembershipUnused(_Feature):
    id = "static-membership-unused"
    title = "consumers without group.instance.id leave their group and rejoin it (KIP-345)"
    why = (
        "each leave and each join makes the whole group rebalance. A static member (KIP-345) that returns within "
        "session.timeout.ms gets its partitions back without a rebalance."
    )
    remedy = (
        "give each consumer its own group.instance.id that stays the same across restarts (Java, librdkafka; "
        "group_instance_id in kafka-python and aiokafka), and a session.timeout.ms longer than a restart takes"
    )
    apis = frozenset({JOIN_GROUP, LEAVE_GROUP})

    COMEBACKS = 3
    """New members of one client id after one had left: one is a restart, two may be a deployment."""

    def setup(self) -> None:
        # By host, client id and group.
        self._moves: BoundedDict[tuple[str, str, str], _Moves] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        message = exchange.request_view
        if message is None:
            return
        fields = message.to_dict()
        key = conn.client_host, conn.client_id or "", fields["group_id"]
        moves = self._moves.of(key, _Moves)
        if exchange.api_key == LEAVE_GROUP:
            moves.away += len(fields.get("members", [0]))
            return
        if fields["member_id"] or fields.get("group_instance_id") or not moves.away:
            return
        moves.away -= 1
        moves.back += 1
        if moves.back < self.COMEBACKS or self.offered(conn, JOIN_GROUP) < 5:
            return
        group = fields["group_id"]
        finding = self.report(key, exchange, group=group)
        finding.count = moves.back
        finding.seen = (
            f"consumers of {conn.who} left group {group!r} and came back as new members {moves.back} times; "
            f"{conn.where} offers static membership"
        )


class ClassicGroupProtocol(_Feature):
    id = "classic-group-protocol"
    title = "consumer groups use the classic protocol although the new one is available (KIP-848)"
    why = (
        "with the new protocol (KIP-848), the broker assigns partitions, and members keep reading while others move: "
        "there is no round of JoinGroup and SyncGroup in which every member stops. It has been generally available "
        "since Kafka 4.0."
    )
    remedy = (
        "set group.protocol=consumer (Java 4.0 and newer, librdkafka 2.12 and newer); check first whether you use "
        "what it does not have: client-side assignors, session.timeout.ms, heartbeat.interval.ms"
    )
    apis = frozenset({JOIN_GROUP})

    JOINS = 3
    """Rounds of JoinGroup that were completed."""
    GROUPS = 20
    """Groups that are named in `about`; more are counted."""

    def setup(self) -> None:
        self._joins: BoundedDict[object, int] = BoundedDict()
        self._groups: BoundedDict[object, dict[str, None]] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        # Version 1 came with 4.0, where the protocol became production-ready.
        message = exchange.request_view
        if exchange.state is not State.PAIRED or message is None or exchange.error:
            return
        if message["protocol_type"] != "consumer" or self.offered(conn, CONSUMER_GROUP_HEARTBEAT) < 1:
            return
        key = conn.cluster.id or conn.broker
        joins = self._joins.get(key, 0) + 1
        self._joins[key] = joins
        groups = self._groups.of(key, dict)
        if len(groups) < self.GROUPS:
            groups[message["group_id"]] = None
        if joins < self.JOINS:
            return
        finding = self.report(key, exchange)
        finding.count = joins
        finding.about["groups"] = sorted(groups)
        finding.seen = (
            f"{'groups' if len(groups) > 1 else 'group'} "
            f"{', '.join(sorted(groups)[:3])}{f' and {len(groups) - 3} more' if len(groups) > 3 else ''} joined with "
            f"the classic protocol ({joins} JoinGroup answers); {conn.where} offers ConsumerGroupHeartbeat"
        )


class _FetchFeature(_Feature):
    """Counts a client's fetches."""

    FETCHES = 50
    """Fetches without the feature: enough to conclude that the client does not use it."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._fetches: BoundedDict[ClientIdentity, int] = BoundedDict()

    def counted(self, conn: ClientConnection) -> int:
        """One more fetch without the feature; how many there are."""
        count = self._fetches[conn.identity] = self._fetches.get(conn.identity, 0) + 1
        return count


class TopicIdsUnused(_FetchFeature):
    id = "topic-ids-unused"
    title = "a consumer fetches by topic name although the broker offers topic ids (KIP-516)"
    why = (
        "Fetch v13 and newer name topics by id (KIP-516). By name, a topic that was deleted and recreated looks the "
        "same: the consumer continues with offsets of the old one. Requests are also longer."
    )
    remedy = "upgrade the client: Java 3.1 and newer and current librdkafka (seen with 2.8) fetch by id"
    apis = frozenset({FETCH})

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        return version < 13

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED or self.offered(conn, FETCH) < 13:
            return
        count = self.counted(conn)
        if count < self.FETCHES:
            return
        finding = self.report(conn.identity, exchange)
        finding.count = count
        finding.seen = (
            f"{conn.who} fetched {count} times by topic name (Fetch v{exchange.api_version}); {conn.where} offers "
            f"v{self.offered(conn, FETCH)}"
        )


class RackUnaware(_FetchFeature):
    id = "rack-unaware-fetch"
    title = "a consumer does not set its rack, but the brokers are in several racks (KIP-392)"
    why = (
        "a consumer that names its rack can read from a replica in it (KIP-392), which reduces traffic between racks "
        "or zones, and cost where that traffic is billed."
    )
    remedy = (
        "set client.rack on the consumers (client_rack in kafka-python and aiokafka), and on the brokers "
        "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"
    )
    apis = frozenset({METADATA, FETCH})

    def setup(self) -> None:
        self._racks: BoundedDict[str, frozenset[str]] = BoundedDict()

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        return version >= (1 if api_key == METADATA else 11)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        if exchange.api_key == METADATA:
            answer = exchange.response_view
            if answer is not None:
                found = lists_at(answer, "brokers.rack")[0]
                key = conn.cluster.id or conn.broker
                self._racks.pop(key, None)
                self._racks.of(key, lambda: frozenset(rack for rack in found if rack))
            return
        racks = self._racks.get(conn.cluster.id or conn.broker, frozenset())
        if len(racks) < 2:
            return
        if self._fetches.get(conn.identity, 0) < self.FETCHES and not self._is_unaware(exchange):
            return
        count = self.counted(conn)
        if count < self.FETCHES:
            return
        finding = self.report(conn.identity, exchange, racks=sorted(racks))
        finding.count = count
        finding.seen = (
            f"{conn.who} fetched {count} times without naming a rack; the brokers are in {len(racks)} racks: "
            f"{', '.join(sorted(racks)[:5])}"
        )

    @staticmethod
    def _is_unaware(exchange: Exchange) -> bool:
        message = exchange.request_view
        if message is None or message["rack_id"]:
            return False
        # Followers fetch too, and have no rack to name.
        return exchange.api_version >= 15 or bool(message["replica_id"] < 0)
