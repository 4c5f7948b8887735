"""Committed offsets that are gone when a group asks for them again."""

from __future__ import annotations

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Wanted
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration
from ...engine.traffic import ClientConnection
from ...models.group_calls import COMMITS, offsets_answered
from ...models.groups import GroupDetector

_COMMIT, _FETCH = facts.api_key(COMMITS[0]), facts.api_key("OffsetFetch")
_FORGET = facts.api_key_set("OffsetDelete", "DeleteGroups", "DeleteTopics")
Key = tuple[str, str, str, int]


class CommittedOffsetLost(GroupDetector):
    id = "committed-offset-lost"
    severity = Severity.HIGH
    title = "an offset was committed, and soon after the coordinator has none for that partition, without an error"
    apis = frozenset({_COMMIT, _FETCH}) | _FORGET
    wanted = Wanted.ALL

    SOON_NS = 3600 * SECOND
    """offsets.retention.minutes is 7 days; some products keep offsets for a day."""

    def setup(self) -> None:
        self._committed: BoundedDict[Key, tuple[int, int]] = BoundedDict(10_000)
        """The last offset that was accepted, and when: by cluster, group, topic and partition."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        if exchange.api_key in _FORGET:
            self._committed.clear()
            return
        cluster = conn.cluster.id or conn.broker
        now = exchange.response_time_ns or self.traffic.now_ns
        if exchange.api_key == _COMMIT:
            call = self.groups.call
            if call is not None and call.exchange is exchange:
                for commit in call.offsets():
                    if not commit.error and commit.offset >= 0:
                        self._committed[cluster, call.group_id, commit.topic, commit.partition] = commit.offset, now
            return
        for group, topic, partition, offset in offsets_answered(exchange):
            had = self._committed.get((cluster, group, topic, partition))
            if offset == -1 and had is not None and now - had[1] <= self.SOON_NS:
                self._lost(conn, exchange, (cluster, group, topic, partition), had)

    def _lost(self, conn: ClientConnection, exchange: Exchange, key: Key, had: tuple[int, int]) -> None:
        _, group, topic, partition = key
        offset, when = had
        ago = (exchange.response_time_ns or self.traffic.now_ns) - when
        old = exchange.api_version < 2
        self.report(
            key[:3],
            exchange,
            "the coordinator acknowledged the offset and has none now, so the consumer starts where auto.offset.reset says: it reads records "
            "again, or skips some. Apache Kafka keeps offsets for 7 days (offsets.retention.minutes). "
            + (
                f"OffsetFetch v{exchange.api_version} has no place for an error of the whole request, so a coordinator that is still reading "
                "its offsets may look like one that has none. "
                if old
                else ""
            )
            + "Otherwise the group or topic was deleted meanwhile, or the broker has lost its offsets (an unclean election of "
            "__consumer_offsets, another product).",
            ("use a client that sends OffsetFetch v2 or newer; " if old else "")
            + "look at the coordinator's log at that time; to go on, set the group's offset with kafka-consumer-groups.sh --reset-offsets",
            seen=f"{conn.where} answers OffsetFetch v{exchange.api_version} of {conn.who} with -1 (no offset) and no error for "
            f"{topic}-{partition} of group {group!r}, {duration(ago)} after it accepted offset {offset}",
            group=group,
            topic=topic,
            partition=partition,
            offset=offset,
        )
