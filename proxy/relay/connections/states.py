"""The life of a connection and of its two halves as states, and which may follow which."""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import TypeVar


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
    """The broker was not reached; the client's first requests are read before it is closed (`unreachable_broker`)."""
    CLOSED = auto()
    """Both sockets are closed."""


class HalfConnectionState(IntEnum):
    """What one direction is doing. The accelerator has the same numbers (`setup.py`)."""

    WAITING = 0
    """For the connection to be open."""
    FLOWING = 1
    """Bytes come from the source and go to the sink."""
    ENDED = 2
    """The source has ended; what the sink has not taken yet still goes there."""
    DONE = 3
    """The end was passed on to the sink (FIN)."""
    CLOSED = 4
    """The connection is closed."""


_C, _H = ConnectionState, HalfConnectionState
TRANSITIONS: dict[Enum, frozenset[Enum]] = {
    # Another bootstrap broker is looked up in place of one that cannot be reached: ACCEPTED again.
    _C.ACCEPTED: frozenset({_C.ACCEPTED, _C.CONNECTING, _C.UNREACHED, _C.CLOSED}),
    _C.CONNECTING: frozenset({_C.ACCEPTED, _C.SECURING, _C.UNREACHED, _C.CLOSED}),
    _C.SECURING: frozenset({_C.ACCEPTED, _C.OPEN, _C.UNREACHED, _C.CLOSED}),
    _C.OPEN: frozenset({_C.BREAKING, _C.CLOSED}),
    _C.BREAKING: frozenset({_C.CLOSED}),
    _C.UNREACHED: frozenset({_C.CLOSED}),
    _C.CLOSED: frozenset(),
    _H.WAITING: frozenset({_H.FLOWING, _H.CLOSED}),
    _H.FLOWING: frozenset({_H.ENDED, _H.CLOSED}),
    _H.ENDED: frozenset({_H.DONE, _H.CLOSED}),
    _H.DONE: frozenset({_H.CLOSED}),
    _H.CLOSED: frozenset(),
}
FLOWING = frozenset({_C.OPEN, _C.BREAKING})
"""States of a connection in which there are bytes of the client on their way."""

S = TypeVar("S", ConnectionState, HalfConnectionState)


class WrongState(Exception):
    """A connection, or a half of it, was to go from one state to another that cannot follow it: a mistake in the proxy."""


def follow(now: S, then: S) -> S:
    """`then`, if that may follow; WrongState if not."""
    if then not in TRANSITIONS[now]:
        raise WrongState(f"a {type(now).__name__} cannot be {then.name} after {now.name}")
    return then
