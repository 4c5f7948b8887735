"""Protocols other than Kafka's, recognized by the first 8 bytes of a stream, which redacted recordings keep.

Kafka's framing starts with the size of the first frame, so most other protocols are absurd sizes to a broker.
"""

from __future__ import annotations

from typing import NamedTuple

from ....wire.frame import Direction
from ....wire.tls_records import starts_tls

KEPT = 8
TLS = "TLS"
HTTP = "HTTP"
PROXY = "the PROXY protocol"

_FROM_CLIENTS = (
    (b"GET ", HTTP), (b"POST", HTTP), (b"PUT ", HTTP), (b"HEAD", HTTP), (b"OPTI", HTTP), (b"DELE", HTTP),
    (b"PATC", HTTP), (b"CONN", HTTP), (b"PRI ", "HTTP/2"), (b"SSH-", "SSH"),
    (b"PROXY ", PROXY), (b"\r\n\r\n\0\r\nQ", PROXY),
    (b"AMQP", "AMQP"), (b"JRMI", "Java RMI"), (b"PING", "Redis"), (b"EHLO", "SMTP"), (b"HELO", "SMTP"),
    (b"ruok", "a ZooKeeper command"), (b"stat", "a ZooKeeper command"), (b"mntr", "a ZooKeeper command"),
)  # fmt: skip
_FROM_SERVERS = (
    (b"HTTP/", HTTP), (b"SSH-", "SSH"), (b"AMQP", "AMQP"), (b"-ERR", "Redis"), (b"+PONG", "Redis"), (b"+OK", "Redis"),
    (b"220 ", "SMTP or FTP"), (b"220-", "SMTP or FTP"),
)  # fmt: skip

# RFC 8446, section 6: those that a peer really sends while shaking hands.
ALERTS = {
    10: "unexpected_message",
    40: "handshake_failure",
    42: "bad_certificate",
    43: "unsupported_certificate",
    44: "certificate_revoked",
    45: "certificate_expired",
    46: "certificate_unknown",
    47: "illegal_parameter",
    48: "unknown_ca",
    49: "access_denied",
    50: "decode_error",
    51: "decrypt_error",
    70: "protocol_version",
    71: "insufficient_security",
    80: "internal_error",
    86: "inappropriate_fallback",
    112: "unrecognized_name",
    116: "certificate_required",
    120: "no_application_protocol",
}


class Alert(NamedTuple):
    """A TLS alert in clear. `fatal` is False for warnings, close_notify among them."""

    fatal: bool
    name: str


def protocol(data: bytes, direction: Direction) -> str | None:
    """The name of the protocol whose stream starts like this, None if it may be Kafka's or is unknown."""
    if starts_tls(data):
        return TLS
    table = _FROM_SERVERS if direction is Direction.RESPONSE else _FROM_CLIENTS
    for start, name in table:
        if data[:KEPT].startswith(start):
            return name
    return _by_shape(data, direction)


def _by_shape(data: bytes, direction: Direction) -> str | None:
    if len(data) < KEPT:
        return None
    if direction is Direction.RESPONSE:
        if data[3] == 0 and data[4] == 10 and data[5:7].isascii() and data[5:6].isdigit():
            return "MySQL"  # its server speaks first: length, number 0, protocol 10, the release as text
        if data[:1] == b"E" and data[1:3] == b"\0\0" and data[5:6] == b"S":
            return "PostgreSQL"
        return None
    if data[:4] == b"\0\0\0\x08" and data[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):
        return "PostgreSQL"  # an SSLRequest, or one for GSSAPI
    if data[4:8] == b"\0\x03\0\0" and len(data) == int.from_bytes(data[:4], "big"):
        return "PostgreSQL"  # its length counts itself, so a broker waits for 4 more bytes
    if data[0] == 0x10 and b"MQ" in data[4:8]:
        return "MQTT"
    if data[:1] == b"*" and data[1:2].isdigit() and b"\r\n" in data[2:5]:
        return "Redis"
    return None


_MASKED_ALERT = b"*" * 7


def alert(data: bytes) -> Alert | None:
    """A TLS record that is an alert in clear; None for any other, and for encrypted ones. Old recordings mask them: only the length of
    the record tells that it is one."""
    if data == _MASKED_ALERT:
        return Alert(True, "an alert that this recording masks")
    if len(data) < 7 or data[0] != 0x15 or data[1] != 3 or data[3:5] != b"\0\x02" or data[5] not in (1, 2):
        return None
    return Alert(data[5] == 2 and data[6] != 0, ALERTS.get(data[6], f"alert {data[6]}"))


def announced(data: bytes) -> int:
    """The size that the first 4 bytes are to Kafka; negative sizes too, 0 for fewer bytes."""
    return int.from_bytes(data[:4], "big", signed=True) if len(data) >= 4 else 0
