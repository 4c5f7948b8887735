"""Requests that nothing came of before the capture ended count, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...decoder import Exchange, ExchangeDone, RequestSeen
from ...decoder.happening import Closed, Happening, Opened


def settled(happenings: Iterable[Happening]) -> Iterator[Happening]:
    """The happenings, with an `ExchangeDone` for each request that was still in flight when its connection, or the
    capture, ended."""
    flying: dict[int, dict[int, Exchange]] = {}
    for happening in happenings:
        if isinstance(happening, RequestSeen):
            exchange = happening.exchange
            flying.setdefault(exchange.connection, {})[id(exchange)] = exchange
        elif isinstance(happening, ExchangeDone):
            flying.get(happening.exchange.connection, {}).pop(id(happening.exchange), None)
        elif isinstance(happening, (Opened, Closed)):
            yield from map(ExchangeDone, flying.pop(happening.connection, {}).values())
        yield happening
    for left in flying.values():
        yield from map(ExchangeDone, left.values())
