"""All consumer groups: their members, timelines, rebalances and assignments.

One `Groups` per `Traffic` (`Groups.of`). The number of groups, members, rebalances and timeline steps that it keeps is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...connection.exchange import Exchange
from ...schema import facts
from ..engine.clusters import Cluster
from ..engine.counters import BoundedDict, LruDict
from ..engine.detector import Detector, Model
from ..engine.traffic import ClientConnection, ClientIdentity, Traffic
from . import group_protocol
from .group import Group, Member, Step
from .group_calls import GROUP_APIS, MEMBER_ID_REQUIRED, Call, read_call

GROUPS = 5000
"""Most groups kept: drops the one that was quiet for longest."""
FETCH = facts.api_key("Fetch")


FETCH_PAUSE_NS = 5_000_000_000
"""Consumers that are idle fetch again after fetch.max.wait.ms (0.5 s)."""


class Groups(Model):
    """All groups. `call`: the last exchange of `apis` as a member's call, None if it is not one. `ended`: the members on the
    connection that has just ended. A member counts from when the coordinator gives it an id."""

    id = "groups"
    apis = GROUP_APIS | {FETCH}

    def setup(self) -> None:
        self.call: Call | None = None
        self.ended: list[tuple[Group, Member]] = []
        self._by_id: LruDict[str, list[Group]] = LruDict(GROUPS)
        self._open: dict[Exchange, Call] = {}
        self._on_link: dict[int, dict[tuple[Group, str], tuple[Group, Member]]] = {}
        self.fetched: BoundedDict[ClientIdentity, int] = BoundedDict(GROUPS)
        """When a client (`ClientConnection.identity`) last sent a Fetch."""
        self.fetching_since: BoundedDict[ClientIdentity, int] = BoundedDict(GROUPS)
        """Since when it has sent Fetch requests without a pause."""

    @staticmethod
    def of(traffic: Traffic) -> Groups:
        """The groups of `traffic`."""
        return traffic.model(Groups)

    def all(self) -> list[Group]:
        """Every group, the one that was quiet for longest first."""
        return [group for same in self._by_id.values() for group in same]

    def polled_ns(self, member: Member) -> int | None:
        """When the client of a member last sent a Fetch, None if none was seen. Clients with one id share it."""
        return self.fetched.get(member.conn.identity)

    def group(self, group_id: str, cluster: Cluster) -> Group:
        """A group of a cluster; a cluster whose id is unknown matches any."""
        same = self._by_id.of(group_id, list)
        for group in same:
            if group.cluster is cluster or not cluster.id or not group.cluster.id or group.cluster.id == cluster.id:
                if cluster.id:
                    group.cluster = cluster
                return group
        group = Group(group_id, cluster)
        same.append(group)
        return group

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        self.call = call = read_call(conn, exchange)
        if call is not None:
            self._open[exchange] = call
            call.group = self.group(call.group_id, conn.cluster)
            self._find(call)
            group_protocol.on_request(call)
        elif exchange.api_key == FETCH:
            self._fetch(conn, exchange)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        self.call = call = self._open.pop(exchange, None)
        if call is not None:
            call.answered()
            if call.member is None and call.error in (0, MEMBER_ID_REQUIRED) and (member_id := call.given_id):
                call.member_id = member_id
                self._find(call, made=True)
            group_protocol.on_response(call)

    def closed(self, conn: ClientConnection) -> None:
        self.ended = list(self._on_link.pop(conn.number, {}).values())
        for group, member in self.ended:
            member.closed_ns = conn.closed_ns or 0
            member.step(member.closed_ns, Step.CLOSED)
            for key in [k for k, exchange in group.waiting.items() if exchange.connection == conn.number]:
                del group.waiting[key]
        for key in conn.waiting:
            self._open.pop(key, None)

    def _find(self, call: Call, made: bool = False) -> None:
        """Set the member of a call, made if its id is new (`made`: by the coordinator)."""
        group = call.group
        member = group.members.get(call.member_id) if call.member_id else None
        if member is None and call.member_id and (made or not (call.commits or call.leaves)):
            member = group.members[call.member_id] = Member(call.member_id, call.conn, call.asked_ns, call.protocol)
            member.instance_id = call.instance_id
            self._on_link.setdefault(call.conn.number, {})[group, member.member_id] = group, member
        call.member = member
        if member is None or call.api == "LeaveGroup":  # an administrator may send it for others
            return
        if not member.waits and member.live and not member.has_gap:
            call.silence_ns = _silence(member, call)
        if member.conn is not call.conn:
            self._on_link.get(member.conn.number, {}).pop((group, member.member_id), None)
            self._on_link.setdefault(call.conn.number, {})[group, member.member_id] = group, member
            member.conn = call.conn
        member.closed_ns, member.lost = 0, call.conn.lost
        member.seen_ns = call.asked_ns

    def _fetch(self, conn: ClientConnection, exchange: Exchange) -> None:
        identity, now = conn.identity, exchange.request_time_ns or 0
        last = self.fetched.pop(identity, None)
        self.fetched[identity] = now
        if last is None or now - last > FETCH_PAUSE_NS:
            self.fetching_since[identity] = now


def _silence(member: Member, call: Call) -> int:
    """How long a member kept silent by its own doing: not while it looks for a coordinator that moved or ended its connection."""
    if member.conn.broker != call.conn.broker:
        return 0
    ended = member.closed_ns if member.conn.by == "broker" else 0
    return (ended or call.asked_ns) - member.seen_ns


class GroupDetector(Detector):
    """A detector that gets the calls of group members instead of exchanges."""

    apis = GROUP_APIS
    dispatches: ClassVar[Mapping[str, str]] = {"request": "asked", "done": "answered", "closed": "ended"}

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.groups = traffic.model(Groups)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        call = self.groups.call
        if call is not None and call.exchange is exchange:
            self.asked(call)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        call = self.groups.call
        if call is not None and call.exchange is exchange:
            self.answered(call)

    def closed(self, conn: ClientConnection) -> None:
        for group, member in self.groups.ended:
            self.ended(group, member)

    def asked(self, call: Call) -> None:
        """A member sent a request; the model is up to date."""

    def answered(self, call: Call) -> None:
        """It was answered, or never will be (`call.is_answered`)."""

    def ended(self, group: Group, member: Member) -> None:
        """The connection that a member was on has ended."""
