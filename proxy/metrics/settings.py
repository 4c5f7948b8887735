"""The settings of the meter process, and its sockets, which are bound before it starts.

So an address that is not available is reported at once, and port 0 has become a number before anybody asks.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import BarnabasError
from .. import events
from ..events import Address, WorkerEnded, show
from ..relay.addressing.address_map import reason
from ..ring.merged_rings import RingAccess
from ..ring.wakeup import new_bell
from .feed import layout as feed_layout

SEND_BYTES = 4 << 20
BY = ("client", "topic")
"""What metrics can also be counted by."""
COUNTED_EVENTS = (
    events.Recording,
    events.RecordingFailed,
    events.Counts,
    events.NotInspected,
    events.FindingSeen,
    events.RuleHit,
    events.ProcessFailed,
    WorkerEnded,
)
"""Events of the other processes that the meter counts (`registry.ProcessEvents`), and warnings, by their kind."""


class MeterError(BarnabasError):
    """The meter cannot be started; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Where metrics go; with nothing set there is no meter.

    feed: where the live feed listens (UDP). feed_token: what subscribers must know, "" for a new random one. metrics:
    where `GET /metrics` is served. metrics_by: what to count by as well (of `BY`). Port 0
    takes any free port.
    """

    feed: Address | None = None
    feed_token: str = ""
    metrics: Address | None = None
    metrics_by: tuple[str, ...] = ()

    @property
    def wanted(self) -> bool:
        """Whether a meter is needed."""
        return not (self.feed is None and self.metrics is None)


@dataclass(frozen=True, slots=True)
class MeterSettings:
    """What the meter is given as it starts.

    feed, metrics: descriptors of its sockets, None for what is not wanted. datagram: most bytes of one of the
    feed. The others are as in `MeterConfig`.
    """

    access: RingAccess
    feed: int | None
    metrics: int | None
    feed_token: str
    datagram: int
    metrics_by: Sequence[str]


class MeterSockets:
    """The bound sockets. MeterError when an address is not available. `close` when the meter has them."""

    def __init__(self, config: MeterConfig) -> None:
        self.feed_token = config.feed_token or secrets.token_urlsafe(16)
        self.feed: Address | None = None
        self.metrics: Address | None = None
        self.bell = -1
        self._sockets: dict[str, socket.socket] = {}
        self._datagram = feed_layout.LOOPBACK_DATAGRAM
        if len(self.feed_token.encode()) > feed_layout.MAX_TOKEN:
            raise MeterError(f"the feed's token is longer than {feed_layout.MAX_TOKEN} bytes")
        try:
            if config.feed is not None:
                sock = self._open("feed", config.feed, socket.SOCK_DGRAM, "--feed")
                self.feed = sock.getsockname()[:2]
                if not feed_layout.is_loopback(self.feed[0]):
                    self._datagram = feed_layout.DATAGRAM
            if config.metrics is not None:
                sock = self._open("metrics", config.metrics, socket.SOCK_STREAM, "--metrics")
                self.metrics = sock.getsockname()[:2]
        except MeterError:
            self.close()
            raise
        self._config = config
        self.bell = new_bell()

    def _open(self, name: str, address: Address, kind: socket.SocketKind, option: str) -> socket.socket:
        """A bound socket."""
        host, port = address
        sock = None
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)[0]
            sock = socket.socket(family, kind)
            if kind == socket.SOCK_STREAM:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(where)
                sock.listen(64)
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
                sock.bind(where)
        except (OSError, UnicodeError, OverflowError) as error:
            if sock is not None:
                sock.close()
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise MeterError(f"cannot listen on {show(address)}: {why}; choose another address with {option}") from None
        self._sockets[name] = sock
        return sock

    def settings(self, access: RingAccess) -> MeterSettings:
        """The settings of the meter process."""
        feed, metrics = (self._sockets[name].fileno() if name in self._sockets else None for name in ("feed", "metrics"))
        return MeterSettings(access, feed, metrics, self.feed_token, self._datagram, self._config.metrics_by)

    @property
    def fds(self) -> list[int]:
        """The descriptors of the sockets."""
        return [sock.fileno() for sock in self._sockets.values()]

    @property
    def event(self) -> events.MeterListening:
        """The event that says where it can be reached."""
        return events.MeterListening(self.feed, self.metrics)

    def close_sockets(self) -> None:
        """Close our copies of the sockets, but not the bell, which workers started later need."""
        for sock in self._sockets.values():
            sock.close()

    def close(self) -> None:
        """Close our copies of the sockets, and the bell."""
        self.close_sockets()
        if self.bell >= 0:
            os.close(self.bell)
            self.bell = -1


def is_counted(event: events.Event) -> bool:
    """Whether the meter counts such events."""
    return event.warning or isinstance(event, COUNTED_EVENTS)


def token_file(port: int) -> Path:
    """Where the token of the feed on a port of this machine is left for programs of the same user."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "barnabas" if runtime else Path(tempfile.gettempdir()) / f"barnabas-{os.getuid()}"
    return folder / f"feed-{port}.token"


def store_token(port: int, token: str) -> Path | None:
    """Write the token (0600, in a folder that only this user can use); None when that is impossible."""
    path = token_file(port)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _ours(path.parent):
            return None
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
    except OSError:
        return None
    return path


def stored_token(port: int) -> str | None:
    """What `leave_token` wrote; None if there is nothing, or if another user could have written it."""
    path = token_file(port)
    try:
        if not _ours(path.parent):
            return None
        return path.read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _ours(folder: Path) -> bool:
    stat = folder.lstat()
    return stat.st_uid == os.getuid() and not stat.st_mode & 0o077 and folder.is_dir()
