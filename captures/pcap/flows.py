"""TCP flows and the events of their streams, as `Reassembler` keeps and gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from ..native.accelerator import native
from .packets import ACK, SYN, Address, TcpSegment


class FlowOpened(NamedTuple):
    """A connection begins (or the capture does, in the middle of it). `established`: its SYN was answered."""

    flow: Flow
    time_ns: int
    established: bool = True


class Data(NamedTuple):
    """The next bytes of one direction. `offset` is the file offset of the packet's block, `at` that of the bytes.
    `cut` bytes behind them were not captured (the capture's snap length)."""

    flow: Flow
    direction: int
    time_ns: int
    data: bytes
    offset: int
    at: int
    comments: tuple[str, ...]
    cut: int = 0

    @property
    def length(self) -> int:
        """Bytes on the wire."""
        return len(self.data) + self.cut

    def behind(self, old: int) -> Data:
        """Without its first bytes, which came before."""
        have = min(old, len(self.data))
        return self._replace(data=self.data[have:], at=self.at + have, cut=self.cut - (old - have))


class Gap(NamedTuple):
    """Bytes are missing here; the next `Data` of this direction starts at a frame. `unread`: bytes that were captured, but of
    which it is not known where a frame begins."""

    flow: Flow
    direction: int
    size: int
    time_ns: int
    unread: int = 0


class FlowClosed(NamedTuple):
    """The connection ended. `how`, `by`: see `decoder.connection.events.Closed`."""

    flow: Flow
    time_ns: int
    how: str = ""
    by: str = ""


StreamEvent = FlowOpened | Data | Gap | FlowClosed


class Recognition(Enum):
    """Whether a conversation is Kafka."""

    UNDECIDED = "undecided"
    KAFKA = "Kafka"
    OTHER = "another protocol"


class Recognizer(Protocol):
    """Decides whether a conversation is Kafka; see `recognition.KafkaRecognizer`."""

    events: list[StreamEvent]
    kept: int
    answered: bool

    def awaits(self, correlation_id: int) -> bool: ...
    def add(self, event: StreamEvent) -> Recognition: ...
    def last(self) -> Recognition: ...


class PlainSide:
    """One direction of a flow. The accelerator has the same; see reading/indexing/scan.py."""

    __slots__ = (
        "acked",
        "acked_first",
        "empty",
        "empty_first",
        "finished",
        "half",
        "next",
        "quick",
        "skipped",
        "synced",
        "waiting",
        "waiting_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next: int | None = None  # the sequence number of the next byte
        self.synced = False  # the next byte is known to start a frame, or to continue one that did
        self.finished = False
        self.skipped = 0  # bytes given up since the last Data
        self.waiting: dict[int, Data] = {}
        self.waiting_bytes = 0
        self.quick = False  # the next bytes may be taken without `Reassembler.feed`; see reading/indexing/scan.py
        self.half: Any = None  # the consumer's half-connection
        # Positions, the first and the furthest, or -1: what this end acknowledged of the other direction's bytes, and where
        # segments without bytes stood.
        self.acked_first = self.acked = self.empty_first = self.empty = -1


def show(side: PlainSide, segment: TcpSegment) -> None:
    """Keep what a segment of this end shows of bytes that it does not carry."""
    if segment.flags & ACK and _further(segment.acknowledged, side.acked):
        side.acked = segment.acknowledged
        side.acked_first = side.acked if side.acked_first < 0 else side.acked_first
    if not segment.flags & SYN and not segment.payload and not segment.cut and _further(segment.sequence, side.empty):
        side.empty = segment.sequence
        side.empty_first = side.empty if side.empty_first < 0 else side.empty_first


def _further(position: int, known: int) -> bool:
    """Whether a position lies behind one that is known; -1 is none."""
    return position >= 0 and (known < 0 or 0 < (position - known) % (1 << 32) < 1 << 31)


Side: type[PlainSide] = PlainSide if native is None else native.Side


@dataclass(slots=True, eq=False)
class Flow:
    """One TCP connection. `number` counts the Kafka connections from 1; 0 until the flow turns out to be one. `kafka`: it
    is read as one; `recognizer`: until it is known whether it is."""

    client: Address
    broker: Address
    sides: tuple[PlainSide, PlainSide]
    ends: tuple[bytes, bytes]
    interface: int
    opened_ns: int
    number: int = 0
    kafka: bool = False
    foreign: bool = False
    handshake: bool = False  # its SYN was captured
    recognizer: Recognizer | None = None
    given_up: bool = False  # reported as unreached
    ender: int = -1  # whose FIN came first
    ended_ns: int = 0  # when it came
    end_comments: tuple[str, ...] = ()  # of that packet
    over: bool = False  # reported as closed without the other FIN
    comments: tuple[str, ...] = ()
    held: list[tuple[int, Data]] = field(default_factory=list)
    unread: list[int] = field(default_factory=lambda: [0, 0])
    """bytes given up since the last Data that are in the capture, by direction; `PlainSide.skipped` are not in it"""

    def unseen(self, direction: int) -> int:
        """Bytes at the end of a direction that passed and were not captured: they were acknowledged, or the direction goes on
        behind them."""
        own, other = self.sides[direction], self.sides[1 - direction]
        if own.empty < 0 and other.acked < 0:
            return 0
        last = own.empty if _further(own.empty, other.acked) else other.acked
        first = own.next
        if first is None:
            first = other.acked_first
            if own.empty_first >= 0 and (first < 0 or _further(first, own.empty_first)):
                first = own.empty_first
        ahead = (last - first) % (1 << 32)
        return ahead if 1 < ahead < 1 << 31 else 0  # a FIN counts for one byte
