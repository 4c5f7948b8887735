"""Intercepts: frames that are held in the relay until a person or program decides about them, or their time is up.

A filter selects the requests that are held before they are forwarded, and the responses that are held before they are delivered. A held frame stops its own direction of its own connection, so that order is kept; nothing else waits. The
control server gets its bytes, and it comes back as it was, edited, or not at all. Bounds: `most` frames of
an intercept at one time, `HELD_BYTES` of all, `timeout` seconds each; what is beyond passes and is counted. When the
control server is gone, everything goes on as it came.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....decoder import Exchange
from ....decoder.connection.exchange import State
from ....decoder.connection.hit_notes import ANSWERED_BY_HAND, DROPPED_BY_HAND, EDITED_BY_HAND
from ....decoder.filter import compile, named_zone
from ....diagnostics import contained
from ...events import InterceptHeld, InterceptReleased
from ...processes.control_messages import AddIntercept, FrameHeld, FrameReleased, HeldAction, HeldNotice, InterceptState
from ...ring.clock import now_ns
from .frame_editor import KNOWN
from .held_frames import HeldFrame, Intercept, KeptRequest
from .request_frames import exchange_of

if TYPE_CHECKING:
    from ..connections.correlation import InFlight
    from ..interfaces import ConnectionInterface, HalfConnectionInterface, RelayInterface

HELD_BYTES = 32 << 20
"""Most bytes of frames that wait for a decision, and of requests that are kept for their responses."""
HIGHEST_TIMEOUT = 3600.0
TEXT = 300


class Intercepts:
    """All intercepts of the relay, and what they hold. One per relay."""

    def __init__(self, relay: RelayInterface) -> None:
        self._relay = relay
        self._all: dict[int, Intercept] = {}
        self.held: dict[int, HeldFrame] = {}
        """What waits for a decision, by number."""
        self._intercept_number = 0
        # A held frame's number modulo the number of workers identifies the worker.
        self._number = relay.worker + 1 - relay.workers
        self.bytes = 0

    # -- what is held ----------------------------------------------------------------------------------------

    def interest(self) -> frozenset[int]:
        """Api keys whose requests have to be looked at."""
        found: set[int] = set()
        for intercept in self._all.values():
            keys = intercept.filter.apis()
            found |= KNOWN if keys is None else keys
        return frozenset(found)

    def add(self, wanted: AddIntercept) -> InterceptState:
        """A new intercept; FilterError if its filter is none."""
        selects = compile(wanted.filter, zone=named_zone(wanted.zone))
        self._intercept_number += 1
        timeout = min(wanted.timeout, HIGHEST_TIMEOUT)
        intercept = Intercept(self._intercept_number, selects, wanted.request, wanted.response, timeout, wanted.most, wanted.times)
        if intercept.request:
            selects.require_request_only()
        self._all[intercept.number] = intercept
        self._relay.inline_changed()
        return intercept.state()

    def take(self, states: Iterable[InterceptState]) -> None:
        """Intercepts of another worker, under their numbers; it counts what they hold."""
        for each in states:
            selects = compile(each.filter, zone=named_zone(each.zone))
            self._all[each.id] = Intercept(each.id, selects, each.request, each.response, each.timeout, each.most, each.times_left)
            self._intercept_number = max(self._intercept_number, each.id)
        self._relay.inline_changed()

    def spent(self, number: int) -> None:
        """An intercept has held all that it was to hold, here and at the other workers."""
        intercept = self._all.get(number)
        if intercept is not None:
            intercept.left = 0

    def listed(self) -> list[InterceptState]:
        return [intercept.state() for intercept in self._all.values()]

    def remove(self, number: int) -> bool:
        """Whether there was such an intercept. What it holds goes on."""
        intercept = self._all.pop(number, None)
        if intercept is None:
            return False
        self._relay.inline_changed()
        self.release((held for held in self.held.values() if held.intercept is intercept), "intercept removed")
        return True

    def clear(self, why: str) -> None:
        """No intercepts any more; everything goes on."""
        self._all.clear()
        self._relay.inline_changed()
        self.release(self.held.values(), why)

    def release(self, held: Iterable[HeldFrame], why: str) -> None:
        for each in list(held):
            self._go_on(each, why)

    def tick(self, now: float) -> None:
        """Let go what has waited for too long."""
        self.release((held for held in self.held.values() if now >= held.deadline), "timeout")

    # -- what the connections ask ----------------------------------------------------------------------------

    def hold_request(self, connection: ConnectionInterface, frame: bytes, now: int, original: bytes = b"") -> bool:
        """Whether a request (with its size) is held: then the connection's requests wait. `original`: as the client sent
        it, if plugins have changed it."""
        if not self._all or connection.request.paused:
            return False
        exchange = exchange_of(connection, frame, now)
        for intercept in self._all.values():
            if intercept.request and self._means(intercept, exchange):
                return self._hold(intercept, connection, exchange, original or frame, frame, now)
        return False

    def keep(self, connection: ConnectionInterface, frame: bytes, now: int) -> KeptRequest | None:
        """The request, if its response may have to be held."""
        key = int.from_bytes(frame[4:6], "big")
        for intercept in self._all.values():
            keys = intercept.filter.apis()
            if not intercept.response or (keys is not None and key not in keys):
                continue
            if intercept.filter.request_only and not self._means(intercept, exchange_of(connection, frame, now)):
                continue
            if self.bytes + len(frame) > HELD_BYTES:
                intercept.passed += 1
                continue
            return KeptRequest(frame, now, self)
        return None

    def hold_response(
        self, connection: ConnectionInterface, entry: InFlight, original: bytes, frame: bytes, note: str, now: int
    ) -> bool:
        """Whether a response is held; `frame` is what the client would get."""
        kept = entry.kept
        if not isinstance(kept, KeptRequest) or not self._all or connection.response.paused:
            return False
        exchange = exchange_of(connection, kept.frame, kept.time_ns)
        exchange.response, exchange.response_time_ns, exchange.state = frame[4:], now, State.PAIRED
        for intercept in self._all.values():
            if intercept.response and self._means(intercept, exchange):
                return self._hold(intercept, connection, exchange, original, frame, now, note, kept.frame)
        return False

    def _means(self, intercept: Intercept, exchange: Exchange) -> bool:
        try:
            return (intercept.left is None or intercept.left > 0) and intercept.filter(exchange)
        except Exception as error:  # fail open: the frame goes on, and the list of intercepts has the reason
            contained("the filter of an intercept", error, reported=True)
            intercept.failed = f"{type(error).__name__}: {error}"[:TEXT]
            return False

    def _hold(
        self,
        intercept: Intercept,
        connection: ConnectionInterface,
        exchange: Exchange,
        original: bytes,
        frame: bytes,
        now: int,
        note: str = "",
        request: bytes = b"",
    ) -> bool:
        relay = self._relay
        size = len(original) + len(frame)
        if intercept.held >= intercept.most or self.bytes + size > HELD_BYTES or relay.draining:
            intercept.passed += 1
            return False
        self._number += relay.workers
        notice = HeldNotice(
            id=self._number,
            intercept=intercept.number,
            connection=connection.number,
            client=exchange.client,
            broker=exchange.broker,
            side="request" if exchange.response is None else "response",
            api_key=exchange.api_key,
            api_version=exchange.api_version,
            correlation_id=exchange.correlation_id,
            client_id=exchange.client_id,
            time_ns=now,
            timeout=intercept.timeout,
            request_size=len(request),
        )
        if not relay.commands.notify(FrameHeld(notice), request + frame):
            return False
        held = HeldFrame(notice, intercept, connection, original, frame, time.monotonic() + intercept.timeout, note)
        self.bytes += size
        intercept.held += 1
        if intercept.left is not None:
            intercept.left -= 1
        self.held[held.number] = held
        held.half.paused = True
        relay.emit(
            InterceptHeld(
                held.number, connection.number, held.direction, notice.api_key, notice.correlation_id, intercept.number
            )
        )
        return True

    # -- decisions -------------------------------------------------------------------------------------------

    def decide(self, number: int, action: HeldAction, frame: bytes = b"", how: str = "fin") -> str:
        """Do with a held frame what was decided: "" if it could be, else why not.

        `frame`: what goes on instead, or answers a request, with its size; `how` its connection is closed.
        """
        held = self.held.get(number)
        if held is None:
            return "gone"
        if frame and not held.fits(frame, answer=action is HeldAction.ANSWER):
            return "the frame has a different correlation id, API or version"
        if action is HeldAction.CLOSE:
            connection = held.connection
            self._let_go(held, "closed")
            connection.close(how)
        elif action is HeldAction.DROP:
            self._drop(held)
        elif action is HeldAction.ANSWER and not held.direction:
            if held.connection.correlation.unsure:
                return "the order of responses on this connection is not known yet: resume it, or close the connection"
            self._go_on(held, "answered", answer=frame)
        else:
            self._go_on(held, "edited" if frame and frame != held.frame else "resumed", frame)
        return ""

    def _let_go(self, held: HeldFrame, how: str) -> None:
        del self.held[held.number]
        self.bytes -= len(held.original) + len(held.frame)
        held.intercept.held -= 1
        held.half.paused = bool(held.half.waits)
        self._relay.commands.notify(FrameReleased(held.number, how))
        self._relay.emit(
            InterceptReleased(
                held.number, held.connection.number, held.direction, held.notice.api_key, held.notice.correlation_id, how
            )
        )

    def _go_on(self, held: HeldFrame, how: str, frame: bytes = b"", answer: bytes = b"") -> None:
        connection = held.connection
        self._let_go(held, how)
        now = now_ns()
        if held.direction:
            note = held.note
            if frame and frame != held.frame:
                note = f"{note}, {EDITED_BY_HAND}" if note else EDITED_BY_HAND
            connection.response_orderer.respond(held.original, frame or held.frame, note, now)
            connection.response_orderer.deliver(now)
        elif answer:
            connection.response_orderer.answer(held.original, answer, f"{ANSWERED_BY_HAND}, not forwarded", now)
        else:
            connection.request_interceptor.judge(frame or held.frame, held.original, now)
        self._half_goes_on(held.half, now)

    def _half_goes_on(self, half: HalfConnectionInterface, now: int) -> None:
        if half.open and not half.paused:
            half.filter_frames(b"", now)
            self._relay.wake(half)

    def extend(self, number: int, seconds: float) -> bool:
        """Hold a frame for so long from now on; whether it waits."""
        held = self.held.get(number)
        if held is not None:
            held.deadline = time.monotonic() + min(seconds, HIGHEST_TIMEOUT)
        return held is not None

    def _drop(self, held: HeldFrame) -> None:
        connection = held.connection
        self._let_go(held, "dropped")
        now = now_ns()
        note = DROPPED_BY_HAND
        if held.direction:
            connection.broker_leg(1, held.original, f"{held.note}, {note}" if held.note else note, now)
            connection.response_orderer.deliver(now)
        else:
            connection.note(held.notice.correlation_id & 0xFFFFFFFF, f"{note}, not forwarded", now)
            connection.publish_request(held.original, now)
        self._half_goes_on(held.half, now)

    def holds(self, half: HalfConnectionInterface) -> bool:
        """Whether a frame of this half waits for a decision."""
        return any(each.half is half for each in self.held.values())

    def gone(self, connection: ConnectionInterface) -> None:
        """The connection ends; nothing of it can go on."""
        for held in [each for each in self.held.values() if each.connection is connection]:
            self._let_go(held, "connection closed")

    def free(self, connection: ConnectionInterface) -> None:
        """The connection's frames go on as they came."""
        self.release((each for each in self.held.values() if each.connection is connection), "connection changed")
