"""Logging in at a broker on behalf of clients: what is sent, and what the broker's answers mean.

`conversation` is sans-IO: it yields whole request frames, is sent the whole response frames, and returns how long
the session lasts. It begins with ApiVersions v0, which every broker since 0.10 answers before a login, so that it
uses what the broker supports: SaslHandshake v1 and SaslAuthenticate up to v2 (KIP-152, KIP-368), or raw tokens.

SCRAM is RFC 5802 and 7677: the server's signature is verified, the iteration count is bounded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from .... import decoder
from ....bounded import BoundedDict
from ....decoder.codec.secrets import without_quotes
from ....decoder.connection import api_versions
from ....decoder.schema import facts
from ....errors import BarnabasError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MOST_ITERATIONS = 100_000
"""A broker could keep the proxy busy with more. Kafka itself allows 16,384."""
LEAST_ITERATIONS = 4096
"""RFC 7677; with fewer the password would be easy to guess from the exchange."""
TOKEN_SECONDS = 3600
"""How long the unsecured tokens made here are valid."""
CLIENT_ID = "barnabas"
FIRST_CORRELATION = -0x42415242
"""Correlation ids no client counts to: the login's must not be taken for a client's."""
_HANDSHAKE, _AUTHENTICATE = facts.api_key("SaslHandshake"), facts.api_key("SaslAuthenticate")


class LoginRefused(BarnabasError):
    """The broker, or its answer, made the login impossible; the text is for people and holds no secret."""


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """How the proxy logs in upstream. `secret`: the password, or OAUTHBEARER's token (empty: an unsecured token for
    `username` is made, KIP-255, for brokers that are set up for tests)."""

    mechanism: str
    username: str = ""
    secret: str = field(default="", repr=False)


@dataclass(slots=True)
class Work:
    """Something that takes long enough to be done beside the loop: run it and send what it returns."""

    run: Callable[[], bytes]


Conversation = Generator["bytes | Work", bytes, int]
MOST_SALTED = 16
"""Salted passwords kept."""


def conversation(config: SaslConfig, salted: dict[tuple[str, bytes, int], bytes] | None = None) -> Conversation:
    """Log in once. Returns the session's lifetime in ms (0: no end). Raises LoginRefused.

    salted: a cache of SCRAM's salted passwords by (mechanism, salt, iterations), to be shared by conversations.
    """
    counter = FIRST_CORRELATION
    try:
        handshake, authenticate = _supported((yield _framed(api_versions.request(correlation_id=counter, client_id=CLIENT_ID))))
        counter += 1
        answer = yield _request(_HANDSHAKE, handshake, {"mechanism": config.mechanism}, counter)
        response = _response(answer, _HANDSHAKE, handshake)
        if response["error_code"]:
            offered = ", ".join(response["mechanisms"]) or "none"
            raise LoginRefused(
                f"the broker does not support {config.mechanism} ({facts.error_name(response['error_code'])}): "
                f"it offers {offered}; choose one of them with --sasl-mechanism"
            )
        tokens = _tokens(config, BoundedDict(MOST_SALTED) if salted is None else salted)
        lifetime = 0
        token = next(tokens)
        while True:
            if isinstance(token, Work):
                token = tokens.send((yield token))
                continue
            if handshake:
                counter += 1
                sent = _request(_AUTHENTICATE, authenticate, {"auth_bytes": token}, counter)
                response = _response((yield sent), _AUTHENTICATE, authenticate)
                if response["error_code"]:
                    error = facts.error_name(response["error_code"])
                    said = without_quotes("SaslAuthenticate", response.get("error_message") or error, sent[4:])
                    raise LoginRefused(f"{said} ({error})")
                lifetime = response.get("session_lifetime_ms", 0) or lifetime
                back = response["auth_bytes"]
            else:
                back = yield len(token).to_bytes(4, "big") + token
            try:
                token = tokens.send(back)
            except StopIteration:
                return lifetime
    except decoder.DecodeError as error:
        raise LoginRefused(f"the broker's answer to the login cannot be read: {error}") from None


def _request(api_key: int, version: int, fields: dict[str, Any], correlation_id: int) -> bytes:
    return _framed(decoder.encode_request(api_key, version, fields, correlation_id=correlation_id, client_id=CLIENT_ID))


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _response(frame: bytes, api_key: int, version: int) -> dict[str, Any]:
    fields: dict[str, Any] = decoder.read_response(frame, api_key=api_key, api_version=version).to_dict()
    return fields


def _supported(frame: bytes) -> tuple[int, int]:
    """Versions to use of SaslHandshake and SaslAuthenticate."""
    offers = {key: high for key, (_, high) in api_versions.read(frame, 0).ranges.items()}
    if _HANDSHAKE not in offers:
        raise LoginRefused("the broker offers no SASL login (no SaslHandshake): is this its SASL listener?")
    known = facts.api(_AUTHENTICATE).versions.high or 0
    if _AUTHENTICATE not in offers or not offers[_HANDSHAKE]:
        return 0, 0
    return 1, min(offers[_AUTHENTICATE], known)


# --- mechanisms: each yields tokens and is sent the broker's ------------------------------------------------------

Tokens = Generator["bytes | Work", bytes, None]


def _tokens(config: SaslConfig, salted: dict[tuple[str, bytes, int], bytes]) -> Tokens:
    if config.mechanism == "PLAIN":
        yield b"\0".join((b"", config.username.encode(), config.secret.encode()))
    elif config.mechanism == "OAUTHBEARER":
        yield from _bearer(config)
    else:
        yield from _scram(config, salted)


def _bearer(config: SaslConfig) -> Tokens:
    """RFC 7628: an error comes as JSON in a successful step, and has to be acknowledged."""
    token = config.secret or unsecured_token(config.username)
    answer = yield b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    if not answer:
        return
    yield b"\x01"
    try:
        status = str(json.loads(answer)["status"])
    except (ValueError, KeyError, TypeError, RecursionError):
        status = "unknown"
    raise LoginRefused(f"the broker refuses the token (status {status[:80]!r})")


def unsecured_token(subject: str) -> str:
    """A token that nobody signed (RFC 7515 appendix A.5), as Kafka's unsecured OAUTHBEARER takes."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + TOKEN_SECONDS})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def _scram(config: SaslConfig, salted: dict[tuple[str, bytes, int], bytes]) -> Tokens:
    name = "sha256" if config.mechanism == "SCRAM-SHA-256" else "sha512"
    nonce = secrets.token_urlsafe(24)
    user = config.username.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={user},r={nonce}"
    first = (yield b"n,," + bare.encode()).decode("utf-8", "replace")
    attributes = _attributes(first)
    server_nonce, salt, count = attributes.get("r", ""), _base64(attributes.get("s", "")), attributes.get("i", "")
    if not server_nonce.startswith(nonce) or server_nonce == nonce or not salt or not count.isascii() or not count.isdigit():
        raise LoginRefused("the broker's SCRAM challenge is malformed")
    iterations = int(count) if len(count) < 10 else MOST_ITERATIONS + 1
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise LoginRefused(
            f"the broker asks for {count[:20]} SCRAM iterations: between {LEAST_ITERATIONS} and {MOST_ITERATIONS} are "
            "accepted; set the user's credentials again with a count in that range"
        )
    key = (config.mechanism, salt, iterations)
    password = salted.get(key)
    if password is None:
        password = yield Work(lambda: hashlib.pbkdf2_hmac(name, config.secret.encode(), salt, iterations))
        salted[key] = password
    client_key = hmac.digest(password, b"Client Key", name)
    final = f"c=biws,r={server_nonce}"
    message = f"{bare},{first},{final}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = _attributes((yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode("utf-8", "replace"))
    if "e" in last:
        raise LoginRefused(f"the broker refuses the login ({last['e'][:80]})")
    expected = hmac.digest(hmac.digest(password, b"Server Key", name), message, name)
    if not hmac.compare_digest(_base64(last.get("v", "")), expected):
        raise LoginRefused("the broker could not prove that it knows the password: it may not be the broker it claims to be")


def _attributes(text: str) -> dict[str, str]:
    """`a=b,c=d`: the first of each name counts."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            found.setdefault(name, value)
    return found


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
