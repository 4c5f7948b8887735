"""Plugins in the relay: which messages they see, and what becomes of those.

A message that a hook is for waits in its half, as one that a rule delays does (`fault_executor.wait`): its direction of its
connection stops, nothing else does. It goes on as the host decides, or as it came when its budget is spent. Requests come
here before rules see them, responses when rules are done with them.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from .....decoder.filter import compile
from .....diagnostics import contained
from .....plugins.answers import fetch_sessions
from .....plugins.answers.fetch_sessions import FETCH
from .....plugins.hooks.context import Decision
from ....events import PluginLate, RelayFault, show
from ....processes.control_messages import PluginState
from ....ring.clock import now_ns
from ...connections.correlation import REQUEST
from ...interfaces import HookedRequest, PluginRequest
from ..frame_editor import API_VERSIONS, METADATA, framed
from ..request_frames import gets_response
from ..rules import fault_executor
from . import messages
from .config import PluginsConfig
from .host_manager import HostManager
from .pending_messages import PendingMessage, PendingMessages, Then
from .plugin_requests import PluginRequestQueue

if TYPE_CHECKING:
    from ...interfaces import ConnectionInterface, HalfConnectionInterface, RelayInterface

WAITING_BYTES = 48 << 20
"""Most bytes of messages that wait, and of those that hooks only hear of; what is beyond passes."""
METADATA_KEPT = 16
"""Metadata responses of a broker that are kept for hosts to come."""
_AS_IT_CAME = messages.HookDecision()


class PluginInterceptor:
    """See the module. One per relay; `begin` before clients come."""

    def __init__(self, relay: RelayInterface, config: PluginsConfig) -> None:
        self._relay = relay
        self._budget = config.budget
        self.hosts = HostManager(relay, config, self)
        self._requests_of_plugins = PluginRequestQueue(relay, self)
        self._pending = PendingMessages(relay.timers.after, config.budget, self.hosts.drain, self._overdue)
        self._numbers = count(1)
        self._known: dict[tuple[str, int, int], tuple[messages.Learn, bytes]] = {}
        self._learned = 0
        self._requests: frozenset[int] = frozenset()
        self._responses: frozenset[int] = frozenset()
        self._exchanges: frozenset[int] = frozenset()
        self.whole_fetches = False
        """Whether a plugin has to know all topics of a Fetch request (see `plugins.answers.fetch_sessions`)."""
        self._gone = False
        self.calls: Counter[str] = Counter()
        """How often hooks were called for a message, by plugin."""
        self._late = 0
        self._late_reported = 0

    def begin(self) -> None:
        """Load the plugins."""
        self.hosts.begin()

    # -- interest --------------------------------------------------------------------------------------------

    def interest(self) -> frozenset[int]:
        """Api keys whose requests have to be looked at, by the plugins that are at work."""
        plugins = [] if self._gone else [each for each in self.hosts.plugins if each.name not in self.hosts.disabled]
        self._requests = frozenset(key for each in plugins for key in each.request)
        self._responses = frozenset(key for each in plugins for key in each.response)
        self._exchanges = frozenset(key for each in plugins for key in each.exchange)
        self.whole_fetches = any(
            fetch_sessions.names_topics(compile(each.match))
            for each in plugins
            if each.match is not None and FETCH in (*each.request, *each.exchange)
        )
        return self._requests | self._responses | self._exchanges

    def reload(self) -> None:
        """Start hosts with the plugins as their files are now."""
        self.hosts.reload()

    def listed(self) -> list[PluginState]:
        hosts = self.hosts
        state = "gone" if self._gone else "running" if hosts.current is not None else "starting"
        return [
            PluginState(
                each.name, each.source, each.hooks, "disabled" if each.name in hosts.disabled else state, self.calls.get(each.name, 0),
                hosts.total_faults.get(each.name, 0), hosts.disabled.get(each.name),
            )
            for each in hosts.plugins
        ]  # fmt: skip

    # -- requests --------------------------------------------------------------------------------------------

    def hold_request(self, connection: ConnectionInterface, frame: bytes, now: int) -> bool:
        """Whether a request (with its size) waits for its hooks."""
        key = int.from_bytes(frame[4:6], "big")
        if key not in self._requests or connection.correlation.unsure:
            return False
        call = messages.HookCall(messages.HookCallKind.REQUEST, connection.number, now, len(frame) - 4)
        return self._ask(call, frame[4:], connection, connection.request, partial(self._requested, connection, frame))

    def _requested(self, connection: ConnectionInterface, original: bytes, verdict: messages.HookDecision, now: int) -> None:
        """The hooks have decided about a request."""
        if verdict.delay_ns:
            then = partial(self._requested, connection, original, verdict._replace(delay_ns=0))
            size = len(original) + len(verdict.frame or b"")
            fault_executor.wait(connection.request, verdict.delay_ns, then, size=size)
            return
        if verdict.note:
            connection.note(REQUEST(original)[3], verdict.note, now)
        if verdict.kind is Decision.CLOSE:
            connection.publish_request(original, now)
            connection.close("rst" if verdict.reset else "fin")
        elif verdict.kind is Decision.DROP or (verdict.kind is Decision.RESPOND and not gets_response(original)):
            connection.publish_request(original, now)
        elif verdict.kind is Decision.RESPOND:
            connection.response_orderer.answer(original, framed(verdict.frame or b""), "", now)
        else:
            frame = framed(verdict.frame) if verdict.frame is not None else original
            connection.request_interceptor.plugin_note = verdict.note if frame is not original else ""
            connection.request_interceptor.past_plugins(frame, original, now)

    def keep(self, connection: ConnectionInterface, frame: bytes, now: int, answered: bool, hooks: bool = True) -> HookedRequest | None:
        """The request, if a hook is for its response or for the exchange. `answered`: whether a response will come;
        `hooks`: whether the hook for it is to see it."""
        key = int.from_bytes(frame[4:6], "big")
        response, exchange = hooks and key in self._responses, key in self._exchanges
        if not response and not exchange:
            return None
        hooked = HookedRequest(frame, now, response, exchange)
        if answered:
            return hooked
        self.notify(connection, hooked, b"", 0)
        return None

    # -- responses -------------------------------------------------------------------------------------------

    def hold_response(
        self, connection: ConnectionInterface, hooked: HookedRequest, original: bytes | None, frame: bytes, note: str, now: int
    ) -> bool:
        """Whether a response waits for its hooks. `original`: as the broker sent it, None if it was made here."""
        if not hooked.response:
            return False
        call = messages.HookCall(messages.HookCallKind.RESPONSE, connection.number, hooked.time_ns, len(hooked.frame) - 4, now)
        then = partial(self._responded, connection, hooked, original, frame, note)
        return self._ask(call, hooked.frame[4:] + frame[4:], connection, connection.response, then)

    def _responded(
        self,
        connection: ConnectionInterface,
        hooked: HookedRequest,
        original: bytes | None,
        frame: bytes,
        note: str,
        verdict: messages.HookDecision,
        now: int,
    ) -> None:
        """The hooks have decided about a response."""
        if verdict.delay_ns:
            rest = verdict._replace(delay_ns=0)
            then = partial(self._responded, connection, hooked, original, frame, note, rest)
            size = len(frame) + len(verdict.frame or b"")
            fault_executor.wait(connection.response, verdict.delay_ns, then, size=size)
            return
        if verdict.note:
            connection.note(int.from_bytes(frame[4:8], "big"), verdict.note, now)
            note = f"{note}; {verdict.note}" if note else verdict.note
        if verdict.kind in (Decision.CLOSE, Decision.DROP):
            if original is not None:
                connection.broker_leg(1, original, note, now)
            if verdict.kind is Decision.CLOSE:
                connection.close("rst" if verdict.reset else "fin")
            return
        if verdict.frame is not None:
            frame = framed(verdict.frame)
        connection.response_orderer.give(original, frame, note, now)
        self.notify(connection, hooked, frame, now)

    def notify(self, connection: ConnectionInterface, hooked: HookedRequest, frame: bytes, now: int) -> None:
        """An exchange is complete (`frame`: the response as the client got it, empty: there is none)."""
        host = self.hosts.current
        if not hooked.exchange or host is None:
            return
        if host.channel.pending + len(hooked.frame) + len(frame) > WAITING_BYTES:
            self._late += 1
            return
        call = messages.HookCall(messages.HookCallKind.EXCHANGE, connection.number, hooked.time_ns, len(hooked.frame) - 4, now)
        host.send(call, hooked.frame[4:] + frame[4:])

    # -- questions -------------------------------------------------------------------------------------------

    def _ask(self, call: messages.HookCall, data: bytes, connection: ConnectionInterface, half: HalfConnectionInterface, then: Then) -> bool:
        if self._gone:
            return False
        if self._pending.bytes + len(data) > WAITING_BYTES:
            self._late += 1
            return False
        call.question = next(self._numbers)
        question = PendingMessage(call, data, connection, half, then, time.monotonic() + self._budget)
        half.paused = True
        half.waits += 1
        self._pending.add(question)
        if self.hosts.current is not None:
            self.hosts.current.send(call, data)
        return True

    def _go_on(self, question: PendingMessage, verdict: messages.HookDecision = _AS_IT_CAME) -> None:
        """It waits no more."""
        if self._pending.take(question.number) is None or question.connection.closed:
            return
        half = question.half
        half.waits -= 1
        half.paused = bool(half.waits)
        now = now_ns()
        try:
            question.then(verdict, now)
            if not question.connection.closed:
                fault_executor.go_on(half, now)
        except Exception as error:  # it may cost this connection, and nothing else
            contained("a verdict of plugins", error, reported=True)
            self._relay.emit(RelayFault(question.connection.number, f"{type(error).__name__}: {error}"))
            question.connection.close("rst")

    def _overdue(self, question: PendingMessage) -> None:
        """Its budget is spent: it goes on as it came, and a hook that keeps the host busy is ended."""
        hosts = self.hosts
        host = hosts.current
        self._go_on(question)
        self._late += 1
        if host is not None and not hosts.stuck(self._budget, question.number):
            host.send(messages.Forget(question.number))
            # It may have begun a moment ago only: another look when it has had its time.
            self._relay.timers.after(int(self._budget * 1e9), partial(self._look_again, host.number))

    def _look_again(self, number: int) -> None:
        if self.hosts.current is not None and self.hosts.current.number == number:
            self.hosts.stuck(self._budget)

    def tick(self) -> None:
        """About once a second: hooks that nobody waits for may hang, too."""
        self.hosts.stuck(self._budget)
        if self._late > self._late_reported:
            self._relay.emit(PluginLate(self._late - self._late_reported))
            self._late_reported = self._late

    # -- messages of the host (`host_manager.HostListener`) -------------------------------------------------------------------

    def on_message(self, message: messages.ToRelay, data: bytes) -> None:
        match message:
            case messages.Notified(hits):
                self.calls.update(hits)
            case messages.Decided():
                self.calls.update(message.hits)
                question = self._pending.pending.get(message.question)
                if question is not None:
                    self._go_on(question, message.verdict(data))
            case messages.AskRequest():
                question = self._pending.pending.get(message.question)
                if question is not None:
                    question.asks += 1
                if self.hosts.current is not None:
                    self._requests_of_plugins.ask(self.hosts.current.number, message, data)
            case messages.CloseConnection(plugin, number, reset):
                connection = self._relay.connections.get(number)
                if connection is not None:
                    connection.close("rst" if reset else "fin", f"plugin {plugin}")

    def host_ready(self) -> None:
        """Tell it what it has to know, and what waits."""
        host = self.hosts.current
        assert host is not None
        self._gone = False
        for learn, data in self._known.values():
            host.send(learn, data)
        for connection in self._relay.connections.values():
            if connection.established:
                host.send(_opened(connection))
        self._pending.restart()
        for question in self._pending.pending.values():
            question.asks = 0
            host.send(question.call, question.data)
        self._relay.inline_changed()

    def host_gone(self) -> None:
        self._gone = True
        for question in list(self._pending.pending.values()):
            self._go_on(question)
        self._relay.inline_changed()

    # -- requests of plugins' own ----------------------------------------------------------------------------

    def answered(self, asked: PluginRequest, frame: bytes, now: int) -> None:
        """The response (with size) to such a request has come."""
        self._requests_of_plugins.answered(asked, frame, now)

    def answer(
        self, host: int, number: int, question_number: int, error: str, frame: bytes, *, ended: bool = False
    ) -> None:
        """Tell the host what came of its request; a question goes on counting. `ended`: the error is that the connection
        ended."""
        question = self._pending.pending.get(question_number)
        if question is not None and question.asks:
            question.asks -= 1
            question.deadline = time.monotonic() + self._budget
        current = self.hosts.current
        if current is not None and current.number == host:
            current.send(messages.AskAnswer(number, error, ended), frame)

    # -- connections -----------------------------------------------------------------------------------------

    def learn(self, connection: ConnectionInterface, api_key: int, api_version: int, frame: bytes) -> None:
        """A response (with size) that names topics or offers versions: also hosts that start later get it."""
        if api_key not in (METADATA, API_VERSIONS):
            return
        broker = show(connection.broker)
        learn = messages.Learn(broker, api_key, api_version)
        self._learned += 1
        slot = self._learned % METADATA_KEPT if api_key == METADATA else 0  # each may be about other topics
        self._known[broker, api_key, slot] = learn, frame[4:]
        if self.hosts.current is not None:
            self.hosts.current.send(learn, frame[4:])

    def opened(self, connection: ConnectionInterface) -> None:
        if self.hosts.current is not None:
            self.hosts.current.send(_opened(connection))

    def gone(self, connection: ConnectionInterface) -> None:
        """A connection has ended: nothing of it can go on."""
        for question in self._pending.of(connection):
            self._pending.take(question.number)
        self._requests_of_plugins.gone(connection)
        if self.hosts.current is not None:
            self.hosts.current.send(messages.ClientDisconnected(connection.number))

    def free(self, connection: ConnectionInterface) -> None:
        """A connection carries no Kafka any more: what waits goes on as it came."""
        for question in self._pending.of(connection):
            self._go_on(question)

    def close(self) -> None:
        """The relay ends."""
        self.hosts.close()


def _opened(connection: ConnectionInterface) -> messages.ClientConnected:
    return messages.ClientConnected(connection.number, show(connection.peer), show(connection.broker))
