"""Frames that wait in the proxy for a decision, and their edits so far. The proxy is asked in a thread.

While nothing is intercepted the proxy is asked rarely; while something is, often enough for the queue to look live.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.app import App

from ...safe import visible
from ..widgets.palette import Cell

if TYPE_CHECKING:
    from ....proxy.control import Control

QUIET_SECONDS, BUSY_SECONDS, POLL_SECONDS = 2.0, 0.25, 0.25
"""Seconds between two requests to the proxy, without intercepts and with; and between two checks whether one is due."""
LEASE_SECONDS = 10.0
"""Seconds after which the proxy removes the intercepts of a screen that was killed."""
Json = dict[str, Any]


class ListedIntercept(NamedTuple):
    """What the proxy holds. `timeout`: seconds per frame; `most`: frames at a time; `passed`: how many it let go
    because they were too many or too large; `failed`: why its filter failed, or ""."""

    number: int
    filter: str
    request: bool
    response: bool
    timeout: float
    most: int
    passed: int
    failed: str

    @classmethod
    def of(cls, found: Json) -> ListedIntercept:
        """From the control API's JSON."""
        return cls(
            int(found["id"]), found["filter"], found["request"], found["response"], found["timeout"], found["most"],
            found["passed"], found["failed"] or "",
        )  # fmt: skip


@dataclass(slots=True)
class QueuedFrame:
    """One frame that waits. `side`: "request" or "response"; `size` in bytes; `body`: as JSON, None if it is `undecoded`;
    `deadline`: of `time.monotonic`, when it is forwarded unchanged; `edits`: values by the paths of their fields, not sent yet."""

    number: int
    side: str
    api: str
    api_key: int
    api_version: int
    connection: int
    correlation_id: int
    client: str
    client_id: str | None
    broker: str
    time_ns: int
    size: int
    body: Json | None
    undecoded: str
    deadline: float
    edits: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Json, deadline: float) -> QueuedFrame:
        """From the control API's JSON."""
        return cls(
            int(found["id"]), found["side"], found["api"], found["api_key"], found["api_version"],
            int(found["connection"]), int(found["correlation_id"]), found["client"], found["client_id"],
            found["broker"], int(found["time_ns"]), found["size"], found.get("body"), str(found["undecoded"] or ""), deadline,
        )  # fmt: skip

    def age(self) -> float:
        """Seconds that it waits already."""
        return max(time.time() - self.time_ns / 1e9, 0.0)

    def left(self) -> float:
        """Seconds until it is forwarded unchanged."""
        return max(self.deadline - time.monotonic(), 0.0)

    def name(self) -> str:
        """What it is, in a few words that are safe for the terminal."""
        return visible(f"{self.api} v{self.api_version} {self.side} of {self.client_id or self.client}")


class QueueAnswer(NamedTuple):
    """What the proxy answered: its intercepts, its held frames as JSON, and why it did not answer, or ""."""

    intercepts: list[ListedIntercept]
    held: list[Json]
    fault: str


class QueueChange(NamedTuple):
    """Frames that have entered the queue, and frames that have left it."""

    new: list[QueuedFrame]
    gone: list[QueuedFrame]


class HeldQueue:
    """The frames that wait, the oldest first. `ask` is called in a thread, everything else in that of the screen."""

    def __init__(self, control: Control | None):
        self._control = control
        self.frames: list[QueuedFrame] = []
        self.intercepts: list[ListedIntercept] = []
        self.own: set[int] = set()
        """The numbers of the intercepts that this screen has made. They end with it."""
        self.fault = ""
        self._asked = 0.0
        self._asking = False
        self._ended = threading.Event()
        self._renewing: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self.frames)

    def of_row(self, connection: int, correlation: int) -> QueuedFrame | None:
        """The held frame of an exchange."""
        key = connection, correlation
        return next((frame for frame in self.frames if (frame.connection, frame.correlation_id) == key), None)

    def due(self) -> bool:
        """Whether the proxy is to be asked now. After True it is False until `update`."""
        if self._control is None or self._asking:
            return False
        every = BUSY_SECONDS if self.intercepts or self.frames else QUIET_SECONDS
        if time.monotonic() < self._asked + every:
            return False
        self._asking = True
        return True

    def soon(self) -> None:
        """Ask the proxy at the next check, as something has changed."""
        self._asked = 0.0

    def ask(self) -> QueueAnswer:
        """Ask the proxy for its intercepts and held frames."""
        from ....proxy.control import ControlError

        assert self._control is not None
        try:
            intercepts = [ListedIntercept.of(each) for each in self._control.intercepts()]
            return QueueAnswer(intercepts, self._control.held() if intercepts or self.frames else [], "")
        except ControlError as error:
            return QueueAnswer([], [], visible(str(error)))

    def update(self, answer: QueueAnswer) -> QueueChange:
        """Take an answer of the proxy."""
        now = time.monotonic()
        self._asking, self._asked = False, now
        self.intercepts, self.fault = answer.intercepts, answer.fault
        known = {frame.number: frame for frame in self.frames}
        new: list[QueuedFrame] = []
        frames: list[QueuedFrame] = []
        for found in answer.held:
            deadline = now + float(found["remaining"])
            frame = known.pop(int(found["id"]), None)
            if frame is None:
                new.append(frame := QueuedFrame.of(found, deadline))
            frame.deadline = deadline
            frames.append(frame)
        self.frames = frames
        return QueueChange(new, list(known.values()))

    def forget(self, number: int) -> None:
        """Remove a frame that was decided about, before the proxy is asked again."""
        self.frames = [frame for frame in self.frames if frame.number != number]

    def take_over(self, number: int) -> None:
        """Make an intercept this screen's own. Its lease is renewed in a thread, as an editor may have the terminal."""
        self.own.add(number)
        if self._renewing is None:
            self._renewing = threading.Thread(target=self._renew, name="leases", daemon=True)
            self._renewing.start()

    def _renew(self) -> None:
        from ....proxy.control import ControlError

        assert self._control is not None
        while not self._ended.wait(LEASE_SECONDS / 4):
            for number in sorted(self.own):
                try:
                    self._control.renew_intercept(number)
                except ControlError as error:
                    if error.status == 404:
                        self.own.discard(number)

    def release_own(self) -> None:
        """Remove this screen's intercepts, as nobody would decide about their frames."""
        self._ended.set()
        own, self.own = self.own, set()
        if not own or self._control is None:
            return
        from ....proxy.control import ControlError

        for number in sorted(own):
            with suppress(ControlError):  # its lease runs out
                self._control.remove_intercept(number)


def held_cells(queue: HeldQueue) -> list[Cell]:
    """The header's cells: how many frames are held."""
    if not len(queue):
        return [("  intercept ON", "waiting")] if queue.intercepts else []
    oldest = min(queue.frames, key=lambda frame: frame.left())
    return [(f"  HELD {len(queue)}, {oldest.left():.0f} s left ", "warning")]


class HeldQueuePoller:
    """Asks the proxy for the queue while `app` runs, logs frames that come and go, and calls `changed()` when the queue differs."""

    def __init__(
        self, app: App[Any], queue: HeldQueue, log: Callable[[str, bool], None], changed: Callable[[], None]
    ) -> None:
        self._app, self._queue, self._log, self._changed = app, queue, log, changed
        app.set_interval(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        if self._queue.due():
            self._app.run_worker(self._ask, thread=True, group="queue", exit_on_error=False)

    def _ask(self) -> None:
        self._app.call_from_thread(self._take, self._queue.ask())

    def _take(self, answer: QueueAnswer) -> None:
        before = len(self._queue), self._queue.fault, bool(self._queue.intercepts)
        new, gone = self._queue.update(answer)
        for frame in new:
            self._log(f"held: {frame.name()}, connection {frame.connection}", False)
        for frame in gone:
            if frame.left() < 1:
                self._log(f"held {frame.name()}: no decision in time, so it was passed on unchanged", True)
        if new or gone or len(self._queue) or before != (len(self._queue), answer.fault, bool(answer.intercepts)):
            self._changed()
