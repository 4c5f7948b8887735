"""Writing events as a recording: reading it gives the same events.

`Writer` takes events one by one and drives a `captures.Recorder`. `replacing` provides the place for the result: it appears when
it is complete, and nothing is left behind otherwise.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...decoder import Direction, Exchange, ExchangeDone, Opaque, RequestSeen
from ...decoder.connection.events import NEVER_ESTABLISHED, Closed, ConnectionEvent, Missing, NonKafkaData, Opened
from ...decoder.findings.detectors.network import first_bytes
from ...decoder.wire.frame import MAX_FRAME
from ...errors import BarnabasError
from ..pcap.packets import Address
from ..reading.reader import files_in
from ..recording.recorder import Recorder
from ..recording.recording import SEGMENT_BYTES

KEPT = first_bytes.KEPT
_TOKEN = b"\x60"  # what a GSSAPI token begins with; masked again by the recorder
_BETWEEN = ("no frame found yet", "before the first frame", "cut off by missing bytes")
_ONE_FILE = 1 << 62


class Writer:
    """Writes events into `directory`. Connections keep their numbers as long as these are free; `source` separates those
    of several captures apart.

    `counts`: connections, exchanges, frames, and those of the recorder. Raises OSError when nothing can be written.
    """

    def __init__(
        self, directory: Path, *, redact: bool = True, one_file: bool = False, names: Sequence[str] = ()
    ) -> None:
        """`one_file`: never begin a second segment. `names` of several sources: in one file, which has no other place
        for it, the first exchange of each connection gets a note with its source; see also `came_from`."""
        self.came_from: list[tuple[int, int, int]] = []  # (connection, source, connection in it)
        self._names = names
        self._source_names = names if one_file and len(names) > 1 else ()
        self._unannounced: dict[int, str] = {}
        self.faults: list[str] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._used: set[int] = set()
        self._tried: dict[int, Opened] = {}
        self._imported: set[int] = set()  # connections that a capture of packets has, which may lack anything
        self._notes: dict[int, int] = {}  # of requests that wait: how many of their notes were written
        self._legs: set[int] = set()
        self._next = 1
        self.connections = 0
        self.recorder = Recorder(
            directory,
            redact=redact,
            segment_bytes=_ONE_FILE if one_file else SEGMENT_BYTES,
            segment_seconds=float("inf"),
            on_event=self._on_event,
        )

    def _on_event(self, kind: str, text: str) -> None:
        if kind == "error" and len(self.faults) < 20:
            self.faults.append(text)

    @property
    def counts(self) -> dict[str, int]:
        """connections, exchanges, frames, bytes, lost_bytes, undecoded, segments."""
        counts = self.recorder.counts
        names = ("exchanges", "frames", "bytes", "lost_bytes", "undecoded", "segments")
        return {"connections": self.connections} | {name: counts[name] for name in names}

    def write(self, event: ConnectionEvent, source: int = 0) -> None:
        """Write one event of the capture `source`."""
        if isinstance(event, RequestSeen):
            self._request(self._number(source, event.exchange.connection), event.exchange)
        elif isinstance(event, ExchangeDone):
            self._done(self._number(source, event.exchange.connection), event.exchange)
        elif isinstance(event, Opened):
            self._opened(event, source)
        elif isinstance(event, Closed):
            self._closed(event, source)
        elif isinstance(event, Missing):
            self._missing(self._number(source, event.connection), event)
        else:
            self._non_kafka(self._number(source, event.connection), event)
        self._raise_failure()

    def close(self) -> None:
        """End the recording. What waits is pending, as it was."""
        for number, opened in self._tried.items():
            self._vain(number, opened, "unreached", opened.time_ns, "")
        self.recorder.close()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self.recorder.failure is not None:
            raise self.recorder.failure

    # connections

    def _number(self, source: int, connection: int) -> int:
        key = source, connection
        if key not in self._numbers:
            number = connection
            if number in self._used:
                number = self._next
            self._used.add(number)
            self._next = max(self._next, number + 1)
            self._numbers[key] = number
        return self._numbers[key]

    def _opened(self, event: Opened, source: int) -> None:
        self._numbers.pop((source, event.connection), None)
        number = self._number(source, event.connection)
        self.connections += 1
        if self._names:
            self.came_from.append((number, source, event.connection))
        if self._source_names:
            self._unannounced[number] = f"from {self._source_names[source]}, connection {event.connection}"
        if event.established:
            ends = address(event.client), address(event.broker)
            self.recorder.opened(number, event.time_ns, *ends, tls=event.tls, imported=not event.complete)
            self._imported -= {number}
            self._imported |= set() if event.complete else {number}
        else:
            self._tried[number] = event  # how it failed is only known when it ends

    def _missing(self, number: int, event: Missing) -> None:
        if number in self._imported:
            self.recorder.missing(number, event.direction, event.time_ns, event.size, event.unread)
        else:
            self.recorder.lost(number, event.direction, event.size)

    def _closed(self, event: Closed, source: int) -> None:
        number = self._number(source, event.connection)
        opened = self._tried.pop(number, None)
        if opened is not None:
            self._vain(number, opened, event.how, event.time_ns, event.by)
        elif event.how:
            how = "rst" if event.how in ("rst", *NEVER_ESTABLISHED) else "fin"
            self.recorder.closed(number, event.time_ns, how, event.by)
        # Without a way it ended, the capture did: the connection stays open, and its number is not used again.
        self._numbers.pop((source, event.connection), None)

    def _vain(self, number: int, opened: Opened, how: str, time_ns: int, by: str) -> None:
        failed = how if how in NEVER_ESTABLISHED else "unreached"
        ends = address(opened.client), address(opened.broker)
        self.recorder.opened(number, opened.time_ns, *ends, failed=failed, tls=opened.tls)
        self.recorder.closed(number, time_ns, "rst", by)

    # frames

    def _request(self, number: int, exchange: Exchange) -> None:
        self._say(number, exchange)
        self._leg(number, exchange, Direction.REQUEST)
        if exchange.request is not None:
            self._frame(number, Direction.REQUEST, exchange.request_time_ns or 0, exchange.request, exchange.request_cut)

    def _done(self, number: int, exchange: Exchange) -> None:
        self._say(number, exchange)
        self._notes.pop(id(exchange), None)
        if exchange.response is not None:
            self._leg(number, exchange, Direction.REQUEST)
            self._leg(number, exchange, Direction.RESPONSE)
            self._frame(number, Direction.RESPONSE, exchange.response_time_ns or 0, exchange.response, exchange.response_cut)
        self._legs.discard(id(exchange))

    def _frame(self, number: int, direction: Direction, time_ns: int, frame: bytes, cut: int) -> None:
        """A frame, or what was kept of it."""
        self.recorder.data(number, direction, time_ns, sized(frame, cut))
        if cut:
            self.recorder.skipped(number, direction, time_ns, cut)

    def _say(self, number: int, exchange: Exchange) -> None:
        """The notes that were not written yet."""
        if number in self._unannounced:
            self.recorder.note(number, exchange.correlation_id, self._unannounced.pop(number))
        notes = list(exchange.marks.notes)
        for note in notes[self._notes.get(id(exchange), 0) :]:
            self.recorder.note(number, exchange.correlation_id, note)
        if notes:
            self._notes[id(exchange)] = len(notes)

    def _leg(self, number: int, exchange: Exchange, direction: Direction) -> None:
        """The frame of the broker leg, where it was another one."""
        request = direction is Direction.REQUEST
        leg = exchange.marks.leg(direction)
        if leg is None or (request and id(exchange) in self._legs):
            return
        if request:
            self._legs.add(id(exchange))
        time_ns = (exchange.request_time_ns if request else exchange.response_time_ns) or 0
        self.recorder.broker_leg(number, direction, time_ns, sized(leg.frame, leg.cut), "; ".join(leg.notes))

    def _non_kafka(self, number: int, event: NonKafkaData) -> None:
        opaque = event.opaque
        if opaque.reason in _BETWEEN:
            # The recorder takes bytes for frames: these are in front of one, and no part of it.
            self.recorder.lost(number, opaque.direction, len(opaque.data))
            return
        data = opaque.data
        if opaque.framed:
            data = sized(_TOKEN + data[1:] if opaque.direction is Direction.REQUEST and data else data)
        self.recorder.data(number, opaque.direction, opaque.time_ns, data)


def beginning(opaque: Opaque) -> bytes:
    """Bytes that are no frames with nothing left of them but what identifies the protocol: of frames the size and what is
    asked, of known protocols their first 8 bytes."""
    data = opaque.data
    size = int.from_bytes(data[:4], "big", signed=True)
    is_known = 0 <= size <= MAX_FRAME or first_bytes.protocol(data[:KEPT], opaque.direction) is not None
    kept = data[:KEPT] if is_known else b""
    return kept + b"*" * (len(data) - len(kept))


def sized(frame: bytes, cut: int = 0) -> bytes:
    """The frame with its size in front; `cut`: how many of its bytes were not kept."""
    return (len(frame) + cut).to_bytes(4, "big") + frame


def address(text: str) -> Address:
    """``host:port`` taken apart; of an IPv6 address without its brackets."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port) if port.isdigit() else 0


class TargetExists(BarnabasError, ValueError):
    """The target exists already."""


@contextmanager
def replacing(target: Path, force: bool = False) -> Iterator[Path]:
    """A new directory beside `target` to record into, which takes its place at the end.

    A target that ends with ``.pcapng`` becomes one file, any other one a directory of segments. On any error, and on
    Ctrl-C, nothing is left. Raises `TargetExists` if the target exists, and with `force` if it is no recording.
    """
    one_file = target.suffix == ".pcapng"
    _look(target, force, one_file)
    target.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".making", dir=target.parent))
    try:
        yield place
        made = next(place.glob("*.pcapng"), None) if one_file else place
        if made is None:
            raise OSError("nothing was recorded")
        _look(target, force, one_file)
        old = None
        if target.exists() and not one_file:
            old = target.with_name(f"{place.name}.old")
            os.rename(target, old)
        os.replace(made, target)
        if old is not None:
            shutil.rmtree(old)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def remove_recording(target: Path) -> None:
    """Remove a directory with a recording, if there is one. Raises `TargetExists` if it is or has anything else."""
    _look(target, force=True, one_file=False)
    shutil.rmtree(target, ignore_errors=not target.exists())


def _look(target: Path, force: bool, one_file: bool) -> None:
    if not target.exists() or (not one_file and target.is_dir() and not any(target.iterdir())):
        return
    if not force:
        raise TargetExists(f"{target} already exists; --force replaces it")
    if target.is_dir() == one_file:
        raise TargetExists(f"{target} is not a recording of that form, so it is not replaced")
    if target.is_dir():
        known = {entry.stem.removesuffix(".pcapng") for entry in files_in(target).values()}
        other = [e.name for e in target.iterdir() if e.name.partition(".")[0] not in known and e.name != ORIGIN]
        if other:
            raise TargetExists(f"{target} contains more than a recording ({other[0]}), so it is not replaced")


ORIGIN = "origin.json"
"""The note beside the segments of a reshaped recording: where it comes from."""
