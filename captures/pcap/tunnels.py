"""Tunnels: where the next IP header begins.

Overlay networks carry the traffic of containers in VXLAN, Geneve, GRE or plain IP-in-IP; MPLS and PPPoE stand between
Ethernet and IP. Encrypted tunnels (ESP) are not opened.
"""

from __future__ import annotations

MPLS, PPPOE = b"\x88\x47", b"\x88\x64"
_IPV4, _IPV6, _BRIDGED = b"\x08\x00", b"\x86\xdd", b"\x65\x58"
_TAGS = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")
_VXLAN = (4789, 8472)  # RFC 7348; 8472: of Linux before it, which flannel and others still use
_GENEVE = 6081  # RFC 8926


def labelled(kind: bytes, data: bytes, start: int) -> int | None:
    """The offset of the IP header behind the labels of MPLS (RFC 3032) or the header of a PPPoE session (RFC 2516)."""
    if kind == PPPOE:
        return start + 8 if data[start + 6 : start + 8] in (b"\x00\x21", b"\x00\x57") else None
    while start + 4 <= len(data):
        start += 4
        if data[start - 2] & 1:  # the bottom of the stack
            return start if data[start : start + 1] and data[start] >> 4 in (4, 6) else None
    return None


def ethernet(data: bytes, at: int) -> int | None:
    """The offset of the IP header in an Ethernet frame that begins at `at`."""
    start, kind = at + 14, data[at + 12 : at + 14]
    while kind in _TAGS:
        kind = data[start + 2 : start + 4]
        start += 4
    if kind in (MPLS, PPPOE):
        return labelled(kind, data, start)
    return start if kind in (_IPV4, _IPV6) else None


def inside(data: bytes, start: int) -> int | None:
    """The offset of the inner IP header of the IP packet whose header begins at `start`; None without one."""
    if start + 20 > len(data):
        return None
    if data[start] >> 4 == 4:
        if int.from_bytes(data[start + 6 : start + 8], "big") & 0x1FFF:
            return None  # a later fragment
        protocol, at = data[start + 9], start + 4 * (data[start] & 15)
    elif data[start] >> 4 == 6 and start + 40 <= len(data):
        protocol, at = data[start + 6], start + 40
    else:
        return None
    found: int | None = None
    if protocol in (4, 41):
        found = at
    elif protocol == 47:
        found = _gre(data, at)
    elif protocol == 17:
        found = _udp(data, at)
    return found if found is not None and found + 20 <= len(data) else None


def _gre(data: bytes, at: int) -> int | None:
    """RFC 2784 and 2890: checksum, key and sequence number are there or not."""
    if at + 4 > len(data) or data[at + 1] & 7:
        return None
    kind = data[at + 2 : at + 4]
    at += 4 + sum(4 for bit in (0x80, 0x20, 0x10) if data[at] & bit)
    return at if kind in (_IPV4, _IPV6) else ethernet(data, at) if kind == _BRIDGED else None


def _udp(data: bytes, at: int) -> int | None:
    port, at = int.from_bytes(data[at + 2 : at + 4], "big"), at + 8
    if port in _VXLAN and data[at : at + 1] and data[at] & 0x08:
        return ethernet(data, at + 8)
    if port == _GENEVE and at + 8 <= len(data) and data[at] >> 6 == 0:
        kind, behind = data[at + 2 : at + 4], at + 8 + 4 * (data[at] & 0x3F)
        return behind if kind in (_IPV4, _IPV6) else ethernet(data, behind) if kind == _BRIDGED else None
    return None
