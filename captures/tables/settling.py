"""Requests that nothing came of before the capture ended count, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...decoder import Exchange, ExchangeDone, RequestSeen
from ...decoder.happening import Closed, Happening, Opened


class Settling:
    """Adds an `ExchangeDone` for each request that was still in flight when its connection, or the capture, ended."""

    def __init__(self) -> None:
        self._flying: dict[int, dict[int, Exchange]] = {}

    def feed(self, happening: Happening) -> Iterator[Happening]:
        """The happening, behind what it settles."""
        flying = self._flying
        if isinstance(happening, RequestSeen):
            exchange = happening.exchange
            flying.setdefault(exchange.connection, {})[id(exchange)] = exchange
        elif isinstance(happening, ExchangeDone):
            flying.get(happening.exchange.connection, {}).pop(id(happening.exchange), None)
        elif isinstance(happening, (Opened, Closed)):
            yield from map(ExchangeDone, flying.pop(happening.connection, {}).values())
        yield happening

    def rest(self) -> Iterator[Happening]:
        """What the end of the capture settles."""
        for left in self._flying.values():
            yield from map(ExchangeDone, left.values())


def settled(happenings: Iterable[Happening]) -> Iterator[Happening]:
    """The happenings, with those that `Settling` adds."""
    settling = Settling()
    for happening in happenings:
        yield from settling.feed(happening)
    yield from settling.rest()
