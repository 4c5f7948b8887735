"""The proxy as its owner sees it: start it, hear its events, stop it.

    with Proxy(ProxyConfig(upstream=("127.0.0.1", 9092))) as proxy:
        print(proxy.address)
        for event in proxy.events():
            print(event.text)

The relay and the observer are child processes (fresh interpreters, so threads and pytest do not matter). They end
by themselves when this process does, however it ends: each notices that the other end of its control socket is
closed.
"""

from __future__ import annotations

import json
import os
import queue
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from ..plugins.rules import Rule
from .addresses import listen, reason
from .events import Address, Event, Listening, ProcessFailed, decode, show
from .ring import Ring

OBSERVER = 0
"""The observer's number among the readers of the ring."""
RING_BYTES = 16 << 20
LOSSLESS_RING_BYTES = 32 << 20
RING_SLOTS = 32768
OBSERVER_SECONDS = 30.0
"""How long the observer may take to finish the recording: it is niced, so on a starved machine it comes late."""


class ProxyError(Exception):
    """The proxy cannot start; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """What to stand between.

    upstream: (host, port) of a bootstrap broker. listen: where clients connect; with port 0 every listener gets any
    free port, otherwise brokers get the ports that follow. record: directory for recordings, None to only count.
    lossless: the relay waits for the observer instead of dropping what it misses. probe: connect to the broker once
    at the start, to tell early when it cannot be reached. ring_bytes: 0 for the default. drain_seconds: how long
    `stop` waits for responses in flight.
    """

    upstream: Address
    listen: Address = ("127.0.0.1", 0)
    record: Path | None = None
    rules: list[Rule] = field(default_factory=list)
    lossless: bool = False
    probe: bool = True
    ring_bytes: int = 0
    drain_seconds: float = 5.0


class Proxy:
    """One relay with its observer. Not restartable: make a new one."""

    def __init__(self, config: ProxyConfig) -> None:
        self.config = config
        self._address: Address | None = None
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._controls: dict[str, socket.socket] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._lock = threading.Lock()

    @property
    def address(self) -> Address:
        """Where clients connect (the bootstrap listener)."""
        if self._address is None:
            raise ProxyError("the proxy has not been started")
        return self._address

    def start(self) -> Proxy:
        """Listen and start the processes; ProxyError when that is impossible. A broker that cannot be reached is
        not an error: it becomes an event."""
        if self._address is not None:
            raise ProxyError("the proxy has been started already")
        host, port = self.config.listen
        if not 0 <= port < 65536:
            raise ProxyError(f"cannot listen on {show((host, port))}: ports go from 0 to 65535")
        try:
            listener = listen((host, port))
        except OSError as error:
            raise ProxyError(
                f"cannot listen on {show((host, port))}: {reason(error)}; choose another address with --listen"
            ) from None
        except UnicodeError:
            raise ProxyError(f"cannot listen on {host!r}: this is no host name") from None
        if not self.config.upstream[0] or not 0 < self.config.upstream[1] < 65536:
            listener.close()
            raise ProxyError(f"{show(self.config.upstream)} is no broker address: give HOST:PORT with --broker")
        own: Address = listener.getsockname()[:2]
        size = self.config.ring_bytes or (LOSSLESS_RING_BYTES if self.config.lossless else RING_BYTES)
        ring = Ring.create(size, RING_SLOTS)
        bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        room_bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        shared = {"ring": ring.fd, "room_bell": room_bell, "lossless": self.config.lossless}
        try:
            ring.admit(OBSERVER, lossless=self.config.lossless)
            self._start_child(
                "observer",
                shared
                | {
                    "reader": OBSERVER,
                    "bell": bell,
                    "record": None if self.config.record is None else str(self.config.record.absolute()),
                },
                [ring.fd, bell, room_bell],
            )
            self._start_child(
                "relay",
                shared
                | {
                    "bells": {str(OBSERVER): bell},
                    "upstream": self.config.upstream,
                    "listener": listener.fileno(),
                    "fixed_ports": port != 0,
                    "rules": [rule.to_dict() for rule in self.config.rules],
                    "probe": self.config.probe,
                },
                [ring.fd, bell, room_bell, listener.fileno()],
            )
        except OSError as error:
            self._end_children(0.0)
            raise ProxyError(f"cannot start the proxy's processes: {reason(error)}") from None
        finally:
            ring.close()
            os.close(bell)
            os.close(room_bell)
            listener.close()
        self._address = own
        self._queue.put(Listening(own, self.config.upstream))
        self._thread = threading.Thread(target=self._hear, name="proxy events", daemon=True)
        self._thread.start()
        return self

    def _start_child(self, name: str, settings: dict[str, object], fds: list[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            ours.send(json.dumps(settings).encode())
            # -P: nothing of the current directory can stand in for a module
            self._children[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.{name}", str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *fds],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal reaches the foreground group: this process, not these
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._controls[name] = ours

    # -- events ----------------------------------------------------------------------------------------------

    def events(self) -> Iterator[Event]:
        """Events as they come, from the first on; ends after `stop`. Each event goes to one iterator."""
        while (event := self._queue.get()) is not None:
            yield event
        self._queue.put(None)  # for the next iterator

    def next_event(self, timeout: float | None = None) -> Event | None:
        """The next event, None after `timeout` seconds or when the proxy has stopped."""
        try:
            event = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if event is None:
            self._queue.put(None)
        return event

    def _hear(self) -> None:
        """Take events from the children until both have closed their sockets."""
        poll = select.poll()
        names = {control.fileno(): name for name, control in self._controls.items()}
        for fd in names:
            poll.register(fd, select.POLLIN)
        while names:
            for fd, _ in poll.poll():
                name = names[fd]
                try:
                    packet = self._controls[name].recv(1 << 20)
                except OSError:
                    packet = b""
                if packet:
                    self._queue.put(decode(packet))
                    continue
                poll.unregister(fd)
                del names[fd]
                self._child_ended(name)

    def _child_ended(self, name: str) -> None:
        code = self._children[name].wait()
        if self._stopping:
            return
        self._queue.put(ProcessFailed(name, code))
        if name == "observer":
            # nobody reads any more: a lossless relay must not wait for it
            self._tell("relay", {"do": "dismiss", "reader": OBSERVER})

    def _tell(self, name: str, command: dict[str, object]) -> None:
        try:
            self._controls[name].send(json.dumps(command).encode())
        except (OSError, KeyError):
            pass

    # -- the end ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Accept nothing new, let responses in flight arrive (at most `drain_seconds`), end the processes, finish
        the recording. May be called more than once."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            self._tell("relay", {"do": "stop", "seconds": self.config.drain_seconds})
            self._end_children(self.config.drain_seconds + 2.0)
            if self._thread is not None:
                self._thread.join(5.0)
            for control in self._controls.values():
                control.close()
            self._queue.put(None)

    def _end_children(self, seconds: float) -> None:
        relay, observer = self._children.get("relay"), self._children.get("observer")
        if relay is not None:
            self._wait_or_kill(relay, seconds)
        if observer is not None:
            # The relay's last word ends the observer; without it the socket does.
            self._tell("observer", {"do": "stop"})
            if relay is None or relay.returncode != 0:
                self._controls["observer"].shutdown(socket.SHUT_WR)
            self._wait_or_kill(observer, OBSERVER_SECONDS)

    @staticmethod
    def _wait_or_kill(child: subprocess.Popen[bytes], seconds: float) -> None:
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
