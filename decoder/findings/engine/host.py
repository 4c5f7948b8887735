"""Host names and addresses in messages: their kind, and whether two may be the same endpoint."""

from __future__ import annotations

import ipaddress

_NAMES_OF_SELF = ("localhost", "localhost.localdomain", "ip6-localhost")


def host_port(host: str | None, port: int) -> str:
    """``host:port``, IPv6 in brackets."""
    return f"[{host}]:{port}" if host and ":" in host else f"{host or ''}:{port}"


def split(address: str) -> tuple[str, str]:
    """Host (without brackets) and port of ``host:port``."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_number(host: str) -> bool:
    """Whether it is an IP address, not a name."""
    return _number(host) is not None


def is_loopback(host: str) -> bool:
    """Whether it is the local machine, by number or name."""
    found = _number(host)
    return found.is_loopback if found else host.lower() in _NAMES_OF_SELF


def is_unspecified(host: str) -> bool:
    """Whether it is 0.0.0.0 or ::, which only a listener can have."""
    found = _number(host)
    return bool(found and found.is_unspecified)


def is_private(host: str) -> bool:
    """Whether it is an address of a private network (RFC 1918, RFC 4193), loopback excluded."""
    found = _number(host)
    return bool(found and found.is_private and not found.is_loopback and not found.is_unspecified)


def same_place(named: str, tried: str) -> bool:
    """Whether a connection to `tried` (an IP address) may be one to `named`. A name may resolve to any address."""
    (one, port), (other, tried_port) = split(named), split(tried)
    if port != tried_port:
        return False
    if is_loopback(one) and is_loopback(other):
        return True
    return _number(one) == _number(other) if is_number(one) else not is_loopback(one)
