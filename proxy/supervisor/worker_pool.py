"""The relays of one proxy, from the supervisor's side: one, or several workers with one address map.

Each worker has a ring of its own. Listening sockets are held here as well, so that a worker that dies is replaced by
one with the same ports, and no client that was not accepted yet notices.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from ..events import (
    Address,
    BrokersDown,
    Capped,
    ConnectionsFull,
    Event,
    ListenerFailed,
    NotHonoured,
    NotVerified,
    PluginsKept,
    PluginsLoaded,
    PortPassedOver,
    ReaderStuck,
    RulesKept,
    RulesReplaced,
)
from ..ring.clock import now_ns
from ..ring.merged_rings import RingAccess, resume
from ..ring.ring import Kind, Ring, RingWriter
from ..ring.wakeup import new_bell
from .worker_shared_state import Board

RING_BYTES = 16 << 20
LOSSLESS_RING_BYTES = 32 << 20
RING_SLOTS = 32768
_TOLD_BY_ALL = (
    Capped, ListenerFailed, PluginsKept, PluginsLoaded, PortPassedOver, BrokersDown, ConnectionsFull, RulesReplaced, RulesKept, NotVerified,
    NotHonoured, ReaderStuck,
)  # fmt: skip
"""Events that every worker tells for itself; people want to hear them once."""
_TOLD_SECONDS = 30.0


def relay_names(workers: int) -> list[str]:
    """The names of the relays among the processes."""
    return ["relay"] if workers == 1 else [f"relay-{number}" for number in range(1, workers + 1)]


class Crew:
    """What the workers share, and what the one that takes the place of another needs. `close` when they have ended."""

    def __init__(self, workers: int, listener: socket.socket, *, fixed: bool, lossless: bool, ring_bytes: int) -> None:
        self.workers = workers
        self.names = relay_names(workers)
        self._fixed = fixed
        self._lossless = lossless
        self._listener = listener
        self._listeners: list[tuple[socket.socket, Address]] = []
        size = ring_bytes or (LOSSLESS_RING_BYTES if lossless else RING_BYTES)
        self._rings = [Ring.create(size, RING_SLOTS) for _ in range(workers)]
        self._room_bells = [new_bell() for _ in range(workers)]
        self._bells: dict[str, int] = {}
        self._callers = [new_bell() for _ in range(workers)] if workers > 1 else []
        port = listener.getsockname()[1] + 1 if fixed and listener.family != socket.AF_UNIX else 0
        self.board = Board.create(workers, port)

    def admit(self, reader: int, bell: int, *, lossless: bool) -> None:
        """A reader of all rings, before anything is written."""
        for ring in self._rings:
            ring.admit(reader, lossless=lossless)
        self._bells[str(reader)] = bell

    def access(self, reader: int, bell: int) -> RingAccess:
        """What a process that reads the rings is given."""
        return RingAccess([(ring.fd, room) for ring, room in zip(self._rings, self._room_bells, strict=True)], reader, bell)

    @property
    def reader_fds(self) -> list[int]:
        return [*(ring.fd for ring in self._rings), *self._room_bells]

    def for_worker(self, worker: int) -> dict[str, Any]:
        """What a relay is told."""
        settings: dict[str, Any] = {
            "ring": self._rings[worker].fd,
            "room_bell": self._room_bells[worker],
            "lossless": self._lossless,
            "bells": self._bells,
            "listener": self._listener.fileno(),
            "fixed_ports": self._fixed,
            "worker": worker,
            "workers": self.workers,
            "board": self.board.fd,
        }
        if self.workers > 1:
            settings |= {
                "callers": self._callers,
                "listeners": [listener.fileno() for listener, _ in self._listeners],
                "brokers": [broker for _, broker in self._listeners],
            }
        return settings

    def worker_fds(self, worker: int) -> list[int]:
        """The descriptors that belong to that."""
        fds = [self._rings[worker].fd, self._room_bells[worker], self._listener.fileno(), *self._bells.values()]
        return [*fds, self.board.fd, *self._callers, *(listener.fileno() for listener, _ in self._listeners)]

    def dismiss(self, reader: int) -> None:
        """A reader is gone; workers that come later do not wait for it either."""
        for ring in self._rings:
            ring.dismiss(reader)

    def keep(self, listener: socket.socket, broker: Address) -> None:
        """A worker has opened a listener for a broker."""
        self._listeners.append((listener, broker))

    def close_listeners(self) -> None:
        """Nobody is to connect any more."""
        for listener, _ in self._listeners:
            listener.close()
        self._listeners = []
        self._listener.close()

    def readmit(self, reader: int, *, lossless: bool) -> None:
        """Another process reads in the place of one that was dismissed, from here on."""
        for ring in self._rings:
            ring.admit(reader, lossless=lossless)

    def died(self, worker: int, again: bool) -> None:
        """A worker is gone; say so in its ring. `again`: another one will write there."""
        self.board.end(worker)
        writer = RingWriter(self._rings[worker], {int(reader): bell for reader, bell in self._bells.items()})
        resume(writer)
        writer.write(Kind.GONE, 0, 0, now_ns(), b"")
        if not again:
            writer.write(Kind.STOP, 0, 0, now_ns(), b"")
        writer.ring_bells()

    def stop_ring(self, worker: int) -> None:
        """No other worker will write into this ring."""
        writer = RingWriter(self._rings[worker], {int(reader): bell for reader, bell in self._bells.items()})
        resume(writer)
        writer.write(Kind.STOP, 0, 0, now_ns(), b"")
        writer.ring_bells()

    def close(self) -> None:
        """Close our copies (not those of the readers' bells)."""
        self.close_listeners()
        for ring in self._rings:
            ring.close()
        for fd in (*self._room_bells, *self._callers):
            os.close(fd)
        if self._rings:
            self.board.close()
        self._rings, self._room_bells, self._callers = [], [], []


class Voices:
    """The events of several workers as those of one relay."""

    def __init__(self) -> None:
        self._told: dict[Event, tuple[int, float]] = {}

    def merged(self, worker: int, event: Event) -> Event | None:
        """The event as it is to be told; None if another worker has told it."""
        if isinstance(event, _TOLD_BY_ALL):
            now = time.monotonic()
            by, when = self._told.get(event, (worker, now))
            if by != worker and (isinstance(event, Capped) or now - when < _TOLD_SECONDS):
                return None
            self._told[event] = worker, now
        return event
