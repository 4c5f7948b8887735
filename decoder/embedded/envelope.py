"""A forwarded request inside of an Envelope, the response to it, and who sent it (KIP-590).

Source: Kafka's EnvelopeRequest, DefaultKafkaPrincipalBuilder (principal: int16 version, DefaultPrincipalData).
"""

from __future__ import annotations

import ipaddress
from typing import Any

from ..codec.codec import decode_request, decode_response
from ..codec.message import Message
from ..codec.secrets import shown
from ..errors import TrailingBytes
from .payload import decode, fields_of, leading_int16


def inner_request(data: bytes) -> Message:
    """The forwarded request, header and body; DecodeError if it is none."""
    try:
        return decode_request(data)
    except TrailingBytes as fault:
        return _complete(fault)


def inner_response(data: bytes, request: Message) -> Message:
    """The response to a forwarded request; DecodeError if it is none."""
    try:
        return decode_response(data, api_key=request.api_key, api_version=request.api_version)
    except TrailingBytes as fault:
        return _complete(fault)


def _complete(fault: TrailingBytes) -> Message:
    # All fields are there; the surplus stays visible in `Message.trailing`.
    message: Message = fault.message
    return message


def described(message: Message) -> dict[str, Any]:
    """An inner message as a dict, secrets masked."""
    return {
        "api": message.api,
        "api_key": message.api_key,
        "api_version": message.api_version,
        "header": message.header,
        "body": shown(message),
    }


def principal(data: bytes) -> dict[str, Any]:
    """Who sent the forwarded request; DecodeError if a principal builder other than Kafka's own wrote it."""
    version = leading_int16(data, "DefaultPrincipalData")
    return {"version": version, **fields_of(decode("DefaultPrincipalData", version, data, 2))}


def host(data: bytes) -> str | None:
    """The address of the client, from its 4 or 16 bytes."""
    return str(ipaddress.ip_address(data)) if len(data) in (4, 16) else None
