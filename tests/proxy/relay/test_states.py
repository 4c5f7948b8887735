"""Every state of a connection meets everything that may happen to it: another state, or nothing at all."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from barnabas.proxy.native.accelerator import native
from barnabas.proxy.relay.connections.connection import Connection
from barnabas.proxy.relay.connections.half_connection import MOVES, HalfConnection
from barnabas.proxy.relay.connections.states import (
    FLOWING,
    TRANSITIONS,
    ConnectionState,
    HalfConnectionState,
    WrongState,
    follow,
)
from torture.proxy.peers.stepped_relay import BROKER, SteppedRelay

ACCEPTED, CONNECTING, SECURING, OPEN, BREAKING, UNREACHED, CLOSED = ConnectionState

EVENTS: dict[str, Callable[[Connection], None]] = {
    "no such name": lambda connection: connection.resolved(OSError("no such name")),
    "a name without addresses": lambda connection: connection.resolved([]),
    "connected": lambda connection: connection.connected(),
    "logged in": lambda connection: connection.stand(),
    "out of time": lambda connection: connection.unreachable(TimeoutError("timed out")),
    "TLS refused": lambda connection: connection.give_up("tls"),
    "a socket takes nothing": lambda connection: connection.sink_failed(connection.request),
    "closed": lambda connection: connection.close("fin"),
    "reset": lambda connection: connection.close("rst"),
}
EFFECTS = {
    ACCEPTED: {"no such name": UNREACHED, "a name without addresses": UNREACHED, "out of time": UNREACHED, "TLS refused": UNREACHED},
    CONNECTING: {"connected": OPEN, "out of time": UNREACHED, "TLS refused": UNREACHED},
    SECURING: {"logged in": OPEN, "out of time": UNREACHED, "TLS refused": UNREACHED},
    OPEN: {"a socket takes nothing": CLOSED},
    BREAKING: {},
    UNREACHED: {},
    CLOSED: {},
}
"""What is not named here changes nothing. Whatever a connection is, it can be closed."""


@pytest.fixture
def relay() -> Iterator[SteppedRelay]:
    made = SteppedRelay()
    yield made
    for connection in list(made.connections.values()):
        connection.close("rst")
    made.shut()


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    near.setblocking(False)
    return near, far


def brought(relay: SteppedRelay, state: ConnectionState, ends: list[socket.socket]) -> Connection:
    """A connection in this state, by the way that leads there."""
    (client, one), (upstream, other) = pair(), pair()
    ends += one, other
    connection = Connection(relay, 1, client, ("127.0.0.1", 50000), BROKER)
    relay.connections[1] = connection
    if state is ACCEPTED:
        upstream.close()
        return connection
    connection.upstream = upstream
    if state is UNREACHED:
        connection.give_up("tls")
        return connection
    if state is CLOSED:
        connection.close("fin")
        return connection
    connection.state = CONNECTING
    if state in (OPEN, BREAKING):
        connection.connected()
    if state in (SECURING, BREAKING):
        connection.state = follow(connection.state, state)
    return connection


@pytest.mark.parametrize(("state", "event"), [(s, e) for s, e in product(ConnectionState, EVENTS)], ids=lambda v: getattr(v, "name", v))
def test_what_happens_in_each_state(relay: SteppedRelay, state: ConnectionState, event: str) -> None:
    ends: list[socket.socket] = []
    connection = brought(relay, state, ends)
    assert connection.state is state
    EVENTS[event](connection)
    expected = CLOSED if event in ("closed", "reset") else EFFECTS[state].get(event, state)
    assert connection.state is expected
    assert connection.established == (expected in FLOWING)
    assert (1 in relay.connections) == (expected is not CLOSED)
    for end in ends:
        end.close()


@pytest.mark.parametrize("state", [*ConnectionState, *HalfConnectionState], ids=lambda state: f"{type(state).__name__} {state.name}")
def test_no_state_follows_that_may_not(state: Any) -> None:
    for then in type(state):
        if then in TRANSITIONS[state]:
            assert follow(state, then) is then
        else:
            with pytest.raises(WrongState, match=rf"cannot be {then.name} after {state.name}"):
                follow(state, then)
    assert state.name == "CLOSED" or type(state).CLOSED in TRANSITIONS[state]


HALF_EVENTS: dict[str, Callable[[HalfConnection], object]] = {
    "something to read": lambda half: half.pump(),
    "the source ends": lambda half: half.ended(1),
    "the sink takes more": lambda half: half.flush(),
    "the connection is closed": lambda half: half.connection.close("fin"),
}
HALF_EFFECTS = {
    HalfConnectionState.FLOWING: {"the source ends": HalfConnectionState.DONE},
    HalfConnectionState.ENDED: {"the sink takes more": HalfConnectionState.DONE},
}


@pytest.mark.parametrize("event", HALF_EVENTS)
@pytest.mark.parametrize("state", HalfConnectionState, ids=lambda state: state.name)
def test_what_happens_to_a_half(relay: SteppedRelay, state: HalfConnectionState, event: str) -> None:
    ends: list[socket.socket] = []
    waits = state is HalfConnectionState.WAITING
    half = brought(relay, CONNECTING if waits else OPEN, ends).request
    for then in (HalfConnectionState.ENDED, HalfConnectionState.DONE):
        if state in (HalfConnectionState.ENDED, HalfConnectionState.DONE) and half.state < state:
            half.enter(then)
    if state is HalfConnectionState.CLOSED:
        half.connection.close("fin")
    assert half.state == state
    if event == "the source ends" and state is not HalfConnectionState.FLOWING:
        with pytest.raises(WrongState):
            half.ended(1)
    else:
        HALF_EVENTS[event](half)
        closed = event == "the connection is closed"
        assert half.state == (HalfConnectionState.CLOSED if closed else HALF_EFFECTS.get(state, {}).get(event, state))
    for end in ends:
        end.close()


@pytest.mark.skipif(native is None, reason="the accelerator is not built")
def test_the_accelerator_has_the_same_fields_and_numbers() -> None:
    assert MOVES
    half = native.HalfConnectionFields()  # type: ignore[union-attr]
    for state in HalfConnectionState:
        half.state = state
        assert half.state == state
