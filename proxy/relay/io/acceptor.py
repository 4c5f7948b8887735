"""Where clients come in: the listeners of one relay.

Several workers have the same listening sockets, and every one of them gets an event for a new client. The one with the fewest
connections takes it: Kafka's connections are few, busy and long-lived, so leaving the choice to chance (as
the kernel does when each worker binds the port for itself) would leave cores idle. As all hold the sockets,
a worker that dies takes no client with it that was not accepted yet. A worker that is too late loses
its turn: after a second without an accept, any worker takes the client. The first worker to start
waits for the others, so that it does not get all clients that wait already.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence, Set
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from ...events import Address, ClientLeft, ClientRefused
from ...processes.worker_shared_state import SharedState
from ...ring.wakeup import hush, sound
from ..addressing.transparent import NotIntercepted, plain

if TYPE_CHECKING:
    from ..interfaces import RelayInterface


MOST_AT_ONCE = 64
"""Clients accepted in one turn of the loop."""


def is_reset(sock: socket.socket) -> bool:
    """Whether the peer has reset a connection: the socket has no peer any more."""
    try:
        sock.getpeername()
    except OSError:
        return True
    return False


def has_left(client: socket.socket) -> bool:
    """Whether a client has reset its connection without having sent anything. What it has sent can still be read."""
    if not is_reset(client):
        return False
    try:
        return not client.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


class ListenerEntry(NamedTuple):
    """A listener, the broker that it is for, and its port."""

    listener: socket.socket
    broker: Address
    port: int


class Acceptor:
    """Listeners and what comes in at them. `bells`: what calls each worker, in their order; none without others."""

    def __init__(self, relay: RelayInterface, shared_state: SharedState, bells: Sequence[int]) -> None:
        self._relay = relay
        self._shared_state = shared_state
        self._bells = bells
        self.listeners: list[ListenerEntry] = []
        self._again: list[ListenerEntry] = []
        """Where clients may wait although no edge will be reported."""
        self._left: dict[ListenerEntry, int] = {}
        """Where one was left to another worker since the last tick, and how many all workers had accepted by then."""
        self._overdue: dict[ListenerEntry, int] = {}
        """The same, before the last tick."""
        self._step = shared_state.workers
        # Connection numbers modulo the number of workers identify the worker.
        self._first = shared_state.worker + 1
        self._count = shared_state.begin(shared_state.worker)
        if not shared_state.gathering():
            for bell in bells:
                sound(bell)  # the others may have waited for this one

    def add(self, listener: socket.socket, broker: Address) -> None:
        """Accept on `listener` for `broker` from now on."""
        host, port = listener.getsockname()[:2]
        entry = ListenerEntry(listener, broker, port)
        self.listeners.append(entry)
        self._relay.destinations.listens(host, port)
        self._relay.sockets.listen_for(listener.fileno(), lambda _: self._accept(entry))

    def retain(self, standing: Set[tuple[Address, int]]) -> list[tuple[Address, int]]:
        """Close all listeners but the first, the bootstrap's, and these (broker, port); which ones that were."""
        closed = [entry for entry in self.listeners[1:] if entry[1:] not in standing]
        for entry in closed:
            listener = entry.listener
            self.listeners.remove(entry)
            if entry in self._again:
                self._again.remove(entry)
            self._left.pop(entry, None)
            self._overdue.pop(entry, None)
            self._relay.destinations.listens_no_more(*listener.getsockname()[:2])
            self._relay.forget(listener)
            listener.close()
        return [(entry.broker, entry.port) for entry in closed]

    def called(self, _: int) -> None:
        """Another worker has left a client to this one."""
        hush(self._bells[self._shared_state.worker])
        for entry in self.listeners:
            self._accept(entry)

    def tick(self) -> None:
        """About once a second: clients that nobody has come for."""
        again, self._again = self._again, []
        overdue, self._overdue, self._left = self._overdue, self._left, {}
        accepted = self._shared_state.all_accepted()
        for entry, before in overdue.items():
            if accepted != before:  # workers come for their clients: this one has not been waiting for so long
                self._left[entry] = accepted
            elif entry not in again:
                again.append(entry)
        for entry in again:
            self._accept(entry, in_turn=False)

    def freed(self) -> None:
        """A connection has ended: there may be room for a client that waits."""
        relay = self._relay
        if not relay.draining:
            again, self._again = {*self._again, *self._left, *self._overdue}, []
            for entry in again:
                relay.sockets.renew_edge(entry.listener.fileno())
        shared_state = self._shared_state
        shared_state.standing(len(relay.connections))
        if relay.guard.limits.max_connections:
            for worker in shared_state.waiting():
                sound(self._bells[worker])

    def close(self) -> None:
        """Accept nothing more."""
        for entry in self.listeners:
            self._relay.forget(entry.listener)
            entry.listener.close()

    def _later(self, entry: ListenerEntry) -> None:
        if entry not in self._again:
            self._again.append(entry)

    def _accept(self, entry: ListenerEntry, in_turn: bool = True) -> None:
        relay, shared_state = self._relay, self._shared_state
        most = self._count + MOST_AT_ONCE
        while not relay.draining:
            if self._count >= most:  # those who are here are served before the next come in
                relay.sockets.renew_edge(entry.listener.fileno())
                return
            if in_turn:
                if shared_state.gathering():
                    self._later(entry)
                    return
                other = shared_state.less_busy()
                if other is not None:
                    self._left[entry] = shared_state.all_accepted()
                    sound(self._bells[other])
                    return
            limited = relay.guard.limits.max_connections > 0
            with shared_state.locked() if limited else nullcontext():
                if limited and not self._has_room(entry):
                    return
                if relay.guard.short_of_files(entry.listener.fileno()):
                    self._later(entry)  # the edge is used up: come back with the clock, or when a connection ends
                    relay.guard.report_short_of_files()
                    return
                try:
                    client, peer = entry.listener.accept()
                except BlockingIOError:
                    return
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                        self._later(entry)
                        relay.guard.report_short_of_files()
                        return
                    continue
                self._count += 1
                shared_state.accepted(self._count, len(relay.connections) + 1)
            self._begin(client, peer, entry)

    def _has_room(self, entry: ListenerEntry) -> bool:
        relay, shared_state = self._relay, self._shared_state
        full = relay.guard.full(shared_state.all_standing())
        shared_state.wait(full)
        if full:
            self._later(entry)
            relay.guard.report_full()
        return not full

    def _begin(self, client: socket.socket, peer: Address, entry: ListenerEntry) -> None:
        relay, shared_state, broker = self._relay, self._shared_state, entry.broker
        shared_state.named[entry.port] = time.monotonic()  # in use: no worker closes the listener
        client.setblocking(False)
        if has_left(client):  # as of a port that is probed: a storm of these costs the other clients no time
            relay.emit(ClientLeft(peer[:2]))
            client.close()
            shared_state.standing(len(relay.connections))
            return
        if relay.interception is not None:
            peer = (plain(peer[0]), peer[1])
            try:
                broker = relay.interception.destination(client, peer)
            except (NotIntercepted, OSError) as error:
                relay.emit(ClientRefused(peer, str(error)))
                client.close()
                shared_state.standing(len(relay.connections))
                return
        number = self._first + (self._count - 1) * self._step
        bootstrap = entry is self.listeners[0] and relay.interception is None
        relay.accepted(number, client, peer[:2], None if bootstrap else broker)
