"""Typed answers: a response with an error, right for the request at its version, made from the schema alone.

`mirror` walks request and response side by side: an array of structs in the response takes one entry for every
entry of the request's array that shares a field with it (topics for topics, partitions for partitions), fields of
the same name are copied, the innermost error codes are set, and everything else takes the schema's default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import decoder
from ..decoder.message import Message
from ..decoder.plan import FieldPlan, StructPlan, plan

Selects = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""(topic fields, partition fields) -> whether the rule means this partition."""


def error_response(request: Message, error_code: int, correlation_id: int) -> bytes:
    """The response frame with `error_code` for everything the request asked (without the 4 size bytes)."""
    key, version = request.api_key, request.api_version
    response = plan("response", key, version)
    fields = mirror(request.plan.root, request.to_dict(), response.root, error_code)
    return decoder.encode_response(key, version, fields, correlation_id=correlation_id)


def mirror(
    request: StructPlan, given: Mapping[str, Any], response: StructPlan, error_code: int
) -> dict[str, Any]:
    """The fields of a response struct, see the module."""
    out: dict[str, Any] = {}
    asked = {field.name: field for field in request.fields}
    nested = False
    for field in response.fields:
        if field.tag is not None:
            continue
        if field.struct is not None and field.array:
            partner = _partner(field.struct, request)
            if partner is not None and partner.struct is not None:
                nested = True
                out[field.name] = [
                    mirror(partner.struct, item, field.struct, error_code) for item in given[partner.name] or ()
                ]
        elif field.name in asked and asked[field.name].type == field.type and field.name != "error_code":
            out[field.name] = given[field.name]
        elif _is_position(field):
            out[field.name] = -1
    if not nested and any(field.name == "error_code" for field in response.fields):
        out["error_code"] = error_code
    return out


def _partner(wanted: StructPlan, request: StructPlan) -> FieldPlan | None:
    """The request's array of structs that this response array answers."""
    names = {field.name for field in wanted.fields if field.struct is None}
    for field in request.fields:
        if field.array and field.struct is not None and names & {inner.name for inner in field.struct.fields}:
            return field
    return None


def _is_position(field: FieldPlan) -> bool:
    # Brokers answer errors with -1 here (ProduceResponse.INVALID_OFFSET); the definitions say 0 by omission.
    return field.type == "int64" and not field.array and field.name.endswith(("offset", "timestamp", "time_ms"))


def with_errors(response: Message, error_code: int, selects: Selects) -> Message:
    """The broker's response with `error_code` in the selected partitions, as if they had failed."""
    edits: dict[str, Any] = {}
    for topics_name, topic_index, topic, partitions_name, index, partition in partitions(response):
        if not selects(topic, partition):
            continue
        prefix = f"{topics_name}[{topic_index}].{partitions_name}[{index}]."
        for field in _leaf(response.plan.root, topics_name, partitions_name).fields:
            if field.name == "error_code":
                edits[prefix + field.name] = error_code
            elif field.tag is None and _is_position(field):
                edits[prefix + field.name] = -1
    return response.replace(edits) if edits else response


def partitions(message: Message) -> list[tuple[str, int, Mapping[str, Any], str, int, Mapping[str, Any]]]:
    """Every partition of a message: (topics field, topic index, topic, partitions field, index, partition).

    A partition is an entry of an array of structs inside an array of structs that has an `index` or `partition`.
    """
    found = []
    fields = message.to_dict()
    for outer in message.plan.root.fields:
        if not outer.array or outer.struct is None or outer.tag is not None:
            continue
        for topic_index, topic in enumerate(fields[outer.name] or ()):
            for inner in outer.struct.fields:
                if not inner.array or inner.struct is None or inner.tag is not None:
                    continue
                for index, partition in enumerate(topic[inner.name] or ()):
                    if partition_number(partition) is not None:
                        found.append((outer.name, topic_index, topic, inner.name, index, partition))
    return found


def partition_number(partition: Mapping[str, Any]) -> int | None:
    """The number of a partition under any of the names that Kafka's messages use."""
    for name in ("index", "partition", "partition_index", "partition_id"):
        value = partition.get(name)
        if isinstance(value, int):
            return value
    return None


def _leaf(root: StructPlan, topics_name: str, partitions_name: str) -> StructPlan:
    topics = next(f.struct for f in root.fields if f.name == topics_name)
    if topics is None:
        raise KeyError(topics_name)
    leaf = next(f.struct for f in topics.fields if f.name == partitions_name)
    if leaf is None:
        raise KeyError(partitions_name)
    return leaf
