"""How a replay is to go: its pace, what requests wait for, how many connections, how long to wait."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SECOND = 1_000_000_000


class Order(StrEnum):
    """What a request waits for."""

    RECORDED = "recorded"
    """every answer that any recorded client had by then (but for those that brokers hold back on purpose)"""
    CONNECTION = "connection"
    """the answers that its own connection had by then"""
    FREE = "free"
    """only answers with an id it needs"""


@dataclass(frozen=True, slots=True)
class Pace:
    """`factor` times the recorded speed, or `rate` requests a second, or as fast as it goes (both 0)."""

    factor: float = 1.0
    rate: float = 0.0

    def due(self, recorded_ns: int, number: int) -> int:
        """When a request is due, in ns after the start."""
        if self.rate:
            return int(number * SECOND / self.rate)
        return int(recorded_ns / self.factor) if self.factor else 0


@dataclass(frozen=True, slots=True)
class Settings:
    """How to replay. `connections`: 0 for one per recorded connection. `patience`: seconds that an answer is waited for.
    `in_flight`: the most requests of one connection that wait for answers. `preload`: bytes of the recording that are
    read before the start."""

    pace: Pace = Pace()
    order: Order = Order.RECORDED
    connections: int = 0
    patience: float = 10.0
    in_flight: int = 1000
    preload: int = 256 << 20
