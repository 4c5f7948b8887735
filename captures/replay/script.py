"""The steps of a replay in the order of the recording, and the recorded cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from ...decoder import Exchange, ExchangeDone, RequestSeen, State, Topics
from ...decoder.codec.message import Message
from ...decoder.connection.events import Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import ZERO_UUID
from .mapping import RecordedCluster, request_scope
from .partial_requests import Place
from .policy import Policy, forbidden_null
from .rewrite import read, tree_of
from .roles import paths

_CREATE, _METADATA = facts.api_key("CreateTopics"), facts.api_key("Metadata")
_PRODUCE, _FETCH, _LIST = (facts.api_key(name) for name in ("Produce", "Fetch", "ListOffsets"))
_FIND = facts.api_key("FindCoordinator")
_LATEST = -1
_PRODUCER_AT, _HEADER = 43, 61

WAITING = facts.api_key_set("Fetch", "ShareFetch")
"""Requests that brokers answer late on purpose, when there is nothing yet: no other connection waits for those answers."""


class StepKind(IntEnum):
    OPEN = 0
    SEND = 1
    ANSWER = 2
    """the recorded client had this answer before it went on"""
    CLOSE = 3


class RecordedCall:
    """One recorded request with its answer. `skip`: why it is not sent. `plain`: nothing in it has to change.
    `left_out`: the partitions of a Produce request that are not sent, in the recording's words.
    `taken`: the target's answer for the part of a Produce request that it took; the rest is to be sent again.

    `done` and the fields behind it belong to the player.
    """

    __slots__ = (
        "answered",
        "attempts",
        "connection",
        "done",
        "due_ns",
        "exchange",
        "left_out",
        "number",
        "plain",
        "ready",
        "sent_ns",
        "skip",
        "taken",
        "waiting",
    )

    def __init__(self, number: int, connection: int, due_ns: int, exchange: Exchange) -> None:
        self.number, self.connection, self.due_ns, self.exchange = number, connection, due_ns, exchange
        self.skip: str | None = None
        self.left_out: frozenset[Place] = frozenset()
        self.plain = False
        self.ready = False
        self.done = False
        self.answered = False
        self.sent_ns = 0
        self.attempts = 0
        self.waiting = exchange.api_key in WAITING
        self.taken: Message | None = None

    @property
    def recorded(self) -> Message | None:
        """The recorded answer, to compare with; None where there is none, or it has a null where Kafka allows none."""
        message = self.exchange.response_message
        return None if message is None or forbidden_null(self.exchange.response_view) is not None else message


class ScriptStep(NamedTuple):
    """One step: what to do, when (ns since the recording's first step), on which recorded connection."""

    kind: StepKind
    due_ns: int
    connection: int
    call: RecordedCall | None = None
    by: str = ""
    """who closed the connection: "client", "broker", or "" where that was not seen"""
    broker: str = ""


class Script:
    """Reads events and gives steps. `recorded` grows with what was read; `left_out` counts what is no request."""

    def __init__(
        self,
        events: Iterator[ConnectionEvent],
        policy: Policy,
        wanted: Callable[[Exchange], object] | None = None,
        renames: bool = False,
    ) -> None:
        self.recorded = RecordedCluster()
        self.left_out: dict[str, int] = {}
        self.requests = 0
        self._events = events
        self._policy, self._wanted, self._renames = policy, wanted, renames
        self._topics = Topics()
        self._calls: dict[int, RecordedCall] = {}
        self._first_ns: int | None = None
        self._open: set[int] = set()
        self._last_ns = 0

    def steps(self) -> Iterator[ScriptStep]:
        """The steps, in the order in which things were complete."""
        for event in self._events:
            if isinstance(event, RequestSeen):
                exchange = event.exchange
                due = self._since(exchange.request_time_ns)
                if exchange.connection not in self._open:
                    self._open.add(exchange.connection)
                    yield ScriptStep(StepKind.OPEN, due, exchange.connection, broker=exchange.broker)
                call = RecordedCall(self.requests, exchange.connection, due, exchange)
                self.requests += 1
                self._calls[id(exchange)] = call
                yield ScriptStep(StepKind.SEND, due, exchange.connection, call)
            elif isinstance(event, ExchangeDone):
                exchange = event.exchange
                done = self._calls.pop(id(exchange), None)
                if done is None:
                    self._count("answers whose requests were not recorded")
                    continue
                self._learn(exchange)
                self.make_ready(done)
                if exchange.response is not None:
                    yield ScriptStep(StepKind.ANSWER, self._since(exchange.response_time_ns), exchange.connection, done)
            elif isinstance(event, Opened):
                if event.established and event.connection not in self._open:
                    self._open.add(event.connection)
                    yield ScriptStep(StepKind.OPEN, self._since(event.time_ns), event.connection, broker=event.broker)
            elif isinstance(event, Closed):
                if event.connection in self._open:
                    self._open.discard(event.connection)
                    yield ScriptStep(StepKind.CLOSE, self._since(event.time_ns), event.connection, by=event.by)
            elif isinstance(event, Missing):
                self._count("gaps in the recording")
            elif isinstance(event, NonKafkaData):
                self._count("SASL tokens" if "SASL" in event.opaque.reason else "bytes that are not requests")

    def make_ready(self, call: RecordedCall) -> None:
        """Decide what of a call is sent, now that as much is known of it as will be."""
        if call.ready:
            return
        call.ready = True
        exchange = call.exchange
        if self._wanted is not None and not self._wanted(exchange):
            call.skip = "the filter leaves it out"
        else:
            call.skip = self._policy.why_not(exchange)
        if call.skip is None and exchange.request_message is not None:
            call.left_out = self._policy.left_out(exchange)
            call.plain = not self._renames and not call.left_out and not _active(exchange.request_message)

    def _since(self, time_ns: int | None) -> int:
        if time_ns is None:
            return self._last_ns
        if self._first_ns is None:
            self._first_ns = time_ns
        self._last_ns = max(self._last_ns, time_ns - self._first_ns)  # stamps of first bytes may go back a little
        return self._last_ns

    def _count(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1

    # the recorded cluster

    def _learn(self, exchange: Exchange) -> None:
        key, answer, asked = exchange.api_key, exchange.response_view, exchange.request_view
        if answer is None or asked is None or exchange.state is not State.PAIRED:
            return
        recorded = self.recorded
        if key == _METADATA:
            fields = answer.to_dict()
            for topic in fields["topics"] or ():
                if topic["name"] and not topic["error_code"]:
                    recorded.partitions[topic["name"]] = len(topic["partitions"])
                    if "topic_id" in topic:
                        recorded.topics[topic["topic_id"].bytes] = topic["name"]
            recorded.brokers.update(broker["node_id"] for broker in fields["brokers"])
        elif key == _CREATE:
            for topic in answer.to_dict()["topics"]:
                if not topic["error_code"]:
                    recorded.created.add(topic["name"])
                    if "topic_id" in topic:
                        recorded.topics[topic["topic_id"].bytes] = topic["name"]
        elif key in (_PRODUCE, _FETCH, _LIST):
            self._learn_ends(key, asked, answer)
        elif exchange.api_key not in (_FIND,):
            recorded.given.update(gives(asked, answer))

    def _learn_ends(self, key: int, asked: Message, answer: Message) -> None:
        latest: set[tuple[Any, Any]] = set()
        if key == _LIST:
            for role, value, scope, _ in read(asked):
                if role is Meaning.TIMESTAMP and value == _LATEST:
                    latest.add((scope.get(Meaning.TOPIC), scope.get(Meaning.PARTITION)))
        wanted = {_PRODUCE: "base_offset", _FETCH: "high_watermark", _LIST: "offset"}[key]
        for role, value, scope, name in read(answer):
            if role is not Meaning.OFFSET or name != wanted or value < 0:
                continue
            topic = scope.get(Meaning.TOPIC) or self.recorded.topics.get(scope.get(Meaning.TOPIC_ID, b""))
            place = topic, scope.get(Meaning.PARTITION)
            if topic and (key != _LIST or place in latest):
                self.recorded.ends.setdefault(place, value)  # type: ignore[arg-type]


@cache
def _may_give(api_key: int, version: int) -> bool:
    roles = set(paths("response", api_key, version).values())
    return bool(roles & {Meaning.GENERATION, Meaning.MEMBER_ID, Meaning.PRODUCER_ID, Meaning.TOPIC_ID})


def gives(asked: Message, answer: Message) -> Iterator[tuple[Meaning, Any]]:
    """The ids in a response that later requests name, and generations with their groups."""
    if not _may_give(answer.api_key, answer.api_version):
        return
    scope = request_scope(asked)
    for role, value, _, _ in read(answer):
        if role is Meaning.GENERATION and value > 0:
            yield role, (scope.get(Meaning.GROUP, ""), value)
        elif role in (Meaning.MEMBER_ID, Meaning.PRODUCER_ID, Meaning.TOPIC_ID) and value not in ("", -1, ZERO_UUID):
            yield role, value


_WITH_VALUES = frozenset(
    {
        Meaning.GENERATION,
        Meaning.PRODUCER_ID,
        Meaning.SESSION_ID,
        Meaning.LEADER_EPOCH,
        Meaning.OFFSET,
        Meaning.BROKER_ID,
        Meaning.REACHED_BROKER,
    }
)


def _active(message: Message) -> bool:
    """Whether anything in a request may have to change, apart from renaming."""
    if message.api_key == _FETCH and message.api_version >= 7:
        return True
    tree = tree_of(message)
    if not tree.branches:
        return False
    for role, value, _, _ in read(message):
        if role in _WITH_VALUES:
            if value >= 0:
                return True
        elif role is Meaning.TOPIC_ID:
            if any(value):
                return True
        elif role in (Meaning.MEMBER_ID, Meaning.TELEMETRY_ID, Meaning.CLUSTER_ID):
            if value:
                return True
        elif role is Meaning.RECORDS:
            if has_producer(value):
                return True
        elif role is Meaning.RESOURCE_NAME and value.isdecimal():
            return True
    return False


def has_producer(records: bytes) -> bool:
    """Whether batches name a producer; message sets of old cannot."""
    at = 0
    while at + _HEADER <= len(records):
        size = int.from_bytes(records[at + 8 : at + 12], "big")
        if records[at + 16] != 2:
            return False
        if records[at + _PRODUCER_AT] < 0x80:
            return True
        at += 12 + size
    return False
