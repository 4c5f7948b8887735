"""How requests and responses move a group on, in all four group protocols (classic, KIP-848, KIP-932, KIP-1071)."""

from __future__ import annotations

from ... import embedded
from ...errors import DecodeError
from ..engine.formatting import topic_name
from ..engine.layout import rows
from .group import Assignment, Group, Member, MemberState, RebalanceCause, Step
from .group_calls import FENCED_INSTANCE_ID, GONE_CODES, MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, Call

AT_ONCE_NS = 1_000_000_000
"""Members join again this soon after they got their partitions only if these are why."""


def on_request(call: Call) -> None:
    """A member sent a request."""
    group, member, now = call.group, call.member, call.asked_ns
    if call.leaves:
        _leave(group, call)
    elif call.joins:
        _join(group, call)
    elif member is None:
        return
    elif call.api == "SyncGroup":
        member.state = MemberState.SYNCING
        member.step(now, Step.SYNC)
        _leader_sync(group, call)
    elif call.commits:
        member.step(now, Step.COMMIT)
    else:
        if member.heartbeat_ns and now > member.heartbeat_ns:
            every = now - member.heartbeat_ns
            member.heartbeat_every_ns = min(member.heartbeat_every_ns or every, every)
        member.heartbeat_ns = now
        member.step(now, Step.HEARTBEAT)
        topics = call.topics() if call.heartbeat else None
        if topics is not None and member.topics not in (None, topics):
            group.begin(now, RebalanceCause.SUBSCRIPTION, member)
        member.topics = topics or member.topics
        if member.state is MemberState.PENDING:  # it joined before the capture began
            member.state = MemberState.STABLE
            member.generation = call.generation
            group.generation = max(group.generation, call.generation)


def on_response(call: Call) -> None:
    """The coordinator answered, or never will (`call.is_answered`)."""
    group, member, now = call.group, call.member, call.answered_ns
    group.waiting.pop(call.exchange, None)
    if not call.is_answered or call.leaves:
        return
    if call.error:
        _refused(group, call)
    elif member is None:
        return
    elif call.api == "JoinGroup":
        _joined(group, call, member)
    elif call.api == "SyncGroup":
        member.state, member.synced_ns, member.stable_ns, member.seen_ns = MemberState.STABLE, now, now, now
        member.step(now, Step.SYNCED)
        member.assign(now, _assignment(call.answer["assignment"], group.protocol_type))
        last = group.last_formed()
        if last is not None:
            last.synced_ns = max(last.synced_ns, now)
    elif call.heartbeat:
        _heartbeat(group, call, member)
    elif not call.commits:
        member.stable_ns = now


def _join(group: Group, call: Call) -> None:
    member, now = call.member, call.asked_ns
    if not call.heartbeat:
        group.waiting[call.exchange] = call.exchange
    if call.asks_for_an_id:
        return  # whether it joins with this request, the response says: `_joined_without_an_id`
    group.protocol_type = call.asked.get("protocol_type") or group.protocol_type
    static = next((m for m in group.live if m.instance_id and m.instance_id == call.instance_id), None)
    known = member if member and member.state is not MemberState.PENDING and member.live else static
    cause = RebalanceCause.JOIN if any(m is not member for m in group.live) else RebalanceCause.FIRST
    if known is not None:
        empty = known.assignment == {} and now - known.synced_ns < AT_ONCE_NS
        again = RebalanceCause.EMPTY if empty else RebalanceCause.REJOIN
        cause = RebalanceCause.SUBSCRIPTION if known.subscription != call.subscription else again
    if member is not None:
        _configure(member, call)
        member.state = MemberState.JOINING
        member.step(now, Step.JOIN)
    if static is None or member is static:  # a static member that comes back costs no rebalance (KIP-345)
        rebalance = group.begin(now, cause, member)
        rebalance.conn = rebalance.conn or call.conn
        rebalance.who = rebalance.who or call.conn.who
        rebalance.first_join_ns = rebalance.first_join_ns or now
        rebalance.joined(call.member_id, now)


def _leave(group: Group, call: Call) -> None:
    for member_id, instance_id, reason in call.leaving():
        member = group.members.get(member_id) or next(
            (m for m in group.live if instance_id and m.instance_id == instance_id), None
        )
        if member is None or not member.live:
            continue
        member.seen_ns = call.asked_ns
        group.gone(member, call.asked_ns, MemberState.LEFT, Step.LEAVE)
        if group.live:
            group.begin(call.asked_ns, RebalanceCause.LEAVE, member, reason)
        else:
            group.rebalance = None


def _leader_sync(group: Group, call: Call) -> None:
    message = call.exchange.request_view
    if message is None or not call.asked["assignments"]:
        return
    last = group.last_formed()
    if last is not None:
        last.leader_sync_ns = last.leader_sync_ns or call.asked_ns
    group.assignments = {
        row["member_id"]: found
        for row in rows(message, "assignments")
        if (found := _assignment(row["assignment"], group.protocol_type)) is not None
    }


def _refused(group: Group, call: Call) -> None:
    member, now = call.member, call.answered_ns
    if call.api == "JoinGroup" and group.rebalance is not None:
        group.rebalance.refused(call.member_id)
    if call.error == REBALANCE_IN_PROGRESS and member is not None:
        member.step(now, Step.REBALANCE)
        member.state = MemberState.STABLE if member.waits else member.state
        if group.rebalance is None and not call.commits and member.generation >= group.generation:
            silent = _silent_member(group, member, now)
            # JoinGroups that wait although no rebalance has begun are those of clients without an id.
            other = RebalanceCause.JOIN if group.waiting else RebalanceCause.UNSEEN
            group.begin(now, RebalanceCause.TIMEOUT if silent else other, silent)
    elif call.error == MEMBER_ID_REQUIRED or member is None:
        return
    elif (call.error in GONE_CODES or call.error == FENCED_INSTANCE_ID) and not call.commits:
        group.gone(member, now, MemberState.DROPPED, Step.ERROR, call.error)
    else:
        member.step(now, Step.ERROR, call.error)
        if call.api == "JoinGroup":
            member.state = MemberState.PENDING


def _silent_member(group: Group, besides: Member, now: int) -> Member | None:
    """A member that was silent for nearly its session timeout, other than the one that heard of the rebalance."""
    for member in group.live:
        limit = member.session_timeout_ms * 900_000
        if member is not besides and not member.waits and 0 < limit < now - member.seen_ns:
            return member
    return None


def _joined(group: Group, call: Call, member: Member) -> None:
    answer, now = call.answer, call.answered_ns
    if member.state is MemberState.PENDING:
        _configure(member, call)
    if call.without_an_id:
        _joined_without_an_id(group, call, member)
    member.state, member.generation, member.seen_ns = MemberState.JOINED, answer["generation_id"], now
    member.step(now, Step.JOINED)
    if group.rebalance:
        group.rebalance.joined(member.member_id, call.asked_ns)
    for other in group.live:
        if member.instance_id and other.instance_id == member.instance_id and other is not member:
            group.gone(other, now, MemberState.DROPPED, Step.DROPPED)
    group.assignor = answer.get("protocol_name") or group.assignor
    group.protocol = "classic"
    group.formed(now, answer["generation_id"], answer["leader"])
    message = call.exchange.response_view
    if message is None or not answer["members"]:
        return
    # The leader's response lists every member: who is missing was left behind.
    listed = {row["member_id"] for row in rows(message, "members")}
    last = group.last_formed()
    if last is not None:
        last.size = len(listed)
    for other in group.live:
        if other.member_id not in listed and not other.waits and other.generation < group.generation:
            group.gone(other, now, MemberState.DROPPED, Step.DROPPED)


def _joined_without_an_id(group: Group, call: Call, member: Member) -> None:
    """The JoinGroup belongs to the member that its response names."""
    member.step(call.asked_ns, Step.JOIN)
    if call.asks_for_an_id and call.answer["generation_id"] > group.generation:
        others = any(each is not member for each in group.live)
        rebalance = group.begin(call.asked_ns, RebalanceCause.JOIN if others else RebalanceCause.FIRST, member)
        rebalance.first_join_ns = rebalance.first_join_ns or call.asked_ns


def _heartbeat(group: Group, call: Call, member: Member) -> None:
    answer, now = call.answer, call.answered_ns
    member.heartbeat_interval_ms = answer["heartbeat_interval_ms"]
    group.protocol = call.protocol
    if member.state is not MemberState.STABLE:
        member.state = MemberState.STABLE
        member.step(now, Step.JOINED)
    member.generation = answer["member_epoch"]
    group.formed(now, member.generation, "")
    message = call.exchange.response_view
    if answer.get("assignment") is not None and message is not None:
        member.synced_ns = now
        member.step(now, Step.SYNCED)
        given = message["assignment"]["topic_partitions"] or ()
        member.assign(now, {topic_name(call.exchange, row["topic_id"].bytes): tuple(row["partitions"] or ()) for row in given})


def _configure(member: Member, call: Call) -> None:
    """Take the settings of a member from a request that joins."""
    asked = call.asked
    member.protocol = call.protocol
    member.instance_id = call.instance_id
    member.session_timeout_ms = asked.get("session_timeout_ms", -1)
    rebalance = asked.get("rebalance_timeout_ms", -1)
    # JoinGroup v0 has no timeout of its own for rebalances: the session's counts.
    member.rebalance_timeout_ms = rebalance if rebalance >= 0 else member.session_timeout_ms
    member.subscription = call.subscription
    if call.heartbeat:
        member.topics = call.topics() or member.topics
        member.assignors = (asked["server_assignor"],) if asked.get("server_assignor") else ()
    else:
        member.assignors, member.topics = call.assignors(), call.topics()


def _assignment(data: bytes | None, protocol_type: str) -> Assignment | None:
    """The partitions in a member's assignment bytes, None if they cannot be read."""
    if not data:
        return {}
    try:
        parts = embedded.assignment(data, protocol_type or "consumer").get("assigned_partitions")
    except (DecodeError, KeyError):
        return None
    return {p["topic"]: tuple(p["partitions"] or ()) for p in parts} if parts is not None else None
