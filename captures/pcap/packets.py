"""TCP packets: built for recordings, and parsed from any capture.

`build` makes Ethernet / IPv4 or IPv6 / TCP packets with valid checksums. `parse` finds the TCP segment in a packet
of the usual link types: Ethernet (with VLAN tags), raw IP, Linux cooked v1 and v2, BSD loopback.
"""

import socket
import struct
from functools import lru_cache
from typing import NamedTuple

from ..native.accelerator import native
from . import tunnels
from .pcapng import LINKTYPE_ETHERNET, enhanced_packet

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
MAX_LENGTH = 0xFFFF  # the most an IP header can express
MAX_PAYLOAD = 65_000  # with its headers below the 65,535 bytes that an IPv4 packet can have

Address = tuple[str, int]

# Locally administered addresses: there was no Ethernet, only a stream of bytes.
_MAC = {0: b"\x02\x00\x00\x00\x00\x01", 1: b"\x02\x00\x00\x00\x00\x02"}
# In the SYN: a maximum segment size, and a window scale of 14, because nothing acknowledges between two frames and
# a window that looks full would be reported as a fault of the network.
_SYN_OPTIONS = bytes([2, 4, 0xFF, 0xC4, 3, 3, 14, 1])


@lru_cache(maxsize=4096)
def _endpoints(source: Address, target: Address) -> tuple[bytes, bytes]:
    """Both hosts in one address family: IPv4, or IPv6 (an IPv4 host then as ::ffff:a.b.c.d)."""
    hosts = [_ip(source[0]), _ip(target[0])]
    if len(hosts[0]) != len(hosts[1]):
        hosts = [h if len(h) == 16 else bytes(10) + b"\xff\xff" + h for h in hosts]
    return hosts[0], hosts[1]


def _ip(host: str) -> bytes:
    """The packed address; a name gets an address of the documentation net, the same for the same name."""
    host = host.partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host)
        except (OSError, ValueError):
            pass
    number = sum(host.encode("utf-8", "replace")) % 254
    return bytes([192, 0, 2, 1 + number])


def _checksum(data: bytes) -> int:
    """The internet checksum (RFC 1071). One's complement addition of 16-bit words is arithmetic modulo 65535."""
    if len(data) % 2:
        data += b"\0"
    rest = int.from_bytes(data, "big") % 65535
    return 65535 - rest if rest else (0 if any(data) else 65535)


def build(
    source: Address,
    target: Address,
    sequence: int,
    acknowledged: int,
    flags: int,
    payload: bytes,
    side: int = 0,
    cut: int = 0,
) -> bytes:
    """One Ethernet packet; `side` picks the made-up MAC addresses (0: from the client, 1: from the broker).

    `cut`: bytes of the payload that were not kept. The checksum is that of zeros in their place. A length for which IPv4
    has no room is 0, as where a network card splits packets; IPv6 has jumbograms (RFC 2675).
    """
    source_ip, target_ip = _endpoints(source, target)
    options = _SYN_OPTIONS if flags & SYN else b""
    length = 20 + len(options) + len(payload) + cut
    tcp = b"%b%b%b" % (
        struct.pack(
            ">HHIIBBHHH",
            source[1] & 0xFFFF,
            target[1] & 0xFFFF,
            sequence & 0xFFFFFFFF,
            acknowledged & 0xFFFFFFFF,
            20 + len(options) << 2,
            flags,
            65535,
            0,
            0,
        ),
        options,
        payload,
    )
    if len(source_ip) == 4:
        pseudo = struct.pack(">4s4sII", source_ip, target_ip, length, 6)
        total = 20 + length if 20 + length <= MAX_LENGTH else 0
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, 0, 0x4000, 64, 6, 0, source_ip, target_ip)
        ip = b"%b%b%b" % (head[:10], struct.pack(">H", _checksum(head)), head[12:])
        kind = b"\x08\x00"
    else:
        pseudo = struct.pack(">16s16sII", source_ip, target_ip, length, 6)
        if length <= MAX_LENGTH:
            ip = struct.pack(">IHBB16s16s", 0x6000_0000, length, 6, 64, source_ip, target_ip)
        else:
            ip = struct.pack(">IHBB16s16s", 0x6000_0000, 0, 0, 64, source_ip, target_ip) + jumbo(length)
        kind = b"\x86\xdd"
    checksum = struct.pack(">H", _checksum(pseudo + tcp))
    return b"".join((_MAC[1 - side], _MAC[side], kind, ip, tcp[:16], checksum, tcp[18:]))


def jumbo(length: int) -> bytes:
    """The hop-by-hop header of a jumbogram that carries `length` bytes of TCP."""
    return struct.pack(">BBBBI", 6, 0, 0xC2, 4, length + 8)


def block(
    source: Address, target: Address, sequence: int, acknowledged: int, flags: int, payload: bytes, side: int,
    interface: int, time_ns: int, direction: int,
) -> bytes:  # fmt: skip
    """The pcapng block of one packet without comments; the accelerator's if it is there."""
    if native is not None and not flags & SYN:
        made: bytes = native.packet(head(source, target, side), sequence, acknowledged, flags, payload, interface, time_ns, direction)
        return made
    return enhanced_packet(
        interface, time_ns, build(source, target, sequence, acknowledged, flags, payload, side), (), direction
    )


@lru_cache(maxsize=4096)
def head(source: Address, target: Address, side: int) -> bytes:
    """The headers of a packet from `source` without payload and options; the accelerator makes others of it."""
    return build(source, target, 0, 0, 0, b"", side)


class TcpSegment(NamedTuple):
    """The TCP segment of a packet. `source` and `target` are packed address + port (see `endpoint`);
    `start` is where the payload begins in the packet's bytes, `cut` how many bytes of it were not captured."""

    source: bytes
    target: bytes
    sequence: int
    acknowledged: int
    flags: int
    payload: bytes
    start: int
    cut: int = 0


def show_address(address: Address) -> str:
    """`host:port`, with brackets around IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def endpoint(packed: bytes) -> Address:
    """The (host, port) of a packed address of `TcpSegment`."""
    family = socket.AF_INET if len(packed) == 6 else socket.AF_INET6
    return socket.inet_ntop(family, packed[:-2]), int.from_bytes(packed[-2:], "big")


_NETWORK_START = {12: 0, 14: 0, 101: 0, 228: 0, 229: 0, 0: 4, 108: 4}  # raw IP of all sorts; BSD loopback

LEAST = 20
"""Bytes of an IP header. Packets of less, also those of which nothing was captured, hold nothing that is read."""

LINKTYPES = {LINKTYPE_ETHERNET, 113, 276, *_NETWORK_START}
"""Link types whose packets are read."""


def network_start(linktype: int, data: bytes) -> int | None:
    """The offset of the IP header; None where there is none."""
    if linktype == LINKTYPE_ETHERNET:
        start, kind = 14, data[12:14]
        while kind in (b"\x81\x00", b"\x88\xa8", b"\x91\x00"):
            kind = data[start + 2 : start + 4]
            start += 4
    elif linktype == 113:
        start, kind = 16, data[14:16]
    elif linktype == 276:
        start, kind = 20, data[0:2]
    elif linktype in _NETWORK_START:
        start, kind = _NETWORK_START[linktype], b""
    else:
        return None
    while kind in (b"\x81\x00", b"\x88\xa8") and linktype != LINKTYPE_ETHERNET:  # a VLAN tag in a cooked packet
        kind = data[start + 2 : start + 4]
        start += 4
    if kind in (tunnels.MPLS, tunnels.PPPOE):
        return tunnels.labelled(kind, data, start)
    return start if kind in (b"", b"\x08\x00", b"\x86\xdd") and len(data) >= start + 20 else None


def parse(linktype: int, data: bytes, size: int = 0) -> TcpSegment | None:
    """The TCP segment in a packet, or None for anything else (other protocols, fragments, cut headers).

    `size`: the packet's length on the wire, for packets whose IP header does not give it.
    """
    start = network_start(linktype, data)
    while start is not None and start + 20 <= len(data):
        found = _parse_ip(data, start, max(size, len(data)))
        if found is not None:
            return found
        start = tunnels.inside(data, start)
    return None


def is_fragment(linktype: int, data: bytes) -> bool:
    """Whether a packet that `parse` refused is a fragment of an IP packet."""
    start = network_start(linktype, data)
    if start is None:
        return False
    if data[start] >> 4 == 4:
        return bool(int.from_bytes(data[start + 6 : start + 8], "big") & 0x3FFF) and data[start + 9] == 6
    return data[start] >> 4 == 6 and len(data) > start + 40 and data[start + 6] == 44 and data[start + 40] == 6


def _parse_ip(data: bytes, start: int, size: int) -> TcpSegment | None:
    version = data[start] >> 4
    if version == 4:
        total, fragment, protocol = *struct.unpack_from(">H2xH", data, start + 2), data[start + 9]
        if protocol != 6 or fragment & 0x3FFF:
            return None
        source, target = data[start + 12 : start + 16], data[start + 16 : start + 20]
        end = start + total if total else size  # 0: the network card splits the packet later
        tcp = start + 4 * (data[start] & 15)
    elif version == 6 and len(data) >= start + 40:
        total, protocol = struct.unpack_from(">HB", data, start + 4)
        source, target = data[start + 8 : start + 24], data[start + 24 : start + 40]
        tcp = start + 40
        end = tcp + total if total else size
        while protocol in (0, 43, 60, 51) and tcp + 8 <= len(data):
            # An authentication header (51) counts its length in words of 4 bytes, the others in 8.
            step = 4 * (data[tcp + 1] + 2) if protocol == 51 else 8 * (data[tcp + 1] + 1)
            protocol, tcp = data[tcp], tcp + step
        if protocol != 6:
            return None
    else:
        return None
    if len(data) < tcp + 20:
        return None
    source_port, target_port, sequence, acknowledged = struct.unpack_from(">2s2sII", data, tcp)
    payload = tcp + 4 * (data[tcp + 12] >> 4)
    if payload < tcp + 20:
        return None
    return TcpSegment(
        source + source_port,
        target + target_port,
        sequence,
        acknowledged,
        data[tcp + 13],
        data[payload : min(end, len(data))],
        payload,
        max(end - max(len(data), payload), 0),
    )
