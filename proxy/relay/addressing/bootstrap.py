"""Which broker a client of the bootstrap listener is led to, as Kafka clients choose among their bootstrap servers.

Of several: the one that worked last, at first the first. When it cannot be reached, the next one is tried, and when none of those
that were given can be, the brokers that responses have named since. Each also has a listener of its own, like all other brokers.

The listener of a single bootstrap broker leads to this broker alone: clients that know it by its node id would otherwise send its
requests to another one, and stay there when it is back. Measured with librdkafka: NOT_LEADER_OR_FOLLOWER for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ...events import Address


class Bootstrap:
    """`given`: at least one. `learnt`: the brokers that responses have named, now."""

    def __init__(self, given: Iterable[Address], learnt: Callable[[], Iterable[Address]]) -> None:
        self.given = list(dict.fromkeys(given))
        self._learnt = learnt
        self._good: Address | None = None

    @property
    def alone(self) -> bool:
        """Whether there is one only, for which the listener stands."""
        return len(self.given) == 1

    def first(self) -> Address:
        """Where the next client is led to."""
        return self.given[0] if self.alone or self._good is None else self._good

    def next(self, tried: Collection[Address]) -> Address | None:
        """Where a client is led to that could not be led to these; None: there is nothing left."""
        if self.alone:
            return None
        at = self.given.index(self._good) if self._good in self.given else 0
        for broker in (*self.given[at:], *self.given[:at], *self._learnt()):
            if broker not in tried:
                return broker
        return None

    def worked(self, broker: Address) -> None:
        """This one has been reached."""
        self._good = broker
