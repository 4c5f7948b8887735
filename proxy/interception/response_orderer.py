"""What a connection gives its client, and what it tells the recording: responses and answers, in their order.

An answer that was made here instead of a broker's response is delivered when everything before it has been (`inflight`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...decoder.about import About
from ...plugins.answers import METADATA
from ...plugins.versions.dialect import Dialect
from ..events import Address
from ..inflight import REQUEST, Flights, InFlight
from ..negotiation import version_adapter
from ..plugged.questions import Seen
from ..ring.ring import Kind
from . import fault_executor
from .pass_cache import Heads

if TYPE_CHECKING:
    from ..relay import Relay


class Answering(Flights):
    """The client's side of a connection, and what all that is held has in common."""

    number: int
    peer: Address
    broker: Address
    local_host: str

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self.relay = relay
        self.inline = bool(relay.editor.requests)
        self.between_brokers = False
        """Whether a controller tells a broker here where the others are: every request is followed then."""
        self.about = About()
        """What both ends have said of themselves, where rules ask for it."""
        self.heads = Heads()
        self.answer_bytes = 0
        self.blinded: int | None = None
        """Correlation id of a response that was changed at its end and still has to be noted."""
        self.dialect: Dialect | None = None
        """What is spoken with the client, if not what the broker speaks; see `dialects`."""
        self.free: tuple[frozenset[int], Any] | None = None
        self.own_requests = 0
        self._followed: int | InFlight = 0  # the request of the response that `response.tail` follows
        self.asking = 0
        """Requests of plugins' own that wait for their responses here."""
        self.plugin_note = ""
        """What plugins did to the request that is on its way just now."""
        self._seen: Seen | None = None
        """The request for plugins, of the response that is on its way just now."""

    closed: bool

    def close(self, how: str) -> None:
        """Close both sockets: with "rst" so that the peers see a reset."""
        raise NotImplementedError

    def past_plugins(self, frame: bytes, original: bytes, now: int) -> None:
        """Plugins are done with a request."""
        raise NotImplementedError

    def judge(self, frame: bytes, original: bytes, now: int) -> None:
        """What the rules say to a request, and the request on its way. `original`: as the client sent it."""
        raise NotImplementedError

    def answer(self, original: bytes, answer: bytes, note: str, now: int) -> None:
        """A request that is not forwarded, with its response."""
        _, key, version, correlation = REQUEST(original)
        entry = InFlight(key, version, correlation)
        entry.answer = self.relay.editor.with_cluster(answer, version) if key == METADATA else answer
        if self.relay.plugged is not None:
            entry.plugged = self.relay.plugged.keep(self, original, now, True, hooks=False)
        if note:
            self.note(correlation, note, now)
        self.stand_in(entry, original, now)

    def broker_leg(self, direction: int, frame: bytes, note: str, now: int) -> None:
        """Publish what went over the broker's leg, where it is not what the client has."""
        text = note.encode()
        self.relay.writer.write(
            Kind.BROKER_LEG, self.number, direction, now, len(text).to_bytes(2, "big") + text + frame
        )

    def publish_request(self, frame: bytes, now: int) -> None:
        """Not forwarded: an observer sees the request on the client leg, and so does the count of the stream."""
        self.relay.writer.write(Kind.DATA, self.number, 0, now, frame, 0, self.request.position)
        self.request.position += len(frame)

    def stand_in(self, entry: InFlight, frame: bytes, now: int) -> None:
        """Answer in the broker's place, when the answer's turn has come."""
        self.wait_for_response(entry, frame if entry.exchange is not None or entry.plugged is not None else b"")
        self.publish_request(frame, now)
        self.answer_bytes += len(entry.answer or b"")
        self.deliver(now)

    def respond(self, original: bytes | None, frame: bytes, note: str, now: int) -> None:
        """Deliver a response, past the plugins that want to see it. `original`: as the broker sent it, None if it was
        made here."""
        seen, self._seen = self._seen, None
        plugged = self.relay.plugged
        if seen is None or plugged is None:
            self.give(original, frame, note, now)
        elif not plugged.hold_response(self, seen, original, frame, note, now):
            self.give(original, frame, note, now)
            plugged.tell(self, seen, frame, now)

    def give(self, original: bytes | None, frame: bytes, note: str, now: int) -> None:
        """Give the client its response."""
        if original is not None and frame != original:
            self.broker_leg(1, original, note, now)
        self.response.emit(frame, now)

    def note(self, correlation: int, text: str, now: int) -> None:
        """A comment on an exchange, for the recording."""
        self.relay.writer.write(Kind.NOTE, self.number, 0, now, text.encode(), correlation)

    def answer_is_next(self) -> bool:
        return self.changes > 0 and self._next_answer() is not None

    def _next_answer(self) -> bytes | None:
        head = self.in_flight[0] if self.in_flight else None
        return head.answer if isinstance(head, InFlight) else None

    def owes(self) -> int:
        """Bytes that the client has not taken yet."""
        return self.answer_bytes + len(self.response.pending)

    def deliver(self, now: int) -> None:
        """Send the answers that are next, unless a response is just passing."""
        while self.answer_is_next() and self.response.at_boundary():
            answer = self._next_answer() or b""
            entry = self.take()
            self.answer_bytes -= len(answer)
            self._seen = entry.plugged if isinstance(entry, InFlight) and isinstance(entry.plugged, Seen) else None
            if isinstance(entry, InFlight) and entry.fate is not None and entry.exchange is not None:
                fault_executor.respond(self, entry.fate, entry.exchange, None, answer, "", now)
                self.relay.wake(self.request)
                continue
            self.response.last_id = int.from_bytes(answer[4:8], "big")
            self.respond(None, answer, "", now)
            self.relay.wake(self.request)

    def deliver_all(self, now: int) -> None:
        """No response will come any more: all answers that are left, in order."""
        version_adapter.ended(self)
        while self.in_flight and self.response.at_boundary():
            if self._next_answer() is None:
                self.take()
            self.deliver(now)
