"""Parse ``host:port``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .failure import Failure

if TYPE_CHECKING:
    from ....proxy.events import Address


def parse(text: str, option: str, *, port: int | None = None) -> Address:
    """``host:port``, ``[v6]:port``, or with a default `port` just ``host``; Failure names the option."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]*))(?::(\d{1,5}))?", text)
    number = int(match[3]) if match and match[3] else port
    host = (match[1] or match[2]) if match else ""
    if host and number is not None and number > 65535:
        raise Failure(f"{option} {text!r}: {number} is not a port; the highest port is 65535")
    if not match or number is None or not host:
        raise Failure(f"{option} {text!r} is not HOST:PORT; for example: {option} 127.0.0.1:9092")
    return host, number


def parse_all(texts: Sequence[str], option: str, *, port: int | None = None) -> list[Address]:
    """The addresses of an option that may be given several times, each with commas between; no two are the same."""
    found = [parse(each.strip(), option, port=port) for text in texts for each in text.split(",")]
    return list(dict.fromkeys(found))
