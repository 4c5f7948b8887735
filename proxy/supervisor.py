"""The proxy as its owner sees it: start it, hear its events, stop it.

    with Proxy(ProxyConfig(upstream=("127.0.0.1", 9092))) as proxy:
        print(proxy.address)
        for event in proxy.events():
            print(event.text)

The relay (or several workers of it), the observer and the inspector are child processes (fresh interpreters, so
threads and pytest do not matter). They end by themselves when this process does, however it ends: each notices that
the other end of its control socket is closed.
"""

from __future__ import annotations

import json
import os
import queue
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from ..plugins.rules import Rule
from .addresses import reason
from .assigning import INSPECTOR, OBSERVER, for_inspector, for_observer, for_relays
from .beginning import ACCEPTING, SECONDS, Said, receive, until_all_accept
from .bells import new_bell
from .children import Children
from .control.starting import ControlStart, insecure
from .crew import Crew, Voices, relay_names
from .events import Address, Event, ProcessFailed, ShutdownAsked, decode
from .fork_server import ForkServer
from .life_events import WorkerEnded, WorkerStarted
from .metering import READER as METER
from .metering import Metering, heard
from .preparing import Prepared, prepared
from .proxy_config import ProxyConfig as ProxyConfig
from .proxy_config import ProxyError as ProxyError
from .recording_events import FlightWanted
from .tally import Serials

ENDING_SECONDS, HEARING_SECONDS = 5.0, 30.0
"""What relays may take beyond `drain_seconds` before they are killed, and what is left of their events to be heard: a
machine that is overloaded needs seconds for what takes none otherwise, and what they told last would be missing."""


class Proxy:
    """A relay, or several workers, with an observer, and perhaps an inspector. Not restartable: make a new one."""

    def __init__(self, config: ProxyConfig, *, fork_server: ForkServer | None = None) -> None:
        """`fork_server`: whose forks its processes are to be; else they are fresh interpreters."""
        self.config = config
        self._address: Address | None = None
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._processes = Children(fork_server)
        self._children, self._controls = self._processes.processes, self._processes.controls
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        """Set when it is known which relays take clients: `_accepting`."""
        self._accepting: set[str] = set()
        self._stopping = False
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        """Held where processes are started, and where it is decided that none are any more."""
        self._relays: list[str] = []
        """The names of the relays among the processes, once started."""
        self._crew: Crew | None = None
        self._voices = Voices()
        self._rules = list(config.rules)
        self._serials = Serials(self._rules)
        self._relay_settings: dict[str, Any] = {}
        self._given_up: set[str] = set()
        """Workers that are not started again."""
        self._bells: list[int] = []
        self.control: ControlStart | None = None
        """The control API, once started; `control.access` says how to reach it. None if there is none."""
        self.meter: Metering | None = None
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
        ready = prepared(config)
        self._relays = relay_names(config.workers)
        self.meter, self.control = meter, control = ready.meter, ready.control
        fixed = config.listen[1] != 0
        crew = self._crew = Crew(
            config.workers, ready.listener, fixed=fixed, lossless=config.lossless, ring_bytes=config.ring_bytes
        )
        bell, inspector_bell = new_bell(), new_bell()
        try:
            self._start_readers(ready, bell, inspector_bell)
            self._relay_settings = for_relays(config, ready)
            for worker, name in enumerate(crew.names):
                commands = (control.commands(name), control.fds(name)) if control else ({}, [])
                self._start_relay(worker, *commands)
            if control is not None:
                settings, fds = control.server(
                    {"observer": bell, "inspector": inspector_bell},
                    listen=ready.own,
                    upstream=ready.upstream,
                    processes={name: child.pid for name, child in self._children.items()},
                    metrics=meter.metrics if meter is not None else None,
                    insecure=insecure(config),
                )
                self._start_child("control", settings, fds)
                control.control = self._controls["control"]
        except OSError as error:
            self._end_children(0.0)
            crew.close()
            for fd in (bell, inspector_bell):
                os.close(fd)
            ready.give_up()
            raise ProxyError(f"cannot start the proxy's processes: {reason(error)}") from None
        if crew.workers == 1:
            crew.close()
            os.close(bell)
            os.close(inspector_bell)
            if meter is not None:
                meter.close()
        else:
            # Another worker may have to be started.
            self._bells = [bell, inspector_bell]
            if meter is not None:
                meter.close_sockets()
        if control is not None:
            control.close()
        self._thread = threading.Thread(target=self._hear, args=(ready.said(config),), name="proxy events", daemon=True)
        self._thread.start()
        self._await_relays()
        self._address = ready.own
        return self

    def _start_readers(self, ready: Prepared, bell: int, inspector_bell: int) -> None:
        """The processes that read the ring."""
        crew, config, meter, control = self._crew, self.config, ready.meter, ready.control
        assert crew is not None
        shared = crew.for_readers
        crew.admit(OBSERVER, bell, lossless=config.lossless)
        self._start_child(
            "observer",
            shared | for_observer(config, bell, control),
            [*crew.reader_fds, bell, *(control.fds("observer") if control else ())],
        )
        if config.findings or control or config.flight_wakes:
            # It may be late and miss something, whatever the recording may not: the relay never waits for it.
            crew.admit(INSPECTOR, inspector_bell, lossless=False)
            self._start_child(
                "inspector",
                shared | for_inspector(config, inspector_bell, control),
                [*crew.reader_fds, inspector_bell, *(control.fds("inspector") if control else ())],
            )
        if meter is not None:
            crew.admit(METER, meter.bell, lossless=False)
            self._start_child("meter", shared | meter.settings, [*crew.reader_fds, *meter.fds])

    def _await_relays(self) -> None:
        try:
            in_time = self._begun.wait(SECONDS)
        except BaseException:
            self.stop()
            raise
        if not self._accepting:
            self.stop()
            why = "it ended as it began" if in_time else f"it takes no clients after {SECONDS:.0f} s"
            raise ProxyError(f"cannot start the relay: {why}")

    def _start_relay(self, worker: int, commands: dict[str, Any], fds: Sequence[int]) -> None:
        assert self._crew is not None
        settings = self._relay_settings | {"rules": [rule.to_dict() for rule in self._rules]}
        settings["rule_serials"] = [self._serials.of(rule) for rule in self._rules]
        name = self._relays[worker]
        settings |= self._crew.for_worker(worker) | commands
        self._processes.start(name, "relay", settings, [*self._crew.worker_fds(worker), *fds])

    def _start_child(self, name: str, settings: dict[str, Any], fds: Sequence[int]) -> None:
        self._processes.start(name, name, settings, fds)

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

    def _hear(self, first: Sequence[Event]) -> None:
        """Tell the `first` events once relays take clients; then take events from the children until all have closed
        their sockets."""
        relays = set(self._relays)
        self._accepting, said = until_all_accept({name: self._controls[name] for name in relays})
        for event in first if self._accepting else ():
            self._put(event)
        self._begun.set()
        for early in said:
            self._take(early)
        poll = select.poll()
        names = {control.fileno(): name for name, control in self._controls.items()}
        for fd in names:
            poll.register(fd, select.POLLIN)
        while names:
            ready = [fd for fd, _ in poll.poll()]
            # The relays first: what the others report at the end comes after what they told before.
            for fd in [fd for fd in ready if names[fd] in relays] or ready:
                name = names[fd]
                if not self._take(receive(name, self._controls[name])):
                    poll.unregister(fd)
                    del names[fd]
                    if self._child_ended(name):
                        names[self._controls[name].fileno()] = name
                        poll.register(self._controls[name].fileno(), select.POLLIN)

    def _take(self, said: Said) -> bool:
        """Whether there was anything."""
        name, packet, fds = said
        if fds:
            self._share(name, json.loads(packet)["share"], fds[0])
        elif packet and packet != ACCEPTING:
            self._heard(name, decode(packet))
        return packet != b""

    def _heard(self, name: str, event: Event) -> None:
        if self.config.workers > 1 and name in self._relays:
            merged = self._voices.merged(self._relays.index(name), event)
            if merged is None:
                return
            event = merged
        self._put(event)

    def _share(self, name: str, broker: list[Any], fd: int) -> None:
        """A worker has opened a listener: the others get it, too."""
        listener = socket.socket(fileno=fd)
        with self._starting:
            if self._stopping or self._crew is None:
                listener.close()
                return
            self._crew.keep(listener, (broker[0], broker[1]))
            packet = json.dumps({"do": "listen", "broker": broker}).encode()
            for other in self._relays:
                if other != name:
                    try:
                        socket.send_fds(self._controls[other], [packet], [fd], socket.MSG_DONTWAIT)
                    except OSError:  # it is gone, and the next one gets them all; or stuck, and others serve
                        pass

    def _put(self, event: Event) -> None:
        if isinstance(event, FlightWanted):
            self._processes.tell("observer", event.command())
            return
        self._queue.put(event)
        if self.control is not None:
            self.control.hear(event)
            if isinstance(event, ShutdownAsked):
                threading.Thread(target=self.stop, name="proxy stop", daemon=True).start()
        meter = self._controls.get("meter")
        packet = heard(event) if meter is not None else None
        if meter is not None and packet is not None:
            try:
                meter.send(packet, socket.MSG_DONTWAIT)
            except OSError:  # it is busy, or gone: a later event says more
                pass

    def _child_ended(self, name: str) -> bool:
        """A process is gone. Whether there is another one of this name now."""
        code = self._children[name].wait()
        if self._stopping:
            return False
        if self.config.workers > 1 and name in self._relays:
            return self._worker_ended(name, code)
        self._put(ProcessFailed(name, code))
        reader = {"observer": OBSERVER, "inspector": INSPECTOR, "meter": METER}.get(name)
        if reader is not None:
            # nobody reads any more: a lossless relay must not wait for it
            self._tell_relays({"do": "dismiss", "reader": reader})
            if self._crew is not None:
                self._crew.dismiss(reader)
        return False

    def _worker_ended(self, name: str, code: int) -> bool:
        worker = self._relays.index(name)
        with self._starting:
            if self._stopping or self._crew is None:
                return False
            again = self._crew.died(worker)
            self._put(WorkerEnded(worker + 1, code, again))
            if not again:
                self._given_up.add(name)
                return False
            before = self._controls[name]
            try:
                if self.control is None:
                    self._start_relay(worker, {}, [])
                else:
                    with self.control.renewed(name) as (commands, fds):
                        self._start_relay(worker, commands, fds)
                        self.control.introduce(name)
            except OSError:
                self._crew.stop_ring(worker)
                self._given_up.add(name)
                self._put(WorkerEnded(worker + 1, code, False))
                return False
            finally:
                before.close()
            self._put(WorkerStarted(worker + 1, self._children[name].pid))
        return True

    def replace_rules(self, rules: list[Rule]) -> None:
        """Exactly these rules from now on, on the connections that stand, too (`reloadable` has to be set). Rules that
        are as before keep their counts. The event RulesReplaced, or RulesKept, follows."""
        self._rules = list(rules)
        self._serials.renew(rules)
        told = [{"rule": rule.to_dict(), "serial": self._serials.of(rule)} for rule in rules]
        self._tell_relays({"do": "rules.from_file", "rules": told})

    def reload_plugins(self) -> None:
        """Load the plugins' files as they are now, as if they had been saved. The event PluginsLoaded, or PluginsKept,
        follows."""
        self._tell_relays({"do": "plugins.reload"})

    def _tell_relays(self, command: dict[str, object]) -> None:
        for name in self._relays:
            self._processes.tell(name, command)

    def write_flight(self, label: str = "flight", kind: str = "asked", reason: str = "") -> None:
        """Write out what the flight recorder holds. The event FlightWritten, or FlightFailed, follows."""
        self._processes.tell("observer", {"do": "recording.flight", "label": label, "kind": kind, "reason": reason})

    # -- the end ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Accept nothing new, let responses in flight arrive (at most `drain_seconds`), end the processes, finish
        the recording. May be called more than once."""
        with self._lock:
            with self._starting:
                if self._stopping:
                    return
                self._stopping = True
                if self._crew is not None:
                    self._crew.close_listeners()
            self._tell_relays({"do": "stop", "seconds": self.config.drain_seconds})
            self._end_children(self.config.drain_seconds + ENDING_SECONDS)
            if self._thread is not None:
                self._thread.join(HEARING_SECONDS)
            for control in self._controls.values():
                control.close()
            if self._crew is not None and self._crew.workers > 1:
                self._crew.close()
                for fd in self._bells:
                    os.close(fd)
                if self.meter is not None:
                    self.meter.close()
            if self.control is not None:
                self.control.end()
            self._queue.put(None)

    def _end_children(self, seconds: float) -> None:
        self._processes.end([name for name in self._relays if name not in self._given_up], seconds)

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
