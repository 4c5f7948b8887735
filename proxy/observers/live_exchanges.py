"""What the inspector keeps for the control API: open connections and the newest exchanges, and its answers about them.

Exchanges have numbers that count from 1 and are never used twice, so a number is a cursor: what comes after it is new. The store is
bounded by count and by bytes of frames; the oldest exchanges are dropped. Filters are evaluated a slice at a time, so that the process
can do something else in between.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...decoder import Exchange, ExchangeDone
from ...decoder.connection.api_versions import PeerInfo
from ...decoder.connection.events import Closed, ConnectionEvent, Opened
from ...decoder.filter import Filter, FilterError, compile, named_zone
from ...decoder.findings import Finding
from ..processes import control_messages as messages
from ..processes.control_messages import Failure, Json
from ..ring.clock import now_ns
from .finding_reports import about_as_json
from .settings import LiveSettings

Reply = Callable[[messages.ExchangePage], None]

QUESTIONS = 64
"""Most questions that are answered at the same time."""


class LiveConnection:
    """One open connection."""

    __slots__ = ("about", "broker", "bytes", "client", "client_id", "exchanges", "last_ns", "opened_ns")

    def __init__(self, client: str, broker: str, opened_ns: int) -> None:
        self.client, self.broker, self.opened_ns = client, broker, opened_ns
        self.bytes = [0, 0]
        self.exchanges = 0
        self.last_ns = opened_ns
        self.client_id: str | None = None
        self.about: PeerInfo | None = None

    def state(self, number: int) -> messages.ConnectionState:
        about = self.about
        software = f"{about.software_name} {about.software_version}".strip() if about is not None else ""
        return messages.ConnectionState(
            number, self.client, self.broker, self.opened_ns, self.last_ns, self.bytes[0], self.bytes[1], self.exchanges,
            self.client_id, software or None,
        )  # fmt: skip


class LiveExchanges:
    """A listener of `TrafficDecoder`. `pending` returns the requests in flight; `findings` returns the findings so far."""

    def __init__(
        self,
        pending: Callable[[], list[Exchange]],
        findings: Callable[[], list[Finding]],
        settings: LiveSettings,
    ) -> None:
        self.store = ExchangeStore(settings.count)
        self._pending, self._findings, self._values = pending, findings, settings.values
        self._connections: dict[int, LiveConnection] = {}
        self._filters = Filters()
        self._questions: list[Question] = []

    # -- the traffic -----------------------------------------------------------------------------------------

    def hear(self, event: ConnectionEvent) -> None:
        """Take what happened. Never raises."""
        if isinstance(event, ExchangeDone):
            exchange = event.exchange
            self.store.add(exchange)
            connection = self._connections.get(exchange.connection)
            if connection is not None:
                connection.exchanges += 1
                connection.client_id = exchange.client_id or connection.client_id
                connection.about = exchange.about or connection.about
        elif isinstance(event, Opened):
            if event.established:
                self._connections[event.connection] = LiveConnection(
                    event.client, event.broker, event.time_ns
                )
        elif isinstance(event, Closed):
            self._connections.pop(event.connection, None)

    def moved(self, conn: int, direction: int, time_ns: int, size: int) -> None:
        """Bytes have passed."""
        connection = self._connections.get(conn)
        if connection is not None:
            connection.bytes[direction] += size
            connection.last_ns = time_ns

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a question can be worked on."""
        return any(not question.waiting for question in self._questions)

    @property
    def asked(self) -> bool:
        """Whether there are questions without an answer."""
        return bool(self._questions)

    def step(self) -> None:
        """Work on the questions for a moment each."""
        self._questions = [question for question in self._questions if not question.step()]

    def forget(self) -> None:
        """Drop all questions: the one who asked is gone."""
        self._questions.clear()

    def command(self, command: messages.Commands, reply: Reply) -> messages.Answers | None:
        """Answer a command of the control server; None if `reply` is called with the answer later."""
        match command:
            case messages.FindExchanges():
                return self._find(command, reply)
            case messages.GetExchange(number):
                stored = self.store.get(number)
                if stored is None:
                    return messages.Refused(Failure.MISSING, f"exchange {number} is not available (any more)")
                return messages.ExchangeFound(self.store.described(stored, True, self._values))
            case messages.FindNoted(wanted):
                return messages.NotedExchanges(self.store.noted(wanted))
            case messages.ListPending():
                return messages.PendingExchanges(self._waiting(None, None, False))
            case messages.ListConnections():
                return messages.ConnectionList([each.state(number) for number, each in sorted(self._connections.items())])
            case messages.ListFindings():
                return messages.FindingList([_finding(each) for each in self._findings()])
            case messages.CountKept():
                store = self.store
                return messages.ExchangesKept(len(store), store.bytes, store.oldest, store.newest)
        return messages.Refused(Failure.INVALID, f"no such command: {type(command).__name__}")

    def _find(self, command: messages.FindExchanges, reply: Reply) -> messages.Refused | None:
        if len(self._questions) >= QUESTIONS:
            return messages.Refused(Failure.BUSY, f"{QUESTIONS} questions are already being answered")
        try:
            wanted = self._filters.of(command.filter, command.zone)
        except FilterError as error:
            return messages.Refused(Failure.INVALID, error.message, error.start, error.end)
        question = Question(self.store, wanted, command, self._values, reply, self._waiting)
        if not question.step():
            self._questions.append(question)
        return None

    def _waiting(self, wanted: Filter | None, limit: int | None, bodies: bool) -> list[Json]:
        """The requests in flight that a filter selects, the oldest first: `limit` of them, or as many as a moment is enough for."""
        now, end = now_ns(), time.monotonic() + SLICE_SECONDS
        found: list[Json] = []
        for exchange in sorted(self._pending(), key=lambda exchange: exchange.request_time_ns or 0):
            if limit is not None and (len(found) >= limit or time.monotonic() >= end):
                break
            if wanted is None or wanted(exchange.undecoded_copy()):
                described = exchange.undecoded_copy().to_dict(bodies=bodies, values=self._values)
                found.append(described | {"pending_ns": now - (exchange.request_time_ns or now)})
        return found


def _finding(finding: Finding) -> messages.FindingState:
    return messages.FindingState(
        finding.id, str(finding.severity), finding.seen, finding.why, finding.remedy, finding.injected, list(finding.rules), finding.count,
        about_as_json(finding),
    )  # fmt: skip


COUNT = 20_000
BYTES = 64 << 20
EACH = 1000
"""About how many bytes of memory an exchange takes besides its frames."""
SLICE_SECONDS = 0.01
MOST = 1000
"""Most exchanges of one answer."""
ANSWER_BYTES = 8 << 20
"""An answer ends after the exchange that makes it larger than this."""
LONGEST_WAIT = 300.0


class Stored(NamedTuple):
    """cost: bytes of memory, about. left_out: its frames were too large to keep."""

    number: int
    exchange: Exchange
    cost: int
    left_out: bool


class ExchangeStore:
    """The newest exchanges. count, size: its bounds, in exchanges and bytes."""

    def __init__(self, count: int = COUNT, size: int = BYTES) -> None:
        self._limits = count, size
        self._kept: deque[Stored] = deque()
        self.bytes = 0
        self.newest = 0
        """The number of the newest exchange, 0 if there was none."""

    @property
    def oldest(self) -> int:
        """The number of the oldest exchange in the store."""
        return self._kept[0].number if self._kept else self.newest + 1

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, exchange: Exchange) -> None:
        """Take a finished exchange."""
        count, size = self._limits
        cost = (exchange.request_size or 0) + (exchange.response_size or 0)
        left_out = cost > size // 2
        if left_out:
            # Too large to keep: only what is known of it without its frames.
            exchange.marks.sizes = exchange.request_size, exchange.response_size
            cost = 0
        self.newest += 1
        kept = exchange.undecoded_copy()
        if left_out:
            kept.request = kept.response = None
        self._kept.append(Stored(self.newest, kept, cost + EACH, left_out))
        self.bytes += cost + EACH
        while len(self._kept) > count or self.bytes > size:
            self.bytes -= self._kept.popleft().cost

    def get(self, number: int) -> Stored | None:
        """An exchange by its number; None if it is not in the store (any more)."""
        index = number - self.oldest
        return self._kept[index] if 0 <= index < len(self._kept) else None

    def noted(self, wanted: Iterable[tuple[int, str, int]]) -> list[int | None]:
        """The numbers of exchanges that carry a note; wanted: (connection, note, about when it was sent) of each. None for those
        that are not in the store (yet, or any more)."""
        known: dict[tuple[int, str], list[Stored]] = {}
        for stored in self._kept:
            for note in stored.exchange.marks.notes:
                known.setdefault((stored.exchange.connection, note), []).append(stored)
        found: list[int | None] = []
        for connection, note, when in wanted:
            same = known.get((connection, note), [])
            nearest = min(same, key=lambda stored: abs((stored.exchange.request_time_ns or 0) - when), default=None)
            found.append(nearest.number if nearest is not None else None)
        return found

    def described(self, stored: Stored, bodies: bool, values: bool) -> Json:
        """An exchange as JSON can hold it, with its number as `id`, and what rules and people did to it as `notes`."""
        exchange = stored.exchange.undecoded_copy()
        found = {"id": stored.number, **exchange.to_dict(bodies=bodies and not stored.left_out, values=values)}
        marks = exchange.marks
        found["notes"] = list(marks.notes)
        found["changed"] = marks.changed
        if stored.left_out and marks.sizes is not None:
            found["request_size"], found["response_size"] = marks.sizes
            found["left_out"] = True
        return found


class Filters:
    """A cache of compiled filters. FilterError as of `compile`."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], Filter] = OrderedDict()

    def of(self, text: str | None, zone: str) -> Filter | None:
        """`zone`: the name of that of its times."""
        if not text or not text.strip():
            return None
        if (text, zone) not in self._known:
            self._known[text, zone] = compile(text, now=time.time_ns, zone=named_zone(zone))
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        self._known.move_to_end((text, zone))
        return self._known[text, zone]


class Question:
    """Exchanges after a cursor that a filter selects, or the newest of them; it can wait for one to come.

    wanted: the compiled filter of `command`. values: with keys and values of records. reply: called once. waiting: gives the requests in
    flight for a filter, a limit, and whether with bodies.
    """

    def __init__(
        self,
        store: ExchangeStore,
        wanted: Filter | None,
        command: messages.FindExchanges,
        values: bool,
        reply: Reply,
        waiting: Callable[[Filter | None, int, bool], list[Json]],
    ) -> None:
        self._store, self._wanted, self._reply, self._waiting = store, wanted, reply, waiting
        self._limit = max(min(command.limit, MOST), 1)
        self._bodies, self._values = command.bodies, values
        self._until = time.monotonic() + max(min(command.wait, LONGEST_WAIT), 0.0)
        self._found: list[Json] = []
        since = command.since
        self._size = 0
        self._backwards = since is None
        self._newest = store.newest
        if since is None:
            self._at = store.newest
            self._lost = 0
        else:
            if since > store.newest:
                since = 0  # a cursor of another run
            self._lost = max(store.oldest - 1 - since, 0)
            self._at = since + self._lost + 1

    def step(self) -> bool:
        """Do a slice of the work. True when it is answered."""
        return self._step_back() if self._backwards else self._step_on()

    @property
    def waiting(self) -> bool:
        """Whether there is nothing to do until a new exchange comes."""
        return not self._backwards and self._at > self._store.newest

    def _means(self, stored: Stored) -> bool:
        return self._wanted is None or self._wanted(stored.exchange.undecoded_copy())

    def _take(self, stored: Stored) -> bool:
        """Whether there is room for more."""
        self._found.append(self._store.described(stored, self._bodies, self._values))
        if self._bodies:
            self._size += 4 * stored.cost
        return len(self._found) < self._limit and self._size < ANSWER_BYTES

    def _step_back(self) -> bool:
        end = time.monotonic() + SLICE_SECONDS
        while time.monotonic() < end:
            stored = self._store.get(self._at)
            self._at -= 1
            if stored is None or (self._means(stored) and not self._take(stored)):
                self._found.reverse()
                return self._answer(self._newest, False)
        return False

    def _step_on(self) -> bool:
        end = time.monotonic() + SLICE_SECONDS
        store = self._store
        while self._at <= store.newest:
            if self._at < store.oldest:
                self._lost += store.oldest - self._at
                self._at = store.oldest
            stored = store.get(self._at)
            self._at += 1
            if stored is not None and self._means(stored) and not self._take(stored):
                return self._answer(self._at - 1, True)
            if time.monotonic() >= end:
                return False
        if self._found or self._lost or time.monotonic() >= self._until:
            return self._answer(self._at - 1, False)
        return False

    def _answer(self, cursor: int, more: bool) -> bool:
        pending = [] if more else self._waiting(self._wanted, self._limit, self._bodies)
        self._reply(messages.ExchangePage(self._found, cursor, self._lost, more, pending))
        return True
