"""What an intercept is, what a frame that waits is, and a request that is kept because its response may have to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ...decoder.filter import Filter
from ...decoder.wire.frame import Direction

if TYPE_CHECKING:
    from ..relay.interfaces import ConnectionInterface, HalfConnectionInterface


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

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.number,
            "filter": self.filter.text,
            "zone": str(self.filter.zone),
            "request": self.request,
            "response": self.response,
            "timeout": self.timeout,
            "most": self.most,
            "times_left": self.left,
            "held": self.held,
            "passed": self.passed,
            "failed": self.failed or None,
        }


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


@dataclass(frozen=True, slots=True)
class HeldNotice:
    """What the control server gets of a held frame, beside its bytes: the request (of a response), then the frame, with their sizes.
    `side`: "request" or "response"; `timeout`: seconds; `request_size`: bytes of the request, 0 if the frame is one itself."""

    id: int
    intercept: int
    connection: int
    client: str
    broker: str
    side: str
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    time_ns: int
    timeout: float
    request_size: int


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
