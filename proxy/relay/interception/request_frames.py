"""What interceptors have in common: a request's frame as an exchange, whether a broker answers it, and frames that cannot be read."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .... import decoder
from ....decoder import Exchange
from ....decoder.filter.language.patterns import PatternTimeout
from ....diagnostics import contained
from ....errors import BarnabasError
from ...events import Undecoded, show
from .frame_editor import PRODUCE, Unreadable, produce_acks

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface


_HEAD = struct.Struct(">hhih").unpack_from
_SHORT_HEAD = struct.Struct(">hhi").unpack_from


def exchange_of(connection: ConnectionInterface, frame: bytes, now: int) -> Exchange:
    """A request (with its size) as far as it is known."""
    key, version, correlation, length = _HEAD(frame, 4) if len(frame) >= 14 else (*_SHORT_HEAD(frame, 4), -1)
    client_id = frame[14 : 14 + length].decode("utf-8", "replace") if 0 <= length <= len(frame) - 14 else None
    return Exchange(
        connection=connection.number,
        client=show(connection.peer),
        broker=show(connection.broker),
        api_key=key,
        api_version=version,
        correlation_id=correlation,
        client_id=client_id,
        request=frame[4:],
        request_time_ns=now,
        topics=connection.relay.editor.topics,
        about=connection.about,
    )


def gets_response(frame: bytes) -> bool:
    """Whether a request (with its size) is answered by a broker."""
    if int.from_bytes(frame[4:6], "big") != PRODUCE:
        return True
    acks = produce_acks(frame, 0, len(frame))
    if acks is None:
        try:
            acks = decoder.decode_request(frame[4:])["acks"]
        except (decoder.DecodeError, KeyError):
            return True
    return acks != 0


def report_unread(connection: ConnectionInterface, api_key: int, api_version: int, error: Exception, prefix: str = "") -> None:
    """Report a held frame that goes on without what was wanted of it. An error that is no fault of the frame or of a filter is counted."""
    if not isinstance(error, (Unreadable, PatternTimeout, BarnabasError)):
        contained("the interception of a frame", error, reported=True)
    connection.relay.emit(Undecoded(connection.number, api_key, api_version, prefix + (str(error) or type(error).__name__)))
