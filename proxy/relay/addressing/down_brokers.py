"""Brokers that the control API keeps down: their connections are closed and new ones refused.

Clients see what they see when a broker behind the proxy does not run: its listener accepts, and the connection ends. The
brokers themselves only notice that clients have left.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ...events import Address, BrokersDown, show
from .resolver import Answer

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface, RelayInterface


def refused() -> OSError:
    """What a connect to a broker that is down meets."""
    return OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


class DownBrokers:
    """The brokers, by the addresses that they advertise and by those that these names stand for."""

    def __init__(self, relay: RelayInterface) -> None:
        self._relay = relay
        self.named: tuple[Address, ...] = ()
        self._resolved: set[Address] = set()

    def replace(self, brokers: Iterable[Address]) -> None:
        """Exactly these are down from now on."""
        self.named = tuple(dict.fromkeys(brokers))
        self._resolved = set()
        self._close()
        for broker in self.named:
            self._relay.resolver.resolve(*broker, partial(self._found, broker))
        self._relay.emit(BrokersDown(tuple(map(show, self.named))))

    def has(self, *addresses: Address) -> bool:
        """Whether one of a broker's addresses, as it is named or as it is reached, is that of one that is down."""
        return bool(self.named) and any(each in self.named or each in self._resolved for each in addresses)

    def _found(self, broker: Address, answer: Answer) -> None:
        if broker in self.named and not isinstance(answer, OSError):
            self._resolved.update((address[0], address[1]) for _, address in answer)
            self._close()

    def _close(self) -> None:
        for connection in list(self._relay.connections.values()):
            if not connection.closed and self.has(connection.broker, connection.real):
                self._end(connection)

    @staticmethod
    def _end(connection: ConnectionInterface) -> None:
        if connection.established:
            connection.close("fin")
        else:
            connection.unreachable(refused())
