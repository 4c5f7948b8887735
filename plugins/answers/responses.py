"""Error responses for any request at any version, made from the schema alone.

The place of an error is a fact (`decoder.schema.error_places`), the same for responses made here and for a broker's that
get an error. A response has an entry for every entry of the request of the kind that failed (topics for topics,
partitions for partitions, groups for group ids), with the fields that identify it. All else is what brokers send there
(`error_places.fields`), else the schema's default, and -1 where brokers send that. Tests compare with Kafka's own
`getErrorResponse` (tests/real/kafka_classes/test_error_answers.py) and with a broker's own answers (test_error_fields.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ... import decoder
from ...decoder import Topics
from ...decoder.codec.encode import values_from
from ...decoder.codec.message import Message, is_error_code
from ...decoder.filter.entities import MessagePart
from ...decoder.schema import error_places, facts
from ...decoder.schema.error_places import BrokerKind, ErrorPlace, error_field, has_errors
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import API_VERSIONS, FieldPlan, StructPlan, plan
from .leaves import inside, whole_part

Selects = Callable[[MessagePart], bool]
"""Whether a rule selects this part of a response."""
UNSUPPORTED_VERSION = facts.error_code("UNSUPPORTED_VERSION")
METADATA = facts.api_key("Metadata")
CLUSTER = ("brokers", "cluster_id", "controller_id")
"""The fields of a Metadata response about the cluster as a whole."""


@cache
def has_error_code(api_key: int, api_version: int | None = None) -> bool:
    """Whether the response of an API (at this version, or at any) has an error code."""
    versions = facts.api(api_key).versions.every() if api_version is None else (api_version,)
    return any(has_errors(plan("response", api_key, version).root) for version in versions)


@cache
def response_fields(api_key: int) -> frozenset[str]:
    """The names of the top fields of an API's response at all its versions."""
    return frozenset(
        field.name
        for version in facts.api(api_key).versions.every()
        for field in plan("response", api_key, version).root.fields
    )


def throttle_ms(api_key: int, api_version: int, error_code: int) -> int:
    """How long brokers throttle a client that they answer with an error: its connection is muted for so long (KIP-219)."""
    told = fields_at_version(api_key, api_version, error_places.fields(api_key, error_code))
    return int(told.get("throttle_time_ms", 0))


def fields_at_version(api_key: int, api_version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that exist in the response at this version."""
    known = {field.name for field in plan("response", api_key, api_version).root.fields}
    return {name: value for name, value in fields.items() if name in known}


def error_response(
    request: Message,
    error_code: int,
    correlation_id: int,
    cluster: Mapping[str, Any] | None = None,
    answered: Message | None = None,
    broker: BrokerKind | None = None,
) -> bytes:
    """The response frame (without its size) with `error_code` for everything in the request.

    `cluster`: as `cluster_of` returns it. A broker that refuses topics in a Metadata response still lists the brokers, and
    librdkafka (2.16) drops every broker that is not listed: without any it would never ask again. `answered`: the broker's
    response, if it was asked; `broker`: which answers so, None for one of today.
    """
    fields = mirror_request(request, error_code, answered, broker)
    if request.api_key == METADATA and cluster and not fields.get("error_code"):
        fields |= _cluster_at(request.api_version, cluster)
    return encode_frame(request, fields, correlation_id)


def cluster_of(metadata: Message) -> dict[str, Any]:
    """The `CLUSTER` fields of a Metadata response; of brokers those of all versions. Empty if it lists no broker."""
    found = {field.name: metadata[field.name] for field in metadata.plan.root.fields if field.name in CLUSTER}
    if not found["brokers"]:
        return {}
    names = ("node_id", "host", "port", "rack")
    found["brokers"] = [{name: each[name] for name in names if name in each} for each in found["brokers"]]
    return found


def _cluster_at(api_version: int, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """What a Metadata response of this version has of the cluster."""
    found = fields_at_version(METADATA, api_version, cluster)
    if not api_version:  # racks are known from version 1 on
        found["brokers"] = [{name: each[name] for name in ("node_id", "host", "port")} for each in found["brokers"]]
    return found


def with_cluster(frame: bytes, api_version: int, cluster: Mapping[str, Any]) -> bytes:
    """The frame of a Metadata response; with the cluster, if it refuses topics and lists no broker."""
    message = decoder.decode_response(frame, api_key=METADATA, api_version=api_version)
    fields = message.to_dict()
    if fields["brokers"] or fields.get("error_code") or not any(True for _ in message.errors()):
        return frame
    return message.replace(_cluster_at(api_version, cluster)).encode()


def encode_frame(request: Message, fields: Mapping[str, Any], correlation_id: int) -> bytes:
    """The response frame to a request, with these fields."""
    key, version = request.api_key, request.api_version
    if key == API_VERSIONS and fields.get("error_code") == UNSUPPORTED_VERSION:
        return refused_versions(version, fields, correlation_id)
    return decoder.encode_response(key, version, fields, correlation_id=correlation_id)


def refused_versions(version: int, fields: Mapping[str, Any], correlation_id: int) -> bytes:
    """The refusal of a version of ApiVersions by a broker that does not serve it: in version 0, with the range that it
    serves (KIP-511). `fields`: the response in the client's version. A range in it that holds the refused version is not
    used."""
    offers = {each.get("api_key"): each for each in fields.get("api_keys") or ()}
    own = offers.get(API_VERSIONS)
    served = (own["min_version"], own["max_version"]) if own is not None else None
    if served is None or served[0] <= version <= served[1]:
        served = _range_without(version)
    return decoder.encode_version_refusal(correlation_id, served)


def _range_without(version: int) -> tuple[int, int]:
    """The range of ApiVersions of a broker that does not serve this version: an older one, or, of version 0, a newer
    one."""
    high = facts.api(API_VERSIONS).versions.high or 0
    return (0, min(version - 1, high)) if version else (1, high)


@dataclass(frozen=True, slots=True)
class _ErrorPlacement:
    """An error with its place, and the request. `answered`: the broker's response, if it was asked; `broker`: which it is."""

    request: Message
    code: int
    place: ErrorPlace
    answered: Message | None = None
    broker: BrokerKind | None = None

    @classmethod
    def of(cls, request: Message, error_code: int, answered: Message | None = None, broker: BrokerKind | None = None) -> _ErrorPlacement:
        place = error_places.of(request.api_key, request.api_version, error_code)
        return cls(request, error_code, place, answered, broker)

    def here(self, array: str) -> bool:
        """Whether the error is in the entries of an array."""
        return array in self.place.arrays

    def below(self, struct: StructPlan) -> bool:
        """Whether the error is somewhere inside a struct."""
        return any(
            field.struct is not None and (self.here(field.name) or self.below(field.struct)) for field in struct.fields
        )

    def codes(self, struct: StructPlan, failed: bool = True) -> dict[str, Any]:
        """The error code of an entry that failed, or did not, and what stands around it."""
        field = error_field(struct)
        if field is None:
            return {}
        if not failed or not self.code:
            return {field.name: 0}
        return {field.name: 0, self.place.field or field.name: self.code} | self.around(struct)

    def around(self, struct: StructPlan, failed: bool = True) -> dict[str, Any]:
        """What brokers send around the error in the fields of a struct; `failed`: whether the error is in it."""
        given: dict[str, str] = {"error_message": "text"} | error_places.fields(
            self.request.api_key, self.code, self.broker
        )
        found: dict[str, Any] = {}
        for field in struct.fields:
            word = given.get(field.name)
            if word is None or field.tag is not None or (field.name == "error_message" and not failed):
                continue
            if word == "null":
                if field.nullable:
                    found[field.name] = None
            elif word == "text":
                found[field.name] = f"{facts.error_name(self.code)}, injected by Barnabas"
            elif word == "request":
                found[field.name] = self.request[field.name]
            elif word in ("answer", "member"):
                if self.answered is not None and self.answered[field.name]:
                    found[field.name] = self.answered[field.name]
                elif word == "member":
                    found[field.name] = f"{self.request.header.get('client_id') or ''}-{uuid.uuid4()}"
            else:
                found[field.name] = int(word) if word.lstrip("-").isdigit() else word
        return found


def mirror_request(
    request: Message, error_code: int = 0, answered: Message | None = None, broker: BrokerKind | None = None
) -> dict[str, Any]:
    """The fields of a response to everything in a request; with the error in its place."""
    response = plan("response", request.api_key, request.api_version).root
    placement = _ErrorPlacement.of(request, error_code, answered, broker)
    place = placement.place
    given = request.to_dict()
    out = _defaults(response)
    asked = {field.name: field.type for field in request.plan.root.fields}
    own = error_field(response)
    some = False
    for field in response.fields:
        if field.tag is not None:
            continue
        if field.array and field.struct is not None and has_errors(field.struct):
            items: list[dict[str, Any]] = []
            if not error_code or place.parts or placement.here(field.name) or placement.below(field.struct):
                items = _items(placement, field, field.struct, request.plan.root, given)
            # A request that asks for everything (null) is answered with nothing.
            out[field.name] = items or (None if field.nullable else [])
            some = some or _failed(items)
        elif field.name == "session_id" and asked.get(field.name) == field.type and not place.alone:
            out[field.name] = given[field.name]
    here = own is not None and (place.whole or not some)
    if own is not None:
        out[own.name] = error_code if here else 0
    return out | (placement.around(response, here) if error_code else {})


def _failed(items: list[dict[str, Any]]) -> bool:
    """Whether any of the entries, or one inside them, has an error."""
    return any(
        _failed([each for each in value if isinstance(each, dict)])
        if isinstance(value, list)
        else name.endswith("error_code") and value != 0
        for item in items
        for name, value in item.items()
    )


def _items(
    placement: _ErrorPlacement, field: FieldPlan, wanted: StructPlan, request: StructPlan, given: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """An entry of a response's array for everything that the request lists of its kind."""
    found: list[dict[str, Any]] = []
    for listed in request.fields:
        asked = given.get(listed.name)
        if not listed.array or asked is None or listed.name.startswith("forgotten"):
            continue  # partitions removed from a fetch session get no answer (KIP-227)
        if listed.struct is None:
            named = _plain_list_field(wanted, listed)
            if named is not None:
                found += [_item(placement, field, wanted, None, {}) | {named: value} for value in asked]
            continue
        if _identified_by(wanted, listed.struct):
            place = _partition_name(wanted)
            apart = place is not None and _partition_name(listed.struct) is None
            for item in asked:
                entry = _item(placement, field, wanted, listed.struct, item)
                # Old inter-broker requests list partitions within topics, their responses one flat list.
                entries = (
                    [entry | {place: each} for each in _listed_partitions(listed.struct, item)] if apart and place else [entry]
                )
                found += [each for each in entries if each not in found]  # to delete and to insert: answered once
        elif _only_errors(wanted):
            found += [_item(placement, field, wanted, None, {}) for _ in asked]
        elif any(
            inner.struct is not None and inner.array and _identified_by(wanted, inner.struct) for inner in listed.struct.fields
        ):
            for item in asked:
                found += _items(placement, field, wanted, listed.struct, item)
    return found


def _item(
    placement: _ErrorPlacement, array: FieldPlan, wanted: StructPlan, asked: StructPlan | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """An entry of a response's array for an entry of the request (None: a plain value of it)."""
    out = _defaults(wanted)
    types = {field.name: field.type for field in asked.fields if not field.array and field.struct is None} if asked else {}
    own = error_field(wanted) is not None
    # With an error of its own, an entry without one for each of its parts is complete.
    here = own and (placement.here(array.name) or not placement.below(wanted))
    some = False
    for field in wanted.fields:
        if field.tag is not None:
            continue
        if field.array and field.struct is not None and has_errors(field.struct):
            items = [] if here or asked is None else _items(placement, field, field.struct, asked, given)
            out[field.name] = items
            some = some or bool(items)
        elif asked is not None and _same_list(field, asked) is not None:
            out[field.name] = given[field.name]
        elif not field.array and field.struct is not None and has_errors(field.struct):
            out[field.name] = _defaults(field.struct) | placement.codes(field.struct)
        elif _identifies(field) and types.get(field.name) == field.type:
            if given[field.name] is not None or field.nullable:
                out[field.name] = given[field.name]
        elif asked is not None and _identifies(field) and (other := _equivalent_field(field, asked)) is not None:
            out[field.name] = given[other]
    return out | placement.codes(wanted, here or not some)


def _identifies(field: FieldPlan) -> bool:
    """Whether a field identifies an entry."""
    if field.struct is not None or field.array or field.name.endswith("message"):
        return False
    return (
        field.type in ("string", "uuid", "int8")
        or field.meaning is Meaning.PARTITION
        or field.entity in ("producerId", "brokerId")
    )


def _equivalent_field(field: FieldPlan, asked: StructPlan) -> str | None:
    """The request's field with the same meaning and another name."""
    for other in asked.fields:
        same = field.entity is not None and other.entity == field.entity
        numbers = field.meaning is Meaning.PARTITION and other.meaning is Meaning.PARTITION
        if not other.array and other.type == field.type and other.struct is None and (same or numbers):
            return other.name
    if (field.name, field.type) == ("user", "string"):
        return next((other.name for other in asked.fields if other.name == "name" and not other.array), None)
    return None


def _identified_by(wanted: StructPlan, asked: StructPlan) -> bool:
    """Whether entries of the response can be identified by entries of the request."""
    names = {field.name: field.type for field in asked.fields}
    return any(
        _same_list(field, asked) is not None
        if field.struct is not None
        else _identifies(field) and (names.get(field.name) == field.type or _equivalent_field(field, asked) is not None)
        for field in wanted.fields
    )


def _same_list(field: FieldPlan, asked: StructPlan) -> str | None:
    """The request's list that a response repeats: of the same name and with the same fields."""
    for other in asked.fields:
        if other.name != field.name or not other.array or not field.array or other.struct is None or not field.struct:
            continue
        if {f.name for f in other.struct.fields} == {f.name for f in field.struct.fields}:
            return other.name
    return None


def _plain_list_field(wanted: StructPlan, listed: FieldPlan) -> str | None:
    """The field of a response's entry that holds what a request lists as plain values (names, ids, partitions)."""
    for field in wanted.fields:
        if not _identifies(field) or field.type != listed.type:
            continue
        if field.entity == listed.entity and (field.entity is not None or field.type != "string"):
            if field.type != "int32" or field.meaning is listed.meaning is Meaning.PARTITION:
                return field.name
        elif field.type in ("string", "int32") and (
            field.meaning is Meaning.PARTITION or listed.name.startswith(field.name)
        ):
            return field.name
    # users, transactional ids ...: the only name that the entry has
    texts = [field.name for field in wanted.fields if _identifies(field) and field.type == listed.type == "string"]
    return texts[0] if texts else None


def _partition_name(struct: StructPlan) -> str | None:
    return next((f.name for f in struct.fields if f.meaning is Meaning.PARTITION and not f.array), None)


def _listed_partitions(struct: StructPlan, given: Mapping[str, Any]) -> list[int]:
    """The partitions that a topic of a request lists, as numbers or within entries of their own."""
    for field in struct.fields:
        if field.array and field.meaning is Meaning.PARTITION:
            return list(given[field.name] or ())
        if field.array and field.struct is not None and (name := _partition_name(field.struct)) is not None:
            return [entry[name] for entry in given[field.name] or ()]
    return []


def _only_errors(struct: StructPlan) -> bool:
    """Whether an entry has no field that identifies it, only its place in the order."""
    return not any(
        _identifies(field) or (field.struct is not None and not has_errors(field.struct)) for field in struct.fields
    )


def _defaults(struct: StructPlan) -> dict[str, Any]:
    """The values that brokers send where an error leaves fields without one; the definitions' default is 0."""
    out: dict[str, Any] = {}
    for field in struct.fields:
        if field.tag is not None or field.struct is not None or field.array:
            continue
        if _is_position(field) or (field.type == "int32" and (field.entity == "brokerId" or field.name == "port")):
            out[field.name] = -1
        elif field.type == "records":
            out[field.name] = b""
    return out


def _is_position(field: FieldPlan) -> bool:
    # ProduceResponse.INVALID_OFFSET, RecordBatch.NO_TIMESTAMP, NO_PRODUCER_ID, NO_PRODUCER_EPOCH ...
    if field.array or field.struct is not None:
        return False
    if field.type == "int64":
        return field.name.endswith(("offset", "timestamp", "_time_ms", "watermark", "timestamp_ms", "producer_id"))
    return field.name in ("producer_epoch", "leader_epoch") and field.type in ("int16", "int32")


def with_errors(
    response: Message,
    request: Message,
    error_code: int,
    selects: Selects,
    topics: Topics | None = None,
    broker: BrokerKind | None = None,
) -> bytes | None:
    """The frame of a broker's response with `error_code` in the selected parts, as if they had failed; None if none is
    selected.

    For an error of the whole request it is what `error_response` returns. Otherwise the selected entries get the error
    and lose their results; where the broker lists no entries (a topic without partitions), the entry around them gets it.
    NONE clears the errors of what is selected.
    """
    place = error_places.of(response.plan.api_key, response.plan.version, error_code)
    if error_code and place.whole and error_field(response.plan.root) is not None:
        return error_response(request, error_code, response.header["correlation_id"], answered=response, broker=broker)
    inserter = _ErrorInserter(_ErrorPlacement.of(request, error_code, response, broker), selects, topics)
    root = whole_part(response, topics)
    values = inserter.struct(root, "")
    if values is response.values and error_code and not inserter.seen and error_field(response.plan.root) is not None:
        return error_response(request, error_code, response.header["correlation_id"], answered=response, broker=broker)
    if values is response.values:
        return None
    around = inserter.placement.around(response.plan.root, failed=False) if error_code else {}
    return response.with_values(values).replace(around).encode()


@dataclass(slots=True)
class _ErrorInserter:
    """Puts an error into the values of a response; values without it stay the same objects."""

    placement: _ErrorPlacement
    selects: Selects
    topics: Topics | None
    seen: bool = False
    """Whether there was any entry in which the error could stand."""

    def struct(self, part: MessagePart, array: str) -> tuple[Any, ...]:
        """The values of a struct; `array`: the array that it is an entry of."""
        _, struct, values = part.around[-1]
        placement = self.placement
        if not placement.code:
            return self._cleared(part, array)
        if array and placement.here(array):
            self.seen = True
            return self._failed(struct, values) if self.selects(part) else values
        new = list(values)
        some = False
        for at, field in enumerate(struct.fields):
            if field.struct is None or values[at] is None or not (placement.here(field.name) or placement.below(field.struct)):
                continue
            if field.array:
                some = some or bool(values[at])
                items = tuple(self.struct(inside(part, field, item, self.topics), field.name) for item in values[at])
                if any(a is not b for a, b in zip(items, values[at], strict=True)):
                    new[at] = items
            else:
                some = True
                new[at] = self.struct(inside(part, field, values[at], self.topics), array)
        if array and not some and error_field(struct) is not None and placement.below(struct):
            self.seen = True
            return self._failed(struct, values) if self.selects(part) else values
        return tuple(new) if any(a is not b for a, b in zip(new, values, strict=True)) else values

    def _failed(self, struct: StructPlan, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """An entry that failed: the fields that identify it, the error, and nothing else."""
        kept = _identity(struct, self.placement.request.plan.root)
        blank = values_from(struct, _defaults(struct) | self.placement.codes(struct))
        names = [field.name for field in struct.fields]
        return tuple(
            value if at < len(names) and names[at] in kept else other
            for at, (value, other) in enumerate(zip(values, blank, strict=True))
        )

    def _cleared(self, part: MessagePart, array: str) -> tuple[Any, ...]:
        """The values without errors."""
        _, struct, values = part.around[-1]
        mine = not array or self.selects(part)
        new = list(values)
        for at, field in enumerate(struct.fields):
            if is_error_code(field) and mine and values[at]:
                new[at] = 0
            elif field.struct is not None and values[at] is not None and has_errors(field.struct):
                items = tuple(
                    self._cleared(inside(part, field, item, self.topics), field.name)
                    for item in (values[at] if field.array else (values[at],))
                )
                before = values[at] if field.array else (values[at],)
                if any(a is not b for a, b in zip(items, before, strict=True)):
                    new[at] = items if field.array else items[0]
        return tuple(new) if any(a is not b for a, b in zip(new, values, strict=True)) else values


@cache
def _identity(struct: StructPlan, request: StructPlan) -> frozenset[str]:
    """The fields of a response's entry that an error does not change: those that identify it, and its replicas."""
    asked = list(_structs(request))
    names = {(field.name, field.type) for each in asked for field in each.fields if not field.array}
    listed = {_plain_list_field(struct, field) for each in asked for field in each.fields if field.array and not field.struct}

    def identifies(field: FieldPlan) -> bool:
        if field.array:
            return field.entity == "brokerId" or any(_same_list(field, each) is not None for each in asked)
        if field.map_key or field.name in listed or field.entity in ("topicName", "groupId", "transactionalId", "producerId"):
            return True
        if field.meaning is Meaning.PARTITION:
            return True
        alike = (field.name, field.type) in names or any(_equivalent_field(field, each) for each in asked)
        return _identifies(field) and alike

    found = {field.name for field in struct.fields if identifies(field)}
    if not any(field.name in found for field in struct.fields if not field.array):
        found |= {field.name for field in struct.fields if _identifies(field)}
    return frozenset(found)


def _structs(struct: StructPlan) -> Iterator[StructPlan]:
    yield struct
    for field in struct.fields:
        if field.struct is not None:
            yield from _structs(field.struct)
