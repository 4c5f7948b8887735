"""How a redaction replaces the strings and bytes of every message, by what they are (`decoder.schema.meaning`).

It fails closed: a string of any other meaning, or of none, counts as free text; such bytes are replaced as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import FieldPlan, StructPlan


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
def rule_tree(of: StructPlan) -> RuleTree:
    """The fields of a struct that have a rule."""
    branches = []
    for at, field in enumerate(of.fields):
        rule = rule_of(field)
        inside = rule_tree(field.struct) if field.struct is not None else None
        if rule is not None or (inside is not None and (inside.branches or _may_have_tags(inside.of))):
            branches.append(RuleBranch(at, field, rule, inside))
    first = {field.meaning: at for at, field in reversed(list(enumerate(of.fields))) if not field.array}
    return RuleTree(
        of,
        tuple(branches),
        first.get(Meaning.RESOURCE_TYPE),
        first.get(Meaning.TOPIC),
        first.get(Meaning.TOPIC_ID),
        first.get(Meaning.POSITION),
        next((at for at, field in enumerate(of.fields) if field.name == "protocol_type"), None),
        first.get(Meaning.PROTOCOL),
    )


def _may_have_tags(of: StructPlan) -> bool:
    return of.flexible or any(field.struct is not None and _may_have_tags(field.struct) for field in of.fields)


_ALWAYS = frozenset(RedactionKind)
_TEXTS: dict[Meaning | None, tuple[Replacement, RedactionKind | None]] = {
    Meaning.TOPIC: (Replacement.NAME, RedactionKind.TOPICS),
    Meaning.TOPIC_PATTERN: (Replacement.PATTERN, RedactionKind.TOPICS),
    Meaning.TOPOLOGY_NAME: (Replacement.NAME, RedactionKind.TOPICS),
    Meaning.GROUP: (Replacement.NAME, RedactionKind.GROUPS),
    Meaning.CONNECTOR: (Replacement.NAME, RedactionKind.GROUPS),
    Meaning.TRANSACTIONAL_ID: (Replacement.NAME, RedactionKind.TRANSACTIONS),
    Meaning.TRANSACTIONAL_ID_PATTERN: (Replacement.PATTERN, RedactionKind.TRANSACTIONS),
    Meaning.CLIENT_ID: (Replacement.NAME, RedactionKind.CLIENTS),
    Meaning.CLIENT_TAG: (Replacement.NAME, RedactionKind.CLIENTS),
    Meaning.INSTANCE_ID: (Replacement.NAME, RedactionKind.CLIENTS),
    Meaning.MEMBER_ID: (Replacement.NAME, RedactionKind.CLIENTS),
    Meaning.PROCESS_ID: (Replacement.NAME, RedactionKind.CLIENTS),
    Meaning.ACL_HOST: (Replacement.LOCATION, RedactionKind.HOSTS),
    Meaning.APPLICATION_HOST: (Replacement.LOCATION, RedactionKind.HOSTS),
    Meaning.CLIENT_HOST: (Replacement.LOCATION, RedactionKind.HOSTS),
    Meaning.DIRECTORY_ID: (Replacement.LOCATION, RedactionKind.HOSTS),
    Meaning.HOST: (Replacement.LOCATION, RedactionKind.HOSTS),
    Meaning.PRINCIPAL: (Replacement.PRINCIPAL, RedactionKind.USERS),
    Meaning.TOKEN: (Replacement.PRINCIPAL, RedactionKind.USERS),
    Meaning.CLUSTER_ID: (Replacement.NAME, RedactionKind.CLUSTERS),
    Meaning.CLIENT_RACK: (Replacement.NAME, RedactionKind.CLUSTERS),
    Meaning.RACK: (Replacement.NAME, RedactionKind.CLUSTERS),
    Meaning.COORDINATOR_KEY: (Replacement.RESOURCE, None),
    Meaning.QUOTA_ENTITY: (Replacement.RESOURCE, None),
    Meaning.RESOURCE_NAME: (Replacement.RESOURCE, None),
    Meaning.RESOURCE_TYPE: (Replacement.KAFKAS, None),
    Meaning.TERM: (Replacement.KAFKAS, None),
}
"""How strings are replaced, and of which kind they are; None: of any kind of names."""
_BYTES: dict[Meaning | None, Replacement] = {
    Meaning.SUBSCRIPTION: Replacement.SUBSCRIPTION,
    Meaning.ASSIGNMENT: Replacement.ASSIGNMENT,
    Meaning.USER_DATA: Replacement.USER_DATA,
    Meaning.CLIENT_TAG: Replacement.NAME,
    Meaning.PRINCIPAL: Replacement.IDENTITY,
    Meaning.METRICS: Replacement.METRICS,
}
_HOSTS = {Meaning.CLIENT_HOST: Replacement.ADDRESS, Meaning.APPLICATION_HOST: Replacement.LOCATION}
_BYTES_ALWAYS = {
    Meaning.ENCLOSED_REQUEST: Replacement.REQUEST,
    Meaning.ENCLOSED_RESPONSE: Replacement.CREDENTIALS,
    Meaning.SECRET: Replacement.CREDENTIALS,
}


def rule_of(field: FieldPlan) -> FieldRule | None:
    """The rule for a field; None: it is neither text nor bytes."""
    meaning = field.meaning
    if field.type == "records":
        return FieldRule(Replacement.RECORDS, _ALWAYS)
    if field.type == "bytes":
        if meaning in _HOSTS:
            return FieldRule(_HOSTS[meaning], frozenset({RedactionKind.HOSTS}))
        if meaning in _BYTES_ALWAYS:
            return FieldRule(_BYTES_ALWAYS[meaning], _ALWAYS)
        return FieldRule(_BYTES.get(meaning, Replacement.OPAQUE), NAMES)
    if field.type != "string":
        return None
    if meaning is Meaning.NOTE:
        return FieldRule(Replacement.NOTE, _ALWAYS)
    replacement, kind = _TEXTS.get(meaning, (Replacement.TEXT, None))
    return FieldRule(replacement, NAMES if kind is None else frozenset({kind}))
