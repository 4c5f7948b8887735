"""Captures in a store (`captures.storage`) as units of work: named by the beginnings of their files, and copied to this machine,
one at a time, to be read: an index and what it points to are read here and there, which a store answers slowly.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...decoder.filter import Filter
from ..index import CLOSED, HEADER, open_index, parse_head, paths
from ..indexing import Identity, read_identity
from ..pcapng import NotACapture
from ..storage import Place, Remote

_HEAD = 1 << 16
"""Bytes of a segment in which the packet that names it is."""
_CARRIED = 4 << 20
"""Bytes of a next segment that are fetched with its index, for what tells whose it is."""


def named(file: Remote, size: int) -> tuple[Identity | None, bool]:
    """Whose segment a file in a store is, None for one that is nobody's, and whether it may still be written to."""
    part = file.name.endswith(".part")
    if not part and file.name.endswith(".pcapng"):
        try:
            head = parse_head(_beside(file)[0].read(size=HEADER.size))
        except OSError:  # there is none
            head = None
        if head is not None and head.flags & CLOSED and head.segment_size == size:
            return Identity(head.recording, head.number), False
    try:
        with tempfile.TemporaryFile(prefix="barnabas-") as head_of:
            head_of.write(file.read(size=_HEAD))
            own = read_identity(head_of, str(file))
    except NotACapture:
        return None, False
    return own, part and own is not None


@contextmanager
def fetched(
    path: Place, follows: Place | None, skip: Filter | None = None
) -> Iterator[tuple[Path, Path | None] | None]:
    """A file and its next segment on this machine: where they are, or copies that go when the body ends.

    Of the next segment only the index comes, and as much as tells whose it is. `skip`: a filter; None is given where the index
    tells that nothing passes, and the segment is not fetched. Raises OSError.
    """
    if isinstance(path, Path):
        yield path, follows if isinstance(follows, Path) else None
        return
    from .unit import cannot_match

    with tempfile.TemporaryDirectory(prefix="barnabas-fetched-") as name:
        folder = Path(name)
        here = folder / path.name
        if _index(path, here) and skip is not None:
            with open(here, "wb") as empty:
                empty.truncate(path.size)
            if cannot_match(here, skip):
                yield None
                return
        here.unlink(missing_ok=True)
        path.fetch(here)
        yield here, _next(follows, folder) if isinstance(follows, Remote) else follows


def _beside(file: Remote) -> tuple[Remote, Remote]:
    return tuple(file.with_name(each.name) for each in paths(Path(file.name)))  # type: ignore[return-value]


def _index(file: Remote, here: Path) -> bool:
    """Fetch the index of a segment, where it has one."""
    if not file.name.endswith((".pcapng", ".pcapng.part")):
        return False
    try:
        for there, target in zip(_beside(file), paths(here), strict=True):
            there.fetch(target)
    except OSError:  # it is made of the packets, then
        for target in paths(here):
            target.unlink(missing_ok=True)
        return False
    return True


def _next(file: Remote, folder: Path) -> Path:
    """The next segment: with an index only its beginning, in a file as long as all of it."""
    here = folder / file.name
    if _index(file, here):
        with open(here, "wb") as target:
            target.write(file.read(size=_CARRIED))
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
