"""The index beside a segment: one 64-byte record per exchange, and a table of strings and connections.

`NAME.index` is a 64-byte header and fixed little-endian records, so a list of a million exchanges is a mapped file
(and, with numpy, an array: `Index.array`). `NAME.strings` is append-only. Both are written behind the segment:
what an index names is in the pcapng. `IndexEncoder` makes the bytes, `IndexFiles` puts them on disk, `Index` reads
them, also while they grow. docs/formats.md has the layout.
"""

import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ...decoder import Exchange, State
from ...diagnostics import contained
from ..pcap.regular_files import open_fd

INDEX_MAGIC, STRINGS_MAGIC, VERSION = b"BRNBIDX1", b"BRNBSTR1", 1
RECORD = struct.Struct("<qqqqIIiIhhhHII")
HEADER = struct.Struct("<8sHHIII16sqqq")
STRINGS_HEADER = struct.Struct("<8sII")
CLOSED = 1  # header flag: the segment is complete, and so is its index

STATES = (State.PAIRED, State.NO_RESPONSE, State.ORPHAN, State.PENDING)
STATE_MASK = 3
UNDECODED, CHANGED, NOTED, CARRIED, CONTINUED, SURPLUS, CUT = 4, 8, 16, 32, 64, 128, 256
"""Record flags: a frame could not be decoded; the two legs differ; a rule left a note; the request came with the
segment's head from an earlier segment; the exchange goes on in the next segment; bytes behind a message's end; only
the beginning of a frame was kept."""

_ENTRY = struct.Struct("<IHH")  # length of what follows, kind, 0
_STRING, _CONNECTION, _LEG, _LOST = 1, 2, 3, 4
_CONNECTION_ENTRY = struct.Struct("<IIqII")  # connection, 0, opened time, string ids of client and broker
_LEG_ENTRY = struct.Struct("<IiIIq")  # connection, correlation id, direction, size, file offset
_LOST_ENTRY = struct.Struct("<IIq")  # connection, direction, bytes
MAX_STRING = 1000
LARGEST_SIZE = (1 << 31) - 1
"""The size of a frame is a signed number of 32 bits; what is larger in an index is damage."""


class Record(NamedTuple):
    """One record as it is stored; see docs/formats.md. -1 for a latency or an offset means: none."""

    time_ns: int
    latency_ns: int
    request_offset: int
    response_offset: int
    request_size: int
    response_size: int
    correlation_id: int
    connection: int
    api_key: int
    api_version: int
    error: int
    flags: int
    client_id: int
    spare: int


DTYPE = [
    *((name, "<i8") for name in Record._fields[:4]),
    *((name, "<u4") for name in Record._fields[4:6]),
    ("correlation_id", "<i4"),
    ("connection", "<u4"),
    *((name, "<i2") for name in Record._fields[8:11]),
    ("flags", "<u2"),
    *((name, "<u4") for name in Record._fields[12:]),
]
"""The numpy dtype of an index record, 64 bytes: ``numpy.frombuffer(mapped, DTYPE, offset=64)`` reads an index file
(docs/formats.md)."""


class ConnectionEntry(NamedTuple):
    """A connection that the segment knows: when it was opened, and both ends as ``host:port``."""

    opened_ns: int
    client: str
    broker: str


class Loss(NamedTuple):
    """`size` bytes missing in a direction of a connection."""

    connection: int
    direction: int
    size: int


class LegFrame(NamedTuple):
    """A frame of the broker leg, written because it differs from the client leg's."""

    connection: int
    correlation_id: int
    direction: int
    size: int
    offset: int


class Head(NamedTuple):
    """The header of an index file. The last three are -1 until the segment is closed."""

    flags: int
    number: int
    recording: str
    segment_size: int
    strings_size: int
    records: int

    def pack(self) -> bytes:
        """The 64 bytes."""
        identity = bytes.fromhex(self.recording)
        sizes = self.segment_size, self.strings_size, self.records
        return HEADER.pack(INDEX_MAGIC, VERSION, RECORD.size, self.flags, self.number, 0, identity, *sizes)


def parse_head(data: bytes) -> Head | None:
    """The header, or None when it is no index of this version."""
    if len(data) < HEADER.size:
        return None
    magic, version, size, flags, number, _, identity, *sizes = HEADER.unpack_from(data)
    if (magic, version, size) != (INDEX_MAGIC, VERSION, RECORD.size):
        return None
    return Head(flags, number, identity.hex(), *sizes)


def paths(segment: Path) -> tuple[Path, Path]:
    """The paths of the index and the strings of a segment (`.pcapng` or `.pcapng.part`)."""
    name = segment.name.removesuffix(".part").removesuffix(".pcapng")
    return segment.with_name(name + ".index"), segment.with_name(name + ".strings")


def names_path(segment: Path) -> Path:
    """The path of what filters remembered of a segment (`names`)."""
    return paths(segment)[0].with_suffix(".names")


class IndexEncoder:
    """Collects records and string entries as bytes; `take` hands them over."""

    def __init__(self) -> None:
        self.records = bytearray()
        self.entries = bytearray(STRINGS_HEADER.pack(STRINGS_MAGIC, VERSION, 0))
        self.strings_by_id: list[str | None] = [None]
        self._ids: dict[str, int] = {}

    def _entry(self, kind: int, data: bytes) -> None:
        self.entries += _ENTRY.pack(len(data), kind, 0) + data

    def string(self, text: str | None) -> int:
        """The id of a string; 0 is null."""
        if text is None:
            return 0
        number = self._ids.get(text)
        if number is None:
            number = self._ids[text] = len(self._ids) + 1
            self.strings_by_id.append(text)
            self._entry(_STRING, text[:MAX_STRING].encode("utf-8", "replace"))
        return number

    def connection(self, number: int, opened_ns: int, client: str, broker: str) -> None:
        """Introduce a connection; before its first exchange."""
        ids = self.string(client), self.string(broker)
        self._entry(_CONNECTION, _CONNECTION_ENTRY.pack(number & 0xFFFFFFFF, 0, opened_ns, *ids))

    def leg_frame(self, frame: LegFrame) -> None:
        """Add the place of a frame of the broker leg."""
        self._entry(_LEG, _LEG_ENTRY.pack(*frame))

    def lost(self, connection: int, direction: int, size: int) -> None:
        """Add missing bytes of a connection."""
        self._entry(_LOST, _LOST_ENTRY.pack(connection, direction, size))

    def record(self, record: Record) -> None:
        """Add a record that is made already."""
        self.records += RECORD.pack(*record)

    def exchange(self, exchange: Exchange, flags: int = 0, pending: bool = False) -> int:
        """Add the record of an exchange; return its flags.

        Reads `exchange.marks`: request_offset, response_offset, changed, has_notes and carried.
        `pending` leaves a response out that this segment does not hold.
        """
        marks = exchange.marks
        error = 0
        try:
            asked, answered = exchange.request_message, None
            undecoded = exchange.request is not None and asked is None and not exchange.request_cut
            if not pending and exchange.response is not None:
                error, answered = exchange.error, exchange.response_message
                undecoded = exchange.undecoded is not None
            if undecoded:
                flags |= UNDECODED
            elif (asked is not None and asked.trailing) or (answered is not None and answered.trailing):
                flags |= SURPLUS
        except Exception as fault:  # a fault of the decoder must not end a recording
            contained("decoding an exchange for the index", fault)
            flags |= UNDECODED
        if exchange.request_cut or (exchange.response_cut and not pending):
            flags |= CUT
        flags |= CHANGED * marks.changed | NOTED * marks.has_notes | CARRIED * marks.carried
        flags |= STATES.index(State.PENDING if pending else exchange.state)
        time_ns = exchange.request_time_ns if exchange.request is not None else exchange.response_time_ns
        latency_ns = None if pending else exchange.latency_ns
        self.records += RECORD.pack(
            time_ns or 0,
            -1 if latency_ns is None else max(latency_ns, 0),
            marks.request_offset,
            -1 if pending else marks.response_offset,
            exchange.request_size or 0,
            0 if pending else exchange.response_size or 0,
            exchange.correlation_id,
            exchange.connection & 0xFFFFFFFF,
            exchange.api_key,
            exchange.api_version,
            error,
            flags,
            self.string(exchange.client_id),
            0,
        )
        return flags


class IndexFiles:
    """The two files on disk, being written. Every method may raise OSError; files keep whole records then."""

    def __init__(self, segment: Path, recording: str, number: int) -> None:
        self._head = Head(0, number, recording, -1, -1, -1)
        index, strings = paths(segment)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._index = os.open(index, flags, 0o600)
        try:
            self._strings = os.open(strings, flags, 0o600)
        except OSError:
            os.close(self._index)
            raise
        self._sizes = {self._index: 0, self._strings: 0}
        self._append(self._index, bytearray(self._head.pack()), 64)

    def _append(self, file: int, data: bytearray, unit: int) -> None:
        at = self._sizes[file]
        with memoryview(data) as view:
            done = 0
            try:
                while done < len(view):
                    done += os.pwrite(file, view[done:], at + done)
            except OSError:
                os.ftruncate(file, at + done // unit * unit)
                raise
        self._sizes[file] = at + len(data)
        data.clear()

    def write(self, encoder: IndexEncoder) -> None:
        """Append what the encoder has collected; strings first, since records name them."""
        if encoder.entries:
            self._append(self._strings, encoder.entries, len(encoder.entries))
        if encoder.records:
            self._append(self._index, encoder.records, RECORD.size)

    def finish(self, segment_size: int) -> None:
        """Mark the index complete and close both files."""
        count = (self._sizes[self._index] - HEADER.size) // RECORD.size
        head = self._head._replace(
            flags=CLOSED, segment_size=segment_size, strings_size=self._sizes[self._strings], records=count
        )
        try:
            os.pwrite(self._index, head.pack(), 0)
        finally:
            self.close()

    def close(self) -> None:
        """Close both files as they are; without `finish`, readers rebuild the index of a closed segment."""
        for file in self._sizes:
            os.close(file)
        self._sizes.clear()


class Index:
    """A readable index: of files (`open_index`; `refresh` picks up what was added) or in memory (`from_encoder`)."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.count = self.done = 0
        """Records, and those of them that stay: behind them are requests in flight (`show_waiting`)."""
        self.now_ns = self.shown = 0
        """When `show_waiting` was called last, and how often."""
        self.strings: list[str | None] = [None]
        self.connections: dict[int, ConnectionEntry] = {}
        self.leg_frames: dict[tuple[int, int], list[LegFrame]] = {}
        self.lost: list[Loss] = []
        self._data: bytes | bytearray | mmap.mmap = b""
        self._start = 0
        self._files: tuple[int, int] | None = None
        self._strings_read = STRINGS_HEADER.size
        self._copied: int | None = None  # the recorder's file, where `_files` has a copy of it
        self._copied_bytes = 0
        self._waits = False
        self._size: Callable[[], int] | None = None
        self._own_strings = 0

    @classmethod
    def from_encoder(cls, encoder: IndexEncoder, head: Head) -> "Index":
        """An index in memory; the encoder must hold everything from the start and is used up."""
        index = cls.of_bytes(encoder.records, bytes(encoder.entries[STRINGS_HEADER.size :]))
        index.head = head
        return index

    @classmethod
    def of_bytes(cls, records: bytes | bytearray, entries: bytes) -> "Index":
        """An index in memory, of packed records and of entries of a strings file. struct.error for an entry that is none."""
        index = cls(Head(0, 0, "0" * 32, -1, -1, -1))
        index._data, index.done = records, len(records) // RECORD.size
        index.count = index.done
        index._read_entries(entries)
        return index

    @classmethod
    def of_files(cls, records: int, strings: int, size: Callable[[], int] | None = None) -> "Index":
        """An index in two open files that are being written; `refresh` picks up what is there. `size`: how many bytes of the first are
        records; what is behind them is for `show_waiting`."""
        index = cls(Head(0, 0, "0" * 32, -1, -1, -1))
        index._size = size
        index._files = (records, strings)
        return index

    def record(self, number: int) -> Record:
        """Record `number`, counted from 0."""
        return Record(*RECORD.unpack_from(self._data, self._start + number * RECORD.size))

    def records(self, start: int, stop: int) -> bytes:
        """The packed bytes of records `start` to `stop`, for `RECORD.iter_unpack`."""
        stop = min(stop, self.count)
        return bytes(self._data[self._start + start * RECORD.size : self._start + stop * RECORD.size])

    def replace(self, records: Iterable[Record]) -> None:
        """Put other records in place of these; only for an index in memory."""
        self._data, self._start = b"".join(RECORD.pack(*record) for record in records), 0
        self.count = self.done = len(self._data) // RECORD.size

    def array(self) -> Any:
        """All records as a numpy structured array (`DTYPE`) without a copy; needs numpy."""
        import numpy

        return numpy.frombuffer(self._data, numpy.dtype(DTYPE), self.count, self._start)

    def string(self, number: int) -> str | None:
        """The string with this id; None for 0 and for ids that a damaged table lacks."""
        return self.strings[number] if number < len(self.strings) else None

    def refresh(self) -> int:
        """Read what was added to the files; return the number of new records."""
        if self._files is None:
            return 0
        file, strings = self._files
        if self._size is not None:
            size = self._size()
        else:
            size = os.fstat(file).st_size if self._copied is None else self._copy(self._copied, file)
        count = max((size - HEADER.size) // RECORD.size, 0)
        if count > self.done:
            self._data = mmap.mmap(file, HEADER.size + count * RECORD.size, access=mmap.ACCESS_READ)
            self._start = HEADER.size
        del self.strings[len(self.strings) - self._own_strings :]
        self._own_strings = 0
        # After the size was taken: whatever those records name is in the strings by now.
        data = os.pread(strings, max(os.fstat(strings).st_size - self._strings_read, 0), self._strings_read)
        self._strings_read += self._read_entries(data)
        added = max(count - self.done, 0)
        self.done += added
        self.count = self.done
        self.head = parse_head(os.pread(file if self._copied is None else self._copied, HEADER.size, 0)) or self.head
        return added

    def copy(self) -> None:
        """Go on with a copy of the records in memory, which has room for `show_waiting`."""
        if self._files is not None and self._copied is None:
            self._copied, strings = self._files
            self._files = memory_file("barnabas-index"), strings
            self._copy(self._copied, self._files[0])

    def _copy(self, source: int, target: int) -> int:
        """Take in what the recorder has written; return the size."""
        while data := os.pread(source, 1 << 20, self._copied_bytes):
            self._copied_bytes += os.pwrite(target, data, self._copied_bytes)
        return self._copied_bytes

    def show_waiting(self, records: Iterable[Record], clients: Iterable[str | None], now_ns: int) -> None:
        """Make these the last records, until the next `refresh`: requests in flight, each with its client id. Needs `copy`, or
        files with a `size`."""
        if self._files is None or (self._copied is None and self._size is None):
            return
        ids: dict[str | None, int] = {None: 0}
        packed = bytearray()
        for record, client in zip(records, clients, strict=True):
            if client not in ids:
                ids[client] = len(self.strings)
                self.strings.append(client)
                self._own_strings += 1
            packed += RECORD.pack(*record._replace(client_id=ids[client]))
        self.shown += bool(packed) or self._waits
        self._waits = bool(packed)
        self.count, self.now_ns = self.done + len(packed) // RECORD.size, now_ns
        if packed:
            os.pwrite(self._files[0], packed, HEADER.size + self.done * RECORD.size)
            self._data = mmap.mmap(self._files[0], HEADER.size + self.count * RECORD.size, access=mmap.ACCESS_READ)
            self._start = HEADER.size

    def _read_entries(self, data: bytes) -> int:
        """Take in whole entries; return how many bytes they were."""
        at = 0
        while at + _ENTRY.size <= len(data):
            size, kind, _ = _ENTRY.unpack_from(data, at)
            end = at + _ENTRY.size + size
            if end > len(data):
                break
            value = data[at + _ENTRY.size : end]
            if kind == _STRING:
                self.strings.append(value.decode("utf-8", "replace"))
            elif kind == _CONNECTION:
                number, _, opened_ns, client, broker = _CONNECTION_ENTRY.unpack(value)
                entry = ConnectionEntry(opened_ns, self.string(client) or "", self.string(broker) or "")
                self.connections[number] = entry
            elif kind == _LEG:
                leg = LegFrame(*_LEG_ENTRY.unpack(value))
                self.leg_frames.setdefault((leg.connection, leg.correlation_id), []).append(leg)
            elif kind == _LOST:
                self.lost.append(Loss._make(_LOST_ENTRY.unpack(value)))
            at = end
        return at

    def close(self) -> None:
        """Close the files; arrays that were handed out stay valid."""
        if self._files:
            for file in self._files if self._copied is None else (*self._files, self._copied):
                os.close(file)
            self._files = self._copied = None


def memory_file(name: str) -> int:
    """An unnamed file, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    file, path = tempfile.mkstemp(prefix=name + "-")
    os.unlink(path)
    return file


def open_index(segment: Path) -> Index | None:
    """The index beside a segment; None when it is missing, damaged, or not of this segment's bytes."""
    opened = []
    try:
        for path in paths(segment):
            opened.append(open_fd(path))
        head = parse_head(os.pread(opened[0], HEADER.size, 0))
        strings = os.pread(opened[1], STRINGS_HEADER.size, 0)
        if head is not None and strings[:8] == STRINGS_MAGIC:
            index = Index(head)
            index._files = (opened[0], opened[1])
            index.refresh()
            head, size = index.head, segment.stat().st_size
            sizes = index._strings_read, index.count
            if not head.flags & CLOSED or (head.segment_size, head.strings_size, head.records) == (size, *sizes):
                return index
    except (OSError, struct.error, ValueError):
        pass
    for file in opened:
        os.close(file)
    return None
