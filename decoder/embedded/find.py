"""Find and decode every payload inside a decoded message.

Each kind of message with payloads has a generator here. A payload that does not fit its definition becomes
``{"unreadable": text}``. Nothing is decoded before it is asked for.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable, Iterator, Mapping

from .. import records
from ..codec.codec import read_request, read_response
from ..codec.message import Message
from ..codec.payload import Payload, decode, fields_of, leading_int16
from ..codec.secrets import shown
from ..errors import DecodeError
from ..schema import facts
from ..schema.plan import Fields
from . import groups, sasl, telemetry, topics

TopicNames = Mapping[uuid.UUID, str]
_Reader = Callable[[Message, Message | None, TopicNames], Iterator[Payload]]


def of(message: Message, request: Message | None = None, topic_names: TopicNames | None = None) -> Iterator[Payload]:
    """Every payload inside `message`, in order; nested payloads come after the one that contains them.

    `request`: the request of a response; without it, a group's protocol type may have to be guessed, and Envelope's inner
    response is not decoded. `topic_names`: names by topic id, for the records of Fetch from version 13 on. Never raises,
    whatever the bytes are. The iterator is lazy, and a small compressed batch may have a million records: limit it with
    `itertools.islice`.
    """
    read = _READERS.get((message.plan.kind, message.api_key))
    return iter(()) if read is None else read(message, request, topic_names or {})


def _decoded(path: str, kind: str, read: Callable[[], Fields | None]) -> Iterator[Payload]:
    try:
        fields = read()
    except DecodeError as fault:
        fields = {"unreadable": str(fault)}
    if fields is not None:
        yield Payload(path, kind, fields)


# --- groups ------------------------------------------------------------------------------------------------


def _member(
    path: str, which: str, data: bytes | None, protocol_type: str | None, protocol: str | None
) -> Iterator[Payload]:
    """A subscription or assignment, and its assignor's user data."""
    if not data:
        return
    try:
        found = groups.guess(data, which, protocol_type)
    except DecodeError as fault:
        yield Payload(path, f"{protocol_type} {which}", {"unreadable": str(fault)})
        return
    if found is None:
        return
    kind, fields = found
    yield Payload(path, f"{kind} {which}", fields)
    if kind == "consumer" and fields["user_data"]:
        try:
            inner = groups.user_data(fields["user_data"], which, protocol)
        except DecodeError as fault:
            inner = f"{protocol} user data", {"unreadable": str(fault)}
        if inner:
            yield Payload(f"{path}.user_data", *inner)


def _join_request(message: Message, _: Message | None, __: TopicNames) -> Iterator[Payload]:
    for i, protocol in enumerate(message.to_dict()["protocols"] or ()):
        yield from _member(
            f"protocols[{i}].metadata", "subscription", protocol["metadata"], message["protocol_type"], protocol["name"]
        )


def _join_response(message: Message, request: Message | None, _: TopicNames) -> Iterator[Payload]:
    fields = message.to_dict()
    of_type = fields.get("protocol_type") or (request.to_dict().get("protocol_type") if request else None)
    for i, member in enumerate(fields["members"] or ()):
        yield from _member(
            f"members[{i}].metadata", "subscription", member["metadata"], of_type, fields["protocol_name"]
        )


def _sync_request(message: Message, _: Message | None, __: TopicNames) -> Iterator[Payload]:
    fields = message.to_dict()
    for i, member in enumerate(fields["assignments"] or ()):
        yield from _member(
            f"assignments[{i}].assignment",
            "assignment",
            member["assignment"],
            fields.get("protocol_type"),
            fields.get("protocol_name"),
        )


def _sync_response(message: Message, request: Message | None, _: TopicNames) -> Iterator[Payload]:
    asked = request.to_dict() if request else {}
    fields = {name: value for name, value in message.to_dict().items() if value is not None}
    of_type = fields.get("protocol_type") or asked.get("protocol_type")
    protocol = fields.get("protocol_name") or asked.get("protocol_name")
    yield from _member("assignment", "assignment", fields.get("assignment"), of_type, protocol)


def _described_groups(message: Message, _: Message | None, __: TopicNames) -> Iterator[Payload]:
    for i, group in enumerate(message.to_dict()["groups"] or ()):
        for j, member in enumerate(group["members"] or ()):
            for name, which in (("member_metadata", "subscription"), ("member_assignment", "assignment")):
                path = f"groups[{i}].members[{j}].{name}"
                yield from _member(path, which, member[name], group["protocol_type"], group["protocol_data"])


# --- records -----------------------------------------------------------------------------------------------


def _areas(topics_field: str, partitions_field: str, records_field: str) -> _Reader:
    def read(message: Message, _: Message | None, names: TopicNames) -> Iterator[Payload]:
        for i, topic in enumerate(message.to_dict()[topics_field] or ()):
            for j, partition in enumerate(topic[partitions_field] or ()):
                # Later parts of a snapshot, which have a position, start anywhere inside a batch.
                if not partition.get("position"):
                    path = f"{topics_field}[{i}].{partitions_field}[{j}].{records_field}"
                    yield from _area(path, _topic_name(topic, names), partition[records_field])

    return read


def _topic_name(topic: Fields, names: TopicNames) -> str:
    topic_id = topic.get("topic_id")
    if topic_id == topics.CLUSTER_METADATA_ID:
        return "__cluster_metadata"
    return topic.get("name") or topic.get("topic") or names.get(topic_id, "")  # type: ignore[arg-type]


def _area(path: str, topic: str, data: bytes | None) -> Iterator[Payload]:
    """The control records of any topic, and all records of internal topics; ``[n]`` counts all records of the area."""
    number = 0
    try:
        for entry in records.batches(data or b""):
            control = isinstance(entry, records.Batch) and entry.control
            if not control and topic not in topics.INTERNAL:
                number += entry.announced if isinstance(entry, records.Batch) else 1
                continue
            for record in entry.records():
                yield from _record(f"{path}[{number}]", topic, control, record)
                number += 1
    except records.RecordsError as fault:
        yield Payload(path, "records", {"unreadable": str(fault)})


def _record(path: str, topic: str, control: bool, record: records.Record) -> Iterator[Payload]:
    if control:
        yield from _decoded(path, "control record", lambda: topics.of_control(record.key, record.value))
        return
    for payload in _decoded(path, topic, lambda: topics.of_record(topic, record.key, record.value)):
        yield payload
        yield from _members(payload)


def _members(payload: Payload) -> Iterator[Payload]:
    """The subscriptions and assignments in the records of a group."""
    path, value = f"{payload.path}.value", payload.fields.get("value")
    if not value:
        return
    if payload.fields["type"] == "GroupMetadata":
        for i, member in enumerate(value["members"] or ()):
            for which in ("subscription", "assignment"):
                inner = f"{path}.members[{i}].{which}"
                yield from _member(inner, which, member[which], value["protocol_type"], value["protocol"])
    elif payload.fields["type"] == "ConsumerGroupMemberMetadata" and value["classic_member_metadata"]:
        for i, protocol in enumerate(value["classic_member_metadata"]["supported_protocols"] or ()):
            inner = f"{path}.classic_member_metadata.supported_protocols[{i}].metadata"
            yield from _member(inner, "subscription", protocol["metadata"], "consumer", protocol["name"])


# --- the rest ----------------------------------------------------------------------------------------------


def _authenticate(message: Message, _: Message | None, __: TopicNames) -> Iterator[Payload]:
    token = message["auth_bytes"]
    if token:
        found = sasl.step(token)
        yield Payload("auth_bytes", f"SASL {found['mechanism'] or found.get('family', 'token')}", found)


def _envelope_request(message: Message, _: Message | None, __: TopicNames) -> Iterator[Payload]:
    fields = message.to_dict()
    inner = fields["request_data"] or b""
    yield from _decoded("request_data", "request", lambda: _message(read_request(inner)))
    who = fields["request_principal"]
    if who:
        yield from _decoded("request_principal", "principal", lambda: _principal(who))
    address = fields["client_host_address"] or b""
    if len(address) in (4, 16):
        yield Payload("client_host_address", "address", {"address": str(ipaddress.ip_address(address))})


def _envelope_response(message: Message, request: Message | None, _: TopicNames) -> Iterator[Payload]:
    data = message["response_data"]
    if not data or request is None or (request.plan.kind, request.api_key) != ("request", message.api_key):
        return
    try:
        asked = read_request(request["request_data"] or b"")
    except DecodeError:
        return  # reported as the request's own payload
    key, version = asked.api_key, asked.api_version
    yield from _decoded("response_data", "response", lambda: _message(read_response(data, api_key=key, api_version=version), asked.frame))


def _message(message: Message, asked: bytes = b"") -> Fields:
    """A message inside an Envelope (KIP-590), secrets masked."""
    return {
        "api": message.api,
        "api_key": message.api_key,
        "api_version": message.api_version,
        "header": message.header,
        "body": shown(message, asked),
    }


def _principal(data: bytes) -> Fields:
    """The sender of a forwarded request. Raises `DecodeError` if another principal builder than Kafka's own wrote it.
    Source: Kafka's DefaultKafkaPrincipalBuilder (int16 version, DefaultPrincipalData)."""
    version = leading_int16(data, "DefaultPrincipalData")
    return {"version": version, **fields_of(decode("DefaultPrincipalData", version, data, 2))}


def _telemetry(message: Message, _: Message | None, __: TopicNames) -> Iterator[Payload]:
    data, codec = message["metrics"], message["compression_type"]
    if data:
        yield from _decoded("metrics", "OTLP metrics", lambda: telemetry.metrics(data, codec))


_READERS: dict[tuple[str, int], _Reader] = {
    (kind, facts.api_key(name)): read
    for kind, name, read in (
        ("request", "JoinGroup", _join_request),
        ("response", "JoinGroup", _join_response),
        ("request", "SyncGroup", _sync_request),
        ("response", "SyncGroup", _sync_response),
        ("response", "DescribeGroups", _described_groups),
        ("request", "Produce", _areas("topic_data", "partition_data", "records")),
        ("response", "Fetch", _areas("responses", "partitions", "records")),
        ("response", "ShareFetch", _areas("responses", "partitions", "records")),
        ("response", "FetchSnapshot", _areas("topics", "partitions", "unaligned_records")),
        ("request", "SaslAuthenticate", _authenticate),
        ("response", "SaslAuthenticate", _authenticate),
        ("request", "Envelope", _envelope_request),
        ("response", "Envelope", _envelope_response),
        ("request", "PushTelemetry", _telemetry),
    )
}
