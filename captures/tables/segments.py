"""The closed segments of recordings, and which of their exchanges count where."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..indexing import Identity, read_identity
from ..pcapng import NotACapture
from ..reader import CaptureFile


class Segment(NamedTuple):
    """A closed segment of a recording. `key` names it uniquely and the same way every time."""

    path: Path
    capture_id: str
    number: int
    size: int

    @property
    def key(self) -> str:
        return f"{self.capture_id}-{self.number:06d}"


class Found(NamedTuple):
    """What a folder holds: closed segments, how many are still written to, and a line per file left out."""

    segments: list[Segment]
    live: int
    left_out: list[str]


def find_segments(path: str | Path) -> Found:
    """The closed segments of all recordings in a folder and below it (or in one file), in a fixed order.

    A `.part` file counts as closed once its recorder is gone. A segment that is there twice counts once.
    Raises FileNotFoundError when there is no such path.
    """
    path = Path(path)
    files = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else None
    if files is None:
        raise FileNotFoundError(f"{path}: no such file or folder")
    found: dict[tuple[str, int], Segment] = {}
    live, left_out = 0, []
    for file in files:
        if not file.name.endswith((".pcapng", ".pcapng.part", ".pcap", ".cap")) or not file.is_file():
            continue
        try:
            own, written = _identity(file)
            size = file.stat().st_size
        except (NotACapture, OSError) as error:
            left_out.append(str(error) if isinstance(error, NotACapture) else f"{file}: {error.strerror or error}")
            continue
        if own is None:
            left_out.append(f"{file}: not recorded by barnabas")
        elif written:
            live += 1
        elif own in found:
            left_out.append(f"{file}: the same segment as {found[own].path}")
        else:
            found[own] = Segment(file, own.recording, own.number, size)
    return Found([found[key] for key in sorted(found)], live, left_out)


def _identity(path: Path) -> tuple[Identity | None, bool]:
    """Whose segment a file is, and whether a recorder still writes it. Raises `NotACapture`, OSError."""
    with open(path, "rb") as file:
        own = read_identity(file, str(path))
        if not path.name.endswith(".part"):
            return own, False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return own, True
        return own, False


def successor(path: Path, own: Identity | None) -> set[tuple[int, int, int]] | None:
    """What the next segment of the same recording carries over from this one; None when it is not beside it.

    Names are ordered by time, so it is nearly always the very next file.
    """
    if own is None:
        return None
    name = path.name.removesuffix(".part")
    for other in sorted(_beside(path), key=lambda p: p.name):
        if other.name.removesuffix(".part") <= name:
            continue
        try:
            if _identity(other)[0] == (own.recording, own.number + 1):
                file = CaptureFile(other)
                try:
                    return file.carried()
                finally:
                    file.close()
        except (NotACapture, OSError):
            continue
    return None


def _beside(path: Path) -> Iterable[Path]:
    try:
        return [p for p in path.parent.iterdir() if p.name.endswith((".pcapng", ".pcapng.part"))]
    except OSError:
        return []
