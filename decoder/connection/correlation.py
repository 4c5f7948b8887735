"""Which request a response belongs to.

Brokers answer the requests of a connection in order. So a response belongs to the first request with its correlation id, and those in
front of it get none: acks=0, or their response is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

MOST_WAITING = 1 << 16
"""Requests of a connection that wait for a response; then the oldest are given up. In a capture of one direction none is answered."""


class Request(Protocol):
    correlation_id: int


R = TypeVar("R", bound=Request)


class CorrelationQueue(Generic[R]):
    """Requests that wait for a response, oldest first; None stands for a raw SASL token, which is answered by another."""

    __slots__ = ("ids", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[R | None] = deque()
        self.ids: dict[int, tuple[int, R]] = {}
        """How many requests wait for each id, and the last of them, so that an orphan is known at once. Empty until an id is asked
        for that is not the first one's; then it is kept until nothing waits. While it is empty, `waiting` alone may be changed."""

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, correlation_id: int) -> bool:
        first = self.first
        return (first is not None and first.correlation_id == correlation_id) or self.find(correlation_id) is not None

    @property
    def first(self) -> R | None:
        return self.waiting[0] if self.waiting else None

    @property
    def last(self) -> R | None:
        return self.waiting[-1] if self.waiting else None

    @property
    def token_is_next(self) -> bool:
        return bool(self.waiting) and self.waiting[0] is None

    def requests(self) -> Iterator[R]:
        return (request for request in self.waiting if request is not None)

    def find(self, correlation_id: int) -> R | None:
        """The request that waits for that response, the last one of several."""
        if not self.ids:
            for request in self.requests():
                self._count(request)
        found = self.ids.get(correlation_id)
        return found[1] if found else None

    def append(self, request: R | None) -> None:
        self.waiting.append(request)
        if self.ids and request is not None:
            self._count(request)

    def pop(self) -> R | None:
        """Take the first that waits."""
        first = self.waiting.popleft()
        if self.ids and first is not None:
            count, last = self.ids.pop(first.correlation_id)
            if count > 1:
                self.ids[first.correlation_id] = count - 1, last
        return first

    def take(self, correlation_id: int) -> tuple[list[R], R] | None:
        """Take the requests that get no response, and the one that this response belongs to; None for an orphan."""
        first = self.first
        if first is not None and first.correlation_id == correlation_id:
            self.pop()
            return [], first
        if correlation_id not in self:
            return None
        unanswered: list[R] = []
        while (first := self.pop()) is None or first.correlation_id != correlation_id:
            if first is not None:
                unanswered.append(first)
        return unanswered, first

    def clear(self) -> None:
        self.waiting.clear()
        self.ids.clear()

    def _count(self, request: R) -> None:
        count, _ = self.ids.get(request.correlation_id, (0, request))
        self.ids[request.correlation_id] = count + 1, request
