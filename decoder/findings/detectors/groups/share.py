"""Share groups (KIP-932): sessions that clients begin wrongly, and records that nobody acknowledges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ....codec.message_view import MessageView
from ....connection.exchange import Exchange, State
from ....schema import facts
from ....schema.plan import StructPlan
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import duration, times, topic_name
from ...engine.layout import layout, partition_places
from ...engine.traffic import ClientConnection

SHARE_FETCH, SHARE_ACKNOWLEDGE = facts.api_key("ShareFetch"), facts.api_key("ShareAcknowledge")
_INVALID = facts.error_code("INVALID_REQUEST")
_LOST = facts.error_code_set("SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH")
_RECORDS = 4096
"""Most records (the first offsets of acquired ranges) that are remembered."""


class _Range(NamedTuple):
    """Offsets of a partition."""

    topic: str
    partition: int
    first: int
    last: int


class Acquired(NamedTuple):
    """Records that a member was given, and how often they have been given to one, this time included."""

    place: _Range
    deliveries: int


def acquired(exchange: Exchange) -> Iterator[Acquired]:
    """What a ShareFetch response gives."""
    message = exchange.response_view
    if message is None:
        return
    places = partition_places(message.plan.root, "responses", "partitions")
    fields, at = places.fields, _acquired_fields(message.plan.root)
    for topic in message.values[places.topics] or ():
        name = None
        for partition in topic[places.partitions] or ():
            for given in partition[fields["acquired_records"]] or ():
                name = name or topic_name(exchange, topic[places.name])
                span = _Range(name, partition[fields["partition_index"]], given[at["first_offset"]], given[at["last_offset"]])
                yield Acquired(span, given[at["delivery_count"]])


@cache
def _acquired_fields(response: StructPlan) -> dict[str, int]:
    return dict(layout(response, "responses", "partitions", "acquired_records"))


def acknowledged(exchange: Exchange) -> Iterator[_Range]:
    """What a ShareFetch or ShareAcknowledge request acknowledges."""
    message = exchange.request_view
    if message is None:
        return
    places, batch = partition_places(message.plan.root, "topics", "partitions"), _batch_fields(message.plan.root)
    for topic in message.values[places.topics] or ():
        for partition in topic[places.partitions] or ():
            for batches in partition[places.fields["acknowledgement_batches"]] or ():
                yield _Range(
                    topic_name(exchange, topic[places.name]),
                    partition[places.fields["partition_index"]],
                    batches[batch["first_offset"]],
                    batches[batch["last_offset"]],
                )


@cache
def _batch_fields(request: StructPlan) -> dict[str, int]:
    return dict(layout(request, "topics", "partitions", "acknowledgement_batches"))


class FirstAcknowledgements(Detector):
    id = "share-session-begins-wrongly"
    severity = Severity.HIGH
    title = "a share consumer acknowledges records in the first request of a share session, which brokers refuse"
    why = (
        "a share session begins with epoch 0, and its first request must not acknowledge anything (KIP-932): what a member "
        "acquired belongs to the session before, and is released when that ends. The broker answers INVALID_REQUEST, and a "
        "client that sends the same again never gets records. Java clients do that after SHARE_SESSION_NOT_FOUND or "
        "INVALID_SHARE_SESSION_EPOCH, with what they had not acknowledged yet (KAFKA-19485)."
    )
    remedy = (
        "upgrade the client (Java: 4.1.1, 4.2 or newer; the fault is the client's); until then, restart it. Records that it had "
        "acquired are delivered again"
    )
    apis = frozenset({SHARE_FETCH, SHARE_ACKNOWLEDGE})
    wanted = Wanted.FAILED

    def setup(self) -> None:
        self._lost: BoundedDict[object, str] = BoundedDict(2000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        request = exchange.request_view
        if exchange.state is not State.PAIRED or request is None or not exchange.error:
            return
        if exchange.error in _LOST:
            self._lost[conn.identity] = f"{facts.error_name(exchange.error)} to {exchange.api} v{exchange.api_version}"
        if exchange.error != _INVALID or request["share_session_epoch"] != 0:
            return
        first = next(acknowledged(exchange), None)
        if first is None:
            return
        group = request["group_id"]
        found = self.report((conn.identity, group), exchange, error="INVALID_REQUEST", group=group)
        lost = self._lost.get(conn.identity)
        found.seen = (
            f"{conn.who} begins a share session of group {group!r} (epoch 0) with acknowledgements of {_text(first)}, and is "
            f"refused with INVALID_REQUEST by {conn.where} {times(found.count)}"
            + (f"; its session before ended with {lost}" if lost else "")
        )


@dataclass(slots=True)
class _Delivered:
    """Records that were delivered again. `first_ns`: when that was first seen, with how many `first` deliveries; `acknowledged`: by how
    many requests since."""

    first_ns: int
    first: int
    deliveries: int
    acknowledged: int = 0


class RecordDeliveredAgain(Detector):
    """A record that comes back: its lock ends, or members release it.

    One more delivery is normal after a restart of a consumer, and two where the application retries by releasing.
    """

    id = "share-record-delivered-again"
    severity = Severity.MEDIUM
    title = "a share group gets the same record again and again"
    apis = frozenset({SHARE_FETCH, SHARE_ACKNOWLEDGE})

    AGAIN = 2
    OFTEN = 3
    LIMIT = 5
    """group.share.delivery.count.limit, unless set otherwise: then the record is given up."""

    def setup(self) -> None:
        self._given: BoundedDict[tuple[str, str, str, int, int], _Delivered] = BoundedDict(_RECORDS)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        if not self._given:
            return
        message = exchange.request_view
        group = message["group_id"] if message is not None else ""
        for span in acknowledged(exchange):
            key = conn.cluster.id, group or "", span.topic, span.partition
            for offset in range(span.first, min(span.last, span.first + 1000) + 1):
                given = self._given.get((*key, offset))
                if given is not None:
                    given.acknowledged += 1

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key != SHARE_FETCH or exchange.state is not State.PAIRED:
            return
        message: MessageView | None = exchange.request_view
        group: str = (message["group_id"] if message is not None else "") or ""
        now = exchange.response_time_ns or 0
        for span, deliveries in acquired(exchange):
            if deliveries < self.AGAIN:
                continue
            key = conn.cluster.id, group, span.topic, span.partition, span.first
            given = self._given.get(key)
            if given is None:
                given = self._given[key] = _Delivered(now, deliveries, deliveries)
            given.deliveries = deliveries
            if deliveries >= self.OFTEN:
                self._report(conn, exchange, group, span, given)

    def _report(self, conn: ClientConnection, exchange: Exchange, group: str, span: _Range, given: _Delivered) -> None:
        key = conn.cluster.id, group, span.topic, span.partition
        found = self.report(key, exchange, "", "", group=group, topic=span.topic, partition=span.partition, deliveries=0)
        if given.deliveries < found.about["deliveries"]:
            return
        found.about |= {"deliveries": given.deliveries, "offset": span.first}
        self._write(found, conn, exchange, span, given)

    def _write(self, found: Finding, conn: ClientConnection, exchange: Exchange, span: _Range, given: _Delivered) -> None:
        lock = _lock_ms(exchange)
        over = (exchange.response_time_ns or 0) - given.first_ns
        within = f", {duration(over)} after the {_ordinal(given.first)}," if over else ""
        lasts = f" ({duration(lock * 1e6)})" if lock > 0 else ""
        nobody = not given.acknowledged
        how = (
            f"nobody acknowledged it before its acquisition lock{lasts} ended"
            if nobody
            else f"{given.acknowledged} requests acknowledged it in between: members release it (or the broker refuses them)"
        )
        found.seen = (
            f"record {_text(span)} is delivered for the {_ordinal(given.deliveries)} time{within} in share group "
            f"{found.about['group']!r}, now to {conn.who}: {how}"
        )
        found.why = (
            "a record whose lock ends, or that a member releases, is delivered again, to any member, until it has been delivered "
            f"group.share.delivery.count.limit times ({self.LIMIT}, unless set otherwise); then the broker gives it up, and "
            "nobody processes it (KIP-932). "
        ) + (
            "A record that every consumer takes and none acknowledges is a poison record (the application fails, hangs or dies "
            "on it), or its processing takes longer than the lock."
            if nobody
            else "A record that is released each time is one that the application cannot process."
        )
        found.remedy = (
            f"look at what the application does with {_text(span)}: catch the failure and acknowledge it with REJECT; if the "
            "processing only takes long, raise share.record.lock.duration.ms (group config; "
            "group.share.record.lock.duration.ms on the broker) or fetch fewer records (max.poll.records)"
            if nobody
            else f"look at why the application releases {_text(span)}; acknowledge records that it can never process with REJECT"
        )
        worst = Severity.HIGH if nobody and given.deliveries >= self.LIMIT else Severity.MEDIUM
        found.severity = worst if given.deliveries > self.OFTEN else Severity.LOW


def _lock_ms(exchange: Exchange) -> int:
    message = exchange.response_view
    fields = layout(message.plan.root) if message is not None else {}
    at = fields.get("acquisition_lock_timeout_ms")
    return message.values[at] if message is not None and at is not None else 0


def _text(span: _Range) -> str:
    """``orders-0@41``, ``orders-0@41-43``."""
    more = f"-{span.last}" if span.last > span.first else ""
    return f"{span.topic}-{span.partition}@{span.first}{more}"


_ORDINALS = ("1st", "2nd", "3rd")


def _ordinal(number: int) -> str:
    return _ORDINALS[number - 1] if 0 < number <= len(_ORDINALS) else f"{number}th"
