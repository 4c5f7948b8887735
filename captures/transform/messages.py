"""Rewriting frames for a redaction. Lengths stay, except those of compressed data.

Bytes that cannot be decoded are never copied: they are blanked, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...decoder import Exchange, decode_request_header
from ...decoder.codec.codec import read_request
from ...decoder.codec.encode import UNKNOWN_TAGS
from ...decoder.codec.message import Message
from ...decoder.codec.payload import decode, definition, leading_int16, newest
from ...decoder.codec.splice import BodySplicer, changed_fields
from ...decoder.connection.topics import Topics
from ...decoder.embedded import INTERNAL
from ...decoder.embedded.groups import STREAMS_ASSIGNOR
from ...decoder.embedded.topics import CLUSTER_METADATA_ID, COORDINATORS, of_control
from ...decoder.errors import DecodeError, Truncated
from ...decoder.schema import facts
from ...decoder.schema.plan import Values
from ...decoder.wire.varint import VarintError, read_uvarint
from .batches import BLANK, rewritten
from .fields import NAMES, FieldRule, RedactionKind, Replacement, RuleBranch, RuleTree, rule_tree
from .free_text import scrub_text
from .pseudonyms import Pseudonyms

_KEPT = 10_000
_CLIENT_ID_AT = 8  # of a request's header, after key, version and correlation id

# Resource types by their numbers: of ACLs, and of configs where these are others.
_RESOURCES = {2: RedactionKind.TOPICS, 3: RedactionKind.GROUPS, 5: RedactionKind.TRANSACTIONS, 6: RedactionKind.USERS, 7: RedactionKind.USERS, 32: RedactionKind.GROUPS}
_CLUSTER_OR_BROKER = (4, 8)
_TYPES: dict[str, dict[Any, RedactionKind]] = {
    "key_type": {0: RedactionKind.GROUPS, 1: RedactionKind.TRANSACTIONS, 2: RedactionKind.GROUPS},
    "entity_type": {"user": RedactionKind.USERS, "client-id": RedactionKind.CLIENTS, "ip": RedactionKind.HOSTS},
}


class WalkContext:
    """The context of the walk: what the structs around a field, and the request, named."""

    __slots__ = ("position", "protocol", "protocol_type", "topic", "type")

    def __init__(self, asked: Message | None = None) -> None:
        self.type: tuple[str, Any] = "", None
        self.topic: str | None = None
        self.position = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        if asked is not None:
            self.enter(rule_tree(asked.plan.root), asked.values)

    def enter(self, of: RuleTree, values: Values) -> None:
        """Take the context from a struct's fields; nulls change nothing."""
        if of.type_at is not None and values[of.type_at] is not None:
            self.type = of.of.fields[of.type_at].name, values[of.type_at]
        if of.protocol_type_at is not None and values[of.protocol_type_at] is not None:
            self.protocol_type = values[of.protocol_type_at]
        if of.protocol_at is not None and values[of.protocol_at] is not None:
            self.protocol = values[of.protocol_at]
        if of.position_at is not None:
            self.position = values[of.position_at]


class Frames:
    """Rewrites the frames of a capture. `counts`: blanked_bytes, blanked_frames, records, telemetry (pushes emptied);
    `distinct`: the names of each kind; `kept`: the words of Kafka's own that were met."""

    def __init__(self, pseudonyms: Pseudonyms, kinds: frozenset[RedactionKind]) -> None:
        self.pseudonyms, self.kinds = pseudonyms, kinds
        self.counts: Counter[str] = Counter()
        self.distinct: dict[RedactionKind, set[str]] = {kind: set() for kind in RedactionKind}
        self.kept: set[str] = set()
        self._payloads = Payloads(self)
        self._topics: Topics | None = None

    # frames

    def request(self, exchange: Exchange, frame: bytes | None = None) -> bytes:
        """The exchange's request, or another frame of it (as the broker got it)."""
        if frame is None:
            frame, message = exchange.request or b"", exchange.request_message
        else:
            message = _read_request(frame)
        return self.request_frame(frame, message, exchange.topics)

    def response(self, exchange: Exchange, frame: bytes | None = None) -> bytes:
        """The exchange's response, or another frame of it (as the broker sent it)."""
        if frame is not None:
            other = Exchange(
                api_key=exchange.api_key, api_version=exchange.api_version, response=frame, state=exchange.state
            )
            message = other.response_message
        else:
            frame, message = exchange.response or b"", exchange.response_message
        if message is None:
            return self.blanked(frame, 4)
        return self._message(message, WalkContext(exchange.request_message), exchange.topics)

    def request_frame(self, frame: bytes, message: Message | None, topics: Topics | None) -> bytes:
        """A request of which `message` was read; None: it cannot be."""
        frame = self._header(frame)
        if message is None:
            try:
                _, body = decode_request_header(frame)
            except DecodeError:
                body = 8
            return self.blanked(frame, body)
        new = self._message(message, WalkContext(), topics)
        return frame[: message.body_start] + new[message.body_start :]

    def blanked(self, frame: bytes, start: int) -> bytes:
        """A frame of which nothing but its first bytes is left."""
        start = min(start, len(frame))
        if len(frame) > start:
            self.counts["blanked_frames"] += 1
            self.counts["blanked_bytes"] += len(frame) - start
        return frame[:start] + BLANK * (len(frame) - start)

    def _blank(self, data: bytes) -> bytes:
        self.counts["blanked_bytes"] += len(data)
        return BLANK * len(data)

    def _header(self, frame: bytes) -> bytes:
        """The frame with another client id in its header."""
        try:
            header, body = decode_request_header(frame)
        except DecodeError:
            return frame[:8] + BLANK * len(frame[8:]) if self.kinds & NAMES else frame
        client_id = header.get("client_id")
        out = bytearray(frame)
        start = _CLIENT_ID_AT + 2
        if client_id and RedactionKind.CLIENTS in self.kinds:
            new = self.name(RedactionKind.CLIENTS, client_id, self.pseudonyms.name).encode()
            out[start : start + len(new)] = new
        if header.get(UNKNOWN_TAGS) and self.kinds & NAMES:
            # Unknown tags; they stand behind the client id.
            behind = start + len((client_id or "").encode())
            for data in header[UNKNOWN_TAGS].values():
                at = bytes(out).find(data, behind, body)
                if data and at >= 0:
                    out[at : at + len(data)] = self._blank(data)
        return bytes(out)

    # messages

    def _message(self, message: Message, at: WalkContext, topics: Topics | None) -> bytes:
        self._topics = topics
        return self.payload(message, at)

    def payload(self, message: Message, at: WalkContext | None = None) -> bytes:
        """A message, or an embedded payload that was decoded by its definition; bytes behind its end are blanked."""
        values = self.struct(rule_tree(message.plan.root), message.values, at or WalkContext())
        frame = message.frame
        if values is not message.values:
            frame = BodySplicer(frame, message.body_start).root(message.plan.root, message.values, values)
        if message.trailing:
            frame = frame[: -len(message.trailing)] + self._blank(message.trailing)
        return frame

    def struct(self, of: RuleTree, values: Values, at: WalkContext) -> Values:
        """The values of a struct after the redaction; the same object if nothing changes."""
        at.enter(of, values)
        if of.topic_at is not None or of.id_at is not None:
            at.topic = self._topic(of, values)
        new = changed_fields(values, of.branches, lambda branch, old: self._field(branch, old, at))
        if of.of.flexible and values[-1] and self.kinds & NAMES:
            new = *new[:-1], tuple((tag, BLANK * len(data)) for tag, data in values[-1])
            self.counts["blanked_bytes"] += sum(len(data) for _, data in values[-1])
        return new

    def _topic(self, of: RuleTree, values: Values) -> str | None:
        name = values[of.topic_at] if of.topic_at is not None else None
        if name is None and of.id_at is not None and values[of.id_at]:
            name = self._payloads.topic_of(values[of.id_at], self._topics)
        return name

    def _field(self, branch: RuleBranch, old: Any, at: WalkContext) -> Any:
        if branch.inside is not None:
            return self.struct(branch.inside, old, at)
        rule = branch.rule
        if rule is None or not (rule.kinds & self.kinds or rule.replacement is Replacement.CREDENTIALS):
            return old
        return self._value(rule, old, at)

    def _value(self, rule: FieldRule, old: Any, at: WalkContext) -> Any:
        if not old:
            return old
        replacement, names = rule.replacement, self.pseudonyms
        if isinstance(old, bytes):
            return self._bytes(replacement, old, at)
        if replacement is Replacement.KAFKAS:
            if len(self.kept) < _KEPT:
                self.kept.add(old)
            return old
        if replacement is Replacement.TEXT:
            return scrub_text(old, names)
        if replacement is Replacement.NOTE:
            return names.name(old)
        if replacement is Replacement.RESOURCE:
            return self._resource(old, *at.type)
        change = {Replacement.LOCATION: names.location, Replacement.PATTERN: names.regex, Replacement.PRINCIPAL: names.principal}
        return self.name(next(iter(rule.kinds)), old, change.get(replacement, names.name))

    def name(self, kind: RedactionKind, old: str, change: Callable[[str], str]) -> str:
        """Replace a name of a kind, and count the different ones."""
        new = change(old)
        if new != old and len(self.distinct[kind]) < Pseudonyms.MOST:
            self.distinct[kind].add(old)
        return new

    def _resource(self, old: str, type_field: str, type_: Any) -> str:
        kinds: dict[Any, RedactionKind] = _TYPES.get(type_field, _RESOURCES)
        kind = kinds.get(type_)
        if kind is None and type_ in _CLUSTER_OR_BROKER and old.isdigit():
            return old
        if kind is not None and kind not in self.kinds:
            return old
        change = self.pseudonyms.principal if kind is RedactionKind.USERS else self.pseudonyms.name
        return self.name(kind or RedactionKind.TOPICS, old, change)

    def _bytes(self, replacement: Replacement, old: bytes, at: WalkContext) -> bytes:
        payloads = self._payloads
        match replacement:
            case Replacement.RECORDS:
                return payloads.area(old, at.topic, at.position)
            case Replacement.SUBSCRIPTION | Replacement.ASSIGNMENT:
                return payloads.member(old, replacement.value, at)
            case Replacement.USER_DATA:
                return payloads.user_data(old, at)
            case Replacement.ADDRESS:
                return self.pseudonyms.packed(old)
            case Replacement.LOCATION:
                return payloads.text(old, self.pseudonyms.location)
            case Replacement.NAME:
                return payloads.text(old, self.pseudonyms.name)
            case Replacement.IDENTITY:
                return payloads.identity(old)
            case Replacement.REQUEST:
                return self._inner(old)
            case Replacement.METRICS:
                self.counts["telemetry"] += 1
                return b""
            case Replacement.CREDENTIALS:
                return BLANK * len(old)
        return self.pseudonyms.content(old)

    def _inner(self, frame: bytes) -> bytes:
        """A request inside of an Envelope."""
        topics, message = self._topics, _read_request(frame)
        if message is None:
            return self.pseudonyms.content(frame)
        new = self.request_frame(frame, message, topics)
        self._topics = topics
        return new


def _read_request(frame: bytes) -> Message | None:
    try:
        return read_request(frame)
    except DecodeError:
        return None


_DEFINITIONS = {
    "subscription": {"consumer": "ConsumerProtocolSubscription", "connect": "ConnectSubscription"},
    "assignment": {"consumer": "ConsumerProtocolAssignment", "connect": "ConnectAssignment"},
}
_VOTERS = "kraft_voters"
_CLUSTER_METADATA = "__cluster_metadata"


class Payloads:
    """Rewrites embedded payloads for `Frames`. All lengths stay, but for records that are compressed."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._names = frames.pseudonyms

    # plain text

    def text(self, data: bytes, change: Callable[[str], str]) -> bytes:
        """Text in bytes; what is no UTF-8 is content."""
        try:
            return change(data.decode()).encode()
        except UnicodeDecodeError:
            return self._names.content(data)

    # records

    def topic_of(self, topic_id: bytes, topics: Topics | None) -> str | None:
        """The name of a topic id, as far as it was seen."""
        if topic_id == CLUSTER_METADATA_ID.bytes:
            return _CLUSTER_METADATA
        return topics.name(topic_id) if topics is not None else None

    def area(self, data: bytes, topic: str | None, position: int) -> bytes:
        """The records of a topic; None: unknown. `position`: later parts of a snapshot begin anywhere."""
        kinds = self._frames.kinds
        contents = kinds - NAMES
        if topic not in INTERNAL and not contents and topic is not None:
            return data
        if position:
            self._frames.counts["blanked_bytes"] += len(data)
            return b"*" * len(data)
        return rewritten(data, _Records(self, self._frames, topic))

    def internal(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        """A record of one of Kafka's own topics; parts that are not what they should be are replaced as content."""
        with self._every_name():
            try:
                if topic in COORDINATORS:
                    return self._coordinator(topic, key, value)
                return key and self._names.content(key), value and self._metadata(topic, value)
            except DecodeError:
                return key and self._names.content(key), value and self._names.content(value)

    def _coordinator(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        if not key:
            return key, value and self._names.content(value)
        number = leading_int16(key, topic)
        known = {d.key: d.name for d in facts.extra(f"embedded/{topic.strip('_')}").values() if d.name.endswith("Key")}
        name = known.get(number, "")
        if not name:
            raise Truncated(f"record type {number} is not known in {topic}")
        new_key = self._frames.payload(decode(name, 0, key, 2))
        if not value:
            return new_key, value
        value_name = "OffsetCommitValue" if name == "LegacyOffsetCommitKey" else name.removesuffix("Key") + "Value"
        version = leading_int16(value, value_name)
        return new_key, self._frames.payload(decode(value_name, newest(value_name, version), value, 2))

    def _metadata(self, topic: str, value: bytes) -> bytes:
        position = 0
        numbers = []
        try:
            for _ in range(3):
                number, position = read_uvarint(value, position)
                numbers.append(number)
        except VarintError:
            return self._names.content(value)
        known = {d.key: d.name for d in facts.extra(f"embedded/{topic.strip('_')}").values()}
        name = known.get(numbers[1])
        if name is None:
            return self._names.content(value)
        return self._frames.payload(decode(name, numbers[2], value, position))

    def control(self, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        """A control record: only that of a quorum's voters names anybody. What is none is content."""
        try:
            control = of_control(key, value)
            known = control is not None and (control["value"] is not None or not value) and len(key or b"") == 4
            if known and value and "surplus_bytes" not in (control or {})["value"]:
                if (control or {})["type"] == _VOTERS:
                    version = newest("VotersRecord", max(leading_int16(value, "VotersRecord"), 0))
                    value = self._frames.payload(decode("VotersRecord", version, value))
                return key, value
            if known and not value:
                return key, value
        except DecodeError:
            pass
        return key and self._names.content(key), value and self._names.content(value)

    @contextmanager
    def _every_name(self) -> Iterator[None]:
        """With keys or values, redact the names in them, too."""
        frames = self._frames
        kinds = frames.kinds
        if kinds & {RedactionKind.KEYS, RedactionKind.VALUES}:
            frames.kinds = kinds | NAMES
        try:
            yield
        finally:
            frames.kinds = kinds

    # groups

    def member(self, data: bytes, which: str, at: WalkContext) -> bytes:
        """A subscription or assignment; of other protocols than Kafka's own, content."""
        candidates = _DEFINITIONS[which]
        known = at.protocol_type in candidates
        if at.protocol_type and not known:
            return self._names.content(data)
        for kind in (at.protocol_type,) if known else candidates:
            message = _versioned(candidates[str(kind)], data)
            if message is not None and (known or not message.trailing):
                return self._same_size(data, self._frames.payload(message, at))
        return self._names.content(data)

    def user_data(self, data: bytes, at: WalkContext) -> bytes:
        """An assignor's own bytes; of assignors that are not Kafka's, content."""
        if at.protocol == "cooperative-sticky" and len(data) == 4:
            return data  # a generation
        layouts = [("StickyAssignorUserData", 1), ("StickyAssignorUserData", 0)]
        if at.protocol == STREAMS_ASSIGNOR:
            version = int.from_bytes(data[:4], "big", signed=True)
            layouts = [
                (name, version)
                for name in ("SubscriptionInfoData", "AssignmentInfo")
                if 1 <= version <= newest(name, version)
            ]
        for name, version in layouts:
            try:
                message = decode(name, version, data)
            except DecodeError:
                continue
            if not message.trailing:
                return self._same_size(data, self._frames.payload(message))
        return self._names.content(data)

    def identity(self, data: bytes) -> bytes:
        """A principal as Kafka's own builder writes it; another one's is content."""
        try:
            version = leading_int16(data, "DefaultPrincipalData")
            return self._same_size(data, self._frames.payload(decode("DefaultPrincipalData", version, data, 2)))
        except DecodeError:
            return self._names.content(data)

    def _same_size(self, data: bytes, new: bytes) -> bytes:
        return new if len(new) == len(data) else self._names.content(data)


class _Records:
    """The `batches.Changer` of one topic's records."""

    def __init__(self, payloads: Payloads, frames: Frames, topic: str | None) -> None:
        self._payloads, self._frames = payloads, frames
        kinds = frames.kinds
        self._internal = topic if topic in INTERNAL else None
        # Records of an unknown topic may hold names.
        everything = topic is None and bool(kinds & NAMES)
        self._keys = RedactionKind.KEYS in kinds or everything
        self._values = RedactionKind.VALUES in kinds or everything
        self._headers = RedactionKind.HEADERS in kinds or everything

    def record(self, key: bytes | None, value: bytes | None, control: bool) -> tuple[bytes | None, bytes | None]:
        self._frames.counts["records"] += 1
        if control:
            return self._payloads.control(key, value)
        if self._internal is not None:
            new = self._payloads.internal(self._internal, key, value)
            content = self._frames.pseudonyms.content
            return tuple(  # type: ignore[return-value]
                b if a is None or (b is not None and len(a) == len(b)) else content(a)
                for a, b in zip((key, value), new, strict=True)
            )
        content = self._frames.pseudonyms.content
        if key and self._keys:
            key = content(key)
        if value and self._values:
            value = content(value)
        return key, value

    def header(self, key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]:
        if not self._headers:
            return key, value
        names = self._frames.pseudonyms
        return self._payloads.text(key, names.name), value and names.content(value)

    def blanked(self, size: int) -> None:
        self._frames.counts["blanked_bytes"] += size


def _versioned(name: str, data: bytes) -> Message | None:
    """A payload that leads with its version; see `decoder.embedded.groups` for clients that name one too new."""
    try:
        version = leading_int16(data, name)
        layout = newest(name, version)
    except DecodeError:
        return None
    while layout >= max(definition(name).versions.every()[0], 0):
        try:
            return decode(name, layout, data, 2)
        except Truncated as fault:
            if fault.offset != len(data) or "." in fault.path:
                return None
            layout -= 1
        except DecodeError:
            return None
    return None
