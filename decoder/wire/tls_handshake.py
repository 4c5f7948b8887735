"""What the records of a TLS 1.3 handshake show although they are encrypted: their types, lengths and order (RFC 8446)."""

from __future__ import annotations

from enum import Enum, auto

from .frame import Direction
from .tls_records import TlsRecord, TlsRecords, TlsType

_ENCRYPTED_ALERT = 19
"""Bytes: level and description, the inner type, and the tag of the cipher."""
_NO_CERTIFICATE = 25
"""Bytes of an encrypted Certificate message with an empty list: 4 of head, 1 + 3 of lengths, the inner type, the tag."""
_MOST_RECORDS = 48
"""Records that are kept; a handshake has fewer."""


class Refusal(Enum):
    """Who ended a handshake, and over what."""

    NONE = auto()
    """It was completed, or the records do not say."""
    BY_CLIENT = auto()
    """The client's first encrypted record is an alert: it does not accept the broker's certificate."""
    NO_CERTIFICATE = auto()
    """The broker asked for a certificate, the client sent an empty list, and the broker ended the connection."""
    BY_BROKER = auto()
    """The broker ended the connection right after the client's Finished."""


class TlsHandshake:
    """The records of one connection, in the order of the capture."""

    __slots__ = ("_records", "_streams")

    def __init__(self) -> None:
        self._streams = (TlsRecords(), TlsRecords())
        self._records: list[tuple[Direction, TlsRecord]] = []

    def feed(self, direction: Direction, data: bytes) -> None:
        """The next bytes of a direction."""
        if len(self._records) < _MOST_RECORDS:
            self._records += [(direction, record) for record in self._streams[direction].feed(data)[0]]

    def refusal(self, ended_by: str) -> Refusal:
        """How the connection ended, when it has: `ended_by` is "client", "broker" or ""."""
        if len(self._records) >= _MOST_RECORDS or any(stream.broken for stream in self._streams):
            return Refusal.NONE
        encrypted = [(at, record) for at, (side, record) in enumerate(self._records) if _is(side, record, Direction.REQUEST)]
        if not encrypted or not any(side is Direction.RESPONSE for side, _ in self._records[: encrypted[0][0]]):
            return Refusal.NONE
        first, record = encrypted[0]
        if record.length == _ENCRYPTED_ALERT:
            return Refusal.BY_CLIENT if len(encrypted) == 1 else Refusal.NONE
        answered = [each for side, each in self._records[first:] if _is(side, each, Direction.RESPONSE)]
        if ended_by != "broker" or [each.length for each in answered] not in ([], [_ENCRYPTED_ALERT]):
            return Refusal.NONE
        return Refusal.NO_CERTIFICATE if record.length == _NO_CERTIFICATE else Refusal.BY_BROKER


def _is(side: Direction, record: TlsRecord, wanted: Direction) -> bool:
    return side is wanted and record.type is TlsType.APPLICATION_DATA
