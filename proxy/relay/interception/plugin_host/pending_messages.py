"""Messages that wait for the verdict of their plugins, each with its deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .messages import HookCall, HookDecision

if TYPE_CHECKING:
    from ...interfaces import ConnectionInterface, HalfConnectionInterface

Then = Callable[[HookDecision, int], None]
"""Is called with the verdict and the time."""


@dataclass(slots=True)
class PendingMessage:
    """A message (with its request, if it is a response) that waits. `asks`: its hooks wait for so many answers of the
    broker's, and the deadline does not count."""

    call: HookCall
    data: bytes
    connection: ConnectionInterface
    half: HalfConnectionInterface
    then: Then
    deadline: float
    asks: int = 0

    @property
    def number(self) -> int:
        return self.call.question


class PendingMessages:
    """Those that wait, the oldest first. `overdue` is called with each whose time is up."""

    def __init__(
        self,
        after: Callable[[int, Callable[[], None]], None],
        budget: float,
        before: Callable[[], None],
        overdue: Callable[[PendingMessage], None],
    ) -> None:
        self.pending: dict[int, PendingMessage] = {}
        self.bytes = 0
        self._after = after
        self._budget = budget
        self._before = before
        self._overdue = overdue
        self._armed = False

    def add(self, question: PendingMessage) -> None:
        self.pending[question.number] = question
        self.bytes += len(question.data)
        self._arm(self._budget)

    def take(self, number: int) -> PendingMessage | None:
        """It waits no more; None if it does not."""
        question = self.pending.pop(number, None)
        if question is not None:
            self.bytes -= len(question.data)
        return question

    def of(self, connection: ConnectionInterface) -> list[PendingMessage]:
        return [each for each in self.pending.values() if each.connection is connection]

    def restart(self) -> None:
        """All have their whole time again."""
        deadline = time.monotonic() + self._budget
        for question in self.pending.values():
            question.deadline = deadline

    def _arm(self, seconds: float) -> None:
        if not self._armed:
            self._armed = True
            self._after(int(max(seconds, 0.001) * 1e9), self._look)

    def _look(self) -> None:
        """One timer serves all: it looks for those whose time is up, and is set for the next."""
        self._armed = False
        if not self.pending:
            return
        self._before()
        now = time.monotonic()
        for question in list(self.pending.values()):
            if not question.asks and question.deadline <= now and question.number in self.pending:
                self._overdue(question)
        if self.pending:
            next_one = min(
                (each.deadline for each in self.pending.values() if not each.asks), default=now + self._budget
            )
            self._arm(next_one - now)
