"""Captures opened for reading: a segment, a directory of segments, or a foreign pcap or pcapng.

`open_capture` gives a `Capture`: `rows()` is the list (from the index, nothing is decoded), `exchange(row)` reads one
exchange back, `exchanges()` iterates all of them in the order of their requests, `refresh()` follows a live recording.
"""

import heapq
import time
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, overload

from ...decoder import Exchange, State, Topics
from ...decoder.connection.events import ConnectionEvent
from ...decoder.schema import facts
from ..pcap.pcapng import NotACapture
from ..pcap.reassembly import KAFKA_PORTS
from ..pcap.sources import ReadProgress
from ..recording.flight_recorder import flight_summary
from ..recording.index import (
    CARRIED,
    CHANGED,
    CUT,
    LARGEST_SIZE,
    NOTED,
    RECORD,
    STATE_MASK,
    STATES,
    SURPLUS,
    UNDECODED,
    Index,
    Loss,
    Record,
)
from ..recording.segment import check
from .events import EventReader
from .reader import CaptureFile, files_in

if TYPE_CHECKING:
    from ..recording.names import NameTable

_BATCH = 4096
_GROWING_SECONDS = 60


class Row(NamedTuple):
    """An exchange as stored in the index: one line of the list of exchanges. Absent values are None.

    - `number`: `rows()[row.number]` is the row again; `segment`: its file in `Capture.segments`
    - `time_ns`: of the request (an orphan: of the response), since the epoch; `latency_ns`: until the response
    - `client`, `broker`: ``host:port``
    - `request_size`, `response_size`: as in the 4 size bytes; `request_offset`, `response_offset`: places in the file
    - `error`: the first error code of the response that is not 0
    - `undecoded`: a frame could not be decoded; `surplus`: bytes follow a message's end
    - `changed`: the two legs differ; `noted`: it has notes, for example from a rule
    - `carried`: the request was in flight when its segment began
    - `cut`: only the beginning of a frame was kept (an error code after it is not known)
    - `waiting_ns`: of a request in flight: how long it had waited at the last `Capture.refresh` of a live recording, or at the end of a foreign capture
    """

    number: int
    time_ns: int
    latency_ns: int | None
    connection: int
    client: str
    broker: str
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    request_size: int | None
    response_size: int | None
    error: int
    state: State
    undecoded: bool
    changed: bool
    noted: bool
    surplus: bool
    carried: bool
    segment: int
    request_offset: int | None
    response_offset: int | None
    cut: bool = False
    waiting_ns: int | None = None

    @property
    def api(self) -> str:
        """The API's name; empty for an orphan."""
        return facts.api_name(self.api_key) if self.state is not State.ORPHAN else ""


def row_of(number: int, segment: int, index: Index, record: Record, waits: bool) -> Row:
    """A record as a row. `waits`: its request is in flight."""
    ends = index.connections.get(record.connection)
    flags = record.flags
    return Row(
        number,
        record.time_ns,
        record.latency_ns if record.latency_ns >= 0 else None,
        record.connection,
        ends.client if ends else "",
        ends.broker if ends else "",
        record.api_key,
        record.api_version,
        record.correlation_id,
        index.string(record.client_id),
        min(record.request_size, LARGEST_SIZE) if record.request_offset >= 0 else None,
        min(record.response_size, LARGEST_SIZE) if record.response_offset >= 0 else None,
        record.error,
        STATES[flags & STATE_MASK],
        bool(flags & UNDECODED),
        bool(flags & CHANGED),
        bool(flags & NOTED),
        bool(flags & SURPLUS),
        bool(flags & CARRIED),
        segment,
        record.request_offset if record.request_offset >= 0 else None,
        record.response_offset if record.response_offset >= 0 else None,
        bool(flags & CUT),
        max(index.now_ns - record.time_ns, 0) if waits else None,
    )


class Rows(Sequence[Row]):
    """The exchanges of a capture as a sequence of `Row`, in the order in which they were done. Rows are made from the index
    on access. The view grows with `Capture.refresh`; the first `done` rows keep their numbers, the others are requests in flight of a
    live recording."""

    def __init__(self, capture: "Capture") -> None:
        self._capture = capture

    def __len__(self) -> int:
        starts = self._capture.starts
        return starts[-1]

    @property
    def done(self) -> int:
        """The number of rows without those of requests in flight, which are others after every `Capture.refresh`."""
        return self._capture.done

    @overload
    def __getitem__(self, number: int) -> Row: ...
    @overload
    def __getitem__(self, number: slice) -> list[Row]: ...
    def __getitem__(self, number: int | slice) -> Row | list[Row]:
        if isinstance(number, slice):
            start, stop, step = number.indices(len(self))
            if step == 1:
                return list(self._between(start, stop))
            return [self[i] for i in range(start, stop, step)]
        position = number + len(self) if number < 0 else number
        if not 0 <= position < len(self):
            raise IndexError(f"row {number} of {len(self)}")
        segment, within = self._capture.locate(position)
        index = self._capture.segments[segment].index
        return row_of(position, segment, index, index.record(within), within >= index.done)

    def __iter__(self) -> Iterator[Row]:
        return self._between(0, len(self))

    def again(self, row: Row, since: int) -> Row | None:
        """The row of an exchange that was in flight, after `Capture.refresh`; `since`: what `done` was when it had this row."""
        same = row.connection, row.correlation_id, row.time_ns
        found = (each for each in self._between(since, len(self)) if (each.connection, each.correlation_id, each.time_ns) == same)
        return next(found, None)

    def _between(self, start: int, stop: int) -> Iterator[Row]:
        starts = self._capture.starts
        number = start
        while number < stop:
            segment, within = self._capture.locate(number)
            index = self._capture.segments[segment].index
            size = min(stop, starts[segment + 1]) - number
            batch = index.records(within, within + min(size, _BATCH))
            for record in RECORD.iter_unpack(batch):
                yield row_of(number, segment, index, Record(*record), number - starts[segment] >= index.done)
                number += 1


class Capture:
    """One or more capture files as one list of exchanges; a context manager. Opened by `open_capture`.

    `segments` are the files (`CaptureFile`) in the order of their names, `path` is what was opened.
    """

    has_frames: ClassVar[bool] = True
    """Whether exchanges can be read back; a list of summaries has none."""

    def __init__(self, path: Path, ports: Collection[int] = KAFKA_PORTS, *, background: bool = False) -> None:
        self.path = path
        self._background = background
        self.segments: list[CaptureFile] = []
        self.starts: list[int] = [0]
        self._ports = ports
        self._seen: set[str] = set()
        self._notes: list[str] = []
        if path.is_dir():
            self._find()
            if not self.segments:
                reason = "; ".join(self._notes) or "it contains no .pcapng or .pcap file"
                raise NotACapture(f"{path}: not a capture: {reason}")
        else:
            part = path.with_name(path.name + ".part")
            self._add(part if part.exists() and not path.exists() else path)
        self._count()

    def _add(self, path: Path) -> None:
        self.segments.append(CaptureFile(path, self._ports, background=self._background))

    def _find(self) -> bool:
        """Open the files of the directory that are new since the last look."""
        found = files_in(self.path)
        new = sorted(set(found) - self._seen)
        for name in new:
            path = found[name]
            try:
                self._add(path)
                self._seen.add(name)
            except NotACapture as error:
                if path.exists() and (path.stat().st_size or not path.is_file()):  # else it is only just being made
                    self._seen.add(name)
                    self._notes.append(str(error))
            except FileNotFoundError:  # removed since the directory was read: retention takes the oldest away
                continue
            except OSError as error:  # next time, perhaps
                self._notes.append(f"{path}: {error.strerror or error}")
        return bool(new)

    def _count(self) -> None:
        # Names sort by time, but two recordings may share a directory, and a second.
        known = {segment.own: segment for segment in self.segments if segment.own}
        starts = [0]
        for segment in self.segments:
            own = segment.own
            successor = known.get(own._replace(number=own.number + 1)) if own else None
            if successor and segment.rebuilt:
                segment.hide(successor.carried_requests())
            starts.append(starts[-1] + segment.visible(successor is not None))
        self.starts = starts

    def locate(self, number: int) -> tuple[int, int]:
        """The segment of row `number`, and the row's place in that segment's index."""
        segment = bisect_right(self.starts, number) - 1
        return segment, number - self.starts[segment]

    def rows(self) -> Rows:
        """The list of exchanges; see `Rows`."""
        return Rows(self)

    def exchange(self, row: Row | int) -> Exchange:
        """Read the exchange of a row (or of its number) back from the file."""
        number = row if isinstance(row, int) else row.number
        if not 0 <= number < self.starts[-1]:
            raise IndexError(f"row {number} of {self.starts[-1]}")
        segment, within = self.locate(number)
        file = self.segments[segment]
        return file.exchange(file.index.record(within))

    @cached_property
    def name_table(self) -> "NameTable":
        """What filters remember of the capture (`reading.selection`)."""
        from ..recording.names import NameTable  # with the filters, which few need

        return NameTable()

    def save_names(self) -> int:
        """Write what filters remember beside closed segments, for later commands: beside how many it is. OSError if it cannot be written."""
        return sum(segment.save_names() for segment in self.segments)

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of their requests (an orphan: of its response)."""
        return (exchange for _, exchange in self.numbered_exchanges())

    def numbered_exchanges(self) -> Iterator[tuple[int, Exchange]]:
        """`exchanges`, each with the number of its row."""
        # A request that was carried over from an earlier segment belongs where it was asked, not where it was
        # answered; there are few of those.
        carried = sorted(entry for i in range(len(self.segments)) for entry in self._entries(i, True))
        rest = (entry for i in range(len(self.segments)) for entry in sorted(self._entries(i, False)))
        topics = Topics()
        for _, number in heapq.merge(rest, carried):
            exchange = self.exchange(number)
            exchange.topics = topics
            topics.learn(exchange)
            yield number, exchange

    def _entries(self, segment: int, carried: bool) -> Iterator[tuple[int, int]]:
        """(time, row number) of a segment's exchanges, of the carried ones or of the others."""
        start, stop = self.starts[segment : segment + 2]
        flags = Record._fields.index("flags")
        records = RECORD.iter_unpack(self.segments[segment].index.records(0, stop - start))
        for number, record in zip(count(start), records, strict=False):
            if bool(record[flags] & CARRIED) == carried:
                yield record[0], number

    def events(self) -> Iterator[ConnectionEvent]:
        """All events of the capture (`decoder.connection.events`) in order, in one pass over its packets; of a live recording,
        those so far. An exchange has the marks that `exchange` returns, as far as they are known by then."""
        reader = EventReader(self.path, self._ports)
        yield from reader.read()
        yield from reader.end()

    def refresh(self) -> int:
        """Read what was added to a live recording or a growing foreign capture; returns the number of new rows, without
        requests in flight. Rows keep their numbers, so only the last of several foreign files in a directory may grow. Rows of segments that were removed
        meanwhile stay, without their frames (see `removed`)."""
        before = self.done
        directory = self.path.is_dir()
        for segment in self.segments:
            segment.release()
        # In this order, because rows keep their numbers and none is shown twice: a segment that has a successor
        # is complete when it is read after that one was found, and one whose exchanges go on elsewhere
        # has a successor by then.
        if directory:
            self._find()
        live = [segment for segment in self.segments if segment.live or segment.own is None]
        for segment in live:
            segment.refresh()
        if directory and any(s.own and (not s.live or s.visible(True) < s.index.count) for s in live):
            self._find()
        if live or directory:
            self._count()
        return self.done - before

    @property
    def done(self) -> int:
        """See `Rows.done`."""
        index = self.segments[-1].index
        return self.starts[-1] - (index.count - index.done)

    @property
    def live(self) -> bool:
        """Whether the recording is still running, or a foreign capture is still being read."""
        return any(segment.live for segment in self.segments)

    @property
    def removed(self) -> int:
        """How many segments were removed while the capture was open: their rows stay, their frames are gone."""
        return sum(segment.was_removed for segment in self.segments)

    @property
    def growing(self) -> bool:
        """Whether a foreign capture was written to recently: `refresh` picks up what is added."""
        now = time.time()
        return any(file.own is None and now - file.modified < _GROWING_SECONDS for file in self.segments)

    def wait(self, seconds: float) -> None:
        """Wait until background reading is done, at most this many seconds."""
        for segment in self.segments:
            segment.wait(seconds)

    @property
    def progress(self) -> ReadProgress:
        """How far the capture has been read in the background."""
        parts = [segment.progress for segment in self.segments]
        return ReadProgress(sum(part.read for part in parts), sum(part.total for part in parts))

    @property
    def note(self) -> str | None:
        """What is wrong with the files (a torn tail, conversations that are not Kafka), or None."""
        return "; ".join([*self._notes, *(s.note for s in self.segments if s.note)]) or None

    @property
    def about(self) -> str | None:
        """Why this was recorded, in one line, if a flight recorder wrote it (see `flight_recorder`)."""
        return flight_summary(self.path if self.path.is_dir() else self.path.parent)

    @property
    def lost(self) -> list[Loss]:
        """Where bytes are missing: (connection, direction, size)."""
        return [entry for segment in self.segments for entry in segment.index.lost]

    def verify(self) -> list[str]:
        """Check the checksums of the recording's segments: one line per damaged span, empty if there is no damage."""
        return [line for s in self.segments if s.own and not s.was_removed for line in check(s.path)]

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments:
            segment.close()

    def __enter__(self) -> "Capture":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_capture(path: str | Path, ports: Collection[int] = KAFKA_PORTS, *, background: bool = False) -> Capture:
    """Open a segment, a directory of segments, or a foreign pcap/pcapng file; gzip and zstd are unpacked, `-` is
    standard input. Nothing in it is executed.

    `ports` are the brokers' ports in foreign captures; on other ports, connections whose first bytes look like a
    Kafka request are found as well. With `background`, the first rows of a foreign capture are available at once, and the
    rest comes with `refresh`, as for a live recording. Raises `NotACapture`, or OSError when the file cannot be read.
    """
    return Capture(Path(path), ports, background=background)
