"""The proxy as its owner sees it: start it, hear its events, stop it.

    with Proxy(ProxyConfig(upstream=("127.0.0.1", 9092))) as proxy:
        print(proxy.address)
        for event in proxy.events():
            print(event.text)

The relay, the observer and the inspector are child processes (fresh interpreters, so threads and pytest do not matter). They end
by themselves when this process does, however it ends: each notices that the other end of its control socket is
closed.
"""

from __future__ import annotations

import json
import os
import queue
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from ..plugins.rules import Rule
from .addresses import listen, reason
from .bells import new_bell
from .control.starting import ControlConfig, ControlStart, ControlStartError, insecure
from .events import Address, Event, Listening, ProcessFailed, ShutdownAsked, decode, show
from .limits import Limits
from .metering import READER as METER
from .metering import MeterConfig, MeterError, Metering, heard
from .recording_events import FlightWanted
from .retaining import FlightConfig, RecordingConfig
from .ring import Ring
from .sasl import SaslConfig
from .security import SecurityError, TlsConfig, describe, prepare
from .transparent import EVERYWHERE, TransparentConfig, prepare_listener

OBSERVER = 0
INSPECTOR = 1
"""Their numbers among the readers of the ring."""
RING_BYTES = 16 << 20
LOSSLESS_RING_BYTES = 32 << 20
RING_SLOTS = 32768
OBSERVER_SECONDS = 30.0
"""How long the observer may take to finish the recording: it is niced, so on a starved machine it comes late."""
INSPECTOR_SECONDS = 20.0
"""How long the inspector may take for what is left, after the observer has finished: it is niced, too."""


class ProxyError(Exception):
    """The proxy cannot start; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """What to stand between.

    upstream: (host, port) of a bootstrap broker. listen: where clients connect; with port 0 every listener gets any
    free port, otherwise brokers get the ports that follow. record: directory for recordings, None to only count.
    recording: its segments, and how much of it is kept. flight: a flight recorder.
    lossless: the relay waits for the observer instead of dropping what it misses. probe: connect to the broker once
    at the start, to tell early when it cannot be reached. findings: tell what is wrong in the traffic, as it happens
    (`events.FindingSeen`), from severity findings_from on ("info", "low", "medium" or "high"). ring_bytes: 0 for the
    default. drain_seconds: how long `stop` waits for responses in flight. transparent: the kernel brings connections
    to brokers here; `upstream` is not used then (`transparent.EVERYWHERE`), and no address is changed. tls, sasl: TLS
    with clients or brokers, and a login at the brokers for clients that do not log in. meter: who gets what is counted
    (live feed, Prometheus, StatsD). limits: time to connect, idle time, number of connections, size of a frame.
<<<<<<< Updated upstream
    control: offer the control API.
=======
    reloadable: the rules may be replaced while the proxy runs (`replace_rules`).
>>>>>>> Stashed changes
    """

    upstream: Address
    listen: Address = ("127.0.0.1", 0)
    record: Path | None = None
    recording: RecordingConfig = field(default_factory=RecordingConfig)
    flight: FlightConfig | None = None
    rules: list[Rule] = field(default_factory=list)
    lossless: bool = False
    probe: bool = True
    findings: bool = False
    findings_from: str = "low"
    ring_bytes: int = 0
    drain_seconds: float = 5.0
    transparent: TransparentConfig | None = None
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None
    meter: MeterConfig | None = None
    limits: Limits = field(default_factory=Limits)
    control: ControlConfig | None = None
    reloadable: bool = False

    @property
    def flight_wakes(self) -> bool:
        """Whether something in the traffic makes the flight recorder write."""
        return self.flight is not None and self.flight.wakes


class Proxy:
    """One relay with its observer, and perhaps an inspector. Not restartable: make a new one."""

    def __init__(self, config: ProxyConfig) -> None:
        self.config = config
        self._address: Address | None = None
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._controls: dict[str, socket.socket] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._lock = threading.Lock()
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
        """Listen and start the processes; ProxyError when that is impossible. A broker that cannot be reached is
        not an error: it becomes an event."""
        if self._address is not None:
            raise ProxyError("the proxy has been started already")
        host, port = self.config.listen
        if not 0 <= port < 65536:
            raise ProxyError(f"cannot listen on {show((host, port))}: ports go from 0 to 65535")
        transparent = self.config.transparent
        try:
            security = prepare(self.config.tls, self.config.sasl)
        except SecurityError as error:
            raise ProxyError(str(error)) from None
        try:
            listener = listen((host, port), (lambda sock: prepare_listener(sock, transparent.mode)) if transparent else None)
        except OSError as error:
            raise ProxyError(
                f"cannot listen on {show((host, port))}: {reason(error)}; choose another address with --listen"
            ) from None
        except UnicodeError:
            raise ProxyError(f"cannot listen on {host!r}: this is no host name") from None
        upstream = EVERYWHERE if transparent else self.config.upstream
        if not transparent and (not self.config.upstream[0] or not 0 < self.config.upstream[1] < 65536):
            listener.close()
            raise ProxyError(f"{show(self.config.upstream)} is no broker address: give HOST:PORT with --broker")
        own: Address = listener.getsockname()[:2]
        try:
            self.meter = meter = Metering(self.config.meter) if self.config.meter and self.config.meter.wanted else None
        except MeterError as error:
            listener.close()
            raise ProxyError(str(error)) from None
        try:
            self.control = control = ControlStart(self.config.control) if self.config.control else None
        except ControlStartError as error:
            listener.close()
            if meter is not None:
                meter.close()
            raise ProxyError(str(error)) from None
        size = self.config.ring_bytes or (LOSSLESS_RING_BYTES if self.config.lossless else RING_BYTES)
        ring = Ring.create(size, RING_SLOTS)
        bell = new_bell()
        room_bell = new_bell()
        inspector_bell = new_bell()
        bells = {str(OBSERVER): bell}
        shared = {"ring": ring.fd, "room_bell": room_bell, "lossless": self.config.lossless}
        try:
            ring.admit(OBSERVER, lossless=self.config.lossless)
            self._start_child(
                "observer",
                shared
                | {
                    "reader": OBSERVER,
                    "bell": bell,
                    "record": None if self.config.record is None else str(self.config.record.absolute()),
                    "recording": self.config.recording.settings(),
                    "flight": self.config.flight.settings() if self.config.flight else None,
                    **(control.commands("observer") if control else {}),
                },
                [ring.fd, bell, room_bell, *(control.fds("observer") if control else ())],
            )
            if self.config.findings or control or self.config.flight_wakes:
                # It may be late and miss something, whatever the recording may not: the relay never waits for it.
                ring.admit(INSPECTOR, lossless=False)
                bells[str(INSPECTOR)] = inspector_bell
                self._start_child(
                    "inspector",
                    shared
                    | {
                        "reader": INSPECTOR,
                        "bell": inspector_bell,
                        "findings": self.config.findings,
                        "findings_from": str(self.config.findings_from),
                        "flight": self.config.flight.settings() if self.config.flight_wakes else None,
                        **(control.commands("inspector") | control.watch if control else {}),
                    },
                    [ring.fd, inspector_bell, room_bell, *(control.fds("inspector") if control else ())],
                )
            if meter is not None:
                ring.admit(METER, lossless=False)
                bells[str(METER)] = meter.bell
                self._start_child("meter", shared | meter.settings, [ring.fd, room_bell, *meter.fds])
            self._start_child(
                "relay",
                shared
                | {
                    "bells": bells,
                    "upstream": upstream,
                    "transparent": transparent.settings() if transparent else None,
                    "limits": self.config.limits.settings(),
                    "reloadable": self.config.reloadable,
                    "security": security,
                    "listener": listener.fileno(),
                    "fixed_ports": port != 0,
                    "rules": [rule.to_dict() for rule in self.config.rules],
                    "probe": self.config.probe and not transparent,
                    **(control.commands("relay") if control else {}),
                },
                [ring.fd, room_bell, listener.fileno(), *bells.values(), *(control.fds("relay") if control else ())],
            )
            if control is not None:
                settings, fds = control.server(
                    {"observer": bell, "inspector": inspector_bell},
                    listen=own,
                    upstream=upstream,
                    processes={name: child.pid for name, child in self._children.items()},
                    metrics=meter.metrics if meter is not None else None,
                    insecure=insecure(self.config),
                )
                self._start_child("control", settings, fds)
                control.control = self._controls["control"]
        except OSError as error:
            self._end_children(0.0)
            if control is not None:
                control.end()
            raise ProxyError(f"cannot start the proxy's processes: {reason(error)}") from None
        finally:
            ring.close()
            os.close(bell)
            os.close(room_bell)
            os.close(inspector_bell)
            listener.close()
            if meter is not None:
                meter.close()
            if control is not None:
                control.close()
        self._address = own
        self._queue.put(Listening(own, upstream, describe(self.config.tls, self.config.sasl)))
        if meter is not None:
            self._queue.put(meter.event)
        if control is not None:
            self._put(control.event)
        self._thread = threading.Thread(target=self._hear, name="proxy events", daemon=True)
        self._thread.start()
        return self

    def _start_child(self, name: str, settings: dict[str, object], fds: list[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            ours.send(json.dumps(settings).encode())
            # -P: nothing of the current directory can stand in for a module
            self._children[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.{name}", str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *fds],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal reaches the foreground group: this process, not these
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._controls[name] = ours

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

    def _hear(self) -> None:
        """Take events from the children until all have closed their sockets."""
        poll = select.poll()
        names = {control.fileno(): name for name, control in self._controls.items()}
        for fd in names:
            poll.register(fd, select.POLLIN)
        while names:
            ready = [fd for fd, _ in poll.poll()]
            # The relay first: what the others report at the end comes after what it told before.
            for fd in [fd for fd in ready if names[fd] == "relay"] or ready:
                name = names[fd]
                try:
                    packet = self._controls[name].recv(1 << 20)
                except OSError:
                    packet = b""
                if packet:
                    self._put(decode(packet))
                    continue
                poll.unregister(fd)
                del names[fd]
                self._child_ended(name)

    def _put(self, event: Event) -> None:
        if isinstance(event, FlightWanted):
            self._tell("observer", asdict(event) | {"do": "recording.flight"})
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

    def _child_ended(self, name: str) -> None:
        code = self._children[name].wait()
        if self._stopping:
            return
        self._put(ProcessFailed(name, code))
        reader = {"observer": OBSERVER, "inspector": INSPECTOR, "meter": METER}.get(name)
        if reader is not None:
            # nobody reads any more: a lossless relay must not wait for it
            self._tell("relay", {"do": "dismiss", "reader": reader})

    def replace_rules(self, rules: list[Rule]) -> None:
        """Exactly these rules from now on, on the connections that stand, too (`reloadable` has to be set). Rules that
        are as before keep their counts. The event RulesReplaced, or RulesKept, follows."""
        self._tell("relay", {"do": "rules.replace", "rules": [{"rule": rule.to_dict()} for rule in rules]})

    def write_flight(self, label: str = "flight", kind: str = "asked", reason: str = "") -> None:
        """Write out what the flight recorder holds. The event FlightWritten, or FlightFailed, follows."""
        self._tell("observer", {"do": "recording.flight", "label": label, "kind": kind, "reason": reason})

    def _tell(self, name: str, command: dict[str, object]) -> None:
        try:
            self._controls[name].send(json.dumps(command).encode())
        except (OSError, KeyError):
            pass

    # -- the end ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Accept nothing new, let responses in flight arrive (at most `drain_seconds`), end the processes, finish
        the recording. May be called more than once."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            self._tell("relay", {"do": "stop", "seconds": self.config.drain_seconds})
            self._end_children(self.config.drain_seconds + 2.0)
            if self._thread is not None:
                self._thread.join(5.0)
            for control in self._controls.values():
                control.close()
            if self.control is not None:
                self.control.end()
            self._queue.put(None)

    def _end_children(self, seconds: float) -> None:
        relay, observer = self._children.get("relay"), self._children.get("observer")
        if relay is not None:
            self._wait_or_kill(relay, seconds)
        if observer is not None:
            # The relay's last word ends the observer; without it the socket does.
            self._tell("observer", {"do": "stop"})
            if relay is None or relay.returncode != 0:
                self._controls["observer"].shutdown(socket.SHUT_WR)
            self._wait_or_kill(observer, OBSERVER_SECONDS)
        inspector = self._children.get("inspector")
        if inspector is not None:
            self._tell("inspector", {"do": "stop"})
            if relay is None or relay.returncode != 0:
                self._controls["inspector"].shutdown(socket.SHUT_WR)
            self._wait_or_kill(inspector, INSPECTOR_SECONDS)
        meter = self._children.get("meter")
        if meter is not None:
            self._tell("meter", {"do": "stop"})
            if relay is None or relay.returncode != 0:
                self._controls["meter"].shutdown(socket.SHUT_WR)
            self._wait_or_kill(meter, INSPECTOR_SECONDS)

        server = self._children.get("control")
        if server is not None:
            self._controls["control"].shutdown(socket.SHUT_WR)
            self._wait_or_kill(server, 5.0)

    @staticmethod
    def _wait_or_kill(child: subprocess.Popen[bytes], seconds: float) -> None:
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
