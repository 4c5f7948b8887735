"""What must not be shown or stored: where secrets stand in messages, and masking that keeps every length.

Masked bytes decode like the original: the field keeps its size, its content becomes ``*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from . import facts
from .codec import decode_request, decode_response, peek_request
from .errors import DecodeError
from .frame import Direction
from .message import Message

MASK = b"*"

# By API name: the body paths that hold credentials or what they can be worked out from.
_REQUEST = {
    "SaslAuthenticate": ("auth_bytes",),
    "RenewDelegationToken": ("hmac",),
    "ExpireDelegationToken": ("hmac",),
    "AlterUserScramCredentials": ("upsertions[*].salt", "upsertions[*].salted_password"),
    "AlterConfigs": ("resources[*].configs[*].value",),
    "IncrementalAlterConfigs": ("resources[*].configs[*].value",),
    "Envelope": ("request_data",),
}
_RESPONSE = {
    "SaslAuthenticate": ("auth_bytes",),
    "CreateDelegationToken": ("hmac",),
    "DescribeDelegationToken": ("tokens[*].hmac",),
    # What is inside depends on the request, which nobody has here; a new token's HMAC may be.
    "Envelope": ("response_data",),
}
_CONFIG_APIS = {"AlterConfigs", "IncrementalAlterConfigs"}
SENSITIVE = re.compile(r"password|secret|token|credential|jaas|private|keystore\.key|truststore\.cert", re.I)


@cache
def secret_paths(direction: Direction, api_key: int) -> tuple[re.Pattern[str], ...]:
    """Patterns over the paths of `Message.map` that hold secrets; empty for nearly all APIs."""
    table = _REQUEST if direction is Direction.REQUEST else _RESPONSE
    paths = table.get(facts.api_name(api_key), ())
    return tuple(re.compile(re.escape(p).replace(r"\[\*\]", r"\[\d+\]")) for p in paths)


def mask(direction: Direction, api_key: int, api_version: int, frame: bytes) -> bytes:
    """The frame with every secret overwritten, length unchanged. A frame of such an API that cannot be decoded
    is masked behind its header, since nobody can say where its secrets are."""
    if not secret_paths(direction, api_key):
        return frame
    try:
        if direction is Direction.REQUEST:
            message = decode_request(frame)
        else:
            message = decode_response(frame, api_key=api_key, api_version=api_version)
    except DecodeError as fault:
        if fault.message is None:
            head = 8 if direction is Direction.REQUEST else 4
            return frame[:head] + MASK * (len(frame) - head)
        message = fault.message
    out = bytearray(frame)
    for path, end in _secrets(message):
        content = _raw(message[path])
        out[end - len(content) : end] = _hidden(message, content)
    return bytes(out)


def _hidden(message: Message, content: bytes) -> bytes:
    """What stands in a secret field's place. A request inside of an Envelope is kept but for its own secrets."""
    if message.api == "Envelope" and message.plan.kind == "request" and len(content) >= 8:
        key, version, _ = peek_request(content)
        return mask(Direction.REQUEST, key, version, content)
    return MASK * len(content)


def _secrets(message: Message) -> Iterator[tuple[str, int]]:
    """Path and end offset of every secret of a message."""
    direction = Direction.REQUEST if message.plan.kind == "request" else Direction.RESPONSE
    patterns = secret_paths(direction, message.api_key)
    if patterns:
        for path, _, end in message.map():
            if any(p.fullmatch(path) for p in patterns) and message[path] and _is_secret(message, path):
                yield path, end


def _raw(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _is_secret(message: Message, path: str) -> bool:
    if message.api not in _CONFIG_APIS:
        return True
    return bool(SENSITIVE.search(message[path.removesuffix("value") + "name"]))


def shown(message: Message) -> dict[str, Any]:
    """`Message.to_dict` with secrets masked."""
    edits: dict[str, Any] = {}
    for path, _ in _secrets(message):
        value = message[path]
        edits[path] = _hidden(message, value) if isinstance(value, bytes) else "*" * len(value)
    return (message.replace(edits) if edits else message).to_dict()


def mask_token(frame: bytes) -> bytes:
    """A raw SASL token, overwritten."""
    return MASK * len(frame)
