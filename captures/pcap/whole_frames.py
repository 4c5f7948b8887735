"""Packets of a segment that are one frame each and have no comment: nearly all of them. Frames may be cut (a snap length).

They are as `recording.segment` writes them: only ends, numbers, sums and frames differ, so that little has to be looked at. With
these the events of a recording (`reading.events`) take 12 to 16 us of CPU an exchange, and 40 to 46 by its packets alone;
with the detectors of findings it was 65 to 87, not 109 to 135 (60,000 small exchanges; 40,000 with batches, of `bench/spark/traffic.py`).
tests/captures/reading/test_whole_frames.py compares the two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

from .packets import ACK, MAX_LENGTH, PSH
from .pcapng import ENHANCED_PACKET, LATEST_NS

_BLOCK = struct.Struct("<7I")  # type, length, interface, time (2), captured length, length on the wire
_BLOCK_END = struct.Struct("<4I")  # the option for the direction (2), the end of the options, the length of the block again
_DIRECTION_OPTION = 4 << 16 | 2
_TYPE = _BLOCK.size + 12  # in front of the Ethernet type
# The Ethernet type and what follows, up to the size of the frame. IPv4: type and version; length; fragment, hops and protocol;
# ends; sequence number; header length and flags; size. IPv6: type and version; length; protocol and hops; likewise.
_IPV4, _IPV4_VERSION, _IPV4_PROTOCOL = struct.Struct(">IH2xI2x12sI4xH6xI"), 0x0800_4500, 0x4000_4006
_IPV6, _IPV6_VERSION, _IPV6_PROTOCOL = struct.Struct(">I2xHH36sI4xH6xI"), 0x86DD_6000, 0x0640
_FLAGS = 5 << 12 | PSH | ACK  # a header without options
_LEAST = _TYPE + _IPV6.size + _BLOCK_END.size


class WholeFrame(NamedTuple):
    """A packet that is one frame. Its block begins at `offset` and ends at `end`; the frame, behind its size bytes, is at `start`
    to `stop`, without its last `cut` bytes. `ends`: as `ends_of` gives them."""

    offset: int
    end: int
    time_ns: int
    ends: bytes
    sequence: int
    start: int
    stop: int
    cut: int


def ends_of(source: bytes, target: bytes) -> bytes:
    """Two ends of packets, packed as in `packets.TcpSegment`, in the order in which packets have them."""
    return source[:-2] + target[:-2] + source[-2:] + target[-2:]


def whole_frames(data: mmap, at: int) -> Iterator[WholeFrame]:
    """Of the blocks from `at` on: such packets of the first interface, up to anything else. Times are taken for nanoseconds."""
    block, ipv4, ipv6, block_end = _BLOCK.unpack_from, _IPV4.unpack_from, _IPV6.unpack_from, _BLOCK_END.unpack_from
    last = len(data) - _LEAST
    while at <= last:
        kind, length, interface, high, low, captured, on_wire = block(data, at)
        end, time_ns = at + length, high << 32 | low
        if kind != ENHANCED_PACKET or interface or time_ns > LATEST_NS:
            return
        if length != (captured + 3 & ~3) + _BLOCK.size + _BLOCK_END.size or end > len(data):
            return
        option, _, no_more, again = block_end(data, end - _BLOCK_END.size)
        if option != _DIRECTION_OPTION or no_more or again != length:
            return
        version, total, protocol, ends, sequence, flags, size = ipv4(data, at + _TYPE)
        whole = on_wire - 14
        if version == _IPV4_VERSION and protocol == _IPV4_PROTOCOL and total == (whole if whole <= MAX_LENGTH else 0):
            start = at + _TYPE + _IPV4.size
        else:
            version, total, protocol, ends, sequence, flags, size = ipv6(data, at + _TYPE)
            if version != _IPV6_VERSION or protocol != _IPV6_PROTOCOL or total != on_wire - 54:
                return
            start = at + _TYPE + _IPV6.size
        stop = at + _BLOCK.size + captured
        if flags != _FLAGS or not start <= stop or start + size != at + _BLOCK.size + on_wire or captured > on_wire:
            return
        yield WholeFrame(at, end, time_ns, ends, sequence, start, stop, on_wire - captured)
        at = end
