"""What an intercept is, what a frame that waits is, and a request that is kept because its response may have to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ....decoder.filter import Filter
from ....decoder.wire.frame import Direction
from ...processes.control_messages import HeldNotice, InterceptState

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface, HalfConnectionInterface


@dataclass(slots=True)
class Intercept:
    """What to hold. `left`: so many frames more, None for no end; `passed`: matched, but beyond a bound."""

    number: int
    filter: Filter
    request: bool
    response: bool
    timeout: float
    most: int
    left: int | None
    held: int = 0
    passed: int = 0
    failed: str = ""

    def state(self) -> InterceptState:
        return InterceptState(
            self.number, self.filter.text, str(self.filter.zone), self.request, self.response, self.timeout, self.most, self.left, self.held,
            self.passed, self.failed or None,
        )  # fmt: skip


class Budget(Protocol):
    """What counts the bytes of kept requests (`Intercepts`)."""

    bytes: int


@dataclass(slots=True)
class KeptRequest:
    """A request that is kept until its response comes. Frames with their sizes."""

    frame: bytes
    time_ns: int
    budget: Budget

    def __post_init__(self) -> None:
        self.budget.bytes += len(self.frame)

    def __del__(self) -> None:
        self.budget.bytes -= len(self.frame)  # however its connection forgot it


@dataclass(slots=True)
class HeldFrame:
    """A frame that waits. `original`: as it came; `frame`: as it would go on; `deadline`: of the monotonic clock, in seconds."""

    notice: HeldNotice
    intercept: Intercept
    connection: ConnectionInterface
    original: bytes
    frame: bytes
    deadline: float
    note: str = ""

    @property
    def number(self) -> int:
        return self.notice.id

    @property
    def direction(self) -> Direction:
        return Direction.RESPONSE if self.notice.side == "response" else Direction.REQUEST

    @property
    def half(self) -> HalfConnectionInterface:
        """The half-connection that waits for it."""
        return self.connection.response if self.direction else self.connection.request

    def fits(self, frame: bytes, answer: bool) -> bool:
        """Whether another frame (with its size) can go on in its place, or (`answer`) go back instead."""
        if len(frame) < 8 or int.from_bytes(frame[:4], "big") != len(frame) - 4:
            return False
        if self.direction or answer:
            return frame[4:8] == self.original[4:8] if self.direction else frame[4:8] == self.original[8:12]
        return frame[4:12] == self.original[4:12]
