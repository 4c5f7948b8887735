"""Recordings that begin, rotate and end while the traffic runs: what the observer feeds.

A recording that begins later begins at frames: of every connection that stands, each direction is taken up at the
first frame start that comes. Responses whose requests were sent before have no request in it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..captures import Recorder
from .events import Address, Event, Recording, RecordingFailed
from .ring import NONE


class RecordingRefused(Exception):
    """The command makes no sense now; `kind`: "exists", "missing" or "invalid"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Recordings:
    """The consumer of an observer: a recorder while something is recorded, else what only counts (`idle()`)."""

    def __init__(self, directory: str | None, idle: Callable[[], Any], emit: Callable[[Event], None]) -> None:
        self._idle = idle
        self._emit = emit
        self._before: Counter[str] = Counter()
        self._connections: dict[int, tuple[Address, Address, Address | None]] = {}
        self._seen: set[tuple[int, int]] = set()  # directions of connections in which anything has come
        self._unsynced: set[tuple[int, int]] = set()
        self.directory: str | None = None
        self._recorder: Recorder | None = None
        self._consumer: Any = None
        self._trouble = ""
        if directory is not None:
            try:
                self._begin(directory)
            except RecordingRefused as error:
                self._emit(RecordingFailed(str(error)))
        if self._consumer is None:
            self._consumer = idle()

    # -- commands --------------------------------------------------------------------------------------------

    def command(self, message: dict[str, Any]) -> dict[str, Any]:
        """Do `recording.start`, `.stop`, `.rotate`, or only tell; the state afterwards."""
        try:
            match message["do"]:
                case "recording.start":
                    self._start(str(message["directory"]))
                case "recording.stop":
                    self._stop()
                case "recording.rotate":
                    if self._recorder is None:
                        raise RecordingRefused("missing", "nothing is being recorded")
                    self._recorder.rotate()
        except RecordingRefused as error:
            return {"error": error.kind, "text": str(error)}
        return self.state()

    def state(self) -> dict[str, Any]:
        """Whether and where something is recorded, and how much of it."""
        recorder = self._recorder
        counts = recorder.counts if recorder is not None else {}
        path = recorder.path if recorder is not None else None
        return {
            "recording": recorder is not None,
            "directory": self.directory,
            "segment": str(path) if path is not None else None,
            "paused": recorder is not None and path is None,
            "trouble": self._trouble or None,
            "counts": counts,
        }

    def _begin(self, directory: str) -> None:
        try:
            recorder = Recorder(Path(directory), on_event=self._recorder_says)
        except OSError as error:
            raise RecordingRefused("invalid", f"{directory}: {(error.strerror or str(error)).lower()}") from None
        self._recorder = self._consumer = recorder
        self.directory, self._trouble = directory, ""
        self._emit(Recording(directory))

    def _start(self, directory: str) -> None:
        if self._recorder is not None:
            raise RecordingRefused("exists", f"already recording to {self.directory}: stop that first")
        self._close()
        try:
            self._begin(directory)
        except RecordingRefused:
            self._consumer = self._idle()
            self._take_over()
            raise
        self._take_over()

    def _stop(self) -> None:
        if self._recorder is None:
            raise RecordingRefused("missing", "nothing is being recorded")
        self._close()
        self._recorder, self.directory = None, None
        self._consumer = self._idle()
        self._take_over()

    def _close(self) -> None:
        self._consumer.close()
        self._before.update({name: self._consumer.counts.get(name, 0) for name in ("exchanges", "errors", "undecoded")})

    def _take_over(self) -> None:
        """Make the new consumer know the connections that stand."""
        now = time.time_ns()
        for conn, (client, broker, upstream) in self._connections.items():
            self._consumer.opened(conn, now, client, broker, upstream)
        self._unsynced = set(self._seen)

    def _recorder_says(self, kind: str, text: str) -> None:
        if kind in ("paused", "error"):
            self._trouble = text
            self._emit(RecordingFailed(text))
        elif kind == "resumed":
            self._trouble = ""

    # -- what the observer tells -----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Since the start, over all recordings."""
        counts = Counter(self._before)
        counts.update(self._consumer.counts)
        return dict(counts)

    def opened(
        self,
        conn: int,
        time_ns: int,
        client: Address,
        broker: Address,
        upstream: Address | None = None,
        failed: str = "",
    ) -> None:
        if not failed:
            self._connections[conn] = client, broker, upstream
        self._consumer.opened(conn, time_ns, client, broker, upstream, failed)

    def data(self, conn: int, direction: int, time_ns: int, data: bytes, first: int = 0) -> None:
        """`first`: where in `data` the first frame starts, or `ring.NONE`."""
        key = conn, direction
        if key in self._unsynced:
            if first == NONE:
                return
            self._unsynced.discard(key)
            data = data[first:]
        self._seen.add(key)
        self._consumer.data(conn, direction, time_ns, data)

    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None:
        self._consumer.broker_leg(conn, direction, time_ns, frame, note)

    def note(self, conn: int, correlation_id: int, text: str) -> None:
        self._consumer.note(conn, correlation_id, text)

    def lost(self, conn: int, direction: int, nbytes: int) -> None:
        if (conn, direction) in self._unsynced:
            self._unsynced.discard((conn, direction))  # what comes next starts at a frame
        else:
            self._consumer.lost(conn, direction, nbytes)

    def closed(self, conn: int, time_ns: int, how: str = "fin", by: str = "") -> None:
        self._connections.pop(conn, None)
        for direction in (0, 1):
            self._seen.discard((conn, direction))
            self._unsynced.discard((conn, direction))
        self._consumer.closed(conn, time_ns, how, by)

    def flush(self) -> None:
        self._consumer.flush()

    def close(self) -> None:
        self._consumer.close()
