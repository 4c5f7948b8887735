"""Frames that wait in the proxy for a decision, as the screens know them: asked for in a thread, kept with what the
person at the screen has changed in them so far.

While nothing is intercepted the proxy is asked seldom; while something is, often enough for a queue to look alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.app import App

from ...safe import visible

if TYPE_CHECKING:
    from ....proxy.control import Control

QUIET_SECONDS, BUSY_SECONDS, POLL_SECONDS = 2.0, 0.25, 0.25
"""Between two questions: while nothing is intercepted, and otherwise; and between two looks whether it is time."""
LEASE_SECONDS = 10.0
"""After which the proxy takes back what a screen has intercepted that was killed."""
Json = dict[str, Any]


class QueuedFrame:
    """One of them: `said` is what the control API tells; `edits` are fields by their paths, not sent yet."""

    def __init__(self, said: Json, now: float):
        self.said, self.edits = said, dict[str, Any]()
        self.until, self.since = 0.0, now
        self.take(said, now)

    def take(self, said: Json, now: float) -> None:
        """It was told again."""
        self.said = said
        self.until = now + float(said["remaining"])

    @property
    def number(self) -> int:
        return int(self.said["id"])

    @property
    def side(self) -> str:
        """"request" or "response"."""
        return str(self.said["side"])

    @property
    def key(self) -> tuple[int, int]:
        """Connection and correlation id: what its row in a recording has too."""
        return int(self.said["connection"]), int(self.said["correlation_id"])

    def age(self) -> float:
        """Seconds that it waits already."""
        return max(time.time() - float(self.said["time_ns"]) / 1e9, 0.0)

    def left(self) -> float:
        """Seconds until it goes on as it came."""
        return max(self.until - time.monotonic(), 0.0)

    def name(self) -> str:
        """What it is, in a few words that are safe for the terminal."""
        said = self.said
        client = said["client_id"] or said["client"]
        return visible(f"{said['api']} v{said['api_version']} {said['side']} of {client}")


class HeldQueue:
    """All that waits, the oldest first. `ask` is for a thread, everything else for the thread of the screen."""

    def __init__(self, control: Control | None):
        self._control = control
        self.frames: list[QueuedFrame] = []
        self.intercepts: list[Json] = []
        self.own: set[int] = set()
        """Intercepts that this screen has made; they end with it."""
        self.fault = ""
        self._asked = 0.0
        self._asking = False
        self._ended = threading.Event()
        self._renewing: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self.frames)

    def get(self, number: int) -> QueuedFrame | None:
        return next((frame for frame in self.frames if frame.number == number), None)

    def of_row(self, connection: int, correlation: int) -> QueuedFrame | None:
        """What waits of this exchange."""
        key = connection, correlation
        return next((frame for frame in self.frames if frame.key == key), None) if self.frames else None

    def due(self) -> bool:
        """Whether it is time to ask again; True at most once until `take`."""
        if self._control is None or self._asking:
            return False
        every = BUSY_SECONDS if self.intercepts or self.frames else QUIET_SECONDS
        if time.monotonic() < self._asked + every:
            return False
        self._asking = True
        return True

    def soon(self) -> None:
        """Something was changed: ask at the next occasion."""
        self._asked = 0.0

    def ask(self) -> tuple[list[Json], list[Json], str]:
        """What the proxy says: intercepts, held frames, and why it says nothing."""
        from ....proxy.control import ControlError

        assert self._control is not None
        try:
            intercepts = self._control.intercepts()
            return intercepts, self._control.held() if intercepts or self.frames else [], ""
        except ControlError as error:
            return [], [], visible(str(error))

    def take(self, intercepts: list[Json], held: list[Json], fault: str) -> tuple[list[QueuedFrame], list[QueuedFrame]]:
        """Take in what was told. (what is new, what has gone)"""
        now = time.monotonic()
        self._asking, self._asked = False, now
        self.intercepts, self.fault = intercepts, fault
        known = {frame.number: frame for frame in self.frames}
        new: list[QueuedFrame] = []
        frames: list[QueuedFrame] = []
        for said in held:
            frame = known.pop(int(said["id"]), None)
            if frame is None:
                new.append(frame := QueuedFrame(said, now))
            else:
                frame.take(said, now)
            frames.append(frame)
        self.frames = frames
        return new, list(known.values())

    def forget(self, number: int) -> None:
        """It was decided; it is gone before the proxy is asked again."""
        self.frames = [frame for frame in self.frames if frame.number != number]

    def take_over(self, number: int) -> None:
        """An intercept is this screen's from now on. Its lease is renewed in a thread, as an editor may have the terminal."""
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

    def release_own(self, tell: Callable[[str], None] = lambda text: None) -> None:
        """Take back this screen's intercepts: nobody would be there to decide."""
        self._ended.set()
        own, self.own = self.own, set()
        if not own or self._control is None:
            return
        from ....proxy.control import ControlError

        for number in sorted(own):
            try:
                self._control.remove_intercept(number)
            except ControlError as error:
                tell(visible(str(error)))


def held_cells(queue: HeldQueue) -> list[tuple[str, str]]:
    """For the header: how many frames are held."""
    if not len(queue):
        return [("  intercept ON", "waiting")] if queue.intercepts else []
    oldest = min(queue.frames, key=lambda frame: frame.left())
    return [(f"  HELD {len(queue)}, {oldest.left():.0f} s left ", "warning")]


class HeldQueuePoller:
    """Asks the proxy for the queue while `app` runs. What comes and goes is logged; `changed()`: the queue is another."""

    def __init__(
        self, app: App[Any], queue: HeldQueue, log: Callable[[str, bool], None], changed: Callable[[], None]
    ) -> None:
        self._app, self._queue, self._log, self._changed = app, queue, log, changed
        app.set_interval(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        if self._queue.due():
            self._app.run_worker(self._ask, thread=True, group="queue", exit_on_error=False)

    def _ask(self) -> None:
        self._app.call_from_thread(self._take, *self._queue.ask())

    def _take(self, intercepts: list[Json], held: list[Json], fault: str) -> None:
        before = len(self._queue), self._queue.fault, bool(self._queue.intercepts)
        new, gone = self._queue.take(intercepts, held, fault)
        for frame in new:
            self._log(f"held: {frame.name()}, connection {frame.said['connection']}", False)
        for frame in gone:
            if frame.left() < 1:
                self._log(f"held {frame.name()}: nobody decided, so it went on as it came", True)
        if new or gone or len(self._queue) or before != (len(self._queue), fault, bool(intercepts)):
            self._changed()
