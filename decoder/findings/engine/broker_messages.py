"""What brokers say about errors: the `error_message` beside an error code, fit to be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from ...codec.message import is_error_code
from ...codec.secrets import secret_paths, without_quotes
from ...connection.exchange import Exchange
from ...schema import facts
from ...schema.plan import StructPlan
from ...wire.frame import Direction
from .finding import Finding

MOST = 200
"""Characters of a message."""
_SECRETIVE = re.compile(
    r"(?i)\b(password|passwd|secret|token|assertion|signature|credentials?|hmac|nonce)\b(\s*[=:]\s*)\S+"
)
_STARS = re.compile(r"\*{3,}")
_ERROR = re.compile(r"\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b")


def masked(api: str, text: str | None, asked: bytes | None) -> str:
    """A broker's message about credentials or settings, shortened, without anything that may be a secret. `asked`: the request."""
    return shortened(_STARS.sub("***", without_quotes(api, text or "", asked or b"")))


def shortened(text: str) -> str:
    """At most `MOST` characters."""
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


class _Places(NamedTuple):
    """Where a struct has error codes with a message, and structs that have such inside."""

    pairs: tuple[tuple[int, int], ...]
    structs: tuple[tuple[int, bool, StructPlan], ...]


@cache
def _places(plan: StructPlan) -> _Places:
    at = {field.name: i for i, field in enumerate(plan.fields)}
    codes = [(i, field.name.replace("code", "message")) for i, field in enumerate(plan.fields) if is_error_code(field)]
    inner = [(i, field.array, field.struct) for i, field in enumerate(plan.fields) if field.struct is not None]
    return _Places(
        tuple((i, at[name]) for i, name in codes if name in at),
        tuple((i, array, struct) for i, array, struct in inner if _has_messages(struct)),
    )


@cache
def _has_messages(plan: StructPlan) -> bool:
    places = _places(plan)
    return bool(places.pairs or places.structs)


def _messages(plan: StructPlan, values: tuple[Any, ...]) -> Iterator[tuple[int, str]]:
    places = _places(plan)
    for code, message in places.pairs:
        if values[code] and values[message]:
            yield values[code], values[message]
    for at, array, struct in places.structs:
        value = values[at]
        for item in (value or ()) if array else (value,):
            if item is not None:
                yield from _messages(struct, item)


@cache
def _has_secrets(api_key: int) -> bool:
    return any(secret_paths(direction, api_key) for direction in Direction)


def said(exchange: Exchange, errors: Iterable[int]) -> str:
    """The first message of a response about one of these errors, "" without one."""
    message = exchange.response_view
    if message is None or not _has_messages(message.plan.root):
        return ""
    wanted = frozenset(errors)
    text = next((text for code, text in _messages(message.plan.root, message.values) if code in wanted), "").strip()
    return masked(exchange.api, text, exchange.request) if _has_secrets(exchange.api_key) else shortened(_SECRETIVE.sub(r"\1\2***", text))


def quoting(finding: Finding) -> Finding:
    """The finding with what the broker says about its error in `seen`."""
    about = finding.about.get("error")
    names = [about] if isinstance(about, str) else _ERROR.findall(finding.seen)
    codes = [_codes()[name] for name in names if name in _codes()]
    text = next((text for exchange in finding.exchanges if (text := said(exchange, codes))), "") if codes else ""
    if not text or text in finding.seen:
        return finding
    return replace(finding, seen=f"{finding.seen}. The broker says: {text}")


@cache
def _codes() -> dict[str, int]:
    return {fact.name: code for code, fact in facts.errors().items() if code}
