"""The TCP connections of a replay, in one epoll: made beside the loop, written and read in it."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable

from ...captures.replay.report import Report
from ...captures.replay.script import Call, Step
from .dialing import Dialer, DialFailed, DialThreads
from .link import TargetConnection
from .settings import SECOND
from .target import Target


class RecordedConnection:
    """A recorded connection."""

    __slots__ = ("backlog", "broker", "closes_by", "links", "number", "since")

    def __init__(self, number: int, broker: str) -> None:
        self.number, self.broker = number, broker
        self.links: dict[int | None, TargetConnection] = {}
        self.backlog: deque[Step] = deque()
        self.since = 0
        self.closes_by = 0


class Connections:
    """`answered` is given every frame that comes, `lost` a connection that is gone with the calls that waited on it.
    `folded`: how many halves the recorded connections share; 0 for one each."""

    def __init__(
        self,
        dialer: Dialer,
        target: Target,
        folded: int,
        report: Report,
        answered: Callable[[TargetConnection, bytes], None],
        lost: Callable[[TargetConnection, list[Call], str], None],
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
        self._links: dict[int, TargetConnection] = {}
        self._shared: dict[tuple[int, int | None], TargetConnection] = {}

    @property
    def busy(self) -> bool:
        """Whether something is to be written, or answers are to come."""
        return self.pending > 0 or any(link.out for link in self.all)

    def wait(self, most_ns: int) -> bool:
        """Handle what happens within that time; whether anything did."""
        if most_ns:
            # select() sleeps to the microsecond, epoll_wait() to the millisecond; an epoll may be selected on.
            select.select([self._poll], (), (), most_ns / SECOND)
        events = self._poll.poll(0)
        for fd, event in events:
            if fd == self._dials.fd:
                self._dials.taken(self._connected)
                continue
            link = self._links.get(fd)
            if link is None:
                continue
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self._read(link)
            if event & select.EPOLLOUT and not link.ended:
                self.dirty.add(link)
        return bool(events)

    def close(self) -> None:
        """End all connections."""
        for link in list(self.all):
            self.drop(link)
        self._dials.close()
        self._poll.close()

    def link(self, line: RecordedConnection, node: int | None) -> TargetConnection:
        """The connection to a broker for what was said on a recorded one; made if there is none."""
        folded = self._folded
        link = self._shared.get((line.number % folded, node)) if folded else line.links.get(node)
        if link is None or link.ended:
            link = TargetConnection(node, line)
            if folded:
                self._shared[line.number % folded, node] = link
            else:
                line.links[node] = link
            self.all.add(link)
            self._dials.ask(link, self._target.address_of(node))
        return link

    def _connected(self, link: TargetConnection, result: socket.socket | DialFailed) -> None:
        if isinstance(result, DialFailed):
            link.failed = str(result)
            if link.failed not in self._report.warnings:
                self._report.warnings.append(link.failed)
            self._lose(link, link.failed)
            return
        link.take(result)
        self._links[link.fd] = link
        self._poll.register(link.fd, select.EPOLLIN)
        self.dirty.add(link)

    def flush(self) -> None:
        """Write what can be written."""
        while self.dirty:
            link = self.dirty.pop()
            if link.sock is None:
                continue
            try:
                done = link.flush()
            except OSError as error:
                self._lose(link, f"the target broke the connection ({error.strerror or error})")
                continue
            if done and link.ending:
                self.drop(link)
            elif link.wants_write == done:
                link.wants_write = not done
                self._poll.modify(link.fd, select.EPOLLIN | (0 if done else select.EPOLLOUT))

    def _read(self, link: TargetConnection) -> None:
        try:
            for frame in link.frames():
                self._answered(link, frame)
                if link.ended:
                    return
        except EOFError:
            self._lose(link, "the target closed the connection")
        except OSError as error:
            self._lose(link, f"the target broke the connection ({error.strerror or error})")

    def _lose(self, link: TargetConnection, why: str) -> None:
        calls = [call for _, call, _ in link.pending]
        self.drop(link)
        self._lost(link, calls, why)

    def drop(self, link: TargetConnection) -> None:
        """End a connection, with whatever waits on it."""
        if link.fd >= 0:
            self._poll.unregister(link.fd)
            del self._links[link.fd]
        self.pending -= len(link.pending)
        link.pending.clear()
        link.out.clear()
        link.close()
        self.all.discard(link)
