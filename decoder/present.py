"""Messages in JSON's types, for people: secrets masked, record areas opened.

Keys and values of records are payload: only their sizes are shown unless `values` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import Any

from . import embedded, records
from .codec.codec import decode_request_header
from .codec.encode import MEANING, TOPIC_NAME
from .codec.message import JSON_SCALARS, Message, jsonable
from .codec.project import places
from .codec.secrets import shown
from .errors import DecodeError
from .records.batch import HEADER_SIZE
from .records.codecs import DEFAULT_LIMIT
from .schema.meaning import Meaning
from .schema.null_and_empty import EmptyMeaning, meanings
from .schema.plan import Fields, Plan, StructPlan, field_paths
from .values import SchemaSource, view
from .wire.frame import Direction

Json = Any
TopicName = Callable[[bytes], str | None]


@cache
def _topic_field(plan: StructPlan) -> str | None:
    """The field of a struct that has a topic's name."""
    names = (f.name for f in plan.fields if f.meaning is Meaning.TOPIC and not f.array)
    return next(names, None)


@dataclass(frozen=True, slots=True)
class Presenter:
    """How messages are shown.

    ``values``: also keys, values and headers of records, decoded by ``schemas`` if one is known. ``topic_name``: a function
    from a topic id's 16 bytes to its name or None; a name is shown as ``_topic_name`` beside the id.
    """

    values: bool = False
    topic_name: TopicName | None = None
    schemas: SchemaSource | None = None

    def message(self, message: Message, asked: bytes = b"") -> dict[str, Json]:
        """The body as nested dicts of JSON's types. `asked`: the request of a response, whose secrets it may quote."""
        return self._struct(message.plan.root, shown(message, asked), None, meanings(message.plan))

    def _struct(
        self, plan: StructPlan, fields: Fields, topic: str | None, said: Mapping[StructPlan, tuple[EmptyMeaning, ...]]
    ) -> dict[str, Json]:
        out: dict[str, Json] = {}
        if len(fields) > len(plan.fields):  # unknown tagged fields
            known = {f.name for f in plan.fields}
            out.update(jsonable({k: v for k, v in fields.items() if k not in known}))
        topic_field = _topic_field(plan)
        if topic_field is not None:
            topic = fields[topic_field]
        for field in plan.fields:
            value, struct = fields[field.name], field.struct
            if type(value) in JSON_SCALARS:
                out[field.name] = value
            elif field.type == "records":
                out[field.name] = self.record_area(value, topic, records.aborted_in(fields))
            elif struct and field.array:
                out[field.name] = [self._struct(struct, item, topic, said) for item in value]
            elif struct:
                out[field.name] = self._struct(struct, value, topic, said)
            else:
                out[field.name] = jsonable(value)
                if field.name == "topic_id" and self.topic_name and not field.array and not topic:
                    topic = self.topic_name(value.bytes)
                    if topic is not None:
                        out[TOPIC_NAME] = topic
        for each in said.get(plan, ()):
            if text := each.of(fields[each.field]):
                out[MEANING + each.field] = text
        return out

    def record_area(
        self, data: bytes, topic: str | None = None, aborted: Iterable[records.Aborted] = ()
    ) -> list[dict[str, Json]]:
        """Every batch (magic 2) or message (magic 0, 1) of a record area, with its records; ``unreadable`` has the error of
        what cannot be read; ``aborted`` are those of such transactions, which readers of committed records skip. With `values` each has its ``bytes`` in hexadecimal, from which `encode_body` makes the same area."""
        found: list[dict[str, Json]] = []
        end = 0
        dropped = records.aborted_batches(data, aborted)
        try:
            for entry in records.batches(data):
                of_aborted = {"aborted": True} if entry.start in dropped else {}
                found.append(of_aborted | self._entry(entry, topic) | self._bytes(data, entry.start, entry.end))
                end = entry.end
        except records.RecordsError as error:
            found.append({"unreadable": str(error)} | self._bytes(data, end, len(data)))
            end = len(data)
        if self.values and end < len(data):
            found.append({"partial": True, "size": len(data) - end} | self._bytes(data, end, len(data)))
        return found

    def _bytes(self, data: bytes, start: int, end: int) -> dict[str, Json]:
        return {"bytes": data[start:end].hex()} if self.values else {}

    def _entry(self, entry: records.Batch | records.Message | records.Partial, topic: str | None) -> dict[str, Json]:
        if isinstance(entry, records.Partial):
            return {"partial": True, "size": entry.end - entry.start}
        out = self._described(entry, topic, DEFAULT_LIMIT)
        if isinstance(entry, records.Message) and entry.codec:
            if "unreadable" in out:
                inside: list[Json] = list(self._wrapped(entry, topic))
                return out | {"wrapped": inside} if inside else out
            if wrong := [inner.offset for inner in entry.messages() if not inner.crc_ok]:
                out["inner_crc_wrong"] = wrong
        return out

    def _described(self, entry: records.Batch | records.Message, topic: str | None, limit: int) -> dict[str, Json]:
        out: dict[str, Json] = {name: getattr(entry, name) for name in _SHOWN[isinstance(entry, records.Batch)]}
        out["codec"], out["size"] = entry.codec_name, entry.end - entry.start
        try:
            out["records"] = [self.record(r, topic) for r in entry.records(limit=limit)]
        except records.RecordsError as error:
            out["unreadable"] = str(error)
        return out

    def _wrapped(self, entry: records.Message, topic: str | None) -> Iterator[dict[str, Json]]:
        """The first messages of a set that was compressed twice, which brokers refuse."""
        try:
            inner = list(islice(entry.messages(wrappers=True), _MOST_WRAPPED))
        except records.RecordsError:
            return
        if any(message.codec for message in inner):
            yield from (self._described(message, topic, _WRAPPED_LIMIT) for message in inner)

    def record(self, record: records.Record, topic: str | None) -> dict[str, Json]:
        """One record: key, value and headers if `values` is set, else their sizes."""
        out: dict[str, Json] = {"offset": record.offset, "timestamp": record.timestamp}
        if record.control is not None:
            return {**out, "control": record.control.name}
        if self.values:
            out["key"] = self._payload(record.key, topic, is_key=True)
            out["value"] = self._payload(record.value, topic)
            out["headers"] = [
                {"key": key if isinstance(key, str) else {"hex": key.hex()}, "value": self._payload(value, None)}
                for key, value in record.headers
            ]
        else:
            out["key_size"] = None if record.key is None else len(record.key)
            out["value_size"] = None if record.value is None else len(record.value)
            out["headers"] = len(record.headers)
        return out

    def _payload(self, data: bytes | None, topic: str | None, is_key: bool = False) -> Json:
        """Text as it is, ``{"hex": ...}`` for other bytes, ``{"kind": ..., "value": ...}`` for bytes that a schema decoded."""
        seen = view(data, registry=self.schemas if topic is not None else None, topic=topic, is_key=is_key)
        if seen.kind == "null":
            return None
        if seen.kind in ("empty", "text", "json"):
            return seen.text
        if seen.value is None:
            out: dict[str, Json] = {"hex": (data or b"").hex()}
        else:
            out = {"kind": seen.kind, "value": seen.value}
        if seen.schema_id is not None:
            out = {"kind": seen.kind, "schema_id": seen.schema_id, **out}
        return {**out, "note": seen.note} if seen.note else out


_MOST_WRAPPED, _WRAPPED_LIMIT = 100, 1 << 20
"""How many messages that were compressed twice are opened, and how many bytes of each."""
_BATCH = (
    "base_offset", "magic", "crc_ok", "timestamp_type", "transactional", "control", "partition_leader_epoch", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count",
)  # fmt: skip
_SHOWN = {True: _BATCH, False: ("offset", "magic", "crc_ok")}


def present(
    message: Message,
    values: bool = False,
    topic_name: TopicName | None = None,
    schemas: SchemaSource | None = None,
    asked: bytes = b"",
) -> dict[str, Json]:
    """The body as nested dicts of JSON's types; see `Presenter`."""
    return Presenter(values, topic_name, schemas).message(message, asked)


RECORD_APIS = frozenset({"Produce", "Fetch", "FetchSnapshot", "ShareFetch"})
"""APIs whose embedded payloads are records, which are shown only if values are."""
MOST_PAYLOADS = 1000


def payloads(message: Message, request: Message | None = None, values: bool = False) -> list[dict[str, Json]]:
    """The payloads in a message's byte fields (see `embedded`): path, kind, fields; secrets masked."""
    if message.api in RECORD_APIS and not values:
        return []
    found = islice(embedded.of(message, request), MOST_PAYLOADS)
    return [{"path": p.path, "kind": p.kind, "fields": jsonable(p.fields)} for p in found]


# --- which bytes of a frame are payload of records ------------------------------------------------------------

Range = tuple[int, int]
_MESSAGE_HEAD = {0: 18, 1: 26}  # offset, size, CRC, magic, attributes, and in magic 1 the timestamp


def payload_ranges(direction: Direction, api: str, frame: bytes, message: Message | None) -> list[Range]:
    """The (start, end) of record payload in a frame: all bytes of each batch after its header. `message`: the decoded frame;
    None if it cannot be decoded: then everything after its header counts."""
    if api not in RECORD_APIS:
        return []
    if message is None:
        return [(_body_start(frame, direction), len(frame))]
    found: list[Range] = []
    for value, end in chain.from_iterable(places(message, _record_areas(message.plan))):
        if isinstance(value, bytes):
            found += [(end - len(value) + low, end - len(value) + high) for low, high in _in_area(value)]
    return found


@cache
def _record_areas(of: Plan) -> tuple[str, ...]:
    return tuple(each.path for each in field_paths(of.root) if each.field.name in ("records", "unaligned_records"))


def _body_start(frame: bytes, direction: Direction) -> int:
    if direction is Direction.RESPONSE:
        return 4
    try:
        return decode_request_header(frame)[1]
    except DecodeError:
        return 8


def _in_area(data: bytes) -> list[Range]:
    found: list[Range] = []
    end = 0
    try:
        for entry in records.batches(data):
            head = 17 if isinstance(entry, records.Partial) else _MESSAGE_HEAD.get(entry.magic, HEADER_SIZE)
            found.append((min(entry.start + head, entry.end), entry.end))
            end = entry.end
    except records.RecordsError:
        found.append((end, len(data)))
    return found
