"""The search for a text: everything that ``barnabas decode --json`` would print of an exchange, and names besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..codec.message import error_names
from ..connection.exchange import Exchange
from ..schema import facts
from . import values


def searcher(text: str) -> Callable[[Exchange], bool]:
    """A function that tells whether a text occurs in a name or value of an exchange, in any case of letters.

    Secrets are masked, keys and values of records are left out: it finds what is shown.
    """
    wanted = text.casefold()

    def found(exchange: Exchange) -> bool:
        return any(wanted in leaf.casefold() for leaf in leaves(exchange))

    return found


def leaves(exchange: Exchange) -> Iterator[str]:
    """The names and values that are searched, cheap ones first."""
    yield exchange.client_id or ""
    yield exchange.api
    yield exchange.client
    yield exchange.broker
    for message in (exchange.request_message, exchange.response_message):
        if message is not None:
            for _, name in error_names(message):
                yield name
    yield from _leaves(exchange.to_dict())
    yield from exchange.marks.notes
    for pair in values.pairs(exchange):
        yield pair.topic or ""


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            if name == "api_key" and isinstance(inner, int):
                yield facts.api_name(inner)
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif value is not None:
        yield str(value)
