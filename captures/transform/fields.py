"""The meaning of the strings and bytes of every message, by which a redaction replaces them.

Derived from the schema: entity annotations first, then the names that Kafka's definitions use throughout. It fails closed: a
string without a rule (a newer release may have some) counts as free text, bytes without a rule are replaced as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TypeVar

from ...decoder.codec.plan import FieldPlan, StructPlan


class RedactionKind(StrEnum):
    """The kinds of data that a redaction can replace."""

    KEYS = "keys"
    VALUES = "values"
    HEADERS = "headers"
    TOPICS = "topics"
    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    CLIENTS = "clients"
    HOSTS = "hosts"
    USERS = "users"
    CLUSTERS = "clusters"


NAMES = frozenset(RedactionKind) - {RedactionKind.KEYS, RedactionKind.VALUES, RedactionKind.HEADERS}
"""The kinds that are names; any of them may stand in free text."""


class Replacement(StrEnum):
    """How a field is replaced."""

    NAME = "name"
    LOCATION = "location"
    """a host, a URL or a path"""
    PATTERN = "pattern"
    PRINCIPAL = "principal"
    RESOURCE = "resource"
    """of the kind in a field beside it"""
    TEXT = "text"
    """free text, in which any name may stand"""
    NOTE = "note"
    """what an application has written down for itself"""
    ADDRESS = "address"
    """4 or 16 bytes"""
    RECORDS = "records"
    SUBSCRIPTION = "subscription"
    ASSIGNMENT = "assignment"
    USER_DATA = "user data"
    """an assignor's own bytes"""
    IDENTITY = "identity"
    """a principal in Kafka's own form (Envelope)"""
    REQUEST = "request"
    """a request inside of another"""
    METRICS = "metrics"
    CREDENTIALS = "credentials"
    """masked always"""
    OPAQUE = "opaque"
    KAFKAS = "kafka's"
    """a word of Kafka's own, which stays"""


@dataclass(frozen=True, slots=True)
class FieldRule:
    """How a field is replaced, and for which kinds."""

    replacement: Replacement
    kinds: frozenset[RedactionKind]


@dataclass(frozen=True, slots=True, eq=False)
class RuleBranch:
    """A field to replace, or one that holds structs with such fields."""

    at: int
    field: FieldPlan
    rule: FieldRule | None
    inside: RuleTree | None


@dataclass(frozen=True, slots=True, eq=False)
class RuleTree:
    """The branches of a struct, and where the fields stand that qualify others: `type_at` of what type a
    resource is, `protocol_type_at` and `protocol_at` how members of a group talk, `topic_at`, `id_at` and `position_at`
    the topic and the place in it that records belong to."""

    of: StructPlan
    branches: tuple[RuleBranch, ...]
    type_at: int | None
    topic_at: int | None
    id_at: int | None
    position_at: int | None
    protocol_type_at: int | None
    protocol_at: int | None


@cache
def rule_tree(of: StructPlan, inside_of: str = "") -> RuleTree:
    """The fields of a struct that have a rule; `inside_of` is the field whose value it is."""
    branches = []
    at_names = {field.name: at for at, field in enumerate(of.fields)}
    for at, field in enumerate(of.fields):
        rule = rule_of(of, field, inside_of)
        inside = rule_tree(field.struct, field.name) if field.struct is not None else None
        if rule is not None or (inside is not None and (inside.branches or _may_have_tags(inside.of))):
            branches.append(RuleBranch(at, field, rule, inside))
    topic = next((at for at, field in enumerate(of.fields) if field.entity == "topicName" and not field.array), None)
    first = [next((at_names[name] for name in names if name in at_names), None) for names in (_TYPES, _PROTOCOLS)]
    return RuleTree(
        of,
        tuple(branches),
        first[0],
        topic,
        at_names.get("topic_id"),
        at_names.get("position"),
        at_names.get("protocol_type"),
        first[1],
    )


_TYPES = ("resource_type", "resource_type_filter", "key_type", "entity_type")
_PROTOCOLS = ("protocol_name", "protocol_data", "protocol")


def _may_have_tags(of: StructPlan) -> bool:
    return of.flexible or any(field.struct is not None and _may_have_tags(field.struct) for field in of.fields)


# --- rules -------------------------------------------------------------------------------------------------------

_Rule = TypeVar("_Rule", RedactionKind, Replacement)
_ENTITIES = {"topicName": RedactionKind.TOPICS, "groupId": RedactionKind.GROUPS, "transactionalId": RedactionKind.TRANSACTIONS}

# Words of Kafka's own, or of its settings, not names.
_KAFKAS = frozenset(
    {
        "client_software_name", "client_software_version", "configuration_keys", "documentation", "entity_type",
        "feature", "group_state", "group_type", "key", "mechanism", "mechanisms", "owner_principal_type",
        "principal_type", "protocol_type", "requested_metrics", "state_filters", "states_filter",
        "token_requester_principal_type", "transaction_state", "types_filter", "unknown_state_filters",
    }
)  # fmt: skip
# Structs whose `name` is such a word: settings and features.
_KAFKAS_NAMED = frozenset(
    {
        "configs", "features", "finalized_features", "last_assignment_configs", "supported_features", "synonyms",
        "topic_configs",
    }
)  # fmt: skip
_KAFKAS_STRUCTS = frozenset({"FeatureLevelRecord", "ConfigRecord"})


def _by_name(names: dict[_Rule, str]) -> dict[str, _Rule]:
    """The rule of each name, from the names of each rule."""
    return {name: rule for rule, text in names.items() for name in text.split()}


_STRINGS: dict[RedactionKind, tuple[Replacement, str]] = {
    RedactionKind.TOPICS: (
        Replacement.NAME,
        """
        topic topics topic_name subscribed_topic_names source_topics sink_topic repartition_sink_topics subtopology_id
        stores successors
        """,
    ),
    RedactionKind.GROUPS: (Replacement.NAME, "group group_id connector"),
    RedactionKind.TRANSACTIONS: (Replacement.NAME, "transactional_id"),
    RedactionKind.CLIENTS: (Replacement.NAME, "client_id member_id leader group_instance_id instance_id process_id"),
    RedactionKind.HOSTS: (
        Replacement.LOCATION,
        "host v0_host host_name client_host host_filter url leader_url log_dir path",
    ),
    RedactionKind.USERS: (
        Replacement.PRINCIPAL,
        """
        principal principal_filter principal_name owner_principal_name token_requester_principal_name user owner
        requester renewers token_id
        """,
    ),
    RedactionKind.CLUSTERS: (Replacement.NAME, "cluster_id rack rack_id racks"),
}
_BY_NAME = {name: (kind, replacement) for kind, (replacement, names) in _STRINGS.items() for name in names.split()}
_PATTERNS = _by_name(
    {
        RedactionKind.TOPICS: "subscribed_topic_regex source_topic_regex regular_expression",
        RedactionKind.TRANSACTIONS: "transactional_id_pattern",
    }
)
# `name` by the field that it stands inside of, or by its struct.
_NAMED = _by_name(
    {
        RedactionKind.TOPICS: "state_changelog_topics repartition_source_topics topic_id_partition nodes source processor",
        RedactionKind.USERS: "users deletions upsertions",
    }
)
_NAMED_STRUCTS = {
    "DefaultPrincipalData": RedactionKind.USERS,
    "UserScramCredentialRecord": RedactionKind.USERS,
    "RemoveUserScramCredentialRecord": RedactionKind.USERS,
}
_RESOURCES = frozenset({"resource_name", "resource_name_filter", "coordinator_keys", "entity_name", "match"})
_BYTES = _by_name(
    {
        Replacement.SUBSCRIPTION: "metadata member_metadata subscription",
        Replacement.ASSIGNMENT: "assignment member_assignment allocation",
        Replacement.USER_DATA: "user_data",
        Replacement.REQUEST: "request_data",
        Replacement.IDENTITY: "request_principal",
        Replacement.ADDRESS: "client_host_address",
        Replacement.LOCATION: "user_end_point",
        Replacement.METRICS: "metrics",
        Replacement.CREDENTIALS: "response_data auth_bytes hmac salt salted_password stored_key server_key",
    }
)
_ALWAYS = frozenset(RedactionKind)
_STAYS = FieldRule(Replacement.KAFKAS, NAMES)


def rule_of(of: StructPlan, field: FieldPlan, inside_of: str = "") -> FieldRule | None:
    """The rule for a field of the struct `of`; None: it is neither text nor bytes."""
    name = field.name
    if field.type == "records":
        return FieldRule(Replacement.RECORDS, _ALWAYS)
    if field.type == "bytes":
        replacement = _BYTES.get(name, Replacement.OPAQUE)
        if inside_of == "client_tags":
            replacement = Replacement.NAME
        if replacement in (Replacement.ADDRESS, Replacement.LOCATION):
            return FieldRule(replacement, frozenset({RedactionKind.HOSTS}))
        return FieldRule(replacement, _ALWAYS if replacement in (Replacement.CREDENTIALS, Replacement.REQUEST) else NAMES)
    if field.type != "string":
        return None
    if field.entity in _ENTITIES:
        return FieldRule(Replacement.NAME, frozenset({_ENTITIES[field.entity]}))
    if name in _PATTERNS:
        return FieldRule(Replacement.PATTERN, frozenset({_PATTERNS[name]}))
    if name in _RESOURCES or (name == "key" and _is_coordinator_key(of)):
        return FieldRule(Replacement.RESOURCE, NAMES)
    if inside_of == "client_tags":
        return FieldRule(Replacement.NAME, frozenset({RedactionKind.CLIENTS}))
    if name == "name":
        kind = _NAMED.get(inside_of) or _NAMED_STRUCTS.get(of.name)
        if kind:
            return FieldRule(Replacement.PRINCIPAL if kind is RedactionKind.USERS else Replacement.NAME, frozenset({kind}))
        if inside_of in _KAFKAS_NAMED or of.name in _KAFKAS_STRUCTS:
            return _STAYS
    if name in _BY_NAME:
        kind, replacement = _BY_NAME[name]
        return FieldRule(replacement, frozenset({kind}))
    if name in ("metadata", "committed_metadata", "named_topology"):
        return FieldRule(Replacement.NOTE, _ALWAYS)
    return _STAYS if name in _KAFKAS else FieldRule(Replacement.TEXT, NAMES)


def _is_coordinator_key(of: StructPlan) -> bool:
    return any(field.name in ("key_type", "node_id") for field in of.fields) or of.name == "FindCoordinatorRequest"
