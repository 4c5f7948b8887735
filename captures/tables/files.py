"""The table `segments`: one row per file of a capture, whatever state it is in."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

from ..damage import Span, spans
from ..pcapng import NotACapture
from ..reader import CaptureFile
from ..regular import open_file
from ..selection import has_numpy
from .columns import Column, Table

LAYOUT = 1
"""Of all tables' columns; higher when one of them means something else than before."""
TABLE = Table(
    "segments",
    "file: a segment of a recording, or a capture of another tool",
    (
        Column(
            "capture_id", "string", "the recording: 32 hexadecimal digits; of another tool's capture, its file name"
        ),
        Column("segment", "string", "file name of the segment, without `.part`"),
        Column("sequence", "int64", "which segment of its recording it is, from 0; 0 of another tool's capture"),
        Column("path", "string", "where it was read"),
        Column("size_bytes", "int64", "of the file"),
        Column("modified_ns", "int64", "when the file was written to last, nanoseconds since the epoch"),
        Column("status", "string", "`ok`, `truncated`, `corrupt` or `unreadable`"),
        Column("detail", "string", "what is not right, or was left out", null=True),
        Column("good_bytes", "int64", "bytes that are what was recorded; of another tool's capture all that were read"),
        Column("exchanges", "int64", "how many count in this file"),
        Column("frames", "int64", "their requests and responses"),
        Column("lost_bytes", "int64", "bytes of connections that were not captured"),
        Column("first_ns", "int64", "when the first exchange began; null without one", null=True),
        Column("last_ns", "int64", "when the last one ended", null=True),
        Column(
            "continues",
            "int64",
            "exchanges that go on in a next segment, which was not there: they count here as pending",
        ),
        Column("layout", "int32", "version of the tables' columns"),
    ),
)


def unread(path: Path, names: tuple[str, str], why: str) -> dict[str, Any]:
    """The row of a file that is no capture, or cannot be read."""
    try:
        status = path.stat()
        size, modified = status.st_size, status.st_mtime_ns
    except OSError:
        size = modified = 0
    row = dict.fromkeys((column.name for column in TABLE.columns), 0)
    return {
        **row, "capture_id": names[0], "segment": names[1], "path": str(path), "size_bytes": size, "modified_ns": modified,
        "status": "unreadable", "detail": why, "first_ns": None, "last_ns": None, "layout": LAYOUT,
    }  # fmt: skip


def row_of(
    file: CaptureFile, names: tuple[str, str], counts: dict[str, Any], found: list[Span] | None = None
) -> dict[str, Any]:
    """The row of a file. `counts`: exchanges, frames, first_ns, last_ns, continues, as they were counted. `found`: what
    `spans_of` says, where that is known."""
    size = file.size
    status, good, detail = "ok", size, file.note
    if file.fault:
        status = "corrupt" if "damaged" in file.fault else "truncated"
    if file.own is not None:
        good, unsound = _sound(spans_of(file.path) if found is None else found)
        if unsound:
            status, detail = "corrupt", "; ".join(part for part in (detail, unsound) if part)
    return {
        "capture_id": names[0],
        "segment": names[1],
        "sequence": file.own.number if file.own else 0,
        "path": str(file.path),
        "size_bytes": size,
        "modified_ns": int(file.path.stat().st_mtime_ns) if file.path.exists() else 0,
        "status": status,
        "detail": detail,
        "good_bytes": good,
        "lost_bytes": sum(lost for _, _, lost in file.index.lost),
        "layout": LAYOUT,
        **counts,
    }


def counted(file: CaptureFile, numbers: Any, continues: int) -> dict[str, Any]:
    """What the index says of these of its records."""
    counts: dict[str, Any] = {"exchanges": len(numbers), "frames": 0, "first_ns": None, "last_ns": None}
    if len(numbers) and has_numpy():
        records = file.index.array()
        asked, told, times, latencies = (
            records[name][numbers] for name in ("request_offset", "response_offset", "time_ns", "latency_ns")
        )
        counts["frames"] = int((asked >= 0).sum() + (told >= 0).sum())
        counts["first_ns"] = int(times.min())
        counts["last_ns"] = int((times + latencies.clip(0)).max())
    elif len(numbers):
        kept = [file.index.record(number) for number in numbers]
        counts["frames"] = sum((r.request_offset >= 0) + (r.response_offset >= 0) for r in kept)
        counts["first_ns"] = min(r.time_ns for r in kept)
        counts["last_ns"] = max(r.time_ns + max(r.latency_ns, 0) for r in kept)
    return counts | {"continues": continues}


def bytes_of(path: Path) -> mmap.mmap:
    """A file's bytes, mapped. Raises OSError, and ValueError for an empty one."""
    with open_file(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def spans_of(path: Path) -> list[Span]:
    """Which bytes of a segment are what was recorded; nothing where it cannot be read."""
    try:
        return spans(bytes_of(path))
    except (OSError, ValueError, NotACapture):
        return []


def _sound(found: list[Span]) -> tuple[int, str]:
    """Bytes of a segment that are what was recorded, and a line about the others, "" if there are none."""
    good = sum(span.end - span.start for span in found if span.sound)
    places = [f"bytes {span.start} to {span.end}" for span in found if not span.sound]
    more = f" and {len(places) - 5} places more" if len(places) > 5 else ""
    return good, f"{', '.join(places[:5])}{more}: not what was recorded" if places else ""
