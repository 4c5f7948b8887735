"""The loop that replays: steps in the recording's order, requests at their time, answers compared as they come.

One cursor goes through the steps. At a step that marks a response of the recorded client it stops until the target has
answered (`Order.RECORDED`), or only that connection waits (`Order.CONNECTION`), with its next steps in its backlog. A
request that needs an id from an outstanding response always waits for that response. Nothing waits longer than
`patience`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from ...captures.replay.mapping import UnknownId
from ...captures.replay.partial_requests import PRODUCE
from ...captures.replay.policy import ALTERS
from ...captures.replay.preparer import CannotSend, Preparer, patched
from ...captures.replay.report import ReplayReport
from ...captures.replay.script import RecordedCall, Script, ScriptStep, StepKind, gives
from ...decoder.codec.message import Message
from ...decoder.connection.connection import expects_no_response
from ...decoder.schema.meaning import Meaning
from .connections import ConnectionCloser, PendingCall, ReplayedConnection, TargetConnection, TargetConnections
from .dialer import Dialer, TargetFailed
from .resolver import TargetResolver
from .responses import ResponseChecker
from .router import Router
from .settings import SECOND, Order, Settings
from .target import TargetCluster

MS = 1_000_000
_SLICE_NS = MS
_SOON_NS = 60_000
"""The loop does not sleep for less than this before a request is due: waking up takes that long."""


def _cost(step: ScriptStep) -> int:
    """The approximate memory of a step that was read ahead."""
    if step.call is None:
        return 100
    exchange = step.call.exchange
    return 1000 + len(exchange.request or b"") if step.kind is StepKind.SEND else 100 + len(exchange.response or b"")


class ReadAhead:
    """Steps that are read before they are due, bounded by bytes. `steps`: read and not yet taken; `exhausted`: there are
    no more to read."""

    def __init__(self, source: Iterator[ScriptStep]) -> None:
        self.steps: deque[ScriptStep] = deque()
        self.exhausted = False
        self._source = source
        self._bytes = 0

    def fill(self, most: int, until_ns: int | None = None) -> None:
        """Read ahead up to so many bytes, or until that time (of the monotonic clock)."""
        while not self.exhausted and self._bytes < most:
            step = next(self._source, None)
            if step is None:
                self.exhausted = True
                return
            self.steps.append(step)
            self._bytes += _cost(step)
            if until_ns is not None and time.monotonic_ns() >= until_ns:
                return

    def take(self) -> ScriptStep:
        """Take the next step."""
        step = self.steps.popleft()
        self._bytes -= _cost(step)
        return step


class Retry(NamedTuple):
    """A request to be sent again at that time (of the monotonic clock)."""

    due_ns: int
    recorded: ReplayedConnection
    call: RecordedCall


class Composed(NamedTuple):
    """A frame without its size, its version, and the message if routing needs it."""

    frame: bytes
    version: int
    message: Message | None


def compose(call: RecordedCall, script: Script, preparer: Preparer, target: TargetCluster, report: ReplayReport, again: bool) -> Composed:
    """What is sent for a recorded request: its bytes if nothing has to change, else those that the target needs.

    Raises CannotSend with the reason, and UnknownId for an id that the target has not sent yet. `again`: the request was
    counted before."""
    exchange = call.exchange
    script.make_ready(call)
    if call.skip is not None:
        raise CannotSend(call.skip)
    if preparer.unchanged(call):
        # With several brokers its partitions decide where it goes.
        message = exchange.request_message if len(target.brokers) > 1 else None
        return Composed(exchange.request or b"", exchange.api_version, message)
    message = preparer.request(call)
    if message.api_version != exchange.api_version:
        what = f"{exchange.api} v{exchange.api_version} sent as v{message.api_version}"
        report.versions[what] = report.versions.get(what, 0) + (not again)
    return Composed(message.frame, message.api_version, message)


class Player:
    """Replays a script once. `stop` may be set at any time; `tick` is called some times a second, for progress."""

    def __init__(
        self,
        script: Script,
        preparer: Preparer,
        target: TargetCluster,
        dialer: Dialer,
        report: ReplayReport,
        settings: Settings | None = None,
        resolver: TargetResolver | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.script, self.preparer, self.target, self.report = script, preparer, target, report
        self.settings = settings or Settings()
        self.mapping = preparer.mapping
        self.resolver = resolver or TargetResolver(script, target, self.mapping, report)
        self.responses = ResponseChecker(script, preparer, self.resolver, report, self.settings)
        self.router = Router(target, self.mapping)
        self.stop = False
        self.sent = 0
        self.tick = tick
        self._net = TargetConnections(dialer, target, self.settings.connections, report, self._answer, self._lost)
        self._read_ahead = ReadAhead(script.steps())
        self._recorded: dict[int, ReplayedConnection] = {}
        self._closer = ConnectionCloser(self._recorded, self._net, report, self.settings)
        self._blocked: RecordedCall | None = None
        self._blocked_until = 0
        self._held_until = 0
        self._begun = 0
        self._correlation = 0
        self._retries: list[Retry] = []
        self._given: dict[tuple[Meaning, object], RecordedCall] = {}
        self._waiters: dict[int, set[ReplayedConnection]] = {}
        self._waiting: set[ReplayedConnection] = set()
        self._patience_ns = int(self.settings.patience * SECOND)

    # --- the loop ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Replay to the end, or until `stop`."""
        self._read_ahead.fill(self.settings.preload)
        self.resolver.new_topics()
        self._begun = time.monotonic_ns()
        try:
            while not self.stop:
                now = time.monotonic_ns()
                next_ns = self._advance(now)
                self._net.flush()
                if next_ns is None and self._finished():
                    break
                self._wait(next_ns)
        finally:
            self.report.interrupted |= self.stop
            self.report.seconds += (time.monotonic_ns() - self._begun) / SECOND
            self._end()

    def _wait(self, next_ns: int | None) -> None:
        """Handle events until the next request is due."""
        now = time.monotonic_ns()
        left = 20 * MS if next_ns is None else max(0, min(next_ns - now, 20 * MS))
        happened = self._net.wait(left - _SOON_NS if left > _SOON_NS else 0)
        if not happened:
            idle = time.monotonic_ns()
            self.tick()
            if left > 2 * MS:
                self._read_ahead.fill(self.settings.preload, idle + min(_SLICE_NS, left // 2))
        self._overdue(time.monotonic_ns())

    def _advance(self, now: int) -> int | None:
        """Do all steps that are due. Returns when the next one is, in ns; None if it waits for responses, or there is
        none."""
        pace, steps = self.settings.pace, self._read_ahead.steps
        done = 0
        while True:
            if self._blocked is not None:
                if not self._blocked.done:
                    return None
                self._blocked, self._held_until = None, time.monotonic_ns()
            if not steps:
                if self._read_ahead.exhausted:
                    return None
                self._read_ahead.fill(1 << 16)
                self.resolver.new_topics()
                continue
            step = steps[0]
            if step.kind is not StepKind.ANSWER:
                due = self._begun + pace.due(step.due_ns, self.sent)
                if step.kind is StepKind.SEND:
                    if due > now:
                        now = time.monotonic_ns()
                        if due > now:
                            self._dial_ahead()
                            return due
                    if pace.factor or pace.rate:
                        if due < self._held_until:
                            self.report.held_back += 1
                        elif step.call is not None and step.call.ready and step.call.skip is None:
                            self.report.late_ns.append(max(0, time.monotonic_ns() - due))
                elif step.kind is StepKind.CLOSE and due > now and not pace.rate:
                    return due
            self._read_ahead.take()
            self._step(step, now)
            done += 1
            if done % 256 == 0:
                return now  # responses are read now and then while there is more to send

    def _dial_ahead(self) -> None:
        """Connect for the next steps, as dialing takes longer than sending."""
        for step in islice(self._read_ahead.steps, 8):
            if step.kind is StepKind.SEND and step.call is not None and not self.settings.connections:
                recorded = self._recorded_connection(step)
                if not recorded.connections and len(self.target.brokers) < 2:
                    self._net.connection(recorded, None)

    def _finished(self) -> bool:
        if self._read_ahead.steps or not self._read_ahead.exhausted or self._blocked is not None:
            return False
        return not (self._retries or self._waiting or self._net.busy or self._closer.busy)

    # --- steps ------------------------------------------------------------------------------------------------

    def _recorded_connection(self, step: ScriptStep) -> ReplayedConnection:
        recorded = self._recorded.get(step.connection)
        if recorded is None:
            recorded = self._recorded[step.connection] = ReplayedConnection(
                step.connection, step.call.exchange.broker if step.call is not None else step.broker
            )
        return recorded

    def _step(self, step: ScriptStep, now: int) -> None:
        recorded = self._recorded_connection(step)
        call = step.call
        if step.kind is StepKind.OPEN:
            return
        if recorded.backlog:
            recorded.backlog.append(step)
            return
        if step.kind is StepKind.SEND:
            assert call is not None
            self._try_send(recorded, step)
        elif step.kind is StepKind.ANSWER:
            assert call is not None
            if call.done:
                return
            self._expect(call)
            if self.settings.order is Order.FREE:
                return
            if self.settings.order is Order.RECORDED and not call.waiting:
                self._blocked, self._blocked_until = call, now + self._patience_ns
            else:
                self._hold(recorded, step)
        else:
            self._closer.close(recorded, step)

    def _hold(self, recorded: ReplayedConnection, step: ScriptStep) -> None:
        """Let a connection wait until that step is done."""
        recorded.backlog.appendleft(step)
        recorded.since = time.monotonic_ns()
        self._waiting.add(recorded)

    def _drain(self, recorded: ReplayedConnection) -> None:
        """Do the steps of a connection's backlog as far as possible."""
        while recorded.backlog:
            step = recorded.backlog[0]
            if step.kind is StepKind.ANSWER:
                assert step.call is not None
                if not step.call.done:
                    self._expect(step.call)
                    if self.settings.order is not Order.FREE or step.connection != recorded.number:
                        return
                recorded.backlog.popleft()
                continue
            recorded.backlog.popleft()
            recorded.since = time.monotonic_ns()
            if step.kind is StepKind.CLOSE:
                self._closer.close(recorded, step)
            elif not self._try_send(recorded, step):
                return
        self._waiting.discard(recorded)

    def _expect(self, call: RecordedCall) -> None:
        """Remember the ids in a recorded response that the target has yet to send."""
        asked, answer = call.exchange.request_view, call.exchange.response_view
        if asked is not None and answer is not None:
            for given in gives(asked, answer):
                self._given.setdefault(given, call)

    def _try_send(self, recorded: ReplayedConnection, step: ScriptStep) -> bool:
        """Send a request, or let its connection wait until that is possible."""
        call = step.call
        assert call is not None
        try:
            self._send(recorded, call)
        except UnknownId as unknown:
            giver = self._given.get((unknown.role, unknown.value))
            if giver is not None and not giver.done and giver is not call:
                recorded.backlog.appendleft(step)
                self._hold(recorded, ScriptStep(StepKind.ANSWER, 0, giver.connection, giver))
                self._waiters.setdefault(id(giver), set()).add(recorded)
                return False
            self.resolver.resolve(unknown)
            try:
                self._send(recorded, call)
            except UnknownId as still:
                self._skip(call, f"the target has no {still.role} for what was recorded")
        return True

    def _send(self, recorded: ReplayedConnection, call: RecordedCall, again: bool = False) -> None:
        exchange = call.exchange
        try:
            frame, version, message = compose(call, self.script, self.preparer, self.target, self.report, again)
        except CannotSend as reason:
            self._skip(call, str(reason))
            return
        try:
            node = self.router.node(message, recorded.broker)
        except TargetFailed as reason:
            self._skip(call, str(reason))
            return
        connection = self._net.connection(recorded, node)
        if connection.failed:
            self._fail(call, connection.failed)
            return
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        connection.out += patched(frame, self._correlation)
        self._net.dirty.add(connection)
        call.sent_ns = time.monotonic_ns()
        if again:
            self.report.again += 1
        else:
            self.sent += 1
            self.report.sent += 1
            if call.left_out:
                self.report.note("Produce requests sent without what was refused when recorded")
        if exchange.api_key == PRODUCE and expects_no_response(exchange):
            call.done = call.answered = True
            self.report.equal += 1
        else:
            connection.pending.append(PendingCall(self._correlation, call, version))
            self._net.pending += 1

    def _skip(self, call: RecordedCall, why: str) -> None:
        self.report.skip(call, why)
        if why == ALTERS:
            self.responses.left_out.left_out(call.exchange)
        self._complete(call)

    def _fail(self, call: RecordedCall, why: str) -> None:
        self.report.fail(call, why)
        self._complete(call)

    def _complete(self, call: RecordedCall) -> None:
        """Mark a call as done, and continue what waits for it."""
        call.done = True
        for recorded in self._waiters.pop(id(call), ()):
            self._drain(recorded)

    # --- connections ------------------------------------------------------------------------------------------

    def _lost(self, connection: TargetConnection, calls: list[RecordedCall], why: str) -> None:
        """Handle a connection that is gone, or was never made."""
        recorded: ReplayedConnection = connection.owner
        recorded.closes_by = 0
        for call in calls:
            if call.exchange.response is not None:
                self._fail(call, why)
            else:
                self.report.unanswered += 1
                self._complete(call)
        self._drain(recorded)

    def _overdue(self, now: int) -> None:
        """Give up what has taken too long, and send retries that are due."""
        if self._blocked is not None and now > self._blocked_until:
            self._give_up(self._blocked)
        for recorded in list(self._waiting):
            step = recorded.backlog[0] if recorded.backlog else None
            if step is None:
                self._waiting.discard(recorded)
            elif step.kind is StepKind.ANSWER and step.call is not None and (step.call.done or now - recorded.since > self._patience_ns):
                if not step.call.done:
                    self._give_up(step.call)
                self._drain(recorded)
        self._closer.close_overdue(now)
        due = [retry for retry in self._retries if retry.due_ns <= now]
        self._retries = [retry for retry in self._retries if retry.due_ns > now]
        for retry in due:
            try:
                self._send(retry.recorded, retry.call, again=True)
            except UnknownId as unknown:
                self._skip(retry.call, f"the target has no {unknown.role} for what was recorded")
        if self._read_ahead.exhausted and not self._read_ahead.steps and self._net.pending:
            self._give_up_at_end(now)

    def _give_up_at_end(self, now: int) -> None:
        """At the end, wait for a while for responses that the recording has, and not for others."""
        for connection in list(self._net.all):
            while connection.pending:
                _, call, _ = connection.pending[0]
                if call.exchange.response is not None and now - call.sent_ns < self._patience_ns:
                    break
                if call.exchange.response is None and now - call.sent_ns < SECOND:
                    break
                connection.pending.popleft()
                self._net.pending -= 1
                self.report.unanswered += 1
                if call.exchange.response is not None:
                    self.report.fail(call, f"no answer within {self.settings.patience:g} s")
                self._complete(call)
            if not connection.pending:
                self._drain(connection.owner)

    def _give_up(self, call: RecordedCall) -> None:
        self.report.note(f"stopped waiting for {call.exchange.api}")
        self._complete(call)
        self._held_until = time.monotonic_ns()

    def _end(self) -> None:
        self.responses.finish(not self.stop)
        for what, count in self.script.left_out.items():
            self.report.skipped[what] = self.report.skipped.get(what, 0) + count
        if self.router.spread:
            self.report.notes["requests whose partitions have several leaders at the target"] = self.router.spread
        self._net.close()

    # --- answers ----------------------------------------------------------------------------------------------

    def _answer(self, connection: TargetConnection, frame: bytes) -> None:
        now = time.monotonic_ns()
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        while connection.pending and connection.pending[0].correlation != correlation:
            if all(each.correlation != correlation for each in connection.pending):
                self.report.note("responses without a request")
                return
            _, missed, _ = connection.pending.popleft()
            self._net.pending -= 1
            self._fail(missed, "the target answered a later request instead")
        if not connection.pending:
            self.report.note("responses without a request")
            return
        _, call, version = connection.pending.popleft()
        self._net.pending -= 1
        recorded = self._recorded[call.connection]
        exchange = call.exchange
        if version == exchange.api_version and self.responses.is_recorded(exchange, frame):
            self.report.equal += 1
        else:
            again_ns = self.responses.check(call, frame, version, now, closing=bool(recorded.closes_by))
            if again_ns:
                self._retries.append(Retry(now + again_ns, recorded, call))
                return
        call.done = call.answered = True
        self.report.answered += 1
        self.report.took(call, now - call.sent_ns)
        if self._waiters:
            self._complete(call)
        if recorded.backlog:
            self._drain(recorded)
