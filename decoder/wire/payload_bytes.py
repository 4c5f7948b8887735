"""Where in a frame keys and values of records stand: what a dump leaves out, or covers."""

from __future__ import annotations

from .. import records
from ..codec.codec import decode_request_header
from ..codec.message import Message
from ..codec.present import RECORD_APIS
from ..errors import DecodeError
from ..records.batch import HEADER_SIZE
from .frame import Direction

Range = tuple[int, int]
_MESSAGE_HEAD = {0: 18, 1: 26}  # offset, size, CRC, magic, attributes, and in magic 1 the timestamp


def payload_ranges(direction: Direction, api: str, frame: bytes, message: Message | None) -> list[Range]:
    """Where in the frame records say something, from the first byte behind each batch's header. `message`: the frame
    decoded; None if it cannot be: then everything behind its header may say something."""
    if api not in RECORD_APIS:
        return []
    if message is None:
        return [(_body_start(frame, direction), len(frame))]
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
