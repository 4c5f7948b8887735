"""The life of a connection as states, and which may follow which."""

from __future__ import annotations

from enum import Enum, auto


class ConnectionState(Enum):
    """What a client connection is waiting for, or doing."""

    ACCEPTED = auto()
    """The client is connected. Its TLS handshake, if there is one, is under way, and the broker's name is looked up."""
    CONNECTING = auto()
    """One of the broker's addresses is being connected to."""
    SECURING = auto()
    """The broker is connected. TLS and logins come before the client's bytes."""
    OPEN = auto()
    """Bytes flow in both directions."""
    BREAKING = auto()
    """One socket takes nothing any more; what its peer sent before still goes to the other side, then both are reset."""
    UNREACHED = auto()
    """The broker was not reached; the client is told in Kafka's words (`unreachable_broker`)."""
    CLOSED = auto()
    """Both sockets are closed."""


_S = ConnectionState
TRANSITIONS: dict[ConnectionState, frozenset[ConnectionState]] = {
    # Another bootstrap broker is looked up in place of one that cannot be reached: ACCEPTED again.
    _S.ACCEPTED: frozenset({_S.ACCEPTED, _S.CONNECTING, _S.UNREACHED, _S.CLOSED}),
    _S.CONNECTING: frozenset({_S.ACCEPTED, _S.SECURING, _S.UNREACHED, _S.CLOSED}),
    _S.SECURING: frozenset({_S.ACCEPTED, _S.OPEN, _S.UNREACHED, _S.CLOSED}),
    _S.OPEN: frozenset({_S.BREAKING, _S.CLOSED}),
    _S.BREAKING: frozenset({_S.CLOSED}),
    _S.UNREACHED: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}
FLOWING = frozenset({_S.OPEN, _S.BREAKING})
"""States in which there are bytes of the client on their way."""


class WrongState(Exception):
    """A connection was to go from one state to another that cannot follow it: a mistake in the proxy."""


def follow(now: ConnectionState, then: ConnectionState) -> ConnectionState:
    """`then`, if that may follow; WrongState if not."""
    if then not in TRANSITIONS[now]:
        raise WrongState(f"a connection cannot be {then.name} after {now.name}")
    return then
