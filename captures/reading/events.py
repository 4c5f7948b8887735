"""The connection events of a capture, in order: one pass over the packets, nothing kept.

The segments of a recording are continuous: a connection that spans several is opened once, and a request that was carried over
into the next segment is seen once. Where they are not continuous (another recording in the directory, a segment that is missing or
was not ended), connections still open end with ``Closed(how="")``.

An event is given when it is complete (a frame with its last byte), which is the order of the file. Its time is that of its first
byte, so a large frame may carry an earlier time than the event before it.
"""

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ...bounded import BoundedDict
from ...decoder import Exchange, ExchangeDone, RequestSeen, Topics
from ...decoder.connection.events import Closed, ConnectionEvent
from ...decoder.connection.exchange import BrokerLeg
from ..pcap.packet_comments import MARK
from ..pcap.pcapng import CaptureReader, NotACapture, Packet
from ..pcap.reassembly import KAFKA_PORTS
from ..pcap.sources import CaptureSource
from ..recording.segment import CONTINUED, Identity, being_written, read_identity
from .indexing.damage import DamageTolerantReader
from .indexing.frame_pieces import FramePieces
from .indexing.index_builder import cut_note, foreign_notes
from .indexing.packet_events import BrokerLegFrame, PacketFollower, Stream
from .indexing.reindex import final_flags
from .reader import INTERRUPTED, files_in

_EARLY = 1000  # broker-leg frames that wait for their request, at most


class _File:
    """The file that is being read."""

    def __init__(self, path: Path, source: CaptureSource, own: Identity | None, follower: PacketFollower) -> None:
        self.path, self.source, self.own, self.follower = path, source, own, follower
        self.file = source.file
        is_closed = own is not None and path.suffix != ".part"
        self.reader = (DamageTolerantReader if is_closed else CaptureReader)(source.file, str(path))
        self._resume = 0

    def read(self) -> Iterator[ConnectionEvent | BrokerLegFrame]:
        """Events since the last call; a segment that is still written may have more later."""
        if self._resume and isinstance(self.reader, DamageTolerantReader):
            return  # it does not grow, and what is wrong with it is known
        self.reader.note = None
        reader, follower = self.reader, self.follower
        if isinstance(reader, DamageTolerantReader):
            for each in reader.frames():
                self._resume = reader.end
                if isinstance(each, Packet):
                    yield from follower.packet(each)
                    continue
                events = follower.whole_frame(each, reader.data)
                yield from follower.packet(reader.packet(each)) if events is None else events
        else:
            for packet in reader.packets(self._resume):
                self._resume = reader.end
                yield from follower.packet(packet)
        self._resume = self.reader.end

    @property
    def ended(self) -> int | None:
        """The flags of the sync block at the end of a segment; None when there is none (yet)."""
        return final_flags(self.reader) if self.own else None

    def notes(self, ports: Collection[int]) -> list[str]:
        """Faults of the file, as far as it was read."""
        notes = [note for note in (self.source.note, self.reader.note) if note]
        if self.own is None:
            notes += [cut_note(self.follower.cut_packets)] if self.follower.cut_packets else []
            notes += foreign_notes(self.follower.reassembler, self.follower.lost, self.follower.unread, ports)
        elif not notes and self.ended is None and not being_written(self.file):
            notes.append(INTERRUPTED)
        return [f"{self.path.name}: {note}" for note in notes]


class CarriedEvents(NamedTuple):
    """What the events of a recording's next segment depend on: what the last one was and how it ended, open connections, names
    of topic ids, and broker-leg frames whose requests are yet to come."""

    last: tuple[Identity | None, int | None]
    now_ns: int
    streams: dict[int, Stream]
    topics: Topics
    early: dict[tuple[int, int], list[BrokerLegFrame]]


class EventReader:
    """Reads a segment, a directory of segments, or a foreign capture. `read` gives new events; for a
    live recording it may be called again and again. `end` gives those that only the end of a capture reveals.

    `bytes_read` and `bytes_known` show progress; `lost` counts the bytes missing in the streams.
    A file of a directory that cannot be read is left out, with a line in `note`. Raises `NotACapture`, or OSError, when
    there is nothing to read.
    """

    def __init__(self, path: Path, ports: Collection[int] = KAFKA_PORTS, *, carried: CarriedEvents | None = None) -> None:
        """`carried`: from the reader of the segments before this one, if they were read one by one."""
        self.path = path
        self.lost = 0
        self._ports = ports
        self._done_bytes = 0
        self._notes: list[str] = []
        self._found: dict[str, tuple[int, Path, Identity | None]] = {}
        self._ranks: dict[str, int] = {}
        self._file: _File | None = None
        self._last: tuple[Identity | None, int | None] = None, None  # of the file before: what it was, how it ended
        self._now_ns = 0
        self._end = 0, 0  # how far `half_closed` has seen the file grow, and when
        self._streams: dict[int, Stream] = {}
        self._topics = Topics()
        self._early: dict[tuple[int, int], list[BrokerLegFrame]] = BoundedDict(_EARLY)
        self._unread: list[str] = []
        if carried is not None:
            self._last, self._now_ns, self._streams, self._topics, self._early = carried
        self._find()
        if not self._unread:
            raise NotACapture(self.note or f"{path}: not a capture: it contains no .pcapng or .pcap file")

    # files

    def _find(self) -> None:
        """Look for files; those of one recording follow each other."""
        directory = self.path.is_dir()
        if directory:
            files = files_in(self.path)
        else:
            part = self.path.with_name(self.path.name + ".part")
            name = self.path.name.removesuffix(".part")
            files = {name: part if part.exists() and not self.path.exists() else self.path}
        for name in sorted(set(files) - set(self._found)):
            path = files[name]
            try:
                path, source = _open(path)
                try:
                    own = read_identity(source.file, str(path))
                finally:
                    source.close()
            except NotACapture as error:
                if not directory:
                    raise
                if path.exists() and (path.stat().st_size or not path.is_file()):  # else it is only just being made
                    self._notes.append(str(error))
                    self._found[name] = 0, path, None
                continue
            except OSError as error:
                if not directory:
                    raise
                self._notes.append(_unreadable(path, error))
                self._found[name] = 0, path, None
                continue
            rank = self._ranks.setdefault(own.recording if own else name, len(self._ranks))
            self._found[name] = rank, path, own
            self._unread.append(name)
        self._unread.sort(key=self._place)

    def _place(self, name: str) -> tuple[int, int, str]:
        rank, _, own = self._found[name]
        return rank, own.number if own else 0, name

    def _begin(self, name: str) -> Iterator[ConnectionEvent]:
        _, path, own = self._found[name]
        try:
            path, source = _open(path)
            source.fill_all()
        except OSError as error:
            self._notes.append(_unreadable(path, error))
            return
        before, flags = self._last
        goes_on = own and before and flags and flags & CONTINUED and before == own._replace(number=own.number - 1)
        if not goes_on:
            yield from self._break_off()
        follower = PacketFollower(own is not None, path.name, self._ports, FramePieces(keep=False), self._streams, self._topics, True)
        self._file = _File(path, source, own, follower)

    def _break_off(self) -> Iterator[ConnectionEvent]:
        """End all connections: the next file does not continue the one before."""
        for number in list(self._streams):
            yield Closed(number, self._now_ns)
        self._streams.clear()
        self._early.clear()

    def _leave(self) -> Iterator[ConnectionEvent]:
        """Finish the current file: nothing more will come."""
        file = self._file
        if file is None:
            return
        for event in file.follower.finish():
            yield from self._complete(event)
        self._now_ns = max(self._now_ns, file.follower.now_ns)
        self._notes += file.notes(self._ports)
        self.lost += file.follower.lost
        self._done_bytes += file.reader.end
        self._last = file.own, file.ended
        file.source.close()
        self._file = None

    # events

    def read(self) -> Iterator[ConnectionEvent]:
        """The events since the last call."""
        while True:
            file = self._file
            if file is None:
                if not self._unread:
                    self._find()
                if not self._unread:
                    return
                yield from self._begin(self._unread.pop(0))
                continue
            # In this order, because the next file is made before the one before it is finished.
            written = self.live
            if not self._unread:
                self._find()
            more = bool(self._unread)
            for event in file.read():
                if self._early or isinstance(event, BrokerLegFrame):
                    yield from self._complete(event)
                else:
                    yield event
            if file.ended is None and (written or not more):
                return
            yield from self._leave()

    @property
    def half_open(self) -> bool:
        """Whether `half_closed` has connections to come, now or in a moment."""
        return self._file is not None and bool(self._file.follower.reassembler.half_open)

    def half_closed(self) -> Iterator[ConnectionEvent]:
        """Connections that one side has ended and the other has not, as closed: for a capture that still grows, after `read`."""
        file = self._file
        if file is None:
            return
        if file.reader.end != self._end[0]:
            self._end = file.reader.end, time.monotonic_ns()
        # A capture of packets has no other clock than its packets, until they stop coming.
        now_ns = time.time_ns() if self.live else file.follower.now_ns + time.monotonic_ns() - self._end[1]
        for event in file.follower.half_closed(now_ns):
            yield from self._complete(event)

    def end(self) -> Iterator[ConnectionEvent]:
        """The last events, and close the files."""
        yield from self._leave()

    def _complete(self, event: ConnectionEvent | BrokerLegFrame) -> Iterator[ConnectionEvent]:
        if isinstance(event, ExchangeDone | RequestSeen):
            if self._early:
                self._attach_early(event.exchange)
        elif isinstance(event, BrokerLegFrame):
            self._leg(event)
            return
        elif isinstance(event, Closed) and self._early:
            for key in [key for key in self._early if key[0] == event.connection]:
                del self._early[key]
        yield event

    def _leg(self, leg: BrokerLegFrame) -> None:
        """Give a frame of the broker leg to its exchange."""
        stream = self._streams.get(leg.frame.connection)
        for exchange in stream.decoder.pending() if stream else ():
            if exchange.correlation_id == leg.frame.correlation_id and exchange.marks.leg(leg.frame.direction) is None:
                self._attach(exchange, leg)
                return
        self._early.setdefault((leg.frame.connection, leg.frame.correlation_id), []).append(leg)

    def _attach_early(self, exchange: Exchange) -> None:
        for leg in self._early.pop((exchange.connection, exchange.correlation_id), ()):
            self._attach(exchange, leg)

    def _attach(self, exchange: Exchange, leg: BrokerLegFrame) -> None:
        exchange.marks.changed = True
        notes = [comment for comment in leg.comments if not comment.startswith(MARK)]
        exchange.marks.set_leg(leg.frame.direction, BrokerLeg(leg.data, leg.frame.size - len(leg.data), notes))

    def carry(self) -> CarriedEvents:
        """What the next segment needs, after all events of this one."""
        return CarriedEvents(self._last, self._now_ns, self._streams, self._topics, self._early)

    # progress

    @property
    def live(self) -> bool:
        """Whether the current file is still being recorded."""
        file = self._file
        return file is not None and file.own is not None and file.ended is None and being_written(file.file)

    @property
    def bytes_read(self) -> int:
        """Bytes of files that were read."""
        return self._done_bytes + (self._file.reader.end if self._file else 0)

    @property
    def bytes_known(self) -> int:
        """Bytes of all files as far as they are known."""
        total = self._done_bytes + (os.fstat(self._file.file.fileno()).st_size if self._file else 0)
        for name in self._unread:
            try:
                total += self._found[name][1].stat().st_size
            except OSError:  # renamed meanwhile, or gone
                pass
        return total

    @property
    def note(self) -> str | None:
        """Faults of the files that were read, or None."""
        return "; ".join(self._notes) or None


def _unreadable(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path.name}: was removed before it was read"
    return f"{path}: {error.strerror or error}"


def _open(path: Path) -> tuple[Path, CaptureSource]:
    """Open a file; a segment may have been completed, and renamed, since it was found."""
    try:
        return path, CaptureSource(path)
    except FileNotFoundError:
        path = path.with_name(path.name.removesuffix(".part"))
        return path, CaptureSource(path)
