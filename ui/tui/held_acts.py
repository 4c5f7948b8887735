"""What can be decided about a held frame: let it go on, answer with an error, drop it, end its connection, hold it longer.

Each is asked of the proxy in a thread. What is refused is told, and the frame waits on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...proxy.control import ControlError
from .asking import Confirm
from .held_queue import HeldFrame, HeldQueue
from .safe import visible
from .shell import View

MORE_SECONDS = 120.0


class HeldActs(View):
    """The actions of a view with a held frame under the cursor: `current`."""

    @property
    def current(self) -> HeldFrame | None:
        """The frame under the cursor."""
        raise NotImplementedError

    @property
    def queue(self) -> HeldQueue:
        """What waits."""
        return self.session.held

    def why_not(self) -> str:
        """Why nothing may be changed, or ""."""
        if self.session.control is None:
            return "This is a recording: there is no traffic to change."
        if not self.session.allow_edit:
            return "Read-only: start with --allow-edit, or :edit on."
        return ""

    def chosen(self) -> HeldFrame | None:
        """The frame under the cursor, if anything may be done to it."""
        why = self.why_not()
        frame = self.current
        if why:
            self.notify(why, severity="warning", timeout=3)
            return None
        if frame is None:
            self.notify("Nothing is held.", timeout=2)
        return frame

    def _decide(self, frame: HeldFrame, done: str, how: Callable[[Any], object]) -> None:
        """Do something to a held frame, in a thread. What is refused is told, and the frame waits on."""
        name, control, app = f"#{frame.number} {frame.name()}", self.session.control, self.app

        def work() -> None:
            try:
                how(control)
            except ControlError as error:
                app.call_from_thread(self._refused, frame, name, error)
            else:
                app.call_from_thread(self._done, frame.number, f"held {name}: {done}")

        self.run_worker(work, thread=True, group="held", exit_on_error=False)

    def _done(self, number: int, text: str) -> None:
        self.session.tell(text)
        self.queue.forget(number)
        self.queue.soon()
        self.barnabas.holding.changed()

    def _refused(self, frame: HeldFrame, name: str, error: ControlError) -> None:
        gone = error.status == 404
        text = f"{name} does not wait any more: its time was up, or its connection ended" if gone else str(error)
        self.session.tell(f"held {name}: {text}", True)
        self.notify(visible(text), severity="error", timeout=6, markup=False)
        self.queue.soon()

    def action_resume(self) -> None:
        frame = self.chosen()
        if frame is not None:
            self._resume(frame)

    def action_resume_all(self) -> None:
        if self.chosen() is None:
            return
        for frame in list(self.queue.frames):
            self._resume(frame)

    def _resume(self, frame: HeldFrame) -> None:
        edits = dict(frame.edits)
        self._decide(frame, "resumed, changed" if edits else "resumed", lambda c: c.resume(frame.number, edits))

    def action_drop(self) -> None:
        frame = self.chosen()
        if frame is not None:
            self._decide(frame, "dropped", lambda c: c.drop(frame.number, silent=True))

    def action_kill(self) -> None:
        frame = self.chosen()
        if frame is not None:
            self._decide(frame, "connection closed", lambda c: c.drop(frame.number, close="rst"))

    def action_fail(self) -> None:
        from .error_names import answerable, error_names
        from .finding_box import Find

        frame = self.chosen()
        if frame is None:
            return
        key, version = frame.said["api_key"], frame.said["api_version"]
        if not answerable(key, version):
            self.notify(f"A response to {frame.said['api']} v{version} has no place for an error.", timeout=4)
            return

        def named(name: str | None) -> None:
            if name is not None:
                self._decide(frame, f"answered with {name}", lambda c: c.drop(frame.number, error=name))

        self.app.push_screen(Find(f"Answer {frame.name()} with", error_names(key)), named)

    def action_more_time(self) -> None:
        frame = self.chosen()
        if frame is not None:
            self.extend(frame, MORE_SECONDS)

    def extend(self, frame: HeldFrame, seconds: float) -> None:
        """Hold it so much longer than it would be held now."""
        control, wanted = self.session.control, frame.left() + seconds
        assert control is not None

        def work() -> None:
            try:
                control.extend(frame.number, min(wanted, 3600.0))
            except ControlError as error:
                self.app.call_from_thread(self._refused, frame, f"#{frame.number} {frame.name()}", error)
            self.queue.soon()

        self.run_worker(work, thread=True, group="held", exit_on_error=False)

    def action_release(self) -> None:
        """Hold nothing any more."""
        why = self.why_not()
        if why or not self.queue.intercepts:
            self.notify(why or "Nothing is intercepted.", timeout=3)
            return

        def sure(yes: bool | None) -> None:
            if yes:
                self.barnabas.holding.nothing()

        count = len(self.queue.frames)
        waiting = f" What is held ({count}) goes on as it came." if count else ""
        self.app.push_screen(Confirm(f"Hold nothing any more?{waiting}"), sure)
