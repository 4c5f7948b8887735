"""The screen on a proxy that somebody else started: its recording, lossless, and its control API."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import BarnabasError
from ..proxy.control import Control, ControlError
from ..proxy.events import Counts

EVERY_SECONDS = 1.0


class NotRecording(BarnabasError):
    """The proxy records nothing that could be shown."""


class AttachedProxy:
    """Asks the proxy once a second how it is, and hears its events, in threads of its own."""

    def __init__(self, control: Control):
        self.control = control
        self.add_to_log: Callable[[str, bool], None] = lambda text, warning: None
        """Where events go."""
        self._said: dict[str, Any] = control.status()
        self._fault = ""
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to listen."""
        for work in (self._ask, self._hear):
            threading.Thread(target=work, name=f"attached {work.__name__}", daemon=True).start()

    def stop(self) -> None:
        """Listen no more; the proxy goes on."""
        self._ended.set()

    @property
    def title(self) -> str:
        """Where clients connect, and what is behind it."""
        listen, upstream = self._said["listen"], self._said["upstream"]
        return f"bootstrap.servers={listen[0]}:{listen[1]} -> {upstream[0]}:{upstream[1]}"

    def status(self) -> str:
        """One line: connections, losses."""
        if self._fault:
            return f"! {self._fault}"
        counts, lost = self._said["counts"], self._said["lost"]
        return f"conns {counts['connections']}  lost {lost['observer_bytes']}"

    def directory(self) -> Path:
        """Where it records. Raises `NotRecording`."""
        recording = self._said.get("recording") or {}
        found = recording.get("directory")
        if not found or not recording.get("recording", True):
            raise NotRecording("the proxy records nothing: begin with --record DIR, or barnabas control record DIR")
        return Path(found)

    def record(self, directory: Path) -> None:
        """Let it record from now on."""
        self.control.start_recording(str(directory.absolute()))
        self._said = self.control.status()

    def _ask(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            try:
                self._said, self._fault = self.control.status(), ""
            except ControlError as error:
                self._fault = str(error)

    def _hear(self) -> None:
        try:
            for event in self.control.follow_events(since=0):
                if self._ended.is_set():
                    return
                if event["event"] != Counts.__name__:  # the status line has them
                    self.add_to_log(event["text"], event["warning"])
        except ControlError as error:
            self.add_to_log(str(error), True)
