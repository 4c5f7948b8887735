"""Decode and encode whole frames: header and body together."""

from __future__ import annotations

import struct as _struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import DecodeError, TrailingBytes, Truncated
from ..native.accelerator import native
from ..schema import facts
from ..schema.plan import API_VERSIONS, CONTROLLED_SHUTDOWN, Fields, Plan, Value, Values, extra_plan, plan
from .decode import FAULTS, Decode, decoder
from .encode import encode_struct, values_from
from .message import Message, plain_places
from .project import Reader, error_paths, reader
from .walk import Walker

UNSUPPORTED_VERSION = facts.error_code("UNSUPPORTED_VERSION")


def header_version(kind: str, api_key: int, api_version: int) -> int:
    """Which header version a message has: request 0-2, response 0-1."""
    return plan(kind, api_key, api_version).header_version


_PEEK = _struct.Struct(">hhi")
_HEAD_1 = _struct.Struct(">hhih")


class RequestPrefix(NamedTuple):
    """The first 8 bytes of every request frame, which have the same layout in all APIs and versions."""

    api_key: int
    api_version: int
    correlation_id: int


def peek_request(frame: bytes) -> RequestPrefix:
    """The API key, API version and correlation id of a request frame, known or unknown. Reads nothing else.

    Raises `Truncated` for fewer than 8 bytes.
    """
    prefix: RequestPrefix | None = _read.peek(frame)
    if prefix is not None:
        return prefix
    try:
        return RequestPrefix(*_PEEK.unpack_from(frame))
    except _struct.error:
        raise Truncated(f"expected 8 bytes, got {len(frame)}", path="request_api_key") from None


def _layout(kind: str, api_key: int, api_version: int) -> tuple[Plan, Decode, Reader, dict[str, int], int, int] | None:
    """What the accelerator makes messages with: their plan and reader, a reader of the error codes, the fields that it gives
    itself, the version of their header, and the error code of responses that may have another version."""
    try:
        of = plan(kind, api_key, api_version)
    except DecodeError:
        return None
    refusal = UNSUPPORTED_VERSION if kind == "response" and api_key == API_VERSIONS and api_version else 0
    return of, decoder(of), reader(of, error_paths(of)), plain_places(of.root), of.header_version, refusal


class _Reference:
    """Instead of the accelerator: it leaves everything to the functions here."""

    @staticmethod
    def nothing(*_: object) -> Any:
        return None

    peek = header = body = request = response = nothing


_read: Any = _Reference
"""The usual frames and bodies, if there is the accelerator (`decoder/native/message.c`); None for all others."""
if native is not None:
    _read = native
    native.register(Message, RequestPrefix, _layout)


@lru_cache(4096)
def _request_header_version(key: int, version: int) -> int:
    try:
        return header_version("request", key, version)
    except DecodeError:
        return 0 if key == CONTROLLED_SHUTDOWN and version == 0 else 1


def decode_request_header(frame: bytes) -> tuple[Fields, int]:
    """The header of a request frame, and the offset of its body.

    The dict has ``request_api_key``, ``request_api_version``, ``correlation_id`` and ``client_id`` (str or None). Also
    works for unknown APIs and versions, as all headers begin with these fields; the tags of a version 2 header then count
    as part of the body. Raises `DecodeError` for a frame that ends inside these fields.
    """
    found: tuple[Fields, int] | None = _read.header(frame)
    if found is not None:
        return found
    if len(frame) >= 10:
        key, version, correlation_id, size = _HEAD_1.unpack_from(frame)
        number = _request_header_version(key, version)
        end = 10 + max(size, 0)
        # The usual header, without a call for each field; anything else is read by its plan below.
        if number and size >= -1 and end + (number == 2) <= len(frame) and (number == 1 or frame[end] == 0):
            try:
                client_id = frame[10:end].decode() if size >= 0 else None
            except UnicodeDecodeError:
                pass
            else:
                header = {
                    "request_api_key": key,
                    "request_api_version": version,
                    "correlation_id": correlation_id,
                    "client_id": client_id,
                }
                return header, end + (number == 2)
    key = int.from_bytes(frame[:2], "big", signed=True)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    return read_header("RequestHeader", _request_header_version(key, version), frame)


def read_header(name: str, version: int, frame: bytes) -> tuple[Fields, int]:
    """The fields of a ``"RequestHeader"`` or ``"ResponseHeader"`` of a header version, and the offset of the body."""
    header = extra_plan("headers", name, version)
    values, end = read_values(header, frame, 0)
    return Message(header, values, frame).to_dict(), end


def read_values(of: Plan, data: bytes, start: int) -> tuple[Values, int]:
    """A plan's values from byte `start` on, and where they end. Raises `DecodeError`."""
    try:
        return decoder(of)(data, start)
    except FAULTS:
        raise Walker(of, data, start).explain() from None


def read_message(of: Plan, frame: bytes, start: int, header: Fields) -> Message:
    """The message whose body is `frame` from byte `start` on. Raises `TrailingBytes`, which has the message, if bytes are left."""
    values, end = read_values(of, frame, start)
    message = Message(of, values, frame, start, header, frame[end:])
    if end != len(frame):
        raise TrailingBytes(
            f"{len(frame) - end} byte{'s' * (len(frame) - end != 1)} left over",
            api=of.api,
            version=of.version,
            path="(after the message)",
            offset=end,
            message=message,
        )
    return message


def decode_request(frame: bytes) -> Message:
    """Decode a request frame: header and body, without the 4 size bytes. The header names API and version.

    Raises `UnknownApi` or `UnknownVersion`, `TrailingBytes` for bytes after the end (`read_request` accepts these), and
    another `DecodeError` with path and offset for bytes that do not match the schema.
    """
    message: Message | None = _read.request(frame)
    if message is not None:
        return message
    frame = bytes(frame)
    header, start = decode_request_header(frame)
    of = plan("request", header["request_api_key"], header["request_api_version"])
    return read_message(of, frame, start, header)


def fills(of: Plan, frame: bytes, start: int) -> bool:
    """Whether `frame` from byte `start` on is exactly one body. Cheap: what is wrong is not found out."""
    try:
        return decoder(of)(frame, start)[1] == len(frame)
    except FAULTS:
        return False


def is_request(frame: bytes) -> bool:
    """Whether `decode_request` accepts a frame."""
    if len(frame) < _PEEK.size:
        return False
    key, version, _ = _PEEK.unpack_from(frame)
    try:
        of = plan("request", key, version)
        _, start = decoder(extra_plan("headers", "RequestHeader", of.header_version))(frame, 0)
    except DecodeError:
        return False
    except FAULTS:
        return False
    return fills(of, frame, start)


def is_response(frame: bytes, api_key: int, api_version: int) -> bool:
    """Whether `decode_response` accepts a frame."""
    try:
        of = plan("response", api_key, api_version)
        if api_key == API_VERSIONS and api_version and _has_error(frame, 4, UNSUPPORTED_VERSION):
            _, start = read_header("ResponseHeader", 0, frame)
            if fills(plan("response", api_key, 0), frame, start):
                return True
        _, start = read_header("ResponseHeader", of.header_version, frame)
    except DecodeError:
        return False
    return fills(of, frame, start)


def guess_request(frame: bytes) -> Message | None:
    """A request of an unknown version, decoded as the nearest known one. None for an unknown API or if it does not fit."""
    header, start = decode_request_header(frame)
    key, version = header["request_api_key"], header["request_api_version"]
    try:
        known = facts.api(key).versions.every()
    except KeyError:
        return None
    nearest = plan("request", key, min(max(version, known[0]), known[-1]))
    if nearest.header_version == 2:
        try:
            _, start = read_header("RequestHeader", 2, frame)
        except DecodeError:
            return None
    try:
        return _complete(lambda: read_message(nearest, frame, start, header))
    except DecodeError:
        return None


def decode_response(frame: bytes, *, api_key: int, api_version: int) -> Message:
    """Decode a response frame: header and body, without the 4 size bytes. `api_key` and `api_version` are the request's.

    An ApiVersions response with UNSUPPORTED_VERSION is read as version 0, which is what brokers then send (KIP-511).
    Raises the errors of `decode_request`; `read_response` accepts bytes after the end.
    """
    message: Message | None = _read.response(frame, api_key, api_version)
    if message is not None:
        return message
    frame = bytes(frame)
    if api_key == API_VERSIONS and api_version and _has_error(frame, 4, UNSUPPORTED_VERSION):
        # Also if the requested version is unknown here: the header of these responses is always version 0.
        header, start = read_header("ResponseHeader", 0, frame)
        try:
            return read_message(plan("response", api_key, 0), frame, start, header)
        except DecodeError:
            pass  # some brokers send the error in the requested version; if that fails too, its fault is reported
    of = plan("response", api_key, api_version)
    if len(frame) > 4 and not (of.header_version and frame[4]):
        # The usual header has no tags and needs no plan.
        header, start = {"correlation_id": int.from_bytes(frame[:4], "big", signed=True)}, 5 if of.header_version else 4
    else:
        header, start = read_header("ResponseHeader", of.header_version, frame)
    return read_message(of, frame, start, header)


def read_request(frame: bytes) -> Message:
    """Like `decode_request`, but bytes after the end are not an error: they are in `Message.trailing`."""
    message: Message | None = _read.request(frame)
    return message if message is not None else _complete(lambda: decode_request(frame))


def read_response(frame: bytes, *, api_key: int, api_version: int) -> Message:
    """Like `decode_response`, but bytes after the end are not an error, as in most clients: they are in `Message.trailing`."""
    message: Message | None = _read.response(frame, api_key, api_version)
    if message is not None:
        return message
    return _complete(lambda: decode_response(frame, api_key=api_key, api_version=api_version))


def _complete(decode: Callable[[], Message]) -> Message:
    try:
        return decode()
    except TrailingBytes as fault:
        if not isinstance(fault.message, Message):
            raise
        return fault.message


def _has_error(frame: bytes, start: int, code: int) -> bool:
    return frame[start : start + 2] == code.to_bytes(2, "big", signed=True)


def decode_body(kind: str, api_key: int, api_version: int, data: bytes) -> Message:
    """Decode the body, without header, of a ``"request"`` or ``"response"``. Raises the errors of `decode_request`."""
    message: Message | None = _read.body(kind, api_key, api_version, data)
    if message is not None:
        return message
    return read_message(plan(kind, api_key, api_version), bytes(data), 0, {})


def _encode(of: Plan, fields: Mapping[str, Value], head: bytes, header: Fields) -> Message:
    values = values_from(of.root, fields)
    out = bytearray(head)
    encode_struct(of.root, values, out)
    return Message(of, values, bytes(out), len(head), header)


def encode_request(
    api_key: int,
    api_version: int,
    fields: Mapping[str, Value],
    *,
    correlation_id: int = 0,
    client_id: str | None = None,
) -> bytes:
    """Encode a request frame. `fields` are nested dicts with Kafka's field names in snake_case, as `Message.to_dict` or
    `Message.to_json` gives them; omitted fields get their defaults.

    Raises `EncodeError` with the path of a field that is unknown at this version or whose value is not valid, and
    `UnknownApi` or `UnknownVersion`.
    """
    of = plan("request", api_key, api_version)
    header = {
        "request_api_key": api_key,
        "request_api_version": api_version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    return _encode(of, fields, _head("RequestHeader", of.header_version, header), header).frame


def encode_response(api_key: int, api_version: int, fields: Mapping[str, Value], *, correlation_id: int = 0) -> bytes:
    """Encode a response frame, as `encode_request` does for a request."""
    of = plan("response", api_key, api_version)
    header = {"correlation_id": correlation_id}
    return _encode(of, fields, _head("ResponseHeader", of.header_version, header), header).frame


def encode_version_refusal(correlation_id: int, served: tuple[int, int] | None) -> bytes:
    """The response frame to an ApiVersions request of an unsupported version, always in version 0 (KIP-511).

    `served`: the (lowest, highest) supported version of ApiVersions; None: not stated, as before Kafka 2.4.
    """
    own = [] if served is None else [{"api_key": API_VERSIONS, "min_version": served[0], "max_version": served[1]}]
    fields = {"error_code": UNSUPPORTED_VERSION, "api_keys": own}
    return encode_response(API_VERSIONS, 0, fields, correlation_id=correlation_id)


def encode_body(kind: str, api_key: int, api_version: int, fields: Mapping[str, Value]) -> bytes:
    """Encode a body without header, as `encode_request` does for a request. `kind` is ``"request"`` or ``"response"``."""
    return _encode(plan(kind, api_key, api_version), fields, b"", {}).frame


def _head(name: str, version: int, header: Fields) -> bytes:
    of = extra_plan("headers", name, version)
    known = {f.name for f in of.root.fields}
    out = bytearray()
    encode_struct(of.root, values_from(of.root, {k: v for k, v in header.items() if k in known}), out)
    return bytes(out)
