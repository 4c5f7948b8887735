"""The values of the language: numbers with units, times, addresses, ids. Each function returns None for text that is no such
value."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

DURATIONS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
"""Units of time, in nanoseconds."""
SIZES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}  # fmt: skip
"""Units of size, in bytes."""
UNITS = {**DURATIONS, **SIZES}

_NUMBER = re.compile(r"([+-]?)(0x[0-9A-Fa-f]{1,16}|\d{1,20}(?:\.\d{1,12})?(?:e[+-]?\d{1,2})?)([A-Za-z]*)")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?)?"
)
_SECOND = 10**9
DAY = 86_400 * _SECOND

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Host = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Number:
    """`value` in the base unit (nanoseconds, bytes); `unit` is "time", "size" or ""."""

    value: int | float
    unit: str


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """A time of day of any date, in nanoseconds since midnight."""

    ns: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address in a filter: a host, a network, a port, or a host with its port."""

    host: str | None
    network: Network | None
    port: int | None

    def matches(self, host: str, port: int) -> bool:
        """Whether ``host:port`` belongs to it."""
        if self.port is not None and port != self.port:
            return False
        if self.network is not None:
            address = ip(host)
            return address is not None and address in self.network
        return self.host is None or host.lower() == self.host


def number(text: str, unit: str = "") -> Number | None:
    """``50ms``, ``1.5MB``, ``-1``, ``0x1f``. Whole numbers stay exact; durations and sizes become whole ns or bytes."""
    match = _NUMBER.fullmatch(text)
    if match is None or (match[3] and unit):
        return None
    sign, digits, unit = match[1], match[2], match[3] or unit
    if unit and unit not in UNITS:
        return None
    value: int | float
    if digits.startswith("0x"):
        value = int(digits, 16)
    elif digits.isdecimal():
        value = int(digits)
    else:
        value = float(digits)
    if unit:
        value = value * UNITS[unit] if isinstance(value, int) else round(value * UNITS[unit])
    return Number(-value if sign == "-" else value, "time" if unit in DURATIONS else "size" if unit in SIZES else "")


def clock(text: str) -> TimeOfDay | None:
    """``12:01``, ``12:01:30``, ``12:01:30.250``."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return TimeOfDay((hours * 3600 + minutes * 60 + seconds) * _SECOND + _fraction(match[4]))


def moment(text: str, zone: tzinfo | None = None) -> int | None:
    """Nanoseconds since the epoch of ``2026-11-21``, ``2026-11-21T12:01:30.25Z`` (also ``+01:00``).

    Without an offset it is in `zone`; None: the local zone.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        year, month, day, hour, minute, second = (int(match[i] or 0) for i in range(1, 7))
        when = datetime(year, month, day, hour, minute, second, tzinfo=zone)
        offset = match[8]
        if offset == "Z":
            when = when.replace(tzinfo=UTC)
        elif offset:
            when = datetime.fromisoformat(when.replace(tzinfo=None).isoformat() + _full(offset))
        elif zone is None:
            when = when.astimezone()
        whole = when - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return (whole.days * 86_400 + whole.seconds) * _SECOND + _fraction(match[7])


def _full(offset: str) -> str:
    digits = offset[1:].replace(":", "").ljust(4, "0")
    return f"{offset[0]}{digits[:2]}:{digits[2:]}"


def _fraction(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0"))


def ip(text: str) -> Host | None:
    """An IP address; an IPv4 address in IPv6 form is the IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def split_endpoint(text: str) -> tuple[str, int]:
    """(host, port) of ``host:port``, without brackets around IPv6; the port is -1 if there is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > 5 or (":" in host and not host.startswith("[")):
        return text.strip("[]"), -1
    return host.removeprefix("[").removesuffix("]"), int(port)


def endpoint(text: str) -> Endpoint | None:
    """``10.0.0.1``, ``10.0.0.0/8``, ``::1``, ``[::1]:9092``, ``kafka:9092``, ``kafka``, ``:9092``."""
    if not text:
        return None
    if "/" in text:
        try:
            return Endpoint(None, ipaddress.ip_network(text, strict=False), None)
        except ValueError:
            return None
    host, port = split_endpoint(text)
    if port > 65535 or (port < 0 and not host):
        return None
    address = ip(host)
    network = ipaddress.ip_network(address) if address is not None else None
    return Endpoint(host.lower() or None if network is None else None, network, port if port >= 0 else None)


def topic_id(text: str) -> bytes | None:
    """The 16 bytes of an id in Kafka's base64 form or as a UUID in hexadecimal."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        pass
    try:
        data = base64.urlsafe_b64decode(text + "==") if len(text) == 22 and text.isascii() else b""
    except (binascii.Error, ValueError):
        return None
    return data if len(data) == 16 else None


def seconds_of_offset(ns: int, zone: tzinfo | None) -> int:
    """The zone's offset from UTC in seconds at a moment; 0 beyond Python's calendar."""
    try:
        when = datetime.fromtimestamp(ns // _SECOND, UTC).astimezone(zone)
        offset = when.utcoffset()
    except (ValueError, OverflowError, OSError):
        return 0
    return 0 if offset is None else int(offset.total_seconds())
