"""Recognizing Kafka on ports that nobody named, by what both sides send.

Many protocols begin with a length of four bytes followed by small numbers, so the head of a Kafka request can appear by
chance. A `KafkaRecognizer` reads the conversation as Kafka from such a place on, and keeps its events until it has decided.
"""

from __future__ import annotations

from ...decoder import Connection, DecodeError, Direction, Exchange, ExchangeDone, Message, Opaque, RequestSeen, State
from ...decoder.codec.codec import decode_request_header
from ...decoder.connection.connection import plausible_request
from ...decoder.schema import facts
from ...decoder.wire.frame import MAX_FRAME
from ...decoder.wire.resync import HEAD, client_id_of_head
from .flows import Data, Gap, Recognition, StreamEvent

MOST_KEPT = 4 << 20
"""Bytes of a conversation that are kept until it is recognized."""
_NAME = 3
"""Characters of a client id that do not stand by chance behind a known API, its version and the right length."""
_SEVERAL = 3
"""Requests without such a name; their correlation ids differ."""
_API_VERSIONS = facts.api_key("ApiVersions")


class KafkaRecognizer:
    """One conversation. It is Kafka as soon as

    - a whole request decodes, and a response with its correlation id decodes as its answer,
    - or a whole request with a client id of clear characters decodes, or its answer does,
    - or several requests decode one after the other, and nothing of the other side was captured,
    - or several are answered by their correlation ids, where frames were cut by the capture.

    It is another protocol when a frame is no request that could be, or no frame.
    """

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        """what the conversation gave so far"""
        self.kept = 0
        self._connection = Connection()
        self._heads = (bytearray(), bytearray())
        self._decoded: set[int] = set()
        self._paired: set[int] = set()
        self.answered = False
        """the other side has sent something, though it may be unknown where its frames begin"""

    def awaits(self, correlation_id: int) -> bool:
        """Whether a request waits for that response."""
        return self._connection.awaits(correlation_id)

    def add(self, event: StreamEvent) -> Recognition:
        """The verdict after this event."""
        self.events.append(event)
        if isinstance(event, Gap):
            self._connection.lost(Direction(event.direction))
            return Recognition.UNDECIDED
        if not isinstance(event, Data):
            return Recognition.UNDECIDED
        self.kept += len(event.data)
        direction = Direction(event.direction)
        head = self._heads[direction]
        if len(head) < MOST_KEPT and direction is Direction.REQUEST:
            head += event.data[: HEAD[direction] + 1024 - len(head)]
        receive = self._connection.receive_from_broker if direction else self._connection.receive_from_client
        found = receive(event.data, event.time_ns)
        if event.cut:
            found += self._connection.skip(direction, event.cut, event.time_ns)
        for one in found:
            verdict = self._judge(one)
            if verdict is not Recognition.UNDECIDED:
                return verdict
        # A frame larger than what is kept never becomes whole.
        too_large = not self._decoded and int.from_bytes(self._heads[0][:4], "big") > MOST_KEPT
        return self.last() if self.kept > MOST_KEPT or too_large else Recognition.UNDECIDED

    def last(self) -> Recognition:
        """The verdict at the end of the capture: a request that is not whole is Kafka's if it names its client."""
        head = self._heads[0]
        named = len(head) >= HEAD[Direction.REQUEST] and len(client_id_of_head(head, 0) or b"") >= _NAME
        return Recognition.KAFKA if named else Recognition.OTHER

    def _judge(self, found: RequestSeen | ExchangeDone | Opaque) -> Recognition:
        if isinstance(found, Opaque):
            return Recognition.UNDECIDED if found.framed else Recognition.OTHER
        exchange = found.exchange
        named, decoded = _is_named(exchange), _is_whole(exchange.request_message)
        if isinstance(found, RequestSeen):
            if named and (decoded or exchange.request_cut):
                return Recognition.KAFKA
            if not (named or decoded or exchange.request_cut):
                return Recognition.OTHER
            if decoded:
                self._decoded.add(exchange.correlation_id)
            return Recognition.UNDECIDED if self.answered or len(self._decoded) < _SEVERAL else Recognition.KAFKA
        if exchange.state is not State.PAIRED:
            return Recognition.UNDECIDED
        if (named or decoded) and _is_whole(exchange.response_message):
            return Recognition.KAFKA
        if exchange.request_cut or exchange.response_cut:
            self._paired.add(exchange.correlation_id)
        return Recognition.UNDECIDED if len(self._paired) < _SEVERAL else Recognition.KAFKA


def may_begin(data: bytes) -> bool:
    """Whether bytes start with the size and head of a request: from there on a conversation may be Kafka."""
    if not 8 <= int.from_bytes(data[:4], "big") <= MAX_FRAME:
        return False
    if plausible_request(data[4:]):
        return True
    # A client may be newer than what is known here; it asks for the versions first (KIP-511).
    asked = Exchange(request=data[4:])
    try:
        header, _ = decode_request_header(data[4:])
    except DecodeError:
        return False
    asked.client_id = header.get("client_id")
    return header["request_api_key"] == _API_VERSIONS and header["request_api_version"] > 0 and _is_named(asked)


def _is_named(exchange: Exchange) -> bool:
    name = exchange.client_id or ""
    return len(name) >= _NAME and name.isascii() and name.isprintable()


def _is_whole(message: Message | None) -> bool:
    return message is not None and not message.trailing
