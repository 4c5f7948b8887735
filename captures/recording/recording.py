"""A recording: the segments of one run in a directory, their rotation, and disk failures.

Nothing here raises once the recording has begun. When the disk fails (full, gone, read-only) the recording pauses: frames are
counted instead of written, and once a second a new segment is tried, which begins with the requests still in flight.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ...decoder import Exchange
from ...diagnostics import contained
from ..pcap.packet_comments import ENDED_COMMENT, IMPORTED_COMMENT, MARK, UPSTREAM_COMMENT, tls_comments
from ..pcap.packets import show_address
from .in_flight import CarriedRequest, OpenConnection, RequestInFlight
from .index import CONTINUED, IndexEncoder, IndexFiles, LegFrame, paths
from .page_cache_hints import PageCacheHints
from .segment import BROKER_LEG, CLIENT_LEG, SYNC_EVERY, SegmentWriter, pack_in_flight

SEGMENT_BYTES = 64 << 20
SEGMENT_SECONDS = 3600.0
FLUSH_SECONDS = 1.0
_FLUSH_BYTES = 3 * SYNC_EVERY // 4  # less than between sync blocks: who stops for these can flush as well
_CARRIED_PART = 8  # a segment grows to this multiple of what was carried over into it
_RETRY_SECONDS = 1.0

EventHandler = Callable[[str, str], None]


class Recording:
    """Writes segments and their indexes. `in_flight` gives the requests that wait; `on_event(kind, text)` hears
    "paused", "resumed" and "segment" (one was closed). The constructor raises OSError if it cannot begin."""

    def __init__(
        self,
        directory: Path,
        in_flight: Callable[[], Iterable[CarriedRequest]],
        on_event: EventHandler,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_seconds: float = SEGMENT_SECONDS,
        flush_seconds: float = FLUSH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        waiting: Callable[[], bytes] | None = None,
        unanswered: Callable[[], Iterable[RequestInFlight]] | None = None,
    ) -> None:
        """`unanswered` may give in a cheaper way what `in_flight` does, and `waiting` the same for a sync block: only what
        is in this segment, packed."""
        self.directory = directory
        self.identity = os.urandom(16).hex()
        self.unrecorded = 0  # frames that were not written
        self.bytes = 0  # bytes of closed segments
        self.segments = 0
        self.failure: OSError | None = None
        """What stopped the writing last."""
        self.index = IndexEncoder()
        self._in_flight, self._on_event = in_flight, on_event
        self._unanswered: Callable[[], Iterable[RequestInFlight]] = unanswered or in_flight
        self._waiting = waiting or self._packed
        self._limits = segment_bytes, segment_seconds
        self._flush_seconds, self._clock = flush_seconds, clock
        self._segment: SegmentWriter | None = None
        self._files: IndexFiles | None = None
        self._page_cache = PageCacheHints()
        self._stamp = ""
        self._most = segment_bytes  # of this segment
        self._lost_at_pause = 0
        self._begun = self._flushed = self._retry = clock()
        self._closed = False
        self._start()

    @property
    def path(self) -> Path | None:
        """The segment being written, by the name it will have; None while paused."""
        return self._segment.path if self._segment else None

    # segments

    def _start(self) -> None:
        """Open the next segment and write its head. The directory is made, also if somebody removed it. Raises OSError and leaves
        no file behind then."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self._stamp = max(stamp, self._stamp)  # a clock that steps back must not change the order of names
        number = self.segments
        while True:
            path = self.directory / f"{self._stamp}-{number % 10000:04d}.pcapng"
            if path.exists():
                number += 1
                continue
            try:
                segment = SegmentWriter(path, self.identity, self.segments)
                break
            except FileExistsError:
                number += 1
        previous, self._segment = self._segment, segment
        index, self.index = self.index, IndexEncoder()
        files = None
        try:
            head = segment.size
            # The index before the first byte of the segment: who sees a segment, finds its index.
            files = IndexFiles(path, self.identity, self.segments)
            for asked in self._unanswered():
                self._carry(asked)
                if segment.unflushed >= _FLUSH_BYTES:
                    files.write(self.index)
                    segment.flush()
            # Or large requests in flight would be most of every segment.
            most = max(self._limits[0], _CARRIED_PART * (segment.size - head))
            files.write(self.index)
            segment.flush()
        except OSError:
            self._segment, self.index = previous, index
            segment.abandon()
            if files:
                files.close()
            for left in (path, *paths(path)):
                left.unlink(missing_ok=True)
            raise
        self._files, self._most = files, most
        self.segments += 1
        self._begun = self._flushed = self._clock()

    def _carry(self, asked: RequestInFlight) -> None:
        data, comments = asked.data, asked.comments
        asked.moved(self._put(asked.connection, CLIENT_LEG, 0, asked.time_ns, data, comments, cut=asked.cut))

    def _rotate(self) -> None:
        segment, files, index = self._segment, self._files, self.index
        if segment is None or files is None:
            return
        self.flush()  # or a kill in the middle of this leaves a hole between the segments
        if self._segment is not segment:
            return  # paused
        for asked in self._written_requests():
            asked.pend(index, CONTINUED)
        waiting = self._waiting()
        # The new segment first: a reader that finds the old one ended will find its continuation.
        self._start()
        try:
            self._end(segment, files, index, waiting, continued=True)
        except OSError as error:
            # The new segment is sound; only the old one's tail is lost, and readers rebuild its index.
            self._give_up(segment, files)
            self.notify("error", f"{segment.path}: the end of this segment was not written: {error.strerror or error}")

    def _end(
        self, segment: SegmentWriter, files: IndexFiles, index: IndexEncoder, waiting: bytes, continued: bool
    ) -> None:
        segment.seal(waiting, continued)
        files.write(index)
        files.finish(segment.size)
        segment.release()
        self.bytes += segment.size
        self.notify("segment", str(segment.path))

    def _give_up(self, segment: SegmentWriter, files: IndexFiles | None) -> None:
        try:
            segment.flush()  # what failed may have been another file
        except OSError:
            pass
        try:
            self.unrecorded += segment.abandon()
        except OSError:
            pass  # the file keeps its .part name; readers open it all the same
        self.bytes += segment.size
        if files:
            try:
                files.close()
            except OSError:
                pass

    def _written_requests(self) -> list[RequestInFlight]:
        """The requests in flight that are in this segment, in its order."""
        return sorted((asked for asked in self._unanswered() if asked.offset >= 0), key=lambda asked: asked.offset)

    def _packed(self) -> bytes:
        return pack_in_flight(asked.entry() for asked in self._written_requests())

    @property
    def stop(self) -> int:
        """The size of the segment from which on `ready` and `sync` have something to do before the next frame."""
        synced = self._segment.synced if self._segment else 0
        return min(self._most, synced + SYNC_EVERY)

    def ready(self) -> SegmentWriter | None:
        """The segment to write to, rotated if it is time, or None while paused."""
        try:
            if self._segment is None:
                if self._closed or self._clock() < self._retry:
                    return None
                self._start()
                missing, self._lost_at_pause = self.unrecorded - self._lost_at_pause, self.unrecorded
                self.notify("resumed", f"recording continues in {self.path}; {missing} frame{'s' * (missing != 1)} not recorded")
            elif self._segment.size >= self._most or self._clock() - self._begun >= self._limits[1]:
                self._rotate()
        except OSError as error:
            self._pause(error)
        return self._segment

    def _pause(self, error: OSError) -> None:
        self.failure = error
        self._retry = self._clock() + _RETRY_SECONDS
        segment, files = self._segment, self._files
        self._segment = self._files = None
        self.index = IndexEncoder()
        if segment is None:
            return  # paused already
        self._lost_at_pause = self.unrecorded
        self._give_up(segment, files)
        for carried in self._in_flight():
            carried.exchange.marks.request_offset = -1
        self.notify(
            "paused",
            f"cannot write to {self.directory}: {error.strerror or error}. Traffic continues unrecorded. "
            "Free some space (or fix the directory): recording then resumes automatically",
        )

    def notify(self, kind: str, text: str) -> None:
        """Call `on_event`, whatever it raises."""
        try:
            self._on_event(kind, text)
        except Exception as error:  # a listener must not stop the recording
            contained("a listener of the recording", error)

    # writing

    def open(self, connection: OpenConnection) -> None:
        """Write the handshake of a new connection."""
        segment = self.ready()
        if segment:
            self._introduce(segment, connection, CLIENT_LEG)

    def write(
        self,
        connection: OpenConnection,
        leg: int,
        direction: int,
        time_ns: int,
        data: bytes,
        comments: tuple[str, ...] = (),
        lost: int = 0,
        cut: int = 0,
        unread: int = 0,
    ) -> int:
        """Write a frame with its size; `lost` bytes are missing in front of it, `unread` more were captured and not read,
        `cut` are missing at its end. Without data: what is missing at the end of a direction. Returns its offset, -1 if
        paused."""
        segment = self.ready()
        if segment is None:
            self.unrecorded += bool(data)
            return -1
        if unread:
            comments = (f"{MARK}{unread} bytes before this packet not read", *comments)
        if lost:
            comments = (f"{MARK}{lost} bytes lost before this packet", *comments)
        self.sync(segment)
        return self._put(connection, leg, direction, time_ns, data, comments, lost, cut, unread)

    def sync(self, segment: SegmentWriter) -> None:
        """Write a sync block if it is time."""
        if segment.sync_due:
            segment.sync(self._waiting())

    def known(self, segment: SegmentWriter, connection: OpenConnection) -> None:
        """Write the handshake of the client leg, if the segment does not have it."""
        if not segment.knows(connection.number):
            self._introduce(segment, connection, CLIENT_LEG)

    def _put(
        self,
        connection: OpenConnection,
        leg: int,
        direction: int,
        time_ns: int,
        data: bytes,
        comments: tuple[str, ...],
        lost: int = 0,
        cut: int = 0,
        unread: int = 0,
    ) -> int:
        segment = self._segment
        if segment is None:
            return -1
        if not segment.knows(connection.number, leg):
            self._introduce(segment, connection, leg)
        if lost or unread:
            segment.gap(connection.number, leg, direction, lost + unread)
        if lost:
            self.index.lost(connection.number, direction, lost)
        return segment.write(connection.number, leg, direction, time_ns, data, comments, cut)

    def _introduce(self, segment: SegmentWriter, connection: OpenConnection, leg: int) -> None:
        number, opened_ns, client, broker, upstream, failed, tls, imported = connection
        if leg == BROKER_LEG:
            segment.begin(number, leg, opened_ns, upstream, broker, f"{MARK}connection {number}, broker leg")
            return
        ends = show_address(client), show_address(broker)
        comment = f"{MARK}connection {number}, client {ends[0]}, broker {ends[1]}"
        comments = (comment, *tls_comments(tls), *((UPSTREAM_COMMENT + failed,) if failed else ()))
        if imported:
            comments = (*comments, IMPORTED_COMMENT)
        segment.begin(number, leg, opened_ns, client, broker, *comments)
        self.index.connection(number, opened_ns, *ends)

    def broker_leg(
        self, connection: OpenConnection, time_ns: int, data: bytes, frame: LegFrame, note: str, cut: int = 0
    ) -> None:
        """Write a frame of the broker leg (with its size) and note its place in the index."""
        comments = (note,) if note else ()
        offset = self.write(connection, BROKER_LEG, frame.direction, time_ns, data, comments, cut=cut)
        if offset >= 0:
            self.index.leg_frame(frame._replace(offset=offset))

    def done(self, exchange: Exchange) -> int:
        """Put an exchange into the index; returns its flags. One that is in no segment is left out."""
        marks = exchange.marks
        if max(marks.request_offset, marks.response_offset) < 0:
            return IndexEncoder().exchange(exchange)
        return self.index.exchange(exchange)

    def end_side(self, connection: OpenConnection, side: int, time_ns: int) -> None:
        """Write the FIN of the client (side 0) or the broker (1); the other side stays open."""
        segment = self.ready()
        if segment:
            self.known(segment, connection)
            segment.end_side(connection.number, side, time_ns, ENDED_COMMENT + ("client", "broker")[side])

    def end(self, connection: OpenConnection, time_ns: int, how: str, by: str, broker_ended: bool = False) -> None:
        """Write the end of a connection; `by`: who ended it (`Closed`), "" when that is not known. `how` is ""
        where the end was not captured: then none is written. `broker_ended`: the broker's FIN was written, perhaps into an
        earlier segment, where the connection ends for readers."""
        segment = self.ready()
        if segment and (segment.knows(connection.number) or not broker_ended):
            self.known(segment, connection)
            comment = ENDED_COMMENT + by if by else ""
            segment.end(connection.number, time_ns, how, 1 if by == "broker" else 0, comment)

    def tick(self) -> None:
        """Flush if the flush period is over or much has gathered; try again if paused."""
        segment = self.ready()
        if segment and (segment.unflushed >= _FLUSH_BYTES or self._clock() - self._flushed >= self._flush_seconds):
            self.flush()

    def unflushed_frames(self, count: int) -> None:
        """Count frames that the accelerator put into the segment's buffer."""
        if self._segment is not None:
            self._segment.frames += count

    def rotate(self) -> None:
        """End the segment now and continue in the next one."""
        try:
            self._rotate()
        except OSError as error:
            self._pause(error)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._segment is None or self._files is None:
            return
        try:
            self._segment.flush()
            self._files.write(self.index)
            self._page_cache.wrote(self._segment.path, self._segment.flushed)
        except OSError as error:
            self._pause(error)
        self._flushed = self._clock()

    def close(self) -> None:
        """End the recording: what still waits goes into the index as pending."""
        self._closed = True
        segment, files = self._segment, self._files
        if segment is None or files is None:
            return
        for asked in self._written_requests():
            asked.pend(self.index)
        try:
            self._end(segment, files, self.index, self._waiting(), continued=False)
        except OSError as error:
            self._pause(error)
        self._segment = self._files = None
