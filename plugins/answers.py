"""Typed answers: a response with an error, right for the request at its version, made from the schema alone.

A response with an error code of its own gets that, and empty lists. In others, every list whose entries have error codes
gets an entry for everything that the request lists of its kind (topics for topics, partitions for partitions, groups for
group ids), with the fields that say what it is about, and the innermost error codes are set. All else is the schema's
default, and -1 where brokers say so. Kafka's own `getErrorResponse` is the judge (tests/real/test_error_answers.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from .. import decoder
from ..decoder import Topics, facts
from ..decoder.filter.places import PARTITION, PARTITIONS, Pair
from ..decoder.message import Message, is_error_code
from ..decoder.plan import FieldPlan, StructPlan, plan
from .leaves import leaves

Selects = Callable[[Pair], bool]
"""Whether the rule means this topic-partition."""


@cache
def carries(api_key: int, api_version: int | None = None) -> bool:
    """Whether the response of an API (at this version, or at any) has an error code."""
    versions = facts.api(api_key).versions.every() if api_version is None else (api_version,)
    return any(_has_error(plan("response", api_key, version).root) for version in versions)


def _has_error(struct: StructPlan) -> bool:
    return any(is_error_code(f) or (f.struct is not None and _has_error(f.struct)) for f in struct.fields)


@cache
def response_fields(api_key: int) -> frozenset[str]:
    """The names of the top fields of an API's response at all its versions."""
    return frozenset(
        field.name
        for version in facts.api(api_key).versions.every()
        for field in plan("response", api_key, version).root.fields
    )


def fitting(api_key: int, api_version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the fields that the response has at this version."""
    known = {field.name for field in plan("response", api_key, api_version).root.fields}
    return {name: value for name, value in fields.items() if name in known}


_OF_PARTS = re.compile(
    r"LEADER|PARTITION|OFFSET|TOPIC|REPLICA|MESSAGE|RECORD|BATCH|STORAGE|LOG_DIR|MEMBER|INSTANCE|SEQUENCE|REASSIGNMENT|SNAPSHOT"
)


@cache
def about_parts(error_code: int) -> bool:
    """Whether an error is said of a topic, partition or member rather than of the whole request, by its name."""
    name = facts.error_name(error_code)
    return bool(_OF_PARTS.search(name)) and "SESSION" not in name


def error_response(request: Message, error_code: int, correlation_id: int, parts: bool | None = None) -> bytes:
    """The response frame with `error_code` for everything the request asked (without the 4 size bytes).

    `parts`: it is said of each part (partition, group, member, resource) and not of the response as a whole, where the
    response has places for both; None: as `about_parts` says.
    """
    key, version = request.api_key, request.api_version
    fields = mirrored(request, error_code, about_parts(error_code) if parts is None else parts)
    return decoder.encode_response(key, version, fields, correlation_id=correlation_id)


def mirrored(request: Message, error_code: int = 0, parts: bool = False) -> dict[str, Any]:
    """The fields of a response that answers everything a request asked."""
    response = plan("response", request.api_key, request.api_version).root
    given = request.to_dict()
    out = _defaults(response)
    asked = {field.name: field.type for field in request.plan.root.fields}
    own, some = "", False
    for field in response.fields:
        if field.tag is not None:
            continue
        if is_error_code(field):
            own = field.name
        elif field.array and field.struct is not None and _has_error(field.struct):
            items = _items(field.struct, request.plan.root, given, error_code)
            # A request that asks for everything (null) is answered with nothing.
            out[field.name] = items or (None if field.nullable else [])
            some = some or bool(items)
        elif field.name == "session_id" and asked.get(field.name) == field.type:
            out[field.name] = given[field.name]
    if own:
        out[own] = 0 if parts and some else error_code
    return out


def _items(wanted: StructPlan, request: StructPlan, given: Mapping[str, Any], error_code: int) -> list[dict[str, Any]]:
    """An entry of the response's array for everything that the request lists of its kind."""
    found: list[dict[str, Any]] = []
    for field in request.fields:
        asked = given.get(field.name)
        if not field.array or asked is None or field.name.startswith("forgotten"):
            continue  # what a fetch session forgets is not asked for (KIP-227)
        if field.struct is None:
            named = _named(wanted, field)
            if named is not None:
                found += [_defaults(wanted) | _codes(wanted, error_code) | {named: value} for value in asked]
            continue
        if _shares(wanted, field.struct):
            place = _partition_name(wanted)
            apart = place is not None and _partition_name(field.struct) is None
            for item in asked:
                entry = _item(wanted, field.struct, item, error_code)
                # Old inter-broker requests list partitions within topics, their responses one flat list.
                entries = (
                    [entry | {place: each} for each in _numbers(field.struct, item)] if apart and place else [entry]
                )
                found += [each for each in entries if each not in found]  # to delete and to insert: answered once
        elif _only_errors(wanted):
            found += [_defaults(wanted) | _codes(wanted, error_code) for _ in asked]
        elif any(
            inner.struct is not None and inner.array and _shares(wanted, inner.struct) for inner in field.struct.fields
        ):
            for item in asked:
                found += _items(wanted, field.struct, item, error_code)
    return found


def _item(wanted: StructPlan, asked: StructPlan, given: Mapping[str, Any], error_code: int) -> dict[str, Any]:
    out = _defaults(wanted)
    types = {field.name: field.type for field in asked.fields if not field.array and field.struct is None}
    own = _codes(wanted, error_code)
    deeper = False
    for field in wanted.fields:
        if field.tag is not None:
            continue
        if field.array and field.struct is not None and _has_error(field.struct):
            # With an error of its own, an entry without one for each of its parts is complete.
            deeper = not own
            out[field.name] = [] if own else _items(field.struct, asked, given, error_code)
        elif _same_list(field, asked) is not None:
            out[field.name] = given[field.name]
        elif not field.array and field.struct is not None and _has_error(field.struct):
            out[field.name] = _defaults(field.struct) | _codes(field.struct, error_code)
        elif _identifies(field) and types.get(field.name) == field.type:
            out[field.name] = given[field.name]
        elif _identifies(field) and (other := _alike(field, asked)) is not None:
            out[field.name] = given[other]
    return out if deeper else out | own


def _codes(struct: StructPlan, error_code: int) -> dict[str, Any]:
    return {field.name: error_code for field in struct.fields if is_error_code(field) and field.tag is None}


def _identifies(field: FieldPlan) -> bool:
    """Whether a field says what an entry is about."""
    if field.struct is not None or field.array or field.name.endswith("message"):
        return False
    return (
        field.type in ("string", "uuid", "int8")
        or (field.type == "int32" and field.name in PARTITION)
        or field.entity in ("producerId", "brokerId")
    )


def _alike(field: FieldPlan, asked: StructPlan) -> str | None:
    """The request's field of another name that means the same."""
    for other in asked.fields:
        same = field.entity is not None and other.entity == field.entity
        numbers = field.type == "int32" and other.name in PARTITION and field.name in PARTITION
        if not other.array and other.type == field.type and other.struct is None and (same or numbers):
            return other.name
    if (field.name, field.type) == ("user", "string"):
        return next((other.name for other in asked.fields if other.name == "name" and not other.array), None)
    return None


def _shares(wanted: StructPlan, asked: StructPlan) -> bool:
    """Whether entries of the request are what entries of the response are about."""
    names = {field.name: field.type for field in asked.fields}
    return any(
        _same_list(field, asked) is not None
        if field.struct is not None
        else _identifies(field) and (names.get(field.name) == field.type or _alike(field, asked) is not None)
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


def _named(wanted: StructPlan, listed: FieldPlan) -> str | None:
    """The field of a response's entry that holds what a request lists as plain values (names, ids, partitions)."""
    for field in wanted.fields:
        if not _identifies(field) or field.type != listed.type:
            continue
        if field.entity == listed.entity and (field.entity is not None or field.type != "string"):
            if field.type != "int32" or (field.name in PARTITION and "partition" in listed.name):
                return field.name
        elif field.type in ("string", "int32") and (field.name in PARTITION or listed.name.startswith(field.name)):
            return field.name
    # users, transactional ids ...: the only name that the entry has
    texts = [field.name for field in wanted.fields if _identifies(field) and field.type == listed.type == "string"]
    return texts[0] if texts else None


def _partition_name(struct: StructPlan) -> str | None:
    return next((f.name for f in struct.fields if f.name in PARTITION and f.type == "int32" and not f.array), None)


def _numbers(struct: StructPlan, given: Mapping[str, Any]) -> list[int]:
    """The partitions that a topic of a request lists, as numbers or within entries of their own."""
    for field in struct.fields:
        if field.array and field.struct is None and field.type == "int32" and field.name in PARTITIONS:
            return list(given[field.name] or ())
        if field.array and field.struct is not None and (name := _partition_name(field.struct)) is not None:
            return [entry[name] for entry in given[field.name] or ()]
    return []


def _only_errors(struct: StructPlan) -> bool:
    """Whether an entry says nothing of what it is about: then the order does."""
    return not any(
        _identifies(field) or (field.struct is not None and not _has_error(field.struct)) for field in struct.fields
    )


def _defaults(struct: StructPlan) -> dict[str, Any]:
    """What a broker says where an error leaves something open; the definitions say 0 by omission."""
    out: dict[str, Any] = {}
    for field in struct.fields:
        if field.tag is not None or field.struct is not None or field.array:
            continue
        if _is_position(field) or (field.type == "int32" and (field.entity == "brokerId" or field.name == "port")):
            out[field.name] = -1
        elif field.nullable and field.type == "string":
            out[field.name] = None
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


def with_errors(response: Message, error_code: int, selects: Selects, topics: Topics | None = None) -> Message:
    """The broker's response with `error_code` in what the rule means, as if that had failed.

    The innermost error codes are set: those of the partitions that are selected, or of every group or resource in
    responses that are about no partitions; the response's own where there are none.
    """
    edits = dict(_errors(response, error_code, selects, topics))
    return response.replace(edits) if edits else response


def _errors(response: Message, error_code: int, selects: Selects, topics: Topics | None) -> Iterator[tuple[str, int]]:
    found = list(leaves(response, topics))
    places = [leaf for leaf in found if is_error_code(leaf.field)]
    deepest = max((leaf.depth for leaf in places), default=0)
    chosen = set()
    for leaf in places:
        about = leaf.pair.topic is not None or leaf.pair.topic_id is not None
        if leaf.depth == deepest and (not about or selects(leaf.pair)):
            chosen.add(leaf.struct)
            yield leaf.path, error_code
    for leaf in found:
        if leaf.struct in chosen and leaf.struct and leaf.field.tag is None and _is_position(leaf.field):
            yield leaf.path, -1
