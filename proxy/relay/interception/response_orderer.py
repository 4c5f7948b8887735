"""What a client is given, in its order: responses as they come, and answers that were made here instead of a broker's response.

An answer is delivered when everything before it has been (`correlation`), and not into the middle of a response that is just
passing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....plugins.answers.responses import METADATA
from ..connections.correlation import REQUEST, InFlight
from ..interfaces import HookedRequest
from ..negotiation import version_adaptation
from .rules import fault_executor

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface


class ResponseOrderer:
    """The client's side of one connection."""

    def __init__(self, connection: ConnectionInterface) -> None:
        self._connection = connection
        self.hooked: HookedRequest | None = None
        """The request for plugins, of the response that is on its way just now."""

    def answer(self, original: bytes, answer: bytes, note: str, now: int) -> None:
        """A request that is not forwarded, with its response. Frames with their sizes."""
        connection = self._connection
        relay = connection.relay
        _, key, version, correlation = REQUEST(original)
        entry = InFlight(key, version, correlation)
        entry.answer = relay.editor.with_cluster(answer, version) if key == METADATA else answer
        if relay.plugins is not None:
            entry.hooked = relay.plugins.keep(connection, original, now, True, hooks=False)
        if note:
            connection.note(correlation, note, now)
        self.stand_in(entry, original, now)

    def stand_in(self, entry: InFlight, frame: bytes, now: int) -> None:
        """Answer in the broker's place, when the answer's turn has come."""
        connection = self._connection
        connection.correlation.wait_for(entry, frame if entry.exchange is not None or entry.hooked is not None else b"")
        connection.publish_request(frame, now)
        connection.answer_bytes += len(entry.answer or b"")
        self.deliver(now)

    def respond(self, original: bytes | None, frame: bytes, note: str, now: int) -> None:
        """Deliver a response, past the plugins that want to see it. `original`: as the broker sent it, None if it was
        made here."""
        hooked, self.hooked = self.hooked, None
        connection = self._connection
        plugins = connection.relay.plugins
        if hooked is None or plugins is None:
            self.give(original, frame, note, now)
        elif not plugins.hold_response(connection, hooked, original, frame, note, now):
            self.give(original, frame, note, now)
            plugins.notify(connection, hooked, frame, now)

    def give(self, original: bytes | None, frame: bytes, note: str, now: int) -> None:
        """Give the client its response."""
        if original is not None and frame != original:
            self._connection.broker_leg(1, original, note, now)
        self._connection.response.emit(frame, now)

    def is_next(self) -> bool:
        """Whether the next in the queue is an answer."""
        return self._connection.correlation.next_answer() is not None

    def owes(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._connection.answer_bytes + len(self._connection.response.pending)

    def deliver(self, now: int) -> None:
        """Send the answers that are next, unless a response is just passing."""
        connection = self._connection
        queue, response = connection.correlation, connection.response
        while (answer := queue.next_answer()) is not None and response.at_boundary():
            entry = queue.take()
            connection.answer_bytes -= len(answer)
            self.hooked = entry.hooked if isinstance(entry, InFlight) and isinstance(entry.hooked, HookedRequest) else None
            if isinstance(entry, InFlight) and entry.faults is not None and entry.exchange is not None:
                fault_executor.respond(connection, entry.faults, entry.exchange, None, answer, "", now)
            else:
                response.last_id = int.from_bytes(answer[4:8], "big")
                self.respond(None, answer, "", now)
            connection.relay.wake(connection.request)

    def deliver_all(self, now: int) -> None:
        """No response will come any more: all answers that are left, in order."""
        connection = self._connection
        version_adaptation.ended(connection)
        while connection.in_flight and connection.response.at_boundary():
            if connection.correlation.next_answer() is None:
                connection.correlation.take()
            self.deliver(now)
