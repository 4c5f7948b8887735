"""The live feed's reader, sans-IO: datagrams in, events out.

Nothing in a datagram is trusted: malformed ones are counted and dropped, and everything that is kept is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....captures import Row
from ....captures.recording.index import (
    _CONNECTION,
    _CONNECTION_ENTRY,
    _ENTRY,
    _STRING,
    CARRIED,
    CHANGED,
    CUT,
    NOTED,
    RECORD,
    STATE_MASK,
    STATES,
    SURPLUS,
    UNDECODED,
    ConnectionEntry,
    Record,
)
from ....decoder import State
from ....errors import BarnabasError
from . import layout
from .layout import HEADER, RENEW_SECONDS, DatagramKind, Header, Hello, SubscriptionRefusal, Totals

_ASK_AGAIN_SECONDS = 1.0
_MAX_ENTRY = 8192
_PENDING = STATES.index(State.PENDING)


class FeedError(BarnabasError):
    """The feed cannot be read; the text is one line for the user."""


class FeedDictionary:
    """A dictionary: strings by id, connections by number. Grows as its pieces arrive."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes so far, without a gap."""
        self.strings: list[str | None] = [None]
        self.connections: dict[int, ConnectionEntry] = {}
        self._rest = b""
        self._broken = False

    def take(self, offset: int, data: bytes) -> None:
        """Add a piece that begins at `offset`. Known bytes are skipped; a piece after a gap is dropped."""
        known = self.size - offset
        if not 0 <= known < len(data) or self.size + len(data) > layout.MAX_DICTIONARY or self._broken:
            return
        self.size += len(data) - known
        data = self._rest + data[known:]
        at = 0
        while at + _ENTRY.size <= len(data):
            size, kind, _ = _ENTRY.unpack_from(data, at)
            if size > _MAX_ENTRY:
                self._broken = True  # no entry is so long: the rest cannot be read
                return
            end = at + _ENTRY.size + size
            if end > len(data):
                break
            self._entry(kind, data[at + _ENTRY.size : end])
            at = end
        self._rest = data[at:]

    def _entry(self, kind: int, content: bytes) -> None:
        if kind == _STRING:
            self.strings.append(content.decode("utf-8", "replace"))
        elif kind == _CONNECTION and len(content) == _CONNECTION_ENTRY.size:
            number, _, opened_ns, client, broker = _CONNECTION_ENTRY.unpack(content)
            entry = ConnectionEntry(opened_ns, self.string(client) or "", self.string(broker) or "")
            self.connections[number] = entry

    def string(self, number: int) -> str | None:
        """None for 0 (null) and for what has not arrived."""
        return self.strings[number] if number < len(self.strings) else None


class IndexRecords:
    """Exchanges as index records. Iterate for `Record` tuples; `data` holds their bytes (for numpy:
    `numpy.frombuffer(batch.data, captures.index.DTYPE)`). `position`: the number of the first one since the start."""

    __slots__ = ("data", "names", "position", "time_ns")

    def __init__(self, data: bytes, position: int, time_ns: int, names: FeedDictionary) -> None:
        self.data, self.position, self.time_ns, self.names = data, position, time_ns, names

    def __len__(self) -> int:
        return len(self.data) // RECORD.size

    def __iter__(self) -> Iterator[Record]:
        return map(Record._make, RECORD.iter_unpack(self.data))

    def client_id(self, record: Record) -> str | None:
        """The client id of an exchange; None if it has none, or its name has not arrived yet."""
        return self.names.string(record.client_id)

    def connection(self, record: Record) -> ConnectionEntry | None:
        """The two ends of an exchange's connection; None if they have not arrived yet."""
        return self.names.connections.get(record.connection)

    def rows(self) -> Iterator[Row]:
        """The exchanges as a capture's list gives them (without places in a file), numbered since the start."""
        for number, record in enumerate(self, self.position):
            waits = record.flags & STATE_MASK == _PENDING
            waiting_ns = max(self.time_ns - record.time_ns, 0) if waits else None
            yield _row(number, record, self.client_id(record), self.connection(record), waiting_ns)


class Batch(IndexRecords):
    """Exchanges that were done."""

    __slots__ = ()


class Waiting(IndexRecords):
    """Requests that have waited for their responses for a second or longer, the oldest first. They come before each `Totals`, and are
    then all that wait."""

    __slots__ = ()


def _row(number: int, record: Record, client_id: str | None, ends: ConnectionEntry | None, waiting_ns: int | None = None) -> Row:
    flags = record.flags
    state = STATES[flags & STATE_MASK]
    return Row(
        number=number,
        time_ns=record.time_ns,
        latency_ns=record.latency_ns if record.latency_ns >= 0 else None,
        connection=record.connection,
        client=ends.client if ends else "",
        broker=ends.broker if ends else "",
        api_key=record.api_key,
        api_version=record.api_version,
        correlation_id=record.correlation_id,
        client_id=client_id,
        request_size=None if state is State.ORPHAN else record.request_size,
        response_size=record.response_size if state in (State.PAIRED, State.ORPHAN) else None,
        error=record.error,
        state=state,
        undecoded=bool(flags & UNDECODED),
        changed=bool(flags & CHANGED),
        noted=bool(flags & NOTED),
        surplus=bool(flags & SURPLUS),
        carried=bool(flags & CARRIED),
        segment=0,
        request_offset=None,
        response_offset=None,
        cut=bool(flags & CUT),
        waiting_ns=waiting_ns,
    )


@dataclass(frozen=True, slots=True)
class Joined:
    """Subscribed. Another `epoch` means that the proxy was restarted."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Missed:
    """`records` were sent and did not arrive here, in `datagrams` lost ones (which include totals)."""

    records: int
    datagrams: int


FeedEvent = Batch | Waiting | Totals | Missed | Joined


class FeedReader:
    """Datagrams in, events out; `hello` gives what to send, whenever `due`. Times: seconds of one clock."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        if len(self._token) > layout.MAX_TOKEN:
            raise FeedError(f"the token is longer than {layout.MAX_TOKEN} bytes")
        self.malformed = 0
        """Datagrams that were none of a feed."""
        self.joined = False
        self._epoch = 0
        self._sequence = 0
        self._position = 0
        self._generation = 0
        self._names = FeedDictionary()
        self._next_hello = 0.0

    def due(self, now: float) -> bool:
        """Whether it is time to send `hello` (again)."""
        return now >= self._next_hello

    def until_due(self, now: float) -> float:
        """Seconds until then."""
        return max(self._next_hello - now, 0.0)

    def hello(self, now: float) -> bytes:
        """A datagram that subscribes or renews, and names the missing strings."""
        self._next_hello = now + (RENEW_SECONDS if self.joined else _ASK_AGAIN_SECONDS)
        return Hello(DatagramKind.HELLO, self._generation, self._names.size, self._token).pack()

    def bye(self) -> bytes:
        """A datagram that ends the subscription."""
        return Hello(DatagramKind.BYE, 0, 0, self._token).pack()

    def receive(self, data: bytes, now: float = 0.0) -> list[FeedEvent]:
        """The events in a datagram. FeedError when the feed refuses the subscription."""
        header = layout.parse(data)
        if header is None:
            self.malformed += 1
            return []
        if header.kind == DatagramKind.REFUSED:
            if not self.joined:
                raise FeedError(_REFUSALS.get(header.items, "the feed refuses this subscription"))
            return []
        events: list[FeedEvent] = []
        if header.epoch != self._epoch:
            if header.epoch < self._epoch or header.kind not in (DatagramKind.WELCOME, DatagramKind.BATCH, DatagramKind.TOTALS):
                return []  # of an earlier start, late; or not enough to begin with
            self._begin(header)
            events.append(Joined(header.epoch))
        if header.generation != self._generation and not self._take_next_dictionary(header):
            return events
        if header.kind == DatagramKind.STRINGS:
            self._names.take(header.position, data[HEADER.size :])
            return events
        if header.position < self._position or header.sequence < self._sequence:
            return events  # late: it was counted as missed
        if header.position > self._position or header.sequence > self._sequence:
            events.append(Missed(header.position - self._position, header.sequence - self._sequence))
        self._sequence, self._position = header.sequence, header.position
        if header.strings > self._names.size:
            self._next_hello = min(self._next_hello, now + _ASK_AGAIN_SECONDS)
        if header.kind == DatagramKind.BATCH:
            self._sequence += 1
            self._position += header.items
            events.append(Batch(data[HEADER.size :], header.position, header.time_ns, self._names))
        elif header.kind == DatagramKind.WAITING:
            events.append(Waiting(data[HEADER.size :], header.position, header.time_ns, self._names))
        elif header.kind == DatagramKind.TOTALS:
            self._sequence += 1
            events.append(layout.parse_totals(data))
        return events

    def _begin(self, header: Header) -> None:
        self.joined = True
        self._epoch, self._sequence, self._position = header.epoch, header.sequence, header.position
        self._generation, self._names = header.generation, FeedDictionary()

    def _take_next_dictionary(self, header: Header) -> bool:
        """Take the next dictionary. False if the datagram is late."""
        if (header.generation - self._generation) % (1 << 32) >= 1 << 31:
            return False
        self._generation, self._names = header.generation, FeedDictionary()
        return True


_REFUSALS: dict[int, str] = {
    SubscriptionRefusal.TOKEN: "the feed does not know this token; give the one that the proxy was started with",
    SubscriptionRefusal.FULL: "the feed has the maximum number of subscribers; end one of them",
}
