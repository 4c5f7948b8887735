"""The Kafka protocol, sans-IO: bytes in, facts out. No sockets, no clock, no processes.

Frames are `bytes` without their 4 size bytes. Times are nanoseconds since the epoch. See docs/python.md.
"""

from . import embedded, records, values
from .codec.codec import (
    decode_body,
    decode_request,
    decode_request_header,
    decode_response,
    encode_body,
    encode_request,
    encode_response,
    encode_version_refusal,
    peek_request,
    read_request,
    read_response,
)
from .codec.message import Message
from .codec.project import project
from .connection.connection import Connection, ExchangeDone, Opaque, RequestSeen
from .connection.exchange import Exchange, State
from .connection.topics import Topics
from .errors import (
    BadLength,
    BadUtf8,
    DecodeError,
    EncodeError,
    LimitExceeded,
    TrailingBytes,
    Truncated,
    UnknownApi,
    UnknownVersion,
)
from .reference.definitions import drafts, previews
from .schema import facts
from .wire.frame import Direction

__all__ = [
    "BadLength", "BadUtf8", "Connection", "DecodeError", "Direction", "EncodeError", "Exchange", "ExchangeDone",
    "LimitExceeded", "Message", "Opaque", "RequestSeen", "State", "Topics", "TrailingBytes", "Truncated",
    "UnknownApi", "UnknownVersion", "decode_body", "decode_request", "decode_request_header", "decode_response",
    "drafts", "embedded", "encode_body", "encode_request", "encode_response", "encode_version_refusal", "facts",
    "peek_request", "previews", "project", "read_request", "read_response", "records", "values",
]  # fmt: skip
