"""A proxy in another process, for a screen: its control API, its events and the directory it records to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BarnabasError
from ..proxy.control import Control, ControlError
from ..proxy.events import Address, Counts

EVERY_SECONDS = 1.0
UNAUTHORIZED = 401
STARTED_AGAIN = "the proxy was started again and has a new token: start barnabas ui --attach again, too"


class NotRecording(BarnabasError):
    """The proxy records nothing, so there is nothing to show."""


class ProxyStatus(NamedTuple):
    """What the screen shows of a proxy's status. `lost`: bytes that were not observed; `directory`: where it records, None
    while it does not."""

    listen: Address
    upstream: Address
    connections: int
    lost: int
    directory: Path | None

    @classmethod
    def of(cls, found: dict[str, Any]) -> ProxyStatus:
        """From the control API's JSON."""
        recording = found.get("recording") or {}
        directory = recording.get("directory") if recording.get("recording", True) else None
        return cls(
            tuple(found["listen"]), tuple(found["upstream"]), found["counts"]["connections"],
            found["lost"]["observer_bytes"], Path(directory) if directory else None,
        )  # fmt: skip


class AttachedProxy:
    """Asks for the proxy's status every `EVERY_SECONDS` and follows its events, each in a thread."""

    def __init__(self, control: Control):
        self.control = control
        self.add_to_log: Callable[[str, bool, int | None], None] = lambda text, warning, time_ns: None
        """Called with the text of each event, whether it is a warning, and its time: None for now."""
        self._status = ProxyStatus.of(control.status())
        self._fault = ""
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the threads."""
        for work in (self._poll, self._follow):
            threading.Thread(target=work, name=f"attached {work.__name__}", daemon=True).start()

    def stop(self) -> None:
        """End the threads. The proxy keeps running."""
        self._ended.set()

    @property
    def title(self) -> str:
        """Where clients connect, and what is behind it."""
        listen, upstream = self._status.listen, self._status.upstream
        return f"bootstrap.servers={listen[0]}:{listen[1]} -> {upstream[0]}:{upstream[1]}"

    def status(self) -> str:
        """One line: connections, losses."""
        if self._fault:
            return f"! {self._fault}"
        return f"conns {self._status.connections}  lost {self._status.lost}"

    def directory(self) -> Path:
        """Where it records. Raises `NotRecording`."""
        if self._status.directory is None:
            raise NotRecording("the proxy is not recording: start it with --record DIR, or barnabas control record DIR")
        return self._status.directory

    def record(self, directory: Path) -> None:
        """Make the proxy record to `directory` from now on."""
        self.control.start_recording(str(directory.absolute()))
        self._status = ProxyStatus.of(self.control.status())

    def _poll(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            try:
                self._status, self._fault = ProxyStatus.of(self.control.status()), ""
            except ControlError as error:
                # a proxy makes a new token when it starts
                self._fault = STARTED_AGAIN if error.status == UNAUTHORIZED else str(error)

    def _follow(self) -> None:
        newest, reported = 0, False
        while not self._ended.is_set():
            try:
                for event in self.control.follow_events(since=newest):
                    if self._ended.is_set():
                        return
                    newest, reported = event["id"], False
                    if event["event"] != Counts.__name__:  # the status line has them
                        self.add_to_log(event["text"], event["warning"], event["time_ns"])
            except ControlError as error:
                if not reported:  # once for as long as the proxy is away
                    self.add_to_log(str(error), True, None)
                reported = True
                self._ended.wait(EVERY_SECONDS)
