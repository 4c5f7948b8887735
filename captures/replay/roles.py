"""The roles of fields: ids, epochs, offsets, times, which differ on another cluster or another day.

Everything here is derived from the schema's plans: entity annotations first, then the names that Kafka's definitions
use throughout, then the structure around a field (a `host` beside a `port` is a broker's, one in an ACL is not).

`places` lists the fields with a role of one message kind at one version; `tree` has the same as a tree, for `rewrite`. The
correlation id and the client id are in the header, not in the body, and are not covered here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from ...decoder.codec.plan import FieldPlan, StructPlan, plan
from ...decoder.codec.secrets import credential_paths
from ...decoder.wire.frame import Direction


class Role(StrEnum):
    """The meaning of a field for a replay. The value is its name in texts."""

    TOPIC = "topic"
    """a topic's name"""
    TOPIC_ID = "topic id"
    PARTITION = "partition"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    COORDINATOR_KEY = "coordinator key"
    """FindCoordinator: a group, or a transactional id, by its `key_type`"""
    RESOURCE_NAME = "resource name"
    """configs and ACLs: a topic, a group, a broker id ... by the `resource_type` beside it"""
    MEMBER_ID = "member id"
    GENERATION = "generation"
    """a generation, or an epoch of a member or a group (KIP-848)"""
    PRODUCER_ID = "producer id"
    PRODUCER_EPOCH = "producer epoch"
    SESSION_ID = "fetch session id"
    SESSION_EPOCH = "fetch session epoch"
    """also of share sessions"""
    LEADER_EPOCH = "leader epoch"
    EPOCH = "epoch"
    """other epochs of the cluster: of brokers, controllers, features"""
    OFFSET = "offset"
    AMOUNT = "amount"
    """sizes and lags of logs"""
    TIMESTAMP = "timestamp"
    THROTTLE = "throttle time"
    BROKER_ID = "broker id"
    REACHED_BROKER = "intended broker of a connection"
    HOST = "broker host"
    PORT = "broker port"
    RACK = "rack"
    CLUSTER_ID = "cluster id"
    DIRECTORY_ID = "directory id"
    """log directories: ids and paths"""
    CLIENT_ID = "client id"
    """of another client, as the broker reports it; with its host"""
    TELEMETRY_ID = "telemetry id"
    """client instance and subscription ids (KIP-714)"""
    TOKEN = "token"
    """delegation tokens: their ids"""
    SECRET = "secret"
    """masked in recordings"""
    RECORDS = "records"
    SUBSCRIPTION = "subscription"
    """bytes of a group protocol that name topics"""
    ASSIGNMENT = "assignment"
    """bytes of a group protocol that name topics and partitions"""
    MESSAGE = "message"
    """text for people, of an error or why a member joins or leaves: it quotes ids"""


STABLE = frozenset(
    {
        Role.TOPIC,
        Role.PARTITION,
        Role.GROUP,
        Role.TRANSACTIONAL_ID,
        Role.COORDINATOR_KEY,
        Role.RESOURCE_NAME,
        Role.OFFSET,
        Role.RECORDS,
        Role.SUBSCRIPTION,
        Role.ASSIGNMENT,
    }
)
"""The roles whose values are the same again, except for renaming and other positions."""
VOLATILE = frozenset(Role) - STABLE
"""The roles whose values two runs, or two clusters, have differently although nothing is different."""
# Offsets of a log's ends at that moment, not of a record: other traffic, and time, move them.
_MOVING = frozenset(
    {"high_watermark", "last_stable_offset", "log_start_offset", "low_watermark", "log_end_offset"}
)


@dataclass(frozen=True, slots=True)
class RolePlace:
    """A field with a role. `path` is as `decoder.codec.project` takes it: ``topics[*].partitions[*].base_offset``; an array
    of plain values has the role for its items and ends with ``[*]``. `steps` are the fields' positions in the plan's
    tuples. `volatile`: two answers that mean the same may differ here."""

    path: str
    role: Role
    volatile: bool
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RoleTree:
    """The fields of a struct that have a role, or hold structs that have one: (position in the plan, field, its role or
    None, the tree inside or None)."""

    of: StructPlan
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One field of a `RoleTree`."""

    at: int
    field: FieldPlan
    role: Role | None
    volatile: bool
    inside: RoleTree | None


@cache
def tree(kind: str, api_key: int, version: int) -> RoleTree:
    """The roles of ``"request"`` or ``"response"`` at a version; UnknownApi or UnknownVersion as `decoder.codec.plan`."""
    of = plan(kind, api_key, version)
    secrets = credential_paths(Direction.REQUEST if kind == "request" else Direction.RESPONSE, api_key)
    hidden = frozenset(pattern.pattern.replace("\\[\\d+\\]", "[*]").replace("\\", "") for pattern in secrets)
    found = _tree(of.root, of.api, "", "", hidden)
    return found or RoleTree(of.root, ())


@cache
def places(kind: str, api_key: int, version: int) -> tuple[RolePlace, ...]:
    """The fields that have a role, in the order of the plan."""
    out: list[RolePlace] = []
    _list(tree(kind, api_key, version), "", (), out)
    return tuple(out)


@cache
def paths(kind: str, api_key: int, version: int) -> dict[str, Role]:
    """The roles by path; see `RolePlace`."""
    return {place.path: place.role for place in places(kind, api_key, version)}


def _list(of: RoleTree, prefix: str, steps: tuple[int, ...], out: list[RolePlace]) -> None:
    for branch in of.branches:
        path = prefix + branch.field.name + ("[*]" if branch.field.array else "")
        here = (*steps, branch.at)
        if branch.role is not None:
            out.append(RolePlace(path, branch.role, branch.volatile, here))
        if branch.inside is not None:
            _list(branch.inside, path + ".", here, out)


def _tree(of: StructPlan, api: str, inside_of: str, prefix: str, hidden: frozenset[str]) -> RoleTree | None:
    branches = []
    for at, field in enumerate(of.fields):
        path = prefix + field.name + ("[*]" if field.array else "")
        inside = None if field.struct is None else _tree(field.struct, api, field.name, path + ".", hidden)
        role = Role.SECRET if path in hidden else _role(of, field, api, inside_of)
        if role is not None or inside is not None:
            moving = role is Role.OFFSET and field.name in _MOVING
            branches.append(Branch(at, field, role, role in VOLATILE or moving, inside))
    return RoleTree(of, tuple(branches)) if branches else None


# --- rules -------------------------------------------------------------------------------------------------------

_ENTITIES = {
    "topicName": Role.TOPIC,
    "brokerId": Role.BROKER_ID,
    "groupId": Role.GROUP,
    "producerId": Role.PRODUCER_ID,
    "transactionalId": Role.TRANSACTIONAL_ID,
}

# By name and type. Whole words of Kafka's definitions: a name means the same in all of them, but for those in `_role`.
_NAMES = {
    kind: {name: role for role, names in roles.items() for name in names.split()}
    for kind, roles in {
        "string": {
            Role.GROUP: "group_id",
            Role.MEMBER_ID: "member_id",
            Role.RESOURCE_NAME: "resource_name resource_name_filter",
            Role.CLUSTER_ID: "cluster_id",
            Role.RACK: "rack",
            Role.CLIENT_ID: "client_id client_host",
            Role.TOKEN: "token_id",
            Role.DIRECTORY_ID: "log_dir",
            Role.MESSAGE: "error_message batch_index_error_message acknowledge_error_message status_detail reason",
        },
        "uuid": {
            Role.TOPIC_ID: "topic_id topic_ids",
            Role.DIRECTORY_ID: """
                id log_dirs offline_log_dirs cordoned_log_dirs replica_directory_id voter_directory_id
                candidate_directory_id
            """,
            Role.TELEMETRY_ID: "client_instance_id",
        },
        "int32": {
            Role.PARTITION: "partition partition_index partition_id partition_indexes",
            Role.GENERATION: "generation_id generation_id_or_member_epoch member_epoch group_epoch assignment_epoch",
            Role.PRODUCER_EPOCH: "producer_epoch",
            Role.SESSION_ID: "session_id",
            Role.SESSION_EPOCH: "session_epoch share_session_epoch",
            Role.LEADER_EPOCH: """
                leader_epoch current_leader_epoch committed_leader_epoch last_fetched_epoch last_offset_epoch
                replica_epoch
            """,
            Role.EPOCH: "controller_epoch coordinator_epoch partition_epoch state_epoch",
            Role.THROTTLE: "throttle_time_ms",
            Role.BROKER_ID: "leader_id node_id voter_id controller_id preferred_successors",
            Role.TELEMETRY_ID: "subscription_id",
        },
        "int16": {
            Role.PRODUCER_EPOCH: "producer_epoch v3_and_below_producer_epoch ongoing_txn_producer_epoch",
        },
        "int64": {
            Role.OFFSET: """
                base_offset committed_offset current_txn_start_offset end_offset fetch_offset first_offset
                last_offset high_watermark last_stable_offset log_end_offset log_start_offset low_watermark offset
                old_style_offsets start_offset
            """,
            Role.AMOUNT: "lag offset_lag partition_size total_bytes usable_bytes size",
            Role.EPOCH: "broker_epoch previous_broker_epoch replica_epoch finalized_features_epoch",
            Role.PRODUCER_ID: "producer_id_start",
            Role.TIMESTAMP: "log_append_time_ms transaction_start_time_ms",
        },
        "records": {
            Role.RECORDS: "records",
        },
        "bytes": {
            Role.SUBSCRIPTION: "member_metadata",
            Role.ASSIGNMENT: "assignment member_assignment",
        },
    }.items()
}
_TIMESTAMP_ENDS = ("timestamp", "timestamp_ms")


def _role(of: StructPlan, field: FieldPlan, api: str, inside_of: str) -> Role | None:
    """The role of `field` in the struct `of`, which is the value of the field `inside_of`."""
    name, kind = field.name, field.type
    if field.entity in _ENTITIES and kind != "struct":
        return _ENTITIES[field.entity]
    if kind == "string":
        if api == "FindCoordinator" and name in ("key", "coordinator_keys"):
            return Role.COORDINATOR_KEY
        if api == "JoinGroup" and name == "leader":
            return Role.MEMBER_ID
    if kind == "bytes" and api == "JoinGroup" and name == "metadata":
        return Role.SUBSCRIPTION
    if kind == "int32" and api == "ApiVersions" and name == "node_id":
        return Role.REACHED_BROKER
    if kind == "int32" and name == "partitions" and field.array:
        return Role.PARTITION
    if kind == "int32" and name == "index" and api == "Produce":
        return Role.PARTITION
    if kind == "int32" and name == "epoch" and api in _QUORUM_READS:
        return Role.LEADER_EPOCH
    if name in ("host", "port", "v0_host", "v0_port"):
        beside = {f.name for f in of.fields}
        broker = beside & {"host", "v0_host"} and beside & {"port", "v0_port"} and inside_of != "user_endpoint"
        return (Role.HOST if name.endswith("host") else Role.PORT) if broker else None
    if kind == "int64" and name.endswith(_TIMESTAMP_ENDS):
        return Role.TIMESTAMP
    return _NAMES.get(kind, {}).get(name)


# `epoch` beside an end offset: that of a leader. In the APIs of streams groups it is a topology's.
_QUORUM_READS = frozenset(("Fetch", "FetchSnapshot"))
