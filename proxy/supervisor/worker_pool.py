"""The relays of one proxy, from the supervisor's side: one, or several workers with one address map.

Each worker has a ring of its own. Listening sockets are kept here as well, so that the worker that replaces one that died has the same
ports, and no client that was not accepted yet notices.
"""

from __future__ import annotations

import os
import socket
import time

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
from ..processes.worker_shared_state import SharedState
from ..relay.relay_settings import BrokerListener, WorkerResources
from ..ring.clock import now_ns
from ..ring.merged_rings import RingAccess, resume
from ..ring.ring import Kind, Ring, RingWriter
from ..ring.wakeup import new_bell

RING_BYTES = 16 << 20
LOSSLESS_RING_BYTES = 32 << 20
RING_SLOTS = 32768
_FROM_EVERY_WORKER = (
    Capped, ListenerFailed, PluginsKept, PluginsLoaded, PortPassedOver, BrokersDown, ConnectionsFull, RulesReplaced, RulesKept, NotVerified,
    NotHonoured, ReaderStuck,
)  # fmt: skip
"""Events that every worker sends for itself; people want to see them once."""
_SAME_SECONDS = 30.0
"""How long the same event of another worker is a duplicate."""


def relay_names(workers: int) -> list[str]:
    """The names of the relays among the processes."""
    return ["relay"] if workers == 1 else [f"relay-{number}" for number in range(1, workers + 1)]


class WorkerPool:
    """What the workers share, and what a worker that replaces another needs. `close` when they have ended."""

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
        self._bells: dict[int, int] = {}
        self._worker_bells = [new_bell() for _ in range(workers)] if workers > 1 else []
        port = listener.getsockname()[1] + 1 if fixed and listener.family != socket.AF_UNIX else 0
        self.shared_state = SharedState.create(workers, port)

    def admit(self, reader: int, bell: int, *, lossless: bool) -> None:
        """Admit a reader of all rings, or one in the place of a reader that was dismissed. It reads what is written from now on."""
        for ring in self._rings:
            ring.admit(reader, lossless=lossless)
        self._bells[reader] = bell

    def access(self, reader: int, bell: int) -> RingAccess:
        """What a process that reads the rings is given."""
        return RingAccess([(ring.fd, room) for ring, room in zip(self._rings, self._room_bells, strict=True)], reader, bell)

    @property
    def reader_fds(self) -> list[int]:
        return [*(ring.fd for ring in self._rings), *self._room_bells]

    def for_worker(self, worker: int) -> WorkerResources:
        """What a relay works with."""
        return WorkerResources(
            ring=self._rings[worker].fd,
            room_bell=self._room_bells[worker],
            shared_state=self.shared_state.fd,
            listener=self._listener.fileno(),
            bells=self._bells,
            worker_bells=tuple(self._worker_bells),
            broker_listeners=tuple(BrokerListener(listener.fileno(), broker) for listener, broker in self._listeners),
            worker=worker,
            workers=self.workers,
            lossless=self._lossless,
            fixed_ports=self._fixed,
        )

    def worker_fds(self, worker: int) -> list[int]:
        """The descriptors that a relay needs for `for_worker`."""
        fds = [self._rings[worker].fd, self._room_bells[worker], self._listener.fileno(), *self._bells.values()]
        return [*fds, self.shared_state.fd, *self._worker_bells, *(listener.fileno() for listener, _ in self._listeners)]

    def dismiss(self, reader: int) -> None:
        """Dismiss a reader that is gone; workers started later do not wait for it either."""
        for ring in self._rings:
            ring.dismiss(reader)

    def keep(self, listener: socket.socket, broker: Address) -> None:
        """Keep the listener that a worker has opened for a broker."""
        self._listeners.append((listener, broker))

    def forget(self, broker: Address, port: int) -> None:
        """The workers have closed a broker's listener."""
        gone = [entry for entry in self._listeners if entry[1] == broker and entry[0].getsockname()[1] == port]
        self._listeners = [entry for entry in self._listeners if entry not in gone]
        for listener, _ in gone:
            listener.close()

    def close_listeners(self) -> None:
        """Accept no more clients."""
        for listener, _ in self._listeners:
            listener.close()
        self._listeners = []
        self._listener.close()

    def died(self, worker: int, again: bool) -> None:
        """Write into a worker's ring that it is gone. `again`: another worker will write there."""
        self.shared_state.end(worker)
        writer = RingWriter(self._rings[worker], self._bells)
        resume(writer)
        writer.write(Kind.GONE, 0, 0, now_ns(), b"")
        if not again:
            writer.write(Kind.STOP, 0, 0, now_ns(), b"")
        writer.ring_bells()

    def close(self) -> None:
        """Close our copies (not those of the readers' bells)."""
        self.close_listeners()
        for ring in self._rings:
            ring.close()
        for fd in (*self._room_bells, *self._worker_bells):
            os.close(fd)
        if self._rings:
            self.shared_state.close()
        self._rings, self._room_bells, self._worker_bells = [], [], []


class EventDeduplicator:
    """Makes the events of several workers those of one relay."""

    def __init__(self) -> None:
        self._seen: dict[Event, tuple[int, float]] = {}
        """Event -> the worker that sent it first, and when."""

    def merged(self, worker: int, event: Event) -> Event | None:
        """The event; None if another worker has sent it."""
        if isinstance(event, _FROM_EVERY_WORKER):
            now = time.monotonic()
            by, when = self._seen.get(event, (worker, now))
            if by != worker and (isinstance(event, Capped) or now - when < _SAME_SECONDS):
                return None
            self._seen[event] = worker, now
        return event
