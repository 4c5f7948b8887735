"""Retention: keeping a recording directory within a size and an age by removing its oldest segments.

Only closed segments of recordings are removed, each with its index and strings: never the one being written, nor a file with
another kind of name, or with the name but not the content. Readers that have a segment open can go on reading it.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..pcap.pcapng import NotACapture
from ..pcap.regular_files import open_file
from .index import names_path, paths
from .segment import being_written, read_identity

_NAME = re.compile(r"\d{8}-\d{6}-\d{4,}\.pcapng(\.part)?")
_LEFT = re.compile(r"\d{8}-\d{6}-\d{4,}\.(index|strings|names)")
_SETTLED_SECONDS = 60.0
"""A file without a lock that is younger than this may still be under construction."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The limits of a recording directory: `bytes` (all segments, with their indexes, the one being written included)
    and `seconds` (since a segment ended). None: no limit. ValueError for a limit that is not above 0."""

    bytes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for limit in (self.bytes, self.seconds):
            if limit is not None and not limit > 0:
                raise ValueError("the size and the time to keep must be more than 0")

    def __bool__(self) -> bool:
        return self.bytes is not None or self.seconds is not None


class ClosedSegment(NamedTuple):
    """A closed segment: its file, its bytes with index and strings, and when it was written to last (s since the epoch)."""

    path: Path
    bytes: int
    ended: float


class Removed(NamedTuple):
    """What retention has removed: names of segments, oldest first, and their bytes. `failed`: what it could not."""

    names: tuple[str, ...]
    bytes: int
    failed: str = ""


class Retention:
    """Keeps `directory` within `keep`. `reserve`: bytes that the segment being written may come to."""

    def __init__(self, directory: Path, keep: Keep, reserve: int = 0) -> None:
        self.directory, self.keep, self.reserve = directory, keep, reserve
        self._ours: dict[tuple[str, int], bool] = {}  # by name and inode

    def segments(self) -> tuple[list[ClosedSegment], int]:
        """The closed segments, oldest first, and the bytes of those that are being written."""
        closed: list[ClosedSegment] = []
        written = 0
        known: dict[tuple[str, int], bool] = {}
        try:
            entries = [entry for entry in os.scandir(self.directory) if _NAME.fullmatch(entry.name)]
        except OSError:  # the directory is gone: the recorder will report it
            return [], 0
        for entry in sorted(entries, key=lambda entry: entry.name):
            try:
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                key = entry.name, status.st_ino
                known[key] = ours = self._ours.get(key) or _is_ours(Path(entry.path))
            except OSError:
                continue
            if not ours:
                continue
            path = Path(entry.path)
            size = status.st_size + sum(map(_size, (*paths(path), names_path(path))))
            if path.suffix == ".part" and (_held(path) or time.time() - status.st_mtime < _SETTLED_SECONDS):
                written += size
            else:
                closed.append(ClosedSegment(path, size, status.st_mtime))
        self._ours = known
        return closed, written

    def apply(self, now: float | None = None) -> Removed | None:
        """Remove segments beyond the limits; None when there are none. Raises nothing."""
        now = time.time() if now is None else now
        closed, written = self.segments()
        total = sum(segment.bytes for segment in closed) + max(written, self.reserve)
        removed: list[ClosedSegment] = []
        failed = ""
        for segment in closed:
            over = self.keep.bytes is not None and total > self.keep.bytes
            old = self.keep.seconds is not None and now - segment.ended > self.keep.seconds
            if not over and not old:
                continue  # one that was copied here may look younger than those behind it
            try:
                remove(segment.path)
            except OSError as error:
                failed = failed or f"{segment.path} cannot be removed: {error.strerror or error}"
                continue
            total -= segment.bytes
            removed.append(segment)
        self._sweep(now)
        if not removed and not failed:
            return None
        return Removed(tuple(each.path.name for each in removed), sum(each.bytes for each in removed), failed)

    def _sweep(self, now: float) -> None:
        """Remove indexes left behind by a process that was killed after removing the segment."""
        for path in _left(self.directory):
            name = path.stem + ".pcapng"
            if any(path.with_name(name + suffix).exists() for suffix in ("", ".part")):
                continue
            try:
                if now - path.lstat().st_mtime > _SETTLED_SECONDS:
                    path.unlink()
            except OSError:
                continue


def remove(path: Path) -> None:
    """Remove a segment with what is beside it. OSError when it stays."""
    path.unlink()  # first: an index alone is no capture, a segment alone would be read anew
    for beside in (*paths(path), names_path(path)):
        try:
            beside.unlink(missing_ok=True)
        except OSError:
            pass  # swept the next time


def _left(directory: Path) -> Iterator[Path]:
    try:
        for entry in os.scandir(directory):
            if _LEFT.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
    except OSError:
        return


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _is_ours(path: Path) -> bool:
    """Whether a file is a segment of a recording. May raise OSError."""
    try:
        with open_file(path) as file:
            return read_identity(file, str(path)) is not None
    except NotACapture:
        return False


def _held(path: Path) -> bool:
    try:
        with open_file(path) as file:
            return being_written(file)
    except OSError:
        return True
