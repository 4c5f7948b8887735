"""What happens on connections, in one order: the events of `Connection` and those of TCP around them.

A capture gives them (`captures.Capture.events`), the proxy's inspector gives them live, detectors take them
(`findings.Inspector.feed`). Times are nanoseconds since the epoch; addresses are ``host:port``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.frame import Direction
from .connection import ExchangeDone, Opaque, RequestSeen


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection began. `established` is False for one that was tried in vain (a SYN that was refused or got no
    answer); such a one has a `Closed`, and nothing in between. `complete`: what of it is not told did not pass, or is told as
    `Missing`; a capture of packets may just end, or have been put together, without saying so. `tls`: the legs that are known to
    be encrypted, "client" (to the proxy that recorded it) and "broker" (from there on); a connection without a proxy is both."""

    connection: int
    client: str
    broker: str
    time_ns: int
    established: bool = True
    complete: bool = True
    tls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NonKafkaData:
    """Bytes of a connection that are no request or response; see `Opaque`."""

    connection: int
    opaque: Opaque


@dataclass(frozen=True, slots=True)
class Missing:
    """`size` bytes of a direction were not captured. `unread`: bytes that were, and belong to frames whose beginning was
    not, or answer requests that were not."""

    connection: int
    direction: Direction
    size: int
    time_ns: int
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection ended.

    `how`: "fin", "rst", "refused" (RST in answer to the SYN), "unreached" (no answer to the SYN), "login" or "tls" (see `NEVER_ESTABLISHED`), or "" when what
    was captured ends before the connection does. `by`: who ended it, "client" or "broker", "plugin NAME" or
    "control API" where that told the proxy to, "" when not known.
    """

    connection: int
    time_ns: int
    how: str = ""
    by: str = ""


NEVER_ESTABLISHED = ("refused", "unreached", "login", "tls")
"""How connections end that were never established. The last two are the proxy's own doing: the broker did not take its login,
or its TLS handshake with the broker failed."""

ConnectionEvent = Opened | RequestSeen | ExchangeDone | NonKafkaData | Missing | Closed
