"""A frame as it may be shown: its secrets overwritten."""

from __future__ import annotations

from ...decoder import Direction, Exchange
from ...decoder.codec.secrets import mask


def masked(exchange: Exchange, direction: Direction) -> bytes:
    """The frame with its secrets overwritten; ValueError if there is none."""
    frame = exchange.request if direction is Direction.REQUEST else exchange.response
    if frame is None:
        raise ValueError("it has no " + direction.name.lower())
    if direction is Direction.RESPONSE and exchange.api_key < 0:
        return frame[:4] + b"*" * (len(frame) - 4)  # an orphan: nobody knows what is in it
    return mask(direction, exchange.api_key, exchange.api_version, frame)
