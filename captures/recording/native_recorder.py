"""Connections that the accelerator records, chunk by chunk, without objects for their frames.

A `native.ConnectionRecorder` cuts frames, reads them by their plan as far as the index needs, pairs them, and appends
packets and index records: the same bytes as `Recorder` writes by itself. It takes plain frames only. A connection changes
over at any chunk: to a native recorder when everything that waits is plain, and back to its decoder for APIs with
secrets and SASL; frames that cannot be read to their end, or have bytes behind it; responses out of order; notes,
changed frames, losses; the end of the connection or of the segment; a disk that fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...decoder import Connection, Direction, Exchange, RequestSeen, Topics
from ...decoder.codec import secrets
from ...decoder.codec.project import Skim, skim
from ...decoder.connection.exchange import State
from ...decoder.schema import facts
from ...decoder.wire.tls_records import TlsRecords
from ..native.accelerator import native
from ..pcap.packet_comments import CARRIED_COMMENT
from ..pcap.packets import show_address
from .in_flight import CarriedRequest, OpenConnection, RequestInFlight
from .index import CARRIED, STATES, IndexEncoder, Record
from .recording import Recording
from .segment import IN_FLIGHT, InFlight, pack_in_flight

if TYPE_CHECKING:
    from ..native._native import ConnectionRecorder

_CARE = 2  # why a native recorder stopped: it needs Python; 1: the segment has to be attended to first
_SLOW = {facts.api_key("SaslHandshake"), facts.api_key("SaslAuthenticate")}
_PATIENCE, _MOST_PATIENCE = 8, 1024
_MOVED_A_CHUNK = 64
"""Requests in flight that may be moved between a native recorder and a decoder, on average for each chunk."""


class RecordedConnection:
    """One open connection: the decoder's state, and what waits to be written with its next frames."""

    __slots__ = (
        "asked", "backoff", "blocker", "broken", "broker_ended", "changed", "decoder", "in_flight", "lost", "notes",
        "opaque", "open", "recorder", "tls", "unread", "written",
    )  # fmt: skip

    def __init__(self, connection: OpenConnection, snaplen: int | None = None, topics: Topics | None = None) -> None:
        self.open = connection
        ends = show_address(connection.client), show_address(connection.broker)
        self.decoder = Connection(connection.number, *ends, topics=topics, keep=snaplen)
        # Requests that were written and have no response in the file yet. The decoder's own queue is ahead of
        # this one by what the rest of the current chunk holds.
        self.in_flight: dict[int, tuple[Exchange, bytes]] = {}
        self.notes: dict[int, list[str]] = {}
        self.changed: set[int] = set()
        self.asked: dict[int, tuple[int, int]] = {}  # api key and version of the broker's leg, by correlation id
        self.lost, self.unread = [0, 0], [0, 0]
        self.written = False  # where exchanges are picked: one was
        self.opaque = [False, False]
        self.tls: list[TlsRecords | None] = [None, None]
        self.broken = self.broker_ended = False
        self.recorder: ConnectionRecorder | None = None  # the `native.ConnectionRecorder` that has taken over, if one has
        self.backoff = Backoff()
        self.blocker: Exchange | None = None  # a request in flight that a native recorder cannot take: until it is answered, none is tried


class NativeRequest(NamedTuple):
    """A `RequestInFlight` that a native recorder holds, as the `place`-th in its queue."""

    connection: OpenConnection
    recorder: ConnectionRecorder
    place: int
    offset: int
    time_ns: int
    size: int
    cut: int
    correlation_id: int
    api_key: int
    api_version: int
    flags: int
    client: str | None

    @property
    def data(self) -> bytes:
        return self.recorder.frame(self.place)

    @property
    def comments(self) -> tuple[str, ...]:
        return (CARRIED_COMMENT,)

    def entry(self) -> InFlight:
        number = self.connection.number & 0xFFFFFFFF
        return InFlight(number, self.correlation_id, self.api_key, self.api_version, self.offset)

    def pend(self, index: IndexEncoder, flags: int = 0) -> None:
        connection, key, version = self.connection.number & 0xFFFFFFFF, self.api_key, self.api_version
        flags |= self.flags | STATES.index(State.PENDING)
        client = index.string(self.client)
        asked = self.time_ns, -1, self.offset, -1, self.size, 0, self.correlation_id
        index.record(Record(*asked, connection, key, version, 0, flags, client, 0))

    def moved(self, offset: int) -> None:
        self.recorder.moved(self.place, offset, CARRIED)


class Backoff:
    """How many chunks a connection stays with its decoder: exponentially more while native recording does not last."""

    __slots__ = ("left", "next", "taken")

    def __init__(self) -> None:
        self.left, self.next, self.taken = 0, _PATIENCE, 0

    def over(self) -> bool:
        """Count a chunk; whether native recording may be tried."""
        self.left -= self.left > 0
        return not self.left

    def moved(self, waiting: int) -> None:
        """So many requests were moved to a decoder: they are not moved back at once, so that the moves cost a chunk no more, however
        many wait."""
        self.left = max(self.left, waiting // _MOVED_A_CHUNK)

    def again(self) -> None:
        """Native recording met something that needs Python."""
        self.next = _PATIENCE if self.taken > 8 * self.next else min(2 * self.next, _MOST_PATIENCE)
        self.left, self.taken = max(self.left, self.next), 0


def give_to_recorder(decoder: Connection, recorder: ConnectionRecorder) -> bool:
    """Give a native recorder the partial frames of a decoder; False, and nothing done, where it is not at plain frames."""
    rests = decoder.hand_over()
    if rests is None:
        return False
    for direction, (rest, time_ns) in enumerate(rests):
        if rest:
            recorder.hold(direction, rest, time_ns)
    return True


def give_to_decoder(decoder: Connection, rests: Iterable[tuple[bytes, int, int]]) -> None:
    """Give a decoder what a released native recorder had per direction: a partial frame, its time, bytes nobody read."""
    for direction, (rest, time_ns, skipped) in enumerate(rests):
        if rest:
            (decoder.receive_from_broker if direction else decoder.receive_from_client)(rest, time_ns)
        if skipped:
            decoder.skip(Direction(direction), skipped, time_ns)


class NativeFeed(NamedTuple):
    """The native recorders by connection number, the file offset of the segment's buffer, and the size of the segment at
    which no further frame may begin."""

    recorders: dict[int, ConnectionRecorder]
    base: int
    stop: int


class NativeRecorder:
    """Records what it can on behalf of a `Recorder`. `redact`: APIs with secrets are left alone. `snaplen`: most bytes of a frame that
    are kept."""

    def __init__(self, recording: Recording, redact: bool, snaplen: int | None = None) -> None:
        self._recording = recording
        self._native: Any = native
        self.on: dict[int, ConnectionRecorder] = {}
        """The native recorders by connection number."""
        self._before = 0
        self._context: Any = native.RecorderContext(partial(shape, redact), snaplen or 0) if native is not None else None

    @property
    def counts(self) -> dict[str, int]:
        """Frames, exchanges and errors that were recorded natively."""
        context = self._context
        return {"frames": context.frames, "exchanges": context.exchanges, "errors": context.errors} if context is not None else {}

    def take(
        self, connection: RecordedConnection, direction: int, time_ns: int, data: bytes | bytearray | memoryview
    ) -> bytes | bytearray | memoryview:
        """Take a chunk; what is left of it is for the decoder."""
        if self._context is None or not (connection.recorder or self._begin(connection)):
            return data
        recording, context, size, at = self._recording, self._context, len(data), 0
        connection.backoff.taken += 1
        while at < size:
            segment = recording.ready()  # this may end the segment, which releases every native recorder
            if segment is None or connection.recorder is None:
                break
            frames = context.frames
            at = connection.recorder.feed(direction, data, at, time_ns, segment.flushed, recording.stop)
            segment.frames += context.frames - frames
            if at == size or not self._go_on(connection):
                break
        return data[at:]

    def begin(self) -> NativeFeed | None:
        """For callers that feed the native recorders themselves. None: there are none, or nothing can be written."""
        segment = self._recording.ready() if self.on else None
        if segment is None or not self.on:
            return None
        self._before = self._context.frames
        return NativeFeed(self.on, segment.flushed, self._recording.stop)

    def end(self) -> None:
        """The native recorders were fed."""
        self._recording.unflushed_frames(self._context.frames - self._before)

    def skip(self, connection: RecordedConnection, direction: int, count: int) -> bool:
        """Skip bytes of a frame that are not there; whether that was taken."""
        recording, context = self._recording, self._context
        while connection.recorder is not None:
            segment = recording.ready()
            if segment is None or connection.recorder is None:
                break
            frames = context.frames
            taken = connection.recorder.skip(direction, count, segment.flushed, recording.stop)
            segment.frames += context.frames - frames
            if taken:
                return True
            if not self._go_on(connection):
                break
        return False

    def _go_on(self, connection: RecordedConnection) -> bool:
        """Handle why a native recorder stopped; whether it goes on."""
        recording = self._recording
        if self._context.reason == _CARE:
            self.leave(connection)
            connection.backoff.again()
            return False
        # What the recording does before every frame.
        segment = recording.ready()
        if segment is None or connection.recorder is None:
            return False
        recording.sync(segment)
        if not connection.recorder.attached:
            recording.known(segment, connection.open)
            index = recording.index
            headers = segment.headers(connection.open.number)
            connection.recorder.attach(*headers, segment.buffer, index.records, index.string)
        return True

    def _begin(self, connection: RecordedConnection) -> bool:
        """Give a connection to a native recorder if all that waits is plain."""
        if not connection.backoff.over() or not self._plain(connection):
            return False
        recorder = self._native.ConnectionRecorder(self._context, connection.open.number & 0xFFFFFFFF)
        for exchange, data in connection.in_flight.values():
            marks = exchange.marks
            flags = CARRIED if marks.carried else 0
            time_ns = exchange.request_time_ns or 0
            if not recorder.push(data, time_ns, marks.request_offset, flags, exchange.request_cut):
                connection.backoff.again()
                return False
        if not give_to_recorder(connection.decoder, recorder):
            return False
        connection.in_flight.clear()
        connection.recorder = self.on[connection.open.number] = recorder
        return True

    def _plain(self, connection: RecordedConnection) -> bool:
        if connection.broken or connection.notes or connection.changed or any(connection.opaque):
            return False
        if any(connection.lost) or any(connection.unread):
            return False
        decoder, knows, in_flight = connection.decoder, self._context.knows, connection.in_flight
        if self._recording.path is None or len(in_flight) != decoder.in_flight or id(connection.blocker) in in_flight:
            return False
        connection.blocker = decoder.oldest(lambda e: not _is_plain(e) or not knows(e.api_key, e.api_version))
        return connection.blocker is None and [exchange for exchange, _ in in_flight.values()] == decoder.pending()

    def give_up(self, connection: RecordedConnection) -> None:
        """The requests that a native recorder holds get no response. They go into the index without objects, since as
        many may wait as `MOST_WAITING` per connection; with what is left, its decoder goes on."""
        if connection.recorder is not None:
            connection.recorder.give_up(self._recording.index.records, self._recording.index.string)
        self.leave(connection)

    def leave(self, connection: RecordedConnection) -> None:
        """Release a connection's native recorder: its decoder goes on."""
        recorder = self.drop(connection)
        if recorder is None:
            return
        connection.backoff.taken += recorder.chunks
        requests, *rests = recorder.release()
        decoder = connection.decoder
        for data, time_ns, offset, flags, cut in requests:
            events = decoder.receive_from_client(data, time_ns)
            for event in events if not cut else decoder.skip(Direction.REQUEST, cut, time_ns):
                if isinstance(event, RequestSeen):
                    exchange = event.exchange
                    exchange.marks.request_offset = offset
                    if flags & CARRIED:
                        exchange.marks.carried = True
                    connection.in_flight[id(exchange)] = exchange, data
        give_to_decoder(decoder, rests)
        connection.backoff.moved(len(connection.in_flight))

    def drop(self, connection: RecordedConnection) -> ConnectionRecorder | None:
        """Detach and return the native recorder of a connection, if it has one."""
        recorder, connection.recorder = connection.recorder, None
        self.on.pop(connection.open.number, None)
        return recorder

    def unanswered(self, connection: RecordedConnection) -> Iterator[RequestInFlight]:
        """The requests of a connection that wait. A native recorder keeps its own and only lets go of the segment."""
        recorder = connection.recorder
        if recorder is None:
            for exchange, data in connection.in_flight.values():
                yield CarriedRequest(connection.open, exchange, data)
            return
        recorder.detach()
        for number, asked in enumerate(recorder.waiting()):
            yield NativeRequest(connection.open, recorder, number, *asked)

    def waiting(self, connections: Iterable[RecordedConnection]) -> bytes:
        """The requests in flight that are in this segment, as the entries of a sync block."""
        recorders: list[ConnectionRecorder] = []
        others: list[InFlight] = []
        for connection in connections:
            if connection.recorder is not None:
                recorders.append(connection.recorder)
                continue
            number = connection.open.number & 0xFFFFFFFF
            # Once a MiB for all that wait: a `CarriedRequest` of each would cost more than the rest.
            for each, _ in connection.in_flight.values():
                if (offset := each.marks.request_offset) >= 0:
                    others.append(InFlight(number, each.correlation_id, each.api_key, each.api_version, offset))
        slow = pack_in_flight(others)
        fast: bytes = self._context.waiting(recorders) if recorders else b""
        if not slow or not fast:
            return slow or fast
        entries = sorted(IN_FLIGHT.iter_unpack(slow + fast), key=lambda entry: entry[-1])
        return b"".join(IN_FLIGHT.pack(*entry) for entry in entries)


def _is_plain(exchange: Exchange) -> bool:
    marks = exchange.marks
    return marks.request_offset >= 0 and not marks.notes and not marks.changed


def shape(redact: bool, direction: int, api_key: int, api_version: int) -> Skim | None:
    """How the accelerator reads messages of an API and version; None where care is needed."""
    if api_key in _SLOW or (redact and any(secrets.concerns(way, api_key, api_version) for way in Direction)):
        return None
    return skim("response" if direction else "request", api_key, api_version)
