"""The address map of a single listener: the name in a client's TLS hello chooses the broker.

    broker-3.kafka.example:9092     node 3
    kafka.example, or any other     the bootstrap broker

Each worker writes what it learns into `shared_state`, so that all learn the same in the same order.

A name stays with its node when the node's address changes. Until a response has listed the brokers, names of others (a client may
remember them from an earlier run) lead to the bootstrap broker; after that, they are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ....bounded import BoundedDict
from ...events import Address, BrokerFound, Event, NamesUnused
from ...processes.worker_shared_state import SharedState
from .address_map import AddressMap

UNUSED, UNUSED_SECONDS = 6, 5.0
"""A client that comes so often and for so long by the bootstrap's name alone cannot find the others: those that can come
by them as soon as they know them. One that only lists topics comes once, or now and then."""
MOST_CLIENTS = 1024
MOST_SHOWN = 10


class NamedBrokers(AddressMap):
    """(host, port) of a broker -> its name under `suffix`; the port is the listener's for all."""

    def __init__(
        self,
        bootstrap: Address,
        upstream: Address,
        *,
        suffix: str,
        emit: Callable[[Event], None],
        shared_state: SharedState | None = None,
        **_: Any,
    ) -> None:
        self._port = bootstrap[1]
        self._bootstrap_broker = upstream
        self._suffix = "." + suffix.lower().strip(".")
        self._emit_event = emit
        self._shared_state = shared_state
        self.found: list[BrokerFound] = []
        self._names: dict[Address, str] = {}
        self._brokers: dict[str, Address] = {}
        self._listed = False
        """Whether a response has listed the brokers."""
        # By client host: how often and since when it came by no broker's name; None: it has come by one, or was reported.
        self._strays: dict[str, tuple[int, float] | None] = BoundedDict(MOST_CLIENTS)

    def broker_for(self, name: str, client: str = "") -> Address:
        """The broker that a client asked for; `client` is its host."""
        self.catch_up()
        if self._names and (self._shared_state is None or self._shared_state.workers == 1):  # one worker does not see who came to the others
            self._note(name, client)
        return self._brokers.get(name, self._bootstrap_broker)

    def is_named(self, name: str) -> bool:
        """Whether this is the name of one broker."""
        return name in self._brokers

    def why_not(self, name: str) -> str:
        """Why a client cannot come by this name, or "": it is a broker's, but the cluster has no such broker."""
        if not self._listed or name in self._brokers or not name.startswith("broker-") or not name.endswith(self._suffix):
            return ""
        return f"it asks for {name}, but the cluster's brokers are {', '.join(sorted(self._brokers)[:MOST_SHOWN])}"

    def _note(self, name: str, client: str) -> None:
        """Tell once of a client that never comes by the names it is given."""
        if name in self._brokers:
            self._strays[client] = None
        elif (seen := self._strays.get(client, (0, time.monotonic()))) is not None:
            count, since = seen[0] + 1, seen[1]
            reported = count >= UNUSED and time.monotonic() - since >= UNUSED_SECONDS
            self._strays[client] = None if reported else (count, since)
            if reported:
                self._emit_event(NamesUnused(client, count, next(iter(self._brokers))))

    def unknown_names(self, brokers: Iterable[Address]) -> list[Address]:
        return []

    def expire(self, used: Collection[Address]) -> None:
        return

    def report_refused(self) -> None:
        return

    def reopen(self) -> None:
        self.catch_up()

    def stands_for(self, broker: Address, node: int, local_host: str) -> Address | None:
        """The name and port a client is given for a broker; None if the response has no address."""
        if broker not in self._names and (not broker[0] or not 0 < broker[1] < 65536):
            return None
        self._learn(node, broker, moves=False)
        return self._names[broker], self._port

    def open_in_order(self, brokers: Iterable[tuple[int, Address]], moves: bool = False) -> None:
        """Name the brokers of one response. moves: it states where brokers are now (controllers, which other responses
        list, may have a broker's number at another address)."""
        for node, broker in sorted(brokers):
            if broker[0] and 0 < broker[1] < 65536:
                self._learn(node, broker, moves)

    def listed(self) -> None:
        self._listed = True

    def _learn(self, node: int, broker: Address, moves: bool) -> None:
        self.catch_up()
        if not self._is_news(node, broker, moves):
            return
        if self._shared_state is None:
            self._emit_event(self._name(node, broker, moves))
            return
        with self._shared_state.locked() as shared:
            self.catch_up()
            if self._is_news(node, broker, moves):
                found = self._name(node, broker, moves)
                if shared:
                    self._shared_state.append([node, *broker, moves])
                self._emit_event(found)

    def catch_up(self) -> None:
        """Learn what other workers have learned, in their order."""
        if self._shared_state is not None:
            for node, host, port, moves in self._shared_state.new_entries():
                if self._is_news(node, (host, port), moves):
                    self._name(node, (host, port), moves)

    def _is_news(self, node: int, broker: Address, moves: bool) -> bool:
        known = self._names.get(broker)
        return known is None or (known != f"broker-{node}{self._suffix}" and moves and node >= 0)

    def _name(self, node: int, broker: Address, moves: bool) -> BrokerFound:
        """Give a broker its name."""
        own = f"broker-{node}{self._suffix}"
        name, before = own, self._brokers.get(own)
        if node < 0 or (before is not None and not moves):
            name = self._another(node)
        elif before is not None:
            self._names[before] = self._another(node)
            self._brokers[self._names[before]] = before
        self._names[broker] = name
        self._brokers[name] = broker
        found = BrokerFound(node, broker, (name, self._port))
        self.found.append(found)
        return found

    def _another(self, node: int) -> str:
        """A name for an address that cannot have its node's."""
        number = 2
        while (name := f"broker-{node if node >= 0 else 'x'}-{number}{self._suffix}") in self._brokers:
            number += 1
        return name
