"""Text for findings: durations, sizes, rates, topics, and lists that may be long."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from ...connection.exchange import Exchange

SECOND = 1_000_000_000
"""Nanoseconds."""


def duration(ns: int | float) -> str:
    """``"340 ms"``, ``"12.5 s"``, ``"4 min"``."""
    if ns < SECOND:
        return f"{max(ns, 0) / 1e6:.0f} ms"
    if ns < 180 * SECOND:
        return f"{ns / SECOND:.1f} s"
    return f"{ns / (60 * SECOND):.0f} min"


def size(count: int | float) -> str:
    """Bytes: ``"640 B"``, ``"12.5 kB"``, ``"3.1 MB"``."""
    if count < 1000:
        return f"{count:.0f} B"
    if count < 1_000_000:
        return f"{count / 1000:.1f} kB"
    return f"{count / 1_000_000:.1f} MB"


def number(value: int | float) -> str:
    """A count or a rate without useless digits: ``"0.4"``, ``"12"``, ``"12,400"``."""
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def some(items: Iterable[object], shown: int = 3) -> str:
    """``"a, b, c and 4 more"``."""
    texts = sorted(str(i) for i in items)
    more = len(texts) - shown
    return ", ".join(texts[:shown]) + (f" and {more} more" if more > 0 else "")


def several(count: int, what: str) -> str:
    """``"1 record"``, ``"4,000 records"``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def times(count: int) -> str:
    """``"once"``, ``"12 times"``."""
    return "once" if count == 1 else f"{count:,} times"


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka writes it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def topic_name(exchange: Exchange, topic: str | bytes) -> str:
    """The name of a topic given by name or id; the id as Kafka writes it if the name was not seen."""
    if isinstance(topic, str):
        return topic
    known = exchange.topics.name(topic) if exchange.topics is not None else None
    return known or topic_id_text(topic)
