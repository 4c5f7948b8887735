"""Files of captures as units of work: closed segments of recordings, and foreign captures, each named by what it is."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from ..index import CLOSED, HEADER, parse_head, paths
from ..indexing import Identity, read_identity
from ..pcapng import NotACapture
from ..reader import SUFFIXES, CaptureFile
from ..sources import Source, open_file
from ..storage import Place, Remote, listed, place
from .remote import named

_CHUNK = 1 << 20


class Segment(NamedTuple):
    """A closed segment of a recording, or a foreign capture. `key` names it uniquely and the same way every time.

    `number`: of a recording's segment, 0 of a foreign capture, whose `capture_id` is made of its bytes. `follows`: the
    next segment of the same recording, where it is there. `modified_ns`: when the file was written to last.
    """

    path: Place
    capture_id: str
    number: int
    size: int
    modified_ns: int = 0
    foreign: bool = False
    follows: Place | None = None

    @property
    def key(self) -> str:
        return f"{self.capture_id}-{self.number:06d}"

    @property
    def name(self) -> str:
        """What the column `segment` says."""
        return self.path.name.removesuffix(".part")


Known = Mapping[tuple[str, int, int], tuple[str, int, bool]]
"""`capture_id`, `number` and `foreign` of files by path, size and `modified_ns`: these need not be opened to be named."""


class Found(NamedTuple):
    """What a folder holds: files to read, how many segments are still written to, and a line per file left out.

    `writing`: of recordings that are still written to, the number of the first segment that is."""

    segments: list[Segment]
    live: int
    left_out: list[str]
    writing: dict[str, int]


def find_segments(path: str | Place, known: Known | None = None) -> Found:
    """The closed segments of all recordings in a folder and below it (or in one file), and captures of other tools, also
    compressed ones and those that cannot be read, in a fixed order.

    A `.part` file counts as closed once its recorder is gone; in a store nobody knows that, and it counts as written to. What
    is there twice counts once. Raises FileNotFoundError when there is no such path, and what a store raises.
    """
    top = place(path)
    found: dict[tuple[str, int], Segment] = {}
    there: dict[tuple[str, int], Place] = {}
    live, left_out = 0, []
    writing: dict[str, int] = {}
    for file, size, modified_ns in _files(top):
        name, written = str(file), False
        part = name.endswith(".part")
        try:
            old = None if part or known is None else known.get((name, size, modified_ns))
            if old is not None:
                segment = Segment(file, old[0], old[1], size, modified_ns, old[2])
            else:
                segment = Segment(file, "", 0, size, modified_ns)
                own, written = named(file, size) if isinstance(file, Remote) else _identity(file)
                if own is not None:
                    segment = segment._replace(capture_id=own.recording, number=own.number)
                else:
                    segment = segment._replace(capture_id=content_id(file), foreign=True)
        except OSError as error:
            if isinstance(file, Remote):  # the store's fault, not the file's
                raise
            left_out.append(f"{file}: {error.strerror or error}")
            continue
        key = segment.capture_id, segment.number
        if not segment.foreign:
            there.setdefault(key, file)
        if written:
            live += 1
            writing[key[0]] = min(key[1], writing.get(key[0], key[1]))
        elif key in found:
            what = "capture" if segment.foreign else "segment"
            left_out.append(f"{file}: the same {what} as {found[key].path}")
        else:
            found[key] = segment
    segments = []
    for (name, number), each in sorted(found.items()):
        follows = None if each.foreign else there.get((name, number + 1))
        segments.append(each if follows is None else each._replace(follows=follows))
    return Found(segments, live, left_out, writing)


def _files(top: Place) -> Iterator[tuple[Place, int, int]]:
    """The files to look at, with their sizes and times. Raises FileNotFoundError when there is no such path."""
    if isinstance(top, Path) and top.is_file():
        status = top.stat()
        return iter([(top, status.st_size, status.st_mtime_ns)])
    if not (top.is_dir() if isinstance(top, Path) else top.exists()):
        raise FileNotFoundError(f"{top}: no such file or folder")
    if isinstance(top, Remote) and top.is_file():
        return (each for each in top.parent.files(deep=False) if each.path == top)
    return ((each.path, each.size, each.modified_ns) for each in listed(top, suffixes=SUFFIXES))


def content_id(path: Place) -> str:
    """A name for a foreign capture, made of its bytes: 32 hexadecimal digits. An empty file is named by its path. May
    raise OSError."""
    digest, empty = blake2b(digest_size=16), True
    for data in path.chunks() if isinstance(path, Remote) else _chunks(path):
        digest.update(data)
        empty = False
    if empty:
        digest.update(str(path).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while data := file.read(_CHUNK):
            yield data


def _identity(path: Path) -> tuple[Identity | None, bool]:
    """Whose segment a file is, None for one that is nobody's, and whether a recorder still writes it. A complete index
    beside a segment tells it without opening the segment. Raises OSError."""
    part = path.name.endswith(".part")
    if not part:
        try:
            with open_file(paths(path)[0]) as index:
                head = parse_head(index.read(HEADER.size))
            if head is not None and head.flags & CLOSED and head.segment_size == path.stat().st_size:
                return Identity(head.recording, head.number), False
        except OSError:
            pass
    try:
        source = Source(path)
    except NotACapture:
        return None, False
    try:
        own = read_identity(source.file, str(path))
        if not part:
            return own, False
        try:
            fcntl.flock(source.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return own, True
        return own, False
    except NotACapture:
        return None, False
    finally:
        source.close()


def carried(path: Path) -> set[tuple[int, int, int]] | None:
    """The requests that a segment carries over from the one before it; None when it cannot be read."""
    try:
        file = CaptureFile(path)
    except (NotACapture, OSError):
        return None
    try:
        return file.carried()
    finally:
        file.close()


def readable(path: Path) -> bool:
    """Whether a file is a recording's segment that can be read: the requests that it carries over count there."""
    try:
        source = Source(path)
        try:
            return read_identity(source.file, str(path)) is not None
        finally:
            source.close()
    except (NotACapture, OSError):
        return False


def successor(path: Path, own: Identity | None) -> Path | None:
    """The next segment of the same recording; None when it is not beside this one.

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
                return other
        except OSError:
            continue
    return None


def _beside(path: Path) -> Iterable[Path]:
    try:
        return [p for p in path.parent.iterdir() if p.name.endswith((".pcapng", ".pcapng.part"))]
    except OSError:
        return []
