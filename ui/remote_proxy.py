"""The screen on a proxy of another process: its live recording, and its control API."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..proxy.control import Control, ControlError
from ..proxy.events import Counts

EVERY_SECONDS = 1.0


class NotRecording(Exception):
    """The proxy records nothing that could be shown."""


class RemoteProxy:
    """Asks the proxy for its status once a second and follows its events, in threads of its own."""

    def __init__(self, control: Control):
        self.control = control
        self.notify: Callable[[str, bool], None] = lambda text, warning: None
        """Where events go."""
        self._last: dict[str, Any] = control.status()
        """The newest answer to ``GET /v1/status``."""
        self._fault = ""
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to listen."""
        for work in (self._poll, self._follow):
            threading.Thread(target=work, name=f"remote proxy {work.__name__}", daemon=True).start()

    def stop(self) -> None:
        """Listen no more; the proxy goes on."""
        self._ended.set()

    @property
    def title(self) -> str:
        """Where clients connect, and what is behind it."""
        listen, upstream = self._last["listen"], self._last["upstream"]
        return f"bootstrap.servers={listen[0]}:{listen[1]} -> {upstream[0]}:{upstream[1]}"

    def status(self) -> str:
        """One line: connections, losses."""
        if self._fault:
            return f"! {self._fault}"
        counts, lost = self._last["counts"], self._last["lost"]
        return f"conns {counts['connections']}  lost {lost['observer_bytes']}"

    def directory(self) -> Path:
        """Where it records. Raises `NotRecording`."""
        recording = self._last.get("recording") or {}
        found = recording.get("directory")
        if not found or not recording.get("recording", True):
            raise NotRecording("the proxy records nothing: begin with --record DIR, or barnabas control record DIR")
        return Path(found)

    def record(self, directory: Path) -> None:
        """Let it record from now on."""
        self.control.start_recording(str(directory.absolute()))
        self._last = self.control.status()

    def _poll(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            try:
                self._last, self._fault = self.control.status(), ""
            except ControlError as error:
                self._fault = str(error)

    def _follow(self) -> None:
        try:
            for event in self.control.follow_events(since=0):
                if self._ended.is_set():
                    return
                if event["event"] != Counts.__name__:  # the status line has them
                    self.notify(event["text"], event["warning"])
        except ControlError as error:
            self.notify(str(error), True)
