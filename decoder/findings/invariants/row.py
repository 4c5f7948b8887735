"""What an invariant is, and what its check is given.

Nothing here knows detectors: a check is a function of a request, its response, and what its connection and cluster have
shown before, so that it serves captures and live brokers alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from ...codec.message_view import MessageView
from ..engine.counters import BoundedDict

S = TypeVar("S")

MOST_BROKERS = 1024
"""Brokers whose state is kept."""


class Owner(StrEnum):
    """Who should mend what a row finds."""

    BROKER = "broker"
    """or the proxy or Kafka-compatible product that answers in its place"""
    CLIENT = "client"


class Memory:
    """The state of checks by broker: one object of each kind for each of them."""

    def __init__(self) -> None:
        self._brokers: BoundedDict[str, dict[Any, Any]] = BoundedDict(MOST_BROKERS)

    def of_broker(self, broker: str) -> dict[Any, Any]:
        """The states of a broker, by kind."""
        return self._brokers.of(broker, dict)


@dataclass(slots=True)
class Context:
    """One connection, and what it and its cluster have shown. `known_nodes` gives the ids of all brokers that the
    cluster has shown so far; none: not known. `memory` is shared by connections."""

    broker: str = ""
    known_nodes: Callable[[], Collection[int]] = tuple
    memory: Memory = field(default_factory=Memory)
    _states: dict[Any, Any] = field(default_factory=dict)

    @property
    def nodes(self) -> Collection[int]:
        """The ids of the cluster's brokers, asked for by the few checks that need them."""
        return self.known_nodes()

    def of_connection(self, kind: Callable[[], S]) -> S:
        """The state of that kind of the connection, made if it is missing."""
        found: S | None = self._states.get(kind)
        if found is None:
            found = self._states[kind] = kind()
        return found

    def of_broker(self, kind: Callable[[], S]) -> S:
        """The state of that kind of the broker."""
        states = self.memory.of_broker(self.broker)
        found: S | None = states.get(kind)
        if found is None:
            found = states[kind] = kind()
        return found


class Pair(NamedTuple):
    """A request and its response. `asked`, `answer`: their values; fields are attributes."""

    request: MessageView
    response: MessageView
    context: Context

    @property
    def asked(self) -> Any:
        return self.request.values

    @property
    def answer(self) -> Any:
        return self.response.values


class Seen(NamedTuple):
    """Where a message contradicts a row, and what is there, in words that follow the path."""

    path: str
    text: str
    row: str = ""
    """The id of the row, if its check serves several."""


Check = Callable[[Pair], Iterable[Seen]]


class Row(NamedTuple):
    """What Apache Kafka never answers.

    `apis`: their names, separated by spaces. `kafka`: what it does instead, after the words "Apache Kafka". `source`:
    its class or the KIP. `check`: finds the contrary; rows may share one. `clients`: a sentence about what they do
    with such an answer. `severity`: a name of `Severity`. `since`, `until`: the versions of the API that it is about.
    `errors`: whether it is also about responses with an error code at their top. `passes`: healthy brokers may show it
    for a moment, so it counts little if a later answer is right.
    """

    id: str
    apis: str
    kafka: str
    source: str
    check: Check
    severity: str = "medium"
    clients: str = ""
    since: int = 0
    until: int = 0x7FFF
    errors: bool = False
    passes: bool = False
    owner: Owner = Owner.BROKER
    remedy: str = ""
    """What to do, if not to report it to the owner."""


class Violation(NamedTuple):
    """An answer that contradicts a row."""

    row: Row
    path: str
    text: str
