"""Run proxies in the foreground and print their events and findings. One cluster, or several by name."""

from __future__ import annotations

import atexit
import errno
import json
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from pathlib import Path

from ....errors import BarnabasError
from ....plugins.rules.rules import Rule, load_rules
from ....proxy import Proxy, ProxyConfig, ProxyError, events
from ....proxy.events import Address, show
from ....proxy.metrics.settings import MeterConfig, MeterSockets, store_token
from ....proxy.relay.negotiation.security import client_advice
from ... import times
from ...safe import visible
from ..common.failure import Failure, OutputError, make_directory
from ..common.signals import discard_output, has_terminal, stopping_on_signals
from .options import TOKEN_VARIABLE

COUNTS_EVERY = 10.0
FAILED = 1
"""Exit status of a proxy that has ended by itself because its relays could not be kept running."""


class _Signal(Enum):
    """Signals in the queue of events."""

    RELOAD = auto()
    """SIGHUP."""
    WRITE_FLIGHT = auto()
    """SIGUSR1."""
    ENDED = auto()
    """A proxy has stopped by itself: its control API was asked to, or it has failed."""


@dataclass(slots=True)
class RunningCluster:
    """What is run. `name` is empty for the only one; `rules`: the file they came from, to be read again on SIGHUP."""

    name: str
    config: ProxyConfig
    rules: Path | None = None
    proxy: Proxy = field(init=False)
    findings: Findings = field(init=False)
    counts: tuple[int, ...] | None = None
    """Those that were printed last."""
    counts_printed: float = 0.0
    """When, on the monotonic clock."""

    def __post_init__(self) -> None:
        self.proxy = Proxy(self.config)
        self.findings = Findings(self.prefix)

    @property
    def prefix(self) -> str:
        return f"{self.name}: " if self.name else ""


def run(clusters: Sequence[RunningCluster], as_json: bool, quiet: bool, screen: bool, allow_edit: bool = False) -> None:
    """Start all clusters, print their events, and stop them on Ctrl-C or SIGTERM. `allow_edit`: the screen may change traffic."""
    from ....captures.reading.reader import files_in

    print_addresses = not (as_json or quiet or screen)
    for cluster in clusters:
        if (record := cluster.config.record) is not None:
            make_directory(record)
            if not quiet and files_in(record):
                print(f"{cluster.prefix}{visible(str(record))} already has a recording: adding to it", file=sys.stderr)
    incoming = _EventQueue()
    with stopping_on_signals():
        try:
            for cluster in clusters:
                _start(cluster, print_addresses)
            if screen:
                _screen(clusters[0].proxy, allow_edit)
            else:
                incoming.listen(clusters)
                _print_events(clusters, incoming, as_json, quiet)
        except KeyboardInterrupt:
            if not quiet:
                print(
                    "stopping: waiting up to 5 s for responses in flight; press Ctrl-C again to stop at once",
                    file=sys.stderr,
                )
        finally:
            summary = any(cluster.config.findings for cluster in clusters)
            stop_all([cluster.proxy for cluster in clusters], Findings.load if summary else None)
    for cluster, event in incoming.rest(clusters):
        if isinstance(event, events.FindingSeen) and not as_json:
            cluster.findings.take(event, not screen)
        elif not isinstance(event, events.Counts) and (event.warning or not quiet) and not screen:
            _print(event, cluster, as_json)
    for cluster in clusters:
        if cluster.config.findings and not as_json and not screen:
            cluster.findings.summary()
        record = cluster.config.record
        if record is not None and not as_json and not quiet:
            print(
                f"{cluster.prefix}recorded to {record}; next: barnabas ui {record}, "
                f"or: barnabas findings {record}"
            )
    if any(cluster.proxy.failed for cluster in clusters):
        raise SystemExit(FAILED)


def stop_all(proxies: Sequence[Proxy], meanwhile: Callable[[], None] | None = None) -> None:
    """Stop them at the same time: each may have responses in flight to wait for. `meanwhile` is called in that time."""
    threads = [threading.Thread(target=proxy.stop, name="stopping") for proxy in proxies]
    for thread in threads:
        thread.start()
    if meanwhile is not None:
        meanwhile()
    for thread in threads:
        thread.join()


def bootstrap_line(config: ProxyConfig, address: Address) -> str:
    """Where clients begin; `address`: where the proxy listens."""
    if config.transparent:
        return "clients: the brokers' own addresses; redirect them here with: barnabas transparent up"
    if config.tls is not None and config.tls.sni_suffix:
        name = config.tls.sni_suffix.lower().strip(".")
        names = f"{name} and broker-ID.{name} must resolve to {address[0]}"
        return f"clients: bootstrap.servers={show((name, address[1]))} ({names}, in DNS or their /etc/hosts)"
    return f"clients: bootstrap.servers={show(address)}"


def cap_advice(config: ProxyConfig) -> list[str]:
    """What is capped because of the caps that were asked for."""
    profile = config.versions.profile if config.versions is not None else None
    follows = () if profile is None else profile.follows.values()
    return [f"capped as well: {each.text}: {each.reason}" for each in follows]


def feed_advice(meter: MeterSockets | None, config: MeterConfig | None) -> str | None:
    """How the feed is read, once it is up; a token that was made is left where this user's programs find it."""
    if meter is None or config is None or meter.feed is None:
        return None
    if config.feed_token:
        return f"live feed: barnabas feed {show(meter.feed)} (with the same token)"
    path = store_token(meter.feed[1], meter.feed_token)
    if path is None:
        return f"the token of the live feed cannot be stored for barnabas feed: set {TOKEN_VARIABLE} for both"
    atexit.register(path.unlink, missing_ok=True)
    return f"live feed: barnabas feed {show(meter.feed)} (elsewhere, or as another user: with the token in {path})"


def _start(cluster: RunningCluster, print_addresses: bool) -> None:
    proxy = cluster.proxy
    try:
        proxy.start()
    except ProxyError as error:
        raise Failure(f"{cluster.prefix}{error}") from None
    advice = feed_advice(proxy.meter, cluster.config.meter)  # leaves the token, whoever reads this or not
    if not print_addresses:
        return
    lines = [bootstrap_line(cluster.config, proxy.address)]
    if cluster.config.tls is not None:
        lines += client_advice(cluster.config.tls)
    if advice:
        lines.append(advice)
    for line in lines + cap_advice(cluster.config):
        print(f"{cluster.prefix}{line}", flush=True)


def rules_of_file(path: Path | None) -> list[Rule]:
    """The rules of a file. Raises RuleError with file, line and column."""
    if path is None:
        return []
    return load_rules(path)


class Findings:
    """The findings of one run, by their number, as they were reported last."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._last: dict[int, events.FindingSeen] = {}

    @staticmethod
    def load() -> None:
        """Load what `summary` needs."""
        from ....decoder import findings  # noqa: F401
        from ..analysis import finding_lines  # noqa: F401

    def take(self, event: events.FindingSeen, show_it: bool = True) -> None:
        """Print a finding: with its remedy the first time, in one line when it got worse or more frequent."""
        before = self._last.get(event.number)
        self._last[event.number] = event
        if not show_it or (before and event.count < 2 * before.count and event.severity == before.severity):
            return  # a finding that was printed already: for the summary
        from ..analysis.finding_lines import findings_console, indented, one_line

        console = findings_console()
        line = one_line(event.severity, event.finding, event.count, event.seen)
        console.print(f"{_now()} {self._prefix}", line, sep="")
        if before is None:
            console.print(indented(event.remedy, "do: ", 16))

    def summary(self) -> None:
        """What was found in all, the worst first."""
        from ....decoder.findings import Severity
        from ..analysis.finding_lines import findings_console, one_line

        console = findings_console()
        if not self._last:
            console.print(f"{self._prefix}no problems found in the traffic")
            return
        console.print(f"{self._prefix}found in this run: {len(self._last)}")
        for event in sorted(self._last.values(), key=lambda e: (-Severity(e.severity).rank, -e.count)):
            console.print("  ", one_line(event.severity, event.finding, event.count, event.seen), sep="")


class _EventQueue:
    """The events of all clusters, in the order they came."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[tuple[RunningCluster, events.Event] | _Signal] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def listen(self, clusters: Sequence[RunningCluster]) -> None:
        """Take the events of clusters that have started."""
        for cluster in clusters:
            thread = threading.Thread(target=self._receive, args=(cluster,), name=f"events {cluster.name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _receive(self, cluster: RunningCluster) -> None:
        for event in cluster.proxy.events():
            self.queue.put((cluster, event))
        self.queue.put(_Signal.ENDED)

    def rest(self, clusters: Sequence[RunningCluster]) -> Iterator[tuple[RunningCluster, events.Event]]:
        """The remaining events, after all clusters have stopped."""
        if not self._threads:
            self.listen(clusters)
        for thread in self._threads:
            thread.join()
        while not self.queue.empty():
            found = self.queue.get()
            if isinstance(found, tuple):
                yield found


def _print_events(clusters: Sequence[RunningCluster], incoming: _EventQueue, as_json: bool, quiet: bool) -> None:
    """Print events as they come, until interrupted or every proxy has been stopped over its control API."""
    running = len(clusters)
    at_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # nohup outlives its terminal
    before = signal.signal(signal.SIGHUP, lambda number, frame: incoming.queue.put(_Signal.RELOAD))
    before_flight = signal.signal(signal.SIGUSR1, lambda number, frame: incoming.queue.put(_Signal.WRITE_FLIGHT))
    try:
        while running:
            found = incoming.queue.get()
            if isinstance(found, tuple):
                cluster, event = found
                with suppress(OutputError):  # a full disk takes no lines, and the traffic goes on
                    _report(cluster, event, as_json, quiet)
                continue
            if found is _Signal.ENDED:
                running -= 1
                if any(cluster.proxy.failed for cluster in clusters):
                    return  # whoever supervises this command starts all of it again
                continue
            if found is _Signal.WRITE_FLIGHT:
                for each in clusters:
                    each.proxy.write_flight(kind="signal", reason="SIGUSR1")
                continue
            if at_terminal and not has_terminal():
                raise KeyboardInterrupt  # the signal was the terminal's end
            for each in clusters:
                _reload(each)
    except OSError as error:
        if error.errno == errno.EIO and at_terminal and not has_terminal():
            raise KeyboardInterrupt from None  # the line that could not be written came before the signal
        raise
    finally:
        if at_terminal and not has_terminal():
            discard_output()
        signal.signal(signal.SIGHUP, before)
        signal.signal(signal.SIGUSR1, before_flight)


def _now() -> str:
    """In front of each line, with its date: a proxy runs for days."""
    return times.moment(time.time_ns())


def _reload(cluster: RunningCluster) -> None:
    """Reload the rules and the plugins; the old ones stay where that fails."""
    if cluster.config.plugins is not None:
        cluster.proxy.reload_plugins()
    if cluster.rules is None:
        return
    try:
        cluster.proxy.replace_rules(rules_of_file(cluster.rules))
    except BarnabasError as failure:
        print(f"{_now()} ! {cluster.prefix}the old rules stay in effect: {failure}", file=sys.stderr, flush=True)


def _report(cluster: RunningCluster, event: events.Event, as_json: bool, quiet: bool) -> None:
    if isinstance(event, events.Counts) and not as_json:
        moved = (event.exchanges, event.request_bytes, event.response_bytes, event.connections)
        if moved == cluster.counts or time.monotonic() - cluster.counts_printed < COUNTS_EVERY:
            return
        cluster.counts, cluster.counts_printed = moved, time.monotonic()
    if isinstance(event, events.FindingSeen) and not as_json:
        cluster.findings.take(event)
    elif event.warning or not quiet:
        _print(event, cluster, as_json)


def _print(event: events.Event, cluster: RunningCluster, as_json: bool) -> None:
    if as_json:
        whose = {"cluster": cluster.name} if cluster.name else {}
        print(json.dumps({"event": type(event).__name__, **whose, **asdict(event)}), flush=True)
    else:
        stamp = _now()
        print(
            f"{stamp} {'! ' if event.warning else ''}{cluster.prefix}{event.text}",
            file=sys.stderr if event.warning else sys.stdout,
            flush=True,
        )


def _screen(running: Proxy, allow_edit: bool) -> None:
    from ...live import show_live

    assert running.config.record is not None
    tls = running.config.tls
    unverified = " (brokers' certificates NOT VERIFIED)" if tls is not None and tls.broker_insecure else ""
    title = f"bootstrap.servers={show(running.address)}{unverified}"
    show_live(running, running.config.record, title=title, allow_edit=allow_edit)
