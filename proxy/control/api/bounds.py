"""What numbers, texts and lists in requests may be: for who checks them and for the description."""

from __future__ import annotations

from typing import NamedTuple

from ...processes.control_messages import Json


class Bounds(NamedTuple):
    """From `low` to `high`; `default`: where nothing is given, None if that is none of them."""

    low: float
    high: float
    default: float | None = None

    def schema(self, kind: str) -> Json:
        found: Json = {"type": kind, "minimum": self.low, "maximum": self.high}
        return found if self.default is None else found | {"default": self.default}


LONGEST_HOLD = 3600.0
"""Seconds."""
LONGEST_TEXT = 1000
LINE = 8190
"""Characters of a request's line or of a header at most; a server refuses more."""

CURSOR = Bounds(0, 2**62)
HITS_SEEN = Bounds(0, 2**53, 0)
LIMIT = Bounds(1, 1000, 100)
WAIT = Bounds(0, 300, 0)
HITS = Bounds(1, 2**53, 1)
HITS_TIMEOUT = Bounds(0, LONGEST_HOLD, 30)
HOLD_SECONDS = 30
HOLD_TIMEOUT = Bounds(0.1, LONGEST_HOLD, HOLD_SECONDS)
LEASE = Bounds(1, LONGEST_HOLD)
HELD_AT_ONCE = 16
MOST_HELD = Bounds(1, 1000, HELD_AT_ONCE)
TIMES = Bounds(1, 2**53)
NUMBER_IN_PATH = Bounds(0, 10**18 - 1)
SIZE = Bounds(1, 2**62)
SECONDS = Bounds(1, 10**9)

MOST_RULES = 1000
"""Rules at one time, over the control API."""
MOST_DOWN = 1000
"""Brokers that are kept down."""
RULES_BYTES = 1 << 20
"""Of a body that holds rules."""
BODY_BYTES = 8 << 20
