"""The exchanges of a recording, laid out for answering, and the topics and brokers in them.

`RecordedExchanges` reads a capture once. A position is an exchange's place in it; answers and errors keep their positions.

`identity` is a request without fields that differ between runs (`..replay.roles`) or hold their default: the same request at two
versions is equal. Topics are named, also where a newer version gives their id. `touches` are the names in a message: what two
requests have in common when one changes what the other reads. `entries` are the parts of a request that ask for one thing each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from ...decoder import Exchange, Message, State
from ...decoder.codec.message_view import MessageView
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import FieldPlan, StructPlan
from ..replay.roles import NAMES, VOLATILE, paths

PRODUCE = facts.api_key("Produce")
TELEMETRY = tuple(map(facts.api_key, ("GetTelemetrySubscriptions", "PushTelemetry")))
"""Clients send these on a timer (KIP-714): one run can need them and the next, of the same program, not."""


@dataclass(slots=True)
class RecordedExchange:
    """One recorded exchange. `latency` is in seconds; `from_ns` and `until_ns` are the times of request and response;
    `answer` is None only for a Produce with acks=0."""

    position: int
    api_key: int
    api_version: int
    request: Message
    answer: Message | None
    latency: float
    client_id: str | None
    from_ns: int
    until_ns: int

    @property
    def api(self) -> str:
        return facts.api_name(self.api_key)

    @property
    def response(self) -> Message:
        """The answer, of an exchange that has one."""
        assert self.answer is not None
        return self.answer


class RecordedExchanges:
    """The exchanges of a recording. `topic_ids` holds the 16 bytes of every topic's id, the last one by name."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self.all: list[RecordedExchange] = []
        self.by_api: dict[int, list[RecordedExchange]] = defaultdict(list)
        self.topic_names: dict[bytes, str] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.brokers: dict[int, tuple[str, int]] = {}
        self.skipped = 0
        """exchanges without an answer, or that cannot be read"""
        self.cut = 0
        """those of them of which only the beginning was recorded"""
        for position, exchange in enumerate(exchanges):
            self._take(position, exchange)

    def _take(self, position: int, exchange: Exchange) -> None:
        asked = _readable(exchange.request_message, exchange.request_view)
        answered = _readable(exchange.response_message, exchange.response_view) if exchange.state is State.PAIRED else None
        silent = exchange.api_key == PRODUCE and asked is not None and asked["acks"] == 0
        if asked is None or (answered is None and not silent):
            self.skipped += 1
            self.cut += exchange.cut is not None
            return
        latency = (exchange.latency_ns or 0) / 1e9
        asked_ns = exchange.request_time_ns or 0
        kept = RecordedExchange(
            position, exchange.api_key, exchange.api_version, asked, answered, latency, exchange.client_id,
            asked_ns, asked_ns + (exchange.latency_ns or 0),
        )  # fmt: skip
        if exchange.api in ("Metadata", "CreateTopics", "FindCoordinator", "DescribeCluster") and answered is not None:
            self.learn(answered)
        self.all.append(kept)
        self.by_api[exchange.api_key].append(kept)

    def learn(self, answered: Message) -> None:
        """Take the topics' ids, and the brokers, that an answer names."""
        fields = answered.to_dict()
        for topic in fields.get("topics") or ():
            name, number = topic.get("name"), topic.get("topic_id")
            if name and number is not None and number.int:
                self.topic_names[number.bytes] = name
                self.topic_ids[name] = number.bytes
        for _, node, host, port in addresses(fields):
            if node >= 0 and host:
                self.brokers[node] = (host, port)

    def of(self, *apis: str) -> list[RecordedExchange]:
        """The exchanges of these APIs, in order."""
        found = [kept for api in apis for kept in self.by_api.get(facts.api_key(api), ())]
        return sorted(found, key=lambda kept: kept.position) if len(apis) > 1 else found

    def named(self, topic_id: bytes) -> str | None:
        """The name of a topic by its id."""
        return self.topic_names.get(topic_id)

    def topic_of(self, item: dict[str, Any]) -> str:
        """The name of the topic that an item of a request or response is about; "" if unknown."""
        for field in ("name", "topic"):
            if item.get(field):
                return str(item[field])
        number = item.get("topic_id")
        return self.named(number.bytes) or "" if number is not None else ""

    def words(self, kept: RecordedExchange) -> frozenset[str]:
        """The names in a recorded request."""
        return touches(kept.request, self.named)


def _readable(message: Message | None, view: MessageView | None) -> Message | None:
    """A message as it was, or without the nulls in it that Kafka does not allow and that could not be answered with."""
    return view if view is not None and any(view.forbidden_nulls()) else message


class BrokerAddress(NamedTuple):
    """A broker address in a response. `path` leads to the struct that has it; `node_id` is -1 where none is beside it."""

    path: str
    node_id: int
    host: str
    port: int


def addresses(fields: dict[str, Any], path: str = "") -> list[BrokerAddress]:
    """Every broker address of a response."""
    found = []
    if isinstance(fields.get("host"), str) and isinstance(fields.get("port"), int):
        node = next((fields[name] for name in ("node_id", "broker_id") if isinstance(fields.get(name), int)), -1)
        found.append(BrokerAddress(path, node, fields["host"], fields["port"]))
    for name, value in fields.items():
        if isinstance(value, list):
            for at, item in enumerate(value):
                if isinstance(item, dict):
                    found += addresses(item, f"{path}{name}[{at}].")
    return found


Named = Callable[[bytes], str | None]
"""The name of a topic by the 16 bytes of its id; None if it is not known."""

_TOPIC = frozenset({Meaning.TOPIC, Meaning.TOPIC_ID})
_ASKING = ("Describe", "List", "Find", "Get", "Fetch", "Metadata", "OffsetFetch", "OffsetForLeaderEpoch", "ApiVersions")
_ASKING_ENDS = ("Describe", "Offsets")
_VERBS = ("Alter", "Delete")


@cache
def only_reads(api_key: int) -> bool:
    """Whether an API only asks, so that asking twice changes nothing. By the words that Kafka's names begin with."""
    name = facts.api_name(api_key)
    return name.startswith(_ASKING) or (name.endswith(_ASKING_ENDS) and not name.startswith(_VERBS))


def identity(message: Message, named: Named) -> tuple[Hashable, ...]:
    """The content of a request; hashable, and equal for the same request at another version."""
    return _struct(message.plan.root, message.values, "", _roles(message), named)


def touches(message: Message, named: Named) -> frozenset[str]:
    """The names (topics, groups, transactional ids, resources) in a request or response."""
    return frozenset(_names(message.plan.root, message.values, "", _roles(message), named))


def partitions_in(message: Message, named: Named) -> frozenset[tuple[str | None, int]]:
    """The partitions that a message is about, each with its topic."""
    return frozenset(_partitions(message.plan.root, message.values, "", _roles(message), named, None))


def _partitions(
    plan: StructPlan, values: tuple[Any, ...], prefix: str, roles: dict[str, Meaning], named: Named, topic: str | None
) -> Iterator[tuple[str | None, int]]:
    for field, value in zip(plan.fields, values, strict=False):
        role = roles.get(prefix + field.name)
        if role in _TOPIC and not field.array and value is not None:
            topic = _topic(role, value, named) or topic
    for field, value in zip(plan.fields, values, strict=False):
        path = prefix + field.name + ("[*]" if field.array else "")
        for item in (value or ()) if field.array else (value,):
            if field.struct is not None:
                if item is not None:
                    yield from _partitions(field.struct, item, path + ".", roles, named, topic)
            elif roles.get(path) is Meaning.PARTITION:
                yield topic, item


class RequestPart(NamedTuple):
    """A part of a request that asks for one thing, and the names in it."""

    identity: Hashable
    names: frozenset[str]


class ResponseItem(NamedTuple):
    """An item of an array of a response, and the names in it."""

    field: str
    position: int
    names: frozenset[str]


def entries(message: Message, named: Named) -> list[RequestPart]:
    """The items of the one array of a request that names things; none where a request has no such array, or several."""
    roles = _roles(message)
    found = []
    for field, value in zip(message.plan.root.fields, message.values, strict=False):
        if field.array and value:
            parts = [
                RequestPart(_value(field, v, field.name, roles, named), frozenset(_in(field, v, field.name, roles, named)))
                for v in value
            ]
            if all(part.names for part in parts):
                found.append(parts)
    return found[0] if len(found) == 1 else []


def items_of(message: Message, named: Named) -> Iterator[ResponseItem]:
    """Every item of the arrays of structs of a response."""
    roles = _roles(message)
    for field, value in zip(message.plan.root.fields, message.values, strict=False):
        if field.array and field.struct is not None:
            for at, item in enumerate(value or ()):
                yield ResponseItem(field.name, at, frozenset(_in(field, item, field.name, roles, named)))


def _roles(message: Message) -> dict[str, Meaning]:
    return paths(message.plan.kind, message.api_key, message.plan.version)


def _struct(
    plan: StructPlan, values: tuple[Any, ...], prefix: str, roles: dict[str, Meaning], named: Named
) -> tuple[Any, ...]:
    out: list[tuple[str, Any]] = []
    for field, value in zip(plan.fields, values, strict=False):
        path = prefix + field.name
        role = roles.get(path + ("[*]" if field.array else ""))
        if role in _TOPIC and not field.array:
            name = _topic(role, value, named)
            if name:
                out.append(("topic", name))
        elif role not in VOLATILE and value != field.default:
            if not field.array:
                out.append((field.name, _value(field, value, path, roles, named)))
            elif value is not None:
                # Clients list topics and partitions in any order.
                parts = [_value(field, item, path, roles, named) for item in value]
                out.append((field.name, tuple(sorted(parts, key=repr))))
    return tuple(sorted(out, key=lambda pair: pair[0]))


def _value(field: FieldPlan, value: Any, path: str, roles: dict[str, Meaning], named: Named) -> Any:
    if field.struct is None or value is None:
        role = roles.get(path + "[*]") if field.array else None
        return _topic(role, value, named) if role in _TOPIC else value
    return _struct(field.struct, value, path + ("[*]." if field.array else "."), roles, named)


def _names(
    plan: StructPlan, values: tuple[Any, ...], prefix: str, roles: dict[str, Meaning], named: Named
) -> Iterator[str]:
    for field, value in zip(plan.fields, values, strict=False):
        for item in (value or ()) if field.array else (value,):
            yield from _in(field, item, prefix + field.name, roles, named)


def _in(field: FieldPlan, value: Any, path: str, roles: dict[str, Meaning], named: Named) -> Iterator[str]:
    """The names in one value of a field."""
    if value is None:
        return
    if field.struct is not None:
        yield from _names(field.struct, value, path + ("[*]." if field.array else "."), roles, named)
        return
    role = roles.get(path + ("[*]" if field.array else ""))
    if role in NAMES:
        name = _topic(role, value, named) if role in _TOPIC else value
        if name:
            yield name


def _topic(role: Meaning | None, value: Any, named: Named) -> str | None:
    if role is Meaning.TOPIC_ID:
        # An id without a name still distinguishes topics.
        return (named(value) or value.hex()) if any(value) else None
    name: str | None = value
    return name
