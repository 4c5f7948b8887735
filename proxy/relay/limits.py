"""Limits of the relay: time to connect, idle time, how many connections, how large a frame.

All are kept off the hot path of the traffic: time once a second, the number of connections at `accept`,
the frame size in the comparison that is made anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...decoder.wire.frame import MAX_FRAME
from .addressing.address_map import EXPIRY_SECONDS, MOST_BROKERS
from .addressing.destinations import Allowed

OVERSIZE = ("pass", "close")


@dataclass(frozen=True, slots=True)
class Limits:
    """connect_seconds: for a connection to a broker. idle_seconds: a connection without a byte in either direction
    for so long is closed; 0: never. max_connections: at one time, 0: as many as the system allows; more wait in the
    listener's backlog. max_frame: bytes; a larger size is no frame, and its connection passes on unread
    (oversize "pass") or is reset ("close"). max_brokers: listeners for brokers at one time. broker_expiry: one whose broker no
    response has named for so many seconds is closed; 0: never. upstream_allow: where the proxy connects to
    (`destinations.Allowed`) besides the bootstrap broker; empty: everywhere.
    """

    connect_seconds: float = 10.0
    idle_seconds: float = 0.0
    max_connections: int = 0
    max_frame: int = MAX_FRAME
    oversize: str = "pass"
    max_brokers: int = MOST_BROKERS
    broker_expiry: float = EXPIRY_SECONDS
    upstream_allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.oversize not in OVERSIZE:
            raise ValueError(f"the action for larger frames must be one of {', '.join(OVERSIZE)}, not {self.oversize!r}")
        if not 1 <= self.max_frame <= MAX_FRAME:
            raise ValueError(f"the maximum frame size must be 1 to {MAX_FRAME} bytes")
        if self.connect_seconds <= 0:
            raise ValueError("the time limit for connecting must be more than 0 seconds")
        if self.idle_seconds < 0 or self.max_connections < 0:
            raise ValueError("a limit must be 0 (none) or more")
        if self.max_brokers < 1 or self.broker_expiry < 0:
            raise ValueError("the limit of brokers must be at least 1, and the expiry of listeners 0 seconds (never) or more")
        for each in self.upstream_allow:
            Allowed.parse(each)
