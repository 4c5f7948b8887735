"""The bytes that members of a group exchange through the coordinator: subscriptions and assignments.

Their layout depends on the group's protocol type (``consumer``, ``connect``), that of an assignor's ``user_data`` on the
protocol's name.
Sources: Kafka's ConsumerProtocol, ConnectProtocol, IncrementalCooperativeConnectProtocol, AbstractStickyAssignor,
SubscriptionInfo and AssignmentInfo of Kafka Streams.
"""

from __future__ import annotations

from ..codec.payload import decode, fields_of, leading_int16, newest
from ..errors import BadLength, DecodeError, Truncated, UnknownVersion
from ..schema.plan import Fields, Value

_SUBSCRIPTION = {"consumer": "ConsumerProtocolSubscription", "connect": "ConnectSubscription"}
_ASSIGNMENT = {"consumer": "ConsumerProtocolAssignment", "connect": "ConnectAssignment"}

STREAMS_ASSIGNOR = "stream"
"""The protocol name of Kafka Streams, whose groups have the protocol type ``consumer``."""


def subscription(data: bytes, protocol_type: str = "consumer") -> Fields:
    """A member's subscription: the metadata in JoinGroup. ``version`` is the number at its beginning.

    A version newer than the known ones is read as the newest known one, as Kafka does. Some clients (KafkaJS, older Sarama)
    write 1 and the fields of 0: bytes that end where a later version's fields would begin are read as the older one,
    which is then in ``layout_version``. Raises `DecodeError`, and KeyError for a protocol type that is not ``consumer`` or
    ``connect``.
    """
    fields = _versioned(_SUBSCRIPTION[protocol_type], data)
    if fields.get("allocation"):
        fields["allocation"] = assignment(fields["allocation"], "connect")
    return fields


def assignment(data: bytes, protocol_type: str = "consumer") -> Fields:
    """A member's assignment, as in SyncGroup. Raises the errors of `subscription`."""
    return _versioned(_ASSIGNMENT[protocol_type], data)


def _versioned(name: str, data: bytes) -> Fields:
    version = leading_int16(data, name)
    if version < 0:
        raise UnknownVersion(f"version {version} is not valid", api=name)
    layout = top = newest(name, version)
    while True:
        try:
            fields = fields_of(decode(name, layout, data, 2))
        except Truncated as fault:
            # New fields come after the others, so that a cut between two of them means an older layout.
            if layout == 0 or fault.offset != len(data) or "." in fault.path:
                raise
            layout -= 1
            continue
        versions = {"version": version} if layout == top else {"version": version, "layout_version": layout}
        return {**versions, **fields}


def guess(data: bytes, which: str, protocol_type: str | None = None) -> tuple[str, Fields] | None:
    """``(protocol type, fields)`` of a ``"subscription"`` or ``"assignment"`` whose protocol type may be unknown.

    Without a type, both are tried and only an exact fit counts; None if neither fits. Raises `DecodeError` if the type is
    known and the bytes do not fit it.
    """
    read = subscription if which == "subscription" else assignment
    if protocol_type in _SUBSCRIPTION:
        return protocol_type, read(data, protocol_type)
    if protocol_type:
        return None
    for candidate in _SUBSCRIPTION:
        try:
            fields = read(data, candidate)
        except DecodeError:
            continue
        if "surplus_bytes" not in fields:
            return candidate, fields
    return None


def user_data(data: bytes, which: str, protocol: str | None) -> tuple[str, Fields] | None:
    """``(kind, fields)`` of an assignor's bytes in a consumer subscription or assignment; None for an assignor that is not
    known to write any. Raises `DecodeError`."""
    if protocol == STREAMS_ASSIGNOR:
        return f"streams {which}", (streams_subscription if which == "subscription" else streams_assignment)(data)
    if which == "subscription" and protocol == "sticky":
        return "sticky assignor", sticky(data)
    if which == "subscription" and protocol == "cooperative-sticky" and len(data) == 4:
        return "sticky assignor", {"generation": int.from_bytes(data, "big", signed=True)}
    return None


def sticky(data: bytes) -> Fields:
    """The sticky assignor's earlier assignment. The bytes have no version: 1, with a generation, is tried before 0."""
    name = "StickyAssignorUserData"
    try:
        return fields_of(decode(name, 1, data))
    except DecodeError:
        return fields_of(decode(name, 0, data))


def streams_subscription(data: bytes) -> Fields:
    """Kafka Streams' SubscriptionInfo, version 1 to 11; of newer ones only the two leading versions."""
    name = "SubscriptionInfoData"
    version = _leading_int32(data, name)
    if version > newest(name, version):
        latest = int.from_bytes(data[4:8], "big", signed=True)
        return {"version": version, "latest_supported_version": latest, "surplus_bytes": max(0, len(data) - 8)}
    fields = fields_of(decode(name, version, data))
    if "user_end_point" in fields:
        fields["user_end_point"] = _text(fields["user_end_point"])
    for tag in fields.get("client_tags") or ():
        tag["key"], tag["value"] = _text(tag["key"]), _text(tag["value"])
    return fields


def streams_assignment(data: bytes) -> Fields:
    """Kafka Streams' AssignmentInfo, version 1 to 11, with names of topics instead of their indexes."""
    name = "AssignmentInfo"
    fields = fields_of(decode(name, _leading_int32(data, name), data))
    for task in [*(fields["active_tasks"] or ()), *(fields["standby_tasks"] or ())]:
        if "named_topology" in task:
            units = task["named_topology"] or ()
            task["named_topology"] = b"".join(u.to_bytes(2, "big") for u in units).decode("utf-16-be", "replace")
    if "topic_names" in fields:
        topics = {entry["index"]: entry["topic"] for entry in fields.pop("topic_names") or ()}
        for side in ("partitions_by_host", "standby_partitions_by_host"):
            for host in fields.get(side) or ():
                for partition in host["partitions"] or ():
                    index = partition.pop("topic_index")
                    if index not in topics:
                        raise BadLength(f"topic index {index} is not in its list of topics", api=name, path=side)
                    partition["topic"] = topics[index]
    return fields


def _leading_int32(data: bytes, what: str) -> int:
    if len(data) < 4:
        raise Truncated(f"{len(data)} bytes are too short for its leading version", api=what)
    version = int.from_bytes(data[:4], "big", signed=True)
    if version < 1:
        raise UnknownVersion(f"version {version} is not valid", api=what)
    return version


def _text(data: Value) -> Value:
    try:
        return data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError:
        return data
