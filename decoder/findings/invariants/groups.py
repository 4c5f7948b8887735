"""Rows about groups: members, assignments, offsets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from ... import embedded
from ...codec.message_view import MessageView
from ...errors import DecodeError
from ..engine.counters import BoundedDict
from .items import Items, difference, each, items_in, name
from .row import Context, Owner, Pair, Row, Seen

MOST_GENERATIONS = 256
MOST_MEMBERS = 10_000


class _Sent(NamedTuple):
    """What a leader sent for one member: the length and hash of the bytes."""

    size: int
    digest: int


def _sent(data: bytes) -> _Sent:
    return _Sent(len(data), hash(bytes(data)))


class _Generations:
    """By group and generation: what its leader sent for each member, more than once where it sent it again."""

    def __init__(self) -> None:
        self.sent: BoundedDict[tuple[str, int], dict[str, set[_Sent]]] = BoundedDict(MOST_GENERATIONS)


def sync_requested(request: MessageView, context: Context) -> None:
    """A SyncGroup request: the leader's has the assignments of all members."""
    asked: Any = request.values
    if not asked.assignments:
        return
    members = context.of_broker(_Generations).sent.of((asked.group_id, asked.generation_id), dict)
    for each_one in asked.assignments:
        if each_one.member_id in members or len(members) < MOST_MEMBERS:
            members.setdefault(each_one.member_id, set()).add(_sent(each_one.assignment or b""))


def _consumer(pair: Pair) -> bool:
    """Whether the group's assignments are Kafka's own. Before v5, SyncGroup does not say it."""
    kind = getattr(pair.answer, "protocol_type", None) or getattr(pair.asked, "protocol_type", None)
    protocol = getattr(pair.answer, "protocol_name", None) or getattr(pair.asked, "protocol_name", None)
    return kind == "consumer" or (kind is None and protocol is None)


@lru_cache(256)
def _unreadable(data: bytes) -> str:
    """Why bytes are no assignment of a consumer group; "" if they are one."""
    try:
        embedded.assignment(data)
    except DecodeError as fault:
        return str(fault)
    return ""


def _synced(pair: Pair) -> Iterator[Seen]:
    asked, data = pair.asked, pair.answer.assignment or b""
    sent = pair.context.of_broker(_Generations).sent.get((asked.group_id, asked.generation_id))
    if sent is not None and asked.member_id in sent:
        own, got = sent[asked.member_id], _sent(data)
        if got in own:
            return
        # A static member that came back has another id, and the assignment of its old one.
        if data and any(got in theirs for theirs in sent.values()):
            text = f"is not the {_sizes(own)} bytes that the leader of group {asked.group_id!r} sent for it, but another member's"
            yield Seen("assignment", text, "sync-assignment-changed")
            return
        why = _unreadable(bytes(data)) if data and _consumer(pair) else ""
        cut = f"; it cannot be read: {why}" if why else ""
        yield Seen(
            "assignment",
            f"has {len(data)} bytes; the leader of group {asked.group_id!r} sent {_sizes(own)} for this member in the same "
            f"generation ({asked.generation_id}){cut}",
            "sync-assignment-changed",
        )
        return
    known = _kind_known(pair)
    if data and sent is None and known and (why := _unreadable(bytes(data))):
        yield Seen(
            "assignment",
            f"({len(data)} bytes, of group {asked.group_id!r}) cannot be read: {why}",
            "sync-assignment-unreadable",
        )


def _kind_known(pair: Pair) -> bool:
    """Whether the messages say that the group is one of consumers."""
    return "consumer" in (getattr(pair.answer, "protocol_type", None), getattr(pair.asked, "protocol_type", None))


def _sizes(sent: set[_Sent]) -> str:
    return " or ".join(str(size) for size in sorted({each_one.size for each_one in sent}))


def _protocol_of_sync(field: str) -> Any:
    def check(pair: Pair) -> Iterator[Seen]:
        wanted, found = getattr(pair.asked, field), getattr(pair.answer, field)
        if wanted and found and wanted != found:
            yield Seen(field, f"is {found!r}; the member asked for {wanted!r}")

    return check


def _joined(pair: Pair) -> Iterator[Seen]:
    asked, answer = pair.asked, pair.answer
    if answer.generation_id < 0:
        yield Seen("generation_id", f"is {answer.generation_id} without an error", "join-generation-negative")
    if not answer.member_id:
        yield Seen("member_id", "is empty without an error", "join-no-member-id")
    elif asked.member_id and answer.member_id != asked.member_id:
        yield Seen(
            "member_id", f"is {answer.member_id!r}; the member joined as {asked.member_id!r}", "join-other-member"
        )
    members = [m.member_id for m in answer.members or ()]
    if members and answer.leader != answer.member_id:
        yield Seen(
            "members",
            f"lists {len(members)} members to {answer.member_id!r}, but the leader is {answer.leader!r}",
            "join-members-to-follower",
        )
    elif members and answer.leader not in members:
        yield Seen(
            "leader", f"is {answer.leader!r}, which is none of the {len(members)} members", "join-leader-no-member"
        )
    if len(set(members)) < len(members):
        twice = next(m for i, m in enumerate(members) if m in members[:i])
        yield Seen("members", f"lists {twice!r} twice", "join-member-twice")
    offered = [p.name for p in asked.protocols or ()]
    if answer.protocol_name and answer.protocol_name not in offered:
        text = f"is {answer.protocol_name!r}; the member offers {', '.join(offered) or 'none'}"
        yield Seen("protocol_name", text, "join-protocol-not-offered")
    kind = getattr(answer, "protocol_type", None)
    if kind and kind != asked.protocol_type:
        yield Seen("protocol_type", f"is {kind!r}; the member asked for {asked.protocol_type!r}", "join-other-type")


@lru_cache(256)
def _unreadable_subscription(data: bytes) -> str:
    try:
        embedded.subscription(data)
    except DecodeError as fault:
        return str(fault)
    return ""


@lru_cache(256)
def _shorter_subscription(data: bytes) -> tuple[int, bool]:
    """The version that a subscription names, and whether it ends before that version's fields."""
    try:
        fields = embedded.subscription(data)
    except DecodeError:
        return 0, False
    return int(fields["version"]), "layout_version" in fields


def _cut_subscriptions(pair: Pair) -> Iterator[Seen]:
    """Of members whose leader writes whole ones, so that it probably is another client."""
    answer = pair.answer
    members = {m.member_id: bytes(m.metadata or b"") for m in answer.members or ()}
    own = members.get(answer.leader, b"")
    if pair.asked.protocol_type != "consumer" or not own or _shorter_subscription(own)[1]:
        return
    for i, member in enumerate(answer.members or ()):
        version, cut = _shorter_subscription(members[member.member_id])
        if cut:
            text = f"of member {member.member_id!r} says version {version}, but ends before owned_partitions (or what else that version has)"
            yield Seen(f"members[{i}].metadata", text)
            return


def _subscriptions(pair: Pair) -> Iterator[Seen]:
    if pair.asked.protocol_type != "consumer":
        return
    for i, protocol in enumerate(pair.asked.protocols or ()):
        if protocol.metadata and (why := _unreadable_subscription(bytes(protocol.metadata))):
            yield Seen(f"request: protocols[{i}].metadata", f"({len(protocol.metadata)} bytes) cannot be read: {why}")
            return


def _assignments_sent(pair: Pair) -> Iterator[Seen]:
    if getattr(pair.asked, "protocol_type", None) != "consumer":
        return
    for i, one in enumerate(pair.asked.assignments or ()):
        if one.assignment and (why := _unreadable(bytes(one.assignment))):
            yield Seen(f"request: assignments[{i}].assignment", f"({len(one.assignment)} bytes) cannot be read: {why}")
            return


class _Epochs:
    """The member epochs that a connection has been given, by group and member."""

    def __init__(self) -> None:
        self.last: BoundedDict[tuple[str, str], int] = BoundedDict(MOST_MEMBERS)


def _heartbeat(pair: Pair) -> Iterator[Seen]:
    asked, answer, stem = pair.asked, pair.answer, pair.request.plan.api
    prefix = {"ConsumerGroupHeartbeat": "consumer", "ShareGroupHeartbeat": "share", "StreamsGroupHeartbeat": "streams"}[
        stem
    ]
    if asked.member_id and answer.member_id and answer.member_id != asked.member_id:
        text = f"is {answer.member_id!r}; the member is {asked.member_id!r}"
        yield Seen("member_id", text, f"{prefix}-heartbeat-other-member")
    epochs = pair.context.of_connection(_Epochs).last
    key = asked.group_id, answer.member_id or asked.member_id
    if asked.member_epoch < 0 or answer.member_epoch < 0:
        epochs.pop(key, None)  # it leaves
        return
    known = max(asked.member_epoch, epochs.get(key, 0) if asked.member_epoch else 0)
    if answer.member_epoch < known:
        text = f"is {answer.member_epoch} for member {key[1]!r} of group {key[0]!r}, after {known}"
        yield Seen("member_epoch", text, f"{prefix}-heartbeat-epoch-back")
    epochs[key] = answer.member_epoch
    if answer.heartbeat_interval_ms <= 0:
        text = f"is {answer.heartbeat_interval_ms} without an error"
        yield Seen("heartbeat_interval_ms", text, f"{prefix}-heartbeat-interval")
    yield from _assigned_twice(pair, prefix)


def _assigned_twice(pair: Pair, prefix: str) -> Iterator[Seen]:
    if prefix == "streams":
        for kind in ("active_tasks", "standby_tasks", "warmup_tasks"):
            tasks = [(t.subtopology_id, p) for t in getattr(pair.answer, kind) or () for p in t.partitions or ()]
            if len(set(tasks)) < len(tasks):
                yield Seen(kind, "has a task twice", f"{prefix}-heartbeat-assigned-twice")
        return
    assignment = pair.answer.assignment
    found = (
        [(t.topic_id, p) for t in assignment.topic_partitions or () for p in t.partitions or ()]
        if assignment is not None
        else []
    )
    if len(set(found)) < len(found):
        yield Seen("assignment.topic_partitions", "has a partition twice", f"{prefix}-heartbeat-assigned-twice")


def _fetched_offsets(pair: Pair) -> Iterator[Seen]:
    """The partitions of each group of an OffsetFetch from version 8 on."""
    asked = {g.group_id: g for g in pair.asked.groups or ()}
    here = "topics(name|topic_id).partitions(partition_index)"
    there = "topics(name|topic_id).partition_indexes"
    for i, group in enumerate(pair.answer.groups or ()):
        wanted = asked.get(group.group_id)
        if wanted is None or wanted.topics is None or group.error_code:
            continue
        inside = next(f.struct for f in pair.request.plan.root.fields if f.name == "groups")
        outside = next(f.struct for f in pair.response.plan.root.fields if f.name == "groups")
        assert inside is not None and outside is not None
        found = difference((item.keys for item in items_in(inside, there, wanted)), items_in(outside, here, group))
        if found.missing:
            yield Seen(f"groups[{i}].topics",
                f"lacks {name(found.missing[0])} of group {group.group_id!r}, which the request asks for",
                       "offset-fetch-groups-partition-missing")  # fmt: skip
        if found.unasked:
            path, key = found.unasked[0]
            yield Seen(f"groups[{i}].{path}",
                f"is {name(key)} of group {group.group_id!r}, which the request does not ask for",
                       "offset-fetch-groups-partition-unasked")  # fmt: skip
        if found.twice:
            path, key = found.twice[0]
            yield Seen(
                f"groups[{i}].{path}",
                f"is {name(key)}, which the response has twice",
                "offset-fetch-groups-partition-twice",
            )


def _offset_below(pair: Pair) -> Iterator[Seen]:
    arrays = ("groups", "topics", "partitions") if hasattr(pair.answer, "groups") else ("topics", "partitions")
    for path, p in each(pair.answer, *arrays):
        if not p.error_code and p.committed_offset < -1:
            yield Seen(f"{path}.committed_offset", f"is {p.committed_offset} without an error", "offset-fetch-negative")
            return
        if not p.error_code and getattr(p, "committed_leader_epoch", -1) < -1:
            yield Seen(f"{path}.committed_leader_epoch", f"is {p.committed_leader_epoch} without an error", "offset-fetch-epoch")
            return


_STATES = frozenset({
    "", "unknown", "preparingrebalance", "completingrebalance", "awaitingsync", "stable", "dead", "empty", "assigning",
    "reconciling",
    "notready",
})  # fmt: skip


def _described(pair: Pair) -> Iterator[Seen]:
    for path, group in each(pair.answer, "groups"):
        if group.error_code:
            continue
        stem = pair.request.plan.api
        if (group.group_state or "").lower() not in _STATES:
            yield Seen(f"{path}.group_state", f"is {group.group_state!r}", f"{_DESCRIBED[stem]}-state")
        members = [m.member_id for m in group.members or ()]
        if len(set(members)) < len(members):
            yield Seen(
                f"{path}.members",
                f"lists a member of group {group.group_id!r} twice",
                f"{_DESCRIBED[stem]}-member-twice",
            )


def _listed_twice(pair: Pair) -> Iterator[Seen]:
    groups = [(g.group_id, getattr(g, "group_type", None)) for g in pair.answer.groups or ()]
    if len(set(groups)) < len(groups):
        twice = next(g for i, g in enumerate(groups) if g in groups[:i])
        yield Seen("groups", f"lists {twice[0]!r} twice")


def _join(row: str, kafka: str, severity: str, clients: str, since: int = 0) -> Row:
    return Row(
        row, "JoinGroup", kafka, "GroupMetadataManager.classicGroupJoin", _joined, severity, clients, since=since
    )


_DESCRIBED = {
    "DescribeGroups": "describe-groups", "ConsumerGroupDescribe": "describe-consumer-groups",
    "ShareGroupDescribe": "describe-share-groups",
    "StreamsGroupDescribe": "describe-streams-groups",
}  # fmt: skip


def _group_rows() -> Iterator[Row]:
    for api, stem in _DESCRIBED.items():
        asked = "groups" if api == "DescribeGroups" else "group_ids"
        source = f"KafkaApis.handle{api}"
        yield from Items(
            api, "groups", asked, "groups(group_id)", source, "Admin clients fail the call.", named=stem
        ).rows()
        yield Row(
            f"{stem}-state",
            api,
            "names one of its own states of groups",
            source,
            _described,
            "low",
            "Tools show an unknown state.",
        )
        yield Row(f"{stem}-member-twice", api, "lists each member of a group once", source, _described, "low")
    for api, prefix, kip in (
        ("ConsumerGroupHeartbeat", "consumer", 848),
        ("ShareGroupHeartbeat", "share", 932),
        ("StreamsGroupHeartbeat", "streams", 1071),
    ):
        source = f"GroupMetadataManager.{prefix}GroupHeartbeat, KIP-{kip}"
        yield Row(
            f"{prefix}-heartbeat-other-member",
            api,
            "answers with the member id of the request",
            source,
            _heartbeat,
            "medium",
            "Clients go on with an id that the coordinator may not know.",
        )
        yield Row(
            f"{prefix}-heartbeat-epoch-back",
            api,
            "never gives a member a lower epoch than it has; it fences it with an error instead",
            source,
            _heartbeat,
            "medium",
            "Clients ignore the answer, or are fenced at their next heartbeat.",
        )
        yield Row(
            f"{prefix}-heartbeat-interval",
            api,
            "gives a heartbeat interval above 0",
            source,
            _heartbeat,
            "medium",
            "Clients send heartbeats without a pause.",
        )
        yield Row(
            f"{prefix}-heartbeat-assigned-twice",
            api,
            "assigns each partition or task to a member once",
            source,
            _heartbeat,
            "medium",
        )


_COMMITTED = "topics(name|topic_id).partitions(partition_index)"
_MANAGER = "GroupMetadataManager.classicGroupSync"
ROWS: tuple[Row, ...] = (
    _join("join-leader-no-member", "lists the leader among the members", "high",
    "The leader finds no assignment for itself, and the group "
          "does not become stable."),
    _join("join-members-to-follower", "lists the members to the leader only", "medium",
    "Clients that take the list for the sign of the "
          "leader assign partitions too."),
    _join("join-member-twice", "lists each member once", "medium", "The leader assigns partitions to fewer members "
    "than it counts."),
    _join("join-protocol-not-offered", "chooses a protocol that every member offers", "high",
    "Clients have no such assignor, and fail."),
    _join("join-other-type", "answers with the protocol type of the request, or with an error", "medium",
    "Clients fail with "
          "InconsistentGroupProtocolException (KIP-559).", 7),
    _join("join-generation-negative", "gives a generation from 0 up, or an error", "medium",
    "Clients take -1 for no generation: "
          "their commits are those of a consumer without a group."),
    _join("join-no-member-id", "gives every member an id", "high",
    "The client's SyncGroup and heartbeats are refused."),
    _join("join-other-member", "answers with the member id of the request, or with an error", "medium",
    "The old id stays in the group "
          "until its session times out."),
    Row("join-subscription-cut", "JoinGroup", "and its clients write every field of the version that a subscription "
        "names (owned_partitions from 1 on, KIP-429)", "ConsumerProtocol.serializeSubscription", _cut_subscriptions,
        "low", "Leaders of other libraries (Java, franz-go before 1.14) cannot read it and leave the group instead of "
        "assigning; it is that member's library that must change: kafka-go (kafka-go#1156), older sarama and KafkaJS "
        "write such. Upgrade it, or give the clients groups of their own.", owner=Owner.CLIENT),
    Row("join-subscription-unreadable", "JoinGroup", "passes the subscriptions of members on as they are; those of "
        "consumers follow "
        "ConsumerProtocolSubscription", "ConsumerProtocol.deserializeSubscription", _subscriptions, "low",
        "The leader of the group may fail on it, and with it the whole group.", errors=True, owner=Owner.CLIENT),
    Row("sync-assignment-sent-unreadable", "SyncGroup", "passes assignments on as the leader sends them; those of "
        "consumers follow "
        "ConsumerProtocolAssignment", "ConsumerProtocol.deserializeAssignment", _assignments_sent, "medium",
        "Members fail on it and join again.", errors=True, owner=Owner.CLIENT),
    Row("sync-assignment-changed", "SyncGroup", "hands each member the bytes that the leader of the group sent for it",
        _MANAGER, _synced,
        "high", "Members cannot read it, fail and join again, or read the wrong partitions."),
    Row("sync-assignment-unreadable", "SyncGroup", "hands each member the bytes that the leader of the group sent "
        "for it; consumers "
        "follow ConsumerProtocolAssignment. The leader's request was not seen here, so it may have sent them so",
        _MANAGER, _synced,
        "high", "Members cannot read it, fail and join again."),
    Row("sync-other-type", "SyncGroup", "answers with the protocol type of the request, or with an error",
        _MANAGER + ", KIP-559",
        _protocol_of_sync("protocol_type"), "medium", "Clients fail with InconsistentGroupProtocolException.", since=5),
    Row("sync-other-protocol", "SyncGroup", "answers with the protocol of the request, or with an error",
        _MANAGER + ", KIP-559",
        _protocol_of_sync("protocol_name"), "medium", "Clients fail with InconsistentGroupProtocolException.", since=5),
    *Items("LeaveGroup", "members", "members(member_id,group_instance_id)", "members(member_id,group_instance_id)",
           "GroupMetadataManager.classicGroupLeave, KIP-345", "Tools do not know whether the member left.", "low",
           since=3).rows(),
    *Items("OffsetCommit", "partitions", _COMMITTED, _COMMITTED, "KafkaApis.handleOffsetCommitRequest",
           "Clients do not know whether the offset was committed.").rows(),
    *Items("OffsetFetch", "partitions", "topics(name).partition_indexes", "topics(name).partitions(partition_index)",
           "KafkaApis.handleOffsetFetchRequest", "Consumers wait for the offset, or start where auto.offset.reset "
           "says.", "high",
           all_if_empty=True, until=7).rows(),
    *Items("OffsetFetch", "groups", "groups(group_id)", "groups(group_id)",
        "KafkaApis.handleOffsetFetchRequest, KIP-709",
           "Clients fail the call or ask again.", "high", since=8, named="offset-fetch-groups").rows(),
    *(Row(f"offset-fetch-groups-partition-{way}", "OffsetFetch", text, "KafkaApis.fetchOffsetsForGroup, KIP-709",
    _fetched_offsets, severity,
          "Consumers wait for the offset, or start where auto.offset.reset says.", since=8)
      for way, text, severity in (("missing", "answers all partitions that were asked for", "high"),
                                  ("unasked", "answers no partitions that were not asked for", "low"),
                                  ("twice", "answers each of the partitions once", "low"))),
    Row("offset-fetch-negative", "OffsetFetch", "answers an offset from 0 up, or -1 if none was committed",
        "OffsetMetadataManager.fetchOffsets",
        _offset_below, "medium", "Consumers start at a wrong position."),
    Row("offset-fetch-epoch", "OffsetFetch", "answers a leader epoch from 0 up, or -1 if none was committed",
        "OffsetMetadataManager.fetchOffsets, KIP-320", _offset_below, "medium",
        "Consumers cannot check whether their position is still in the log, or fail to.", since=5),
    *Items("OffsetDelete", "partitions", "topics(name).partitions(partition_index)",
        "topics(name).partitions(partition_index)",
           "KafkaApis.handleOffsetDeleteRequest, KIP-496", "Admin clients fail the call.").rows(),
    *Items("DeleteGroups", "groups", "groups_names", "results(group_id)", "KafkaApis.handleDeleteGroupsRequest",
           "Admin clients fail the call.").rows(),
    Row("list-groups-twice", "ListGroups", "lists each group once", "GroupCoordinatorService.listGroups",
        _listed_twice, "low"),
    *Items("DescribeShareGroupOffsets", "groups", "groups(group_id)", "groups(group_id)",
        "KafkaApis.handleDescribeShareGroupOffsetsRequest, "
           "KIP-932", "Admin clients fail the call.").rows(),
    *Items("DeleteShareGroupOffsets", "topics", "topics(topic_name)", "responses(topic_name)",
           "KafkaApis.handleDeleteShareGroupOffsetsRequest, KIP-932", "Admin clients fail the call.").rows(),
    *_group_rows(),
)  # fmt: skip
