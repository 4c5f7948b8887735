"""Importing foreign captures as recordings: the same frames, times and addresses, in segments with an index.

`Importer` reads by `scan`, and a `Recorder` takes the streams, as those of live connections.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from ...decoder import Exchange
from ...errors import BarnabasError
from ..native.accelerator import native
from ..pcap.flows import Flow, FlowClosed, FlowOpened
from ..pcap.packet_comments import BOTH_LEGS
from ..pcap.packet_windows import WINDOW
from ..pcap.reassembly import KAFKA_PORTS
from ..pcap.sources import CaptureSource, Ends, ReadProgress
from ..reading.indexing.index_builder import foreign_notes, unread_notes
from ..reading.indexing.scan import Scanner
from ..recording.recorder import Recorder
from ..recording.recording import SEGMENT_BYTES
from ..recording.segment import read_identity


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """SIGINT and SIGTERM take effect after the block: an exception in the middle of it would leave streams and segments
    that cannot be ended in order."""
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [number for number, handler in before.items() if handler is not None]  # None: not set from Python
    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        if came:
            signal.raise_signal(came[0])  # the handler runs before this returns


class OwnRecording(BarnabasError, ValueError):
    """The file is a segment of a recording already."""


class _Half(NamedTuple):
    """One direction of a connection; captures/native/import.c reads it, too."""

    connection: int
    direction: int


class _RecorderInput:
    """The `scan.StreamConsumer` of a recorder. `decrypted`: the connections of the current file that were TLS.

    The accelerator's walk over packets gives the streams to native recorders by itself. Those are only valid until the recorder
    does anything else, which may end or flush its segment: hence `_pause` before and `_go_on` after that.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.connections = 0
        self.decrypted: frozenset[Ends] = frozenset()
        self._recorder = recorder
        self._open: set[int] = set()
        """Connections that are being recorded. Those that were never established are recorded when it is known how they failed."""
        self._walking = self._fed = False
        self._packets: Any = None if native is None else native.Frames(self)
        self.frames = None if native is None else self

    # for the scanner, in place of `native.Frames`

    def interfaces(self, known: int, stamps: list[tuple[int, int, int]]) -> None:
        self._packets.interfaces(known, stamps)

    def walk(self, *arguments: Any) -> tuple[int, int, int, int, int, int, int]:
        self._walking = True
        self._go_on()
        try:
            found: tuple[int, int, int, int, int, int, int] = self._packets.walk(*arguments)
        finally:
            self._walking = False
            self._pause()
        return found

    def _go_on(self) -> None:
        feed = self._recorder.begin() if self._walking else None
        self._fed = feed is not None
        if feed is not None:
            self._packets.record_to(*feed)

    def _pause(self) -> None:
        if self._fed:
            self._fed = False
            taken, self._packets.taken = self._packets.taken, 0
            self._packets.record_to({}, 0, 0)
            self._recorder.end(taken)

    # streams

    def opened(self, event: FlowOpened) -> tuple[_Half, _Half]:
        number = event.flow.number
        self.connections += 1
        if event.established:
            self._record(event.flow, event.time_ns)
            self._open.add(number)
        return _Half(number, 0), _Half(number, 1)

    def _record(self, flow: Flow, time_ns: int, failed: str = "") -> None:
        tls = BOTH_LEGS if frozenset(flow.ends) in self.decrypted else frozenset()
        self._recorder.opened(flow.number, time_ns, flow.client, flow.broker, failed=failed, tls=tls, imported=True)

    def data(self, half: _Half, time_ns: int, data: bytes, offset: int) -> None:
        self._pause()
        self._recorder.data(*half, time_ns, data)
        self._go_on()

    def cut(self, half: _Half, size: int) -> bool:
        self._pause()
        taken = self._recorder.cut(*half, size)
        self._go_on()
        return taken

    def gap(self, half: _Half, size: int, unread: int) -> None:
        self._recorder.lost(*half, size, unread)

    def unseen(self, half: _Half, size: int, unread: int, time_ns: int) -> None:
        if half.connection in self._open:
            self._recorder.missing(*half, time_ns, size, unread)

    def closed(self, flow: Flow, event: FlowClosed) -> None:
        failed = flow.number not in self._open
        if failed:
            self._record(flow, flow.opened_ns, event.how)
        self._open.discard(flow.number)
        self._recorder.closed(flow.number, event.time_ns, "rst" if failed else event.how, event.by)

    def awaits(self, flow: Flow, correlation_id: int) -> bool:
        half = flow.sides[0].half
        return half is not None and self._recorder.awaits(half.connection, correlation_id)


class Importer:
    """Writes a recording into `directory` (made with mode 0700 if need be; OSError when that is impossible).

    `wanted` picks exchanges; without it everything of the Kafka connections goes over. `redact` masks secrets as the
    recorder does. Files are added one after the other, as parts of one capture: connections go on over them. `close`
    leaves a complete recording of what was read so far, whenever it is called. `advance` raises OSError when the
    recording cannot be written; with `on_trouble`, which hears of it, it goes on counting instead, and the recording
    resumes by itself.
    """

    def __init__(
        self,
        directory: Path,
        ports: Collection[int] = KAFKA_PORTS,
        *,
        redact: bool = True,
        wanted: Callable[[Exchange], bool] | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_seconds: float = float("inf"),
        on_segment: Callable[[], None] = lambda: None,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._on_segment, self._on_trouble = on_segment, on_trouble
        self._ports = ports
        self._source: CaptureSource | None = None
        self.recorder = Recorder(
            directory,
            redact=redact,
            wanted=wanted,
            segment_bytes=segment_bytes,
            segment_seconds=segment_seconds,
            on_event=self._on_event,
        )
        self._input = _RecorderInput(self.recorder)
        self.scanner = Scanner(self._input, ports)

    def _on_event(self, kind: str, text: str) -> None:
        if self._on_trouble is not None and kind in ("paused", "resumed", "error"):
            self._on_trouble(text)
        elif kind == "segment":
            self._on_segment()

    @property
    def counts(self) -> dict[str, int]:
        """connections, exchanges, frames, lost_bytes, segments, and the frames that are unrecorded."""
        counts = self.recorder.counts
        names = ("exchanges", "frames", "lost_bytes", "segments", "unrecorded")
        return {"connections": self._input.connections} | {name: counts[name] for name in names}

    @property
    def failure(self) -> OSError | None:
        """What stopped the writing of the recording last; None as long as nothing did."""
        return self.recorder.failure

    @property
    def progress(self) -> ReadProgress:
        """How far the current file is read."""
        return ReadProgress(0, 0) if self._source is None else self._source.progress(self.scanner.windows.offset)

    def begin(self, source: CaptureSource) -> None:
        """Read this file from now on. Raises `NotACapture`, or `OwnRecording`."""
        self._end_file()
        if read_identity(source.file, str(source.path)) is not None:
            raise OwnRecording(f"{source.path}: this is already a recording: open it directly")
        self.scanner.windows.begin(source.file, str(source.path))
        self._source, self._input.decrypted = source, source.decrypted

    def advance(self) -> bool:
        """Read and write some of the file; False when nothing new is in it."""
        assert self._source is not None
        self._source.fill(self.scanner.windows.offset + WINDOW)
        with _uninterrupted():
            more = self.scanner.windows.advance()
        if self.failure is not None and self._on_trouble is None:
            raise self.failure
        return more

    def flush(self) -> None:
        """Hand what was written to the operating system, once a second."""
        with _uninterrupted():
            self.recorder.tick()

    def _end_file(self) -> None:
        if self._source is not None:
            name = self._source.path.name
            self.notes += [f"{name}: {note}" for note in (self._source.note, self.scanner.windows.note) if note]
            self._source = None

    def close(self, finished: bool = True) -> None:
        """End the recording. `finished`: all there is was read, so that nothing waits for missing packets."""
        self._end_file()
        if finished:
            self.scanner.finish()
        scanner = self.scanner
        self.notes += foreign_notes(scanner.reassembler, scanner.lost, scanner.unread_so_far, self._ports)
        self.notes += unread_notes(scanner)
        self.recorder.close()
