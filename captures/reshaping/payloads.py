"""What is inside of the bytes that messages carry: records, what members of a group tell each other, principals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...decoder import facts
from ...decoder.decode import Bad, uvarint
from ...decoder.embedded import INTERNAL
from ...decoder.embedded.groups import STREAMS_ASSIGNOR
from ...decoder.embedded.payload import decode, definition, leading_int16, newest
from ...decoder.embedded.topics import CLUSTER_METADATA_ID, COORDINATORS, of_control
from ...decoder.errors import DecodeError, Truncated
from ...decoder.message import Message
from ...decoder.topics import Topics
from .batches import rewritten
from .fields import NAMES, Kind

if TYPE_CHECKING:
    from .messages import At, Frames

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
        """The records of a topic; None: nobody knows which. `position`: later parts of a snapshot begin anywhere."""
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
                number, position = uvarint(value, position)
                numbers.append(number)
        except (Bad, IndexError):
            return self._names.content(value)
        known = {d.key: d.name for d in facts.extra(f"embedded/{topic.strip('_')}").values()}
        name = known.get(numbers[1])
        if name is None:
            return self._names.content(value)
        return self._frames.payload(decode(name, numbers[2], value, position))

    def control(self, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        """A control record: only that of a quorum's voters names anybody. What is none is content."""
        try:
            told = of_control(key, value)
            known = told is not None and (told["value"] is not None or not value) and len(key or b"") == 4
            if known and value and "surplus_bytes" not in (told or {})["value"]:
                if (told or {})["type"] == _VOTERS:
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
        """Who asks for keys or values means what is in them, too."""
        frames = self._frames
        kinds = frames.kinds
        if kinds & {Kind.KEYS, Kind.VALUES}:
            frames.kinds = kinds | NAMES
        try:
            yield
        finally:
            frames.kinds = kinds

    # groups

    def member(self, data: bytes, which: str, at: At) -> bytes:
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

    def user_data(self, data: bytes, at: At) -> bytes:
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
        # Of records whose topic is not known nobody can say that no names are in them.
        everything = topic is None and bool(kinds & NAMES)
        self._keys = Kind.KEYS in kinds or everything
        self._values = Kind.VALUES in kinds or everything
        self._headers = Kind.HEADERS in kinds or everything

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
