"""A frame as it may be shown: secrets overwritten, and where in it keys and values of records stand."""

from __future__ import annotations

from ...decoder import DecodeError, Direction, Exchange, Message, records
from ...decoder.codec import decode_request_header
from ...decoder.present import RECORD_APIS
from ...decoder.records.batch import HEADER_SIZE
from ...decoder.secrets import mask

Range = tuple[int, int]
_MESSAGE_HEAD = {0: 18, 1: 26}  # offset, size, CRC, magic, attributes, and in magic 1 the timestamp


def masked(exchange: Exchange, direction: Direction) -> bytes:
    """The frame with its secrets overwritten; ValueError if there is none."""
    frame = exchange.request if direction is Direction.REQUEST else exchange.response
    if frame is None:
        raise ValueError("it has no " + direction.name.lower())
    if direction is Direction.RESPONSE and exchange.api_key < 0:
        return frame[:4] + b"*" * (len(frame) - 4)  # an orphan: nobody knows what is in it
    return mask(direction, exchange.api_key, exchange.api_version, frame)


def payload_ranges(exchange: Exchange, direction: Direction, message: Message | None) -> list[Range]:
    """Where in the frame records say something, from the first byte behind each batch's header."""
    if exchange.api not in RECORD_APIS:
        return []
    frame = exchange.request if direction is Direction.REQUEST else exchange.response
    if message is None:
        return [(_body_start(frame or b"", direction), len(frame or b""))]
    found: list[Range] = []
    for path, _, end in message.map():
        value = message[path] if path.rpartition(".")[2] in ("records", "unaligned_records") else None
        if isinstance(value, bytes):
            found += [(end - len(value) + low, end - len(value) + high) for low, high in _in_area(value)]
    return found


def _body_start(frame: bytes, direction: Direction) -> int:
    if direction is Direction.RESPONSE:
        return 4
    try:
        return decode_request_header(frame)[1]
    except DecodeError:
        return 8


def _in_area(data: bytes) -> list[Range]:
    found: list[Range] = []
    end = 0
    try:
        for entry in records.batches(data):
            head = 17 if isinstance(entry, records.Partial) else _MESSAGE_HEAD.get(entry.magic, HEADER_SIZE)
            found.append((min(entry.start + head, entry.end), entry.end))
            end = entry.end
    except records.RecordsError:
        found.append((end, len(data)))
    return found
