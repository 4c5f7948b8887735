"""The supervisor's side of the control API: its socket, its token, and the channels to the other processes.

Everything is bound and written before any process starts, so that an address that is not available is reported at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import BarnabasError
from ..events import Address, ControlListening, Event, encode, show
from ..relay.addressing.address_map import listen, reason
from .auth import is_loopback

CHANNELS = ("observer", "inspector")
"""The processes that take commands, besides the relays."""


class ControlStartError(BarnabasError):
    """The control API cannot be offered; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """Where the control API is offered: TCP on loopback (`address`, port 0: a free one), or the Unix socket `path`.

    TCP asks for a token: one that is made at the start and written to a file (0600) in `directory`, by default a
    folder of the user's runtime or state directory. On a Unix socket the file's permissions (0600) decide.
    show_values: answers hold keys and values of records, too. keep: how many exchanges can be asked for.
    """

    address: Address = ("127.0.0.1", 0)
    path: Path | None = None
    directory: Path | None = None
    show_values: bool = False
    keep: int = 20_000


@dataclass(frozen=True, slots=True)
class ProxyInfo:
    """What the control server reports of its proxy. processes: pids by name; insecure: settings that weaken security."""

    version: str
    started_ns: int
    show_values: bool
    control: str
    listen: Address
    upstream: Address
    processes: dict[str, int]
    metrics: Address | None
    insecure: list[str]


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """What the control server is given as it starts.

    relays: the names of the workers, in their order. listener, channels, bells: descriptors; channels and bells by process.
    """

    relays: tuple[str, ...]
    listener: int
    unix: bool
    token: str
    channels: dict[str, int]
    bells: dict[str, int]
    info: ProxyInfo


@dataclass(frozen=True, slots=True)
class ControlAccess:
    """How to reach a control API. `url`: "http://HOST:PORT" or "unix:PATH"; `token` "" where none is needed."""

    url: str
    token: str
    token_file: str


def runtime_directory() -> Path:
    """The user's folder for tokens and descriptions of running proxies."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and os.path.isdir(given) and os.access(given, os.W_OK):
        return Path(given) / "barnabas"
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "barnabas"


class ControlStart:
    """Made before the processes start. `close` it when they have their descriptors, `end` it when the proxy has stopped."""

    def __init__(self, config: ControlConfig, relays: Sequence[str] = ("relay",)) -> None:
        self.config = config
        self._relays = tuple(relays)
        self._files: list[Path] = []
        self._pairs: dict[str, tuple[socket.socket, socket.socket]] = {}
        self._missed = 0
        self.control: socket.socket | None = None
        """The supervisor's end of the control server's socket, once it runs."""
        self._listener = self._listen()
        try:
            token = "" if config.path is not None else secrets.token_urlsafe(32)
            self.access = self._publish(token)
            self.make_pairs()
        except OSError as error:
            self.close()
            self.end()
            raise ControlStartError(f"cannot write the token of the control API: {reason(error)}") from None

    def _listen(self) -> socket.socket:
        if self.config.path is not None:
            return self._listen_at(self.config.path)
        host, port = self.config.address
        if not is_loopback(host):
            raise ControlStartError(
                f"the control API is for this machine only, and {host} is not a loopback address: give --control "
                "127.0.0.1:PORT, or --control unix:PATH"
            )
        try:
            return listen((host, port))
        except (OSError, OverflowError, UnicodeError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise ControlStartError(
                f"cannot offer the control API on {show((host, port))}: {why}; choose another with --control"
            ) from None

    def _listen_at(self, path: Path) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        try:
            if path.exists() and stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
                path.unlink()  # left behind by a proxy that was killed
            before = os.umask(0o177)
            try:
                sock.bind(str(path))
            finally:
                os.umask(before)
            sock.listen(128)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            why = "AF_UNIX path too long" if error.errno is None else reason(error)
            raise ControlStartError(
                f"cannot offer the control API on {path}: {why}; choose another path with --control unix:PATH"
            ) from None
        self._files.append(path)
        return sock

    def _publish(self, token: str) -> ControlAccess:
        """Write the token, and a description by which `barnabas control` finds this proxy."""
        directory = self.config.directory or runtime_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.config.path is not None:
            url = f"unix:{self.config.path.absolute()}"
            name = f"control-{os.getpid()}-{secrets.token_hex(3)}"
        else:
            where: Address = self._listener.getsockname()[:2]
            url, name = f"http://{show(where)}", f"control-{where[1]}"
        token_file = ""
        if token:
            token_file = str(self._write(directory / f"{name}.token", token + "\n"))
        access = ControlAccess(url, token, token_file)
        description = {"url": url, "token_file": token_file, "pid": os.getpid(), "started": time.time()}
        self._write(directory / f"{name}.json", json.dumps(description) + "\n")
        return access

    def _write(self, path: Path, text: str) -> Path:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of a proxy that was killed: the port is ours now
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
        self._files.append(path)
        return path.absolute()

    @property
    def event(self) -> ControlListening:
        return ControlListening(self.access.url, self.access.token_file)

    @property
    def address(self) -> Address | None:
        """Where it listens; None on a Unix socket."""
        if self.config.path is not None:
            return None
        host, port = self._listener.getsockname()[:2]
        return host, port

    # -- the processes ---------------------------------------------------------------------------------------

    def make_pairs(self) -> None:
        """Make new channels between the control server and the others."""
        for name in (*self._relays, *CHANNELS):
            self._pairs[name] = socket.socketpair()

    def process_end(self, name: str) -> int:
        """The descriptor of a process's end of its channel."""
        return self._pairs[name][1].fileno()

    def fds(self, name: str) -> list[int]:
        """The descriptors that it needs for that."""
        return [self._pairs[name][1].fileno()]

    def server(
        self,
        bells: dict[str, int],
        *,
        listen: Address,
        upstream: Address,
        processes: dict[str, int],
        metrics: Address | None,
        insecure: list[str],
    ) -> tuple[ControlSettings, list[int]]:
        """Settings and descriptors of the control server. bells: descriptors that wake the readers of the ring."""
        channels = {name: self._pairs[name][0].fileno() for name in self._pairs}
        info = ProxyInfo(
            __version__, time.time_ns(), self.config.show_values, self.access.url, listen, upstream, processes, metrics, insecure
        )
        listener, unix = self._listener.fileno(), self.config.path is not None
        settings = ControlSettings(self._relays, listener, unix, self.access.token, channels, bells, info)
        return settings, [listener, *channels.values(), *bells.values()]

    @contextlib.contextmanager
    def replacement(self, name: str) -> Iterator[None]:
        """A new channel to a process that begins in the place of another; `introduce` it before the end."""
        self._pairs[name] = pair = socket.socketpair()
        try:
            yield
        finally:
            for sock in pair:
                sock.close()

    def introduce(self, name: str) -> None:
        """Send the control server its end of the channel to that process."""
        if self.control is not None:
            packet = json.dumps({"channel": name}).encode()
            with contextlib.suppress(OSError):
                socket.send_fds(self.control, [packet], [self._pairs[name][0].fileno()], socket.MSG_DONTWAIT)

    def send_event(self, event: Event) -> None:
        """Send an event to the control server. Events that it has no room for are counted, and the count is sent with the
        next."""
        if self.control is None:
            return
        try:
            self.control.send(encode(event), socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._missed += 1
            return
        except OSError:
            return
        if self._missed:
            with contextlib.suppress(OSError):
                self.control.send(json.dumps({"missed": self._missed}).encode(), socket.MSG_DONTWAIT)
                self._missed = 0

    def close_pairs(self) -> None:
        """Close our copies: the processes have theirs."""
        for pair in self._pairs.values():
            for sock in pair:
                sock.close()

    def close(self) -> None:
        """No control server will be started any more."""
        self.close_pairs()
        self._listener.close()

    def end(self) -> None:
        """Remove the socket, the token and the description."""
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def insecure(config: Any) -> list[str]:
    """The settings of a proxy (`ProxyConfig`) that weaken security, in words."""
    found: list[str] = []
    if config.tls is not None and config.tls.broker_insecure:
        found.append("certificates of brokers are not verified")
    if config.tls is not None and config.tls.keylog is not None:
        found.append("TLS session keys are written to a file")
    if config.control is not None and config.control.show_values:
        found.append("the control API shows keys and values of records")
    if not is_loopback(config.listen[0]):
        found.append("clients of other machines can connect")
    return found


def running(directory: Path | None = None) -> list[ControlAccess]:
    """The control APIs of this user's running proxies, the newest first."""
    found: list[tuple[float, ControlAccess]] = []
    folder = directory or runtime_directory()
    for path in folder.glob("control-*.json"):
        try:
            description = json.loads(path.read_text())
            os.kill(int(description["pid"]), 0)
            token = Path(description["token_file"]).read_text().strip() if description["token_file"] else ""
            found.append((float(description["started"]), ControlAccess(description["url"], token, description["token_file"])))
        except (OSError, ValueError, KeyError):
            continue  # of a proxy that is gone
    return [access for _, access in sorted(found, key=lambda each: -each[0])]
