"""Members that their coordinator refuses: unknown, fenced, of another protocol, or too many.

`authorization` reports what principals may not do.
"""

from __future__ import annotations

from collections import deque

from ....connection.exchange import Exchange
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Wanted
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, some
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.group import Group
from ...models.group_calls import FENCED_INSTANCE_ID, GONE_CODES, GROUP_APIS, UNRELEASED_INSTANCE_ID, Call
from ...models.groups import GroupDetector
from .coordinators import FIND_COORDINATOR, coordinators

INCONSISTENT = facts.error_code("INCONSISTENT_GROUP_PROTOCOL")


class UnknownMember(GroupDetector):
    id = "unknown-member"
    severity = Severity.MEDIUM
    title = "a member keeps getting UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, or an error about a fenced or stale epoch"
    why = (
        "the coordinator removed the member (no heartbeat for session.timeout.ms, or not back from a rebalance within "
        "max.poll.interval.ms) or moved on to another generation. The client should discard its member id or "
        "generation and rejoin; one that keeps being refused is removed each time, or ignores the error."
    )
    remedy = (
        "find out why it is removed (held-up-join, missed-heartbeats, poll-interval-exceeded) and whether it then "
        "sends JoinGroup with an empty member id; if not, upgrade the client"
    )
    wanted = Wanted.FAILED

    TIMES = 3
    WINDOW_NS = 300 * SECOND
    """A lost member gets this error once or twice, and rejoins."""
    MANY = 10

    def setup(self) -> None:
        self._refusals: BoundedDict[tuple[Group, ClientIdentity], deque[int]] = BoundedDict(2000)

    def answered(self, call: Call) -> None:
        if call.error not in GONE_CODES or call.commits or call.leaves:
            return
        key = call.group, call.conn.identity
        refusals = self._refusals.of(key, lambda: deque(maxlen=1000))
        refusals.append(call.answered_ns)
        while refusals[-1] - refusals[0] > self.WINDOW_NS:
            refusals.popleft()
        if len(refusals) < self.TIMES:
            return
        name = facts.error_name(call.error)
        seen = (
            f"{call.conn.who} was refused {len(refusals)} times in {duration(refusals[-1] - refusals[0])} because it "
            f"is not a member of group {call.group_id!r} (last {name} to {call.api} v{call.exchange.api_version}, "
            f"member {call.member_id or 'without an id'}, generation {call.generation})"
        )
        finding = self.report(key, call.exchange, member=call.member_id, error=name, group=call.group_id)
        finding.seen = seen
        finding.count = max(finding.count, len(refusals))
        if finding.count >= self.MANY:
            finding.severity = Severity.HIGH


class FencedInstance(GroupDetector):
    id = "fenced-instance"
    severity = Severity.HIGH
    title = "a static member is fenced: two processes have the same group.instance.id"

    HOLDERS = 4

    def setup(self) -> None:
        self._holders: BoundedDict[tuple[Group, str], dict[tuple[ClientIdentity, str], ClientConnection]] = BoundedDict(2000)
        self._kept_out: BoundedDict[tuple[Group, str], ClientIdentity] = BoundedDict(2000)

    def asked(self, call: Call) -> None:
        if call.instance_id:
            holders = self._holders.get((call.group, call.instance_id))
            if holders is None:
                holders = self._holders[call.group, call.instance_id] = {}
            who = call.conn.identity, call.member_id
            if who not in holders:
                holders[who] = call.conn
                if len(holders) > self.HOLDERS:
                    del holders[next(iter(holders))]

    def answered(self, call: Call) -> None:
        group, instance = call.group, call.instance_id or ""
        if not call.error and instance and call.joins:
            self._let_in(call, group, instance)
        if call.error not in (FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID):
            return
        others = {
            conn.who
            for (identity, member), conn in self._holders.get((group, instance), {}).items()
            if member != call.member_id or identity != call.conn.identity
        } - {call.conn.who}
        fenced = call.error == FENCED_INSTANCE_ID
        if not fenced:
            self._kept_out[group, instance] = call.conn.identity
        # KIP-848 refuses a new process until the session of a dead member expires.
        alive = any(m.instance_id == instance and m.conn is not call.conn and not m.closed_ns for m in group.live)
        other = f", which is also used by {some(others)}" if others else ""
        name = facts.error_name(call.error)
        self.report(
            (group, instance, call.error),
            call.exchange,
            "a group.instance.id belongs to one running process (KIP-345). The classic protocol gives it to the "
            "process that joined last and fences the other, which fails with a fatal error; KIP-848 refuses the "
            "newcomer with UNRELEASED_INSTANCE_ID until the first one leaves or its session ends.",
            "give every process its own id (the host or pod name, a StatefulSet's ordinal), and make sure that the "
            "old process is gone before a new one starts with its id"
            if fenced or alive
            else "use a supervisor that restarts the consumer after the old session is over "
                 "(group.consumer.session.timeout.ms, 45 s): Java consumers and librdkafka treat this error as fatal "
                 "and do not retry. Close consumers before they exit; give every process its own group.instance.id",
            severity=Severity.HIGH if fenced or alive else Severity.MEDIUM,
            seen=f"{call.conn.who} is {'fenced out of' if fenced else 'kept out of'} group {group.id!r} with {name} "
            f"({call.api} v{call.exchange.api_version}): its group.instance.id is {instance!r}{other}",
            instance_id=instance,
            error=name,
            others=sorted(others),
            group=call.group_id,
        )

    def _let_in(self, call: Call, group: Group, instance: str) -> None:
        """A member with that id was accepted: one that had been refused waited long enough, or was restarted."""
        kept_out = self._found.get((group, instance, UNRELEASED_INSTANCE_ID))
        if kept_out is None or kept_out.severity is not Severity.MEDIUM:
            return
        if self._kept_out.get((group, instance)) != call.conn.identity:
            return
        waited = duration(call.answered_ns - (kept_out.first_ns or call.answered_ns))
        kept_out.severity = Severity.LOW
        kept_out.seen += f"; it was let in {waited} later"
        kept_out.remedy = (
            "nothing: the previous process died without leaving, and its session has ended. If a consumer closes "
            "before it exits, the next one can join at once"
        )


class InconsistentProtocol(GroupDetector):
    id = "inconsistent-group-protocol"
    severity = Severity.HIGH
    title = "a member has no assignor or protocol in common with its group"
    why = (
        "all members of a group must have one assignor in common (partition.assignment.strategy) and the same "
        "protocol type; cooperative and eager assignors cannot be mixed, and consumers, Connect workers and share "
        "groups all use the same space of group ids (KIP-429, KIP-848)."
    )
    remedy = (
        "give all members the same partition.assignment.strategy; to change the assignor, list both in a first "
        "restart of all members (Java: cooperative-sticky and the old one) and remove the old one in a second. "
        "librdkafka cannot list both kinds: stop the group, then start it with the new one. If it is another "
        "application, give it its own group.id"
    )
    wanted = Wanted.FAILED

    def answered(self, call: Call) -> None:
        if call.error != INCONSISTENT:
            return
        group = call.group
        mine = call.member.assignors if call.member and call.member.assignors else call.assignors()
        others = {m.conn.who: m.assignors for m in group.live if m is not call.member and m.assignors}
        theirs = "; ".join(f"{who} has {', '.join(names)}" for who, names in list(others.items())[:3])
        other_type = call.asked.get("protocol_type") if not mine else ""
        self.report(
            (group, call.conn.identity),
            call.exchange,
            seen=f"{call.conn.who} cannot join group {group.id!r}: INCONSISTENT_GROUP_PROTOCOL to {call.api} "
            f"v{call.exchange.api_version}. It has {', '.join(mine) or other_type or 'no protocol'}"
            + (f"; {theirs}" if theirs else "; the others were not captured"),
            assignors=list(mine),
            others={who: list(names) for who, names in others.items()},
            error="INCONSISTENT_GROUP_PROTOCOL",
            group=call.group_id
        )


_REFUSALS = {
    "INVALID_SESSION_TIMEOUT": (
        "brokers accept session timeouts between group.min.session.timeout.ms (6000) and group.max.session.timeout.ms "
        "(1800000)",
        "set session.timeout.ms (kafka-python, aiokafka: session_timeout_ms) within these limits, e.g. 45000, or change "
        "the broker's limits",
    ),
    "GROUP_MAX_SIZE_REACHED": (
        "the group has group.max.size members (KIP-389), group.consumer.max.size with the newer protocol",
        "run fewer members, or raise the limit on the brokers; look for consumers that are created and never closed",
    ),
    "INVALID_GROUP_ID": ("the group id is empty or not allowed here", "set group.id"),
    "GROUP_ID_NOT_FOUND": (
        "the group does not exist, or it is of another type (classic, consumer, share, streams)",
        "give each type of group its own id, or delete the old group",
    ),
    "UNSUPPORTED_ASSIGNOR": (
        "the broker does not have the assignor that group.remote.assignor names (KIP-848)",
        "use uniform or range, or name the assignor in the broker's group.consumer.assignors",
    ),
    "INVALID_REGULAR_EXPRESSION": (
        "the subscription's pattern is not valid in RE2/J, the syntax of KIP-848 brokers",
        "write the pattern without lookahead and backreferences",
    ),
}
_REFUSED = {facts.error_code(name): name for name in _REFUSALS}


class GroupRefused(GroupDetector):
    id = "group-refused"
    severity = Severity.HIGH
    title = "a group's coordinator refuses a client: session timeout, group size, assignor"
    apis = GROUP_APIS | {FIND_COORDINATOR}
    wanted = Wanted.FAILED

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        super().done(conn, exchange)
        if exchange.api_key == FIND_COORDINATOR and exchange.error:
            for group, error, _, _ in coordinators(exchange):
                if error in _REFUSED:
                    self._refused(conn, exchange, group, error, "")

    def answered(self, call: Call) -> None:
        if call.error in _REFUSED and not call.commits and not call.leaves:
            refusals = call.asked.get("session_timeout_ms", -1)
            asked = (
                f"; it requests a session timeout of {refusals} ms"
                if refusals > 0 and "SESSION" in _REFUSED[call.error]
                else ""
            )
            self._refused(call.conn, call.exchange, call.group_id, call.error, asked)

    def _refused(self, conn: ClientConnection, exchange: Exchange, group: str, error: int, asked: str) -> None:
        name = _REFUSED[error]
        why, remedy = _REFUSALS[name]
        self.report(
            (group, error, conn.identity),
            exchange,
            why + ".",
            remedy,
            seen=f"{conn.where} refuses {conn.who} in group {group!r}: {name} to {exchange.api} v{exchange.api_version}"
            f"{asked}",
            group=group,
            error=name,
        )
