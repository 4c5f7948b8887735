"""Answers that recorded clients had by now and the target has still to give: what a request has to wait for."""

from __future__ import annotations

from collections.abc import Hashable

from ...captures.replay.script import Call

_MOST = 10_000  # answers that are remembered before those that came are looked for


class Owed:
    """`due` takes an answer; `before` gives one that has to come before a request goes out, or None."""

    def __init__(self) -> None:
        self._all: dict[int, Call] = {}
        self._by_thing: dict[Hashable, list[Call]] = {}
        self._by_connection: dict[int, Call] = {}

    def due(self, call: Call) -> None:
        """A recorded client had this answer, and the target has not given it yet."""
        self._all[id(call)] = call
        self._by_connection[call.connection] = call
        for thing in call.touches or ():
            self._by_thing.setdefault(thing, []).append(call)
        if len(self._all) > _MOST:
            self._all = {key: other for key, other in self._all.items() if not other.done}
            self._by_thing = {thing: others for thing, others in self._by_thing.items() if _first(others)}

    def own(self, connection: int) -> Call | None:
        """The last one of a connection: its answers come in order."""
        call = self._by_connection.get(connection)
        if call is not None and call.done:
            del self._by_connection[connection]
            return None
        return call

    def before(self, call: Call) -> Call | None:
        """Its connection's last one, and what is about the same things; everything, if it may touch everything."""
        own = self.own(call.connection)
        if own is not None:
            return own
        if call.touches is not None:
            for thing in call.touches:
                others = self._by_thing.get(thing)
                if others and (other := _first(others)) is not None:
                    return other
            return None
        for key, other in list(self._all.items()):
            if not other.done:
                return other
            del self._all[key]
        self._by_thing.clear()
        return None


def _first(others: list[Call]) -> Call | None:
    """The first one that is not there; those that are, are forgotten."""
    while others:
        if not others[-1].done:
            return others[-1]
        others.pop()
    return None
