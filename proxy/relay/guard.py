"""Keeps the limits (`proxy.relay.limits`): time once a second, the number of connections and of files when a client comes."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection

from ..events import ConnectionsFull, FewFiles, FilesUsedUp, IdleClosed
from .interfaces import ConnectionInterface, RelayInterface
from .limits import Limits

FEW = 1000
"""Without --max-connections: warn when there are files for fewer connections than this."""
FULL_EVERY = 10.0
"""Least seconds between two events about clients that have to wait."""
_SPARE_FILES = 8
"""For listeners of brokers that are not known yet."""
_NEXT_FILES = 4
"""A client is accepted if so many files can be had: its own, the one to the broker, and some for what else may come."""


class LimitGuard:
    """Keeps the limits in a relay."""

    def __init__(self, relay: RelayInterface, limits: Limits) -> None:
        self.limits = limits
        self._relay = relay
        self._moved: dict[int, tuple[int, float]] = {}
        """Connection -> (bytes so far, since when it is so many)."""
        self._full_reported_at = self._short_reported_at = -FULL_EVERY

    def warn_of_few_files(self, workers: int = 1) -> None:
        """Each connection takes two files. The soft limit, of each worker, has been raised to the hard one by now."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            return
        try:
            spare = len(os.listdir("/dev/fd")) + _SPARE_FILES
        except OSError:
            spare = 4 * _SPARE_FILES
        possible = max((files - spare) // 2, 0) * workers
        if possible < (self.limits.max_connections or FEW):
            self._relay.emit(FewFiles(files, possible, self.limits.max_connections))

    def most_brokers(self) -> int:
        """How many listeners brokers may have: half of the files are for connections."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = self.limits.max_brokers
        return most if files == resource.RLIM_INFINITY else max(min(most, files // 2), 1)

    def full(self, connections: int) -> bool:
        """Whether no more clients may be accepted now."""
        return 0 < self.limits.max_connections <= connections

    def report_full(self) -> None:
        """Report it, but not for every client."""
        now = time.monotonic()
        if now - self._full_reported_at > FULL_EVERY:
            self._full_reported_at = now
            self._relay.emit(ConnectionsFull(self.limits.max_connections))

    def short_of_files(self, listener: int) -> bool:
        """Whether the system would refuse the files of another connection: a client that was accepted then would only
        be turned away. It is tried, as pipes, listeners and all else that is open change the number that is left."""
        tried: list[int] = []
        try:
            while len(tried) < _NEXT_FILES:
                tried.append(os.dup(listener))
        except OSError:
            return True
        finally:
            for file in tried:
                os.close(file)
        return False

    def report_short_of_files(self) -> None:
        """Report it, but not for every client."""
        now = time.monotonic()
        if now - self._short_reported_at > FULL_EVERY:
            self._short_reported_at = now
            files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            self._relay.emit(FilesUsedUp(len(self._relay.connections), files))

    def tick(self, now: float, connections: Collection[ConnectionInterface]) -> None:
        """About once a second: close what is idle."""
        longest = self.limits.idle_seconds
        if not longest:
            return
        before, self._moved = self._moved, {}
        for connection in connections:
            if not connection.established:
                continue
            moved = connection.request.position + connection.response.position
            known, since = before.get(connection.number, (-1, now))
            if moved != known:
                since = now
            elif now - since >= longest:
                self._relay.emit(IdleClosed(connection.number, connection.peer, longest))
                connection.close("fin")
                continue
            self._moved[connection.number] = (moved, since)
