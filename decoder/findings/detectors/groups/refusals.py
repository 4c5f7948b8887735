"""Members that their coordinator refuses: unknown, fenced, of another protocol, or too many.

`authorization` reports what principals may not do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....connection.exchange import Exchange
from ....reference import explain
from ....reference.next_steps import next_step
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, some
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.group import Group
from ...models.group_calls import (
    FENCED_INSTANCE_ID,
    GONE_CODES,
    GROUP_APIS,
    JOINING_APIS,
    UNRELEASED_INSTANCE_ID,
    Call,
)
from ...models.groups import GroupDetector
from ...models.next_steps import NextSteps, PendingStep
from .coordinators import FIND_COORDINATOR, coordinators

INCONSISTENT = facts.error_code("INCONSISTENT_GROUP_PROTOCOL")


GROUP_ID_NOT_FOUND = facts.error_code("GROUP_ID_NOT_FOUND")
INVALID_REQUEST = facts.error_code("INVALID_REQUEST")


def _lost_group(call: Call) -> bool:
    """Whether a member of a group is told that there is no such group."""
    return call.error == GROUP_ID_NOT_FOUND and call.heartbeat and call.generation > 0


@dataclass(slots=True)
class _Refusals:
    """When one client was refused as not a member, and how often of late when it asked to join anew."""

    times: deque[int] = field(default_factory=lambda: deque(maxlen=1000))
    joins: int = 0

    def add(self, call: Call, repeated: int, window_ns: int) -> None:
        """One more; `repeated`: how often the client has sent the same before."""
        times = self.times
        times.append(call.answered_ns)
        while times[-1] - times[0] > window_ns:
            times.popleft()
        if call.without_an_id or (call.heartbeat and call.joins):
            self.joins += 1
        elif not repeated:
            self.joins = 0


class UnknownMember(GroupDetector):
    id = "unknown-member"
    severity = Severity.MEDIUM
    title = "a member keeps getting UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, an error about its epoch, or GROUP_ID_NOT_FOUND"
    wanted = Wanted.FAILED

    TIMES = 3
    WINDOW_NS = 300 * SECOND
    """A lost member gets this error once or twice, and rejoins."""
    MANY = 10

    def setup(self) -> None:
        self._refusals: BoundedDict[tuple[Group, ClientIdentity], _Refusals] = BoundedDict(2000)
        self._steps = self.traffic.model(NextSteps)

    def answered(self, call: Call) -> None:
        if not (call.error in GONE_CODES or _lost_group(call)) or call.commits or call.leaves:
            return
        key = call.group, call.conn.identity
        refusals = self._refusals.of(key, _Refusals)
        pending = next(iter(self._steps.touched(call.exchange)), None)
        refusals.add(call, pending.again if pending is not None else 0, self.WINDOW_NS)
        if len(refusals.times) < self.TIMES:
            return
        finding = self.report(key, call.exchange, group=call.group_id)
        finding.count = max(finding.count, len(refusals.times))
        finding.about |= {"member": call.member_id, "error": facts.error_name(call.error)}
        self._write(finding, call, refusals, pending)
        if finding.count >= self.MANY:
            finding.severity = Severity.HIGH

    def _write(self, finding: Finding, call: Call, refusals: _Refusals, pending: PendingStep | None) -> None:
        name, count = facts.error_name(call.error), len(refusals.times)
        api = f"{call.api} v{call.exchange.api_version}"
        number = "generation" if call.protocol == "classic" else "member epoch"
        span = duration(refusals.times[-1] - refusals.times[0])
        who = f"{call.conn.who} (member {call.member_id or 'without an id'})"
        step = next_step(call.exchange.api_key, call.error)
        must, source = (step.must, step.source) if step is not None else ("send JoinGroup", "Kafka's consumer protocol")
        what = explain.error(call.error).of(call.api).what
        finding.about["repeated"] = pending.again if pending is not None else 0
        if refusals.joins >= self.TIMES:
            anew = "an empty member id" if call.protocol == "classic" else "member epoch 0"
            finding.seen = (
                f"{who} asks to join group {call.group_id!r} anew ({api} with {anew}), and {call.conn.where} refuses that "
                f"{count} times in {span} with {name}"
            )
            finding.why = (
                f"a member that was removed or fenced joins again with {anew}, and that is what this client does. A "
                f"coordinator must accept it ({source}): {name} cannot be its answer to a member that joins. It "
                "is the broker's fault, not the client's."
                + (" Apache Kafka refused it too, until KAFKA-19233 was mended (January 2026)." if call.heartbeat else "")
            )
            finding.remedy = (
                "report it to the maker of the broker, and upgrade the broker; until then, restart the client, so that it "
                "joins with a new member id, or use another group protocol (group.protocol)"
            )
        elif pending is not None and pending.again >= self.TIMES:
            finding.seen = (
                f"{who} was refused {count} times in {span} because "
                f"{_reason(call)} ({name} to {api}), and {pending.did}: it neither joins again nor gives up"
            )
            finding.why = (
                f"{what} After {name}, a member must {must} ({source}). This client ignores the "
                "error, so it gets no partitions; other members may read the ones it still believes to have. It is the "
                "client's fault."
            )
            finding.remedy = "restart the client so that it joins again, and upgrade its library"
        else:
            finding.seen = (
                f"{call.conn.who} was refused {count} times in {span} because "
                f"{_reason(call)} (last {name} to {api}, "
                f"member {call.member_id or 'without an id'}, {number} {call.generation})"
            )
            finding.why = (
                f"{what} The client does not keep its old {number}, but is refused again each time: it is removed "
                "again and again."
            )
            finding.remedy = (
                "find out why it is removed (held-up-join, missed-heartbeats, poll-interval-exceeded), and whether another "
                f"process uses its member id; after the error it should {must}"
            )


def _reason(call: Call) -> str:
    if call.error == GROUP_ID_NOT_FOUND:
        return f"the coordinator no longer has group {call.group_id!r}, in which it had member epoch {call.generation}"
    return f"it is not a member of group {call.group_id!r}"


class FencedInstance(GroupDetector):
    id = "fenced-instance"
    usual_apis = JOINING_APIS
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
                holders = self._holders[call.group, call.instance_id] = BoundedDict(self.HOLDERS)
            who = call.conn.identity, call.member_id
            if who not in holders:
                holders[who] = call.conn

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


_OF_CONNECT = frozenset({"default", "compatible", "sessioned"})


def _kind_of(assignors: Sequence[str]) -> str:
    """What kind of application joins with these names."""
    if "stream" in assignors:
        return "a Streams application"
    return "Connect workers" if _OF_CONNECT.issuperset(assignors) else "a plain consumer"


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
        kinds = {_kind_of(names) for names in (mine, *others.values()) if names}
        mixed = (
            (
                f"{' and '.join(sorted(kinds))} use one group id here; they never have an assignor in common. A Streams application has its "
                "application.id as its group id, and Connect workers the group.id of their cluster.",
                "give each application a group id of its own: another group.id for the consumer, or another application.id",
            )
            if len(kinds) > 1
            else ()
        )
        self.report(
            (group, call.conn.identity),
            call.exchange,
            *mixed,
            seen=f"{call.conn.who} cannot join group {group.id!r}: INCONSISTENT_GROUP_PROTOCOL to {call.api} "
            f"v{call.exchange.api_version}. It has {', '.join(mine) or other_type or 'no protocol'}"
            + (f"; {theirs}" if theirs else "; the others were not captured"),
            assignors=list(mine),
            others={who: list(names) for who, names in others.items()},
            error="INCONSISTENT_GROUP_PROTOCOL",
            group=call.group_id
        )


_SESSION_TIMEOUT = "INVALID_SESSION_TIMEOUT"
_LEAST_SESSION_MS = 6000
"""group.min.session.timeout.ms, unless set."""
_MOST_SESSION_MS = ((1_800_000, ""), (300_000, "2.2"), (30_000, "0.9"))
"""group.max.session.timeout.ms unless set, and the last release with that default: kafka.server.Defaults of 0.9.0, 0.10.0, 2.2, 2.3."""
_REFUSED = facts.error_code_set(
    "GROUP_MAX_SIZE_REACHED", "INVALID_GROUP_ID", "GROUP_ID_NOT_FOUND", "UNSUPPORTED_ASSIGNOR",
    "INVALID_REGULAR_EXPRESSION", _SESSION_TIMEOUT,
)  # fmt: skip


def _session_refusal(asked_ms: int) -> tuple[str, str]:
    """Why the session timeout of a classic member is refused, and what to do."""
    least, most = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    setting = "session.timeout.ms (kafka-python, aiokafka: session_timeout_ms)"
    if 0 < asked_ms < _LEAST_SESSION_MS:
        why = f"it is below the broker's {least} (default {_LEAST_SESSION_MS})"
        remedy = f"set {setting} to {_LEAST_SESSION_MS} or more, e.g. 45000; or lower {least} on the brokers"
        return f"{why}.", f"client: {remedy}"
    newest = _MOST_SESSION_MS[0][0]
    if not 0 < asked_ms <= newest:
        why = f"it is above the broker's {most} (default {newest})" if asked_ms > 0 else f"the broker's {least} and {most} do not allow it"
        remedy = f"set {setting} within {least} and {most} of the broker, e.g. 45000; or raise {most} on the brokers"
        return f"{why}.", f"client: {remedy}"
    smaller = [f"it is Kafka {last} or older, where {most} is {ms}" for ms, last in _MOST_SESSION_MS[1:] if ms < asked_ms]
    causes = [f"{most}{'' if smaller else f' or {least}'} is set on the broker", *smaller[:1], "it is another product, with limits of its own"]
    why = (
        f"the defaults of current releases accept it ({least} {_LEAST_SESSION_MS}, {most} {newest}), so this broker has other limits. "
        f"Likeliest first: {'; '.join(causes)}"
    )
    return f"{why}.", (
        f"compare it with {least} and {most} of this broker; set {setting} within them (10000 to 30000 fits all "
        "releases), or change them"
    )


class GroupRefused(GroupDetector):
    id = "group-refused"
    severity = Severity.HIGH
    title = "a group's coordinator refuses a client: session timeout, group size, assignor, an invalid heartbeat"
    apis = GROUP_APIS | {FIND_COORDINATOR}
    wanted = Wanted.FAILED

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        super().done(conn, exchange)
        if exchange.api_key == FIND_COORDINATOR and exchange.error:
            for group, error, _, _ in coordinators(exchange):
                if error in _REFUSED:
                    self._refused(conn, exchange, group, error)

    def answered(self, call: Call) -> None:
        if call.error == INVALID_REQUEST and call.heartbeat:
            self._invalid(call)
        elif call.error in _REFUSED and not call.commits and not call.leaves and not _lost_group(call):
            self._refused(call.conn, call.exchange, call.group_id, call.error, call.asked.get("session_timeout_ms", -1))

    def _refused(self, conn: ClientConnection, exchange: Exchange, group: str, error: int, session_ms: int = -1) -> None:
        name = facts.error_name(error)
        of_session = name == _SESSION_TIMEOUT
        why, remedy = _session_refusal(session_ms) if of_session else explain.error_meaning(exchange.api, error)
        asked = f"; it requests a session timeout of {session_ms} ms" if of_session and session_ms > 0 else ""
        self.report(
            (group, error, conn.identity),
            exchange,
            why,
            remedy,
            seen=f"{conn.where} refuses {conn.who} in group {group!r}: {name} to {exchange.api} v{exchange.api_version}"
            f"{asked}",
            group=group,
            error=name,
        )

    def _invalid(self, call: Call) -> None:
        """A heartbeat whose fields the coordinator does not accept."""
        fault = next(_faults(call, call.asked), None)
        if fault is None:
            return
        self.report(
            (call.group, INVALID_REQUEST, call.conn.identity, fault.what),
            call.exchange,
            f"{fault.rule}. The request is refused each time, so the client never becomes a member.",
            fault.remedy,
            seen=f"{call.conn.where} refuses {call.conn.who} in group {call.group_id!r}: INVALID_REQUEST to {call.api} "
            f"v{call.exchange.api_version}; {fault.what}",
            group=call.group_id,
            error="INVALID_REQUEST",
        )


class _Fault(NamedTuple):
    """What is wrong with a heartbeat: the field, the rule that it breaks, and what to do."""

    what: str
    rule: str
    remedy: str


_LIBRARY = "it is a fault of the client library: upgrade it"


def _faults(call: Call, asked: Mapping[str, Any]) -> Iterator[_Fault]:
    """What a coordinator does not accept in a heartbeat (GroupCoordinatorService of Apache Kafka), as far as the request shows it."""
    epoch, instance = call.generation, call.instance_id
    if call.protocol == "streams" and instance:
        yield _Fault(
            f"the request has group.instance.id {instance!r}",
            "static members of streams groups (group.instance.id with group.protocol=streams) need brokers of Kafka 4.4 or "
            "newer; older ones accept no instance id in StreamsGroupHeartbeat (KIP-1071)",
            "upgrade the brokers to 4.4, or remove group.instance.id from the application's settings, or use "
            "group.protocol=classic",
        )
    if not call.group_id:
        yield _Fault("the group id is empty", "a group needs an id", "set group.id")
    if instance == "":
        yield _Fault("the instance id is empty", "an instance id is null or has characters", "remove group.instance.id or set it")
    if asked.get("rack_id") == "":
        yield _Fault("the rack id is empty", "a rack id is null or has characters", "remove client.rack or set it")
    if not call.member_id and (epoch != 0 or call.protocol != "consumer" or call.exchange.api_version >= 1):
        yield _Fault("the member id is empty", "the client makes its member id itself (KIP-1082)", _LIBRARY)
    if epoch == -1 and (asked.get("topology") is not None or asked.get("subscribed_topic_names") is not None):
        yield _Fault(
            "it joins (with a subscription) and leaves (member epoch -1) at once",
            "a member joins with epoch 0 and leaves with -1, without a subscription; Java clients mixed them up (KAFKA-19335)",
            _LIBRARY,
        )
    if epoch < -2 or (epoch == -2 and instance is None):
        yield _Fault(f"the member epoch is {epoch}", "members leave with -1, static members that come back with -2", _LIBRARY)
    if epoch == 0 and asked.get("rebalance_timeout_ms", 0) == -1:
        yield _Fault("it joins without a rebalance timeout", "the first heartbeat names rebalance_timeout_ms (KIP-848)", _LIBRARY)
    owned = asked.get("topic_partitions", asked.get("active_tasks"))
    if epoch == 0 and owned:
        yield _Fault("it joins with partitions of its own", "a member that joins owns no partitions", _LIBRARY)
    if epoch == 0 and call.protocol != "streams" and not _subscribes(asked):
        yield _Fault("it joins without a subscription", "the first heartbeat names topics or a pattern (KIP-848)", _LIBRARY)


def _subscribes(asked: Mapping[str, Any]) -> bool:
    return asked.get("subscribed_topic_names") is not None or bool(asked.get("subscribed_topic_regex"))
