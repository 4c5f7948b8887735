"""What the records of a TLS 1.3 handshake show although they are encrypted: their types, lengths and order (RFC 8446)."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from .frame import Direction
from .tls_records import TlsRecord, TlsRecords, TlsType

_INSIDE, _PADDING = 17, 16
"""Bytes that encryption adds to a record: the inner type and the tag; and what Java adds to those of handshakes."""


def _sizes(*contents: int) -> frozenset[int]:
    """The lengths of encrypted records with contents of these lengths, also as Java writes them."""
    return frozenset(size + _INSIDE + padding for size in contents for padding in (0, _PADDING))


_ALERT = _sizes(2)
"""Level and description."""
_EMPTY, _FINISHED = 8, (36, 52)
"""A Certificate message with an empty list: 4 of head, 1 + 3 of lengths; Finished: 4 of head, and a hash of SHA-256 or SHA-384."""
_NO_CERTIFICATE = _sizes(_EMPTY, *(_EMPTY + finished for finished in _FINISHED)) - _sizes(*_FINISHED)
"""Java writes both messages into one record."""
_MOST_RECORDS = 48
"""Records that are kept; a handshake has fewer."""
_SOON_NS = 5_000_000_000
"""A broker that ends a connection later than this after the client's Finished ends an idle one."""


class Refusal(Enum):
    """Who ended a handshake, and over what."""

    NONE = auto()
    """It was completed, or the records do not say."""
    BY_CLIENT = auto()
    """The client's first encrypted record is an alert: it does not accept the broker's certificate."""
    NO_CERTIFICATE = auto()
    """The client answered the broker's request for a certificate with an empty list, and the broker ended the connection."""
    BY_BROKER = auto()
    """The broker ended the connection right after the client's Finished."""


class _Seen(NamedTuple):
    side: Direction
    record: TlsRecord
    time_ns: int


class TlsHandshake:
    """The records of one connection, in the order of the capture."""

    __slots__ = ("_records", "_streams")

    def __init__(self) -> None:
        self._streams = (TlsRecords(), TlsRecords())
        self._records: list[_Seen] = []

    def feed(self, direction: Direction, data: bytes, time_ns: int) -> None:
        """The next bytes of a direction."""
        if len(self._records) < _MOST_RECORDS:
            self._records += [_Seen(direction, record, time_ns) for record in self._streams[direction].feed(data)[0]]

    def refusal(self, ended_by: str, closed_ns: int) -> Refusal:
        """How the connection ended, when it has: `ended_by` is "client", "broker" or ""."""
        if len(self._records) >= _MOST_RECORDS or any(stream.broken for stream in self._streams):
            return Refusal.NONE
        encrypted = [seen for seen in self._records if seen.record.type is TlsType.APPLICATION_DATA]
        first = next((at for at, seen in enumerate(encrypted) if seen.side is Direction.REQUEST), 0)
        if not first:  # in TLS 1.3 the broker's certificate comes encrypted before; in 1.2 only requests are
            return Refusal.NONE
        client, after = encrypted[first], encrypted[first + 1 :]
        if client.record.length in _ALERT:
            return Refusal.NONE if any(seen.side is Direction.REQUEST for seen in after) else Refusal.BY_CLIENT
        answered = [at for at, seen in enumerate(after) if seen.side is Direction.RESPONSE]
        ended_ns = closed_ns
        if answered:
            alert = after[answered[0]]
            says_goodbye = any(seen.record.length in _ALERT for seen in after[: answered[0]])
            if len(answered) > 1 or alert.record.length not in _ALERT or says_goodbye:
                return Refusal.NONE
            ended_ns = alert.time_ns
        elif ended_by != "broker":
            return Refusal.NONE
        if ended_ns - client.time_ns > _SOON_NS:
            return Refusal.NONE
        return Refusal.NO_CERTIFICATE if client.record.length in _NO_CERTIFICATE else Refusal.BY_BROKER
