"""Broker names to socket addresses without stopping the relay's loop.

Address literals are answered at once; names are looked up by one thread and kept for 30 seconds.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable

from .bells import hush, new_bell, sound

SocketAddress = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]
Answer = list[SocketAddress] | OSError
KEEP_SECONDS = 30.0


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
        self._questions: queue.SimpleQueue[tuple[str, int, Callable[[Answer], None]]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Callable[[Answer], None], Answer]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._cache: dict[tuple[str, int], tuple[float, Answer]] = {}
        self._thread: threading.Thread | None = None

    def resolve(self, host: str, port: int, then: Callable[[Answer], None]) -> None:
        """Call `then` with the answer: at once when it is known, else from `deliver`."""
        known: Answer | None = literal(host, port)
        if known is None:
            kept = self._cache.get((host, port))
            if kept and time.monotonic() - kept[0] < KEEP_SECONDS:
                known = kept[1]
        if known is not None:
            then(known)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="resolver", daemon=True)
            self._thread.start()
        self._questions.put((host, port, then))

    def deliver(self) -> None:
        """Hand over the answers that have come in."""
        hush(self.bell)
        while not self._done.empty():
            self._done.get()()
        while not self._answers.empty():
            then, answer = self._answers.get()
            then(answer)

    def aside(self, work: Callable[[], bytes], then: Callable[[bytes], None]) -> None:
        """Do something in a thread of its own (for what computes long), and call `then` from `deliver`."""

        def run() -> None:
            result = work()
            self._done.put(lambda: then(result))
            sound(self.bell)

        threading.Thread(target=run, name="aside", daemon=True).start()

    def wait_for(self, host: str, port: int, seconds: float) -> list[SocketAddress]:
        """The addresses within `seconds`, or none: for the one question that cannot wait (is it the same broker?)."""
        done = threading.Event()
        answers: list[Answer] = []

        def keep(answer: Answer) -> None:
            answers.append(answer)
            done.set()

        known = literal(host, port)
        if known is not None:
            return known
        threading.Thread(target=lambda: keep(look_up(host, port)), daemon=True).start()
        if not done.wait(seconds) or isinstance(answers[0], OSError):
            return []
        return answers[0]

    def _work(self) -> None:
        while True:
            host, port, then = self._questions.get()
            kept = self._cache.get((host, port))
            if kept and time.monotonic() - kept[0] < KEEP_SECONDS:
                answer = kept[1]
            else:
                answer = look_up(host, port)
                if not isinstance(answer, OSError):
                    self._cache[host, port] = (time.monotonic(), answer)
            self._answers.put((then, answer))
            sound(self.bell)
