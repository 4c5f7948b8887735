"""Functions from an exchange to the values of each field. They decode as little as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain

from .. import records
from ..codec.message import Message
from ..codec.project import field_at, values_at
from ..connection.exchange import Exchange, State
from ..connection.hit_notes import rules_in
from ..connection.topics import Topics
from ..errors import EncodeError
from ..schema import facts
from ..schema.plan import Plan, PlanValue
from . import entities
from .entities import MessagePart, TopicPartition
from .language.fields import Field, ValueKind
from .language.literals import split_endpoint
from .language.paths import Path, kind_of

MAX_CLIENT_ID = 1000
"""Characters of a client id that filters see, as many as a recording's index keeps."""

One = Callable[[Exchange], PlanValue]
Many = Callable[[Exchange], Iterable[PlanValue]]


def _latency(exchange: Exchange) -> int | None:
    latency = exchange.latency_ns
    return None if latency is None else max(latency, 0)


def _time(exchange: Exchange) -> int:
    time_ns = exchange.request_time_ns if exchange.request is not None else exchange.response_time_ns
    return time_ns or 0


def _range(which: int) -> One:
    def bound(exchange: Exchange) -> int | None:
        offered = exchange.about.range(exchange.api_key) if exchange.about is not None else None
        return None if offered is None else offered[which]

    return bound


def _state(state: State) -> One:
    return lambda exchange: exchange.state is state


@lru_cache(4096)
def end_of(text: str) -> tuple[str, int] | None:
    """(host, port) of one end of a connection; None if it is unknown."""
    return split_endpoint(text) if text else None


def port_of(text: str) -> int | None:
    """The port of ``host:port``; None if it is unknown."""
    end = end_of(text)
    return end[1] if end is not None and end[1] >= 0 else None


@cache
def retriable() -> frozenset[int]:
    """The codes of errors that clients may retry."""
    return frozenset(code for code, fact in facts.errors().items() if fact.retriable)


def _error(exchange: Exchange) -> int:
    return 0 if exchange.response is None else exchange.error


ONE: dict[str, One] = {
    "api": lambda e: e.api_key if e.api_key >= 0 else None,
    "ver": lambda e: e.api_version if e.api_key >= 0 else None,
    "err": _error,
    "retriable": lambda e: _error(e) in retriable(),
    "latency": _latency,
    "state": lambda e: str(e.state),
    "paired": _state(State.PAIRED),
    "no_response": _state(State.NO_RESPONSE),
    "orphan": _state(State.ORPHAN),
    "size.req": lambda e: _sizes(e)[0],
    "size.resp": lambda e: _sizes(e)[1],
    "size": lambda e: sum(size or 0 for size in _sizes(e)),
    "time": _time,
    "conn": lambda e: e.connection & 0xFFFFFFFF,
    "corr": lambda e: e.correlation_id,
    "client": lambda e: None if e.client_id is None else e.client_id[:MAX_CLIENT_ID],
    "addr": lambda e: end_of(e.client),
    "broker": lambda e: end_of(e.broker),
    "client.port": lambda e: port_of(e.client),
    "broker.port": lambda e: port_of(e.broker),
    "undecoded": lambda e: e.undecoded is not None,
    "cut": lambda e: e.cut is not None,
    "surplus": lambda e: e.undecoded is None and any(e.surplus),
    "changed": lambda e: e.marks.changed,
    "noted": lambda e: e.marks.has_notes,
    "carried": lambda e: e.marks.carried,
    "software": lambda e: (e.about.software_name or None) if e.about is not None else None,
    "software.version": lambda e: (e.about.software_version or None) if e.about is not None else None,
    "broker.min": _range(0),
    "broker.max": _range(1),
    "acks": lambda e: next(_flat("request", "acks", e), None),
    "throttle": lambda e: next(_flat("response", "throttle", e), None),
    "records": lambda e: _record_count(e),
}
"""Fields with one value or None. (`pending` depends on the time: see `evaluate`.)"""


def _sizes(exchange: Exchange) -> tuple[int | None, int | None]:
    """Sizes of request and response, from `marks` if the frames are not complete."""
    return exchange.marks.sizes or (exchange.request_size, exchange.response_size)


def _message(exchange: Exchange, side: str) -> Message | None:
    return exchange.request_message if side == "request" else exchange.response_message


def flattened(of: Plan, path: str, found: list[PlanValue]) -> Iterable[PlanValue]:
    """Values as `values_at` gives them, items of arrays of plain values one by one."""
    field, _ = field_at(of, path)
    if field.array and field.struct is None:
        return chain.from_iterable(items for items in found if items is not None)
    return found


def _flat(side: str, name: str, exchange: Exchange) -> Iterator[PlanValue]:
    """The values of a catalogue field in one message."""
    message = _message(exchange, side)
    if message is None:
        return
    of = message.plan
    ways = entities.paths_of(of, name)
    if ways:
        for path, found in zip(ways, values_at(of, message.frame, message.body_start, ways), strict=True):
            yield from flattened(of, path, found)
    if of.api_key == entities.FIND_COORDINATOR and name in entities.COORDINATOR_KEYS.values():
        yield from _coordinator_keys(exchange, side, name)


def _coordinator_keys(exchange: Exchange, side: str, name: str) -> Iterator[str]:
    """The keys of a FindCoordinator that are groups or transactional ids, which its request decides."""
    asked = exchange.request_message
    if asked is None:
        return
    fields = {field.name: value for field, value in zip(asked.plan.root.fields, asked.values, strict=False)}
    if entities.COORDINATOR_KEYS.get(fields.get("key_type", 0)) != name:
        return
    if side == "request":
        if "key" in fields:
            yield fields["key"]
        yield from fields.get("coordinator_keys") or ()
    else:
        answered = exchange.response_message
        if answered is not None and any(field.name == "coordinators" for field in answered.plan.root.fields):
            found = values_at(answered.plan, answered.frame, answered.body_start, ("coordinators.key",))
            yield from found[0]


def _areas(exchange: Exchange) -> Iterator[records.Batch | records.Message]:
    """The record batches and messages of an exchange, as far as they can be read."""
    for side in ("request", "response"):
        message = _message(exchange, side)
        ways = entities.paths_of(message.plan, "record areas") if message is not None else ()
        if message is None or not ways:
            continue
        for found in values_at(message.plan, message.frame, message.body_start, ways):
            for area in found:
                try:
                    for entry in records.batches(area or b""):
                        if not isinstance(entry, records.Partial):
                            yield entry
                except records.RecordsError:
                    continue


def _record_count(exchange: Exchange) -> int | None:
    counts = [e.announced if isinstance(e, records.Batch) else 1 for e in _areas(exchange)]
    return sum(counts) if counts else None


def _producer_ids(exchange: Exchange) -> Iterator[int]:
    """Without -1, which stands for none."""
    for number in chain(_flat("request", "producer.id", exchange), _flat("response", "producer.id", exchange)):
        if number != -1:
            yield number
    for entry in _areas(exchange):
        if isinstance(entry, records.Batch) and entry.producer_id != -1:
            yield entry.producer_id


def pairs(exchange: Exchange) -> Iterator[TopicPartition]:
    """Every topic-partition of request and response; names are looked up by their ids."""
    return named(pairs_as_sent(exchange), exchange.topics)


def pairs_as_sent(exchange: Exchange) -> Iterator[TopicPartition]:
    """Every topic-partition of request and response, as the messages have it: by name, by id or by both."""
    for side in ("request", "response"):
        message = _message(exchange, side)
        walk = entities.topic_partitions_of(message.plan) if message is not None else None
        if message is not None and walk is not None:
            yield from walk(message.values)


def named(pairs: Iterable[TopicPartition], topics: Topics | None) -> Iterator[TopicPartition]:
    """Topic-partitions with the names of those that have only an id, as far as they are known."""
    for pair in pairs:
        name = topics.name(pair.topic_id) if topics is not None and not pair.topic and pair.topic_id is not None else None
        yield pair if name is None else pair._replace(topic=name)


TOPIC_PARTITION_FIELD = {"topic": 0, "topic.id": 1, "partition": 2, "partition.err": 3, "topic.err": 4}
"""Which item of a `TopicPartition` a field is."""


def _of_pairs(name: str) -> Many:
    item = TOPIC_PARTITION_FIELD[name]
    return lambda exchange: (value for pair in pairs(exchange) if (value := pair[item]) is not None)


def _both(name: str) -> Many:
    return lambda e: (v for v in chain(_flat("request", name, e), _flat("response", name, e)) if v is not None)


MANY: dict[str, Many] = {
    **{name: _of_pairs(name) for name in TOPIC_PARTITION_FIELD},
    **{name: _both(name) for name in ("group", "member", "instance", "txn")},
    "ends": lambda e: (end for end in (end_of(e.client), end_of(e.broker)) if end is not None),
    "port": lambda e: (port for port in (port_of(e.client), port_of(e.broker)) if port is not None),
    "errors": lambda e: _flat("response", "errors", e),
    "producer.id": _producer_ids,
    "rule": lambda e: rules_in(e.marks.notes),
    "codec": lambda e: (entry.codec for entry in _areas(e)),
    "magic": lambda e: (entry.magic for entry in _areas(e)),
}
"""Fields with any number of values."""


def at_path(path: Path) -> Many:
    """The values at a path; none if the API or version does not have it, or has a struct there."""
    steps = path.steps
    side = path.side

    @cache
    def fits(of: Plan) -> bool:
        try:
            field, _ = field_at(of, steps)
        except EncodeError:
            return False
        return path.kind is ValueKind.STRUCT or (kind_of(field) is ValueKind.STRUCT) is False

    def found(exchange: Exchange) -> Iterable[PlanValue]:
        message = _message(exchange, side)
        if message is None or not fits(message.plan):
            return ()
        values = values_at(message.plan, message.frame, message.body_start, (steps,))[0]
        return (value for value in flattened(message.plan, steps, values) if value is not None)

    return found


def of_part(exchange: Exchange, part: MessagePart, field: Field | Path) -> list[PlanValue] | None:
    """The values that a part of a message has of a field; None if the field is not its own."""
    if exchange.api_key == entities.FIND_COORDINATOR and part.side == "response":
        return _of_coordinator(exchange, part, field)
    if isinstance(field, Path):
        message = _message(exchange, field.side)
        if message is None or not field.many:
            return None
        try:
            end, _ = field_at(message.plan, field.steps)
        except EncodeError:
            return None
        return part.at(field.side, field.steps, end)
    return part.named(field.name) if field.many and field.name in entities.NAMES else None


def _of_coordinator(exchange: Exchange, part: MessagePart, field: Field | Path) -> list[PlanValue] | None:
    """The key in an entry of a FindCoordinator response, if the field is about keys."""
    own = [
        value
        for _, struct, values in part.around[1:]
        for each, value in zip(struct.fields, values, strict=False)
        if each.name == "key"
    ]
    if not own:
        return None
    if isinstance(field, Path):
        return own if field.steps in ("coordinator_keys", "coordinators.key") else None
    if field.name not in entities.COORDINATOR_KEYS.values():
        return None
    keys = list(_coordinator_keys(exchange, "request", field.name))
    return [key for key in own if key in keys]


def of_field(field: Field | Path) -> Many:
    """A field's values, whether it has one or many."""
    if isinstance(field, Path):
        return at_path(field)
    if field.many:
        return MANY[field.name]
    one = ONE[field.name]
    return lambda exchange: () if (value := one(exchange)) is None else (value,)
