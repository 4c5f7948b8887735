"""Members that live and read nothing, or that read from another place than the group has committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ....codec.message_view import MessageView
from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, some, times, topic_name
from ...engine.layout import partition_places, rows, top
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.group import Group, Member, Step
from ...models.group_calls import GROUP_APIS, JOINING_APIS, LEAVE_GROUP, Call
from ...models.groups import GroupDetector, Groups
from ...models.next_steps import NextSteps
from .coordinators import coordinators

_PARTITIONS = 200
"""Most partitions of an assignment that are looked at."""
_BROKERS = 4096
_FIND_COORDINATOR = facts.api_key("FindCoordinator")


class _NoFetch(GroupDetector):
    """A detector of members with partitions that do not fetch: override `judge`.

    A capture of some brokers may lack the ones that the member fetches from: it says nothing unless it shows connections to the leaders
    of all the member's partitions. Kafka Streams pauses its partitions while it restores its state.
    """

    explains = ("stale-commit", "consumer-lag-growing")

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
                    if member.assignment and member.synced_ns and not member.streams:
                        self.judge(group, member, self.groups.polled_ns(member) or 0)

    def judge(self, group: Group, member: Member, fetched: int) -> None:
        """Look at a member with partitions; `fetched`: when it last sent a Fetch, 0 for never."""

    def _would_be_seen(self, group: Group, member: Member, fetched: int) -> bool:
        """Whether the capture would show the member's fetches: it has connections to the leaders of its partitions."""
        cluster = member.conn.cluster
        addresses = {*self._brokers, *(conn.broker for conn in self.traffic.connections.values())}
        captured = {cluster.node_at(address) for address in addresses}
        places = ((topic, number) for topic, numbers in (member.assignment or {}).items() for number in numbers)
        leaders = [cluster.leaders.get(place) for place in islice(places, _PARTITIONS)]
        return all(leader.node in captured if leader is not None else bool(fetched) for leader in leaders)


def _partitions(member: Member) -> list[str]:
    return [f"{topic}-{number}" for topic, numbers in (member.assignment or {}).items() for number in numbers]


class StalledMember(_NoFetch):
    id = "stalled-member"
    severity = Severity.MEDIUM
    title = "a member of a group has partitions and sends heartbeats, but does not fetch"

    NEVER_NS = 60 * SECOND
    """Without a Fetch since its assignment: consumers fetch at once."""
    PAUSED_NS = 180 * SECOND
    """Without a Fetch since the last one: the application may process what it has."""

    def judge(self, group: Group, member: Member, fetched: int) -> None:
        since = max(member.synced_ns, fetched)
        silent = member.heartbeat_ns - since
        never = fetched < member.synced_ns
        if (member.closed_ns and not never) or silent < (self.NEVER_NS if never else self.PAUSED_NS):
            return
        if not self._would_be_seen(group, member, fetched):
            return
        parts = _partitions(member)
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


class JoinsWithoutFetching(_NoFetch):
    id = "joins-without-fetching"
    severity = Severity.HIGH
    title = "a member of a group joins again and again, and never fetches from the partitions that it gets"

    JOINS = 4
    JOINING_NS = 10 * SECOND
    """Rebalances in a row without a Fetch, and over how long: members that start one after another take less."""

    def judge(self, group: Group, member: Member, fetched: int) -> None:
        synced = [moment.time_ns for moment in member.timeline if moment.step is Step.SYNCED and not moment.code and moment.time_ns > fetched]
        if len(synced) < self.JOINS or synced[-1] - synced[0] < self.JOINING_NS or not self._would_be_seen(group, member, fetched):
            return
        found = self.finding(
            f"{member.who} of group {group.id!r} joined {len(synced)} times in {duration(synced[-1] - synced[0])}, got "
            f"{some(_partitions(member))}, and sent no Fetch in between",
            "a consumer fetches from its partitions as soon as it has them. This one joins again instead, though the coordinator answers "
            "without an error: it finds something wrong with the answers to its other requests (OffsetFetch, Metadata, ListOffsets), or a "
            "rebalance callback of the application fails. Its log has the reason, the wire does not.",
            f"read the client's log at that time; upgrade its library {f'({member.conn.software})' if member.conn.software else ''}".rstrip(),
            None,
            group=group.id,
            member=member.member_id,
            **member.conn.facts,
        )
        for time_ns in synced:
            found.add_evidence(None, time_ns)
        self._for_now[group, member.member_id] = found


@dataclass(slots=True)
class _Out:
    """A client that is no member any more and must join again. `said`: how it lost its membership; `must`: what it has
    to do; `exchange`: None if its connection ended. `sought`: how often it has looked for its coordinator since, and
    when last."""

    conn: ClientConnection
    exchange: Exchange | None
    said: str
    must: str
    time_ns: int
    sought: int = 0
    sought_ns: int = 0


class NotJoinedAgain(GroupDetector):
    """A consumer that the application gave up ends its connection to the coordinator, and looks for none."""

    id = "not-joined-again"
    severity = Severity.HIGH
    title = "a client is told to join its group again, or loses its connection to the coordinator, and stays without joining"
    apis = GROUP_APIS | {_FIND_COORDINATOR}
    request_apis = JOINING_APIS | {LEAVE_GROUP}
    why = (
        "a client whose membership ended must {}; until then it has no partitions, and its application gets no records "
        "and no error. This one is still connected and does not: it is stuck, and it is the client's fault."
    )
    remedy = "restart the consumer: it joins at once; upgrade the client library, or report it to its developers"

    AFTER_NS = 120 * SECOND
    """Clients join again at once; one that is busy with records does so in its next poll."""
    SOUGHT = 5
    STEPS = frozenset({"join-with-id", "join-without-id", "join-epoch"})

    def setup(self) -> None:
        self._steps = self.traffic.model(NextSteps)
        self._out: BoundedDict[ClientIdentity, dict[str, _Out]] = BoundedDict(2000)

    def asked(self, call: Call) -> None:
        if call.joins or call.leaves:
            self._forget(call)

    def answered(self, call: Call) -> None:
        if call.is_answered and not call.error:
            self._forget(call)
        for pending in self._steps.touched(call.exchange):
            if (step := pending.step).name in self.STEPS:
                said, must = f"got {facts.error_name(call.error)} to {call.api}", f"{step.must} ({step.source})"
                self._lost(call.conn, call.group_id, _Out(call.conn, call.exchange, said, must, call.answered_ns))

    def ended(self, group: Group, member: Member) -> None:
        if member.conn.by == "broker" and member.live and member.assignment:
            said, must, conn = "lost its connection to the coordinator", "send JoinGroup again", member.conn
            self._lost(conn, group.id, _Out(conn, None, said, must, conn.closed_ns or 0))

    def _lost(self, conn: ClientConnection, group_id: str, out: _Out) -> None:
        groups = self._out.of(conn.identity, dict)
        if len(groups) < 100:
            groups.setdefault(group_id, out)

    def _forget(self, call: Call) -> None:
        if self._out and (groups := self._out.get(call.conn.identity)) is not None:
            groups.pop(call.group_id, None)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        super().done(conn, exchange)
        groups = self._out.get(conn.identity) if exchange.api_key == _FIND_COORDINATOR and self._out else None
        for found in coordinators(exchange) if groups else ():
            out = groups.get(found[0]) if groups else None
            if out is not None and not found[1]:
                out.sought, out.sought_ns = out.sought + 1, exchange.response_time_ns or 0

    def closed(self, conn: ClientConnection) -> None:
        super().closed(conn)
        groups = self._out.get(conn.identity) if self._out else None
        for group_id, out in list(groups.items()) if groups else ():
            if out.conn is conn and out.exchange is not None and (conn.closed_ns or 0) - out.time_ns < self.AFTER_NS and groups:
                del groups[group_id]  # it gave up its membership, or its connection was ended first

    def finish(self, now_ns: int) -> None:
        self._for_now.clear()
        for who, groups in self._out.items():
            for group_id, out in groups.items():
                self._judge(who, group_id, out, self._steps.last_used_ns(who))

    def _judge(self, who: ClientIdentity, group_id: str, out: _Out, used_ns: int) -> None:
        waits = out.exchange is not None and used_ns - out.time_ns >= self.AFTER_NS
        seeks = out.sought >= self.SOUGHT and out.sought_ns - out.time_ns >= self.AFTER_NS
        if not (waits or seeks) or self.groups.fetched.get(who, 0) > out.time_ns:
            return
        found = f"; it found the coordinator {times(out.sought)} since then" if out.sought else ""
        finding = self.finding(
            f"{out.conn.who} {out.said} of group {group_id!r}, and has not joined again for "
            f"{duration(max(used_ns, out.sought_ns) - out.time_ns)}, though it is still connected{found}",
            self.why.format(out.must),
            self.remedy,
            None,
            group=group_id,
            **out.conn.facts,
        )
        finding.add_evidence(out.exchange, out.time_ns)
        self._for_now[who, group_id] = finding


@dataclass(slots=True)
class _Unread:
    """Committed offsets that a client could not read. `exchange`: the refused OffsetFetch. `listed_ns`: when it asked ListOffsets for an
    end of the log instead, 0 if it has not; `place`: for which partition; `latest`: which end."""

    exchange: Exchange
    error: str
    group: str
    facts: dict[str, object]
    who: str
    time_ns: int
    listed_ns: int = 0
    place: str = ""
    latest: bool = False


class OffsetsNotRead(Detector):
    """A refused OffsetFetch says nothing about what the group has committed: clients must ask again."""

    id = "committed-offsets-ignored"
    severity = Severity.HIGH
    title = "a consumer is refused its group's committed offsets, and begins at the end or the beginning of the log instead"
    apis = facts.api_key_set("OffsetFetch", "ListOffsets")

    SETTLED_NS = 5 * SECOND
    """Clients try OffsetFetch again within a second."""
    STUCK_NS = 120 * SECOND
    """A client that has neither asked again nor fetched by then is stuck, if it is still there."""

    def setup(self) -> None:
        self._unread: BoundedDict[ClientIdentity, _Unread] = BoundedDict(2000)
        self._steps = self.traffic.model(NextSteps)
        self._groups = self.traffic.model(Groups)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        unread = self._unread.get(conn.identity) if self._unread else None
        message = exchange.request_view
        if unread is None or message is None or exchange.api_key != _LIST_OFFSETS:
            return
        for place, timestamp in _asked(exchange, message):
            if timestamp in (_LATEST, _EARLIEST):
                unread.listed_ns, unread.place, unread.latest = exchange.request_time_ns or 0, place, timestamp == _LATEST
                return

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == _LIST_OFFSETS or exchange.state is not State.PAIRED:
            return
        if not exchange.error:
            self._unread.pop(conn.identity, None)
        elif conn.identity not in self._unread:
            message = exchange.request_view
            group = _group_of(message) if message is not None else ""
            now = exchange.response_time_ns or 0
            name = facts.error_name(exchange.error)
            self._unread[conn.identity] = _Unread(exchange, name, group, conn.facts_of(exchange), conn.who, now)

    def finish(self, now_ns: int) -> None:
        self._for_now.clear()
        for identity, unread in list(self._unread.items()):
            fetched = self._groups.fetched.get(identity, 0)
            if unread.listed_ns and fetched > unread.listed_ns and fetched - unread.time_ns >= self.SETTLED_NS:
                del self._unread[identity]
                self._report(identity, unread)
            elif not unread.listed_ns and fetched < unread.time_ns and now_ns - unread.time_ns >= self.STUCK_NS:
                self._stuck(identity, unread, now_ns)

    def _stuck(self, identity: ClientIdentity, unread: _Unread, now_ns: int) -> None:
        """The client is still there, and has done nothing about the refusal."""
        last = self._steps.last_used_ns(identity)
        if last - unread.time_ns < self.STUCK_NS:
            return
        finding = self.finding(
            f"OffsetFetch of {unread.who} for group {unread.group!r} was refused with {unread.error}; for {duration(last - unread.time_ns)} "
            "since then the client sent other requests, but neither asked again nor fetched",
            "an error to OffsetFetch does not mean that the group has committed nothing; a client must ask again (after NOT_COORDINATOR, the "
            "broker that FindCoordinator names) until it gets an answer. This one waits forever, and no member reads its partitions. It is the "
            "client's fault.",
            "restart the consumer: it asks again; upgrade the client library, or report it to its developers",
            error=unread.error,
            group=unread.group,
            **unread.facts,
        )
        finding.add_evidence(unread.exchange)
        self._for_now[identity, unread.group] = finding

    def _report(self, identity: ClientIdentity, unread: _Unread) -> None:
        end = "end" if unread.latest else "beginning"
        self.report(
            (identity, unread.group),
            unread.exchange,
            f"an error to OffsetFetch does not mean that the group has committed nothing; a client must ask again until it gets an "
            f"answer. This one goes on from the {end} of the log (auto.offset.reset), so records "
            f"{'that the group has not read yet are skipped' if unread.latest else 'that the group has read are read again'}. It is "
            "the client's fault.",
            "upgrade the client library, or let the application fail when it cannot read its offsets; set the group's offsets back to "
            "where it was (kafka-consumer-groups.sh --reset-offsets)",
            seen=f"OffsetFetch of {unread.who} for group {unread.group!r} was refused with {unread.error}; the client did not ask again, "
            f"asked for the {end} of {unread.place} (ListOffsets) {duration(unread.listed_ns - unread.time_ns)} later, and fetched",
            error=unread.error,
            group=unread.group,
            facts=unread.facts,
        )


def _group_of(message: MessageView) -> str:
    """The group of an OffsetFetch request; of several, the first."""
    asked = top(message)
    group: str | None = asked["group_id"] if "group_id" in asked else next((row["group_id"] for row in rows(message, "groups")), "")
    return group or ""


_LIST_OFFSETS = facts.api_key("ListOffsets")
_LATEST, _EARLIEST = -1, -2


def _asked(exchange: Exchange, message: MessageView) -> Iterator[tuple[str, int]]:
    """The partitions and timestamps of a ListOffsets request."""
    places = partition_places(message.plan.root, "topics", "partitions")
    for topic in message.values[places.topics] or ():
        for partition in topic[places.partitions] or ():
            name = topic_name(exchange, topic[places.name])
            yield f"{name}-{partition[places.fields['partition_index']]}", partition[places.fields["timestamp"]]
