"""Several captures merged by time. Connections stay separate, even where their addresses are the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ...decoder import Exchange, ExchangeDone, RequestSeen
from ...decoder.connection.events import Closed, ConnectionEvent, NonKafkaData, Opened
from ..pcap.packets import show_address
from ..pcap.reassembly import KAFKA_PORTS
from ..reading.events import EventReader
from .cut import time_of
from .write import address


class MergeInput(NamedTuple):
    """One capture, and how far its clock is put forward."""

    path: Path
    shift_ns: int = 0


class Merge:
    """`events` gives (number of the source, event). Raises what `EventReader` does, for any source, before
    anything is given. `tick(bytes read, of how many)`."""

    def __init__(
        self,
        sources: Sequence[MergeInput],
        ports: Collection[int] = KAFKA_PORTS,
        tick: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.sources = sources
        self._readers = [EventReader(source.path, ports) for source in sources]
        self._tick = tick
        self._taken: dict[tuple[str, str], list[int]] = {}
        self._ends: dict[tuple[int, int], tuple[str, str]] = {}
        self.renamed = 0

    @property
    def notes(self) -> list[str]:
        """Faults of the files."""
        return [reader.note for reader in self._readers if reader.note]

    def events(self) -> Iterator[tuple[int, ConnectionEvent]]:
        """Everything, by time; the events of one source stay in their order."""
        streams = [
            _shifted(chain(reader.read(), reader.end()), source.shift_ns)
            for reader, source in zip(self._readers, self.sources, strict=True)
        ]
        heads: list[tuple[int, int, ConnectionEvent]] = []
        clocks = [0] * len(streams)

        def advance(number: int) -> None:
            event = next(streams[number], None)
            if event is not None:
                # A large frame comes after later ones: a source's clock does not go back for it.
                clocks[number] = max(clocks[number], time_of(event))
                heads.append((clocks[number], number, event))

        for number in range(len(streams)):
            advance(number)
        while heads:
            head = min(heads, key=lambda head: head[:2])
            heads.remove(head)
            _, number, event = head
            self._tick(sum(t.bytes_read for t in self._readers), sum(t.bytes_known for t in self._readers))
            yield number, self._apart(number, event)
            advance(number)

    def _apart(self, source: int, event: ConnectionEvent) -> ConnectionEvent:
        """A connection whose two ends another source has open, too, gets a client that differs from that one:
        readers know a connection by its ends."""
        if isinstance(event, Opened):
            ends = event.client, event.broker
            self._leave(source, event.connection)
            others = self._taken.setdefault(ends, [])
            self._ends[source, event.connection] = ends
            if any(other != source for other in others):
                self.renamed += 1
                host, port = address(event.client)
                event = replace(event, client=show_address((f"{host}#{source + 1}", port)))
            others.append(source)
        elif isinstance(event, Closed):
            self._leave(source, event.connection)
        return event

    def _leave(self, source: int, connection: int) -> None:
        ends = self._ends.pop((source, connection), None)
        if ends is not None:
            others = self._taken[ends]
            others.remove(source)
            if not others:
                del self._taken[ends]


def _shifted(events: Iterator[ConnectionEvent], by: int) -> Iterator[ConnectionEvent]:
    """The same with another clock. Exchanges are copied: their source still uses its own."""
    if not by:
        yield from events
        return
    copies: dict[int, tuple[Exchange, Exchange]] = {}
    for event in events:
        if isinstance(event, RequestSeen):
            copy = _copied(event.exchange, by)
            copies[id(event.exchange)] = event.exchange, copy
            yield RequestSeen(copy)
        elif isinstance(event, ExchangeDone):
            exchange = event.exchange
            known = copies.pop(id(exchange), None)
            copy = known[1] if known else _copied(exchange, by)
            copy.state, copy.response, copy.response_cut = exchange.state, exchange.response, exchange.response_cut
            copy.marks = exchange.marks
            if exchange.response_time_ns is not None:
                copy.response_time_ns = exchange.response_time_ns + by
            yield ExchangeDone(copy)
        elif isinstance(event, NonKafkaData):
            yield replace(event, opaque=replace(event.opaque, time_ns=event.opaque.time_ns + by))
        else:
            yield replace(event, time_ns=event.time_ns + by)


def _copied(exchange: Exchange, by: int) -> Exchange:
    copy = exchange.undecoded_copy()
    copy.response = copy.response_time_ns = None  # it has its own time
    copy.response_cut = 0
    if copy.request_time_ns is not None:
        copy.request_time_ns += by
    return copy
