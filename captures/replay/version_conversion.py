"""Converting a message to another version, and reporting what that version cannot express."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from uuid import UUID

from ...decoder import decode_request
from ...decoder.codec.codec import encode_request
from ...decoder.codec.encode import UNKNOWN_TAGS, value_from
from ...decoder.codec.message import Message, shown_value
from ...decoder.errors import EncodeError
from ...decoder.records import Message as OldMessage
from ...decoder.records import RecordsError, batches, encode_batch
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.notation import FieldLine, snake_case
from ...decoder.schema.plan import ZERO_UUID, FieldPlan, StructPlan, plan
from .roles import RoleTree, tree

API_VERSIONS, PRODUCE = facts.api_key("ApiVersions"), facts.api_key("Produce")
_FIRST_BATCHES = 3
"""Produce carries batches of magic 2 from this version on, and nothing else."""

# One thing at old versions, a list of one at newer ones: old name -> (list, name inside, or None for plain values).
_FOLDS: dict[tuple[str, str], dict[str, tuple[str, str | None]]] = {
    ("FindCoordinator", "request"): {"key": ("coordinator_keys", None)},
    ("FindCoordinator", "response"): {
        name: ("coordinators", name) for name in ("error_code", "error_message", "node_id", "host", "port")
    },
    ("OffsetFetch", "request"): {"group_id": ("groups", "group_id"), "topics": ("groups", "topics")},
    ("OffsetFetch", "response"): {"error_code": ("groups", "error_code"), "topics": ("groups", "topics")},
    ("LeaveGroup", "request"): {"member_id": ("members", "member_id")},
}


def folds(api: str) -> bool:
    """Whether versions of an API's answers are laid out so differently that `answer_at` has to bring them together."""
    return (api, "response") in _FOLDS


class NotExpressible(Exception):
    """The other version has no place for something; the message names it."""


TopicIds = Callable[[str], bytes | None]
TopicNames = Callable[[bytes], str | None]


def candidates(api_key: int, version: int, offered: tuple[int, int]) -> list[int]:
    """The versions that are offered and known, the nearest to `version` first (of two, the newer)."""
    try:
        known = facts.api(api_key).versions
    except KeyError:
        return []
    both = [v for v in range(offered[0], offered[1] + 1) if v in known]
    return sorted(both, key=lambda v: (abs(v - version), -v))


def at_version(message: Message, version: int, topic_id: TopicIds, topic_name: TopicNames) -> Message:
    """A request at another version. `topic_id`, `topic_name`: the target's, for layouts that name topics otherwise.
    Raises NotExpressible."""
    fields = _carried(message, version, topic_id, topic_name, lossy=False)
    try:
        frame = encode_request(
            message.api_key,
            version,
            fields,
            correlation_id=message.header["correlation_id"],
            client_id=message.header.get("client_id"),
        )
        return decode_request(frame)
    except EncodeError as error:
        raise NotExpressible(str(error)) from None


def answer_at(message: Message, version: int, topic_id: TopicIds, topic_name: TopicNames) -> Message:
    """A response as fields of another version, as far as possible: for comparing only, its frame is not made."""
    fields = _carried(message, version, topic_id, topic_name, lossy=True)
    of = plan("response", message.api_key, version)
    values = tuple(
        value_from(f, fields[f.name], f.name) if fields.get(f.name) is not None else f.default for f in of.root.fields
    )
    return Message(of, (*values, ()) if of.root.flexible else values, b"")


def convert_response(api_key: int, given: int, wanted: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a response at version `given` as they are at `wanted`. Raises NotExpressible."""
    source, target = plan("response", api_key, given).root, plan("response", api_key, wanted).root
    return _Converter(api_key, "response").struct(source, fields, target, None, "")


def convert_item(api_key: int, field: str, given: int, wanted: int, item: Mapping[str, Any]) -> dict[str, Any]:
    """The same of one item of the array `field`."""
    inside = []
    for version in (given, wanted):
        root = plan("response", api_key, version).root
        inside.append(next((f.struct for f in root.fields if f.name == field), None))
    source, target = inside
    if source is None or target is None:
        raise NotExpressible(f"{field} is not in version {given if source is None else wanted}")
    return _Converter(api_key, "response").struct(source, item, target, None, f"{field}.")


def _carried(message: Message, version: int, topic_id: TopicIds, topic_name: TopicNames, lossy: bool) -> dict[str, Any]:
    kind, key = message.plan.kind, message.api_key
    of = plan(kind, key, version).root
    fields = {f.name: shown_value(f, v) for f, v in zip(message.plan.root.fields, message.values, strict=False)}
    source = message.plan.root
    folds = _FOLDS.get((message.api, kind), {})
    names, old = {f.name for f in of.fields}, {f.name for f in source.fields}
    if folds:
        fields = _folded(fields, folds, old, names)
    if kind == "request":
        _meanings(message, version, fields)
    return _Converter(key, kind, topic_id, topic_name, lossy).struct(source, fields, of, tree(kind, key, version), "")


def _folded(
    fields: dict[str, Any], folds: Mapping[str, tuple[str, str | None]], old: set[str], names: set[str]
) -> dict[str, Any]:
    whole = {target for target, _ in folds.values()}
    if whole <= names and not whole <= old:
        rows: dict[str, dict[str, Any] | Any] = {}
        for name, (target, inside) in folds.items():
            if name in fields:
                value = fields.pop(name)
                if inside is None:
                    rows[target] = value
                else:
                    rows.setdefault(target, {})[inside] = value
        return fields | {target: [row] for target, row in rows.items()}
    if whole <= old and not whole <= names:
        for target in whole:
            rows_there = fields.pop(target) or []
            if len(rows_there) > 1:
                raise NotExpressible(f"{len(rows_there)} {target} in one request")
            for name, (where, inside) in folds.items():
                if where == target and rows_there:
                    fields[name] = rows_there[0] if inside is None else rows_there[0].get(inside)
    return fields


def _meanings(message: Message, version: int, fields: dict[str, Any]) -> None:
    """Defaults whose meaning differs between versions."""
    old = message.api_version
    if message.api == "Metadata" and (old == 0) != (version == 0):
        # All topics: an empty list at version 0, null afterwards, where an empty list means none.
        if old == 0 and not fields["topics"]:
            fields["topics"] = None
        elif version == 0 and fields["topics"] is None:
            fields["topics"] = []
        elif version == 0 and not fields["topics"]:
            raise NotExpressible("version 0 cannot request an empty list of topics")
    if message.api == "JoinGroup" and old == 0 < version:
        fields["rebalance_timeout_ms"] = fields["session_timeout_ms"]
    if message.api == "Produce" and (old < _FIRST_BATCHES) != (version < _FIRST_BATCHES):
        if version < _FIRST_BATCHES:
            raise NotExpressible("its record batches cannot be converted back to message sets")
        for topic in fields["topic_data"]:
            for partition in topic["partition_data"]:
                partition["records"] = as_batches(partition["records"])


def as_batches(data: bytes | None) -> bytes | None:
    """Message sets of magic 0 and 1 as record batches of magic 2."""
    if not data:
        return data
    out = bytearray()
    try:
        for entry in batches(data):
            if not isinstance(entry, OldMessage):
                raise NotExpressible("its messages are mixed, or cut off")
            records = [record._replace(offset=number) for number, record in enumerate(entry.records())]
            out += encode_batch(records, codec=entry.codec)
    except RecordsError as error:
        raise NotExpressible(f"its messages cannot be read: {error}") from None
    # Produce takes one batch for a partition.
    return bytes(out) if sum(1 for _ in batches(bytes(out))) <= 1 else _joined(data)


def _joined(data: bytes) -> bytes:
    entries = [entry for entry in batches(data) if isinstance(entry, OldMessage)]
    records = [record for entry in entries for record in entry.records()]
    return encode_batch(
        [record._replace(offset=number) for number, record in enumerate(records)], codec=entries[0].codec
    )


class _Converter:
    """Converts the fields of one message. What the other version lacks is left out if it is empty, or *ignorable* by the schema; with
    `lossy`, whatever it is. What only the other version has takes its default."""

    def __init__(
        self,
        key: int,
        kind: str,
        topic_id: TopicIds = lambda name: None,
        topic_name: TopicNames = lambda topic_id: None,
        lossy: bool = False,
    ) -> None:
        self._kind, self._topic_id, self._topic_name, self._lossy = kind, topic_id, topic_name, lossy
        self._ignorable = _ignorable(key, kind)

    def struct(
        self, source: StructPlan, fields: Mapping[str, Any], of: StructPlan, roles: RoleTree | None, path: str
    ) -> dict[str, Any]:
        out: dict[str, Any] = {}
        there = {f.name: f for f in of.fields}
        had = {f.name: f for f in source.fields}
        named = {b.role: b.field.name for b in roles.branches if not b.field.array} if roles else {}
        for name, value in fields.items():
            field, was = there.get(name), had.get(name)
            if field is None:
                if name == UNKNOWN_TAGS and of.flexible:
                    out[name] = value
                else:
                    self._left(name, value, was, named, out, path)
            elif field.struct is not None and value is not None and (was is None or was.struct is not None):
                inner = was.struct if was is not None and was.struct is not None else field.struct
                inside = next((b.inside for b in roles.branches if b.field is field), None) if roles else None
                if field.array:
                    out[name] = [
                        self.struct(inner, item, field.struct, inside, f"{path}{name}[{i}].")
                        for i, item in enumerate(value)
                    ]
                else:
                    out[name] = self.struct(inner, value, field.struct, inside, f"{path}{name}.")
            elif value is None and not field.nullable and field.type != "records":
                if not self._lossy and not (field.array and self._kind == "response"):
                    raise NotExpressible(f"{path}{name} cannot be null")
                out[name] = shown_value(field, field.default)
            else:
                out[name] = value
        return out

    def _left(
        self,
        name: str,
        value: Any,
        was: FieldPlan | None,
        named: Mapping[Meaning | None, str],
        out: dict[str, Any],
        path: str,
    ) -> None:
        """A field that the other version lacks: topics may be named otherwise there."""
        if name == "topic_id" and Meaning.TOPIC in named and getattr(value, "bytes", ZERO_UUID) != ZERO_UUID:
            found = self._topic_name(value.bytes)
            if found is not None:
                out.setdefault(named[Meaning.TOPIC], found)
                return
        elif isinstance(value, str) and Meaning.TOPIC_ID in named and name in ("topic", "name"):
            topic_id = self._topic_id(value)
            if topic_id is not None:
                out.setdefault(named[Meaning.TOPIC_ID], topic_id)
                return
        # Brokers send authorized operations only to requests that ask for them, as a version without the field cannot (KIP-430).
        unasked = self._kind == "response" and (name == UNKNOWN_TAGS or name.endswith("authorized_operations"))
        if not (self._lossy or unasked or name in self._ignorable or _empty(was, value)):
            raise NotExpressible(f"there is no {path}{name} (it was {value!r})"[:200])


def _empty(field: FieldPlan | None, value: Any) -> bool:
    """Whether a value is the same as leaving the field out."""
    if isinstance(value, UUID):
        return value.int == 0
    if field is not None and field.struct is not None and not field.array:
        return value is None or all(_empty(inner, value.get(inner.name)) for inner in field.struct.fields)
    default = None if field is None else field.default
    return bool(value == default or value == -1 or not (value or default))


@cache
def _ignorable(key: int, kind: str) -> frozenset[str]:
    api = facts.api(key)
    definition = api.request if kind == "request" else api.response

    def walk(fields: tuple[FieldLine, ...]) -> set[str]:
        found = {snake_case(f.name) for f in fields if f.ignorable}
        return found.union(*(walk(f.fields) for f in fields)) if fields else found

    return frozenset(walk(definition.fields).union(*(walk(fields) for _, fields in definition.structs)))
