"""Scanning a foreign capture fast: packets in large reads, no object per packet.

`Scanner` takes the packets of a file window by window (`PacketWindows`). Bytes that continue a Kafka connection in order go
straight to a `StreamConsumer`. Every other packet (handshakes, ends, losses, packets out of order, unusual headers, other
traffic) goes through `packets.parse` and `Reassembler.feed`, the reference path. Both paths share their state: `side.next` is
the next byte's sequence number.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Protocol

from ...native.accelerator import native
from ...pcap import packets
from ...pcap.flows import Data, Flow, FlowClosed, FlowOpened, Gap
from ...pcap.packet_windows import PacketWindows
from ...pcap.packets import ACK, FIN, RST, SYN
from ...pcap.pcapng import LINKTYPE_ETHERNET, Packet
from ...pcap.reassembly import KAFKA_PORTS, UNANSWERED_NS, Reassembler

_ENDS = SYN | FIN | RST
_FULL, _HALF = (1 << 32) - 1, 1 << 31
_NETWORK_START = {LINKTYPE_ETHERNET: ("12xH", 14), 113: ("14xH", 16), 276: ("H18x", 20)}
# From the IP header on: version and header length, total length, fragment, protocol, both addresses and ports,
# sequence and acknowledgement numbers, header length, flags. Only headers without options have the ports there.
_IPV4, _IPV6 = "BxH2xHxB2x12sIIBB", "B3xHBx36sIIBB"
_NEVER_NS = (1 << 63) - 1
_PACKET, _BLOCK, _DUE = 1, 2, 3  # why the accelerator's walk stops; 0: the window ends


class StreamConsumer(Protocol):
    """Receives the streams. `opened` returns the two halves of a conversation, by direction."""

    def opened(self, event: FlowOpened) -> tuple[Any, Any]: ...
    def data(self, half: Any, time_ns: int, data: bytes, offset: int) -> None:
        """The next bytes of a direction; `offset`: in the file."""

    def cut(self, half: Any, size: int) -> bool:
        """Bytes that are not in the capture follow; False: the next frame is to be looked for."""

    def gap(self, half: Any, size: int, unread: int) -> None:
        """`size` bytes are missing, and `unread` could not be read; the next data starts a frame."""

    def unseen(self, half: Any, size: int, unread: int, time_ns: int) -> None:
        """The same at the end of a direction, of its connection or of the capture."""

    def closed(self, flow: Flow, event: FlowClosed) -> None: ...
    def awaits(self, flow: Flow, correlation_id: int) -> bool: ...


class Scanner:
    """Gives the streams of one file after the other, read by its `windows`, to `consumer`. `finish` ends the capture.

    `fragments`: IP fragments, which are not put together; `lost`: bytes that are not in the capture; `unread_bytes`: those
    that are, but belong to frames whose beginning is not; `cut_packets`: packets that were cut when they were captured; `unread`: packets of link types that are not known, by link type.
    """

    def __init__(self, consumer: StreamConsumer, ports: Collection[int] = KAFKA_PORTS) -> None:
        self.windows = PacketWindows(self._scan)
        self.consumer = consumer
        self.reassembler = Reassembler(consumer.awaits, ports)
        self.fragments = self.lost = self.unread_bytes = self.now_ns = self.cut_packets = 0
        self._never_read = 0
        self.unread: Counter[int] = Counter()
        self._sides: dict[bytes, Any] = {}
        self._frames: Any = None if native is None else getattr(consumer, "frames", None)

    @property
    def unread_so_far(self) -> int:
        """`unread_bytes`, with those of connections that have shown no beginning of a frame to their end, or so far."""
        return self.unread_bytes + self._never_read + sum(sum(flow.unread) for flow in self.reassembler.flows())

    def finish(self) -> None:
        """The capture ends here."""
        for event in self.reassembler.finish(self.now_ns):
            self._event(event)
        for flow in self.reassembler.flows():
            self._unseen(flow, self.now_ns)
        self._settle_all()

    def _unseen(self, flow: Flow, time_ns: int) -> None:
        for direction, side in enumerate(flow.sides):
            if side.half is not None:
                self.consumer.unseen(side.half, side.skipped + flow.unseen(direction), flow.unread[direction], time_ns)

    # what is in them

    def _scan(self, window: bytes) -> int:
        if self._frames is not None:
            return self._scan_quickly(window)
        base = self.windows.base
        find, take, cut = self._sides.get, self.consumer.data, self.consumer.cut
        opening = self.reassembler.opening
        linktype_before, header = -1, 0
        four: Callable[[bytes, int], tuple[Any, ...]] | None = None
        six: Callable[[bytes, int], tuple[Any, ...]]
        time_ns = self.now_ns
        for time_ns, start, end, size, linktype in self.windows.places(window):
            if linktype != linktype_before:
                linktype_before = linktype
                how = _NETWORK_START.get(linktype)
                if how is None:
                    four = None
                else:
                    four = struct.Struct(f">{how[0]}{_IPV4}").unpack_from
                    six = struct.Struct(f">{how[0]}{_IPV6}").unpack_from
                    header = how[1]
            if opening:
                self._due(time_ns)
            if four is None or end - start < header + 40:
                self._careful(time_ns, start, end, size, linktype)
                continue
            kind, version, total, fragment, protocol, ends, sequence, acknowledged, offset, flags = four(window, start)
            if kind == 0x0800 and version == 0x45 and protocol == 6 and not fragment & 0x3FFF and total:
                at = start + header + 20 + (offset >> 4 << 2)
                length = start + header + total - at
            elif kind == 0x86DD and end - start >= header + 60:
                kind, version, total, protocol, ends, sequence, acknowledged, offset, flags = six(window, start)
                if protocol != 6 or version >> 4 != 6 or not total:
                    self._careful(time_ns, start, end, size, linktype)
                    continue
                at = start + header + 40 + (offset >> 4 << 2)
                length = start + header + 40 + total - at
            else:
                self._careful(time_ns, start, end, size, linktype)
                continue
            side = find(ends)
            if side is None or not side.quick or flags & _ENDS or length < 0 or offset < 0x50:
                self._careful(time_ns, start, end, size, linktype)
                continue
            if flags & ACK and 0 < (acknowledged - side.acked & _FULL if side.acked >= 0 else 1) < _HALF:
                side.acked = acknowledged
                side.acked_first = acknowledged if side.acked_first < 0 else side.acked_first
            if not length:
                if 0 < (sequence - side.empty & _FULL if side.empty >= 0 else 1) < _HALF:
                    side.empty = sequence
                    side.empty_first = sequence if side.empty_first < 0 else side.empty_first
            elif sequence == side.next:
                side.next = sequence + length & _FULL
                stop = at + length
                if stop <= end:
                    take(side.half, time_ns, window[at:stop], base + at)
                else:
                    stop = end if end > at else at
                    take(side.half, time_ns, window[at:stop], base + at)
                    self._cut(side, at + length - stop, cut)
            elif (sequence + length - side.next - 1) & _FULL < _HALF:
                self._careful(time_ns, start, end, size, linktype)
        self.now_ns = time_ns
        return self.windows.used

    def _scan_quickly(self, window: bytes) -> int:
        """`_scan` with the accelerator, which takes everything that is ordinary."""
        windows, walk, sides, opening = self.windows, self._frames.walk, self._sides, self.reassembler.opening
        reader = windows.reader
        order, unit_ns = reader.classic or ("", 0)
        at, linktype, known = windows.first, reader.interfaces[0].linktype if unit_ns else 0, (-1, -1)
        cut = self._cut_off
        while True:
            if not unit_ns:
                order = reader.order
                now = len(reader.interfaces), reader.first_interface
                if known != now:  # a section has begun, or there are more interfaces in it
                    had = known[0] - known[1] if known[1] == now[1] else 0
                    self._frames.interfaces(had, [windows.stamp(i) for i in range(had, now[0] - now[1])])
                    known = now
            due_ns = next(iter(opening.values())).opened_ns + UNANSWERED_NS if opening else _NEVER_NS
            why, at, time_ns, start, end, size, link = walk(
                window, at, windows.base, order == ">", unit_ns, linktype, due_ns, sides, cut
            )
            if time_ns >= 0:
                self.now_ns = time_ns
            if why == _PACKET:
                self._careful(time_ns, start, end, size, link)
                continue
            if why == _DUE:
                self._due(time_ns)
                continue
            # Another block, or the last packet, which is not whole.
            for place in windows.records(window, at) if unit_ns else windows.blocks(window, at, once=True):
                self._due(place[0])
                self._careful(*place)
            if windows.used == at or windows.damaged:
                return windows.used
            at = windows.used

    def _due(self, time_ns: int) -> None:
        """Tell of connections that were tried in vain by then."""
        for event in self.reassembler.unanswered(time_ns - UNANSWERED_NS, time_ns):
            self._event(event)

    def _cut_off(self, side: Any, size: int) -> None:
        self._cut(side, size, self.consumer.cut)

    def _cut(self, side: Any, size: int, cut: Callable[[Any, int], bool]) -> None:
        self.cut_packets += 1
        if not cut(side.half, size):
            side.synced = side.quick = False
            side.skipped += size

    def _careful(self, time_ns: int, start: int, end: int, size: int, linktype: int) -> None:
        """A packet for the reference path."""
        self.now_ns = time_ns
        if end - start < packets.LEAST and linktype in packets.LINKTYPES:
            return
        data = self.windows.window[start:end]
        segment = packets.parse(linktype, data, size)
        if segment is None:
            if linktype in packets.LINKTYPES:
                self.fragments += packets.is_fragment(linktype, data)
            else:
                self.unread[linktype] += 1
            return
        at = self.windows.base + start
        packet = Packet(0, linktype, time_ns, data, at, at, size, ())
        shown = self.reassembler.show(segment)
        for event in self.reassembler.feed(packet, segment):
            self._event(event)
        if not shown:
            self.reassembler.show(segment)
        flow = self.reassembler.flow_of(segment)
        if flow is not None:
            self._settle(flow)

    def _settle_all(self) -> None:
        for flow in self.reassembler.flows():
            self._settle(flow)

    def _settle(self, flow: Flow) -> None:
        """Decide whether the fast path may take what comes next."""
        settled = self.reassembler.is_settled(flow)
        for side in flow.sides:
            side.quick = settled and side.synced and side.next is not None and side.half is not None

    # events of the reference path

    def _event(self, event: FlowOpened | Data | Gap | FlowClosed) -> None:
        if isinstance(event, Data):
            side = event.flow.sides[event.direction]
            if event.data:
                self.consumer.data(side.half, event.time_ns, event.data, event.at)
            if event.cut:
                self._cut(side, event.cut, self.consumer.cut)
        elif isinstance(event, FlowOpened):
            flow = event.flow
            for side, half, key in zip(flow.sides, self.consumer.opened(event), _keys(flow), strict=True):
                side.half = half
                self._sides[key] = side
        elif isinstance(event, Gap):
            self.lost += event.size
            self.unread_bytes += event.unread
            self.consumer.gap(event.flow.sides[event.direction].half, event.size, event.unread)
        else:
            flow = event.flow
            self._unseen(flow, event.time_ns)
            self._never_read += sum(flow.unread)
            for side, key in zip(flow.sides, _keys(flow), strict=True):
                side.quick = False
                if self._sides.get(key) is side:
                    del self._sides[key]
            self.consumer.closed(flow, event)


def _keys(flow: Flow) -> tuple[bytes, bytes]:
    """Addresses and ports of both directions as they stand in a packet."""
    client, broker = flow.ends
    return client[:-2] + broker[:-2] + client[-2:] + broker[-2:], broker[:-2] + client[:-2] + broker[-2:] + client[-2:]
