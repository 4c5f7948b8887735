"""One capture file, opened for reading: its index, and exchanges read back by their records."""

import mmap
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ...decoder import Exchange, decode_request_header
from ...decoder.connection.events import Closed, Opened
from ...decoder.connection.exchange import BrokerLeg
from ..pcap.packet_comments import MARK
from ..pcap.pcapng import LINKTYPE_ETHERNET, CaptureReader
from ..pcap.reassembly import KAFKA_PORTS
from ..pcap.sources import CaptureSource, ReadProgress
from ..recording.index import (
    CARRIED,
    CHANGED,
    CLOSED,
    CONTINUED,
    MAX_STRING,
    RECORD,
    STATE_MASK,
    STATES,
    Index,
    LegFrame,
    Record,
    open_index,
)
from ..recording.segment import being_written, read_identity
from .indexing import reindex
from .indexing.index_builder import ForeignIndex

if TYPE_CHECKING:
    from ..recording.bulk_frames import PlacedFrames
    from ..recording.names import NameTable, SegmentNames

SUFFIXES = (".pcapng", ".pcapng.part", ".pcap", ".cap", ".pcapng.gz", ".pcap.gz", ".cap.gz", ".pcapng.zst", ".pcap.zst")
INTERRUPTED = "the recording was interrupted at the end of this segment"
_FLAGS = Record._fields.index("flags")
REMOVED = "the segment {name} was removed from the recording, with its frames; this comes from its index"


def files_in(directory: Path) -> dict[str, Path]:
    """The files of a directory that may be captures, by the name they have when they are complete. May raise OSError."""
    with os.scandir(directory) as found:
        return {e.name.removesuffix(".part"): Path(e) for e in found if e.name.endswith(SUFFIXES) and e.is_file()}


def _cut(frame: bytes | None, size: int) -> int:
    """The number of bytes missing from a frame of that size."""
    return 0 if frame is None else max(size - len(frame), 0)


def _carried(values: tuple[int, ...]) -> int:
    """Whether a record, not named yet, is of a request that came from an earlier segment: nearly none is."""
    return values[_FLAGS] & CARRIED


def open_source(path: Path) -> tuple[Path, CaptureSource]:
    """Open a capture: a segment also where it was closed, and renamed, since its ``.part`` was found. Returns where it is, too.
    Raises `NotACapture`, OSError."""
    try:
        return path, CaptureSource(path)
    except FileNotFoundError:
        closed = path.with_name(path.name.removesuffix(".part"))
        return closed, CaptureSource(closed)


class RequestKey(NamedTuple):
    """What identifies a request over the segments of a recording."""

    connection: int
    correlation_id: int
    time_ns: int


class CaptureFile:
    """A segment of a recording (also while it is written) or a foreign capture. Raises `NotACapture`, OSError.

    `own`: which recording the file belongs to, None for a foreign one. `note`: what is wrong with the file, or None.
    """

    def __init__(self, path: Path, ports: Collection[int] = KAFKA_PORTS, *, background: bool = False) -> None:
        """`background`: a foreign capture is read on while its first rows are looked at; see `refresh`."""
        self.was_removed = False  # it was removed while it was open (see `release`)
        self._size_then = self._modified_then = 0.0
        self._note: str | None = None
        self._names: SegmentNames | None = None
        path, self._source = open_source(path)  # kept open: a segment may be renamed while we read it
        self.path = path
        self._file = self._source.file
        try:
            self.own = read_identity(self._file, str(path))
            self._foreign: ForeignIndex | None = None
            self._in_flight: reindex.SegmentInFlight | None = None
            self._ports = ports
            if self.own is None:
                self.rebuilt = True
                self._live = False
                self._foreign = ForeignIndex(self._source, str(path), ports)
                self.index = self._foreign.index
                if background:
                    self._foreign.start()
                else:
                    self._foreign.read_all()
                return
            self._source.fill_all()
            index = open_index(path)
            self._live = index is not None and not index.head.flags and being_written(self._file)
            if index is not None and not index.head.flags and not self._live:
                index.close()  # left behind by a recorder that was killed, or that the disk failed
                index = None
            self.rebuilt = index is None
            self.index = index if index is not None else self._build()
            self._in_flight = reindex.SegmentInFlight(self._file, str(path)) if self._live else None
            self._show_in_flight()
            self._reader = CaptureReader(self._file, str(path))
            next(self._reader.packets(), None)  # reads the interfaces
        except BaseException:
            self._source.close()
            raise

    def _build(self) -> Index:
        builder, reader = reindex.build(self._file, str(self.path), self._ports)
        notes = [] if builder.complete or reader.note else [INTERRUPTED]
        notes = [reader.note, *notes] if reader.note else notes
        self._note = "; ".join(f"{self.path.name}: {note}" for note in notes) or None
        return reindex.in_memory(builder)

    @property
    def note(self) -> str | None:
        """The fault of the file, or None."""
        if self._foreign is None:
            return self._note
        if self._foreign.reading:
            return None
        return "; ".join(f"{self.path.name}: {note}" for note in self._foreign.notes()) or None

    @property
    def fault(self) -> str | None:
        """The fault of the file's bytes, or None; for a foreign capture without notes on what was not captured."""
        if self._foreign is None:
            return self._note
        return "; ".join(note for note in (self._source.note, self._foreign.scanner.windows.note) if note) or None

    @property
    def stream(self) -> BinaryIO:
        """The open file, unpacked if it was compressed."""
        return self._file

    @property
    def live(self) -> bool:
        """More is to come: a recorder writes the segment, or a foreign capture is still being read."""
        return self._live or (self._foreign is not None and self._foreign.reading)

    def wait(self, seconds: float) -> None:
        """Wait until what is read in the background is read, or so long."""
        if self._foreign is not None:
            self._foreign.wait(seconds)

    @property
    def progress(self) -> ReadProgress:
        """How far the file is read."""
        return self._foreign.progress if self._foreign is not None else ReadProgress(self.size, self.size)

    @property
    def size(self) -> int:
        """Bytes of the file now."""
        if self.was_removed:
            return int(self._size_then)
        return os.fstat(self._file.fileno()).st_size

    @property
    def modified(self) -> float:
        """When the file was written to last, in seconds since the epoch."""
        if self.was_removed:
            return self._modified_then
        return os.fstat(self._file.fileno()).st_mtime

    def refresh(self) -> int:
        """Pick up what a live recording, or whoever writes a foreign capture, has added; returns the number of new
        records. Of one that is read in the background: what was read meanwhile."""
        if self._foreign is not None:
            return self._foreign.refresh()
        before = self.index.done
        self._show_in_flight()
        return self.index.done - before

    def _show_in_flight(self) -> None:
        """Bring the index of a segment that is written up to date, and add the requests in flight."""
        if self._in_flight is None:
            return
        self._in_flight.show(self.index)
        if self.index.head.flags:
            self.index.refresh()
            self._live, self._in_flight = False, None
            self.path = self.path.with_name(self.path.name.removesuffix(".part"))

    def release(self) -> bool:
        """Close a segment that retention has removed, so that its bytes leave the disk; returns whether it did. Its rows stay, and
        `exchange` gives what the index has, without frames."""
        if self.own is None or self._live or self.was_removed:
            return False
        status = os.fstat(self._file.fileno())
        if status.st_nlink:
            return False
        self._size_then, self._modified_then = status.st_size, status.st_mtime
        self.was_removed = True
        self._source.close()
        return True

    def visible(self, continued_elsewhere: bool) -> int:
        """The number of records to show: without the last ones if they continue in the next segment and that is open."""
        count = self.index.count
        if continued_elsewhere:
            count = self.index.done  # requests in flight are there, too
            while count and self.index.record(count - 1).flags & CONTINUED:
                count -= 1
        return count

    def carried_requests(self) -> set[RequestKey]:
        """Every request that came from an earlier segment."""
        return {
            RequestKey(record.connection, record.correlation_id, record.time_ns)
            for record in map(Record._make, filter(_carried, RECORD.iter_unpack(self.index.records(0, self.index.count))))
        }

    def hide(self, keys: set[RequestKey]) -> None:
        """After a rebuild: treat the pending exchanges among `keys` as going on in the next segment."""
        self.rebuilt = False
        index = self.index
        records = list(map(Record._make, RECORD.iter_unpack(index.records(0, index.count))))
        pending = STATES.index(STATES[-1])

        def goes_on(record: Record) -> bool:
            key = record.connection, record.correlation_id, record.time_ns
            return record.flags & STATE_MASK == pending and key in keys

        kept = [r for r in records if not goes_on(r)]
        moved = [r._replace(flags=r.flags | CONTINUED) for r in records if goes_on(r)]
        index.replace([*kept, *moved])
        self._names = None

    def names(self, table: "NameTable") -> "SegmentNames":
        """The names of the segment's exchanges, as far as they are known; those of all its records, after `SegmentNames.grow`."""
        from ..recording.names import SegmentNames  # with the filters, which few need

        if self._names is None:
            self._names = SegmentNames(table, self.own is None or self._live)
            if self._is_complete:
                self._names.load(self.path, self.index)
        return self._names

    @property
    def _is_complete(self) -> bool:
        """Whether it is a closed segment with its index."""
        return self.own is not None and not self.rebuilt and not self.was_removed and bool(self.index.head.flags & CLOSED)

    def exchange(self, record: Record) -> Exchange:
        """Read an exchange back. A frame that a segment does not hold any more, being damaged, is None, with a note.
        Raises ValueError when a foreign capture has changed.

        Marks: request_offset, response_offset, segment, and where they apply notes, carried, changed, broker_request
        and broker_response (the frames of the other leg, lists of bytes), broker_request_notes and
        broker_response_notes (the comments of those), broker_request_cut and broker_response_cut (bytes of them that
        were not kept). Of a segment that is gone: no frames, and a note.
        """
        index = self.index
        ends = index.connections.get(record.connection)
        exchange = Exchange(
            connection=record.connection,
            client=ends.client if ends else "",
            broker=ends.broker if ends else "",
            api_key=record.api_key,
            api_version=record.api_version,
            correlation_id=record.correlation_id,
            client_id=index.string(record.client_id),
            state=STATES[record.flags & STATE_MASK],
        )
        marks = exchange.marks
        marks.segment = self.path.name
        if self.was_removed:
            marks.notes = [REMOVED.format(name=self.path.name)]
            exchange.request_time_ns = record.time_ns if record.request_offset >= 0 else None
            if record.response_offset >= 0:
                exchange.response_time_ns = record.time_ns + max(record.latency_ns, 0)
            return exchange
        notes: list[str] = []
        if record.request_offset >= 0:
            exchange.request_time_ns = record.time_ns
            exchange.request = self._frame(record.request_offset, record.request_size, notes)
            exchange.request_cut = _cut(exchange.request, record.request_size)
            marks.request_offset = record.request_offset
            if exchange.request and not exchange.request_cut and len(exchange.client_id or "") >= MAX_STRING:  # cut in the table
                exchange.client_id = decode_request_header(exchange.request)[0].get("client_id")
        if record.response_offset >= 0:
            has_request = record.request_offset >= 0
            exchange.response_time_ns = record.time_ns + (max(record.latency_ns, 0) if has_request else 0)
            exchange.response = self._frame(record.response_offset, record.response_size, notes)
            exchange.response_cut = _cut(exchange.response, record.response_size)
            marks.response_offset = record.response_offset
        if record.flags & CHANGED:
            marks.changed = True
            for leg in self._legs(record):
                about: list[str] = []
                frame = self._frame(leg.offset, leg.size, about)
                if frame is None:
                    notes.extend(about)
                    continue
                marks.set_leg(leg.direction, BrokerLeg(frame, leg.size - len(frame), about))
        if record.flags & CARRIED:
            marks.carried = True
        if notes:
            marks.notes = notes
        return exchange

    def frames(self, records: Any) -> "PlacedFrames | None":
        """The frames of these index records, a numpy array; None if they are gone. Needs the accelerator."""
        from ..recording.bulk_frames import gathered, in_segment  # with numpy

        if self.was_removed:
            return None
        if self._foreign is not None:
            pieces = self._foreign.pieces
            return gathered(records, lambda place, size: pieces.read(self._file, place, size))
        if (self._reader.order, [each.linktype for each in self._reader.interfaces[:1]]) != ("<", [LINKTYPE_ETHERNET]):
            return None
        return in_segment(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ), records)

    def _legs(self, record: Record) -> list[LegFrame]:
        """The broker-leg frames of an exchange; a correlation id may come again, so only those around it."""
        legs = self.index.leg_frames.get((record.connection, record.correlation_id), [])
        offsets = [offset for offset in (record.request_offset, record.response_offset) if offset >= 0]
        nearest: dict[int, LegFrame] = {}
        for leg in legs:
            other = nearest.get(leg.direction)
            distance = min(abs(leg.offset - offset) for offset in offsets)
            if other is None or distance < min(abs(other.offset - offset) for offset in offsets):
                nearest[leg.direction] = leg
        return [nearest[direction] for direction in sorted(nearest)]

    def _frame(self, offset: int, size: int, notes: list[str]) -> bytes | None:
        if self._foreign is not None:
            return self._foreign_frame(offset, size, notes)
        try:
            frame, comments = reindex.payload(self._reader, offset, size)
        except ValueError as error:
            notes.append(f"cannot be read back: {error}")
            return None
        notes.extend(comment for comment in comments if not comment.startswith(MARK))
        return frame

    @property
    def ends(self) -> list[Opened | Closed] | None:
        """Of a foreign capture: see `ForeignIndex.ends`."""
        return None if self._foreign is None else self._foreign.ends

    def _foreign_frame(self, place: int, size: int, notes: list[str]) -> bytes:
        assert self._foreign is not None
        data = self._foreign.pieces.read(self._file, place, size + 4)
        if data[:4] != size.to_bytes(4, "big"):
            raise ValueError(f"{self.path}: the file has changed since it was opened; open it again")
        if len(data) < size + 4:
            notes.append(f"cut when it was captured: {len(data) - 4} of {size} bytes are there")
        return data[4:]

    def save_names(self) -> bool:
        """Write the names that filters have learned beside a closed segment; whether there is such a file now. OSError if it cannot be
        written."""
        if self._names is None or not self._is_complete or self.release():
            return False
        if self._names.learned:
            self._names.save(self.path, self.index)
        return True

    def close(self) -> None:
        if self._foreign is not None:
            self._foreign.close()
        self.index.close()
        self._source.close()
