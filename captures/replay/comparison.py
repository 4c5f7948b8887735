"""Comparing the target's answers with the recorded ones, field by field, ignoring fields that always differ.

A topic that the target does not have (`AbsentTopics`) is waited for once, because it may be about to be created.

`SkippedRequests` knows which differences follow from requests that were not sent: those that alter or delete are skipped unless
the user asks for them. A share group, for one, starts at the end of its topics unless its `share.auto.offset.reset` was set.

Records (`FetchedRecords`): timing decides when a fetch is answered and with how many records, so single answers are not compared.
At the end, every batch that was fetched when recorded must have been fetched again, at the corresponding offset.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from ...decoder import Exchange
from ...decoder.codec.message import Message, is_error_code, jsonable, shown_value
from ...decoder.records import Batch, Partial, RecordsError, batches
from ...decoder.records.batch import CONTROL, HEADER_SIZE
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import FieldPlan
from .mapping import IdMapping, request_scope
from .partial_requests import PRODUCE, is_retriable, partitions_to_retry
from .preparer import Preparer
from .rewrite import Translate, ValuePair, pairs, read
from .version_conversion import API_VERSIONS, answer_at, folds

_ABSENT = facts.error_code_set("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")
_CREATE = facts.api_key("CreateTopics")
_TOPIC_FIELDS = ("name", "topic", "topic_id", "topic_name")


def absent_topics(answer: Message) -> frozenset[Any]:
    """The topics, by name or id, that an answer reports as absent."""
    rows = {path.partition(".")[0] for path, code in answer.errors() if code in _ABSENT}
    return frozenset(_topic(answer, row) for row in rows)


def _topic(answer: Message, row: str) -> Any:
    for name in _TOPIC_FIELDS:
        try:
            return answer[f"{row}.{name}"]
        except KeyError:
            continue
    return None


class AbsentTopics:
    """Topics that did not appear while they were waited for."""

    def __init__(self) -> None:
        self._topics: frozenset[Any] = frozenset()

    def give_up(self, answer: Message) -> None:
        """The target still gives this answer at the end of the timeout."""
        self._topics |= absent_topics(answer)

    def lacks_only_absent_topics(self, answer: Message) -> bool:
        """Whether an answer lacks nothing but such topics."""
        if not self._topics or any(is_retriable(code) and code not in _ABSENT for _, code in answer.errors()):
            return False
        absent = absent_topics(answer)
        return bool(absent) and absent <= self._topics

    def answered(self, answer: Message) -> None:
        """After a CreateTopics, topics may exist."""
        if answer.api_key == _CREATE:
            self._topics = frozenset()


_NAMES = frozenset({Meaning.TOPIC, Meaning.GROUP, Meaning.TRANSACTIONAL_ID, Meaning.RESOURCE_NAME})
_SHOWN = 3
SHARE_GROUPS = " (a share group begins at the end of its topics unless its share.auto.offset.reset was set)"


class SkippedRequests:
    """Collects requests that were skipped because they alter or delete, then differences. `topics`: names by the recorded ids."""

    def __init__(self, topics: Mapping[bytes, str]) -> None:
        self._topics = topics
        self._by_name: dict[str, Counter[str]] = {}
        self._differing: Counter[str] = Counter()
        self._count = 0
        self._share_groups: set[str] = set()

    def left_out(self, exchange: Exchange) -> None:
        """A request that is not sent."""
        for name in set(self._names(exchange.request_message)):
            self._by_name.setdefault(name, Counter())[exchange.api] += 1

    def concerned(self, exchange: Exchange) -> frozenset[str]:
        """The names in a request that something was left out about before."""
        if not self._by_name:
            return frozenset()
        message = exchange.request_message
        if exchange.api.startswith("Share"):
            self._share_groups.update(value for role, value, _, _ in read(message) if role is Meaning.GROUP and value)
        return frozenset(name for name in self._names(message) if name in self._by_name)

    def differs(self, names: Collection[str]) -> None:
        """An answer, or a fetched batch, differs; `names` are those that it concerns."""
        self._differing.update(names)
        self._count += bool(names)

    def explanation(self) -> str | None:
        """Why answers differ, and what to do; None if no skipped request explains any."""
        if not self._count:
            return None
        apis: Counter[str] = Counter()
        for name in self._differing:
            apis |= self._by_name[name]
        names = [name for name, _ in self._differing.most_common()]
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        of_share_group = not self._share_groups.isdisjoint(self._differing)
        return (
            f"{self._count} difference{' concerns' if self._count == 1 else 's concern'} {shown}, which "
            f"{' and '.join(sorted(apis))} changed in the recording and not at the target, because requests that alter or "
            f"delete are left out; --include-admin sends them{SHARE_GROUPS if of_share_group else ''}"
        )

    def _names(self, message: Message | None) -> Iterator[str]:
        for role, value, _, _ in read(message):
            name = self._topics.get(value) if role is Meaning.TOPIC_ID else value if role in _NAMES else None
            if name:
                yield name


Digests = dict[int, int]
_LEADING = 4


class RecordMismatch(NamedTuple):
    """A batch that the replay did not fetch as it was recorded. `got` is False where it was not fetched at all."""

    topic: str
    partition: int
    offset: int
    target_offset: int
    got: bool


class FetchedRecords:
    """Keeps a number for each batch, by partition and offset, not the records."""

    def __init__(self, mapping: IdMapping) -> None:
        self._mapping = mapping
        self._recorded: dict[tuple[str, int], Digests] = {}
        self._got: dict[tuple[str, int], Digests] = {}
        self._single: set[tuple[str, int]] = set()

    def answers(self, exchange: Exchange, recorded: Message, got: Message) -> None:
        """Take the records of a recorded answer, and of the target's to the same request."""
        names = {self._mapping.names.topic(name): name for name in self._names(recorded)}
        single = exchange.api_version < _LEADING  # message sets then; the target may have batches
        self._take(recorded, self._recorded, None, single)
        self._take(got, self._got, names, single)

    def again(self, got: Message, recorded: Message) -> None:
        """Take the records of the target's answer to a request that was sent again."""
        names = {self._mapping.names.topic(name): name for name in self._names(recorded)}
        self._take(got, self._got, names, recorded.api_version < _LEADING)

    def _names(self, message: Message) -> Iterator[str]:
        for role, _, scope, _ in read(message):
            if role is Meaning.PARTITION:
                name = self._mapping.topic_of(scope)
                if name is not None:
                    yield name

    def _take(
        self, message: Message, into: dict[tuple[str, int], Digests], names: dict[str, str] | None, single: bool
    ) -> None:
        for role, value, scope, _ in read(message):
            if role is not Meaning.RECORDS or not value:
                continue
            topic = self._topic(scope, names)
            partition = scope.get(Meaning.PARTITION)
            if topic is None or partition is None:
                continue
            kept = into.setdefault((topic, partition), {})
            kept.update(_single(value) if single else _batches(value))

    def _topic(self, scope: dict[Meaning, object] | object, names: dict[str, str] | None) -> str | None:
        assert isinstance(scope, dict)
        if names is None:
            return self._mapping.topic_of(scope)
        name = scope.get(Meaning.TOPIC)
        if not name:
            there = scope.get(Meaning.TOPIC_ID)
            name = next((n for n, i in self._mapping.topics.items() if i == there), None)
            if name is None:
                recorded = next((r for r, t in self._mapping.topic_ids.items() if t == there), None)
                return self._mapping.recorded.topics.get(recorded) if recorded is not None else None
        back = {target: recorded for recorded, target in self._mapping.names.topics.items()}
        return names.get(str(name)) or back.get(str(name), str(name))

    def places(self, recorded: Message) -> Iterator[tuple[str, int]]:
        """The partitions that a recorded answer has records of."""
        for role, value, scope, _ in read(recorded):
            if role is Meaning.RECORDS and value:
                topic, partition = self._topic(scope, None), scope.get(Meaning.PARTITION)
                if topic is not None and partition is not None:
                    yield topic, partition

    def mismatches(self) -> Iterator[RecordMismatch]:
        """Recorded batches that the replay did not fetch, or fetched with other content."""
        for (topic, partition), recorded in self._recorded.items():
            got = self._got.get((topic, partition), {})
            offsets = self._mapping.offsets_of(topic, partition)
            for offset, digest in sorted(recorded.items()):
                there = offsets.target(offset)
                if got.get(there) != digest:
                    yield RecordMismatch(topic, partition, offset, there, there in got)

    @property
    def counts(self) -> tuple[int, int]:
        """The number of batches fetched: (recorded, replayed)."""
        return sum(map(len, self._recorded.values())), sum(map(len, self._got.values()))


def _batches(data: bytes) -> Iterator[tuple[int, int]]:
    """(base offset, number) of every whole batch; the producer, the times of appending and the CRC over them count not."""
    try:
        for entry in batches(data):
            if isinstance(entry, Partial):
                return
            if not isinstance(entry, Batch):
                yield from _of_records(entry)
            elif entry.attributes & CONTROL:
                yield entry.base_offset, -1  # its value holds an epoch of the coordinator
            else:
                payload = memoryview(data)[entry.start + HEADER_SIZE : entry.end]
                yield entry.base_offset, zlib.crc32(payload, entry.record_count)
    except RecordsError:
        return


def _single(data: bytes) -> Iterator[tuple[int, int]]:
    try:
        for entry in batches(data):
            if not isinstance(entry, Partial):
                yield from _of_records(entry)
    except RecordsError:
        return


def _of_records(entry: object) -> Iterator[tuple[int, int]]:
    assert not isinstance(entry, Partial)
    for record in entry.records():  # type: ignore[attr-defined]
        yield record.offset, zlib.crc32(record.value or b"", zlib.crc32(record.key or b""))


FETCHES = facts.api_key_set("Fetch", "ShareFetch")
ERROR = "error"
_HEARTBEATS = facts.api_key_set("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
_FIND_COORDINATOR, _LIST_GROUPS = facts.api_key("FindCoordinator"), facts.api_key("ListGroups")
# A group's members meet at other moments than they did when recorded.
_TIMING = facts.error_code_set("REBALANCE_IN_PROGRESS", "MEMBER_ID_REQUIRED", "UNKNOWN_MEMBER_ID")
# Lists of brokers: other clusters have other ones, and in another order.
_OF_BROKERS = frozenset({"brokers", "node_endpoints", "endpoints", "log_dirs", "results"})


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field that differs. Values are of JSON's types; error codes are names."""

    path: str
    recorded: Any
    got: Any
    meaning: str = ""


class Comparer:
    """Compares answers. `ignored` counts, by reason, what differed and is no difference."""

    def __init__(self, mapping: IdMapping, preparer: Preparer) -> None:
        self.mapping = mapping
        self.fetched = FetchedRecords(mapping)
        self.ignored: Counter[str] = Counter()
        self._preparer = preparer
        self._assignments: dict[tuple[str, str], list[Message | None]] = {}

    def differences(self, exchange: Exchange, got: Message, recorded: Message | None) -> list[FieldDifference]:
        """The differences of `got` from the recorded response. Empty if there is none to compare with."""
        asked = exchange.request_message
        if asked is None or recorded is None:
            return []
        if got.api_version != recorded.api_version and folds(got.api):
            got = answer_at(got, recorded.api_version, self.mapping.topics.get, self._preparer.topic_there)
        if recorded.api_key in FETCHES:
            self.fetched.answers(exchange, recorded, got)
        if recorded.api_key == API_VERSIONS and not got["error_code"]:
            if recorded.to_dict() != got.to_dict():
                self._leave("versions and features that brokers offer")
            return []
        found: list[FieldDifference] = []
        excused: list[str] = []
        translate = self._translator(asked)
        if recorded.api_key in _HEARTBEATS:
            self._assigned(asked, recorded, got)
        for pair in pairs(recorded, got, translate, request_scope(asked)):
            difference = self._one(recorded.api_key, pair, excused, translate)
            if difference is not None:
                found.append(difference)
        # Where the error differs, differences of the fields beside it follow from it.
        errors = [d.path.rpartition(".")[0] for d in found if d.meaning == ERROR] + excused
        return [d for d in found if d.meaning == ERROR or not any(_below(d.path, at) for at in errors)]

    def _assigned(self, asked: Message, recorded: Message, got: Message) -> None:
        """Assignments come with one heartbeat or another: the last ones are compared, at the end."""
        fields = asked.to_dict()
        last = self._assignments.setdefault((fields["group_id"], fields["member_id"]), [None, None])
        for side, answer in enumerate((recorded, got)):
            if answer.to_dict().get("assignment") is not None:
                last[side] = answer

    def differing_assignments(self) -> list[FieldDifference]:
        """Members of groups that ended with another assignment than when recorded."""
        found = []
        for (group, member), (recorded, got) in self._assignments.items():
            path = f"last assignment of {member} in {group}"
            if recorded is None or got is None:
                if recorded is not got:
                    found.append(FieldDifference(path, *("none" if side is None else "one" for side in (recorded, got))))
                continue
            for pair in pairs(recorded, got, self.mapping.translate):
                if pair.path.startswith("assignment") and (one := self._one(-1, pair, [], self.mapping.translate)):
                    found.append(FieldDifference(f"{path}: {one.path}", one.recorded, one.got))
        return found

    def _translator(self, asked: Message) -> Translate:
        key_type = asked["key_type"] if asked.api_key == _FIND_COORDINATOR and asked.api_version >= 1 else 0

        def translate(role: Meaning, value: Any, scope: Any) -> Any:
            if role is Meaning.COORDINATOR_KEY and isinstance(value, str):
                return self.mapping.coordinator_key(value, key_type)
            return self.mapping.translate(role, value, scope)

        return translate

    def _one(self, api_key: int, pair: ValuePair, excused: list[str], translate: Translate) -> FieldDifference | None:
        a, b, field, role = pair.recorded, pair.got, pair.field, pair.role
        if api_key in _HEARTBEATS and pair.path.startswith(("assignment", "active_tasks", "standby_tasks", "warmup_tasks")):
            return None if a == b else self._leave("assignments, at a different heartbeat")
        if pair.missing:
            return self._row(api_key, pair)
        if is_error_code(field):
            return self._error(pair, excused)
        if a == b or (role is Meaning.COORDINATOR_KEY and not b):  # old answers do not repeat the key
            return None
        if pair.volatile or role in (Meaning.RECORDS, Meaning.SUBSCRIPTION):
            return self._leave("irrelevant to the response")
        if role is not None and not field.array:
            a = translate(role, a, pair.scope) if a is not None else None
            if a == b:
                return None
        if role is Meaning.OFFSET and api_key in FETCHES:
            return self._leave("irrelevant to the response")
        if field.array and role is not None:
            return self._list(pair)
        if not a and not b:
            return self._leave("nothing, expressed differently")
        if field.array and field.struct is None and a is not None and b is not None and sorted(a) == sorted(b):
            return None
        return FieldDifference(pair.path, _plain(field, pair.recorded), _plain(field, b))

    def _list(self, pair: ValuePair) -> FieldDifference | None:
        a = [self.mapping.translate(pair.role, item, pair.scope) for item in pair.recorded or ()]  # type: ignore[arg-type]
        b = list(pair.got or ())
        if sorted(map(repr, a)) == sorted(map(repr, b)):
            return None
        return FieldDifference(pair.path, _plain(pair.field, pair.recorded), _plain(pair.field, b))

    def _row(self, api_key: int, pair: ValuePair) -> FieldDifference | None:
        name = pair.field.name
        if api_key in FETCHES:
            return self._leave("partitions missing from a Fetch response")
        if name in _OF_BROKERS or pair.field.struct is None or _names_brokers(pair.field):
            return self._leave("brokers")
        if pair.missing == "recording" and (api_key == _LIST_GROUPS or not _asked_for(pair)):
            return self._leave("topics and groups that were not requested")
        return FieldDifference(pair.path, _key(pair.recorded), _key(pair.got), "" if pair.missing == "count" else "only one has it")

    def _error(self, pair: ValuePair, excused: list[str]) -> FieldDifference | None:
        a, b = pair.recorded, pair.got
        if a == b:
            return None
        inside = pair.path.rpartition(".")[0]
        if (is_retriable(a) or a in _TIMING) and (not b or is_retriable(b) or b in _TIMING):
            excused.append(inside)
            return self._leave("temporary errors that are over")
        if b in _TIMING and not a and Meaning.GROUP in pair.scope and b == facts.error_code("REBALANCE_IN_PROGRESS"):
            excused.append(inside)
            return self._leave("rebalances at a different time")
        return FieldDifference(pair.path, facts.error_name(a), facts.error_name(b), ERROR)

    def _leave(self, why: str) -> FieldDifference | None:
        self.ignored[why] += 1
        return None


def lacking(recorded: Message | None, got: Message) -> str | None:
    """Why a request is to be sent again: an error that passes, where the recording has none, or a fetch that came
    back before the records which the recorded one brought. None if it is not."""
    if recorded is None:
        return None
    if recorded.api_key == PRODUCE and not partitions_to_retry(got):
        return None
    for _, code in got.errors():
        if is_retriable(code) and not any(is_retriable(c) for _, c in recorded.errors()):
            return facts.error_name(code)
    if recorded.api_key in FETCHES and _records(recorded) and not _records(got) and not any(got.errors()):
        return "no records yet"
    return None


def _records(message: Message) -> bool:
    fields = message.plan.root.fields
    at = next((i for i, f in enumerate(fields) if f.name == "responses"), None)
    struct = fields[at].struct if at is not None else None
    inner = next((i for i, f in enumerate(struct.fields) if f.name == "partitions"), None) if struct else None
    rows = struct.fields[inner].struct if struct is not None and inner is not None else None
    records = next((i for i, f in enumerate(rows.fields) if f.type == "records"), None) if rows else None
    if at is None or inner is None or records is None:
        return False
    return any(row[records] for topic in message.values[at] or () for row in topic[inner] or ())


@cache
def _names_brokers(field: FieldPlan) -> bool:
    struct = field.struct
    return struct is not None and bool(struct.fields) and struct.fields[0].entity == "brokerId"


def _asked_for(pair: ValuePair) -> bool:
    """Whether a row that only the target has is one of something asked for: lists of everything have no scope."""
    return pair.field.name not in ("topics", "groups", "resources", "entries")


def _below(path: str, at: str) -> bool:
    return not at or path.startswith((at + ".", at + "["))


def _plain(field: FieldPlan, value: Any) -> Any:
    if value is None or (field.array and not isinstance(value, tuple | list)):
        return value
    return jsonable(shown_value(field, value))


def _key(value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join(item.hex() if isinstance(item, bytes) else str(item) for item in value)
    return value
