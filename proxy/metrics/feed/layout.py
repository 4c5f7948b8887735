"""The datagrams of the live feed: their layout, and reading them without trusting the sender.

docs/feed.md describes them field by field. All numbers are little-endian. Records are those of a recording's index
(`captures.recording.index.RECORD`), behind them the entries of a `.strings` file that they name: each datagram can be read without
any other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ....captures.recording.index import RECORD

MAGIC = b"BRNF"
VERSION = 2
HEADER = struct.Struct("<4sBBHQQQq")
DATAGRAM = 1400
"""Bytes of a datagram on a network: what fits into an Ethernet frame with room for tunnels."""
LOOPBACK_DATAGRAM = 32 * 1024
"""The same where no network is on the way: a few large ones cost much less than many small ones."""
LARGEST = 65507
"""Bytes of the largest datagram that UDP over IPv4 can carry."""
MAX_TOKEN = 512
RENEW_SECONDS = 4.0
LEASE_SECONDS = 15.0
"""A subscription ends when it was not renewed for so long; a subscriber renews it every `RENEW_SECONDS`."""


class DatagramKind(IntEnum):
    """What a datagram is. From 16 on: from a subscriber to the feed."""

    BATCH = 1
    """`items` records of exchanges, and strings. Without records: subscribed, or renewed."""
    TOTALS = 2
    """Once a second; a `_TOTALS` and `items` times `_RATE`."""
    REFUSED = 5
    """Not subscribed; `items` is a `SubscriptionRefusal`."""
    WAITING = 6
    """`items` records of requests that wait for their responses, and strings, before the totals. `position` does not count them."""
    HELLO = 16
    """Subscribe, or renew the subscription; `items` bytes of a token."""
    BYE = 17
    """End the subscription; `items` bytes of a token."""


class SubscriptionRefusal(IntEnum):
    """Why a subscriber was refused."""

    TOKEN = 1
    FULL = 2


class Header(NamedTuple):
    """The first 40 bytes of every datagram.

    epoch: when the feed started, so that a new start is seen; sequence: number of datagrams to all subscribers before this
    one; position: number of records before it; time_ns: when it was made. A subscriber leaves all four 0.
    """

    kind: int
    items: int
    epoch: int = 0
    sequence: int = 0
    position: int = 0
    time_ns: int = 0

    def pack(self) -> bytes:
        """The 40 bytes."""
        return HEADER.pack(MAGIC, VERSION, *self)


def parse(data: bytes) -> Header | None:
    """The header of a datagram; None when it is none of this version or its length does not fit its items."""
    if len(data) < HEADER.size:
        return None
    magic, version, *fields = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        return None
    header, room = Header(*fields), len(data) - HEADER.size
    if header.kind in (DatagramKind.BATCH, DatagramKind.WAITING):
        fits = room >= header.items * RECORD.size
    elif header.kind == DatagramKind.TOTALS:
        fits = room == _TOTALS.size + header.items * _RATE.size
    elif header.kind == DatagramKind.REFUSED:
        fits = not room
    else:
        fits = header.kind in (DatagramKind.HELLO, DatagramKind.BYE) and room == header.items <= MAX_TOKEN
    return header if fits else None


# -- once a second -----------------------------------------------------------------------------------------------

_TOTALS = struct.Struct("<13Q")
_RATE = struct.Struct("<hHIIQ")
MAX_RATES = 60


class Rate(NamedTuple):
    """What happened with one API in the last second. api_key -1: all the APIs that did not fit."""

    api_key: int
    requests: int
    errors: int
    latency_ns: int
    """The sum over all answers."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Since the start of the meter (connections: now), and `rates`: of the last second.

    lost_bytes, lost_chunks: what the meter did not see because it fell behind, so that the other counts lack it;
    unsent: records that were counted but could not be sent, for want of room in the sender's queue.
    """

    exchanges: int = 0
    errors: int = 0
    undecoded: int = 0
    orphans: int = 0
    unanswered: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    connections: int = 0
    opened: int = 0
    failed: int = 0
    lost_bytes: int = 0
    lost_chunks: int = 0
    unsent: int = 0
    rates: tuple[Rate, ...] = ()

    def pack(self) -> bytes:
        """What follows the header, whose `items` is the number of rates."""
        numbers = [getattr(self, name) for name in _NUMBERS]
        return _TOTALS.pack(*numbers) + b"".join(
            _RATE.pack(rate.api_key, 0, _u32(rate.requests), _u32(rate.errors), rate.latency_ns) for rate in self.rates
        )


_NUMBERS = [name for name in Totals.__slots__ if name != "rates"]


def _u32(number: int) -> int:
    return min(number, 0xFFFFFFFF)


def parse_totals(data: bytes) -> Totals:
    """The totals of a datagram that `parse` has let through."""
    numbers = _TOTALS.unpack_from(data, HEADER.size)
    rates = tuple(
        Rate(key, requests, errors, latency)
        for key, _, requests, errors, latency in _RATE.iter_unpack(data[HEADER.size + _TOTALS.size :])
    )
    return Totals(**dict(zip(_NUMBERS, numbers, strict=True)), rates=rates)


def limit_rates(rates: list[Rate]) -> tuple[Rate, ...]:
    """At most `MAX_RATES`: the busiest, and one for all the others."""
    rates = sorted(rates, key=lambda rate: -rate.requests)
    if len(rates) <= MAX_RATES:
        return tuple(rates)
    rest = rates[MAX_RATES - 1 :]
    sums = (sum(column) for column in list(zip(*rest, strict=True))[1:])
    return (*rates[: MAX_RATES - 1], Rate(-1, *sums))


def is_loopback(host: str) -> bool:
    """Whether an address literal never leaves this machine."""
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"
