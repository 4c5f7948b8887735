"""Chooses the broker of the target for each request: leaders of partitions, coordinators, else any."""

from __future__ import annotations

from collections import Counter

from ...captures.replay.mapping import IdMapping
from ...captures.replay.rewrite import read
from ...decoder.codec.message import Message
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from .target import TargetCluster

_BY_LEADER = frozenset(
    facts.api_key(name)
    for name in ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords", "ShareFetch", "ShareAcknowledge")
)
_BY_GROUP = frozenset(
    facts.api_key(name)
    for name in (
        "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "OffsetDelete", "DescribeGroups",
        "DeleteGroups", "TxnOffsetCommit", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ShareGroupHeartbeat",
        "ShareGroupDescribe", "StreamsGroupHeartbeat", "StreamsGroupDescribe", "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
    )
)  # fmt: skip
_BY_TRANSACTION = frozenset(
    facts.api_key(name) for name in ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "InitProducerId")
)


class Router:
    """Chooses brokers. `spread` counts requests whose partitions have several leaders at the target: they go to the one
    that leads most of them, which refuses the others."""

    def __init__(self, target: TargetCluster, mapping: IdMapping) -> None:
        self._target, self._mapping = target, mapping
        self._homes: dict[str, int] = {}
        self.spread = 0

    def node(self, message: Message | None, recorded_broker: str) -> int | None:
        """The id of the broker for a request; None for the target's given address."""
        target = self._target
        if len(target.brokers) < 2:
            return None
        if message is not None:
            key = message.api_key
            if key in _BY_LEADER:
                leaders = Counter(self._leaders(message))
                if len(leaders) > 1:
                    self.spread += 1
                if leaders:
                    return leaders.most_common(1)[0][0]
            elif key in _BY_GROUP or key in _BY_TRANSACTION:
                wanted = Meaning.GROUP if key in _BY_GROUP else Meaning.TRANSACTIONAL_ID
                name = next((value for role, value, _, _ in read(message) if role is wanted and value), None)
                if name is not None:
                    asks = target.group_coordinator if key in _BY_GROUP else target.transaction_coordinator
                    found = asks(name)
                    if found is not None:
                        return found
        nodes = sorted(target.brokers)
        return self._homes.setdefault(recorded_broker, nodes[len(self._homes) % len(nodes)])

    def _leaders(self, message: Message) -> list[int]:
        names = {topic.topic_id: name for name, topic in self._target.topics.items()}
        found = []
        for role, value, scope, _ in read(message):
            if role is not Meaning.PARTITION:
                continue
            topic = scope.get(Meaning.TOPIC) or names.get(scope.get(Meaning.TOPIC_ID, b""))
            leader = self._target.leader(topic, value) if topic else None
            if leader is not None:
                found.append(leader)
        return found
