"""Records of an area by their places, as `present` numbers them: step 0 the batch or message, then ``records``, the record, and its
``key``, ``value`` or ``headers``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from .area import Partial, batches
from .batch import Batch
from .errors import RecordsError
from .message import Message
from .record import Headers, Record
from .write import encode_like, encode_messages_like

PARTS = ("key", "value", "headers")
Step = str | int


def part_of(data: bytes, steps: Sequence[Step]) -> bytes | Headers | None:
    """A record's key, value or headers. Raises KeyError for a place that does not exist, `RecordsError` for damaged records."""
    entry, at, part = _place(data, steps)
    found: bytes | Headers | None = getattr(_records(entry, at)[at], part)
    return found


def with_part(data: bytes, steps: Sequence[Step], new: Any) -> bytes:
    """The area with another key, value (bytes, text or None) or headers (a mapping, or pairs) of a record. Its batch is written anew, with
    its codec and checksum; the others keep their bytes. Raises the errors of `part_of`, and TypeError for a value that does not fit."""
    entry, at, part = _place(data, steps)
    changed = _records(entry, at)
    if isinstance(entry, Message) and part == "headers":
        raise KeyError(f"messages of magic {entry.magic} have no headers")
    given: Any = _headers(new) if part == "headers" else _bytes(new)
    changed[at] = changed[at]._replace(**{part: given})
    made = encode_like(entry, changed) if isinstance(entry, Batch) else encode_messages_like(entry, changed)
    return data[: entry.start] + made + data[entry.end :]


def _place(data: bytes, steps: Sequence[Step]) -> tuple[Batch | Message, int, str]:
    if len(steps) != 4 or steps[1] != "records" or not isinstance(steps[2], int) or steps[3] not in PARTS:
        raise KeyError("of records, a path names the batch, the record and its key, value or headers: records[0].records[0].value")
    entry = next(islice(batches(data), int(steps[0]), None), None)
    if entry is None or isinstance(entry, Partial):
        raise KeyError(f"records has no item [{steps[0]}]" if entry is None else f"item [{steps[0]}] of records is cut off")
    return entry, steps[2], str(steps[3])


def _records(entry: Batch | Message, at: int) -> list[Record]:
    found = list(entry.records())
    if at >= len(found):
        raise KeyError(f"the batch has no record [{at}]")
    if found[at].control is not None:
        raise RecordsError("a control record cannot be changed")
    return found


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"bytes, text or None, not {type(value).__name__}")


def _headers(value: Any) -> Headers:
    pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
    try:
        named = [(key, each) for key, each in pairs]
    except (TypeError, ValueError):
        raise TypeError("headers are a mapping, or pairs of a name and bytes") from None
    if not all(isinstance(key, str | bytes) for key, _ in named):
        raise TypeError("the names of headers are text")
    return tuple((key, _bytes(each)) for key, each in named)
