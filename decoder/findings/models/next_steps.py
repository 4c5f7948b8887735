"""What clients do after errors that ask for a certain next step (`reference.next_steps`): take it, or send the same again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...connection.exchange import Exchange, State
from ...reference.next_steps import NextStep, next_step, next_steps
from ...schema import facts
from ..engine.counters import BoundedDict, LruDict, Tally
from ..engine.detector import Detector, Model, Wanted
from ..engine.formatting import SECOND, duration, times, topic_id_text, topic_name
from ..engine.layout import top
from ..engine.subjects import Subject, answers, requested
from ..engine.traffic import ClientConnection, ClientIdentity, Traffic
from .fetch import from_follower
from .produce import PRODUCE, ProduceReader

_CLIENTS, _STEPS = 2000, 1000
_PAUSE_NS = 60 * SECOND
"""After this long without it, an error is a new one."""
_HURRIED = 100
"""Refusals in a row without a pause; fewer count as a short retry."""


@dataclass(slots=True)
class PendingStep:
    """The next step that an error requires of a client. `per`: what the step is for, `subject`: what the last refusal was
    about; `state`: what the client must not send again.

    `told_ns`: when it was refused for the first time, 0 if not since it last took the step. `refused`: requests in this state that were
    refused, the first included, and `since_step`: those since it last took the step. `named`: what Metadata says instead ("broker 2 as
    leader"), "" if it says nothing else; `steps`: the requests that took the step since the first refusal, by API,
    and `taken`: how many, those for earlier states included.
    """

    conn: ClientConnection
    step: NextStep
    code: int
    per: tuple[Any, ...] = ()
    subject: Subject = ()
    state: tuple[Any, ...] = ()
    told_ns: int = 0
    refused: Tally = field(default_factory=Tally)
    since_step: Tally = field(default_factory=Tally)
    steps: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    named: str = ""

    def begin(self) -> None:
        """The next refusal is the first."""
        self.told_ns, self.refused, self.since_step, self.steps = 0, Tally(), Tally(), Counter()

    def took(self, api: str) -> None:
        """The client took the step with a request. Where Metadata names something else, asking is not enough."""
        self.steps[api] += 1
        self.taken += 1
        if not self.named:
            self.since_step = Tally()

    @property
    def again(self) -> int:
        """How often the client sent the same request after it had received the error."""
        return max(self.since_step.count - 1, 0)

    @property
    def ignored(self) -> bool:
        """Whether the client has had the time to take the step."""
        count, span = self.since_step.count, self.since_step.span_ns
        if self.step.pause_ns:
            return count >= _HURRIED and span < count * self.step.pause_ns
        return count >= self.step.times and span >= self.step.after_ns

    @property
    def did(self) -> str:
        """What the client did: ``sent the same member epoch (5) again 4 times in 12 s``."""
        value = next((part for part in (*self.state, *self.per) if part is not None), "")
        steps = self.steps.items() if self.named else ()
        meanwhile = "".join(f", and sent {api} {times(count)} meanwhile" for api, count in steps)
        return f"{self.step.again.format(value)} {times(self.again)} in {duration(self.since_step.span_ns)}{meanwhile}"


class NextSteps(Model):
    """The steps that clients have not taken yet. Receives failures, and the requests that take a step."""

    id = "next-steps"
    wanted = Wanted.FAILED
    request_apis: ClassVar[frozenset[int] | None] = frozenset().union(*(step.until for step in next_steps().values()))

    def setup(self) -> None:
        self._open: LruDict[ClientIdentity, LruDict[Any, PendingStep]] = LruDict(_CLIENTS)
        self._touched: tuple[Exchange | None, list[PendingStep]] = None, []
        self._used: BoundedDict[ClientIdentity, int] = BoundedDict(_CLIENTS)  # by connections that have ended
        self._produce = self.traffic.model(ProduceReader)

    def touched(self, exchange: Exchange) -> list[PendingStep]:
        """The pending steps of a refused exchange, the newest refusal counted."""
        return self._touched[1] if self._touched[0] is exchange else []

    def last_used_ns(self, client: ClientIdentity) -> int:
        """When a client last used one of its connections, 0 if none is known."""
        still = (conn.last_activity_ns for conn in self.traffic.connections.values() if conn.identity == client)
        return max([self._used.get(client, 0), *still])

    def closed(self, conn: ClientConnection) -> None:
        self._used[conn.identity] = max(conn.last_activity_ns, self._used.get(conn.identity, 0))

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        steps = self._open.get(conn.identity) if self._open else None
        for pending in list(steps.values()) if steps else ():
            if exchange.api_key in pending.step.until:
                fields, step = _Fields(self._produce, conn, exchange), pending.step
                same = fields.of(step.per, pending.subject), fields.of(step.keeps, pending.subject)
                others = next_step(exchange.api_key, pending.code) is not step
                if others or same != (pending.per, pending.state) or fields.right(step, pending.subject):
                    pending.took(exchange.api)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED or not exchange.error:
            return
        request = exchange.request_view
        if request is not None and from_follower(request):
            return
        touched: dict[int, PendingStep] = {}
        fields: _Fields | None = None
        for subject, code in answers(exchange):
            step = next_step(exchange.api_key, code) if code else None
            if step is not None:
                fields = fields or _Fields(self._produce, conn, exchange)
                pending = self._refused(fields, step, code, subject)
                if pending is not None:
                    touched[id(pending)] = pending
        if touched:
            self._touched = exchange, list(touched.values())

    def _refused(self, fields: _Fields, step: NextStep, code: int, subject: Subject) -> PendingStep | None:
        conn, exchange = fields.conn, fields.exchange
        per, state = fields.of(step.per, subject), fields.of(step.keeps, subject)
        about = () if "producer" in step.per else subject  # a producer id is given up for all partitions
        steps = self._open.of(conn.identity, lambda: LruDict(_STEPS))
        pending = steps.of((step.name, about, per), lambda: PendingStep(conn, step, code, per))
        pending.conn, pending.code, pending.subject = conn, code, subject
        if fields.right(step, subject):
            pending.begin()
            return None
        sent, named = exchange.request_time_ns or 0, _named(step, conn, exchange, subject)
        # A field that a request leaves out is as it was: partitions of a fetch session.
        state = tuple(new if new is not None else old for new, old in zip(state, pending.state or state, strict=True))
        if (anew := sent - pending.refused.last_ns > _PAUSE_NS) or (state, named) != (pending.state, pending.named):
            pending.begin()
            pending.taken = 0 if anew else pending.taken
            pending.state, pending.named = state, named
        if not pending.since_step.count:
            pending.told_ns = exchange.response_time_ns or 0
        elif sent < pending.told_ns:
            return pending  # it was on its way
        pending.refused.add(sent)
        pending.since_step.add(sent)
        return pending


class _Fields:
    """The fields of a request, read once."""

    def __init__(self, produce: ProduceReader, conn: ClientConnection, exchange: Exchange) -> None:
        self.conn, self.exchange, self._produce = conn, exchange, produce
        message = exchange.request_view
        self._top: dict[str, Any] = top(message) if message is not None else {}
        self._nested: dict[str, Mapping[Subject, Any]] = {}

    def of(self, names: tuple[str, ...], subject: Subject) -> tuple[Any, ...]:
        """Their values for what an error is about; None for those that the request has not."""
        return tuple(self.value(name, subject) for name in names)

    def right(self, step: NextStep, subject: Subject) -> bool:
        """Whether the request is what the step asks for."""
        return any(str(self.value(name, subject)) == value for name, value in step.right)

    def value(self, name: str, subject: Subject) -> Any:
        """The value of one, see `reference.next_steps`."""
        if name in _OF_EXCHANGES:
            return _OF_EXCHANGES[name](self.conn, self.exchange)
        if name == "producer":
            return self._producer(subject)
        if name in self._top:
            return self._top[name]
        nested = self._nested.get(name)
        if nested is None:
            nested = self._nested[name] = dict(requested(self.exchange, name))
        return next((nested[subject[:end]] for end in range(len(subject), 0, -1) if subject[:end] in nested), None)

    def _producer(self, subject: Subject) -> tuple[int, int]:
        if self.exchange.api_key == PRODUCE:
            sent = self._produce.sent(self.exchange)
            topic, partition = _place(self.exchange, subject) or ("", -1)
            parts = sent.parts if sent is not None else ()
            batch = next((part.batch for part in parts if (part.topic, part.partition) == (topic, partition)), None)
            return (batch.producer_id, batch.producer_epoch) if batch is not None else (-1, -1)
        number, epoch = ((self._top.get(name, self._top.get(f"v3_and_below_{name}", -1))) for name in ("producer_id", "producer_epoch"))
        return number, epoch


_OF_EXCHANGES = {
    "api": lambda conn, exchange: exchange.api,
    "version": lambda conn, exchange: exchange.api_version,
    "broker": lambda conn, exchange: conn.broker,
    "connection": lambda conn, exchange: conn.number,
}


def _place(exchange: Exchange, subject: Subject) -> tuple[str, int] | None:
    """The topic and partition that an error is about."""
    if len(subject) < 2 or not isinstance(subject[-1], int):
        return None
    return topic_name(exchange, subject[-2]), subject[-1]


def place_of(pending: PendingStep, exchange: Exchange) -> tuple[str, int]:
    """The topic and partition of the last refusal, ("", -1) if it is about none."""
    return _place(exchange, pending.subject) or ("", -1)


def _named(step: NextStep, conn: ClientConnection, exchange: Exchange, subject: Subject) -> str:
    """What Metadata named, before a request was sent, in place of what the request was refused for."""
    place = _place(exchange, subject)
    cluster = conn.cluster
    if place is None or "Metadata" not in map(facts.api_name, step.until):
        return ""
    if "broker" in step.keeps:
        leader, here = cluster.leaders.get(place), cluster.node_at(conn.broker)
        other = leader is not None and here is not None and leader.node not in (-1, here)
        return f"broker {leader.node} as leader" if other and leader and leader.time_ns < (exchange.request_time_ns or 0) else ""
    known = cluster.topic_ids.get(place[0])
    return topic_id_text(known) if known is not None and isinstance(subject[-2], bytes) and known != subject[-2] else ""


class FollowingDetector(Detector):
    """A detector of clients that were refused: override `refused`. `STEPS`: the names of its rows of the table."""

    wanted = Wanted.FAILED
    dispatches: ClassVar[Mapping[str, str]] = {"done": "refused"}
    STEPS: ClassVar[frozenset[str]]

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.steps = traffic.model(NextSteps)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        for pending in self.steps.touched(exchange):
            if pending.step.name in self.STEPS:
                self.refused(pending, exchange)

    def refused(self, pending: PendingStep, exchange: Exchange) -> None:
        """A client was refused, for the first time or again."""
