"""The live feed's reader, sans-IO: datagrams in, events out.

Nothing in a datagram is trusted: malformed ones are counted and dropped, and nothing is kept from one to the next but numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ....captures import Row
from ....captures.reading.capture import row_of
from ....captures.recording.index import RECORD, STATE_MASK, STATES, ConnectionEntry, Index, Record
from ....decoder import State
from ....errors import BarnabasError
from . import layout
from .layout import HEADER, RENEW_SECONDS, DatagramKind, Header, SubscriptionRefusal, Totals

_ASK_AGAIN_SECONDS = 1.0


class FeedError(BarnabasError):
    """The feed cannot be read; the text is one line for the user."""


class IndexRecords:
    """Exchanges as index records. Iterate for `Record` tuples; `data` holds their bytes (for numpy:
    `numpy.frombuffer(batch.data, captures.recording.index.DTYPE)`). `index`: the same with strings and connections. `position`: the
    number of the first one since the start. struct.error for bytes that are no strings of an index."""

    __slots__ = ("data", "index", "position")

    def __init__(self, data: bytes, header: Header) -> None:
        end = HEADER.size + header.items * RECORD.size
        self.data, self.position = data[HEADER.size : end], header.position
        self.index = Index.of_bytes(self.data, data[end:])
        self.index.now_ns = header.time_ns

    def __len__(self) -> int:
        return self.index.count

    def __iter__(self) -> Iterator[Record]:
        return map(Record._make, RECORD.iter_unpack(self.data))

    def client_id(self, record: Record) -> str | None:
        """The client id of an exchange; None if it has none."""
        return self.index.string(record.client_id)

    def connection(self, record: Record) -> ConnectionEntry | None:
        """The two ends of an exchange's connection."""
        return self.index.connections.get(record.connection)

    def rows(self) -> Iterator[Row]:
        """The exchanges as a capture's list gives them (without places in a file), numbered since the start."""
        for number, record in enumerate(map(without_places, self), self.position):
            waits = STATES[record.flags & STATE_MASK] is State.PENDING
            yield row_of(number, 0, self.index, record, waits)._replace(request_offset=None, response_offset=None)


class Batch(IndexRecords):
    """Exchanges that were done."""

    __slots__ = ()


class Waiting(IndexRecords):
    """Requests that have waited for their responses for a second or longer, the oldest first. They come before each `Totals`, and are
    then all that wait."""

    __slots__ = ()


def without_places(record: Record) -> Record:
    """The record with offsets that point nowhere: 0 where there is such a frame, -1 where there is none."""
    state = STATES[record.flags & STATE_MASK]
    request_at = -1 if state is State.ORPHAN else 0
    return record._replace(request_offset=request_at, response_offset=0 if state in (State.PAIRED, State.ORPHAN) else -1)


@dataclass(frozen=True, slots=True)
class Joined:
    """Subscribed. Another `epoch` means that the proxy was restarted."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Missed:
    """`records` were sent and did not arrive here, in `datagrams` lost ones (which include totals and requests in flight)."""

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
        self._epoch = self._sequence = self._position = 0
        self._next_hello = 0.0

    def due(self, now: float) -> bool:
        """Whether it is time to send `hello` (again)."""
        return now >= self._next_hello

    def until_due(self, now: float) -> float:
        """Seconds until then."""
        return max(self._next_hello - now, 0.0)

    def hello(self, now: float) -> bytes:
        """A datagram that subscribes or renews."""
        self._next_hello = now + (RENEW_SECONDS if self.joined else _ASK_AGAIN_SECONDS)
        return Header(DatagramKind.HELLO, len(self._token)).pack() + self._token

    def bye(self) -> bytes:
        """A datagram that ends the subscription."""
        return Header(DatagramKind.BYE, len(self._token)).pack() + self._token

    def receive(self, data: bytes) -> list[FeedEvent]:
        """The events in a datagram. FeedError when the feed refuses the subscription."""
        header, records = layout.parse(data), None
        try:
            if header is not None and header.kind in (DatagramKind.BATCH, DatagramKind.WAITING):
                records = (Batch if header.kind == DatagramKind.BATCH else Waiting)(data, header)
        except struct.error:
            header = None
        if header is None or header.kind in (DatagramKind.HELLO, DatagramKind.BYE):
            self.malformed += 1
            return []
        if header.kind == DatagramKind.REFUSED:
            if not self.joined:
                raise FeedError(_REFUSALS.get(header.items, "the feed refuses this subscription"))
            return []
        if header.epoch < self._epoch:
            return []  # of an earlier start, late
        events: list[FeedEvent] = []
        if header.epoch > self._epoch or not self.joined:
            self.joined = True
            self._epoch, self._sequence, self._position = header.epoch, header.sequence, header.position
            events.append(Joined(header.epoch))
        if header.position < self._position or header.sequence < self._sequence:
            return events  # late: it was counted as missed
        if header.position > self._position or header.sequence > self._sequence:
            events.append(Missed(header.position - self._position, header.sequence - self._sequence))
        self._sequence, self._position = header.sequence, header.position
        if records is None:
            events.append(layout.parse_totals(data))
        elif not len(records):
            return events  # an answer to `hello`, for this subscriber only
        elif header.kind == DatagramKind.BATCH:
            self._position += header.items
        if records is not None:
            events.append(records)
        self._sequence += 1
        return events


_REFUSALS: dict[int, str] = {
    SubscriptionRefusal.TOKEN: "the feed does not know this token; give the one that the proxy was started with",
    SubscriptionRefusal.FULL: "the feed has the maximum number of subscribers; end one of them",
}
