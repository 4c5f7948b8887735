"""Ids, epochs, generations and offsets of the recording mapped to the target's, learned from pairs of answers.

`NameMap` are the user's own mappings (topics, groups, transactional ids, client ids); an `OffsetMap` gives for every offset of a
recorded partition the one in the target's log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from typing import Any

from ...decoder import embedded
from ...decoder.codec.message import Message
from ...decoder.codec.payload import leading_int16
from ...decoder.errors import DecodeError, EncodeError
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import ZERO_UUID
from .rewrite import Scope, pairs


@dataclass(frozen=True, slots=True)
class NameMap:
    """Recorded name -> name at the target; what is not listed keeps its name."""

    topics: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    transactional_ids: Mapping[str, str] = field(default_factory=dict)
    client_ids: Mapping[str, str] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        return self.topics.get(name, name)

    def group(self, name: str) -> str:
        return self.groups.get(name, name)

    def transactional_id(self, name: str) -> str:
        return self.transactional_ids.get(name, name)

    def client_id(self, name: str | None) -> str | None:
        return name if name is None else self.client_ids.get(name, name)

    def subscription(self, data: bytes) -> bytes:
        """A member's subscription with its topics renamed; bytes of other protocols stay."""
        return self._renamed(data, "ConsumerProtocolSubscription") if self.topics and data else data

    def assignment(self, data: bytes) -> bytes:
        """A member's assignment with its topics renamed; bytes of other protocols stay."""
        return self._renamed(data, "ConsumerProtocolAssignment") if self.topics and data else data

    def _renamed(self, data: bytes, name: str) -> bytes:
        read = embedded.subscription if name.endswith("Subscription") else embedded.assignment
        try:
            fields = read(data)
            version = leading_int16(data, name)
        except DecodeError:
            return data
        layout = fields.pop("layout_version", fields.pop("version"))
        fields.pop("version", None)
        if "surplus_bytes" in fields or not self._rename(fields):
            return data
        try:
            return version.to_bytes(2, "big") + embedded.encode(name, layout, fields)
        except (EncodeError, KeyError):
            return data

    def _rename(self, fields: dict[str, Any]) -> bool:
        """Whether a name was changed."""
        before = [list(fields.get("topics") or ()), [e["topic"] for e in _partitions(fields)]]
        if isinstance(fields.get("topics"), list):
            fields["topics"] = [self.topic(name) for name in fields["topics"]]
        for entry in _partitions(fields):
            entry["topic"] = self.topic(entry["topic"])
        return before != [list(fields.get("topics") or ()), [e["topic"] for e in _partitions(fields)]]


def _partitions(fields: dict[str, Any]) -> list[dict[str, Any]]:
    found = fields.get("owned_partitions") or fields.get("assigned_partitions") or []
    return [entry for entry in found if isinstance(entry, dict) and "topic" in entry]


class OffsetMap:
    """One partition. Points are learnt from answers; between two points, offsets go on as they did when recorded.

    `start` is the distance from the recording's log to the target's before anything was learnt.
    """

    __slots__ = ("_implied", "_points", "_recorded", "shifts", "start")

    def __init__(self) -> None:
        self.start = 0
        self.shifts = 0
        self._recorded: list[int] = []
        self._points: list[int] = []
        self._implied = array("q")  # what was learnt and follows from the point before it

    def __bool__(self) -> bool:
        return bool(self._recorded)

    def point(self, recorded: int, target: int) -> None:
        """The record at offset `recorded` is at `target`."""
        if recorded < 0 or target < 0:
            return
        at = bisect_right(self._recorded, recorded)
        distance = target - recorded
        if at and self._points[at - 1] - self._recorded[at - 1] == distance:
            self._imply(recorded)  # nothing new: the points stay few
            return
        if (at or self.start is not None) and distance != self._distance(at):
            self.shifts += 1
        self._keep_next(at, recorded)
        if at and self._recorded[at - 1] == recorded:
            self._points[at - 1] = target
            return
        self._recorded.insert(at, recorded)
        self._points.insert(at, target)

    def _imply(self, recorded: int) -> None:
        at = bisect_left(self._implied, recorded)
        if at == len(self._implied) or self._implied[at] != recorded:
            self._implied.insert(at, recorded)

    def _keep_next(self, at: int, recorded: int) -> None:
        """A point at `recorded` comes before what followed from the one before it: the first of that is a point now."""
        nearest = bisect_right(self._implied, recorded)
        if at and nearest < len(self._implied):
            implied = self._implied[nearest]
            if at == len(self._recorded) or implied < self._recorded[at]:
                self._recorded.insert(at, implied)
                self._points.insert(at, implied + self._distance(at))

    def _distance(self, at: int) -> int:
        return self._points[at - 1] - self._recorded[at - 1] if at else self.start

    def target(self, recorded: int) -> int:
        """The target's offset for a recorded one; negative numbers (-1: none) stay."""
        if recorded < 0:
            return recorded
        at = bisect_right(self._recorded, recorded)
        return max(0, recorded + self._distance(at))


_TOPIC_RESOURCES = frozenset({2})
_GROUP_RESOURCES = frozenset({3, 32})
_BROKER_RESOURCES = frozenset({4, 8})
_TRANSACTIONAL_RESOURCES = frozenset({5})
"""Resource types of configs and ACLs (Kafka's ConfigResource.Type and ResourceType): the two agree where both exist,
but for 4, which is the cluster in ACLs: its name is no number and stays."""
_TRANSACTION_KEY = 1

PRODUCE = facts.api_key("Produce")


class UnknownId(Exception):
    """The target's value for this is not known yet."""

    def __init__(self, role: Meaning, value: Any) -> None:
        super().__init__(f"{role} {value!r}")
        self.role, self.value = role, value


@dataclass(slots=True)
class RecordedCluster:
    """The recorded cluster, as far as the recording was read."""

    topics: dict[bytes, str] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    """topics that the recording itself creates"""
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """where logs ended when they were first heard of"""
    brokers: set[int] = field(default_factory=set)
    given: set[tuple[Meaning, Any]] = field(default_factory=set)
    """what answers of the recording gave out: ids by role, generations as (group, generation)"""


class IdMapping:
    """Names of the recording -> names of the target."""

    def __init__(self, names: NameMap, recorded: RecordedCluster) -> None:
        self.names, self.recorded = names, recorded
        self.topic_ids: dict[bytes, bytes] = {}
        self.topics: dict[str, bytes] = {}
        """the target's topics by name"""
        self.cluster_id: str | None = None
        """the target's"""
        self.members: dict[str, str] = {}
        self.generations: dict[tuple[str, int], int] = {}
        self.member_epochs: dict[tuple[str, str, int], int] = {}
        self.producers: dict[tuple[int, int], tuple[int, int]] = {}
        self.producer_ids: dict[int, int] = {}
        self.leader_epochs: dict[tuple[str, int, int], int] = {}
        self.offsets: dict[tuple[str, int], OffsetMap] = {}
        self.brokers: dict[int, int] = {}
        self.telemetry: dict[Any, Any] = {}

    # names

    def topic_of(self, scope: MappingType[Meaning, Any]) -> str | None:
        """The recorded name of the topic that a scope is about."""
        name = scope.get(Meaning.TOPIC)
        if name:
            return str(name)
        topic_id = scope.get(Meaning.TOPIC_ID)
        return self.recorded.topics.get(topic_id) if topic_id else None

    def offsets_of(self, topic: str, partition: int) -> OffsetMap:
        """The offsets of a partition, by its recorded name."""
        found = self.offsets.get((topic, partition))
        if found is None:
            found = self.offsets[topic, partition] = OffsetMap()
        return found

    def translate(self, role: Meaning, value: Any, scope: Scope) -> Any:
        """The target's value for a recorded one; the same value where none is known."""
        try:
            return self.change(role, value, scope, "")
        except UnknownId:
            return value

    def change(self, role: Meaning, value: Any, scope: Scope, name: str) -> Any:
        """The value for the target in place of a recorded one; UnknownId if only an answer can provide it."""
        match role:
            case Meaning.TOPIC:
                return self.names.topic(value)
            case Meaning.TOPIC_ID:
                return self._topic_id(value)
            case Meaning.GROUP:
                return self.names.group(value)
            case Meaning.TRANSACTIONAL_ID:
                return self.names.transactional_id(value)
            case Meaning.MEMBER_ID:
                return self._member(value)
            case Meaning.GENERATION:
                return self._generation(value, scope)
            case Meaning.PRODUCER_ID:
                return self.producer(value, None)[0]
            case Meaning.PRODUCER_EPOCH:
                producer = scope.get(Meaning.PRODUCER_ID, -1)
                return value if producer < 0 else self.producer(producer, value)[1]
            case Meaning.LEADER_EPOCH:
                return self._leader_epoch(value, scope, name)
            case Meaning.OFFSET:
                topic = self.topic_of(scope)
                partition = scope.get(Meaning.PARTITION)
                if topic is None or partition is None or value < 0:
                    return value
                return self.offsets_of(topic, partition).target(value)
            case Meaning.BROKER_ID:
                return self.brokers.get(value, value)
            case Meaning.CLUSTER_ID:
                return self.cluster_id if value else value
            case Meaning.REACHED_BROKER:
                return -1  # it may be another broker here; -1 is never refused (KIP-1242)
            case Meaning.TELEMETRY_ID:
                return self.telemetry.get(value, value)
            case Meaning.RESOURCE_NAME:
                return self._resource(value, scope)
            case Meaning.SUBSCRIPTION:
                return self.names.subscription(value)
            case Meaning.ASSIGNMENT:
                return self.names.assignment(value)
        return value

    def _topic_id(self, value: bytes) -> bytes:
        if value == ZERO_UUID:
            return value
        known = self.topic_ids.get(value)
        if known is not None:
            return known
        name = self.recorded.topics.get(value)
        if name is not None:
            there = self.topics.get(self.names.topic(name))
            if there is not None:
                return there
        raise UnknownId(Meaning.TOPIC_ID, value)

    def _member(self, value: str) -> str:
        known = self.members.get(value)
        if known is not None or not value:
            return known or value
        if (Meaning.MEMBER_ID, value) in self.recorded.given:
            raise UnknownId(Meaning.MEMBER_ID, value)
        return value  # of the client's own making (KIP-848), or from before the recording

    def _generation(self, value: int, scope: Scope) -> int:
        if value <= 0:
            return value
        group, member = scope.get(Meaning.GROUP, ""), scope.get(Meaning.MEMBER_ID, "")
        own = self.member_epochs.get((group, member, value))
        known = own if own is not None else self.generations.get((group, value))
        if known is None and (Meaning.GENERATION, (group, value)) in self.recorded.given:
            raise UnknownId(Meaning.GENERATION, (group, value))
        return value if known is None else known

    def producer(self, producer_id: int, epoch: int | None) -> tuple[int, int]:
        """The target's (producer id, epoch); UnknownId for one that it has not given out."""
        if producer_id < 0:
            return producer_id, -1 if epoch is None else epoch
        if epoch is not None:
            known = self.producers.get((producer_id, epoch))
            if known is not None:
                return known
        there = self.producer_ids.get(producer_id)
        if there is None:
            raise UnknownId(Meaning.PRODUCER_ID, producer_id)
        return there, 0 if epoch is None else epoch

    def _leader_epoch(self, value: int, scope: Scope, name: str) -> int:
        if value < 0:
            return value
        topic, partition = self.topic_of(scope), scope.get(Meaning.PARTITION)
        known = self.leader_epochs.get((topic, partition, value)) if topic and partition is not None else None
        if known is not None:
            return known
        # -1 (unknown) is allowed everywhere but in the request that asks about an epoch.
        return value if name == "leader_epoch" else -1

    def _resource(self, value: str, scope: Scope) -> str:
        kind = (scope.get(Meaning.RESOURCE_NAME) or (None,))[0]
        if kind in _TOPIC_RESOURCES:
            return self.names.topic(value)
        if kind in _GROUP_RESOURCES:
            return self.names.group(value)
        if kind in _TRANSACTIONAL_RESOURCES:
            return self.names.transactional_id(value)
        if kind in _BROKER_RESOURCES and value.isdecimal():
            return str(self.brokers.get(int(value), value))
        return value

    def coordinator_key(self, value: str, key_type: int) -> str:
        """A key of FindCoordinator: a group's, a transactional id, or a share group's with topic id and partition."""
        if key_type == _TRANSACTION_KEY:
            return self.names.transactional_id(value)
        return self.names.group(value)

    # learning

    def learn(self, asked: Message, recorded: Message, got: Message) -> None:
        """Learn the target's ids, epochs and offsets from a pair of responses."""
        scope = request_scope(asked)
        if recorded.api_key == PRODUCE:
            self._learn_offsets(recorded, got, scope)
        ends = _root(recorded), _root(got)
        if all("producer_id" in end and end["producer_id"] >= 0 for end in ends):
            self.learn_producer(
                (ends[0]["producer_id"], ends[0]["producer_epoch"]), (ends[1]["producer_id"], ends[1]["producer_epoch"])
            )
        for name in ("generation_id", "member_epoch"):
            if all(name in end for end in ends):
                self._learn_generation(scope, ends[0][name], ends[1][name])
        if all(end.get("member_id") for end in ends):
            self.members[ends[0]["member_id"]] = ends[1]["member_id"]
        for pair in pairs(recorded, got, self.translate, scope):
            if pair.missing or pair.recorded is None or pair.got is None:
                continue
            if pair.role is Meaning.TOPIC_ID and not pair.field.array:
                if any(pair.recorded) and any(pair.got):
                    self.topic_ids[pair.recorded] = pair.got
            elif pair.role is Meaning.LEADER_EPOCH and pair.recorded >= 0 and pair.got >= 0:
                topic, partition = self.topic_of(pair.scope), pair.scope.get(Meaning.PARTITION)
                if topic is not None and partition is not None:
                    self.leader_epochs[topic, partition, pair.recorded] = pair.got
            elif pair.role is Meaning.TELEMETRY_ID:
                self.telemetry[pair.recorded] = pair.got

    def learn_producer(self, recorded: tuple[int, int], target: tuple[int, int]) -> None:
        """A producer id with its epoch, on both sides."""
        self.producers[recorded] = target
        self.producer_ids[recorded[0]] = target[0]

    def _learn_generation(self, scope: Scope, recorded: int, got: int) -> None:
        if recorded > 0 and got > 0:
            group, member = scope.get(Meaning.GROUP, ""), scope.get(Meaning.MEMBER_ID, "")
            self.generations[group, recorded] = got
            if member:
                self.member_epochs[group, member, recorded] = got

    def _learn_offsets(self, recorded: Message, got: Message, scope: Scope) -> None:
        for pair in pairs(recorded, got, self.translate, scope):
            if pair.role is not Meaning.OFFSET or pair.volatile or pair.missing or pair.field.array:
                continue
            topic, partition = self.topic_of(pair.scope), pair.scope.get(Meaning.PARTITION)
            if topic is None or partition is None or pair.recorded < 0 or pair.got < 0:
                continue
            self.offsets_of(topic, partition).point(pair.recorded, pair.got)


def request_scope(asked: Message) -> Scope:
    """The scope of a whole request, which its answer need not repeat."""
    root = _root(asked)
    scope: dict[Meaning, Any] = {}
    if "group_id" in root:
        scope[Meaning.GROUP] = root["group_id"]
    if "member_id" in root:
        scope[Meaning.MEMBER_ID] = root["member_id"]
    return scope


def _root(message: Message) -> dict[str, Any]:
    return {f.name: value for f, value in zip(message.plan.root.fields, message.values, strict=False) if not f.array}
