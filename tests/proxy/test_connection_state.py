"""Every state of a connection meets everything that may happen to it: another state, or nothing at all."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import product

import pytest
from barnabas.proxy.relay.connection import Connection
from barnabas.proxy.relay.connection_state import FLOWING, TRANSITIONS, ConnectionState, WrongState, follow
from torture.proxy.desk import BROKER, Desk

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
def desk() -> Iterator[Desk]:
    made = Desk()
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


def brought(desk: Desk, state: ConnectionState, ends: list[socket.socket]) -> Connection:
    """A connection in this state, by the way that leads there."""
    (client, one), (upstream, other) = pair(), pair()
    ends += one, other
    connection = Connection(desk, 1, client, ("127.0.0.1", 50000), BROKER)
    desk.connections[1] = connection
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
def test_what_happens_in_each_state(desk: Desk, state: ConnectionState, event: str) -> None:
    ends: list[socket.socket] = []
    connection = brought(desk, state, ends)
    assert connection.state is state
    EVENTS[event](connection)
    expected = CLOSED if event in ("closed", "reset") else EFFECTS[state].get(event, state)
    assert connection.state is expected
    assert connection.established == (expected in FLOWING)
    assert (1 in desk.connections) == (expected is not CLOSED)
    for end in ends:
        end.close()


@pytest.mark.parametrize("state", ConnectionState)
def test_no_state_follows_that_may_not(state: ConnectionState) -> None:
    for then in ConnectionState:
        if then in TRANSITIONS[state]:
            assert follow(state, then) is then
        else:
            with pytest.raises(WrongState, match=rf"cannot be {then.name} after {state.name}"):
                follow(state, then)
    assert state is CLOSED or CLOSED in TRANSITIONS[state]
