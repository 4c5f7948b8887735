"""The recorder: bytes from the relay become frames and exchanges, and those become a recording.

It stands beside the traffic, never in it: no method raises because of the bytes or the disk. `counts` and
`on_event(kind, text)` report progress and trouble.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ...decoder import Direction, Exchange, ExchangeDone, Opaque, RequestSeen, Topics
from ...decoder.codec import secrets
from ...decoder.wire.tls_records import TlsRecords, starts_tls
from ...diagnostics import contained
from ..pcap.packet_comments import MARK
from ..pcap.packets import MAX_PAYLOAD, Address
from .in_flight import CarriedRequest, OpenConnection, RequestInFlight
from .index import UNDECODED, LegFrame
from .native_recorder import NativeFeed, NativeRecorder, RecordedConnection
from .recording import FLUSH_SECONDS, SEGMENT_BYTES, SEGMENT_SECONDS, Recording
from .segment import CLIENT_LEG

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LEAST_SNAPLEN, MOST_SNAPLEN = 128, 128 << 10  # the head of a request; what tools take for one packet

ASKED_LIMIT = 4096
"""Most requests of a broker's leg whose response is still to come; then they are forgotten."""


class Recorder:
    """Records connections into `directory`, which is created with mode 0700 if it is missing. Only the constructor raises:
    OSError if the directory cannot be written, ValueError for a snap length out of range.

    - `redact`: mask secrets, keeping their length (`decoder.codec.secrets`)
    - `snaplen`: the most bytes to keep of a frame, `LEAST_SNAPLEN` to `MOST_SNAPLEN`; None: whole frames
    - `segment_bytes`, `segment_seconds`: when a segment ends and the next begins
    - `wanted`: record only the exchanges that it accepts, once they are done
    - `flush_seconds`: how long data may stay in memory. Without traffic, call `flush` once a second
    - `on_event(kind, text)`: called with "paused", "resumed", "segment", "undecoded" or "error"
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        redact: bool = True,
        snaplen: int | None = None,
        wanted: Callable[[Exchange], bool] | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_seconds: float = SEGMENT_SECONDS,
        flush_seconds: float = FLUSH_SECONDS,
        on_event: Callable[[str, str], None] | None = None,
    ) -> None:
        if snaplen is not None and not LEAST_SNAPLEN <= snaplen <= MOST_SNAPLEN:
            raise ValueError(f"a snap length must be {LEAST_SNAPLEN} to {MOST_SNAPLEN} bytes, not {snaplen}")
        self._redact, self._snaplen, self._wanted = redact, snaplen, wanted
        self._topics = Topics()
        self._connections: dict[int, RecordedConnection] = {}
        self._counts = dict.fromkeys(("frames", "bytes", "exchanges", "errors", "lost_bytes", "undecoded", "opaque_bytes"), 0)
        self._recording = Recording(
            Path(directory),
            self._in_flight,
            on_event or (lambda kind, text: None),
            segment_bytes=segment_bytes,
            segment_seconds=segment_seconds,
            flush_seconds=flush_seconds,
            waiting=lambda: self._native.waiting(self._connections.values()),
            unanswered=self._unanswered,
        )
        self._native = NativeRecorder(self._recording, redact, snaplen)

    @property
    def counts(self) -> dict[str, int]:
        """frames, bytes, exchanges, errors, lost_bytes, undecoded, opaque_bytes, unrecorded (frames that could not be written)
        and segments, so far."""
        recording = self._recording
        counts = self._counts | {"unrecorded": recording.unrecorded, "segments": recording.segments}
        for name, count in self._native.counts.items():
            counts[name] += count
        return counts

    @property
    def path(self) -> Path | None:
        """The final name of the segment being written (until then with the suffix `.part`); None while paused."""
        return self._recording.path

    @property
    def failure(self) -> OSError | None:
        """The last error that stopped writing; None if there was none."""
        return self._recording.failure

    # calls by the relay

    def opened(
        self,
        conn: int,
        time_ns: int,
        client: Address | None = None,
        broker: Address = ("0.0.0.0", 9092),
        upstream: Address | None = None,
        failed: str = "",
        tls: frozenset[str] = frozenset(),
        imported: bool = False,
    ) -> None:
        """A connection was opened. Without a client address, it gets an invented one. `failed`: the broker could not be
        reached ("refused" or "unreached"); `closed` must follow. `tls`: the legs that use TLS, "client" and "broker".
        `imported`: it comes from a packet capture; missing bytes are reported with `missing`.

        `upstream` is the proxy's own end of the broker leg, if known. On the client's own machine it might equal another
        client's address, and two conversations would become one in the file: then it is invented.
        """
        if conn in self._connections:
            self.closed(conn, time_ns, "rst")  # its end was missed
        client = client or ("0.0.0.0", 1024 + conn % 64000)
        if upstream is None or upstream[0] == client[0]:
            upstream = ("barnabas", 1024 + conn % 64000)
        opened = OpenConnection(conn, time_ns, client, broker, upstream, failed, tls, imported)
        self._connections[conn] = RecordedConnection(opened, self._snaplen, self._topics)
        if self._wanted is None:
            self._recording.open(opened)
        self._recording.tick()

    def data(self, conn: int, direction: int, time_ns: int, data: bytes | bytearray | memoryview) -> None:
        """Bytes of the client leg, in order, in pieces of any size."""
        connection = self._connection(conn, time_ns)
        self._counts["bytes"] += len(data)
        try:
            data = self._fast(connection, direction, time_ns, data)
            if not data:
                pass
            elif connection.broken:
                self._opaque(connection, Opaque(Direction(direction), bytes(data), time_ns, "not decoded"))
            else:
                self._receive(connection, direction, time_ns, data)
        except Exception as error:
            self._fault(f"connection {conn}", error)
        self._recording.tick()

    def begin(self) -> NativeFeed | None:
        """For callers whose plain connection data is where the accelerator can read it (`native.RingFeed`): see
        `NativeRecorder.begin`. `end` follows, and then the remaining bytes as `data`."""
        return self._native.begin()

    def end(self, nbytes: int) -> None:
        """`nbytes` were fed to native recorders."""
        self._counts["bytes"] += nbytes
        self._native.end()
        self._recording.tick()

    def failed(self, conn: int, error: Exception) -> None:
        """A native recorder failed; treated like a fault of the decoder. Requests that waited are in the file, but are not
        known from now on."""
        connection = self._connections[conn]
        self._native.drop(connection)
        connection.broken = True
        self._fault(f"connection {conn}, its frames are no longer decoded", error)

    def skipped(self, conn: int, direction: int, time_ns: int, nbytes: int) -> None:
        """`nbytes` of the client leg are missing; they belong to the frame whose beginning came last."""
        connection = self._connection(conn, time_ns)
        try:
            if not self._native.skip(connection, direction, nbytes) and not connection.broken:
                for event in connection.decoder.skip(Direction(direction), nbytes, time_ns):
                    self._event(connection, event)
        except Exception as error:
            self._fault(f"connection {conn}", error)
        self._recording.tick()

    def cut(self, conn: int, direction: int, nbytes: int) -> bool:
        """Like `skipped`, for a capture that may lack any bytes. Returns False and does nothing if they do not belong to a
        frame whose beginning is known."""
        connection = self._connections[conn]
        if not self._native.skip(connection, direction, nbytes):
            if not connection.broken and not connection.decoder.can_skip(Direction(direction), nbytes):
                return False
            self.skipped(conn, direction, 0, nbytes)
        return True

    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None:
        """A frame as the broker sent or received it (with its size bytes), if the client's differs; it may be cut. It must
        come before the response of its exchange reaches `data`."""
        connection = self._connection(conn, time_ns)
        self._native.leave(connection)
        try:
            request = direction == Direction.REQUEST
            correlation_id = int.from_bytes(frame[8:12] if request else frame[4:8], "big", signed=True)
            connection.changed.add(correlation_id)
            waiting = connection.decoder.waiting_for(correlation_id)
            if waiting is not None:
                waiting.marks.changed = True
            api_key, api_version = -1, -1
            if request:
                api_key, api_version = (int.from_bytes(frame[i : i + 2], "big", signed=True) for i in (4, 6))
                if len(connection.asked) >= ASKED_LIMIT:
                    connection.asked.clear()
                connection.asked[correlation_id] = api_key, api_version
            elif correlation_id in connection.asked:  # another version than the client's, or no client's at all
                api_key, api_version = connection.asked.pop(correlation_id)
            elif waiting is not None:
                api_key, api_version = waiting.api_key, waiting.api_version
            kept = frame[4:] if self._snaplen is None else frame[4 : 4 + self._snaplen]
            leg = Exchange(connection=conn, api_key=api_key, api_version=api_version)
            if request:
                leg.request, leg.request_cut = kept, len(frame) - 4 - len(kept)
            else:
                leg.response, leg.response_cut = kept, len(frame) - 4 - len(kept)
            data = frame[:4] + self._masked(leg, Direction(direction), kept)
            size = int.from_bytes(frame[:4], "big")
            entry = LegFrame(conn & 0xFFFFFFFF, correlation_id, int(direction), size, 0)
            cut = 4 + size - len(data)
            self._recording.broker_leg(connection.open, time_ns, data, entry, _clean(note), cut)
        except Exception as error:
            self._fault(f"connection {conn}", error)

    def note(self, conn: int, correlation_id: int, text: str) -> None:
        """A remark on an exchange, such as the rule that answered it: a comment on its next packet."""
        connection = self._connections.get(conn)
        if connection:
            self._native.leave(connection)
            connection.notes.setdefault(correlation_id, []).append(_clean(text))

    def lost(self, conn: int, direction: int, nbytes: int, unread: int = 0) -> None:
        """`nbytes` of the client leg are missing, and `unread` more could not be read; the next data starts at a frame."""
        self._counts["lost_bytes"] += nbytes
        connection = self._connections.get(conn)
        if connection:
            self._native.leave(connection)
            connection.lost[direction] += nbytes
            connection.unread[direction] += unread
            connection.opaque[direction] = False
            connection.decoder.lost(Direction(direction))

    def missing(self, conn: int, direction: int, time_ns: int, nbytes: int, unread: int) -> None:
        """Like `lost`, for a connection from a packet capture. It is written at once, as nothing more may follow in this
        direction."""
        connection = self._connection(conn, time_ns)
        if nbytes or unread:
            self.lost(conn, direction, nbytes, unread)
        lost, unread = self._missed(connection, direction)
        if (lost or unread) and (self._wanted is None or connection.written):
            self._recording.write(connection.open, CLIENT_LEG, direction, time_ns, b"", (), lost, unread=unread)

    def awaits(self, conn: int, correlation_id: int) -> bool:
        """Whether a request waits for that response."""
        connection = self._connections.get(conn)
        return connection is not None and (connection.recorder or connection.decoder).awaits(correlation_id)

    def ended(self, conn: int, direction: int, time_ns: int) -> None:
        """One side has ended, and the other has not: `closed` follows, perhaps much later."""
        connection = self._connections.get(conn)
        if connection is None:
            return
        connection.broker_ended = direction == Direction.RESPONSE
        try:
            (self._native.give_up if connection.broker_ended else self._native.leave)(connection)
            for event in connection.decoder.broker_ended(time_ns) if connection.broker_ended else ():
                self._event(connection, event)
            if self._wanted is None or connection.written:
                self._recording.end_side(connection.open, direction, time_ns)
        except Exception as error:
            self._fault(f"connection {conn}", error)
        self._recording.tick()

    def closed(self, conn: int, time_ns: int, how: str = "fin", by: str = "") -> None:
        """The connection ended: "fin" or "rst" (anything else is written as a FIN); `by`: who ended it (`Closed`), "" if
        unknown, or if it was the proxy."""
        connection = self._connections.get(conn)
        if connection is None:
            return
        try:
            self._native.give_up(connection)
            for event in connection.decoder.close(time_ns):
                self._event(connection, event)
            if self._wanted is None or connection.written:
                self._recording.end(connection.open, time_ns, how, by, connection.broker_ended)
        except Exception as error:
            self._fault(f"connection {conn}", error)
            self._native.drop(connection)
        del self._connections[conn]
        self._recording.tick()

    def rotate(self) -> None:
        """End the segment now and continue in the next one."""
        self._recording.rotate()

    def tick(self) -> None:
        """To be called while no data comes: flush if it is time, rotate, or try a failed disk again."""
        self._recording.tick()

    def flush(self) -> None:
        """Hand everything to the operating system. This is also when segments rotate and a failed disk is tried again."""
        self._recording.tick()
        self._recording.flush()

    def close(self) -> None:
        """End the recording. Connections that are still open have no end in it; their requests are pending."""
        if self._wanted is not None:
            for connection in self._connections.values():
                for exchange in filter(self._wanted, connection.decoder.pending()):
                    self._request(connection, exchange)
        self._recording.close()

    # how it is written

    def _connection(self, conn: int, time_ns: int) -> RecordedConnection:
        if conn not in self._connections:
            self.opened(conn, time_ns)
        return self._connections[conn]

    def _in_flight(self) -> Iterator[CarriedRequest]:
        for connection in self._connections.values():
            self._native.leave(connection)
            for exchange, data in connection.in_flight.values():
                yield CarriedRequest(connection.open, exchange, data)

    def _unanswered(self) -> Iterator[RequestInFlight]:
        for connection in self._connections.values():
            yield from self._native.unanswered(connection)

    def _fast(
        self, connection: RecordedConnection, direction: int, time_ns: int, data: bytes | bytearray | memoryview
    ) -> bytes | bytearray | memoryview:
        """The part of a chunk that the native recorder does not take."""
        if self._wanted is not None:
            return data
        try:
            return self._native.take(connection, direction, time_ns, data)
        except Exception as error:
            self.failed(connection.open.number, error)
            return data

    def _receive(
        self, connection: RecordedConnection, direction: int, time_ns: int, data: bytes | bytearray | memoryview
    ) -> None:
        try:
            if direction == Direction.REQUEST:
                events = connection.decoder.receive_from_client(data, time_ns)
            else:
                events = connection.decoder.receive_from_broker(data, time_ns)
        except Exception as error:
            # The decoder's state is no longer to be trusted: keep the bytes, give up the frames.
            connection.broken = True
            self._fault(f"connection {connection.open.number}, its frames are no longer decoded", error)
            self._opaque(connection, Opaque(Direction(direction), bytes(data), time_ns, "not decoded"))
            return
        for event in events:
            self._event(connection, event)

    def _event(self, connection: RecordedConnection, event: RequestSeen | ExchangeDone | Opaque) -> None:
        if self._wanted is not None:
            if isinstance(event, ExchangeDone) and self._wanted(event.exchange):
                connection.written = True
                if event.exchange.request is not None:
                    self._request(connection, event.exchange)
                self._done(connection, event.exchange)
        elif isinstance(event, RequestSeen):
            self._request(connection, event.exchange)
        elif isinstance(event, ExchangeDone):
            self._done(connection, event.exchange)
        else:
            self._opaque(connection, event)

    def _request(self, connection: RecordedConnection, exchange: Exchange) -> None:
        frame = exchange.request or b""
        frame = self._masked(exchange, Direction.REQUEST, frame)
        data = _sized(frame, exchange.request_cut)
        if exchange.correlation_id in connection.changed:
            exchange.marks.changed = True
        exchange.marks.request_offset = self._frame(connection, exchange, 0, exchange.request_time_ns or 0, data)
        connection.in_flight[id(exchange)] = exchange, data

    def _done(self, connection: RecordedConnection, exchange: Exchange) -> None:
        if exchange.response is not None:
            data = _sized(self._masked(exchange, Direction.RESPONSE, exchange.response), exchange.response_cut)
            time_ns = exchange.response_time_ns or 0
            exchange.marks.response_offset = self._frame(connection, exchange, 1, time_ns, data)
        flags = self._recording.done(exchange)
        connection.in_flight.pop(id(exchange), None)
        connection.notes.pop(exchange.correlation_id, None)
        connection.changed.discard(exchange.correlation_id)
        self._counts["exchanges"] += 1
        if not flags & UNDECODED and exchange.error:
            self._counts["errors"] += 1
        if flags & UNDECODED:
            self._counts["undecoded"] += 1
            self._recording.notify("undecoded", f"connection {exchange.connection}, {exchange!r}: {_reason(exchange)}")

    def _frame(self, connection: RecordedConnection, exchange: Exchange, direction: int, time_ns: int, data: bytes) -> int:
        notes = connection.notes.pop(exchange.correlation_id, [])
        self._counts["frames"] += 1
        lost, unread = self._missed(connection, direction)
        cut = exchange.response_cut if direction else exchange.request_cut
        offset = self._recording.write(connection.open, CLIENT_LEG, direction, time_ns, data, tuple(notes), lost, cut, unread)
        if notes:  # after the writing: if that began a segment, the request was carried over without them
            exchange.marks.notes = [*exchange.marks.notes, *notes]
        return offset

    @staticmethod
    def _missed(connection: RecordedConnection, direction: int) -> tuple[int, int]:
        """The bytes that are missing in front of the next packet, and those that were not read; that packet reports them."""
        missed = connection.lost[direction], connection.unread[direction]
        connection.lost[direction] = connection.unread[direction] = 0
        return missed

    def _opaque(self, connection: RecordedConnection, event: Opaque) -> None:
        direction, data = event.direction, event.data
        self._counts["opaque_bytes"] += len(data)
        if self._redact and not event.framed:
            data = self._opaque_masked(connection, direction, data)
        if event.framed:
            data = _sized(data)
        elif not connection.opaque[direction]:
            connection.opaque[direction] = True
            self._recording.notify("undecoded", f"connection {connection.open.number}: {event.reason}")
        comments = (f"{MARK}opaque, {_clean(event.reason)}",)
        for start in range(0, len(data), MAX_PAYLOAD):
            part, (lost, unread) = data[start : start + MAX_PAYLOAD], self._missed(connection, direction)
            self._recording.write(connection.open, CLIENT_LEG, direction, event.time_ns, part, comments, lost, unread=unread)

    @staticmethod
    def _opaque_masked(connection: RecordedConnection, direction: int, data: bytes) -> bytes:
        """Bytes that are not frames: secrets may be anywhere in them. The first ones stay, and of TLS the heads of records and alerts in
        clear, which say why a handshake failed."""
        first = not connection.opaque[direction]
        if first:
            connection.tls[direction] = TlsRecords() if starts_tls(data) else None
        keep = secrets.KEPT if first else 0
        masked = bytearray(data[:keep] + secrets.MASK * max(len(data) - keep, 0))
        tls = connection.tls[direction]
        if tls is not None:
            for part in tls.feed(data)[1]:
                masked[part] = data[part]
        return bytes(masked)

    def _masked(self, exchange: Exchange, direction: Direction, frame: bytes) -> bytes:
        """A frame of an exchange as it is written."""
        if not self._redact:
            return frame
        try:
            return exchange.masked(direction)
        except Exception as error:  # a fault of the decoder must not end the recording, nor let a secret out
            self._fault(f"masking {exchange!r}, the whole body is masked instead", error)
            return secrets.mask_behind_header(direction, frame)

    def _fault(self, where: str, error: Exception) -> None:
        contained("recording a connection", error, reported=True)
        self._counts["undecoded"] += 1
        self._recording.notify("error", f"{where}: {type(error).__name__}: {error}")


def _sized(frame: bytes, cut: int = 0) -> bytes:
    return (len(frame) + cut).to_bytes(4, "big") + frame


def _clean(text: str) -> str:
    """One line without control characters, and not to be taken for one of our own comments."""
    line = _CONTROL.sub(" ", text)
    return " " + line if line.startswith(MARK) else line


def _reason(exchange: Exchange) -> str:
    try:
        return exchange.undecoded or "cannot be decoded"
    except Exception as error:  # a fault of the decoder must not end a recording
        contained("decoding an exchange that is reported", error, reported=True)
        return f"{type(error).__name__}: {error}"
