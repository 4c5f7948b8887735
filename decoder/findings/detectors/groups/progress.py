"""Members that live and read nothing."""

from __future__ import annotations

from itertools import islice

from ...engine.counters import BoundedDict
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, some
from ...engine.traffic import ClientConnection
from ...models.group import Group, Member
from ...models.groups import GroupDetector

_PARTITIONS = 200
"""Most partitions of an assignment that are looked at."""
_BROKERS = 4096


class StalledMember(GroupDetector):
    """A member with partitions that sends heartbeats and no Fetch.

    A capture of some brokers may lack the ones that the member fetches from: it says nothing unless it shows connections to the leaders
    of all the member's partitions. Kafka Streams pauses its partitions while it restores its state.
    """

    id = "stalled-member"
    severity = Severity.MEDIUM
    title = "a member of a group has partitions and sends heartbeats, but does not fetch"
    explains = ("stale-commit", "consumer-lag-growing")

    NEVER_NS = 60 * SECOND
    """Without a Fetch since its assignment: consumers fetch at once."""
    PAUSED_NS = 180 * SECOND
    """Without a Fetch since the last one: the application may process what it has."""

    def setup(self) -> None:
        self._brokers: BoundedDict[str, None] = BoundedDict(_BROKERS)

    def opened(self, conn: ClientConnection) -> None:
        if conn.established:
            self._brokers[conn.broker] = None

    def finish(self, now_ns: int) -> None:
        self._for_now = {}
        for group in self.groups.all():
            if group.protocol in ("classic", "consumer"):
                for member in group.live:
                    if member.assignment and member.synced_ns and not member.closed_ns and not member.streams:
                        self._judge(group, member)

    def _judge(self, group: Group, member: Member) -> None:
        fetched = self.groups.polled_ns(member) or 0
        since = max(member.synced_ns, fetched)
        silent = member.heartbeat_ns - since
        never = fetched < member.synced_ns
        if silent < (self.NEVER_NS if never else self.PAUSED_NS) or not self._would_be_seen(group, member, fetched):
            return
        parts = [f"{topic}-{number}" for topic, numbers in (member.assignment or {}).items() for number in numbers]
        if not parts:
            return
        when = f"since it got {some(parts)} in the last rebalance" if never else f"of {some(parts)} since its last one"
        before = f" (its last Fetch was {duration(member.synced_ns - fetched)} before)" if never and fetched else ""
        found = self.finding(
            f"{member.who} of group {group.id!r} has sent heartbeats for {duration(silent)} and no Fetch {when}{before}: nobody "
            "reads these partitions",
            "a consumer fetches from each of its partitions as soon as it has them, and a heartbeat keeps them assigned to it "
            "whether it does or not. The client is stuck after the rebalance (a callback that does not return, a deadlock, a "
            "bug of the library), or the application has paused all of its partitions: the traffic does not tell these apart."
            if never
            else "heartbeats keep its partitions assigned to it, whether it reads them or not. The application still processes "
            "what it fetched, has paused its partitions, or is stuck: the traffic does not tell these apart.",
            "look at the client's threads and at its rebalance callbacks; restart it to move its partitions to others; if "
            "pause() is intended, make sure that resume() follows, after a rebalance too; upgrade an old library "
            f"{f'({member.conn.software})' if member.conn.software else ''}".rstrip()
            if never
            else "compare the processing time with max.poll.interval.ms; fetch less per poll, or add members",
            Severity.MEDIUM if never else Severity.LOW,
            group=group.id,
            member=member.member_id,
            silent_ms=silent // 1_000_000,
            **member.conn.facts,
        )
        found.add_evidence(None, since)
        found.add_evidence(None, member.heartbeat_ns)
        self._for_now[group, member.member_id] = found

    def _would_be_seen(self, group: Group, member: Member, fetched: int) -> bool:
        """Whether the capture would show the member's fetches: it has connections to the leaders of its partitions."""
        cluster = member.conn.cluster
        addresses = {*self._brokers, *(conn.broker for conn in self.traffic.connections.values())}
        captured = {cluster.node_at(address) for address in addresses}
        places = ((topic, number) for topic, numbers in (member.assignment or {}).items() for number in numbers)
        leaders = [cluster.leaders.get(place) for place in islice(places, _PARTITIONS)]
        return all(leader.node in captured if leader is not None else bool(fetched) for leader in leaders)
