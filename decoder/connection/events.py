"""Events of connections in one order: those of `Connection`, and those of TCP around them.

A capture gives them (`captures.Capture.events`), the proxy's inspector gives them live, detectors take them
(`findings.Inspector.feed`). Times are nanoseconds since the epoch; addresses are ``host:port``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.frame import Direction
from .connection import ExchangeDone, Opaque, RequestSeen


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection began.

    `established`: False for an attempt that failed (the SYN was refused or got no answer); then only a `Closed` follows.
    `complete`: whatever is not reported is reported as `Missing`; a capture of packets may end, or have been merged, without
    saying so. `tls`: the legs known to be encrypted, "client" (to the recording proxy) and "broker" (from there on); both
    without a proxy.
    """

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
    """`size` bytes of a direction were not captured. `unread`: bytes that were captured, but belong to frames whose beginning
    was not, or answer requests that were not."""

    connection: int
    direction: Direction
    size: int
    time_ns: int
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection ended.

    `how`: "fin", "rst", "refused" (RST in answer to the SYN), "unreached" (no answer to the SYN), "login" or "tls" (see
    `NEVER_ESTABLISHED`), or "" where the capture ends first. `by`: who ended it: "client", "broker", or the one that asked the
    proxy to ("plugin NAME", "control API"); "" when not known. `half`: the other side has not ended, so more may come, and
    a second `Closed` does.
    """

    connection: int
    time_ns: int
    how: str = ""
    by: str = ""
    half: bool = False


HALF_CLOSED_NS = 10**9
"""When a connection that one side has ended counts as closed. Brokers and clients follow within milliseconds, if they do."""
NEVER_ESTABLISHED = ("refused", "unreached", "login", "tls")
"""How connections end that were never established. In the last two the proxy failed: the broker refused its login, or the TLS
handshake between them failed."""

ConnectionEvent = Opened | RequestSeen | ExchangeDone | NonKafkaData | Missing | Closed
