"""Broker names to socket addresses without stopping the relay's loop.

Address literals are answered at once; names are looked up by a few threads, so that a slow name holds up few others, and kept
for 30 seconds.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable

from ....bounded import BoundedDict
from ...ring.wakeup import hush, new_bell, sound

SocketAddress = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]
Answer = list[SocketAddress] | OSError
KEEP_SECONDS = 30.0
THREADS = 8
MOST_KEPT = 10_000
"""Most names that are kept; brokers may name as many as they like."""


def look_up(host: str, port: int) -> Answer:
    """All stream addresses of a host (blocking), or the error."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error if isinstance(error, OSError) else OSError(str(error))
    unique: dict[tuple[object, ...], SocketAddress] = {}
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            unique.setdefault((family, address), (family, address))  # type: ignore[arg-type]
    return list(unique.values())


def literal(host: str, port: int) -> list[SocketAddress] | None:
    """The address when `host` is already one, else None."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return [(family, (host, port) if family == socket.AF_INET else (host, port, 0, 0))]
    return None


class Resolver:
    """`bell` is a bell (`bells`) that becomes readable when answers wait for `deliver`."""

    def __init__(self) -> None:
        self.bell = new_bell()
        self._questions: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[str, int, Answer]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._cache: dict[tuple[str, int], tuple[float, list[SocketAddress]]] = BoundedDict(MOST_KEPT)
        self._threads = 0
        self._asked: dict[tuple[str, int], list[Callable[[Answer], None]]] = {}
        """What is being looked up, and who wants to know."""

    def resolve(self, host: str, port: int, then: Callable[[Answer], None]) -> None:
        """Call `then` with the answer: at once when it is known, else from `deliver`."""
        known = self.known(host, port)
        if known is not None:
            then(known)
            return
        waiting = self._asked.setdefault((host, port), [])
        waiting.append(then)
        if len(waiting) > 1:
            return
        if self._threads < THREADS and len(self._asked) > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name="resolver", daemon=True).start()
        self._questions.put((host, port))

    def known(self, host: str, port: int) -> list[SocketAddress] | None:
        """The addresses, if they are known without a lookup."""
        kept = self._cache.get((host, port))
        if kept and time.monotonic() - kept[0] < KEEP_SECONDS:
            return kept[1]
        return literal(host, port)

    def deliver(self) -> None:
        """Hand over the answers that have come in."""
        hush(self.bell)
        while not self._done.empty():
            self._done.get()()
        while not self._answers.empty():
            host, port, answer = self._answers.get()
            if not isinstance(answer, OSError):
                self._cache[host, port] = (time.monotonic(), answer)
            for then in self._asked.pop((host, port), ()):
                then(answer)

    def aside(self, work: Callable[[], bytes], then: Callable[[bytes], None]) -> None:
        """Do something in a thread of its own (for what computes long), and call `then` from `deliver`."""

        def run() -> None:
            result = work()
            self._done.put(lambda: then(result))
            sound(self.bell)

        threading.Thread(target=run, name="aside", daemon=True).start()

    def _work(self) -> None:
        while True:
            host, port = self._questions.get()
            self._answers.put((host, port, look_up(host, port)))
            sound(self.bell)
