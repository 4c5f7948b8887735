"""Requests in flight: each segment begins with those that still wait, so that it can be read alone."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ...decoder import Exchange
from ..pcap.packet_comments import CARRIED_COMMENT
from ..pcap.packets import Address
from .index import IndexEncoder
from .segment import InFlight


class OpenConnection(NamedTuple):
    """A connection, as every segment needs it to write its packets."""

    number: int
    opened_ns: int
    client: Address
    broker: Address
    upstream: Address  # the proxy's own end of the broker leg
    failed: str = ""  # how the broker was not reached: "refused" or "unreached"
    tls: frozenset[str] = frozenset()  # the legs that are TLS: "client", "broker"
    imported: bool = False  # from a capture of packets, which may lack anything


class RequestInFlight(Protocol):
    """A request in flight, as the head of the next segment needs it."""

    @property
    def connection(self) -> OpenConnection: ...
    @property
    def offset(self) -> int:
        """Its offset in this segment; -1 if it is in none."""
    @property
    def time_ns(self) -> int: ...
    @property
    def data(self) -> bytes:
        """The frame as it was written: with its size, secrets masked, and cut."""
    @property
    def cut(self) -> int: ...
    @property
    def comments(self) -> tuple[str, ...]: ...
    def entry(self) -> InFlight:
        """Its entry in a sync block."""
    def pend(self, index: IndexEncoder, flags: int = 0) -> None:
        """Put it into the index as it is: it waits."""
    def moved(self, offset: int) -> None:
        """It was written at the head of another segment."""


class CarriedRequest(NamedTuple):
    """A `RequestInFlight` that is an exchange."""

    connection: OpenConnection
    exchange: Exchange
    data: bytes

    @property
    def offset(self) -> int:
        return self.exchange.marks.request_offset

    @property
    def time_ns(self) -> int:
        return self.exchange.request_time_ns or 0

    @property
    def cut(self) -> int:
        return self.exchange.request_cut

    @property
    def comments(self) -> tuple[str, ...]:
        marks = self.exchange.marks
        return CARRIED_COMMENT + (", changed" if marks.changed else ""), *marks.notes

    def entry(self) -> InFlight:
        exchange = self.exchange
        number, key, version = self.connection.number & 0xFFFFFFFF, exchange.api_key, exchange.api_version
        return InFlight(number, exchange.correlation_id, key, version, self.offset)

    def pend(self, index: IndexEncoder, flags: int = 0) -> None:
        index.exchange(self.exchange, flags, pending=True)

    def moved(self, offset: int) -> None:
        self.exchange.marks.request_offset, self.exchange.marks.carried = offset, True
