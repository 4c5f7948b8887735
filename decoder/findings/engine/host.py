"""Host names and addresses as they stand in messages: what kind they are, and whether two may be one place."""

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
    """An IP address, not a name."""
    return _number(host) is not None


def is_loopback(host: str) -> bool:
    """One's own machine, by number or by name."""
    found = _number(host)
    return found.is_loopback if found else host.lower() in _NAMES_OF_SELF


def is_unspecified(host: str) -> bool:
    """0.0.0.0 or ::, which only a listener can have."""
    found = _number(host)
    return bool(found and found.is_unspecified)


def is_private(host: str) -> bool:
    """A number of a private network (RFC 1918, RFC 4193); loopback is not meant."""
    found = _number(host)
    return bool(found and found.is_private and not found.is_loopback and not found.is_unspecified)


def same_place(named: str, tried: str) -> bool:
    """Whether a connection to `tried` (numbers) may be one to `named`: names are taken to resolve to anything."""
    (one, port), (other, tried_port) = split(named), split(tried)
    if port != tried_port:
        return False
    if is_loopback(one) and is_loopback(other):
        return True
    return _number(one) == _number(other) if is_number(one) else not is_loopback(one)
