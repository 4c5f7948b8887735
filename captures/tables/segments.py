"""The files of captures: found and named as units of work, fetched from stores, and their table `segments`.

A unit of work is a closed segment of a recording, or a foreign capture. One in a store (`captures.reading.storage`) is named by its
first bytes and copied to this machine to be read: an index and what it points to are read here and there, which a store
answers slowly.
"""

from __future__ import annotations

import fcntl
import mmap
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ...decoder.filter import Filter, Need
from ..pcap.pcapng import NotACapture
from ..pcap.regular_files import open_file
from ..pcap.sources import CaptureSource
from ..reading.context import Origin
from ..reading.indexing.damage import CheckedSpan, spans
from ..reading.reader import SUFFIXES, CaptureFile, RequestKey, open_source
from ..reading.selection import IndexColumns, has_numpy
from ..reading.storage import Listed, Place, Remote, list_files, place
from ..recording.index import CLOSED, HEADER, open_index, parse_head, paths
from ..recording.segment import Identity, read_identity
from .columns import TABLES

LAYOUT = 2
"""The version of all tables' columns; raised when the meaning of one changes."""
SEGMENTS = TABLES["segments"]
_CHUNK = 1 << 20
_FIRST_BYTES = 1 << 16
"""Bytes of a segment in which the packet that names it is."""
_CARRIED_BYTES = 4 << 20
"""Bytes of a next segment that are fetched with its index, to identify its recording."""


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
        """The value of the column `segment`."""
        return self.path.name.removesuffix(".part")


class Name(NamedTuple):
    """What names a file: its recording and its number there, or, of a foreign capture, its bytes (`content_id`)."""

    capture_id: str
    number: int = 0
    foreign: bool = False


Known = Mapping[tuple[str, int, int], Name]
"""Names of files by path, size and `modified_ns`: these need not be opened to be named."""
NameFiles = Callable[[Sequence[Listed]], Iterable[Name | str | None]]
"""Names files that have to be read for it, as `name_file` does; None: not now."""


class Found(NamedTuple):
    """The contents of a folder: files to read, how many segments are still written to, and a line per file left out.

    `writing`: of recordings that are still written to, the first segment that is; its path is that of the closed segment.
    `unnamed`: files that have yet to be named. `known`: the names of the others, copies included."""

    segments: list[Segment]
    live: int
    left_out: list[str]
    writing: dict[str, Segment]
    unnamed: list[Listed]
    known: dict[tuple[str, int, int], Name]


def name_file(file: Listed) -> Name | str:
    """The name of a file, for which that of a foreign capture is read to its end; else why it cannot be read. Raises OSError for a
    store's fault."""
    path = file.path
    try:
        own, _ = identify_remote(path, file.size) if isinstance(path, Remote) else _identity(path)
        return Name(content_id(path), 0, True) if own is None else Name(own.recording, own.number)
    except OSError as error:
        if isinstance(path, Remote):
            raise
        return error.strerror or str(error)


def name_here(files: Sequence[Listed]) -> Iterator[Name | str]:
    """Name files in this process."""
    return map(name_file, files)


def name_none(files: Sequence[Listed]) -> list[None]:
    """Leave all that would have to be read in `Found.unnamed`."""
    return [None] * len(files)


def find_segments(
    path: str | Place | Sequence[str | Place], known: Known | None = None, name_files: NameFiles = name_here
) -> Found:
    """The closed segments of all recordings in a folder and below it (or in one file, or in several of these), and captures of
    other tools, also compressed ones and those that cannot be read, in a fixed order.

    A `.part` file counts as closed once its recorder is gone; in a store that is unknown, and it counts as live. What
    is there twice counts once. `name_files` names files that are neither `known` nor have an index beside them. Raises
    FileNotFoundError when there is no such path, and what a store raises.
    """
    tops = [place(each) for each in ([path] if isinstance(path, str | Path | Remote) else path)]
    files = [Listed(*each) for each in chain.from_iterable(map(_files, tops))]
    names: dict[int, Name | str | None] = {}
    written: set[int] = set()
    for at, file in enumerate(files):
        if file.path.name.endswith(".part"):
            name, being_written = _name_of_part(file)
            if being_written:
                written.add(at)
        else:
            name = (known or {}).get(_stamp(file)) or _name_by_index(file)
        if name is not None:
            names[at] = name
    left = [at for at in range(len(files)) if at not in names]
    names |= zip(left, name_files([files[at] for at in left]) if left else (), strict=True)
    return _gathered(files, names, written)


def _stamp(file: Listed) -> tuple[str, int, int]:
    return str(file.path), file.size, file.modified_ns


def _name_of_part(file: Listed) -> tuple[Name | str | None, bool]:
    """The name of a segment that was not closed, None for another file; and whether a recorder may still write it."""
    try:
        own, written = identify_remote(file.path, file.size) if isinstance(file.path, Remote) else _identity(file.path)
    except OSError as error:
        if isinstance(file.path, Remote):  # the store's fault, not the file's
            raise
        return error.strerror or str(error), False
    return None if own is None else Name(own.recording, own.number), written


def _name_by_index(file: Listed) -> Name | None:
    """The name of a segment by the complete index beside it, so that it need not be opened."""
    if not file.path.name.endswith(".pcapng"):
        return None
    try:
        if isinstance(file.path, Remote):
            data = _index_files(file.path)[0].read(size=HEADER.size)
        else:
            with open_file(paths(file.path)[0]) as index:
                data = index.read(HEADER.size)
    except OSError:  # there is none
        return None
    head = parse_head(data)
    if head is None or not head.flags & CLOSED or head.segment_size != file.size:
        return None
    return Name(head.recording, head.number)


def _gathered(files: Sequence[Listed], names: Mapping[int, Name | str | None], written: Collection[int]) -> Found:
    """What `find_segments` gives, of files in the order in which the first of several equal ones counts."""
    found: dict[tuple[str, int], Segment] = {}
    there: dict[tuple[str, int], Place] = {}
    outcome = Found([], len(written), [], {}, [], {})
    for at, file in enumerate(files):
        name = names[at]
        if name is None:
            outcome.unnamed.append(file)
            continue
        if isinstance(name, str):
            outcome.left_out.append(f"{file.path}: {name}")
            continue
        segment = Segment(file.path, name.capture_id, name.number, file.size, file.modified_ns, name.foreign)
        key = segment.capture_id, segment.number
        if not segment.foreign:
            there.setdefault(key, file.path)
        if at in written:
            first = outcome.writing.get(key[0])
            if first is None or key[1] < first.number:
                outcome.writing[key[0]] = segment._replace(path=file.path.with_name(segment.name))
            continue
        outcome.known[_stamp(file)] = name
        if key in found:
            what = "capture" if segment.foreign else "segment"
            outcome.left_out.append(f"{file.path}: the same {what} as {found[key].path}")
        else:
            found[key] = segment
    for (capture_id, number), each in sorted(found.items()):
        follows = None if each.foreign else there.get((capture_id, number + 1))
        outcome.segments.append(each if follows is None else each._replace(follows=follows))
    return outcome


def flushed(segment: Segment) -> int:
    """How many exchanges the index of a growing segment has by now; 0 where that is unknown."""
    if not isinstance(segment.path, Path):
        return 0
    index = open_index(segment.path.with_name(segment.name + ".part"))
    if index is None:
        return 0
    index.close()
    return index.count


def _files(top: Place) -> Iterator[tuple[Place, int, int]]:
    """The files to look at, with their sizes and times. Raises FileNotFoundError when there is no such path."""
    if isinstance(top, Path) and top.is_file():
        status = top.stat()
        return iter([(top, status.st_size, status.st_mtime_ns)])
    if not (top.is_dir() if isinstance(top, Path) else top.exists()):
        raise FileNotFoundError(f"{top}: no such file or folder")
    if isinstance(top, Remote) and top.is_file():
        return (each for each in top.parent.files(deep=False) if each.path == top)
    return ((each.path, each.size, each.modified_ns) for each in list_files(top, suffixes=SUFFIXES))


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
    with open_file(path) as file:
        while data := file.read(_CHUNK):
            yield data


def _identity(path: Path) -> tuple[Identity | None, bool]:
    """Whose segment a file is, None for one that is nobody's, and whether a recorder still writes it. A complete index
    beside a segment gives it without opening the segment. Raises OSError."""
    part = path.name.endswith(".part")
    if not part:
        try:
            named = _name_by_index(Listed(path, path.stat().st_size, 0))
        except OSError:
            named = None
        if named is not None:
            return Identity(named.capture_id, named.number), False
    try:
        source = CaptureSource(path)
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


def carried_requests(path: Path) -> set[RequestKey] | None:
    """The requests that a segment carries over from the one before it; None when it cannot be read."""
    try:
        file = CaptureFile(path)
    except (NotACapture, OSError):
        return None
    try:
        return file.carried_requests()
    finally:
        file.close()


def readable(path: Path) -> bool:
    """Whether a file is a recording's segment that can be read: the requests that it carries over count there."""
    try:
        path, source = open_source(path)
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


def cannot_match(path: Path, wanted: Filter) -> bool:
    """Whether the index beside a segment shows that no exchange of it passes, so that it need not be opened."""
    if wanted.index_part is None or Need.CONNECTION in wanted.needs or wanted.needs_now:
        return False
    index = open_index(path)
    if index is None:
        return False
    try:
        if not index.head.flags & CLOSED:
            return False
        test = wanted.columns(IndexColumns(index))
        return test is not None and not any(True for _ in test.rows(0, index.count))
    finally:
        index.close()


# captures in stores


def identify_remote(file: Remote, size: int) -> tuple[Identity | None, bool]:
    """Whose segment a file in a store is, None for one that is nobody's, and whether it may still be written to."""
    part = file.name.endswith(".part")
    named = None if part else _name_by_index(Listed(file, size, 0))
    if named is not None:
        return Identity(named.capture_id, named.number), False
    try:
        with tempfile.TemporaryFile(prefix="barnabas-") as head_of:
            head_of.write(file.read(size=_FIRST_BYTES))
            own = read_identity(head_of, str(file))
    except NotACapture:
        return None, False
    return own, part and own is not None


@contextmanager
def fetch_local(
    path: Place, follows: Place | None, skip: Filter | None = None
) -> Iterator[tuple[Path, Path | None] | None]:
    """A file and its next segment on this machine: where they are, or copies that go when the body ends.

    Of the next segment only the index is fetched, and its identity. `skip`: a filter; yields None where the index shows that
    nothing passes, and the segment is not fetched. Raises OSError.
    """
    if isinstance(path, Path):
        yield path, follows if isinstance(follows, Path) else None
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-fetched-") as name:
        folder = Path(name)
        here = folder / path.name
        if _fetch_index(path, here) and skip is not None:
            with open(here, "wb") as empty:
                empty.truncate(path.size)
            if cannot_match(here, skip):
                yield None
                return
        here.unlink(missing_ok=True)
        path.fetch(here)
        yield here, _fetch_next(follows, folder) if isinstance(follows, Remote) else follows


def _index_files(file: Remote) -> tuple[Remote, Remote]:
    return tuple(file.with_name(each.name) for each in paths(Path(file.name)))  # type: ignore[return-value]


def _fetch_index(file: Remote, here: Path) -> bool:
    """Fetch the index of a segment, where it has one."""
    if not file.name.endswith((".pcapng", ".pcapng.part")):
        return False
    try:
        for there, target in zip(_index_files(file), paths(here), strict=True):
            there.fetch(target)
    except OSError:  # it is made of the packets, then
        for target in paths(here):
            target.unlink(missing_ok=True)
        return False
    return True


def _fetch_next(file: Remote, folder: Path) -> Path:
    """The next segment: with an index only its beginning, in a file as long as all of it."""
    here = folder / file.name
    if _fetch_index(file, here):
        with open(here, "wb") as target:
            target.write(file.read(size=_CARRIED_BYTES))
            target.truncate(file.size)
        index = open_index(here)
        if index is not None:
            closed = index.head.flags & CLOSED
            index.close()
            if closed:
                return here
    here.unlink(missing_ok=True)
    file.fetch(here)
    return here


# the table `segments`


def unreadable_row(path: Path, origin: Origin, why: str) -> dict[str, Any]:
    """The row of a file that is no capture, or cannot be read."""
    try:
        status = path.stat()
        size, modified = status.st_size, status.st_mtime_ns
    except OSError:
        size = modified = 0
    row = dict.fromkeys((column.name for column in SEGMENTS.columns), 0)
    return {
        **row, "capture_id": origin.capture_id, "segment": origin.segment, "path": str(path), "size_bytes": size, "modified_ns": modified,
        "status": "unreadable", "detail": why, "first_ns": None, "last_ns": None, "layout": LAYOUT,
        "cluster_id": origin.context.cluster_id,
    }  # fmt: skip


def file_row(
    file: CaptureFile, origin: Origin, counts: dict[str, Any], found: list[CheckedSpan] | None = None
) -> dict[str, Any]:
    """The row of a file. `counts`: exchanges, frames, first_ns, last_ns, continues, as they were counted. `found`: what
    `spans_of` gives, where that is known."""
    size = file.size
    status, good, detail = "ok", size, file.note
    if file.fault:
        status = "corrupt" if "damaged" in file.fault else "truncated"
    if file.own is not None:
        good, unsound = _sound(spans_of(file.path) if found is None else found)
        if unsound:
            status, detail = "corrupt", "; ".join(part for part in (detail, unsound) if part)
    return {
        "capture_id": origin.capture_id,
        "segment": origin.segment,
        "sequence": file.own.number if file.own else 0,
        "path": str(file.path),
        "size_bytes": size,
        "modified_ns": int(file.path.stat().st_mtime_ns) if file.path.exists() else 0,
        "status": status,
        "detail": detail,
        "good_bytes": good,
        "lost_bytes": sum(lost for _, _, lost in file.index.lost),
        "layout": LAYOUT,
        "cluster_id": origin.context.cluster_id,
        "unnamed": 0,
        **counts,
    }


def exchange_counts(file: CaptureFile, numbers: Any, continues: int) -> dict[str, Any]:
    """Figures of these of the index's records."""
    counts: dict[str, Any] = {"exchanges": len(numbers), "frames": 0, "first_ns": None, "last_ns": None}
    if len(numbers) and has_numpy():
        records = file.index.array()
        asked, answered, times, latencies = (
            records[name][numbers] for name in ("request_offset", "response_offset", "time_ns", "latency_ns")
        )
        counts["frames"] = int((asked >= 0).sum() + (answered >= 0).sum())
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


def spans_of(path: Path) -> list[CheckedSpan]:
    """Which bytes of a segment are what was recorded; nothing where it cannot be read."""
    try:
        return spans(bytes_of(path))
    except (OSError, ValueError, NotACapture):
        return []


def _sound(found: list[CheckedSpan]) -> tuple[int, str]:
    """Bytes of a segment that are what was recorded, and a line about the others, "" if there are none."""
    good = sum(span.end - span.start for span in found if span.sound)
    places = [f"bytes {span.start} to {span.end}" for span in found if not span.sound]
    more = f" and {len(places) - 5} places more" if len(places) > 5 else ""
    return good, f"{', '.join(places[:5])}{more}: not what was recorded" if places else ""
