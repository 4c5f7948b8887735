"""The loop that replays: steps in the recording's order, requests at their time, answers compared as they come.

One cursor goes through the steps. At a step that says "the recorded client had this answer by then" it stops until the
target has answered (`Order.RECORDED`), or only that connection waits (`Order.CONNECTION`); what waits on one connection is
kept in that connection's backlog, in order. A request that needs an id which another answer has still to tell waits
for that answer in any case. Nothing waits longer than `patience`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from ...captures.replay.mapping import NotKnown
from ...captures.replay.partial_requests import PRODUCE
from ...captures.replay.policy import ALTERS
from ...captures.replay.preparer import CannotSend, Preparer, patched
from ...captures.replay.report import Report
from ...captures.replay.roles import Role
from ...captures.replay.script import Call, Do, Script, Step, gives
from ...decoder.connection.connection import expects_no_response
from .ahead import Ahead
from .closing import Closing
from .composing import compose
from .connections import Connections, RecordedConnection
from .dialing import Dialer
from .link import TargetConnection
from .resolving import Resolver
from .responses import Answers
from .routing import Router
from .settings import SECOND, Order, Settings
from .target import Target, TargetFailed

MS = 1_000_000
_SLICE_NS = MS
_SOON_NS = 60_000
"""Nearer than this to a request's time the loop does not sleep: waking up takes that long."""


class Player:
    """Replays a script once. `stop` may be set at any time; `tick` is called some times a second, for progress."""

    def __init__(
        self,
        script: Script,
        preparer: Preparer,
        target: Target,
        dialer: Dialer,
        report: Report,
        settings: Settings | None = None,
        resolver: Resolver | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.script, self.preparer, self.target, self.report = script, preparer, target, report
        self.settings = settings or Settings()
        self.mapping = preparer.mapping
        self.resolver = resolver or Resolver(script, target, self.mapping, report)
        self.answers = Answers(script, preparer, self.resolver, report, self.settings)
        self.router = Router(target, self.mapping)
        self.stop = False
        self.sent = 0
        self.tick = tick
        self._net = Connections(dialer, target, self.settings.connections, report, self._answer, self._lost)
        self._ahead = Ahead(script.steps())
        self._lines: dict[int, RecordedConnection] = {}
        self._closing = Closing(self._lines, self._net, report, self.settings)
        self._blocked: Call | None = None
        self._blocked_until = 0
        self._held_until = 0
        self._begun = 0
        self._correlation = 0
        self._again: list[tuple[int, RecordedConnection, Call]] = []
        self._given: dict[tuple[Role, object], Call] = {}
        self._waiters: dict[int, set[RecordedConnection]] = {}
        self._waiting_lines: set[RecordedConnection] = set()
        self._patience_ns = int(self.settings.patience * SECOND)

    # --- the loop ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Replay to the end, or until `stop`."""
        self._ahead.fill(self.settings.preload)
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
        """Handle what happens until the next request is due."""
        now = time.monotonic_ns()
        left = 20 * MS if next_ns is None else max(0, min(next_ns - now, 20 * MS))
        happened = self._net.wait(left - _SOON_NS if left > _SOON_NS else 0)
        if not happened:
            idle = time.monotonic_ns()
            self.tick()
            if left > 2 * MS:
                self._ahead.fill(self.settings.preload, idle + min(_SLICE_NS, left // 2))
        self._overdue(time.monotonic_ns())

    def _advance(self, now: int) -> int | None:
        """Do all steps that are due; when the next one is, in ns, or None if that depends on answers (or on nothing)."""
        pace, steps = self.settings.pace, self._ahead.steps
        done = 0
        while True:
            if self._blocked is not None:
                if not self._blocked.done:
                    return None
                self._blocked, self._held_until = None, time.monotonic_ns()
            if not steps:
                if self._ahead.exhausted:
                    return None
                self._ahead.fill(1 << 16)
                self.resolver.new_topics()
                continue
            step = steps[0]
            if step.do is not Do.ANSWER:
                due = self._begun + pace.due(step.due_ns, self.sent)
                if step.do is Do.SEND:
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
                elif step.do is Do.CLOSE and due > now and not pace.rate:
                    return due
            self._ahead.take()
            self._step(step, now)
            done += 1
            if done % 256 == 0:
                return now  # answers are read now and then also while there is more to send

    def _dial_ahead(self) -> None:
        """Connect for the next steps: making a connection takes longer than sending on one."""
        for step in islice(self._ahead.steps, 8):
            if step.do is Do.SEND and step.call is not None and not self.settings.connections:
                line = self._line(step)
                if not line.links and len(self.target.brokers) < 2:
                    self._net.link(line, None)

    def _finished(self) -> bool:
        if self._ahead.steps or not self._ahead.exhausted or self._blocked is not None or self._again:
            return False
        if self._waiting_lines:
            return False
        return not self._net.busy and not self._closing.busy

    # --- steps ------------------------------------------------------------------------------------------------

    def _line(self, step: Step) -> RecordedConnection:
        line = self._lines.get(step.connection)
        if line is None:
            line = self._lines[step.connection] = RecordedConnection(
                step.connection, step.call.exchange.broker if step.call is not None else step.broker
            )
        return line

    def _step(self, step: Step, now: int) -> None:
        line = self._line(step)
        call = step.call
        if step.do is Do.OPEN:
            return
        if line.backlog:
            line.backlog.append(step)
            return
        if step.do is Do.SEND:
            assert call is not None
            self._try_send(line, step)
        elif step.do is Do.ANSWER:
            assert call is not None
            if call.done:
                return
            self._expect(call)
            if self.settings.order is Order.FREE:
                return
            if self.settings.order is Order.RECORDED and not call.waiting:
                self._blocked, self._blocked_until = call, now + self._patience_ns
            else:
                self._hold(line, step)
        else:
            self._closing.close(line, step)

    def _hold(self, line: RecordedConnection, step: Step) -> None:
        """Nothing goes on at this connection before that step is done."""
        line.backlog.appendleft(step)
        line.since = time.monotonic_ns()
        self._waiting_lines.add(line)

    def _drain(self, line: RecordedConnection) -> None:
        """Go on with a connection as far as it can."""
        while line.backlog:
            step = line.backlog[0]
            if step.do is Do.ANSWER:
                assert step.call is not None
                if not step.call.done:
                    self._expect(step.call)
                    if self.settings.order is not Order.FREE or step.connection != line.number:
                        return
                line.backlog.popleft()
                continue
            line.backlog.popleft()
            line.since = time.monotonic_ns()
            if step.do is Do.CLOSE:
                self._closing.close(line, step)
            elif not self._try_send(line, step):
                return
        self._waiting_lines.discard(line)

    def _expect(self, call: Call) -> None:
        """Remember what a recorded answer gave out that the target has still to give."""
        asked, answer = call.exchange.request_view, call.exchange.response_view
        if asked is not None and answer is not None:
            for given in gives(asked, answer):
                self._given.setdefault(given, call)

    def _try_send(self, line: RecordedConnection, step: Step) -> bool:
        """Send a request, or hold its connection until it can be."""
        call = step.call
        assert call is not None
        try:
            self._send(line, call)
        except NotKnown as unknown:
            giver = self._given.get((unknown.role, unknown.value))
            if giver is not None and not giver.done and giver is not call:
                line.backlog.appendleft(step)
                self._hold(line, Step(Do.ANSWER, 0, giver.connection, giver))
                self._waiters.setdefault(id(giver), set()).add(line)
                return False
            self.resolver.resolve(unknown)
            try:
                self._send(line, call)
            except NotKnown as still:
                self._skip(call, f"the target has no {still.role} for what was recorded")
        return True

    def _send(self, line: RecordedConnection, call: Call, again: bool = False) -> None:
        exchange = call.exchange
        try:
            frame, version, message = compose(call, self.script, self.preparer, self.target, self.report, again)
        except CannotSend as reason:
            self._skip(call, str(reason))
            return
        try:
            node = self.router.node(message, line.broker)
        except TargetFailed as reason:
            self._skip(call, str(reason))
            return
        link = self._net.link(line, node)
        if link.failed:
            self._fail(call, link.failed)
            return
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        link.out += patched(frame, self._correlation)
        self._net.dirty.add(link)
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
            link.pending.append((self._correlation, call, version))
            self._net.pending += 1

    def _skip(self, call: Call, why: str) -> None:
        self.report.skip(call, why)
        if why == ALTERS:
            self.answers.left_out.left_out(call.exchange)
        self._go_on(call)

    def _fail(self, call: Call, why: str) -> None:
        self.report.fail(call, why)
        self._go_on(call)

    def _go_on(self, call: Call) -> None:
        """Whatever waits for a call waits no more."""
        call.done = True
        for line in self._waiters.pop(id(call), ()):
            self._drain(line)

    # --- connections ------------------------------------------------------------------------------------------

    def _lost(self, link: TargetConnection, calls: list[Call], why: str) -> None:
        """A connection is gone, or never was."""
        line: RecordedConnection = link.owner
        line.closes_by = 0
        for call in calls:
            if call.exchange.response is not None:
                self._fail(call, why)
            else:
                self.report.unanswered += 1
                self._go_on(call)
        self._drain(line)

    def _overdue(self, now: int) -> None:
        """Whatever has been waited for too long is waited for no more; what is to be sent again is sent."""
        if self._blocked is not None and now > self._blocked_until:
            self._give_up(self._blocked)
        for line in list(self._waiting_lines):
            step = line.backlog[0] if line.backlog else None
            if step is None:
                self._waiting_lines.discard(line)
            elif step.do is Do.ANSWER and step.call is not None and (step.call.done or now - line.since > self._patience_ns):
                if not step.call.done:
                    self._give_up(step.call)
                self._drain(line)
        self._closing.overdue(now)
        if self._again:
            due = [entry for entry in self._again if entry[0] <= now]
            self._again = [entry for entry in self._again if entry[0] > now]
            for _, line, call in due:
                try:
                    self._send(line, call, again=True)
                except NotKnown as unknown:
                    self._skip(call, f"the target has no {unknown.role} for what was recorded")
        if self._ahead.exhausted and not self._ahead.steps and self._net.pending:
            self._last_ones(now)

    def _last_ones(self, now: int) -> None:
        """At the end, answers that never came in the recording are not waited for; the others for a while."""
        for link in list(self._net.all):
            while link.pending:
                _, call, _ = link.pending[0]
                if call.exchange.response is not None and now - call.sent_ns < self._patience_ns:
                    break
                if call.exchange.response is None and now - call.sent_ns < SECOND:
                    break
                link.pending.popleft()
                self._net.pending -= 1
                self.report.unanswered += 1
                if call.exchange.response is not None:
                    self.report.fail(call, f"no answer within {self.settings.patience:g} s")
                self._go_on(call)
            if not link.pending:
                self._drain(link.owner)

    def _give_up(self, call: Call) -> None:
        self.report.note(f"went on without waiting longer for {call.exchange.api}")
        self._go_on(call)
        self._held_until = time.monotonic_ns()

    def _end(self) -> None:
        self.answers.finish(not self.stop)
        for what, count in self.script.left_out.items():
            self.report.skipped[what] = self.report.skipped.get(what, 0) + count
        if self.router.spread:
            self.report.notes["requests whose partitions have several leaders at the target"] = self.router.spread
        self._net.close()

    # --- answers ----------------------------------------------------------------------------------------------

    def _answer(self, link: TargetConnection, frame: bytes) -> None:
        now = time.monotonic_ns()
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        while link.pending and link.pending[0][0] != correlation:
            if all(entry[0] != correlation for entry in link.pending):
                self.report.note("answers that nobody asked for")
                return
            _, missed, _ = link.pending.popleft()
            self._net.pending -= 1
            self._fail(missed, "the target answered a later request instead")
        if not link.pending:
            self.report.note("answers that nobody asked for")
            return
        _, call, version = link.pending.popleft()
        self._net.pending -= 1
        line = self._lines[call.connection]
        exchange = call.exchange
        if version == exchange.api_version and self.answers.same(exchange, frame):
            self.report.equal += 1
        else:
            again_ns = self.answers.look(call, frame, version, now, closing=bool(line.closes_by))
            if again_ns:
                self._again.append((now + again_ns, line, call))
                return
        call.done = call.answered = True
        self.report.answered += 1
        self.report.took(call, now - call.sent_ns)
        if self._waiters:
            self._go_on(call)
        if line.backlog:
            self._drain(line)
