"""The screen on a proxy of this process: its recording, live, and a status line from its events."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ..captures import Capture, NotACapture, open_capture
from ..proxy import Proxy, events
from ..proxy.control import Control

START_SECONDS = 10.0


EARLY = 1000
"""Log lines that are kept until there is a screen."""


class EventListener:
    """Follows a proxy's events in a thread. Keeps the newest counts, the hits of each rule, findings by number, and all
    warnings."""

    def __init__(self, proxy: Proxy):
        self._proxy = proxy
        self.counts: events.Counts | None = None
        self.hits: dict[str, int] = {}
        self.warnings: list[str] = []
        self.findings: dict[int, events.FindingSeen] = {}
        self._early: deque[tuple[str, bool]] = deque(maxlen=EARLY)
        self._log: Callable[[str, bool], None] = lambda text, warning: self._early.append((text, warning))
        self._lock = threading.Lock()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="events", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for event in self._proxy.events():
            if isinstance(event, events.Counts):
                self.counts = event
            elif isinstance(event, events.RuleHit):
                self.hits[event.rule] = event.hits
            elif isinstance(event, events.FindingSeen):
                self.findings[event.number] = event
            elif event.warning:
                self.warnings.append(event.text)
            rare = not isinstance(event, events.RuleHit) or event.hits & (event.hits - 1) == 0  # the 1st, 2nd, 4th, 8th hit
            if rare and not isinstance(event, events.Counts):
                with self._lock:
                    self._log(event.text, event.warning)
        self.ended.set()

    def log_to(self, log: Callable[[str, bool], None]) -> None:
        """Call `log` with the texts of events, also of those that came before, and whether they are warnings."""
        with self._lock:
            for text, warning in self._early:
                log(text, warning)
            self._early.clear()
            self._log = log

    def join(self, seconds: float) -> None:
        """Wait for the last events of a proxy that was stopped."""
        self.ended.wait(seconds)

    @property
    def lost(self) -> int:
        """Bytes that were not observed."""
        return self.counts.lost_bytes if self.counts else 0

    def status(self) -> str:
        """One line: connections, losses, rule hits, the newest warning."""
        words = [f"conns {self.counts.connections if self.counts else 0}", f"lost {self.lost}"]
        if len(self.hits) > 1:
            words.append(f"{len(self.hits)} rules: {sum(self.hits.values())} hits")
        else:
            words += [f"rule {name}: {count}" for name, count in self.hits.items()]
        if self.warnings:
            words.append(f"! {self.warnings[-1]}")
        return "  ".join(words)


def open_when_started(directory: Path) -> Capture:
    """The recording in `directory` as soon as it has begun. Raises NotACapture or FileNotFoundError after `START_SECONDS`."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return open_capture(directory)
        except (NotACapture, FileNotFoundError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def show_live(
    proxy: Proxy,
    record: Path,
    *,
    title: str,
    allow_edit: bool = False,
    seconds: float | None = None,
    listener: EventListener | None = None,
) -> None:
    """Show the screen until the user quits it, or `seconds` are over. `listener`: one that already follows the proxy."""
    from .tui.app import BarnabasApp
    from .tui.model.settings import BadSettings, ScreenSettings, read_settings

    listener = listener or EventListener(proxy)
    control = None
    if proxy.control is not None:
        control = Control(proxy.control.access.url, proxy.control.access.token)
    fault = ""
    try:
        settings = read_settings()
    except BadSettings as error:  # a proxy that runs must not end for the colours of its screen
        settings, fault = ScreenSettings(), str(error)
    with open_when_started(record) as capture:
        app = BarnabasApp(
            capture, title=title, live=True, status=listener.status, control=control, allow_edit=allow_edit,
            settings=settings, seconds=seconds,
        )  # fmt: skip
        listener.log_to(app.session.add_to_log)
        if fault:
            app.session.add_to_log(fault, True)
        try:
            app.run()
        finally:
            app.stop_once()
