"""The records of a TLS stream: their types and lengths are in clear even where their content is encrypted (RFC 8446, section 5)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

_HEAD = 5
_LONGEST = (1 << 14) + 2048
"""Bytes of a record's content at most (TLS 1.2; less in 1.3)."""
_ALERT_SIZE = 2


class TlsType(IntEnum):
    """Types of records."""

    CHANGE_CIPHER_SPEC = 20
    ALERT = 21
    HANDSHAKE = 22
    APPLICATION_DATA = 23
    HEARTBEAT = 24


class TlsRecord(NamedTuple):
    """The head of a record: what it says of itself, and the length of its content in bytes."""

    type: TlsType
    length: int

    @property
    def plain_alert(self) -> bool:
        """Whether it is an alert in clear: encrypted ones are longer."""
        return self.type is TlsType.ALERT and self.length == _ALERT_SIZE


class TlsRecords:
    """Follows one direction of a stream from its first byte on, in chunks of any size.

    `broken`: it is not TLS, or not any more; nothing is read from then on.
    """

    __slots__ = ("_alert", "_head", "_rest", "broken")

    def __init__(self) -> None:
        self.broken = False
        self._head, self._rest, self._alert = b"", 0, False

    def feed(self, data: bytes) -> tuple[list[TlsRecord], list[slice]]:
        """The records whose heads are complete now, and where `data` has heads and the content of alerts in clear."""
        records: list[TlsRecord] = []
        clear: list[slice] = []
        at = 0
        while at < len(data) and not self.broken:
            if self._rest:
                end = min(at + self._rest, len(data))
                if self._alert:
                    clear.append(slice(at, end))
                self._rest -= end - at
            else:
                end = min(at + _HEAD - len(self._head), len(data))
                self._head += data[at:end]
                clear.append(slice(at, end))
                if len(self._head) == _HEAD:
                    self._begin(records)
            at = end
        return records, clear

    def _begin(self, records: list[TlsRecord]) -> None:
        kind, major, length = self._head[0], self._head[1], int.from_bytes(self._head[3:5], "big")
        self._head = b""
        if major != 3 or length > _LONGEST or kind not in TlsType.__members__.values():
            self.broken = True
            return
        record = TlsRecord(TlsType(kind), length)
        records.append(record)
        self._rest, self._alert = length, record.plain_alert


def starts_tls(data: bytes) -> bool:
    """Whether a stream begins with a TLS record: a hello or an alert."""
    return len(data) >= 3 and data[0] in (TlsType.HANDSHAKE, TlsType.ALERT) and data[1] == 3 and data[2] <= 4
