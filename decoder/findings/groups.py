"""What is known of the groups: their members, what each of them did when, their rebalances and assignments.

One `Groups` per scene (`Groups.of`), told by every detector that asks it and taking each exchange once. A group has
its members' timelines for whoever draws them. Bounded: so many groups, members, rebalances and steps are kept.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from .. import facts
from ..exchange import Exchange
from .detector import Detector
from .foreseen import SIGNS
from .group import Group
from .group_calls import GROUP_APIS, MEMBER_ID_REQUIRED, Call, read_call
from .group_members import Member, State, Step
from .scene import Cluster, Link, Scene
from .wording import SECOND

CALM_NS = 6 * SECOND
"""Longer than detectors wait until an assignment counts as settled."""
SILENT_NS = 10 * SECOND
"""Silence that is worth a look, whatever the session timeout is."""
GROUPS = 5000
"""Groups that are kept; the one that was quiet for longest is forgotten."""
FETCH = facts.api_key("Fetch")


class Groups:
    """All groups of a scene. Members that the coordinator never told an id are none yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[Group]] = {}
        self._open: dict[int, Call] = {}
        self._last: tuple[str, object, Any] = ("", None, None)
        self._on_link: dict[int, dict[tuple[int, str], tuple[Group, Member]]] = {}
        self.detectors: list[str] = []  # by id: who tells of what happens
        self._signs: dict[tuple[int, int, str | None], tuple[Call, Member]] = {}
        self.fetched: dict[tuple[str, str, str], int] = {}
        """When a client (`Link.identity`) last sent a Fetch; only known while a detector listens to Fetch."""

    @staticmethod
    def of(scene: Scene) -> Groups:
        """The groups of a scene, the same for all that ask."""
        found = _SCENES.get(scene)
        if found is None:
            found = _SCENES[scene] = Groups()
        return found

    def all(self) -> list[Group]:
        """Every group, the one that was quiet for longest first."""
        return [group for same in self._by_id.values() for group in same]

    def polled_ns(self, member: Member) -> int | None:
        """When the client of a member last sent a Fetch, None if none was seen. Clients with one id share it."""
        return self.fetched.get(member.link.identity)

    def group(self, group_id: str, cluster: Cluster) -> Group:
        """A group of a cluster; while a cluster has not told its id, it is taken for the same."""
        same = self._by_id.pop(group_id, [])
        self._by_id[group_id] = same
        for group in same:
            if group.cluster is cluster or not cluster.id or not group.cluster.id or group.cluster.id == cluster.id:
                if cluster.id:
                    group.cluster = cluster
                return group
        group = Group(group_id, cluster)
        same.append(group)
        while len(self._by_id) > GROUPS:
            del self._by_id[next(iter(self._by_id))]
        return group

    def request(self, link: Link, exchange: Exchange) -> Call | None:
        """A request; every detector may tell of it, it counts once."""
        if self._last[:2] == ("request", exchange):
            call: Call | None = self._last[2]
            return call
        call = None
        if exchange.api_key == FETCH:
            self._fetch(link, exchange)
        else:
            call = read_call(link, exchange)
            if call is not None:
                self._open[id(exchange)] = call
                call.group = self.group(call.group_id, link.cluster)
                self._find(call)
                call.group.asked(call)
        self._last = "request", exchange, call
        return call

    def done(self, link: Link, exchange: Exchange) -> Call | None:
        """An exchange is done."""
        if self._last[:2] == ("done", exchange):
            call: Call | None = self._last[2]
            return call
        call = self._open.pop(id(exchange), None)
        if call is not None:
            call.answered()
            told = call.answer.get("member_id")
            if told and call.member is None and call.error in (0, MEMBER_ID_REQUIRED):
                call.member_id = told
                self._find(call, made=True)
            call.group.answered(call)
            if exchange.plain:
                self._calm(link, exchange, call)
        self._last = "done", exchange, call
        return call

    def _calm(self, link: Link, exchange: Exchange, call: Call) -> None:
        """Remember a sign of life that was answered well, so that the same again needs not be read."""
        group, member = call.group, call.member
        if call.answer.get("assignment") is not None:
            group.given_ns = call.answered_ns
        elif exchange.api_key in SIGNS and member is not None and not call.joins and not call.leaves:
            if call.asked_ns - group.given_ns >= CALM_NS:
                group.calm_ns = call.asked_ns
            key = link.number, exchange.api_key, exchange.client_id
            self._signs[key] = call, member
            if len(self._signs) > GROUPS:
                del self._signs[next(iter(self._signs))]

    def sign(self, link: Link, exchange: Exchange) -> bool:
        """A sign of life that says the same as the one before, and will be answered with the same; whether nothing more is
        to be told of it, as all is calm."""
        call, member = self._signs.get((link.number, exchange.api_key, exchange.client_id), (None, None))
        if call is None or member is None:
            return False
        group, now = call.group, exchange.request_time_ns or 0
        calm = group.rebalance is None and not group.waiting and group.calm_ns > group.given_ns
        same = member.state is State.STABLE and member.link is link and member.generation == call.generation
        silence = now - member.seen_ns
        if not (calm and same) or member.closed_ns or member.torn or not 0 <= silence < SILENT_NS:
            return False
        if silence * 3 >= member.session_timeout_ms * 1_000_000 > 0:
            return False
        member.seen_ns = member.heartbeat_ns = now
        member.step(now, Step.HEARTBEAT)
        return True

    def closed(self, link: Link) -> list[tuple[Group, Member]]:
        """The members whose connection ended, as they were on it last."""
        if self._last[:2] == ("closed", link):
            ended: list[tuple[Group, Member]] = self._last[2]
            return ended
        ended = list(self._on_link.pop(link.number, {}).values())
        for group, member in ended:
            member.closed_ns = link.closed_ns or 0
            member.step(member.closed_ns, Step.CLOSED)
            for key in [k for k, call in group.waiting.items() if call.link is link]:
                del group.waiting[key]
        for key in link.waiting:
            self._open.pop(key, None)
        self._last = "closed", link, ended
        return ended

    def _find(self, call: Call, made: bool = False) -> None:
        """The member that a call is of, made up where its id is new (`made`: by the coordinator)."""
        group = call.group
        member = group.members.get(call.member_id) if call.member_id else None
        if member is None and call.member_id and (made or not (call.commits or call.leaves)):
            member = group.members[call.member_id] = Member(call.member_id, call.link, call.asked_ns, call.protocol)
            member.instance_id = call.instance_id
        call.member = member
        if member is None or call.api == "LeaveGroup":  # an administrator may say that for others
            return
        if not member.waits and member.live and not member.torn:
            call.silence_ns = call.asked_ns - member.seen_ns
        if member.link is not call.link:
            self._on_link.get(member.link.number, {}).pop((id(group), member.member_id), None)
        member.link = call.link
        self._on_link.setdefault(call.link.number, {})[id(group), member.member_id] = group, member
        member.closed_ns, member.lost = 0, call.link.lost
        member.seen_ns = call.asked_ns

    def _fetch(self, link: Link, exchange: Exchange) -> None:
        identity = link.identity
        self.fetched.pop(identity, None)
        self.fetched[identity] = exchange.request_time_ns or 0
        if len(self.fetched) > GROUPS:
            del self.fetched[next(iter(self.fetched))]


_SCENES: WeakKeyDictionary[Scene, Groups] = WeakKeyDictionary()


class GroupDetector(Detector):
    """A detector that is told the calls of group members instead of exchanges."""

    apis = GROUP_APIS

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.groups = Groups.of(scene)
        self.groups.detectors.append(self.id)

    def hears(self, name: str) -> bool:
        own = {"request": "asked", "done": "answered", "closed": "ended"}.get(name)
        if own is None or getattr(type(self), name) is not getattr(GroupDetector, name):
            return super().hears(name)
        # What happens has to be told to the groups, if only by one of us.
        first = self.groups.detectors[:1] == [self.id]
        return first or getattr(type(self), own) is not getattr(GroupDetector, own)

    def follows(self, link: Link, exchange: Exchange, same: bool) -> bool:
        return not same  # `Groups.sign` sees to those

    def request(self, link: Link, exchange: Exchange) -> None:
        call = self.groups.request(link, exchange)
        if call is not None:
            self.asked(call)

    def done(self, link: Link, exchange: Exchange) -> None:
        call = self.groups.done(link, exchange)
        if call is not None:
            self.answered(call)

    def closed(self, link: Link) -> None:
        for group, member in self.groups.closed(link):
            self.ended(group, member)

    def asked(self, call: Call) -> None:
        """A member asks; the model knows already."""

    def answered(self, call: Call) -> None:
        """It is answered, or never will be (`call.answer` is empty)."""

    def ended(self, group: Group, member: Member) -> None:
        """The connection that a member was on has ended."""
