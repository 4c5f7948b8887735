"""Redacting a capture: events in, events out, with everything replaced that identifies people, systems or data.

Secrets of the protocol are masked as well, by the recorder that writes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ...decoder import Direction, Exchange, ExchangeDone, RequestSeen
from ...decoder.connection.events import ConnectionEvent, NonKafkaData, Opened
from ...decoder.connection.exchange import BrokerLeg
from ...diagnostics import contained
from .fields import NAMES, RedactionKind
from .free_text import scrub_text
from .messages import Frames
from .pseudonyms import Pseudonyms
from .write import beginning

Change = Callable[[Exchange, bytes | None], bytes]
_FAULTS = 20


class Redaction:
    """Replaces the `kinds` in events. `pseudonyms` are shared by captures that go together. `faults`: frames that
    should have been read and were not, if any."""

    def __init__(self, pseudonyms: Pseudonyms, kinds: Iterable[RedactionKind]) -> None:
        self.pseudonyms, self.kinds = pseudonyms, frozenset(kinds)
        self.frames = Frames(pseudonyms, self.kinds)
        self.faults: list[str] = []
        self._open: dict[int, dict[int, Exchange]] = {}

    @property
    def everything(self) -> bool:
        """Whether nothing that can be replaced is left out."""
        return self.kinds == frozenset(RedactionKind)

    @property
    def counts(self) -> dict[str, int]:
        """blanked_bytes, blanked_frames, records, telemetry."""
        names = ("records", "blanked_frames", "blanked_bytes", "telemetry")
        return {name: self.frames.counts[name] for name in names}

    @property
    def distinct(self) -> dict[str, int]:
        """The number of different names of each kind that were replaced."""
        return {str(kind): len(names) for kind, names in self.frames.distinct.items() if kind in NAMES & self.kinds}

    def feed(self, event: ConnectionEvent) -> Iterator[ConnectionEvent]:
        """The events in place of an event."""
        if isinstance(event, RequestSeen):
            yield RequestSeen(self._request(event.exchange))
        elif isinstance(event, ExchangeDone):
            yield ExchangeDone(self._done(event.exchange))
        elif isinstance(event, Opened):
            yield replace(event, client=self._ends(event.client), broker=self._ends(event.broker))
        elif isinstance(event, NonKafkaData):
            yield self._non_kafka(event)
        else:
            yield event

    def _ends(self, address: str) -> str:
        if RedactionKind.HOSTS not in self.kinds:
            return address
        host, colon, port = address.rpartition(":")
        bare = host.strip("[]")
        new = self.frames.name(RedactionKind.HOSTS, bare, self.pseudonyms.location)
        return (f"[{new}]" if host.startswith("[") else new) + colon + port

    def _non_kafka(self, event: NonKafkaData) -> NonKafkaData:
        opaque = event.opaque
        if opaque.framed:
            return event  # a token, masked already
        self.frames.counts["blanked_bytes"] += len(opaque.data)
        return NonKafkaData(event.connection, replace(opaque, data=beginning(opaque)))

    def _request(self, exchange: Exchange) -> Exchange:
        new = Exchange(
            connection=exchange.connection,
            client=exchange.client,
            broker=exchange.broker,
            api_key=exchange.api_key,
            api_version=exchange.api_version,
            correlation_id=exchange.correlation_id,
            request_time_ns=exchange.request_time_ns,
            request=self._frame(exchange, exchange.request, 8, self.frames.request),
            request_cut=exchange.request_cut,
            state=exchange.state,
        )
        self._marks(exchange, new)
        self._open.setdefault(exchange.connection, {})[id(exchange)] = new
        return new

    def _done(self, exchange: Exchange) -> Exchange:
        new = self._open.get(exchange.connection, {}).pop(id(exchange), None)
        if new is None:
            new = self._request(exchange)
            del self._open[exchange.connection][id(exchange)]
        new.state = exchange.state
        if exchange.response is not None:
            new.response = self._frame(exchange, exchange.response, 4, self.frames.response)
            new.response_cut = exchange.response_cut
            new.response_time_ns = exchange.response_time_ns
        self._marks(exchange, new)
        return new

    def _frame(self, exchange: Exchange, frame: bytes | None, head: int, change: Change) -> bytes | None:
        return None if frame is None else self._leg(exchange, frame, head, lambda e, _: change(e, None))

    def _leg(self, exchange: Exchange, frame: bytes, head: int, change: Change) -> bytes:
        """A fault of ours must not let anything through: such a frame is blanked behind its first bytes."""
        try:
            return change(exchange, frame)
        except Exception as fault:
            contained("redacting a frame", fault, reported=True)
            if len(self.faults) < _FAULTS:
                self.faults.append(f"{exchange!r} was blanked: {type(fault).__name__}: {fault}")
            return self.frames.blanked(frame, head)

    def _marks(self, exchange: Exchange, new: Exchange) -> None:
        for direction, head, change in ((Direction.REQUEST, 8, self.frames.request), (Direction.RESPONSE, 4, self.frames.response)):
            leg, done = exchange.marks.leg(direction), new.marks.leg(direction)
            if leg is not None:
                frame = done.frame if done else self._leg(exchange, leg.frame, head, change)
                new.marks.set_leg(direction, BrokerLeg(frame, notes=self._notes(leg.notes)))
        new.marks.notes = self._notes(exchange.marks.notes)

    def _notes(self, notes: list[str]) -> list[str]:
        return [scrub_text(note, self.pseudonyms) for note in notes] if self.kinds & NAMES else list(notes)
