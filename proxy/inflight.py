"""The requests of one connection that wait for their responses, in the order they were sent.

Without rules only requests whose response may have to be held are remembered (`expect`); with rules (`inline`) every
request that gets a response is, and an answer made here stands in the queue like a response to come: it is delivered
when everything before it has been. A request of which nothing else is to be remembered is a number: api key (16
bits), version (16), correlation id (32).

Brokers answer in order. So a response whose request is not the first says that those before it get none, and they
leave the queue. As a stray response could say that too, their own are still recognised for a while (`overtaken`): no
broker's address may pass. A response whose id nobody knows passes as it is.
"""

from __future__ import annotations

import struct
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from ..decoder.accelerator import native
from ..decoder.acks import acks_end, produce_acks
from ..decoder.strides import PythonQueue, Queue, place_of, selection
from ..plugins.fate import Fate
from ..plugins.versions.dialect import Asked, Dialect
from .clock import now_ns
from .interception.frame_editor import PRODUCE
from .sift import MOVES
from .switching import ANY_API

if TYPE_CHECKING:
    from ..decoder import Exchange
    from .interception.held_frames import Kept
    from .lane import Lane
    from .plugged.own_request import OwnRequest
    from .plugged.questions import Seen
    from .relay import Relay

IN_FLIGHT_LIMIT = 8192
"""Most requests that are remembered without rules: some may never get a response."""
OVERTAKEN = 16
"""Most requests whose response is still recognised although a later one's has come."""
OVERTAKEN_REACH = 256
"""So many more responses of the connection."""

REQUEST = struct.Struct(">IhhI").unpack_from
CORRELATION = struct.Struct(">I").unpack_from
_HEAD = struct.Struct(">IQ").unpack_from


def entry_id(entry: int | InFlight) -> int:
    return entry & 0xFFFFFFFF if isinstance(entry, int) else entry.correlation


def key_and_version(entry: int | InFlight) -> tuple[int, int]:
    return (entry >> 48, entry >> 32 & 0xFFFF) if isinstance(entry, int) else (entry.api_key, entry.api_version)


@cache
def watching(numbers: frozenset[int]) -> Any:
    """Requests (api key << 16 | version) as the loops over frames take them (`strides.selection`)."""
    return selection(numbers)


ENTRY_BYTES = 1024
"""Of memory that a request takes of which more is remembered than a number, without its own bytes."""


class InFlight:
    """A request with a response of its own. `answer`: the response made here; `fate`: what is to happen to the response;
    `exchange`: the request, for rules; `kept`: the request, if its response may be held for a decision; `plugged`: the
    request for plugins, or the one that a plugin made; `asked`, `before`, `dialect`, `sent`: see `dialects`; `weight`: bytes of
    memory that all of it takes, known when it is put into the queue."""

    __slots__ = (
        "answer", "api_key", "api_version", "asked", "before", "correlation", "dialect", "exchange", "fate", "kept",
        "plugged", "rule", "sent", "weight",
    )  # fmt: skip

    def __init__(self, api_key: int, api_version: int, correlation: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation = correlation
        self.answer: bytes | None = None
        self.fate: Fate | None = None
        self.exchange: Exchange | None = None
        self.kept: Kept | None = None
        self.plugged: Seen | OwnRequest | None = None
        self.rule = ""
        self.asked: Asked | None = None
        self.before: int | None = None
        self.dialect: Dialect | None = None
        self.sent = 0
        """Api key << 16 | version as the broker has it."""
        self.weight = ENTRY_BYTES


if TYPE_CHECKING or not MOVES:
    Pair = object
else:
    Pair = native.Pair  # what the accelerator has to know of a connection


class Flights(Pair):
    """The queue of one connection. `Holding` adds what is done when a response comes."""

    relay: Relay
    request: Lane
    response: Lane
    inline: bool
    """Whether every request is followed."""

    def __init__(self, relay: Relay) -> None:
        self.in_flight: PythonQueue = Queue()
        self.watch = watching(relay.watch)
        self.changes = 0
        """How many of them are more than a number."""
        self.doubtful = -1
        """Correlation id of the last remembered request of which it is not known whether it gets a response."""
        self.unsure: InFlight | None = None
        """Stands in the queue as long as the order of responses is not known; see `switching`."""
        self.overtaken: deque[int | InFlight] = deque(maxlen=OVERTAKEN)
        """Left the queue without a response, or with one that could not be read."""
        self._overtaken_for = 0

    def deliver(self, now: int) -> None:
        """Send the answers that are next."""
        raise NotImplementedError

    def passing(self) -> Any:
        """The requests that pass at a glance, as `strides` takes them."""
        return self.relay.editor.asked[0]

    def keeps(self, key: int) -> bool:
        """Whether a request of this API passes with its bytes kept for when its response is there."""
        return key in self.relay.editor.keeping.apis and self.unsure is None

    def expect(self, data: bytes | memoryview, at: int, end: int) -> None:
        """A request passes whose response may have to be held. At least 12 bytes of its frame stand at `at`."""
        size, head = _HEAD(data, at)
        if size < 8:
            return
        doubtful = False
        if head >> 48 == PRODUCE:
            place = acks_end(data, at, end)
            if place > min(end, at + size + 4):
                doubtful = True
                self.doubtful = head & 0xFFFFFFFF
            elif data[place - 2] == 0 == data[place - 1]:
                return  # acks=0 gets no response
        if len(self.in_flight) >= IN_FLIGHT_LIMIT and not self.changes:
            self.in_flight.popleft()
        self.in_flight.append(head)
        if doubtful and self.inline:
            self.mark_unsure()

    def remember(self, data: bytes | memoryview, at: int, whole: int = 0) -> None:
        """Where rules stand, a request goes on: its response is awaited, unless it is a Produce that gets none. `whole`: the
        request's size, if this is its skeleton."""
        size, key, version, correlation = REQUEST(data, at)
        if key == PRODUCE and produce_acks(data, at, len(data)) == 0:
            return
        if self.keeps(key) and at + size + 4 <= len(data):
            number = (key << 16 | version) << 32 | correlation
            self.in_flight.append_kept(number, bytes(data[at : at + size + 4]), now_ns(), whole or size)
            return
        self.in_flight.append((key << 16 | version) << 32 | correlation)

    def mark_unsure(self) -> None:
        """What is in flight is not known exactly: answer nothing before that is over."""
        self.unsure = InFlight(-1, -1, -1)
        self.wait_for_response(self.unsure)

    def passed(self, correlation: int) -> None:
        """The head of a response has passed in pieces."""
        head = self.in_flight[0] if self.in_flight else None
        if isinstance(head, int) and head >> 48 == ANY_API and head & 0xFFFFFFFF == correlation:
            self.in_flight.popleft()

    def overdue(self, data: bytes, at: int) -> bool:
        """Whether the response whose head stands at `at` is not the one that is next, so that answers may be due."""
        if not self.changes or len(data) - at < 8:
            return False
        (correlation,) = CORRELATION(data, at + 4)
        return place_of(self.in_flight, correlation) > 0

    def answered(self, correlation: int) -> int | InFlight | None:
        """The request that a response belongs to, at the head of the queue now; None if it was not remembered."""
        queue = self.in_flight
        behind = self._entries_from(correlation)
        if self.overtaken:
            self._overtaken_for -= 1
            if not behind and self._again(correlation):
                return self._head()
            if self._overtaken_for <= 0:
                self.overtaken.clear()
        if not behind:
            return None
        while len(queue) > behind:  # these get no response any more; answers among them are due now
            first = queue[0]
            if isinstance(first, InFlight) and first.answer is not None:
                before = len(queue)
                self.deliver(now_ns())
                if len(queue) >= before:
                    return None  # they cannot be delivered: the connection is ending
            else:
                self.overtake(self.take())
        return self._head()

    def _head(self) -> int | InFlight:
        head: int | InFlight = self.in_flight[0]
        return head

    def _entries_from(self, correlation: int) -> int:
        """How many entries there are from the one that awaits this response to the end of the queue; 0: none does."""
        for index, entry in enumerate(self.in_flight):
            if entry_id(entry) == correlation and not (isinstance(entry, InFlight) and entry.answer is not None):
                return len(self.in_flight) - index
        return 0

    def overtake(self, entry: int | InFlight) -> None:
        """It has left the queue, but its response may still come, if what was taken for it, or for a later one, was not."""
        if isinstance(entry, InFlight):
            entry.kept = None
        if entry is self.unsure:
            self.unsure = None
        elif isinstance(entry, InFlight) or entry >> 32 in self.relay.watch:
            self.overtaken.append(entry)
            self._overtaken_for = OVERTAKEN_REACH

    def _again(self, correlation: int) -> bool:
        """Whether this is the response to a request that has been overtaken; that is at the head of the queue then."""
        for entry in self.overtaken:
            if entry_id(entry) == correlation:
                self.overtaken.remove(entry)
                self.in_flight.appendleft(entry)
                self.changes += isinstance(entry, InFlight)
                return True
        return False

    def wait_for_response(self, entry: InFlight, *kept: bytes) -> None:
        """Put a request into the queue; `kept`: its bytes that are kept with it."""
        entry.weight += sum(map(len, kept))
        self.in_flight.append(entry)
        self.changes += 1

    def take(self) -> int | InFlight:
        """Take the head of the queue."""
        entry: int | InFlight = self.in_flight.popleft()
        if isinstance(entry, InFlight):
            self.changes -= 1
        return entry
