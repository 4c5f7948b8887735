"""One capture file, opened for reading: its index, and its exchanges read back by their records."""

import fcntl
import os
from collections.abc import Collection
from pathlib import Path

from ..decoder import Exchange, decode_request_header
from . import indexing
from .index import (
    CARRIED,
    CHANGED,
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
from .pcapng import CaptureReader
from .reassembly import KAFKA_PORTS
from .recording import MARK


class CaptureFile:
    """A segment of a recording (also while it is written) or a foreign capture. Raises `NotACapture`, OSError.

    `own` tells which recording the file belongs to, None for a foreign one. `note` says what is not right with
    the file, or is None.
    """

    def __init__(self, path: Path, ports: Collection[int] = KAFKA_PORTS) -> None:
        self.path = path
        self.note: str | None = None
        self._file = open(path, "rb")  # noqa: SIM115 - kept open: a segment may be renamed while we read it
        try:
            self.own = indexing.read_identity(self._file, str(path))
            self._pieces: indexing.Pieces | None = None
            self._ports = ports
            index = open_index(path) if self.own else None
            self.live = index is not None and not index.head.flags and self._is_being_written()
            if index is not None and not index.head.flags and not self.live:
                index.close()  # left behind by a recorder that was killed, or that the disk failed
                index = None
            self.rebuilt = index is None
            self.index = index if index is not None else self._build()
            self._reader = CaptureReader(self._file, str(path))
            next(self._reader.packets(), None)  # reads the interfaces
        except BaseException:
            self._file.close()
            raise

    def _is_being_written(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True  # the recorder holds it
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def _build(self) -> Index:
        self._file.seek(0)
        builder, reader = indexing.build(self._file, str(self.path), self._ports)
        notes = [f"{self.path.name}: {reader.note}"] if reader.note else []
        if self.own and not builder.complete and not reader.note:
            notes.append(f"{self.path.name}: the recording was interrupted at the end of this segment")
        if self.own is None:
            self._pieces = builder.pieces
            foreign = builder.reassembler.foreign
            if foreign:
                ports = ", ".join(map(str, self._ports))
                notes.append(f"{self.path.name}: {foreign} TCP conversations are not Kafka (brokers' ports: {ports})")
            if builder.lost:
                notes.append(f"{self.path.name}: {builder.lost} bytes of Kafka connections are not in the capture")
        self.note = "; ".join(notes) or None
        return indexing.in_memory(builder)

    @property
    def size(self) -> int:
        """Bytes of the file now."""
        return os.fstat(self._file.fileno()).st_size

    def refresh(self) -> int:
        """Pick up what a live recording has added; returns the number of new records."""
        added = self.index.refresh() if self.live else 0
        if self.live and self.index.head.flags:
            self.live = False
            self.path = self.path.with_name(self.path.name.removesuffix(".part"))
        return added

    def visible(self, continued_elsewhere: bool) -> int:
        """How many records to show: without the last ones if those go on in the next segment and that is open."""
        count = self.index.count
        if continued_elsewhere:
            while count and self.index.record(count - 1).flags & CONTINUED:
                count -= 1
        return count

    def carried(self) -> set[tuple[int, int, int]]:
        """(connection, correlation id, time) of every request that came from an earlier segment."""
        return {
            (record.connection, record.correlation_id, record.time_ns)
            for record in map(Record._make, RECORD.iter_unpack(self.index.records(0, self.index.count)))
            if record.flags & CARRIED
        }

    def hide(self, keys: set[tuple[int, int, int]]) -> None:
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

    def exchange(self, record: Record) -> Exchange:
        """Read an exchange back. Raises ValueError when the file does not hold what the record says.

        Marks: request_offset, response_offset, segment, and where they apply notes, changed, broker_request and
        broker_response (the frames of the other leg, lists of bytes).
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
        marks["segment"] = self.path.name
        notes: list[str] = []
        if record.request_offset >= 0:
            exchange.request_time_ns = record.time_ns
            exchange.request = self._frame(record.request_offset, record.request_size, notes)
            marks["request_offset"] = record.request_offset
            if exchange.client_id is not None and len(exchange.client_id) >= MAX_STRING:  # cut in the table
                exchange.client_id = decode_request_header(exchange.request)[0].get("client_id")
        if record.response_offset >= 0:
            has_request = exchange.request is not None
            exchange.response_time_ns = record.time_ns + (max(record.latency_ns, 0) if has_request else 0)
            exchange.response = self._frame(record.response_offset, record.response_size, notes)
            marks["response_offset"] = record.response_offset
        if record.flags & CHANGED:
            marks["changed"] = True
            for leg in self._legs(record):
                name = "broker_response" if leg.direction else "broker_request"
                marks.setdefault(name, []).append(self._frame(leg.offset, leg.size, notes))
        if notes:
            marks["notes"] = notes
        return exchange

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

    def _frame(self, offset: int, size: int, notes: list[str]) -> bytes:
        if self._pieces is not None:
            data = self._pieces.read(self._file, offset)
            if len(data) != size + 4:
                raise ValueError(f"{self.path}: the file has changed since it was opened; open it again")
            return data[4:]
        frame, comments = indexing.payload(self._reader, offset, size)
        notes.extend(comment for comment in comments if not comment.startswith(MARK))
        return frame

    def close(self) -> None:
        """Close the file and its index."""
        self.index.close()
        self._file.close()
