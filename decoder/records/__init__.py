"""Records as Produce and Fetch carry them: batches of magic 2, messages of magic 0 and 1, codecs, CRCs.

    for entry in batches(data):              # Batch, Message, or Partial for an unfinished last one
        for record in entry.records():       # Record: offset, timestamp, key, value, headers ...
            ...

Nothing is decompressed or copied before it is needed. Bytes that cannot be read raise a `RecordsError` and nothing else.
"""

from __future__ import annotations

from .area import Partial, batches
from .batch import Batch
from .codecs import compress, decompress
from .errors import BadLength, CodecError, LimitExceeded, RecordsError, Truncated, UnknownMagic
from .index import RecordIndex
from .message import Message
from .record import Control, Record, spans
from .transactions import Aborted, aborted_batches, aborted_in
from .write import encode_batch, encode_like, encode_messages, encode_messages_like

__all__ = [
    "Aborted", "BadLength", "Batch", "CodecError", "Control", "LimitExceeded", "Message", "Partial", "Record", "RecordIndex",
    "RecordsError", "Truncated", "UnknownMagic", "aborted_batches", "aborted_in", "batches", "compress", "decompress", "encode_batch",
    "encode_like", "encode_messages", "encode_messages_like", "spans",
]  # fmt: skip
