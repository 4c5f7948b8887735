"""The index of a foreign capture, built while it is read: rows appear as soon as their packets are read.

Nothing is written beside the capture. The index lives in an unnamed file in memory and is read like that of a live
recording: one thread may read packets while others look at the rows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection

from ....decoder.connection.events import Closed, Opened
from ....diagnostics import contained
from ...pcap.flows import Flow, FlowClosed, FlowOpened
from ...pcap.packet_windows import WINDOW
from ...pcap.packets import show_address
from ...pcap.reassembly import KAFKA_PORTS, Reassembler
from ...pcap.sources import CaptureSource, ReadProgress
from ...recording.index import HEADER, RECORD, Head, Index, IndexEncoder, Record, memory_file
from .frame_pieces import FramePieces
from .scan import Scanner
from .skim import HalfConversation, Skimmer

FIRST_SECONDS = 0.5
_IDENTITY = "0" * 32
_REQUEST_OFFSET = Record._fields.index("request_offset")


def foreign_notes(reassembler: Reassembler, lost: int, unread: int, ports: Collection[int]) -> list[str]:
    """Notes on a foreign capture: conversations that are not Kafka, bytes that are missing."""
    notes = []
    if reassembler.foreign:
        shown = ", ".join(map(str, ports))
        tls = (
            f"; of these, {reassembler.tls} use{'s' * (reassembler.tls == 1)} TLS, which barnabas import --keylog decrypts; import --port N "
            "takes a port for the brokers', so that findings judge the handshakes"
            if reassembler.tls
            else ""
        )
        notes.append(f"{reassembler.foreign} TCP conversation{' is' if reassembler.foreign == 1 else 's are'} not Kafka (brokers' ports: {shown}){tls}")
    if lost:
        notes.append(f"{lost} bytes of Kafka connections are not in the capture")
    if unread:
        notes.append(
            f"{unread} bytes of Kafka connections belong to frames that began before the capture, or answer requests that are "
            "not in it"
        )
    return notes


def cut_note(packets: int) -> str:
    """That packets were cut when they were captured."""
    return f"{packets} packet{' was' if packets == 1 else 's were'} cut when captured (tcpdump -s 0 keeps them whole)"


def unread_notes(scanner: Scanner) -> list[str]:
    """Which packets were cut, or passed over, though TCP may have been in them."""
    notes = [cut_note(scanner.cut_packets)] if scanner.cut_packets else []
    notes += [f"{count} packet{' has' if count == 1 else 's have'} link type {link}, which is not supported" for link, count in scanner.unread.items()]
    if scanner.fragments:
        notes.append(f"{scanner.fragments} fragment{'s' * (scanner.fragments != 1)} of IP packets not reassembled")
    return notes


class _IndexConsumer:
    """The `scan.StreamConsumer` of a skimmer and an index."""

    def __init__(self, encoder: IndexEncoder, skimmer: Skimmer) -> None:
        self._encoder, self._skimmer = encoder, skimmer
        self.data, self.cut, self.frames = skimmer.data, skimmer.cut, skimmer.frames
        self.ends: list[Opened | Closed] = []
        """Beginnings and ends of connections."""

    def opened(self, event: FlowOpened) -> tuple[HalfConversation, HalfConversation]:
        flow = event.flow
        opened = Opened(flow.number, show_address(flow.client), show_address(flow.broker), event.time_ns, event.established)
        self.ends.append(opened)
        self._encoder.connection(flow.number, event.time_ns, opened.client, opened.broker)
        return self._skimmer.open(flow.number).halves

    def gap(self, half: HalfConversation, size: int, unread: int) -> None:
        self._skimmer.gap(half)
        if size:
            self._encoder.lost(half.conversation.number, half.direction, size)

    def unseen(self, half: HalfConversation, size: int, unread: int, time_ns: int) -> None:
        """The index has no place for how many."""
        self._skimmer.stray |= size + unread > 0

    def closed(self, flow: Flow, event: FlowClosed) -> None:
        half = flow.sides[0].half
        if half is not None:
            self.ends.append(Closed(flow.number, event.time_ns, event.how, event.by))
            self._skimmer.close(half.conversation)

    def awaits(self, flow: Flow, correlation_id: int) -> bool:
        half = flow.sides[0].half
        return half is not None and self._skimmer.awaits(half.conversation, correlation_id)


class ForeignIndex:
    """Reads a source and gives its `index`, with `pieces` for places of frames. Raises `NotACapture`.

    `advance()` reads a window and adds its rows; False at the end of what is there. `start()` does that in a thread.
    In both cases `refresh()` makes the rows visible to `index`, at the end also the requests that wait; all of this in one thread but for
    `start`'s.
    """

    def __init__(self, source: CaptureSource, name: str, ports: Collection[int] = KAFKA_PORTS) -> None:
        self._source, self._ports = source, ports
        self._failed = ""
        self._encoder = IndexEncoder()
        self.pieces = FramePieces()
        self._skimmer = Skimmer(self._encoder, self.pieces, lambda pieces: self.scanner.windows.read(pieces))
        self._consumer = _IndexConsumer(self._encoder, self._skimmer)
        self.scanner = Scanner(self._consumer, ports)
        self.scanner.windows.begin(source.file, name)
        self._records, self._strings = memory_file("barnabas-index"), memory_file("barnabas-index")
        os.write(self._records, Head(0, 0, _IDENTITY, -1, -1, -1).pack())
        self._size = HEADER.size
        self.index = Index.of_files(self._records, self._strings, lambda: self._size)
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._write()
        self.index.refresh()

    # reading

    def advance(self) -> bool:
        """Read on; False when nothing new is there."""
        self._source.fill(self.scanner.windows.offset + WINDOW)
        more = self.scanner.windows.advance()
        if not more:
            self.scanner.finish()
        self._write()
        return more

    def _write(self) -> None:
        # Strings first, since records name them: who reads meanwhile finds them.
        encoder, size = self._encoder, len(self._encoder.records)
        _append(self._strings, encoder.entries)
        _append(self._records, encoder.records)
        self._size += size

    def read_all(self) -> None:
        while self.advance():
            pass
        self._show()

    def _show(self) -> int:
        """Make new rows and all requests that wait visible; returns the number of new rows."""
        added, index = self.index.refresh(), self.index
        waiting = self._skimmer.pending()
        index.show_waiting(waiting, [index.string(record.client_id) for record in waiting], self.scanner.now_ns)
        return added

    def start(self, rows: int = 1000) -> None:
        """Read until `rows` rows are there (or for `FIRST_SECONDS`), and the rest in a thread."""
        more = True
        until = time.monotonic() + FIRST_SECONDS
        while more and self._skimmer.rows < rows and time.monotonic() < until:
            more = self.advance()
        if not more:
            self._show()
        else:
            self.index.refresh()
            self._thread = threading.Thread(target=self._run, name="index", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and self.advance():
                pass
        except Exception as error:  # no caller waits in this thread: the notes report it
            contained("indexing a capture in the background", error, reported=True)
            self._failed = f"not read to its end: {type(error).__name__}: {error}"

    @property
    def reading(self) -> bool:
        """The thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait for the thread, but no longer than that."""
        if self._thread is not None:
            self._thread.join(seconds)

    @property
    def ends(self) -> list[Opened | Closed] | None:
        """Beginnings and ends of connections, in order; None where not all of their bytes are frames, and in the capture."""
        return None if self._skimmer.stray else self._consumer.ends

    @property
    def progress(self) -> ReadProgress:
        """How far the file is read."""
        return self._source.progress(self.scanner.windows.offset)

    def notes(self) -> list[str]:
        """Notes on the capture, as far as it was read."""
        scanner = self.scanner
        notes = [note for note in (self._source.note, scanner.windows.note, self._failed) if note]
        notes += foreign_notes(scanner.reassembler, scanner.lost, scanner.unread_so_far, self._ports)
        if scanner.windows.secrets:
            notes.append("it contains TLS secrets: barnabas import decrypts with them")
        notes += unread_notes(scanner)
        if (self.index.count or scanner.unread_so_far) and not self.reading and not self._has_requests():
            notes.append("it contains only what brokers sent: capture both directions, so that responses can be matched to their requests")
        return notes

    def _has_requests(self) -> bool:
        records = self.index.records(0, self.index.count)
        return any(record[_REQUEST_OFFSET] >= 0 for record in RECORD.iter_unpack(records))

    def refresh(self) -> int:
        """Make new rows visible, and read what a file that grows has got; returns the number of new rows."""
        if self.reading:
            return self.index.refresh()
        read, self._thread = self._thread is not None, None
        if os.fstat(self._source.file.fileno()).st_size > self.scanner.windows.offset and not self.scanner.windows.damaged:
            read = True
            while self.advance():
                pass
        return self._show() if read else 0

    def close(self) -> None:
        """Stop reading and let go of the index."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def _append(file: int, data: bytearray) -> None:
    if data:
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                done += os.write(file, view[done:])
        data.clear()


