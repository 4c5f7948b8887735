"""Carrying out what a rule has decided for an exchange (`plugins.actions.fault_plan`): waiting, cutting, damaging, falling silent.

Order is kept as TCP keeps it: a frame that waits stops its own direction of its own connection, nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .....decoder import Exchange
from .....plugins.actions.fault_plan import FOREVER, ConnectionCut, CutPoint, FaultPlan, damaged
from ....ring.clock import now_ns
from .impaired_sockets import BlackholeSocket, ThrottledSocket

if TYPE_CHECKING:
    from ...interfaces import ConnectionInterface, HalfConnectionInterface

SENT_WITHIN = 5.0
"""Seconds for what stands before a cut to be taken by its receiver."""
LOOK_AGAIN_NS = 2_000_000


def wait(half: HalfConnectionInterface, ns: int, then: Callable[[int], None], since: int | None = None, size: int = 0) -> None:
    """Stop a half for so long, then call `then` with the time and let the half go on. `since`: when that began, with what
    was done in between being part of it; None: now. `size`: bytes of frames that are held meanwhile."""
    if since is not None:
        ns -= min(max(now_ns() - since, 0), ns)  # the clock may have been set
    half.connection.relay.timers.after(ns, pause(half, then, size))


def pause(half: HalfConnectionInterface, then: Callable[[int], None], size: int = 0) -> Callable[[], None]:
    """Stop a half until the function that this returns is called: that calls `then` with the time and lets the half go on."""
    connection = half.connection
    half.paused = True
    half.waits += 1
    connection.relay.held += size

    def over() -> None:
        connection.relay.held -= size
        if connection.closed:
            return
        half.waits -= 1
        now = now_ns()
        then(now)
        go_on(half, now)

    return over


def go_on(half: HalfConnectionInterface, now: int) -> None:
    """The half goes on, if nothing else stops it."""
    connection = half.connection
    if half.waits or not half.open or connection.relay.intercepts.holds(half):
        return
    half.paused = False
    if half.direction:
        connection.response_orderer.deliver(now)
    if half.open and not half.paused:
        half.filter_frames(b"", now)
        connection.relay.wake(half)


def subtract_elapsed(faults: FaultPlan, since: int) -> None:
    """What deciding took is part of the delay: the exchange takes so much longer than it would without the rule."""
    if faults.response_delay:
        faults.response_delay -= min(max(now_ns() - since, 0), faults.response_delay)


def _nothing(now: int) -> None:
    pass


def cut(connection: ConnectionInterface, how: ConnectionCut, half: HalfConnectionInterface) -> None:
    """End the connection, as soon as what the half has to send is sent."""
    deadline = time.monotonic() + SENT_WITHIN

    def look() -> None:
        if connection.closed:
            return
        if half.pending and half.open and time.monotonic() < deadline:
            connection.relay.timers.after(LOOK_AGAIN_NS, look)
        else:
            connection.close("rst" if how.reset else "fin")

    look()


def apply_to_request(connection: ConnectionInterface, faults: FaultPlan, frame: bytes, original: bytes, now: int) -> bool:
    """What happens before a request goes on; whether it does not go on after that."""
    if faults.rates != (0, 0):
        pace(connection, faults.rates)
    if faults.silence == FOREVER:
        if faults.silent[0]:
            # The client has given up, and nobody else will ever end it.
            given_up = partial(connection.relay.timers.after, 0, partial(connection.close, "fin"))
            connection.request.sink = BlackholeSocket(connection.request.sink, given_up)  # type: ignore[assignment]
        if faults.silent[1]:
            connection.response.sink = BlackholeSocket(connection.response.sink, lambda: None)  # type: ignore[assignment]
        if faults.silent[0]:
            connection.publish_request(original, now)
            return True
    if faults.cut is not None and faults.cut.at in (CutPoint.BEFORE_REQUEST, CutPoint.MID_REQUEST):
        connection.publish_request(original, now)
        if faults.cut.at is CutPoint.MID_REQUEST:
            connection.request.push(frame[: len(frame) // 2])
        cut(connection, faults.cut, connection.request)
        return True
    if faults.drop_request:
        connection.publish_request(original, now)
        return True
    return False


def silence(connection: ConnectionInterface, faults: FaultPlan, then: Callable[[int], None], size: int = 0) -> None:
    """Let nothing pass for a while, then call `then` and go on."""
    if faults.silent[1]:
        wait(connection.response, faults.silence, _nothing)
    if faults.silent[0]:
        wait(connection.request, faults.silence, then, size=size)
    else:
        then(now_ns())


def pace(connection: ConnectionInterface, rates: tuple[int, int]) -> None:
    """Limit the bytes a second of the connection's directions."""
    relay = connection.relay
    for half, rate in zip((connection.request, connection.response), rates, strict=True):
        if not rate:
            continue
        if isinstance(half.sink, ThrottledSocket):
            half.sink.rate = rate
            continue

        def later(seconds: float, half: HalfConnectionInterface = half) -> None:
            relay.timers.after(int(seconds * 1e9), lambda: relay.drained(half))

        half.sink = ThrottledSocket(half.sink, rate, later)  # type: ignore[assignment]


def respond(
    connection: ConnectionInterface, faults: FaultPlan, exchange: Exchange, original: bytes | None, frame: bytes, note: str, now: int
) -> None:
    """Give the client its response as the fault plan wants it. `original`: the broker's, None if it was made here. With sizes."""
    if faults.response_delay:
        wait(
            connection.response,
            faults.response_delay,
            lambda later: _respond(connection, faults, exchange, original, frame, note, later),
            now,
            len(frame),
        )
    else:
        _respond(connection, faults, exchange, original, frame, note, now)


def _respond(
    connection: ConnectionInterface, faults: FaultPlan, exchange: Exchange, original: bytes | None, frame: bytes, note: str, now: int
) -> None:
    at = faults.cut.at if faults.cut is not None else None
    data = damaged(frame, faults.damage) if faults.damage else frame
    if at is CutPoint.MID_RESPONSE:
        data = data[: max(len(data) // 2, 1)]
    elif at is CutPoint.BEFORE_RESPONSE or faults.drop_response:
        data = b""
    if data:
        connection.response.last_id = int.from_bytes(frame[4:8], "big")
    if data and not faults.damage and at is None:
        connection.response_orderer.respond(original, data, note, now)
    else:
        if original is not None and data != original:
            connection.broker_leg(1, original, note, now)
        if data:
            connection.response.emit(data, now)
    if faults.mute:
        wait(connection.request, faults.mute, _nothing)
    if faults.cut is not None:
        cut(connection, faults.cut, connection.response)
