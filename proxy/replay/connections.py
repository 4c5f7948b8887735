"""The TCP connections of a replay, in one epoll; they are dialed in threads."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ...captures.replay.report import ReplayReport
from ...captures.replay.script import RecordedCall, ScriptStep
from ...decoder.wire.frame import MAX_FRAME
from .dialer import Dialer, DialFailed, DialThreads
from .settings import SECOND, Settings
from .target import TargetCluster

_READ = 1 << 18


class PendingCall(NamedTuple):
    """A request that waits for its response: its correlation id, and the version that it was sent at."""

    correlation: int
    call: RecordedCall
    version: int


class TargetConnection:
    """A connection to one broker of the target (`node`: its id, None for the given address), for a recorded one.

    Requests may be queued before it is connected; `take` gives it its socket."""

    __slots__ = ("_in", "ended", "ending", "failed", "fd", "node", "out", "owner", "pending", "sock", "tls", "wants_write")

    def __init__(self, node: int | None, owner: ReplayedConnection) -> None:
        self.node, self.owner = node, owner
        self.sock: socket.socket | None = None
        self.fd = -1
        self.tls = False
        self.out = bytearray()
        self.pending: deque[PendingCall] = deque()
        """In the order of sending, which is the order of responses."""
        self.wants_write = False
        self.ending = False
        """to be closed when everything is written"""
        self.ended = False
        self.failed = ""
        self._in = bytearray()

    def take(self, sock: socket.socket) -> None:
        """Take the connected socket."""
        sock.setblocking(False)
        self.sock, self.fd, self.tls = sock, sock.fileno(), isinstance(sock, ssl.SSLSocket)

    def flush(self) -> bool:
        """Write as much as possible. Returns whether everything is written. Raises OSError."""
        if self.sock is None:
            return True
        while self.out:
            try:
                sent = self.sock.send(self.out)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            del self.out[:sent]
        return True

    def frames(self) -> Iterator[bytes]:
        """The frames that can be read now. EOFError when the peer has ended, OSError when the connection broke."""
        assert self.sock is not None
        buffer = self._in
        while True:
            try:
                data = self.sock.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                raise EOFError
            buffer += data
            at, size = 0, len(buffer)
            while size - at >= 4:
                length = int.from_bytes(buffer[at : at + 4], "big", signed=True)
                if not 0 <= length <= MAX_FRAME:
                    raise OSError(f"the bytes received are not a frame (size {length})")
                end = at + 4 + length
                if end > size:
                    break
                yield bytes(memoryview(buffer)[at + 4 : end])
                at = end
            if at:
                del buffer[:at]
            if len(data) < _READ and not self.tls:
                return

    def close(self) -> None:
        self.ended = True
        if self.sock is not None:
            self.sock.close()
            self.sock = None
            self.fd = -1


class ReplayedConnection:
    """A recorded connection."""

    __slots__ = ("backlog", "broker", "closes_by", "connections", "number", "since")

    def __init__(self, number: int, broker: str) -> None:
        self.number, self.broker = number, broker
        self.connections: dict[int | None, TargetConnection] = {}
        self.backlog: deque[ScriptStep] = deque()
        self.since = 0
        self.closes_by = 0


class TargetConnections:
    """`answered` is called with every frame received, `lost` with a connection that is gone and the calls that waited on
    it. `folded`: how many connections the recorded ones share; 0 for one each."""

    def __init__(
        self,
        dialer: Dialer,
        target: TargetCluster,
        folded: int,
        report: ReplayReport,
        answered: Callable[[TargetConnection, bytes], None],
        lost: Callable[[TargetConnection, list[RecordedCall], str], None],
    ) -> None:
        self.all: set[TargetConnection] = set()
        self.dirty: set[TargetConnection] = set()
        """those with something to write, or to be closed"""
        self.pending = 0
        """requests that wait for answers, on all connections"""
        self._target, self._folded, self._report = target, folded, report
        self._answered, self._lost = answered, lost
        self._dials = DialThreads(dialer)
        self._poll = select.epoll()
        self._poll.register(self._dials.fd, select.EPOLLIN)
        self._by_fd: dict[int, TargetConnection] = {}
        self._shared: dict[tuple[int, int | None], TargetConnection] = {}

    @property
    def busy(self) -> bool:
        """Whether something is to be written, or answers are to come."""
        return self.pending > 0 or any(connection.out for connection in self.all)

    def wait(self, most_ns: int) -> bool:
        """Handle the events within that time; whether there were any."""
        if most_ns:
            # select() is exact to the microsecond, epoll_wait() to the millisecond; it can wait for an epoll.
            select.select([self._poll], (), (), most_ns / SECOND)
        events = self._poll.poll(0)
        for fd, event in events:
            if fd == self._dials.fd:
                self._dials.deliver_done(self._connected)
                continue
            connection = self._by_fd.get(fd)
            if connection is None:
                continue
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self._read(connection)
            if event & select.EPOLLOUT and not connection.ended:
                self.dirty.add(connection)
        return bool(events)

    def close(self) -> None:
        """End all connections."""
        for connection in list(self.all):
            self.drop(connection)
        self._dials.close()
        self._poll.close()

    def connection(self, recorded: ReplayedConnection, node: int | None) -> TargetConnection:
        """The connection to a broker for a recorded one; dialed if there is none."""
        folded = self._folded
        connection = self._shared.get((recorded.number % folded, node)) if folded else recorded.connections.get(node)
        if connection is None or connection.ended:
            connection = TargetConnection(node, recorded)
            if folded:
                self._shared[recorded.number % folded, node] = connection
            else:
                recorded.connections[node] = connection
            self.all.add(connection)
            self._dials.ask(connection, self._target.address_of(node))
        return connection

    def _connected(self, connection: TargetConnection, result: socket.socket | DialFailed) -> None:
        if isinstance(result, DialFailed):
            connection.failed = str(result)
            if connection.failed not in self._report.warnings:
                self._report.warnings.append(connection.failed)
            self._lose(connection, connection.failed)
            return
        connection.take(result)
        self._by_fd[connection.fd] = connection
        self._poll.register(connection.fd, select.EPOLLIN)
        self.dirty.add(connection)

    def flush(self) -> None:
        """Write what can be written."""
        while self.dirty:
            connection = self.dirty.pop()
            if connection.sock is None:
                continue
            try:
                done = connection.flush()
            except OSError as error:
                self._lose(connection, f"the target broke the connection ({error.strerror or error})")
                continue
            if done and connection.ending:
                self.drop(connection)
            elif connection.wants_write == done:
                connection.wants_write = not done
                self._poll.modify(connection.fd, select.EPOLLIN | (0 if done else select.EPOLLOUT))

    def _read(self, connection: TargetConnection) -> None:
        try:
            for frame in connection.frames():
                self._answered(connection, frame)
                if connection.ended:
                    return
        except EOFError:
            self._lose(connection, "the target closed the connection")
        except OSError as error:
            self._lose(connection, f"the target broke the connection ({error.strerror or error})")

    def _lose(self, connection: TargetConnection, why: str) -> None:
        calls = [call for _, call, _ in connection.pending]
        self.drop(connection)
        self._lost(connection, calls, why)

    def drop(self, connection: TargetConnection) -> None:
        """End a connection, and drop the calls that wait on it."""
        if connection.fd >= 0:
            self._poll.unregister(connection.fd)
            del self._by_fd[connection.fd]
        self.pending -= len(connection.pending)
        connection.pending.clear()
        connection.out.clear()
        connection.close()
        self.all.discard(connection)


class ConnectionCloser:
    """Ends the target's connections when the recorded ones ended: at once, or after the responses that the recorded
    client got. `recorded_connections`: the player's, by number."""

    def __init__(self, recorded_connections: Mapping[int, ReplayedConnection], net: TargetConnections, report: ReplayReport, settings: Settings) -> None:
        self._recorded, self._net, self._report = recorded_connections, net, report
        self._settings = settings
        self._patience_ns = int(settings.patience * SECOND)

    @property
    def busy(self) -> bool:
        """Whether a connection waits for its end."""
        return any(recorded.closes_by for recorded in self._recorded.values())

    def close(self, recorded: ReplayedConnection, step: ScriptStep) -> None:
        """The recorded connection ended here. With shared connections nothing ends."""
        if self._settings.connections:
            return
        # Requests that got no response in the recording are not waited for; a closing broker is.
        waits = [connection for connection in recorded.connections.values() if connection.pending and not connection.ended]
        if step.by == "broker" and waits:
            recorded.closes_by = time.monotonic_ns() + 2 * SECOND
            return
        if any(call.exchange.response is not None for connection in waits for _, call, _ in connection.pending):
            recorded.closes_by = time.monotonic_ns() + self._patience_ns  # answers that the recorded client had
            return
        self._hang_up(recorded)

    def close_overdue(self, now: int) -> None:
        """End connections that have their responses, or have waited long enough."""
        for recorded in self._recorded.values() if self.busy else ():
            if not recorded.closes_by:
                continue
            if not any(connection.pending for connection in recorded.connections.values() if not connection.ended):
                self._hang_up(recorded)
            elif now > recorded.closes_by:
                if any(call.exchange.response is None for connection in recorded.connections.values() for _, call, _ in connection.pending):
                    self._report.note("the recorded broker closed a connection, but the target did not")
                self._hang_up(recorded)

    def _hang_up(self, recorded: ReplayedConnection) -> None:
        recorded.closes_by = 0
        for connection in recorded.connections.values():
            if connection.ended:
                continue
            for _, call, _ in connection.pending:
                self._report.unanswered += 1
                call.done = True
            connection.ending = True
            if connection.sock is None:
                continue
            self._net.dirty.add(connection)
