"""Importing foreign captures as recordings: the same frames, times and addresses, in segments with an index.

`Importer` reads by `scan`, and a `Transcriber` writes each frame as soon as it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from ...errors import BarnabasError
from ..pcap.packet_windows import WINDOW
from ..pcap.reassembly import KAFKA_PORTS
from ..pcap.sources import CaptureSource, ReadProgress
from ..reading.reindex import read_identity
from ..recording.recording import SEGMENT_BYTES, Recording
from .index_builder import foreign_notes, unread_notes
from .scan import Scanner
from .transcribe import Transcriber, TranscriberInput, Wanted


class OwnRecording(BarnabasError, ValueError):
    """The file is a segment of a recording already."""


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
        wanted: Wanted | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_seconds: float = float("inf"),
        on_segment: Callable[[], None] = lambda: None,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._on_segment, self._on_trouble = on_segment, on_trouble
        self._ports = ports
        self._source: CaptureSource | None = None
        self._failed = ""
        self._writer = Transcriber(redact, wanted)
        self._recording = Recording(
            directory, self._writer.in_flight, self._on_event, segment_bytes=segment_bytes, segment_seconds=segment_seconds
        )
        self._writer.recording = self._recording
        self.scanner = Scanner(TranscriberInput(self._writer), ports)
        self._writer.read_pieces = self.scanner.windows.read

    def _on_event(self, kind: str, text: str) -> None:
        if self._on_trouble is not None and kind in ("paused", "resumed", "error"):
            self._on_trouble(text)
        elif kind == "paused":
            self._failed = text
        elif kind == "segment":
            self._on_segment()

    @property
    def counts(self) -> dict[str, int]:
        """connections, exchanges, frames, lost_bytes, segments, and the frames that are unrecorded."""
        written = {"segments": self._recording.segments, "unrecorded": self._recording.unrecorded}
        lost = self.scanner.lost + self.scanner.unread_bytes + self._writer.unseen_bytes
        return self._writer.totals | {"lost_bytes": lost} | written

    @property
    def progress(self) -> ReadProgress:
        """How far the current file is read."""
        return ReadProgress(0, 0) if self._source is None else self._source.progress(self.scanner.windows.offset)

    def begin(self, source: CaptureSource) -> None:
        """Read this file from now on. Raises `NotACapture`, or `OwnRecording`."""
        self._end_file()
        if read_identity(source.file, str(source.path)) is not None:
            raise OwnRecording(f"{source.path}: this is a recording already, open it as it is")
        self.scanner.windows.begin(source.file, str(source.path))
        self._source, self._writer.decrypted = source, source.decrypted

    def advance(self) -> bool:
        """Read and write some of the file; False when nothing new is in it."""
        assert self._source is not None
        self._source.fill(self.scanner.windows.offset + WINDOW)
        more = self.scanner.windows.advance()
        self._writer.count_frames()
        self._recording.tick()
        self._writer.look_after()
        if self._failed:
            raise OSError(self._failed)
        return more

    def flush(self) -> None:
        """Hand what was written to the operating system, once a second."""
        self._recording.tick()
        self._writer.look_after()

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
        self._writer.finish()
        scanner = self.scanner
        self.notes += foreign_notes(scanner.reassembler, scanner.lost, scanner.unread_so_far, self._ports)
        if self._writer.frames_cut:
            self.notes.append(f"{self._writer.frames_cut} frames were cut when they were captured, and left out")
        self.notes += unread_notes(scanner)
        self._recording.close()
