"""The flight recorder: the last minutes of a recording, saved when something happens.

A recording runs in short segments, of which `retention` keeps the last. `FlightRecorder.trigger` hard-links those that cover the
window into a directory of its own, adds what is recorded for a while after, and leaves a note of the reason (flight.json,
docs/formats.md; shown with the capture). Where links are impossible, the segments are copied in a thread. Nothing here raises
or waits: `tick` is called about once a second, `segment` for each segment that was closed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...diagnostics import contained
from ..pcap.regular_files import open_file
from .index import paths
from .retention import Keep, Retention

NOTE = "flight.json"
_VERSION = 1
_LARGEST_NOTE = 256 << 10
_NOTE_TEXT = 2000
_AUTOMATIC = ("filter", "finding")
_KINDS = {
    "filter": "a filter matched",
    "finding": "a problem was found",
    "asked": "it was requested",
    "signal": "it was requested by a signal",
}


_WORD = re.compile(r"[^A-Za-z0-9_.-]+")
_LABEL = 60
_PARTIAL = re.compile(r"\.(.+)\.part")
_MORE = 20  # reasons that came while one was being written, and are listed


@dataclass(frozen=True, slots=True)
class FlightReason:
    """Why a flight recording is written. `kind`: "filter", "finding", "asked" or "signal"; `text`: in a line; `label`: what
    its name begins with; `about`: facts, such as the exchange."""

    kind: str
    text: str
    label: str = "flight"
    time_ns: int = field(default_factory=time.time_ns)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def automatic(self) -> bool:
        """Whether it was triggered by the traffic."""
        return self.kind in _AUTOMATIC


class Written(NamedTuple):
    """A flight recording was written. bytes: of its segments; text: the reason; others: how many more reasons there were."""

    path: str
    segments: int
    bytes: int
    text: str
    others: int


class Failed(NamedTuple):
    """A flight recording could not be written."""

    text: str


class Full(NamedTuple):
    """The directory holds enough automatic flight recordings: no more are written."""

    text: str


EventHandler = Callable[[Written | Failed | Full], None]


class Triggered(NamedTuple):
    """The result of a trigger. flight: the path that the flight recording will have, None if none is written; text: the reason."""

    flight: str | None
    text: str


class Window(NamedTuple):
    """The extent of a flight recording: the last `seconds` and at most the last `bytes` (None: no limit), and what follows for
    `after` seconds."""

    seconds: float | None
    bytes: int | None
    after: float = 10.0


@dataclass(slots=True)
class _Writing:
    """A flight recording that is being written."""

    name: str
    path: Path
    lock: int  # its directory, locked: readers see that it is being written
    reason: FlightReason
    until: float  # monotonic
    others: int = 0
    more: list[str] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    bytes: int = 0
    copying: list[threading.Thread] = field(default_factory=list)
    failed: str = ""
    rotated: bool = False


class FlightRecorder:
    """Writes flight recordings into `directory`.

    `source` gives the directory being recorded into (None: nothing is), `rotate` ends its segment. `every`: so many
    seconds lie between two that were not asked for by a person; in between reasons are counted. `most`: with so many of
    those in the directory no more are written. `on_event` is called with `Written`, `Failed` or `Full`. The constructor raises OSError
    if the directory cannot be made.
    """

    def __init__(
        self,
        directory: Path,
        window: Window,
        source: Callable[[], Path | None],
        rotate: Callable[[], None],
        on_event: EventHandler,
        *,
        every: float = 300.0,
        most: int = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory, self.window = directory, window
        self.every, self.most = every, most
        self.written = 0
        self.counted = 0
        """Reasons for which nothing was written, as it was too soon, or there were enough."""
        self._source, self._rotate, self._on_event, self._clock = source, rotate, on_event, clock
        self._writing: _Writing | None = None
        self._last: float | None = None  # when the last automatic one began (monotonic)
        self._uncounted = 0  # counted since the last one was written
        self._full_reported = False
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._recover()

    # reasons

    def trigger(self, reason: FlightReason, others: int = 0) -> Triggered:
        """Write one out for this reason (and `others` like it), or count it."""
        writing = self._writing
        if writing is not None:
            writing.others += 1 + others
            if len(writing.more) < _MORE:
                writing.more.append(reason.text)
            return Triggered(str(self.directory / writing.name), "one is already being written: this is added to it")
        now = self._clock()
        if reason.automatic:
            too_soon = self._last is not None and now - self._last < self.every
            if too_soon or self._is_full():
                self.counted += 1 + others
                self._uncounted += 1 + others
                return Triggered(None, "counted: " + ("it is too soon" if too_soon else "there are enough"))
        failed = self._begin(reason, others, now)
        if failed:
            self._notify(Failed(failed))
            return Triggered(None, failed)
        if reason.automatic:
            self._last = now
        assert self._writing is not None
        path = str(self.directory / self._writing.name)
        self.tick()
        return Triggered(path, f"the traffic of the next {self.window.after:g} s is added")

    def _is_full(self) -> bool:
        full = sum(_is_automatic(path) for path in _directories(self.directory)) >= self.most
        if full and not self._full_reported:
            text = f"{self.directory} holds {self.most} flight recordings: no more are written automatically until some are removed"
            self._notify(Full(text))
        self._full_reported = full
        return full

    # writing

    def _begin(self, reason: FlightReason, others: int, now: float) -> str:
        source = self._source()
        if source is None:
            return "nothing is being recorded"
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(reason.time_ns / 1e9))
        base = name = f"{label(reason.label)}-{stamp}"
        number = 1
        try:
            while True:
                path = self.directory / f".{name}.part"
                if not (self.directory / name).exists():
                    try:
                        path.mkdir(mode=0o700)
                        break
                    except FileExistsError:
                        pass
                number += 1
                name = f"{base}-{number}"
            lock = os.open(path, os.O_RDONLY)
            self._writing = writing = _Writing(name, path, lock, reason, now + self.window.after, others)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._note(writing, complete=False)
        except OSError as error:
            self._abandon()
            return f"cannot write a flight recording into {self.directory}: {error.strerror or error}"
        closed, written = Retention(source, Keep()).segments()
        size, chosen = written, []
        since = None if self.window.seconds is None else reason.time_ns / 1e9 - self.window.seconds
        for segment in reversed(closed):
            size += segment.bytes
            if (since is not None and segment.ended < since) or (self.window.bytes is not None and size > self.window.bytes):
                break
            chosen.append(segment.path)
        for segment_path in reversed(chosen):
            self._take(writing, segment_path)
        return ""

    def segment(self, path: Path) -> None:
        """A segment was closed."""
        if self._writing is not None:
            self._take(self._writing, path)

    def _take(self, writing: _Writing, path: Path) -> None:
        if writing.failed or path.name in writing.segments:
            return
        wanted = [each for each in (path, *paths(path)) if each == path or each.exists()]
        try:
            size = sum(each.stat().st_size for each in wanted)
            try:
                # the segment last: who sees it finds its index
                for each in reversed(wanted):
                    os.link(each, writing.path / each.name)
            except FileNotFoundError:
                raise
            except OSError:  # another file system, or one that knows no links
                self._copy(writing, wanted)
        except FileNotFoundError:
            return  # retention was faster
        except OSError as error:
            writing.failed = f"cannot write {writing.path / path.name}: {error.strerror or error}"
            return
        writing.segments.append(path.name)
        writing.bytes += size

    def _copy(self, writing: _Writing, files: list[Path]) -> None:
        """Copy in a thread: it may take long. Opened here, since retention may remove them meanwhile."""
        opened = []
        try:
            for each in reversed(files):
                opened.append((os.open(each, os.O_RDONLY), writing.path / each.name))
        except OSError:
            for fd, _ in opened:
                os.close(fd)
            raise
        thread = threading.Thread(target=_copied, args=(writing, opened), name="flight copy", daemon=True)
        thread.start()
        writing.copying.append(thread)

    def tick(self, end: bool = False) -> None:
        """Go on with what is being written. `end`: nothing more is to come."""
        writing = self._writing
        if writing is None:
            return
        if not writing.rotated:
            if self._clock() < writing.until and not end and not writing.failed:
                return
            writing.rotated = True
            if not writing.failed and not end:
                self._rotate()  # calls `segment`
        if end:
            for thread in writing.copying:
                thread.join()
        elif any(thread.is_alive() for thread in writing.copying):
            return
        self._finish(writing)

    def _finish(self, writing: _Writing) -> None:
        failed = writing.failed or ("" if writing.segments else "there is nothing in the recording yet")
        if not failed:
            try:
                self._note(writing, complete=True)
                writing.path.rename(self.directory / writing.name)
            except OSError as error:
                failed = f"cannot write {self.directory / writing.name}: {error.strerror or error}"
        if failed:
            self._abandon()
            self._notify(Failed(failed))
            return
        self._writing = None
        os.close(writing.lock)
        self.written += 1
        others, self._uncounted = self._uncounted, 0
        path = str(self.directory / writing.name)
        self._notify(Written(path, len(writing.segments), writing.bytes, writing.reason.text, writing.others + others))

    def _abandon(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            shutil.rmtree(writing.path, ignore_errors=True)
            os.close(writing.lock)

    def _note(self, writing: _Writing, complete: bool) -> None:
        note = {
            "flight": _VERSION,
            "kind": writing.reason.kind,
            "text": writing.reason.text[:_NOTE_TEXT],
            "label": writing.reason.label,
            "time_ns": writing.reason.time_ns,
            "about": dict(writing.reason.about),
            "others": writing.others,
            "more": [text[:_NOTE_TEXT] for text in writing.more],
            "left_out": self._uncounted,
            "seconds": self.window.seconds,
            "bytes": self.window.bytes,
            "after": self.window.after,
            "segments": writing.segments,
            "complete": complete,
        }
        path = writing.path / NOTE
        temporary = path.with_name("." + path.name)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(note, file, indent=1)
            file.write("\n")
        temporary.rename(path)

    def _recover(self) -> None:
        """Give those their names whose writer was killed: what they hold is good."""
        for path in _directories(self.directory, _PARTIAL):
            match = _PARTIAL.fullmatch(path.name)
            if match is None or _is_written(path):
                continue
            try:
                if any(each.suffix == ".pcapng" for each in path.iterdir()):
                    path.rename(self.directory / match[1])
                else:
                    shutil.rmtree(path, ignore_errors=True)
            except OSError:
                continue

    def close(self) -> None:
        """The recording has ended; what was begun is finished with what there is."""
        self.tick(end=True)

    @property
    def writing(self) -> Path | None:
        """The flight recording that is being written."""
        return self.directory / self._writing.name if self._writing is not None else None

    def _notify(self, event: Written | Failed | Full) -> None:
        try:
            self._on_event(event)
        except Exception as error:  # a listener must not stop the recording
            contained("a listener of the flight recorder", error)


def label(text: str) -> str:
    """A label as a part of a file name: letters, digits, `_`, `.` and `-`, not too long; "flight" if nothing is left."""
    return _WORD.sub("-", text).strip(".-")[:_LABEL].strip(".-") or "flight"


def _copied(writing: _Writing, files: list[tuple[int, Path]]) -> None:
    try:
        for fd, path in files:
            out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                at = 0
                while sent := os.sendfile(out, fd, at, 1 << 20):
                    at += sent
            finally:
                os.close(out)
    except OSError as error:
        writing.failed = writing.failed or f"cannot write into {writing.path}: {error.strerror or error}"
    finally:
        for fd, _ in files:
            os.close(fd)


def _directories(directory: Path, pattern: re.Pattern[str] | None = None) -> list[Path]:
    """The directories in it that are not hidden, or those of a pattern."""
    try:
        return [
            Path(entry.path)
            for entry in os.scandir(directory)
            if entry.is_dir(follow_symlinks=False)
            and (pattern.fullmatch(entry.name) if pattern else not entry.name.startswith("."))
        ]
    except OSError:
        return []


def _is_written(path: Path) -> bool:
    """Whether this flight recording is being written."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def read_note(directory: Path) -> dict[str, Any] | None:
    """The note of a recording; None when there is none, or it is none."""
    try:
        with open_file(directory / NOTE) as file:
            found = json.loads(file.read(_LARGEST_NOTE))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("flight"), int) else None


def _is_automatic(directory: Path) -> bool:
    """Whether a directory is an automatic flight recording."""
    found = read_note(directory)
    return found is not None and found.get("kind") in _AUTOMATIC


def flight_summary(directory: Path) -> str | None:
    """Why a recording was written, in one line; None for one that is no flight recording.

    The text may hold what was in the traffic: a terminal gets it through `visible`.
    """
    found = read_note(directory)
    if found is None:
        return None
    why = _KINDS.get(str(found.get("kind")), "")
    words = [f"flight recording{f': {why}' if why else ''}: {found.get('text', '')}"]
    stamp = found.get("time_ns")
    if isinstance(stamp, int) and 0 <= stamp < 1 << 62:
        words.append(time.strftime("at %Y-%m-%d %H:%M:%SZ", time.gmtime(stamp / 1e9)))
    for name, text in (("others", "{} more like it while it was written"), ("left_out", "{} before it only counted")):
        count = found.get(name)
        if isinstance(count, int) and count > 0:
            words.append(text.format(count))
    if found.get("complete") is False:
        words.append("its writer was killed before it was complete")
    return "; ".join(words)
