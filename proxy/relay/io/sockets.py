"""Which socket is whose: what the loop looks up for every event of the kernel.

Every socket is registered once for everything; what can be done is remembered per half.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from ...ring import polling
from ..interfaces import ConnectionInterface, HalfConnectionInterface


class Sockets:
    """`ends`: file descriptor -> (the half that reads it, the half that writes to it); `others`: what to call for all
    others. `forgotten` is called with each that is about to be closed."""

    def __init__(self, forgotten: Callable[[int], None] | None) -> None:
        self.poll = polling.make_poll(self._interest)
        self.ends: dict[int, tuple[HalfConnectionInterface, HalfConnectionInterface]] = {}
        self.others: dict[int, Callable[[int], None]] = {}
        self._forgotten = forgotten

    def listen_for(self, fd: int, handler: Callable[[int], None], edge: bool = True) -> None:
        """Call `handler` when there is something to be read: a listener, a bell. `edge`: once for each time."""
        self.others[fd] = handler
        self.poll.register(fd, polling.READ | (polling.EDGE if edge else 0))

    def renew_edge(self, fd: int) -> None:
        """Get another event for a listener, if clients wait there."""
        self.poll.modify(fd, polling.READ | polling.EDGE)

    def attend(self, fd: int, handler: Callable[[], None]) -> None:
        """Call `handler` for every edge of a socket that is not (or not yet) an end of two halves."""
        known = fd in self.others
        self.others[fd] = lambda _: handler()
        if not known:
            self.poll.register(fd, polling.ALL)

    def stand(self, connection: ConnectionInterface, upstream: socket.socket) -> None:
        """Both sockets of a connection are ends of its halves from now on."""
        request, response = connection.request, connection.response
        self.others.pop(upstream.fileno(), None)
        self.ends[upstream.fileno()] = (response, request)
        if self.ends.get(connection.client.fileno()) is None:
            self.ends[connection.client.fileno()] = (request, response)
            self.poll.register(connection.client.fileno(), polling.ALL)
        # bytes may have come with the handshake; the edge for them is past
        self.poll.modify(upstream.fileno(), polling.ALL)

    def suspend(self, fd: int) -> None:
        """Take a socket from the halves, until it stands again."""
        self.others[fd] = self.others.get(fd, lambda _: None)
        self.ends.pop(fd, None)

    def forget(self, sock: socket.socket) -> None:
        """A socket is about to be closed."""
        fd = sock.fileno()
        self.ends.pop(fd, None)
        self.others.pop(fd, None)
        if self._forgotten is not None:
            self._forgotten(fd)
        try:
            self.poll.unregister(fd)
        except (OSError, ValueError):
            pass

    def _interest(self, fd: int) -> int | None:
        """What the halves of a socket wait for (`polling.Interest`)."""
        end = self.ends.get(fd)
        if end is None:
            return None
        reads, writes = end
        wanted = polling.READ if reads.open and not reads.readable and not reads.eof else 0
        if writes.open and (writes.pending or getattr(writes.sink, "waits", False)):
            wanted |= polling.WRITE
        return wanted
