"""Verifying that segments and their indexes are what was recorded, and rebuilding indexes that are not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..pcap.pcapng import NotACapture, Packet
from ..pcap.regular_files import open_file
from ..recording.index import RECORD, IndexEncoder, IndexFiles, Record, names_path, open_index, paths
from ..recording.segment import being_written, read_identity
from .indexing.damage import Damage, DamageTolerantReader
from .indexing.reindex import IndexBuilder
from .reader import INTERRUPTED, files_in

FINE, REBUILT, WRONG, LIVE, FOREIGN, UNREADABLE = "fine", "rebuilt", "wrong", "live", "foreign", "unreadable"
"""States of a file: all is well; its index was made anew; its index, or the segment, is not right; it is being recorded;
it is no segment of a recording and has no index file; it cannot be read."""
_TICK = 1024
_UNINDEXED = "it is read from the beginning each time it is opened"


@dataclass(slots=True)
class FileCheck:
    """The result for one file. `index`: what is, or was, wrong with its index, "" if nothing; `damage`: bytes of the
    segment that are not what was recorded; `note`: how it ends, if not in order."""

    path: Path
    state: str
    records: int = 0
    index: str = ""
    damage: tuple[Damage, ...] = ()
    note: str = ""

    @property
    def is_well(self) -> bool:
        """Nothing is wrong (any more)."""
        return self.state in (FINE, REBUILT, LIVE, FOREIGN) and not self.damage

    @property
    def lines(self) -> list[str]:
        """For people: a line for the file, and one for each damaged place."""
        text = {
            FINE: f"fine, {self.records} exchange{'s' * (self.records != 1)}",
            REBUILT: f"index rebuilt, {self.records} exchange{'s' * (self.records != 1)}: {self.index}",
            WRONG: self.index or "the segment is damaged",
            LIVE: "is being recorded: not checked",
            FOREIGN: "not recorded by barnabas: it has no index file, and is read when it is opened",
            UNREADABLE: self.note,
        }[self.state]
        if self.note and self.state != UNREADABLE:
            text += f"; {self.note}"
        return [f"{self.path.name}: {text}", *(f"  damaged: {each.text}" for each in self.damage)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "state": self.state,
            "records": self.records,
            "index": self.index or None,
            "damage": [each._asdict() for each in self.damage],
            "note": self.note or None,
        }


class _Reader(DamageTolerantReader):
    """A reader that reports its progress."""

    def __init__(self, file: BinaryIO, name: str, tick: Callable[[int], None]) -> None:
        super().__init__(file, name)
        self._tick = tick

    def packets(self, start: int = 0) -> Iterator[Packet]:
        for number, packet in enumerate(super().packets(start)):
            if not number % _TICK:
                self._tick(packet.offset)
            yield packet


def files_of(path: Path) -> list[Path]:
    """The captures of a path: itself, or those of a directory by name. Raises OSError."""
    if not path.is_dir():
        path.stat()
        return [path]
    return [found for _, found in sorted(files_in(path).items())]


def verify(path: Path, write: bool = False, tick: Callable[[int], None] = lambda read: None) -> FileCheck:
    """Read a file and hold its index to it. `write`: make the index anew where it is not right (by a temporary name; the
    segment itself is never touched). `tick` hears how many bytes were read. Raises OSError when that is impossible."""
    try:
        with open_file(path) as file:
            own = read_identity(file, str(path))
            if own is None:
                return FileCheck(path, FOREIGN)
            if path.suffix == ".part" and being_written(file):
                return FileCheck(path, LIVE)
            reader = _Reader(file, str(path), tick)
            builder = IndexBuilder(own)
            builder.build(reader)
    except NotACapture as error:
        return FileCheck(path, UNREADABLE, note=str(error).removeprefix(f"{path}: "))
    encoder = builder.encoder
    verdict = FileCheck(path, FINE, len(encoder.records) // RECORD.size)
    verdict.index = _compared(path, encoder, bool(reader.damage))
    verdict.damage = tuple(reader.damage)
    if not reader.damage:
        verdict.note = reader.note or ("" if builder.complete else INTERRUPTED)
    # No index is made for what is not whole, so that opening it shows the damage; and one that fits a damaged
    # segment knows more than can still be read.
    if reader.damage:
        verdict.state = WRONG
        verdict.index = verdict.index and f"{verdict.index}; {_UNINDEXED}"
    elif reader.note:
        verdict.note = f"{verdict.note}; {_UNINDEXED}" if verdict.index else verdict.note
        verdict.index = ""
    elif verdict.index:
        verdict.state = REBUILT if write else WRONG
        if write:
            _write(path, builder)
    return verdict


def _compared(path: Path, encoder: IndexEncoder, is_damaged: bool) -> str:
    """The fault of a segment's index; "" if it has none."""
    missing = [beside.name for beside in paths(path) if not beside.exists()]
    if missing:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    index = open_index(path)
    if index is None:
        return "the index belongs to another segment, or is damaged"
    try:
        if not index.head.flags:
            return "the index was not completed"
        if is_damaged:
            return ""
        found, made = index.records(0, index.count), bytes(encoder.records)
        if found != made:
            return _different(found, made)
        with open_file(paths(path)[1]) as file:
            strings = file.read()
        return "" if strings == bytes(encoder.entries) else "the names in it (.strings) are not those of the segment"
    finally:
        index.close()


def _different(found: bytes, made: bytes) -> str:
    size = RECORD.size
    if len(found) != len(made):
        return f"it has {len(found) // size} records, but the segment has {len(made) // size} exchanges"
    differing = [at // size for at in range(0, len(made), size) if found[at : at + size] != made[at : at + size]]
    pair = zip(Record._make(RECORD.unpack_from(found, differing[0] * size)), RECORD.unpack_from(made, differing[0] * size), strict=True)
    fields = [name for name, (one, other) in zip(Record._fields, pair, strict=True) if one != other]
    return f"{len(differing)} of its records are wrong, the first is number {differing[0]} ({', '.join(fields)})"


def _write(path: Path, builder: IndexBuilder) -> None:
    """Put a new index in the place of the old one."""
    assert builder.own is not None
    name = path.name.removesuffix(".part").removesuffix(".pcapng")
    temporary = path.with_name(f".{name}.{os.getpid()}.pcapng")
    made = paths(temporary)
    try:
        files = IndexFiles(temporary, *builder.own)
        try:
            files.write(builder.encoder)
        except OSError:
            files.close()
            raise
        files.finish(path.stat().st_size)
        # Remove the old index first: between the two there is none, and readers use the segment.
        paths(path)[0].unlink(missing_ok=True)
        names_path(path).unlink(missing_ok=True)
        for new, old in reversed(list(zip(made, paths(path), strict=True))):
            new.rename(old)
    finally:
        for left in made:
            left.unlink(missing_ok=True)
