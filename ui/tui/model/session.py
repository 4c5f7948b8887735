"""The state that all screens share: the capture, the proxy it comes from, the log, marks, statistics and the analysis.

Marks and comments are in a small JSON file beside the capture. It names exchanges by connection, correlation id and time,
which stay the same when the index is rebuilt.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...safe import visible
from .held_queue import HeldQueue

if TYPE_CHECKING:
    from ....captures import Capture, Row
    from ....proxy.control import Control
    from .analysis import Analysis
    from .statistics import CaptureStatistics

class CommentMarks:
    """Comments by exchange; "" is a mark without a comment."""

    def __init__(self, capture: Path):
        self.path = capture / "marks.json" if capture.is_dir() else capture.with_name(capture.name + ".marks.json")
        self._by_id: dict[str, str] = {}
        self.fault = ""
        """Why marks are not saved, or ""."""
        try:
            found = json.loads(self.path.read_text("utf-8"))
            self._by_id = {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError) as error:
            self.fault = f"{self.path} cannot be read: {error}"

    @staticmethod
    def _id(row: Row) -> str:
        return f"{row.connection}/{row.correlation_id}/{row.time_ns}"

    def __len__(self) -> int:
        return len(self._by_id)

    def comment(self, row: Row) -> str | None:
        """The comment on an exchange, None if it is not marked."""
        return self._by_id.get(self._id(row)) if self._by_id else None

    def set(self, row: Row, comment: str | None) -> None:
        """Mark an exchange, or with None remove its mark, and write the file. A file that could not be read is not touched."""
        if comment is None:
            self._by_id.pop(self._id(row), None)
        else:
            self._by_id[self._id(row)] = comment
        if self.fault:
            return
        temporary = self.path.with_name(self.path.name + ".part")
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(self._by_id, file, indent=1, sort_keys=True)
            temporary.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self.fault = f"marks are not saved: {self.path}: {error.strerror or error}"


NO_CONTROL = (
    "This screen is not connected to the control API of a proxy.\n\n"
    "To connect it to a running proxy:\n"
    "  barnabas ui --attach newest --allow-edit"
)
LOG_LINES = 5000
IN_PROCESS = 20_000
"""Exchanges of the largest capture that is analysed in this process."""


class LogLine(NamedTuple):
    """One line of the log; `text` is safe for the terminal."""

    time_ns: int
    text: str
    warning: bool = False


class Session:
    """`title`: the name of what is shown. `live`: there will be more rows, and with `grows` because the capture is being
    written, not because it is still being read. `status()`: a short line about the proxy. `control`: its control API,
    None for a file. `allow_edit`: traffic may be changed."""

    def __init__(
        self,
        capture: Capture,
        *,
        title: str,
        live: bool = False,
        status: Callable[[], str] | None = None,
        control: Control | None = None,
        allow_edit: bool = False,
        grows: bool = True,
    ):
        self.capture, self.title, self.live, self.status = capture, visible(title), live, status
        self.control, self.allow_edit, self.grows = control, allow_edit, live and grows
        self.paused = False
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self.marks = CommentMarks(capture.path)
        self.compare_with: Row | None = None
        """The exchange to be compared with the next one."""
        self.held = HeldQueue(control)
        self._statistics: CaptureStatistics | None = None
        self._analysis: Analysis | None = None

    def read_only(self, of_a_recording: str = "there is no traffic to change") -> str:
        """Why traffic cannot be changed here, or "". `of_a_recording`: what follows "This is a recording:"."""
        if self.control is None:
            return NO_CONTROL if self.grows else f"This is a recording: {of_a_recording}."
        return "" if self.allow_edit else "Read-only: start with --allow-edit, or :edit on."

    @property
    def lost(self) -> int:
        """Bytes that the capture lacks."""
        return sum(size for _, _, size in self.capture.lost)

    def nothing_to_report(self) -> str:
        """The text of an empty log."""
        if self.live:
            return "No messages yet. Connections, losses, rule hits and warnings of the proxy appear here."
        if self.lost:
            return f"{self.lost:,} bytes are missing in this capture: the recorder did not get them. Nothing else to report."
        return "Nothing to report about this capture: it is complete, and nothing was lost."

    def add_to_log(self, text: str, warning: bool = False, time_ns: int | None = None) -> None:
        """Add a line to the log. `time_ns`: None for now."""
        self.log.append(LogLine(time.time_ns() if time_ns is None else time_ns, visible(text), warning))

    def refresh(self) -> int:
        """Read the rows that a live recording has added. Returns how many; one at least if requests wait, or did."""
        if self.paused:
            return 0
        rows = self.capture.rows()
        waited = len(rows) > rows.done
        return self.capture.refresh() or int(waited or len(rows) > rows.done)

    @property
    def statistics(self) -> CaptureStatistics:
        """Counts over the index; begun when they are first asked for."""
        if self._statistics is None:
            from .statistics import CaptureStatistics

            self._statistics = CaptureStatistics(self.capture)
        return self._statistics

    @property
    def analysis(self) -> Analysis:
        """Connections, groups and findings; begun when it is first asked for."""
        if self._analysis is None:
            if len(self.capture.rows()) > IN_PROCESS:
                from .background_analysis import BackgroundAnalysis

                self._analysis = BackgroundAnalysis(self.capture)
            else:
                from .analysis import CaptureAnalysis

                self._analysis = CaptureAnalysis.of(self.capture)
        return self._analysis

    def stop(self) -> None:
        """End what runs in the background."""
        if self._analysis is not None:
            self._analysis.stop()

    @property
    def unread(self) -> bool:
        """Whether an analysis that was begun has more to read: what comes last may be no exchange, but the end of a
        connection."""
        return self._analysis is not None and self._analysis.unread

    @property
    def has_analysis(self) -> bool:
        """Whether the analysis has begun."""
        return self._analysis is not None
