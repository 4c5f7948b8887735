"""What fields are: a topic's name, a broker's address, an epoch, an error, a secret. The facts are in
``definitions/meanings.txt``; its head says how to read them.

`schema.plan` attaches the meaning to every field of a plan, so that whoever walks a message reads it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from . import facts
from .notation import Definition, FieldLine, snake_case


class Meaning(StrEnum):
    """What a field is. The value is its name in ``meanings.txt``, which explains those that need it, and in texts."""

    TOPIC = "topic"
    TOPIC_ID = "topic id"
    TOPIC_PATTERN = "topic pattern"
    PARTITION = "partition"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    TRANSACTIONAL_ID_PATTERN = "transactional id pattern"
    COORDINATOR_KEY = "coordinator key"
    RESOURCE_NAME = "resource name"
    QUOTA_ENTITY = "quota entity"
    RESOURCE_TYPE = "resource type"
    TOPOLOGY_NAME = "topology name"
    CONNECTOR = "connector"
    MEMBER_ID = "member id"
    INSTANCE_ID = "instance id"
    PROCESS_ID = "process id"
    GENERATION = "generation"
    TOPOLOGY_EPOCH = "topology epoch"
    PROTOCOL = "protocol"
    ASSIGNOR = "assignor"
    CLIENT_ID = "client id"
    CLIENT_HOST = "client host"
    CLIENT_RACK = "client rack"
    CLIENT_TAG = "client tag"
    APPLICATION_HOST = "application host"
    APPLICATION_PORT = "application port"
    PRODUCER_ID = "producer id"
    PRODUCER_EPOCH = "producer epoch"
    TELEMETRY_ID = "telemetry id"
    BROKER_ID = "broker id"
    REACHED_BROKER = "intended broker of a connection"
    HOST = "broker host"
    PORT = "broker port"
    RACK = "rack"
    LISTENER = "listener"
    CLUSTER_ID = "cluster id"
    INCARNATION_ID = "incarnation id"
    DIRECTORY_ID = "directory id"
    LEADER_EPOCH = "leader epoch"
    EPOCH = "epoch"
    SESSION_ID = "fetch session id"
    SESSION_EPOCH = "fetch session epoch"
    OFFSET = "offset"
    POSITION = "position"
    AMOUNT = "amount"
    TIMESTAMP = "timestamp"
    THROTTLE = "throttle time"
    ERROR = "error"
    MESSAGE = "message"
    TEXT = "text"
    NOTE = "note"
    TERM = "term"
    PRINCIPAL = "principal"
    ACL_HOST = "acl host"
    ACL_ID = "acl id"
    TOKEN = "token"
    SECRET = "secret"
    SETTING = "setting"
    RECORDS = "records"
    SUBSCRIPTION = "subscription"
    ASSIGNMENT = "assignment"
    USER_DATA = "user data"
    ENCLOSED_REQUEST = "enclosed request"
    ENCLOSED_RESPONSE = "enclosed response"
    METRICS = "metrics"
    OPAQUE = "opaque"
    API_KEY = "api key"
    CORRELATION_ID = "correlation id"
    ACKS = "acks"
    SEGMENT_ID = "segment id"
    VALUE = "value"

    __hash__ = str.__hash__  # an enum's own is Python, and fields are looked up by their meanings


class Rule(NamedTuple):
    """What a field is. `volatile`: another cluster or another run has another value although nothing is different."""

    meaning: Meaning
    volatile: bool


@cache
def _rules() -> dict[str, dict[str, Rule]]:
    """By type and field, both as the table has them."""
    found: dict[str, dict[str, Rule]] = {}
    rule, types = Rule(Meaning.VALUE, False), [""]
    for line in facts.schema_folder().joinpath("meanings.txt").read_text("utf-8").splitlines():
        words = line.split("#", 1)[0]
        if not words.strip():
            continue
        if words[0] != " ":
            head, _, words = words.partition(": ")
            rule = Rule(Meaning(head.removeprefix("volatile ")), head.startswith("volatile "))
            kinds, _, words = words.partition(" ")
            types = kinds.split(",")
        for kind in types:
            for field in words.split():
                if found.setdefault(kind, {}).setdefault(field, rule) != rule:
                    raise ValueError(f"meanings.txt: {field} has two meanings as {kind}")
    return found


@cache
def of_definition(definition: Definition) -> Mapping[str, Rule]:
    """What the fields of a definition are, by their paths: ``"topics[*].partitions[*].base_offset"``. A path means the
    same in all versions. Structs are left out, and fields without a rule."""
    return dict(_fields(definition, definition.fields, "", ""))


def paths(definition: Definition, *meanings: Meaning) -> tuple[str, ...]:
    """The paths of the fields that have one of these meanings, in the order of the definition."""
    return tuple(path for path, rule in of_definition(definition).items() if rule.meaning in meanings)


def _fields(
    definition: Definition, fields: tuple[FieldLine, ...], inside: str, prefix: str
) -> Iterator[tuple[str, Rule]]:
    shared = dict(definition.structs)
    for field in fields:
        name = snake_case(field.name)
        path = f"{prefix}{name}[*]" if field.array else prefix + name
        struct = field.fields or shared.get(field.type)
        if struct:
            yield from _fields(definition, struct, name, path + ".")
        elif (rule := _rule(definition.name, inside, name, field)) is not None:
            yield path, rule


def _rule(definition: str, inside: str, name: str, field: FieldLine) -> Rule | None:
    if field.array and (rule := _found(f"[]{field.type}", definition, inside, name, field.entity)) is not None:
        return rule
    return _found(field.type, definition, inside, name, field.entity)


def _found(kind: str, definition: str, inside: str, name: str, entity: str | None) -> Rule | None:
    rules = _rules().get(kind)
    if rules is None:
        return None
    api = definition.removesuffix("Request").removesuffix("Response")
    for key in (f"{definition}:{name}", f"{api}:{name}", f"{inside}.{name}", f"@{entity}", name):
        if key in rules:
            return rules[key]
    words = name.split("_")
    ends = ("*" + "_".join(words[at:]) for at in range(len(words)))
    return next((rules[end] for end in ends if end in rules), rules.get("*"))


@cache
def volatile() -> frozenset[Meaning]:
    """The meanings that are volatile wherever they stand."""
    return frozenset(Meaning) - {
        rule.meaning for rules in _rules().values() for rule in rules.values() if not rule.volatile
    }
