"""The requests of one connection that wait for their responses, in the order they were sent.

Without rules only requests whose response may have to be held are remembered (`expect`); where a connection is followed request
by request (`Connection.inline`) every request that gets a response is, and an answer made here stands in the queue like a response
to come: it is delivered when everything before it has been. A request of which nothing else is to be remembered is a number: api
key (16 bits), version (16), correlation id (32).

Brokers answer in order: a response whose request is not the first means that those before it get none, and they leave the queue.
A stray response would look the same, so their own are still recognised for a while: no broker's address may pass. A response with
an unknown id passes unchanged.

This is not `decoder.connection.correlation`, the queue of those who only read: not all requests are in it, most are numbers without
an object, the accelerator fills it, and answers made here have a place in it.

Invariants: `entries.objects` counts the entries that are an `InFlight`; `entries.out_of_order` is true exactly as long as requests
are remembered that have left the queue without a response; `entries.unsure` exactly as long as the order is not known.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ....decoder.wire.acks import acks_end
from ....plugins.actions.fault_plan import FaultPlan
from ....plugins.versions.adapter import AdaptedRequest, VersionAdapter
from ...native.accelerator import native
from ...ring.clock import now_ns
from ..interception.frame_editor import PRODUCE
from ..interception.interest.api_version_bitmap import api_version_bitmap

if TYPE_CHECKING:
    from ....decoder import Exchange

IN_FLIGHT_LIMIT = 8192
"""Most requests that are remembered without rules: some may never get a response."""
LATE = 16
"""Most requests whose response is still recognised although a later one's has come."""
LATE_REACH = 256
"""So many more responses of the connection."""
ANY_API = 0x7FFF
"""Stands for an API whose responses never have to be held."""
_NUMBER_BYTES = 40
"""Of memory that a number takes in a queue."""
ENTRY_BYTES = 1024
"""Of memory that a request takes of which more is remembered than a number, without its own bytes."""

REQUEST = struct.Struct(">IhhI").unpack_from
CORRELATION = struct.Struct(">I").unpack_from
_HEAD = struct.Struct(">IQ").unpack_from


def entry_id(entry: int | InFlight) -> int:
    return entry & 0xFFFFFFFF if isinstance(entry, int) else entry.correlation


def key_and_version(entry: int | InFlight) -> tuple[int, int]:
    return (entry >> 48, entry >> 32 & 0xFFFF) if isinstance(entry, int) else (entry.api_key, entry.api_version)


def place_of(queue: Iterable[Any], correlation: int) -> int:
    """Where the first entry of a queue with this correlation id (unsigned) stands, or -1."""
    for place, entry in enumerate(queue):
        if (entry & 0xFFFFFFFF if entry.__class__ is int else entry.correlation) == correlation:
            return place
    return -1


@cache
def watching(numbers: frozenset[int]) -> bytes:
    """`api_version_bitmap`, made once for all connections."""
    return api_version_bitmap(numbers)


class PlainQueue(deque[Any]):
    """The queue where there is no accelerator: entries are numbers, or objects with an attribute `correlation`."""

    watch = b""
    doubtful = -1
    out_of_order = unsure = False
    """What whoever moves bytes has to know of the order: see the module."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = 0
        """Entries that are no number."""
        self._frames: deque[tuple[bytes, int, int] | None] = deque()
        """What is kept of each entry."""
        self._kept = 0

    def append(self, entry: Any, kept: tuple[bytes, int, int] | None = None) -> None:
        super().append(entry)
        self._frames.append(kept)
        self._weigh(entry, kept, 1)

    def append_kept(self, number: int, frame: bytes, time_ns: int, size: int) -> None:
        """A number with its request (size first) or that one's header prefix, when it came, and its size."""
        self.append(number, (frame, time_ns, size))

    def appendleft(self, entry: Any) -> None:
        super().appendleft(entry)
        self._frames.appendleft(None)
        self._weigh(entry, None, 1)

    def popleft(self) -> Any:
        entry = super().popleft()
        self._weigh(entry, self._frames.popleft(), -1)
        return entry

    def kept(self) -> tuple[bytes, int, int] | None:
        """The request of the first entry, if it was kept, when it came, and its size."""
        return self._frames[0] if self._frames else None

    def clear(self) -> None:
        super().clear()
        self._frames.clear()
        self._kept = self.objects = 0

    def memory(self) -> int:
        """Bytes of memory that what waits here takes, with the requests that are kept. The share of an object is its attribute
        `weight`, which stays as it is while it waits."""
        return self._kept + _NUMBER_BYTES * len(self)

    def _weigh(self, entry: Any, kept: tuple[bytes, int, int] | None, sign: int) -> None:
        if entry.__class__ is not int:
            self.objects += sign
            self._kept += sign * getattr(entry, "weight", 0)
        elif kept is not None:
            self._kept += sign * len(kept[0])


Queue: Callable[[], PlainQueue] = PlainQueue if native is None else native.Queue
"""An empty queue."""


class Adaptation(NamedTuple):
    """A request that went through a version adapter. `request`: the client's; `sent`: api key << 16 | version as the broker has it;
    `before`: of a request that the adapter sends itself, in front of the client's, its place among those (`Forward.before`)."""

    adapter: VersionAdapter
    request: AdaptedRequest
    sent: int = 0
    before: int | None = None


class InFlight:
    """A request of which more is remembered than a number. `answer`: the response made here; `faults`: what is to happen to the
    response; `exchange`: the request, for rules; `kept`: the request, if its response may be held for a decision; `hooked`: the
    request for plugins, or the one that a plugin made; `weight`: bytes of memory that all of it takes, known when it is put into the
    queue."""

    __slots__ = (
        "adaptation", "answer", "api_key", "api_version", "correlation", "exchange", "faults", "hooked", "kept", "weight",
    )  # fmt: skip

    def __init__(self, api_key: int, api_version: int, correlation: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation = correlation
        self.answer: bytes | None = None
        self.faults: FaultPlan | None = None
        self.exchange: Exchange | None = None
        self.kept: object | None = None
        self.hooked: object | None = None
        self.adaptation: Adaptation | None = None
        self.weight = ENTRY_BYTES


class CorrelationQueue:
    """The queue of one connection. `watched`: requests whose responses may have to be held. `deliver`: gives the client the
    answers that are next in the queue."""

    def __init__(self, watched: frozenset[int], deliver: Callable[[int], None]) -> None:
        self.entries: PlainQueue = Queue()
        """What waits, in order; the accelerator reads and fills it, too."""
        self.entries.watch = watching(watched)
        self._watched = watched
        self._deliver = deliver
        self._unsure: InFlight | None = None
        self._late: deque[int | InFlight] = deque(maxlen=LATE)
        """Left the queue without a response, or with one that could not be read."""
        self._late_for = 0

    @property
    def unsure(self) -> bool:
        """Whether the order of responses is not known, so that nothing may be answered here (see `tracking_mode`)."""
        return self._unsure is not None

    def clear(self) -> None:
        """Forget all of it: the streams hold no frames any more."""
        self.entries.clear()
        self._late.clear()
        self.entries.out_of_order = False

    # -- requests --------------------------------------------------------------------------------------------

    def expect(self, data: bytes | memoryview, at: int, end: int, inline: bool) -> None:
        """A request passes whose response may have to be held. At least 12 bytes of its frame stand at `at`."""
        size, head = _HEAD(data, at)
        if size < 8:
            return
        doubtful = False
        if head >> 48 == PRODUCE:
            place = acks_end(data, at, end)
            if place > min(end, at + size + 4):
                doubtful = True
                self.entries.doubtful = head & 0xFFFFFFFF
            elif data[place - 2] == 0 == data[place - 1]:
                return  # acks=0 gets no response
        if len(self.entries) >= IN_FLIGHT_LIMIT and not self.entries.objects:
            self.entries.popleft()
        self.entries.append(head)
        if doubtful and inline:
            self.mark_unsure()

    def add(self, api_key: int, api_version: int, correlation: int) -> None:
        """A request of which nothing but this is to be remembered."""
        self.entries.append((api_key << 16 | api_version) << 32 | correlation)

    def wait_for(self, entry: InFlight, *kept: bytes) -> None:
        """Put a request into the queue; `kept`: its bytes that are kept with it."""
        entry.weight += sum(map(len, kept))
        self.entries.append(entry)

    def mark_unsure(self) -> None:
        """What is in flight is not known exactly: answer nothing before that is over."""
        self._unsure = InFlight(-1, -1, -1)
        self.entries.unsure = True
        self.wait_for(self._unsure)

    # -- responses -------------------------------------------------------------------------------------------

    def passed(self, correlation: int) -> None:
        """The head of a response has passed in pieces."""
        head = self.entries[0] if self.entries else None
        if isinstance(head, int) and head >> 48 == ANY_API and head & 0xFFFFFFFF == correlation:
            self.entries.popleft()

    def is_overdue(self, data: bytes, at: int) -> bool:
        """Whether the response whose head stands at `at` is not the one that is next, so that answers may be due."""
        if not self.entries.objects or len(data) - at < 8:
            return False
        (correlation,) = CORRELATION(data, at + 4)
        return place_of(self.entries, correlation) > 0

    def find(self, correlation: int) -> int | InFlight | None:
        """The request that a response belongs to, at the head of the queue now; None if it was not remembered."""
        queue = self.entries
        behind = self._entries_from(correlation)
        if self._late:
            self._late_for -= 1
            if not behind and self._is_late(correlation):
                return self._head()
            if self._late_for <= 0:
                self._late.clear()
                self.entries.out_of_order = False
        if not behind:
            return None
        while len(queue) > behind:  # these get no response any more; answers among them are due now
            first = queue[0]
            if isinstance(first, InFlight) and first.answer is not None:
                before = len(queue)
                self._deliver(now_ns())
                if len(queue) >= before:
                    return None  # they cannot be delivered: the connection is ending
            else:
                self.leave_unanswered(self.take())
        return self._head()

    def take(self) -> int | InFlight:
        """Take the head of the queue."""
        entry: int | InFlight = self.entries.popleft()
        return entry

    def next_answer(self) -> bytes | None:
        """The answer at the head of the queue; None: a response has to come first."""
        if not self.entries.objects:
            return None
        head = self.entries[0]
        return head.answer if isinstance(head, InFlight) else None

    def leave_unanswered(self, entry: int | InFlight) -> None:
        """It has left the queue, but its response may still come, if what was taken for it, or for a later one, was not."""
        if isinstance(entry, InFlight):
            entry.kept = None
        if entry is self._unsure:
            self._unsure = None
            self.entries.unsure = False
        elif isinstance(entry, InFlight) or entry >> 32 in self._watched:
            self._late.append(entry)
            self._late_for = LATE_REACH
            self.entries.out_of_order = True

    def _head(self) -> int | InFlight:
        head: int | InFlight = self.entries[0]
        return head

    def _entries_from(self, correlation: int) -> int:
        """How many entries there are from the one that awaits this response to the end of the queue; 0: none does."""
        for index, entry in enumerate(self.entries):
            if entry_id(entry) == correlation and not (isinstance(entry, InFlight) and entry.answer is not None):
                return len(self.entries) - index
        return 0

    def _is_late(self, correlation: int) -> bool:
        """Whether this is the response to a request that left the queue without one; that is at its head then."""
        for entry in self._late:
            if entry_id(entry) == correlation:
                self._late.remove(entry)
                self.entries.out_of_order = bool(self._late)
                self.entries.appendleft(entry)
                return True
        return False
