"""The proxy as its owner sees it: start it, hear its events, stop it.

    with Proxy(ProxyConfig(upstream=("127.0.0.1", 9092))) as proxy:
        print(proxy.address)
        for event in proxy.events():
            print(event.text)

The relay (or several workers), the observer and the inspector are child processes: fresh interpreters, so threads and pytest in this
one do not matter. They end by themselves when this process does, however it ends: each notices that the other end of its control
socket is closed.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from ...errors import BarnabasError
from ...plugins.rules.rules import Rule
from ..control.startup import ControlStart, insecure
from ..events import (
    Address,
    Counts,
    Event,
    FlightWanted,
    ProcessFailed,
    ProcessStarted,
    ProxyFailed,
    ReaderStuck,
    ShutdownAsked,
    WorkerEnded,
    WorkerStarted,
)
from ..metrics.settings import MeterSockets, is_counted
from ..processes import messages
from ..processes.children import MOST, Children, Restarts
from ..processes.fork_server import ForkServer
from ..processes.shared_counters import FileRule, Serials
from ..relay.addressing.address_map import reason
from ..ring.clock import now_ns
from ..ring.wakeup import new_bell
from .proxy_config import ProxyConfig as ProxyConfig
from .proxy_config import ProxyError as ProxyError
from .relay_readiness import SECONDS, ProcessPacket, receive, until_all_accept
from .startup_resources import StartupResources, acquire, for_inspector, for_observer, for_relay
from .worker_pool import EventDeduplicator, WorkerPool, relay_names

HEARING_SECONDS = 30.0
"""How long the last events of the processes are waited for: an overloaded machine takes seconds for what takes no time otherwise."""
DRAIN = 0.8
"""The part of `drain_seconds` that relays wait for responses in flight; the rest is for the readers of their rings."""

_log = logging.getLogger(__name__)

READERS = {"observer": 0, "inspector": 1, "meter": 2}
"""Processes that read the rings -> their numbers among the readers."""
MODULES = {
    "observer": "observers.observer",
    "inspector": "observers.inspector",
    "meter": "metrics.meter",
    "control": "control",
}
"""Process -> its module below `proxy`."""
DUE_MS = 100
"""How often to look whether a process is to be restarted (milliseconds)."""


class Proxy:
    """A relay, or several workers, with an observer, and perhaps an inspector and a meter. It starts once: to restart, make a new one."""

    def __init__(self, config: ProxyConfig, *, fork_server: ForkServer | None = None) -> None:
        """`fork_server`: the processes are its forks; without one they are fresh interpreters."""
        self.config = config
        self._address: Address | None = None
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._processes = Children(fork_server)
        self._children, self._controls = self._processes.processes, self._processes.controls
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        """Set when it is known which relays accept clients: `_accepting`."""
        self._accepting: set[str] = set()
        self._stopping = False
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        """Held while processes are started, and while `_stopping` is set, after which none is started."""
        self._relays: list[str] = []
        """The names of the relays among the processes, once started."""
        self._pool: WorkerPool | None = None
        self._deduplicator = EventDeduplicator()
        self._rules = list(config.rules)
        self._serials = Serials(self._rules)
        self._given_up: set[str] = set()
        """Relays that are not restarted."""
        self._restarts = Restarts()
        self._due: dict[str, float] = {}
        """Processes that have ended -> when to restart them (monotonic seconds)."""
        self._started_at: dict[str, float] = {}
        """Process -> when it was started (monotonic seconds)."""
        self._restarted: set[str] = set()
        """Relays that were restarted and do not accept clients yet."""
        self._resources: StartupResources | None = None
        self._bells: dict[str, int] = {}
        """Wake the observer and the inspector."""
        self.failed = ""
        """Why the proxy has ended by itself; empty if it has not."""
        self.control: ControlStart | None = None
        """The control API, once started; `control.access` is how to reach it. None if there is none."""
        self.meter: MeterSockets | None = None
        """Where the live feed and the metrics are, once started; None if there are none."""

    @property
    def address(self) -> Address:
        """Where clients connect (the bootstrap listener)."""
        if self._address is None:
            raise ProxyError("the proxy has not been started")
        return self._address

    def start(self) -> Proxy:
        """Listen and start the processes; ProxyError when that is impossible. Clients are served when this returns.
        A broker that cannot be reached is not an error: it becomes an event."""
        if self._address is not None:
            raise ProxyError("the proxy has been started already")
        config = self.config
        try:
            resources = acquire(config)
        except BarnabasError as error:  # of whichever part: programs that embed a proxy catch one class
            raise ProxyError(str(error)) from None
        self._relays = relay_names(config.workers)
        self.meter, self.control = resources.meter, resources.control
        control = self.control
        fixed = config.listen[1] != 0
        pool = self._pool = WorkerPool(
            config.workers, resources.listener, fixed=fixed, lossless=config.lossless, ring_bytes=config.ring_bytes
        )
        self._resources = resources
        self._bells = {"observer": new_bell(), "inspector": new_bell()}
        try:
            for name in self._readers():
                self._admit(name)
            for name in self._readers():
                self._start_reader(name)
            for worker in range(config.workers):
                self._start_relay(worker)
            if control is not None:
                self._start_control()
        except OSError as error:
            self._end_children(0.0)
            pool.close()
            for fd in self._bells.values():
                os.close(fd)
            resources.release()
            raise ProxyError(f"cannot start the proxy's processes: {reason(error)}") from None
        # What a process was given stays open here: another one may have to take its place.
        if control is not None:
            control.close_pairs()
        first = resources.first_events(config)
        self._thread = threading.Thread(target=self._receive_events, args=(first,), name="proxy events", daemon=True)
        self._thread.start()
        self._await_relays()
        self._address = resources.own
        return self

    def _readers(self) -> list[str]:
        """The processes that read the rings."""
        config = self.config
        found = ["observer"]
        if config.findings or self.control is not None or config.flight_wakes:
            found.append("inspector")
        return [*found, "meter"] if self.meter is not None else found

    def _admit(self, name: str) -> None:
        """Admit a reader of the rings. Only recording may make the relays wait: other readers may be late and miss something."""
        assert self._pool is not None
        self._pool.admit(READERS[name], self._bell(name), lossless=name == "observer" and self.config.lossless)

    def _bell(self, name: str) -> int:
        return self.meter.bell if name == "meter" and self.meter is not None else self._bells[name]

    def _start_reader(self, name: str) -> None:
        pool, config, meter, control = self._pool, self.config, self.meter, self.control
        assert pool is not None
        access = pool.access(READERS[name], self._bell(name))
        fds = [*pool.reader_fds, access.bell]
        if name == "meter":
            assert meter is not None
            self._start_child(name, meter.settings(access), [*fds, *meter.fds])
            return
        settings = for_observer(config, access, control) if name == "observer" else for_inspector(config, access, control)
        self._start_child(name, settings, [*fds, *(control.fds(name) if control else ())])

    def _start_control(self) -> None:
        control, resources, meter = self.control, self._resources, self.meter
        assert control is not None and resources is not None
        settings, fds = control.server(
            self._bells,
            listen=resources.own,
            upstream=resources.upstream,
            processes={name: child.pid for name, child in self._children.items()},
            metrics=meter.metrics if meter is not None else None,
            insecure=insecure(self.config),
        )
        self._start_child("control", settings, fds)
        control.control = self._controls["control"]

    def _await_relays(self) -> None:
        try:
            in_time = self._begun.wait(SECONDS)
        except BaseException:
            self.stop()
            raise
        if not self._accepting:
            self.stop()
            why = "it ended during startup" if in_time else f"it accepts no clients after {SECONDS:.0f} s"
            raise ProxyError(f"cannot start the relay: {why}")

    def _start_relay(self, worker: int) -> None:
        pool, resources, control = self._pool, self._resources, self.control
        assert pool is not None and resources is not None
        name = self._relays[worker]
        settings = for_relay(self.config, resources, pool.for_worker(worker), self._file_rules(), control.process_end(name) if control else None)
        self._processes.start(name, "relay.loop", settings, [*pool.worker_fds(worker), *(control.fds(name) if control else ())])

    def _file_rules(self) -> tuple[FileRule, ...]:
        return tuple(FileRule(rule, self._serials.of(rule)) for rule in self._rules)

    def _start_child(self, name: str, settings: object, fds: Sequence[int]) -> None:
        self._processes.start(name, MODULES[name], settings, fds)
        self._started_at[name] = time.monotonic()

    # -- events ----------------------------------------------------------------------------------------------

    def events(self) -> Iterator[Event]:
        """Events as they come, from the first on; ends after `stop`. Each event goes to one iterator."""
        while (event := self._queue.get()) is not None:
            yield event
        self._queue.put(None)  # for the next iterator

    def next_event(self, timeout: float | None = None) -> Event | None:
        """The next event, None after `timeout` seconds or when the proxy has stopped."""
        try:
            event = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if event is None:
            self._queue.put(None)
        return event

    def _receive_events(self, first: Sequence[Event]) -> None:
        """Publish the `first` events once relays accept clients; then events of the children, until all have closed their
        sockets."""
        relays = set(self._relays)
        self._accepting, early = until_all_accept({name: self._controls[name] for name in relays})
        for event in first if self._accepting else ():
            self._publish(event)
        self._begun.set()
        for packet in early:
            self._take(packet)
        poll = select.poll()
        names = {control.fileno(): name for name, control in self._controls.items()}
        for fd in names:
            poll.register(fd, select.POLLIN)
        while names or (self._due and not self._stopping):
            ready = [fd for fd, _ in poll.poll(DUE_MS if self._due else None)]
            # The relays first: at the end, what the others report comes after what the relays sent before.
            for fd in [fd for fd in ready if names[fd] in relays] or ready:
                name = names[fd]
                if not self._take(receive(name, self._controls[name])):
                    poll.unregister(fd)
                    del names[fd]
                    self._child_ended(name)
            now = time.monotonic()
            for name in [name for name, when in self._due.items() if when <= now]:
                del self._due[name]
                if self._restart(name):
                    names[self._controls[name].fileno()] = name
                    poll.register(self._controls[name].fileno(), select.POLLIN)

    def _take(self, packet: ProcessPacket) -> bool:
        """Act on a packet of a process; False if its socket has ended."""
        name, message, fds = packet
        match message:
            case Event():
                self._take_event(name, message)
            case messages.Accepting():
                self._accepts(name)
            case messages.ListenerOpened(broker) if fds:  # else it did not fit among our open files: the worker that has it serves its clients
                self._share(name, broker, fds[0])
            case messages.ListenerClosed(broker, port):
                self._unshare(broker, port)
        return message is not None

    def _take_event(self, name: str, event: Event) -> None:
        """Publish an event of a process, if it is one for the outside and no duplicate."""
        if isinstance(event, ReaderStuck) and not self._end_stuck(event):
            return
        if self.config.workers > 1 and name in self._relays:
            merged = self._deduplicator.merged(self._relays.index(name), event)
            if merged is None:
                return
            event = merged
        self._publish(event)

    def _end_stuck(self, event: ReaderStuck) -> bool:
        """End a reader for which a relay waits; False for one that was just started: another relay may mean the one before."""
        name = event.process
        if time.monotonic() - self._started_at.get(name, 0.0) < event.seconds:
            return False
        self._children[name].kill()
        return True

    def _share(self, name: str, broker: Address, fd: int) -> None:
        """Give a listener that a worker has opened to the others."""
        listener = socket.socket(fileno=fd)
        with self._starting:
            if self._stopping or self._pool is None:
                listener.close()
                return
            self._pool.keep(listener, broker)
            for other in self._relays:
                if other != name:  # one that is gone gets all listeners with its successor; where one is stuck, others serve the clients
                    self._processes.offer(other, messages.AddListener(broker), [fd])

    def _unshare(self, broker: Address, port: int) -> None:
        """A worker has closed a broker's listener, as all do: ours is not given to workers that come later."""
        with self._starting:
            if self._pool is not None:
                self._pool.forget(broker, port)

    def _publish(self, event: Event) -> None:
        """Give an event to the owner, the control server and the meter. Some are requests to the supervisor itself."""
        if isinstance(event, FlightWanted):
            self._processes.send("observer", event)
            return
        self._queue.put(event)
        level = logging.WARNING if event.warning else logging.DEBUG if isinstance(event, Counts) else logging.INFO
        if _log.isEnabledFor(level):
            _log.log(level, "%s: %s", type(event).__name__, event.text)
        if self.control is not None:
            self.control.send_event(event)
            if isinstance(event, ShutdownAsked):
                threading.Thread(target=self.stop, name="proxy stop", daemon=True).start()
        if is_counted(event):
            self._processes.offer("meter", event)  # where it is lost, a later event has newer numbers

    def _child_ended(self, name: str) -> None:
        """Report a process that has ended, and schedule its restart."""
        code = self._children[name].wait()
        if self._stopping or self.failed:
            return
        delay: float | None = self._restarts.ended(name)
        if name in self._relays:
            self._restarted.discard(name)
            if self._restarts.too_often(name):
                delay = None
                self._given_up.add(name)
                if len(self._given_up) == len(self._relays):
                    self.failed = f"its relay ended more than {MOST} times in a minute"
            if self._pool is not None:
                self._pool.died(self._relays.index(name), delay is not None)
        if self.config.workers > 1 and name in self._relays:
            self._publish(WorkerEnded(self._relays.index(name) + 1, code, delay is not None))
        else:
            self._publish(ProcessFailed(name, code, delay))
        if name in READERS:
            # Nobody reads any more: a lossless relay must not wait for it.
            if self._pool is not None:
                self._pool.dismiss(READERS[name])
            self._send_relays(messages.ReaderGone())
        if delay is not None:
            self._due[name] = time.monotonic() + delay
        elif self.failed:
            self._publish(ProxyFailed(self.failed))
            threading.Thread(target=self.stop, name="proxy stop", daemon=True).start()

    def _restart(self, name: str) -> bool:
        """Restart a process that has ended. False if that has failed; then it is tried again later."""
        with self._starting:
            if self._stopping or self._pool is None:
                return False
            before = self._controls[name]
            try:
                if name == "control":
                    self._control_again()
                elif self.control is None or name == "meter":
                    self._renew(name)
                else:
                    with self.control.replacement(name):
                        self._renew(name)
                        self.control.introduce(name)
            except OSError:
                self._due[name] = time.monotonic() + self._restarts.ended(name)
                return False
            before.close()
        if name in self._relays:
            self._restarted.add(name)
        else:
            self._publish(ProcessStarted(name, self._children[name].pid))
        return True

    def _renew(self, name: str) -> None:
        assert self._pool is not None
        if name in self._relays:
            self._start_relay(self._relays.index(name))
            return
        self._admit(name)
        try:
            self._start_reader(name)
        except OSError:
            self._pool.dismiss(READERS[name])
            raise

    def _control_again(self) -> None:
        """Start another control server, with new channels to all others."""
        control = self.control
        assert control is not None
        control.make_pairs()
        try:
            self._start_control()
            for name in (*self._relays, "observer", "inspector"):
                # one that is gone gets a channel with its successor
                self._processes.offer(name, messages.NewControlServer(), [control.process_end(name)])
        finally:
            control.close_pairs()
        assert self._resources is not None
        for event in self._resources.first_events(self.config):
            control.send_event(event)

    def _accepts(self, name: str) -> None:
        """A relay accepts clients; report it if it was restarted."""
        if name in self._restarted:
            self._restarted.discard(name)
            pid = self._children[name].pid
            self._publish(WorkerStarted(self._relays.index(name) + 1, pid) if self.config.workers > 1 else ProcessStarted(name, pid))

    def replace_rules(self, rules: list[Rule]) -> None:
        """Replace the rules, also for connections that are open (`reloadable` has to be set). Unchanged rules keep their
        counts. The event RulesReplaced, or RulesKept, follows."""
        self._rules = list(rules)
        self._serials.renew(rules)
        self._send_relays(messages.ReplaceFileRules(self._file_rules()))

    def reload_plugins(self) -> None:
        """Load the plugins' files again, as when they are saved. The event PluginsLoaded, or PluginsKept, follows."""
        self._send_relays(messages.ReloadPlugins())

    def _send_relays(self, message: messages.Message) -> None:
        for name in self._relays:
            self._processes.send(name, message)

    def write_flight(self, label: str = "flight", kind: str = "asked", reason: str = "") -> None:
        """Write what the flight recorder holds. The event FlightWritten, or FlightFailed, follows."""
        self._processes.send("observer", FlightWanted(kind, reason, label, now_ns(), {}))

    # -- the end ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Accept no new clients, wait for responses in flight (most of `drain_seconds`), end the processes, finish the recording.
        May be called more than once."""
        with self._lock:
            with self._starting:
                if self._stopping:
                    return
                self._stopping = True
                if self._pool is not None:
                    self._pool.close_listeners()
            self._send_relays(messages.Stop(time.monotonic() + DRAIN * self.config.drain_seconds))
            self._end_children(self.config.drain_seconds)
            if self._thread is not None:
                self._thread.join(HEARING_SECONDS)
            for control in self._controls.values():
                control.close()
            if self._pool is not None:
                self._pool.close()
                for fd in self._bells.values():
                    os.close(fd)
                self._bells = {}
                if self.meter is not None:
                    self.meter.close()
            if self.control is not None:
                self.control.close()
                self.control.end()
            self._queue.put(None)

    def _end_children(self, seconds: float) -> None:
        self._processes.end([name for name in self._relays if name not in self._given_up], seconds, self.config.findings)

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
