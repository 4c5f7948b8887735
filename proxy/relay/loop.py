"""The relay process: plain edge-triggered epoll between clients and brokers.

    python -m barnabas.proxy.relay.loop FD        FD: the supervisor's control socket; settings come as its first packet

Every socket is registered once for everything; what can be done is remembered per half, so that no call to the
kernel is needed to change interest. The relay ends when the control socket does.
"""

from __future__ import annotations

import errno
import gc
import json
import resource
import socket
import sys
import time
from collections.abc import Set
from functools import partial

from ...diagnostics import contained
from ...plugins.rules.rule_engine import RuleEngine
from ..events import Address, ClockSet, Event, ReaderStuck, RelayFault
from ..processes.channel import Channel
from ..processes.child import EventSender, Parent
from ..processes.child import receive_settings as receive_settings
from ..processes.shared_counters import SharedCounters
from ..processes.worker_shared_state import SharedState
from ..ring import polling
from ..ring.clock import CLOCK, now_ns
from ..ring.merged_rings import resume
from ..ring.ring import Kind, Ring, RingWriter
from ..ring.wakeup import hush, sound
from . import interfaces
from .addressing.address_map import AddressMap
from .addressing.bootstrap import Bootstrap
from .addressing.destinations import Destinations
from .addressing.down_brokers import DownBrokers
from .addressing.mapping import make_address_map
from .addressing.probing import Prober
from .addressing.resolver import Resolver
from .addressing.transparent import Interception
from .commands import Commands, SupervisorCommands
from .connections.connection import Connection
from .connections.native import make_mover, make_turn
from .connections.tracking_mode import switch
from .connections.unreachable_broker import UnreachableBroker
from .guard import LimitGuard
from .interception.frame_editor import METADATA, FrameEditor, watched
from .interception.intercepts import Intercepts
from .interception.plugin_host.plugin_interceptor import PluginInterceptor
from .interception.rules.live_rules import LiveRules
from .io.acceptor import Acceptor
from .io.sockets import Sockets
from .io.timers import Timers
from .negotiation.handshake import Security
from .negotiation.version_negotiation import VersionNegotiation, VersionsConfig
from .relay_settings import RelaySettings

_WRITE = polling.WRITE  # a global is faster than an attribute
_READ = polling.READ | polling.READ_HANGUP | polling.HANGUP | polling.ERROR
_ERROR = polling.ERROR
_HANGUP = polling.READ_HANGUP | polling.HANGUP | polling.ERROR
HOLD_LIMIT = 64 << 20
"""Most bytes of frames that are held at one time, over all connections."""
SNAPSHOT_SECONDS = 0.25


class Relay:
    """The loop and what all connections share."""

    def __init__(self, control: socket.socket, settings: RelaySettings) -> None:
        self.control = control
        self._event_sender = EventSender(control, self.stop)
        given = settings.resources
        self.ring = Ring.attach(given.ring)
        self.writer = RingWriter(self.ring, given.bells)
        self._room_bell = given.room_bell
        self.worker, self.workers = given.worker, given.workers
        """Which of how many relays that share listeners and address map this is, from 0."""
        self.shared_state = SharedState(given.shared_state, self.worker)
        resume(self.writer)
        self.watch = watched()
        self.snaplen = settings.snaplen or 0
        """How much of a frame readers of the ring want; 0: all of it."""
        self.lossless = given.lossless
        self._patience = settings.lossless_seconds
        self._stuck: tuple[tuple[int, ...], float] = ((), 0.0)
        """How far lossless readers had read when the relay first waited for them there, and when that was."""
        self.hold_limit = min(HOLD_LIMIT, self.writer.hold_limit) if self.lossless else HOLD_LIMIT
        self.held = 0
        self.switchable = settings.commands is not None or settings.reloadable
        """Whether rules and intercepts may come while connections stand."""
        self.draining = False
        self._stopped = False
        self.resolver = Resolver()
        self.prober = Prober(self)
        self.upstream = settings.upstream
        self.bootstrap = Bootstrap([self.upstream, *settings.more_upstreams], lambda: [each.broker for each in self.addresses.found])
        bootstrap = socket.socket(fileno=given.listener)
        bootstrap.setblocking(False)
        own: Address = bootstrap.getsockname()[:2]
        self.interception = Interception(settings.transparent, bootstrap, self.shared_state) if settings.transparent else None
        self.rewrites = self.interception is None
        """Whether clients are given the proxy's addresses; if not, no frame is changed but by a rule."""
        if not self.rewrites:
            # Rules name topics, newer requests only their ids: Metadata has both
            rules_may_come = bool(settings.rules) or self.switchable
            self.watch = frozenset(each for each in self.watch if rules_may_come and each >> 16 == METADATA)
        self.guard = LimitGuard(self, settings.limits)
        self.destinations = Destinations([(each.host, each.port, each.purpose) for each in settings.reserved], settings.limits.upstream_allow)
        self.addresses: AddressMap = make_address_map(self, own, settings)
        self.down = DownBrokers(self)
        self.security = Security(self, settings.security) if settings.security else None
        """TLS and logins, if there are any."""
        rule_counters = SharedCounters(self.shared_state.rule_counters, self.worker, self.shared_state.locked) if self.workers > 1 else None
        self.rules = LiveRules(settings.rules, self._rules_changed, rule_counters)
        self.intercepts = Intercepts(self)
        self.editor = FrameEditor(self.addresses, self.rules.engine)
        self.version_negotiation = VersionNegotiation(self, settings.versions or VersionsConfig())
        commands = Channel(socket.socket(fileno=settings.commands)) if settings.commands is not None else None
        self.commands = Commands(self, commands)
        self._supervisor_commands = SupervisorCommands(self)
        self.editor.topics = self.rules.engine.cluster_view.topics if self.switchable or self.rules.engine.interest() else None
        self.mover = make_mover(self)
        if self.mover is not None:
            self.mover.clock = CLOCK.offset
        self.lingering: list[UnreachableBroker] = []
        self.sockets = Sockets(self.interception.forget if self.interception is not None else None)
        self.attend, self.forget = self.sockets.attend, self.sockets.forget
        self.connections: dict[int, Connection] = {}
        """By their numbers, which are never used twice."""
        self.timers = Timers()
        self._ready: list[interfaces.HalfConnectionInterface] = []
        self._waiting_for_room: list[interfaces.HalfConnectionInterface] = []
        self._crowded: list[interfaces.ConnectionInterface] = []
        self._last_snapshot = 0.0
        self._snapshot_due = False
        self._parent = Parent()
        self.plugins = PluginInterceptor(self, settings.plugins) if settings.plugins else None
        """Plugins, if there are any."""
        if self.plugins is not None:
            self.editor.topics = self.rules.engine.cluster_view.topics
            self.plugins.begin()
        self.acceptor = Acceptor(self, self.shared_state, given.worker_bells)
        listen_for = self.sockets.listen_for
        listen_for(control.fileno(), self._supervisor_commands.readable, edge=False)
        listen_for(self._room_bell, self._room_made, edge=False)
        listen_for(self.resolver.bell, lambda _: self.resolver.deliver(), edge=False)
        if commands is not None:
            self._attend_commands(commands)
        if self.workers > 1:
            listen_for(given.worker_bells[self.worker], self.acceptor.called)
        self.acceptor.add(bootstrap, self.upstream)
        for each in given.broker_listeners:
            self.acceptor.add(socket.socket(fileno=each.fd), each.broker)
        if self.workers == 1:
            self.addresses.reopen()
        if self.worker == 0:
            self.guard.warn_of_few_files(self.workers)
            if settings.probe:
                for broker in self.bootstrap.given:
                    self.resolver.resolve(*broker, partial(self.prober.probe, broker))

    # -- events to the supervisor ----------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Send an event; too many in one second are counted instead. Never waits."""
        self._event_sender.emit(event)

    def emit_once(self, event: Event) -> None:
        """Send an event that is the same for every connection only the first time."""
        if self._event_sender.is_new(event):
            self.emit(event)

    # -- sockets ---------------------------------------------------------------------------------------------

    def opened(self, listener: socket.socket, broker: Address) -> None:
        """The address map has a new listener."""
        self.acceptor.add(listener, broker)
        if self.workers > 1:
            self._supervisor_commands.share(listener, broker)

    def refusal(self, broker: Address, host: str, port: int) -> str:
        """Why nothing is connected to this address of a broker; empty if it is."""
        why = self.destinations.own(host, port)
        if why:
            return f"this is the address of {why}"
        return "" if broker in self.bootstrap.given else self.destinations.refusal(host, port)

    def retain(self, standing: Set[tuple[Address, int]]) -> None:
        """The address map has these listeners (broker, port), and no others."""
        for broker, port in self.acceptor.retain(standing):
            if self.workers > 1:
                self._supervisor_commands.unshare(broker, port)

    def accepted(self, number: int, client: socket.socket, peer: Address, broker: Address | None) -> None:
        """A client is there. `broker`: whom it wants; None: any of the bootstrap brokers."""
        connection = Connection(self, number, client, peer, broker or self.bootstrap.first())
        if broker is None:
            connection.tried = []
        self.connections[number] = connection
        self._counted()
        if self.security is None:
            connection.look_up()
        else:
            self.security.accepted(connection)

    def await_connect(self, connection: interfaces.ConnectionInterface, sock: socket.socket) -> None:
        self.attend(sock.fileno(), connection.connected)

    def established(self, connection: interfaces.ConnectionInterface) -> None:
        """Both sockets stand: let bytes flow."""
        upstream = connection.upstream
        if upstream is None:
            return
        request, response = connection.request, connection.response
        self.sockets.stand(connection, upstream)
        request.readable = response.readable = True
        self._ready += (response, request)

    def suspend(self, connection: interfaces.ConnectionInterface) -> None:
        """Nothing is in flight: take the broker's socket from the halves until `established` is called again."""
        if connection.upstream is not None:
            self.sockets.suspend(connection.upstream.fileno())

    def gone(self, connection: interfaces.ConnectionInterface) -> None:
        self.connections.pop(connection.number, None)
        self._counted()
        self.acceptor.freed()

    def _counted(self) -> None:
        """There is another number of connections: each has another share of what may be kept."""
        if self.mover is not None:
            self.mover.share = self.hold_limit // max(len(self.connections), 1)

    def crowded(self, connection: interfaces.ConnectionInterface) -> bool:
        """Whether a connection's next requests have to wait: too much of those that are in flight is kept, of all connections,
        and it has more than its share. Then its half is woken when that has changed."""
        if not self._too_much(connection):
            return False
        if connection not in self._crowded:
            self._crowded.append(connection)
        return True

    def _too_much(self, connection: interfaces.ConnectionInterface) -> bool:
        if connection.in_flight.memory() * len(self.connections) <= self.hold_limit:
            return False
        kept = sum(each.in_flight.memory() for each in self.connections.values())
        return self.held + kept > self.hold_limit

    def _less_crowded(self) -> None:
        waiting, self._crowded = self._crowded, []
        for connection in waiting:
            if connection.closed:
                continue
            if self._too_much(connection):
                self._crowded.append(connection)
            else:
                self.wake(connection.request)

    def wake(self, half: interfaces.HalfConnectionInterface) -> None:
        """What kept this half from reading may be over."""
        if half.readable:
            self._ready.append(half)

    # -- lossless observers ----------------------------------------------------------------------------------

    def wait_for_room(self, half: interfaces.HalfConnectionInterface) -> None:
        """A reader that must not lose anything is behind: read nothing until it has caught up."""
        self._waiting_for_room.append(half)
        self.writer.blocked(True)
        if self.writer.has_room():
            sound(self._room_bell)  # room was made in between

    def _watch_lossless(self, now: float) -> None:
        """Report a reader for which traffic waits in vain."""
        read = self.ring.read_losslessly()
        if not self._waiting_for_room or read != self._stuck[0]:
            self._stuck = (read, now)
        elif now - self._stuck[1] >= self._patience:
            self._stuck = (read, now)
            self.emit(ReaderStuck("observer", self._patience))

    def _room_made(self, _: int) -> None:
        hush(self._room_bell)
        waiting, self._waiting_for_room = self._waiting_for_room, []
        self._ready.extend(waiting)

    # -- the loop --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop`, or until the supervisor is gone."""
        poll, ends, others = self.sockets.poll.poll, self.sockets.ends, self.sockets.others
        writer = self.writer
        security, timers, later = self.security, self.timers, self.timers.heap
        turn = make_turn(self.mover, self.sockets.poll)
        next_tick = time.monotonic() + 1.0
        published = writer.sequence
        self._event_sender.begin()
        while not self._stopped:
            ready = self._ready
            hurry = self.draining or bool(self.lingering or self._crowded) or (security is not None and bool(security.paused))
            now = time.monotonic()
            timeout = 0.0 if ready and (turn is None or later) else 0.02 if hurry else max((min(next_tick, later[0][0]) if later else next_tick) - now, 0.0)
            if later and timeout:
                timeout = polling.rest(self.sockets.poll, timeout)
            if turn is not None:
                events = turn(timeout, ends, ready)  # what it leaves in there is to be looked at
            self._ready = []
            if turn is None:
                events = poll(timeout, 256)
            for fd, event in events:
                end = ends.get(fd)
                if end is None:
                    other = others.get(fd)
                    if other is not None:
                        try:
                            other(event)
                        except Exception as error:  # a listener, a channel, a handshake: none may end the relay
                            contained("a handler of the relay's loop", error, reported=True)
                            self.emit(RelayFault(0, _described(error)))
                    continue
                reads, writes = end
                try:
                    if event & _READ:
                        reads.readable = True
                        if event & _HANGUP:
                            reads.hangup = True
                            if event & _ERROR and (reads.pending or reads.eof):
                                # Reset, and not read any more, because the other side takes nothing or because
                                # there was an end before: nobody would notice.
                                reads.connection.abort()
                                continue
                        if reads.pump():
                            self._ready.append(reads)
                    if event & _WRITE and writes.pending and writes.open:
                        self.drained(writes)
                except Exception as error:  # see `fault`
                    self.fault(reads.connection, error)
            for half in ready:
                try:
                    if half.readable and half.pump():
                        self._ready.append(half)
                except Exception as error:  # see `fault`
                    self.fault(half.connection, error)
            if later:
                timers.run(time.monotonic())
            if writer.sequence != published:
                published = writer.sequence
                writer.ring_bells()
                self._snapshot_due |= writer.snapshot_wanted()
            if now >= next_tick or hurry or not events or self._snapshot_due or self.intercepts.held:
                now = time.monotonic()
                if self._snapshot_due and now - self._last_snapshot > SNAPSHOT_SECONDS:
                    self._snapshot(now)
                if now >= next_tick:
                    next_tick = now + 1.0
                    self._tick(now)
                if security is not None and security.paused:
                    security.renew(now)
                if self.lingering:
                    self._turn_away(now)
                if self._crowded:
                    self._less_crowded()
                if self.draining:
                    self._drain(now)
        self._end()

    def _turn_away(self, now: float) -> None:
        """Clients whose broker cannot be reached, when they have had their time."""
        for last in self.lingering:
            if now >= last.until:
                last.end()
        self.lingering = [last for last in self.lingering if not last.over]

    def fault(self, connection: interfaces.ConnectionInterface, error: Exception) -> None:
        """Something is wrong in here: it may cost one connection, never the relay."""
        contained("a connection of the relay", error, reported=True)
        self.emit(RelayFault(connection.number, _described(error)))
        connection.abort()

    def drained(self, half: interfaces.HalfConnectionInterface) -> None:
        """The sink takes bytes again: first what waits, then the source may go on."""
        half.flush()
        if not half.pending and half.open:
            connection = half.connection
            if half.readable:
                self._ready.append(half)
            if half.direction and connection.inline and connection.request.readable:
                self._ready.append(connection.request)

    def _tick(self, now: float) -> None:
        if self._parent.gone:
            self._stopped = True
        self._follow_clock()
        if self.lossless:
            self._watch_lossless(now)
        self.intercepts.tick(now)
        if self.plugins is not None:
            self.plugins.tick()
        self.acceptor.tick()
        self._supervisor_commands.tick()
        standing = list(self.connections.values())
        for connection in standing:
            overdue = now - connection.started > self.guard.limits.connect_seconds
            if overdue and not connection.established and not connection.failed:
                if self.security is not None:
                    self.security.overdue(connection)
                else:
                    connection.unreachable(OSError(errno.ETIMEDOUT, "timed out"))
        self.guard.tick(now, standing)
        if self.guard.limits.broker_expiry:
            self.addresses.expire({connection.broker for connection in standing})
        self.addresses.report_refused()
        if self.security is not None:
            self.security.tick(now, standing)
        if self.writer.snapshot_wanted():
            self._snapshot(now)

    def _follow_clock(self) -> None:
        before = CLOCK.stepped
        now_ns()
        if self.mover is not None:
            self.mover.clock = CLOCK.offset
        if CLOCK.stepped != before and self.worker == 0:
            self.emit(ClockSet((CLOCK.stepped - before) / 1e9))

    def _snapshot(self, now: float) -> None:
        self._snapshot_due = False
        self._last_snapshot = now
        stamp = now_ns()
        standing = [c for c in self.connections.values() if c.established]
        for connection in standing:
            self.writer.write(Kind.PRESENT, connection.number, 0, stamp, connection.describe())
        self.writer.write(Kind.PRESENT_END, 0, 0, stamp, json.dumps({"open": len(standing)}).encode())
        self.writer.ring_bells()

    # -- control ---------------------------------------------------------------------------------------------

    def _rules_changed(self, engine: RuleEngine) -> None:
        self.editor.rules = engine
        self.inline_changed()

    def inline_changed(self) -> None:
        """Other requests than before are to be looked at, on the connections that stand, too."""
        others = self.intercepts.interest()
        if self.plugins is not None:
            others |= self.plugins.interest()
        self.editor.others = others
        wanted = self.editor.rules.interest() | others
        self.editor.requests = wanted
        for connection in self.connections.values():
            connection.pass_cache.clear()
            switch(connection, bool(wanted))

    def topics_named(self) -> None:
        """Topics that were ids so far have names: requests that concerned no rule may concern one now."""
        for connection in self.connections.values():
            connection.pass_cache.clear()

    def _attend_commands(self, channel: Channel) -> None:
        self.sockets.others[channel.fileno()] = self.commands.ready
        self.sockets.poll.register(channel.fileno(), polling.ALL)

    def control_again(self, sock: socket.socket) -> None:
        """Another control server replaces one that ended."""
        channel = Channel(sock)
        self.commands.renew(channel)
        self._attend_commands(channel)

    def lost_control(self, channel: Channel) -> None:
        """The control server is gone: whatever waits for its decisions goes on."""
        self.sockets.others.pop(channel.fileno(), None)
        self.sockets.poll.unregister(channel.fileno())
        self.intercepts.clear("control server gone")

    # -- the end ---------------------------------------------------------------------------------------------

    def drain(self, until: float) -> None:
        """Accept nothing new, and end when nothing is in flight any more, or at that time (monotonic seconds)."""
        self.draining = True
        for connection in self.connections.values():
            connection.draining = True
        self.intercepts.clear("the proxy stops")
        self._deadline = until
        self.acceptor.close()

    def reader_gone(self) -> None:
        """A reader of the ring was dismissed; nobody waits for it any more."""
        self._room_made(0)

    def stop(self) -> None:
        """End with this turn of the loop."""
        self._stopped = True

    def _drain(self, now: float) -> None:
        """Close what has nothing in flight; everything, when the time is up."""
        for connection in list(self.connections.values()):
            if not connection.established or connection.idle() or now >= self._deadline:
                connection.close("fin")
        if not self.connections:
            self._stopped = True

    def _end(self) -> None:
        for connection in list(self.connections.values()):
            connection.close("fin")
        if self.plugins is not None:
            self.plugins.close()
        self.writer.write(Kind.STOP, 0, 0, now_ns(), b"")
        self.writer.ring_bells()


def _described(error: Exception) -> str:
    """Kind, text and innermost place of an exception, in one line."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    line = f" at {where.tb_frame.f_code.co_name}:{where.tb_lineno}" if where is not None else ""
    return f"{type(error).__name__}: {error}{line}"


def main() -> None:
    control, settings = receive_settings(int(sys.argv[1]), RelaySettings)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    relay = Relay(control, settings)
    control.setblocking(False)
    gc.collect()
    gc.freeze()
    relay.run()


if __name__ == "__main__":
    main()
