"""What happened on the connections of one closed segment, in order, told from its index.

The same story as `Happenings` tells from the packets; exchanges are `Foreseen`, because the index says what comes of them, so
that nobody has to decode what does not concern him.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from ..decoder import DecodeError, Exchange, State, Topics, decode_request_header, facts
from ..decoder.about import About
from ..decoder.connection import PRODUCE, expects_no_response
from ..decoder.findings.foreseen import SAME, UNREAD, Foreseen
from ..decoder.happening import Closed, Happening, Opened
from .index import CUT, MAX_STRING, STATE_MASK, STATES, SURPLUS, UNDECODED, Record
from .outline import Outline, Unlike

_BLOCK = 1 << 14
_NO_RESPONSE, _ORPHAN = STATES.index(State.NO_RESPONSE), STATES.index(State.ORPHAN)
_TOPICS = frozenset(map(facts.api_key, ("Metadata", "CreateTopics", "DescribeTopicPartitions")))
_API_VERSIONS = facts.api_key("ApiVersions")


_Frame = tuple[int, int, int, bool, bool, tuple[Any, ...]]
"""Row, side, where its content begins, whether it is simple, whether its exchange is plain (see `Outline.read`), the record."""


class _Link:
    """A connection: what waits for an answer (rows and exchanges, in order), and what was said last, by kind of request."""

    __slots__ = ("about", "broker", "client", "said", "waiting")

    def __init__(self, client: str, broker: str) -> None:
        self.client, self.broker = client, broker
        self.about = About()
        self.waiting: deque[tuple[int, Foreseen]] = deque()
        self.said: dict[tuple[int, int, int], tuple[bytes, bytes]] = {}


class Listener(Protocol):
    """Who is told: a `findings.Inspector`, for one."""

    def request(self, exchange: Exchange) -> None: ...
    def done(self, exchange: Exchange) -> None: ...
    def feed(self, happening: Happening) -> None: ...


class Foretelling:
    """`tell` once. Raises `Unlike` where the index is not like the file, at the latest while it is told."""

    def __init__(self, outline: Outline) -> None:
        self._outline, self._file = outline, outline.file
        self._data, self._strings = outline.data, outline.file.index.strings
        self._name = outline.file.path.name
        self._topics = Topics()
        self._links: dict[int, _Link] = {}
        self._kept: dict[int, Exchange] = {}  # rows that were read in full, until they are answered
        self._simple, self._plain = outline.read()

    def tell(self, listener: Listener) -> None:
        """Tell everything, in the order of the file: `request` and `done` of exchanges, `feed` of all else."""
        outline, self._to = self._outline, listener
        asides = deque(outline.asides())
        for start in range(0, len(outline.offsets), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = outline.rows[block]
            columns = (
                rows, outline.sides[block], outline.begins[block], self._simple[rows], self._plain[rows], outline.records[rows],
            )  # fmt: skip
            for number, frame in enumerate(zip(*(column.tolist() for column in columns), strict=True), start):
                missing: list[Happening] = []
                while asides and asides[0].before <= number:
                    aside = asides.popleft()
                    if aside.inside:
                        missing.append(aside.happening)
                    else:
                        self._aside(aside.happening)
                if frame[1]:
                    self._answered(frame, missing)
                else:
                    self._asked(frame, missing)
        for aside in asides:
            self._aside(aside.happening)

    def _aside(self, happening: Happening) -> None:
        if isinstance(happening, Closed):
            link = self._links.pop(happening.connection, None)
            for _, exchange in link.waiting if link is not None else ():
                self._unanswered(exchange)
        elif isinstance(happening, Opened):
            self._links[happening.connection] = _Link(happening.client, happening.broker)
        self._to.feed(happening)

    def _unanswered(self, exchange: Foreseen) -> None:
        if exchange.plain:
            raise Unlike("an answer that is not there")
        exchange.state, exchange.known = State.NO_RESPONSE, None
        self._to.done(exchange)

    def _link(self, connection: int) -> _Link:
        link = self._links.get(connection)
        if link is None:
            raise Unlike("a connection that was not opened")
        return link

    def _asked(self, frame: _Frame, missing: list[Happening]) -> None:
        row, _, begin, simple, plain, record = frame
        (
            time_ns,
            _,
            request_offset,
            _,
            size,
            answer_size,
            correlation_id,
            connection,
            key,
            version,
            _,
            flags,
            name,
            _,
        ) = record
        link = self._link(connection)
        client_id, full = self._strings[name] if name < len(self._strings) else None, None
        if simple and len(client_id or "") < MAX_STRING:
            data = self._data[begin : begin + size]
        else:
            full = self._file.exchange(Record(*record))
            if full.request is None:
                raise Unlike("a frame that cannot be read back")
            data, plain = full.request, False
        plain = plain and key not in UNREAD
        exchange = Foreseen(
            plain, connection, link.client, link.broker, key, version, correlation_id, client_id, data, time_ns, self._topics,
            link.about,
        )  # fmt: skip
        marks = exchange.marks
        if full is not None:
            self._as_read(row, exchange, full)
        marks["segment"], marks["request_offset"] = self._name, request_offset
        if flags & UNDECODED or client_id == "":  # the recorder says that of a header that it cannot read
            exchange.client_id = _client_id(data)
        for happening in missing:
            self._to.feed(happening)
        if link.waiting and any(other.correlation_id == correlation_id for _, other in link.waiting):
            exchange.plain = plain = False
        if plain and key in SAME:
            answer = int(self._outline.answers[row])
            said = data[8:], self._data[answer + 4 : answer + answer_size]
            kind = key, version, name
            exchange.same = exchange.repeated = link.said.get(kind) == said
            link.said[kind] = said
        if key == PRODUCE and flags & STATE_MASK == _NO_RESPONSE and expects_no_response(exchange):
            exchange.state = State.NO_RESPONSE
            self._to.request(exchange)
            self._to.done(exchange)
            return
        self._to.request(exchange)
        link.waiting.append((row, exchange))

    def _as_read(self, row: int, exchange: Foreseen, full: Exchange) -> None:
        """Take what was read of an exchange that is not as simple as others."""
        exchange.marks.update(full.marks)
        exchange.marks.pop("response_offset", None)
        exchange.request_cut, exchange.client_id = full.request_cut, full.client_id
        if full.response is not None:
            self._kept[row] = full

    def _answered(self, frame: _Frame, missing: list[Happening]) -> None:
        row, _, begin, _, _, record = frame
        time_ns, latency_ns, _, offset, _, size, _, connection, key, _, error, flags, _, _ = record
        link = self._link(connection)
        if flags & STATE_MASK == _ORPHAN:
            for happening in missing:
                self._to.feed(happening)
            self._to.done(self._orphan(Record(*record), link))
            return
        while True:
            if not link.waiting:
                raise Unlike("an answer to nothing")
            first, exchange = link.waiting.popleft()
            if first == row:
                break
            self._unanswered(exchange)
        for happening in missing:
            self._to.feed(happening)
        full = self._kept.pop(row, None)
        if full is None:
            exchange.response = self._data[begin : begin + size]
        else:
            exchange.response, exchange.response_cut = full.response, full.response_cut
        exchange.response_time_ns = time_ns + max(latency_ns, 0)
        exchange.state = State.PAIRED
        exchange.marks["response_offset"] = offset
        if not flags & CUT:
            exchange.known = error, bool(flags & UNDECODED), bool(flags & (SURPLUS | UNDECODED))
        if key in _TOPICS and not exchange.repeated:
            self._topics.learn(exchange)
        elif key == _API_VERSIONS:
            link.about.learn(exchange)
        self._to.done(exchange)

    def _orphan(self, record: Record, link: _Link) -> Exchange:
        full = self._file.exchange(record)
        if full.response is None:
            raise Unlike("a frame that cannot be read back")
        full.about, full.client, full.broker = link.about, link.client, link.broker
        return full


def _client_id(frame: bytes) -> str | None:
    """What the header of a request says that cannot be decoded as a whole; None where not even the header can."""
    try:
        found: str | None = decode_request_header(frame)[0].get("client_id")
    except DecodeError:
        return None
    return found
