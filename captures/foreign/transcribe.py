"""Writing the frames of a foreign capture into a recording, as the recorder would have written them.

Only whole frames are written. Everything else in the connections is kept too: other protocols and SASL tokens as opaque packets,
missing bytes as gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...decoder import Direction, Exchange, State, Topics
from ...decoder.codec import secrets
from ...decoder.codec.project import Skim
from ...decoder.codec.secrets import mask_token
from ...decoder.connection.api_versions import PeerInfo
from ...decoder.connection.events import NEVER_ESTABLISHED
from ...diagnostics import contained
from ..pcap.flows import Flow, FlowClosed, FlowOpened
from ..pcap.packet_comments import BOTH_LEGS, MARK
from ..pcap.packets import MAX_PAYLOAD, show_address
from ..pcap.sources import Ends
from ..recording.in_flight import CarriedRequest, OpenConnection
from ..recording.index import CARRIED, STATES, SURPLUS, UNDECODED, IndexEncoder
from ..recording.recording import Recording
from ..recording.segment import CLIENT_LEG
from .frame_pieces import FramePieces
from .skim import TOKEN, Conversation, HalfConversation, PlainRequest, Skimmer

Wanted = Callable[[Exchange], bool]
_PAIRED, _PENDING = STATES.index(State.PAIRED), STATES.index(State.PENDING)


class TranscriberInput:
    """The `scan.StreamConsumer` of a transcriber."""

    def __init__(self, writer: Transcriber) -> None:
        self._writer = writer
        self.data, self.cut, self.frames = writer.data, writer.cut_bytes, writer.frames

    def opened(self, event: FlowOpened) -> tuple[HalfConversation, HalfConversation]:
        return self._writer.opened(event).halves

    def gap(self, half: HalfConversation, size: int, unread: int) -> None:
        self._writer.gap(half)
        self._writer.lose(half.conversation, half.direction, size, unread)

    def unseen(self, half: HalfConversation, size: int, unread: int, time_ns: int) -> None:
        self._writer.unseen(half, size, unread, time_ns)

    def closed(self, flow: Flow, event: FlowClosed) -> None:
        half = flow.sides[0].half
        if half is not None:
            self._writer.closed(half.conversation, event)

    def awaits(self, flow: Flow, correlation_id: int) -> bool:
        half = flow.sides[0].half
        return half is not None and self._writer.awaits(half.conversation, correlation_id)


class _Connection:
    """The state for writing the packets of a connection."""

    __slots__ = ("about", "lost", "open", "unread", "written")

    def __init__(self, number: int, event: FlowOpened, tls: frozenset[str]) -> None:
        flow = event.flow
        upstream = ("barnabas", 1024 + number % 64000)
        self.open = OpenConnection(number, event.time_ns, flow.client, flow.broker, upstream, tls=tls, imported=True)
        self.lost, self.unread = [0, 0], [0, 0]
        self.written = [False, False]
        self.about = PeerInfo()


class Transcriber(Skimmer):
    """A skimmer that keeps the frames of requests until they are answered, and writes frames instead of places.

    `wanted` picks exchanges; without it everything goes over. `redact` masks secrets. `recording` and `read_pieces` (from
    the scanner) are set before the first frame.
    """

    recording: Recording
    indexes = False

    def __init__(self, redact: bool, wanted: Wanted | None) -> None:
        super().__init__(IndexEncoder(), FramePieces(keep=False), lambda pieces: self.read_pieces(pieces))
        self.decrypted: frozenset[Ends] = frozenset()
        """The connections that are TLS in the file that is read now, and were decrypted."""
        self.read_pieces: Callable[[list[tuple[int, int]]], bytes] = lambda pieces: b""
        self.counts = {"connections": 0, "exchanges": 0, "frames": 0}
        self.frames_cut = self.unseen_bytes = self._frames_counted = 0
        self._redact, self._wanted = redact, wanted
        self._topics = Topics()
        self._connections: dict[int, _Connection] = {}
        self._now: tuple[Conversation, PlainRequest] | None = None  # what is being written, and waits no more
        self._secret_requests: dict[int, bytes] = {}
        """Requests with secrets until they are answered: brokers quote what they refuse. By the id of what waits."""
        if self.frames is not None:
            self.frames.writes = wanted is None

    @property
    def totals(self) -> dict[str, int]:
        """Counts of everything written, the accelerator's share included."""
        if self.frames is None:
            return self.counts
        return self.counts | {name: self.counts[name] + getattr(self.frames, name) for name in ("frames", "exchanges")}

    # the accelerator writes ordinary frames by itself

    def skimmed(self, direction: int, key: int, version: int) -> Skim | None:
        """None also for what may hold secrets: such frames are masked here."""
        if self._redact and any(secrets.concerns(way, key, version) for way in Direction):
            return None
        return super().skimmed(direction, key, version)

    def look_after(self) -> None:
        """The segment has changed: the accelerator asks before its next frame."""
        if self.frames is not None:
            self.frames.stop = 0

    def count_frames(self) -> None:
        """Add the accelerator's frames to those that the segment would lose if it could not be written."""
        if self.frames is not None:
            self.recording.unflushed_frames(self.frames.frames - self._frames_counted)
            self._frames_counted = self.frames.frames

    def _segment_ready(self, conversation: Conversation) -> bool:
        """What the recording does before a frame; whether the accelerator may write frames of this connection."""
        recording, connection = self.recording, self._connections[conversation.number].open
        self.count_frames()
        segment = recording.ready()
        if segment is None:
            return False
        recording.sync(segment)
        recording.known(segment, connection)
        self.frames.write_to(segment.buffer, recording.index.records, segment.number, segment.flushed, recording.stop)
        self.frames.attach(conversation, *segment.headers(conversation.number))
        return True

    def _indexed(self, client_id: int) -> int:
        """The number of a client id in the index of the segment."""
        return self.recording.index.string(self.encoder.strings_by_id[client_id])

    # connections

    def opened(self, event: FlowOpened) -> Conversation:
        number = event.flow.number
        tls = BOTH_LEGS if frozenset(event.flow.ends) in self.decrypted else frozenset()
        connection = self._connections[number] = _Connection(number, event, tls)
        self.counts["connections"] += 1
        if self._wanted is None:
            if not event.established:
                connection.open = connection.open._replace(failed="refused")
            else:
                self.recording.open(connection.open)
        return self.open(number)

    def closed(self, conversation: Conversation, event: FlowClosed) -> None:
        self.close(conversation)
        connection = self._connections.pop(conversation.number)
        if event.how in NEVER_ESTABLISHED:
            connection.open = connection.open._replace(failed=event.how)
            if self._wanted is None:
                self.recording.open(connection.open)
        if self._wanted is None or connection.written[0]:
            how = "rst" if event.how in NEVER_ESTABLISHED else event.how
            self.recording.end(connection.open, event.time_ns, how, event.by)

    def finish(self) -> None:
        """Requests that still wait are pending, also for a filter."""
        if self._wanted is not None:
            for conversation, pending in self.pending():
                self._picked(conversation, pending, _PENDING)
            self._conversations.clear()

    def lose(self, conversation: Conversation, direction: int, size: int, unread: int = 0) -> None:
        connection = self._connections[conversation.number]
        connection.lost[direction] += size
        connection.unread[direction] += unread
        conversation.lossy = True
        connection.written[direction] = False

    def unseen(self, half: HalfConversation, size: int, unread: int, time_ns: int) -> None:
        """Write the number of bytes missing at the end of a direction as a packet without bytes."""
        connection = self._connections[half.conversation.number]
        connection.lost[half.direction] += size
        connection.unread[half.direction] += unread
        self.unseen_bytes += size + unread
        if not (connection.lost[half.direction] or connection.unread[half.direction]) or connection.open.failed:
            return
        if self._wanted is None or connection.written[0]:
            self._write(half.conversation, half.direction, time_ns, b"")

    # the recording asks

    def in_flight(self) -> Iterator[CarriedRequest]:
        """The requests that were written and have no response yet."""
        self.look_after()  # the segment ends, or is given up
        waiting = [] if self._wanted is not None else self.pending()
        if self._now:
            waiting = sorted([self._now, *waiting], key=lambda pair: (pair[1].time_ns, pair[0].number))
        for conversation, pending in waiting:
            if pending.kept is None or pending.place < 0:
                continue
            data, exchange = pending.kept
            if exchange is None:
                exchange = self._exchange(conversation, pending, data)
                exchange.marks.request_offset = pending.place
                pending.kept = data, exchange
            yield CarriedRequest(self._connections[conversation.number].open, exchange, data)

    def _exchange(self, conversation: Conversation, pending: PlainRequest, data: bytes) -> Exchange:
        connection = self._connections[conversation.number]
        return Exchange(
            connection=conversation.number,
            client=show_address(connection.open.client),
            broker=show_address(connection.open.broker),
            api_key=pending.api_key,
            api_version=pending.api_version,
            correlation_id=pending.correlation_id,
            client_id=self.encoder.strings_by_id[pending.client_id],
            request=data[4:],
            request_time_ns=pending.time_ns,
            topics=self._topics,
            about=connection.about,
        )

    # frames

    def _masked(self, pending: PlainRequest, direction: Direction, data: bytes, flags: int) -> bytes:
        """A frame, its 4 size bytes first, as it is written; `flags` are those of its record."""
        key, version = pending.api_key, pending.api_version
        odd = flags & (UNDECODED | SURPLUS) or key < 0 or key in secrets.FETCHES or secrets.concerns(direction, key, version)
        if not self._redact or not odd:
            return data
        exchange = Exchange(api_key=key, api_version=version, request=self._secret_requests.get(id(pending)))
        if direction is Direction.REQUEST:
            exchange.request = data[4:]
        else:
            exchange.response = data[4:]
        return data[:4] + self._without_secrets(exchange, direction)

    def _without_secrets(self, exchange: Exchange, direction: Direction) -> bytes:
        frame = (exchange.response if direction is Direction.RESPONSE else exchange.request) or b""
        if not self._redact:
            return frame
        try:
            return exchange.masked(direction)
        except Exception as error:  # a fault of the decoder must not end the import, nor let a secret out
            contained("masking an imported frame", error)
            return secrets.mask_behind_header(direction, frame)

    def _write(self, conversation: Conversation, direction: int, time_ns: int, data: bytes, comments: tuple[str, ...] = ()) -> int:
        connection = self._connections[conversation.number]
        self.count_frames()
        lost, connection.lost[direction] = connection.lost[direction], 0
        unread, connection.unread[direction] = connection.unread[direction], 0
        conversation.lossy = any(connection.lost) or any(connection.unread)
        self.counts["frames"] += bool(data)
        return self.recording.write(connection.open, CLIENT_LEG, direction, time_ns, data, comments, lost, unread=unread)

    def _ask(self, conversation: Conversation, pending: PlainRequest, data: bytes) -> None:
        if self._wanted is not None:
            pending.kept = data, None
            return
        masked = self._masked(pending, Direction.REQUEST, data, pending.flags)
        if self._redact and secrets.concerns(Direction.REQUEST, pending.api_key, pending.api_version):
            self._secret_requests[id(pending)] = data[4:]  # its answer comes here too, and takes it out (`_record`)
        pending.kept = masked, None
        pending.place = self._write(conversation, 0, pending.time_ns, masked)

    def _wait(self, conversation: Conversation, pending: PlainRequest, data: bytes) -> None:
        pending.place = -1
        self._ask(conversation, pending, data)
        super()._wait(conversation, pending, data)

    def _alone(self, conversation: Conversation, pending: PlainRequest, data: bytes) -> None:
        pending.place = -1
        self._ask(conversation, pending, data)
        super()._alone(conversation, pending, data)

    def _pair(
        self, conversation: Conversation, pending: PlainRequest, time_ns: int, data: bytes, place: int, size: int, error: int, flags: int,
        state: int = _PAIRED,
    ) -> None:  # fmt: skip
        if self._wanted is not None:
            self._picked(conversation, pending, state, time_ns, data)
            return
        masked = self._masked(pending, Direction.RESPONSE, data, flags)
        if pending.kept is not None:
            self._now = conversation, pending  # should the segment rotate now, its request goes over to the next one
        place = self._write(conversation, 1, time_ns, masked)
        self._now = None
        self._record(conversation, pending, state, time_ns, place, size, error, flags)

    def _picked(self, conversation: Conversation, pending: PlainRequest, state: int, time_ns: int = -1, data: bytes = b"") -> None:
        """An exchange is done, and the filter decides."""
        request = pending.kept[0] if pending.kept else b""
        exchange = self._exchange(conversation, pending, request)
        if not request:
            exchange.request = exchange.request_time_ns = None
        exchange.state = STATES[state]
        if data:
            exchange.response, exchange.response_time_ns = data[4:], time_ns
        self._topics.learn(exchange)
        exchange.about.learn(exchange)  # type: ignore[union-attr]
        assert self._wanted is not None
        if not self._wanted(exchange):
            return
        self._connections[conversation.number].written[0] = True  # it is in the recording: so is its end
        if request:
            masked = request[:4] + self._without_secrets(exchange, Direction.REQUEST)
            pending.place = self._write(conversation, 0, pending.time_ns, masked)
            pending.kept = masked, None
        if data:
            masked = data[:4] + self._without_secrets(exchange, Direction.RESPONSE)
            self._now = (conversation, pending) if request else None
            exchange.marks.response_offset = self._write(conversation, 1, time_ns, masked)
            self._now = None
        carried = pending.kept[1] if pending.kept else None
        exchange.marks.request_offset = pending.place
        if carried is not None:
            exchange.marks.request_offset, exchange.marks.carried = carried.marks.request_offset, carried.marks.carried
        self.recording.done(exchange)
        self.counts["exchanges"] += 1

    def _record(
        self, conversation: Conversation, pending: PlainRequest, state: int, time_ns: int = -1, place: int = -1, size: int = 0, error: int = 0,
        flags: int = 0,
    ) -> int:  # fmt: skip
        if self._wanted is not None:
            self._picked(conversation, pending, state)
            return -1
        self._secret_requests.pop(id(pending), None)
        kept = pending.kept
        if kept is not None and kept[1] is not None:
            pending.place = kept[1].marks.request_offset
            if kept[1].marks.carried:
                pending.flags |= CARRIED
        self.counts["exchanges"] += 1
        if max(pending.place, place) < 0:
            return -1
        self.recording.index.records += self._packed(
            conversation, pending, state, time_ns, place, size, error, flags,
            self._indexed(pending.client_id),
        )  # fmt: skip
        return -1

    # what is no frame

    def cut_bytes(self, half: HalfConversation, size: int) -> bool:
        """A frame of which not all was captured is left out."""
        if not self.cut(half, size):
            self.lose(half.conversation, half.direction, size)
            return False
        return True

    def _holed(self, half: HalfConversation, time_ns: int, data: bytes, place: int, size: int) -> None:
        self.frames_cut += 1
        self.lose(half.conversation, half.direction, size + 4)

    def _non_kafka(self, conversation: Conversation, direction: int, time_ns: int, data: bytes, reason: str) -> None:
        connection = self._connections[conversation.number]
        if self._wanted is not None:
            return
        if reason == TOKEN:
            data = data[:4] + mask_token(data[4:])
        elif self._redact:
            keep = 0 if connection.written[direction] else secrets.KEPT
            data = data[:keep] + secrets.MASK * max(len(data) - keep, 0)
            connection.written[direction] = True
        comments = (f"{MARK}opaque, {reason or 'more of the same'}",)
        for start in range(0, len(data), MAX_PAYLOAD):
            self._write(conversation, direction, time_ns, data[start : start + MAX_PAYLOAD], comments)
