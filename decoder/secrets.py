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
from .decode import decoder
from .errors import DecodeError
from .frame import Direction
from .message import Message

MASK = b"*"

# By API name: the body paths that hold credentials or what they can be worked out from.
_REQUEST: dict[str, tuple[str, ...]] = {
    "SaslAuthenticate": ("auth_bytes",),
    "RenewDelegationToken": ("hmac",),
    "ExpireDelegationToken": ("hmac",),
    "AlterUserScramCredentials": ("upsertions[*].salt", "upsertions[*].salted_password"),
    "AlterConfigs": ("resources[*].configs[*].value",),
    "IncrementalAlterConfigs": ("resources[*].configs[*].value",),
    "Envelope": ("request_data",),
}
_RESPONSE: dict[str, tuple[str, ...]] = {
    "SaslAuthenticate": ("auth_bytes",),
    "CreateDelegationToken": ("hmac",),
    "DescribeDelegationToken": ("tokens[*].hmac",),
    # What is inside depends on the request, which nobody has here; a new token's HMAC may be.
    "Envelope": ("response_data",),
}
# Settings that brokers show, or that topics are made with: those among them that are credentials.
_REQUEST_SETTINGS: dict[str, tuple[str, ...]] = {"CreateTopics": ("topics[*].configs[*].value",)}
_RESPONSE_SETTINGS: dict[str, tuple[str, ...]] = {
    "CreateTopics": ("topics[*].configs[*].value",),
    "DescribeConfigs": ("results[*].configs[*].value", "results[*].configs[*].synonyms[*].value"),
}
_CONFIG_APIS = {"AlterConfigs", "IncrementalAlterConfigs", "CreateTopics", "DescribeConfigs"}
SENSITIVE = re.compile(
    r"passw|passphrase|secret|token|credential|jaas|private|keystore\.key|truststore\.cert"
    r"|(access|api|encryption|account)[._-]?key|basic\.auth",
    re.I,
)
_SPEAKS = re.compile(r"(passw\w*|passphrase|secret\w*|token)[\"']?\s*[=:]|PRIVATE KEY-----", re.I)
"""In the value of a setting whose name says nothing: it holds credentials all the same."""


@cache
def secret_paths(direction: Direction, api_key: int) -> tuple[re.Pattern[str], ...]:
    """Patterns over the paths of `Message.map` that hold secrets, or may; empty for nearly all APIs."""
    table = _REQUEST_SETTINGS if direction is Direction.REQUEST else _RESPONSE_SETTINGS
    return credential_paths(direction, api_key) + _patterns(table, api_key)


@cache
def credential_paths(direction: Direction, api_key: int) -> tuple[re.Pattern[str], ...]:
    """Those of `secret_paths` that are there to carry secrets; what brokers show among their settings is left out."""
    return _patterns(_REQUEST if direction is Direction.REQUEST else _RESPONSE, api_key)


def _patterns(table: dict[str, tuple[str, ...]], api_key: int) -> tuple[re.Pattern[str], ...]:
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
    return _masked(message)


def _masked(message: Message) -> bytes:
    out = bytearray(message.frame)
    for end, content in _secrets(message):
        out[end - len(content) : end] = _hidden(message, content)
    if message.trailing:  # of a message that carries secrets: nobody knows what this is
        out[-len(message.trailing) :] = MASK * len(message.trailing)
    return bytes(out)


def _hidden(message: Message, content: bytes) -> bytes:
    """What stands in a secret field's place. A request inside of an Envelope is kept but for its own secrets.

    Brokers forward no Envelope, so one inside of another is no request: it is hidden whole, however deep it goes.
    """
    if message.api == "Envelope" and message.plan.kind == "request" and len(content) >= 8:
        key, version, _ = peek_request(content)
        if key != message.api_key:
            return mask(Direction.REQUEST, key, version, content)
    return MASK * len(content)


def _secrets(message: Message) -> Iterator[tuple[int, bytes]]:
    """Every secret of a message: where it ends, and its bytes."""
    direction = Direction.REQUEST if message.plan.kind == "request" else Direction.RESPONSE
    patterns = secret_paths(direction, message.api_key)
    for path, _, end in message.map() if patterns else ():
        if any(p.fullmatch(path) for p in patterns) and _is_secret(message, path):
            value = message[path]
            if value:
                yield end, value if isinstance(value, bytes) else value.encode()


def _is_secret(message: Message, path: str) -> bool:
    if message.api not in _CONFIG_APIS:
        return True
    place = path.removesuffix("value")
    if _speaks_of_secrets(message, place):
        return True
    setting, inside, _ = place.rpartition("synonyms[")
    return bool(inside) and _speaks_of_secrets(message, setting)


def _speaks_of_secrets(message: Message, place: str) -> bool:
    """Whether a setting may be a secret: by its name, by what the broker says of it, or by its value."""
    name, value = message[place + "name"], message[place + "value"]
    if name is None or SENSITIVE.search(name):  # no name where there must be one: it may be anything
        return True
    if value and _SPEAKS.search(value):
        return True
    try:
        return bool(message[place + "is_sensitive"])
    except KeyError:  # requests, and synonyms, do not say
        return False


def shown(message: Message) -> dict[str, Any]:
    """`Message.to_dict` with secrets masked."""
    masked = _masked(message)
    if masked == message.frame:
        return message.to_dict()
    values, _ = decoder(message.plan)(masked, message.body_start)
    return Message(message.plan, values, masked, message.body_start).to_dict()


def mask_token(frame: bytes) -> bytes:
    """A raw SASL token, overwritten."""
    return MASK * len(frame)
