"""Exchanges of a closed segment of our own, straight from its bytes: those whose frames are one packet each, as nearly all are.

Where all checksums of the segment's blocks fit, nothing is left to be tested in a packet, and NumPy finds out at once where
all frames begin. The others are read packet by packet (`CaptureFile.exchange`). tests/captures/test_straight.py holds the two
together.
"""

from __future__ import annotations

import mmap
from functools import cached_property
from typing import Any

from ...decoder import Exchange
from ..index import CARRIED, CHANGED, CUT, MAX_STRING, NOTED, STATE_MASK, STATES
from ..packets import MAX_PAYLOAD
from ..reader import CaptureFile
from .arrow import numpy

_PLAIN = 44
"""Bytes of a block around its packet, where it has no comment: header, direction, end of the options, length."""
_PACKET, _ETHERNET = 28, 14
_ODD = CARRIED | CHANGED | CUT | NOTED


class Straight:
    """The exchanges `numbers`, in order, of a segment that is sound. Its index is that of the file, and not made anew."""

    def __init__(self, file: CaptureFile, numbers: Any, data: mmap.mmap) -> None:
        """`data`: the file's bytes."""
        np = numpy()
        self._file, self._ends = file, file.index.connections
        self._strings = file.index.strings
        self.data = data
        self._bytes = np.frombuffer(self.data, np.uint8)
        records = file.index.array()[numbers]
        odd = records["flags"] & _ODD != 0
        asked, fit = self._begins(records["request_offset"], records["request_size"])
        told, fit_too = self._begins(records["response_offset"], records["response_size"])
        self._numbers, self._asked, self._told, self._plain = numbers, asked, told, ~odd & fit & fit_too

    def places(self, numbers: Any) -> tuple[Any, Any, Any]:
        """Of these exchanges, which must be among those that were given: whether they are such ones; where in `data` the
        request begins, and where the response does, behind their 4 size bytes. -1: there is none."""
        at = numpy().searchsorted(self._numbers, numbers)
        return self._plain[at], self._asked[at], self._told[at]

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        plain = numpy().flatnonzero(self._plain)
        each = self._numbers[plain], self._asked[plain], self._told[plain]
        return {number: (asked, told) for number, asked, told in zip(*(x.tolist() for x in each), strict=True)}

    def _begins(self, offsets: Any, sizes: Any) -> tuple[Any, Any]:
        """Where frames begin (-1: there is none), and for which this holds: the packet is one, whole and without a comment,
        and says the same size as the index."""
        np, there = numpy(), offsets >= 0
        begins = np.full(len(offsets), -1, np.int64)
        at = np.flatnonzero(there & (offsets < len(self._bytes) - (_PACKET + _ETHERNET + 40 + 60 + 4)))
        offset, size = offsets[at], sizes[at].astype(np.int64)
        length, captured = self._number(offset + 4), self._number(offset + 20)
        ip = offset + _PACKET + _ETHERNET
        tcp = ip + np.where(self._bytes[ip] >> 4 == 6, 40, (self._bytes[ip] & 15).astype(np.int64) * 4)
        begin = tcp + (self._bytes[tcp + 12] >> 4).astype(np.int64) * 4 + 4
        fits = (length == _PLAIN + (captured + 3 & ~3)) & (self._number(offset + 24) == captured)
        fits &= (size + 4 <= MAX_PAYLOAD) & (begin + size <= offset + _PACKET + captured)
        fits &= self._number(begin - 4, big=True) == size
        begins[at[fits]] = begin[fits]
        return begins, ~there | (begins >= 0)

    def _number(self, at: Any, big: bool = False) -> Any:
        """The 32-bit numbers at some places."""
        np, found = numpy(), 0
        for byte in range(4):
            found = found | self._bytes[at + byte].astype(np.int64) << 8 * (3 - byte if big else byte)
        return found

    def exchange(self, number: int) -> Exchange | None:
        """The exchange, as `CaptureFile.exchange` has it; None where it has to be asked."""
        places = self._places.get(number)
        if places is None:
            return None
        record = self._file.index.record(number)
        name = self._strings[record.client_id] if record.client_id < len(self._strings) else None
        if name is not None and len(name) >= MAX_STRING:
            return None
        ends = self._ends.get(record.connection)
        asked, told = places
        exchange = Exchange(
            connection=record.connection,
            client=ends.client if ends else "",
            broker=ends.broker if ends else "",
            api_key=record.api_key,
            api_version=record.api_version,
            correlation_id=record.correlation_id,
            client_id=name,
            state=STATES[record.flags & STATE_MASK],
        )
        exchange.marks["segment"] = self._file.path.name
        latency = max(record.latency_ns, 0)
        if asked >= 0:
            exchange.request, exchange.request_time_ns = self.data[asked : asked + record.request_size], record.time_ns
            exchange.marks["request_offset"] = record.request_offset
        else:
            latency = 0
        if told >= 0:
            exchange.response = self.data[told : told + record.response_size]
            exchange.response_time_ns = record.time_ns + latency
            exchange.marks["response_offset"] = record.response_offset
        return exchange
