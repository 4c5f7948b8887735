"""What the proxy reports to its owner: one small dataclass per kind of event, each with a line for people (`text`).

They cross from the child processes as JSON packets (`encode`, `decode`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from string import Formatter
from typing import Any, ClassVar, dataclass_transform

from ..decoder.schema import facts

Address = tuple[str, int]
_AFTER = {
    "relay": "its connections ended with it",
    "observer": "traffic continues unobserved",
    "inspector": "traffic continues, but findings have stopped",
    "control": "traffic continues without the control API",
    "meter": "traffic continues without live feed and metrics",
}


@lru_cache(1024)
def show(address: Address) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Fields(Formatter):
    """Formats an event's `template`: names are its fields, addresses are shown as such."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value = getattr(args[0], str(key))
        return show(value) if isinstance(value, tuple) else value


_FIELDS = _Fields()
_BY_NAME: dict[str, type[Event]] = {}


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Event:
    """Base of all events, which are frozen dataclasses. `template`: an event's text with the names of fields in braces, where `text`
    needs nothing else."""

    warning: ClassVar[bool] = False
    template: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        _BY_NAME[cls.__name__] = dataclass(frozen=True)(cls)

    @property
    def text(self) -> str:
        return _FIELDS.vformat(self.template, (self,), {})


class Listening(Event):
    """The bootstrap listener stands; clients connect here instead of to `upstream`, or one of so many `others`."""

    address: Address
    upstream: Address
    security: str = ""
    others: int = 0

    @property
    def text(self) -> str:
        upstream = show(self.upstream) if self.upstream[1] else "any broker"
        if self.others:
            upstream += f" and {self.others} other{'s' if self.others > 1 else ''}"
        return f"listening on {show(self.address)} for {upstream}{'; ' if self.security else ''}{self.security}"


class BrokerFound(Event):
    """A broker appeared in a response and has its own listener now. `node` is -1 where the response names none."""

    node: int
    broker: Address
    address: Address
    template = "broker {node} at {broker}: listening on {address}"


class ListenerFailed(Event):
    """No listener was opened for a broker; its own address went to the client. `brokers`: so many of one response, this
    one and others."""

    warning = True
    broker: Address
    reason: str
    brokers: int = 1

    @property
    def text(self) -> str:
        others = f" and {self.brokers - 1} more" if self.brokers > 1 else ""
        return f"no listener for broker {show(self.broker)}{others}: {self.reason}; clients connect to it directly, bypassing the proxy"


class ClientRefused(Event):
    """A client was turned away before anything was read from it."""

    warning = True
    client: Address
    reason: str
    template = "refused {client}: {reason}"


class ClientLeft(Event):
    """A client reset its connection before it was accepted, and sent nothing: no broker was asked, and it is not recorded."""

    client: Address
    template = "{client} reset its connection before it was accepted"


class ConnectionOpened(Event):
    connection: int
    client: Address
    broker: Address
    template = "connection {connection}: {client} to {broker}"


class ConnectionClosed(Event):
    """`how`: "fin" or "rst"; `sent`, `received`: bytes from and to the client; `by`: "client" or "broker", whose end
    came first, "plugin NAME" or "control API" where that asked for it, "" when the proxy ended it; `awaited`: requests whose responses were still looked for."""

    connection: int
    how: str
    sent: int
    received: int
    by: str = ""
    awaited: int = 0

    @property
    def text(self) -> str:
        how = f"{self.how} by {self.by}" if self.by else self.how
        return f"connection {self.connection}: closed ({how}) after {self.sent} B up, {self.received} B down"


class UpstreamFailed(Event):
    """A broker could not be reached. `connection` is 0 for the check at the start. `instead`: the one that is tried next."""

    warning = True
    connection: int
    broker: Address
    reason: str
    instead: Address | None = None

    @property
    def text(self) -> str:
        if self.instead is not None:
            return f"cannot reach broker {show(self.broker)}: {self.reason}; trying {show(self.instead)}"
        return (
            f"cannot reach broker {show(self.broker)}: {self.reason}; the proxy keeps listening: "
            "start the broker or correct --broker"
        )


class Capped(Event):
    """Clients are offered a lower version than the broker offers, because the newer one could not be changed here."""

    warning = True
    api_key: int
    offered: int
    capped: int

    @property
    def text(self) -> str:
        return (
            f"{facts.api_name(self.api_key)} v{self.offered} contains broker addresses, but this version of Barnabas does "
            f"not know it: clients are offered v{self.capped}; upgrade Barnabas, or run `barnabas schema import`"
        )


class NotKafka(Event):
    """A connection does not carry Kafka frames (any more); its bytes go on unread."""

    warning = True
    connection: int
    client: Address
    reason: str
    template = "connection {connection} from {client}: {reason}"


class Undecoded(Event):
    """A held frame was forwarded as it was."""

    warning = True
    connection: int
    api_key: int
    api_version: int
    reason: str
    template = "connection {connection}: api key {api_key} version {api_version} passed unchanged: {reason}"


class RuleHit(Event):
    """A rule fired; `hits` counts from 1."""

    rule: str
    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    hits: int
    template = "rule {rule!r} hit {hits} on connection {connection}"


class InterceptHeld(Event):
    """A frame waits for a decision (`held`: its number). `direction` is a `decoder.Direction`."""

    held: int
    connection: int
    direction: int
    api_key: int
    correlation_id: int
    intercept: int

    @property
    def text(self) -> str:
        side = "response" if self.direction else "request"
        return (
            f"held {self.held}: {facts.api_name(self.api_key)} {side} {self.correlation_id} "
            f"of connection {self.connection} waits for a decision"
        )


class InterceptReleased(Event):
    """A frame that waited does so no more. `how`: "resumed", "edited", "answered", "closed", "timeout", or why."""

    held: int
    connection: int
    direction: int
    api_key: int
    correlation_id: int
    how: str
    template = "held {held} on connection {connection}: {how}"


class ControlListening(Event):
    """The control API can be used. `url`: "http://127.0.0.1:PORT", or "unix:PATH"; `token_file`: where the token is
    ("" where none is needed)."""

    url: str
    token_file: str

    @property
    def text(self) -> str:
        return f"control API at {self.url}" + (f", token in {self.token_file}" if self.token_file else "")


class MeterListening(Event):
    """Where the live feed (UDP) and `GET /metrics` are; None: not asked for."""

    feed: Address | None
    metrics: Address | None

    @property
    def text(self) -> str:
        places = [f"live feed at {show(self.feed)}"] if self.feed else []
        places += [f"metrics at http://{show(self.metrics)}/metrics"] if self.metrics else []
        return ", ".join(places)


class ShutdownAsked(Event):
    """Somebody asked over the control API to stop the proxy."""

    template = "stopping: requested over the control API"


class Recording(Event):
    """Recording into this directory."""

    path: str
    template = "recording to {path}"


class RecordingFailed(Event):
    """The observer cannot record; traffic goes on."""

    warning = True
    reason: str

    @property
    def text(self) -> str:
        so = "" if "continues unrecorded" in self.reason else "; traffic continues unrecorded"
        return f"recording stopped: {self.reason}{so}"


class Counts(Event):
    """Totals since the start, about once a second. `lost_*`: what the observer missed; the other totals do not include it."""

    time_ns: int
    connections: int
    opened: int
    exchanges: int
    errors: int
    undecoded: int
    request_bytes: int
    response_bytes: int
    lost_bytes: int
    lost_chunks: int

    @property
    def text(self) -> str:
        lost = f", {self.lost_bytes} B not observed" if self.lost_bytes else ""
        return (
            f"{self.connections} connections, {self.exchanges} exchanges, {self.errors} errors, "
            f"{self.request_bytes} B up, {self.response_bytes} B down{lost}"
        )


class FindingSeen(Event):
    """Something is wrong in the traffic (`decoder.findings.Finding`): seen for the first time, worse than before, or
    twice as often as when it was last reported. `finding` is its id (as in `Finding.id`), `number` counts findings from 1;
    its last event has its last count."""

    finding: str
    severity: str
    seen: str
    why: str
    remedy: str
    count: int
    about: dict[str, Any]
    number: int

    @property
    def text(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        return f"finding ({self.severity}, {self.finding}{times}): {self.seen}"


class NotInspected(Event):
    """So many bytes were not inspected, in all: the inspector did not keep up. Findings may be missing."""

    warning = True
    lost_bytes: int
    template = "{lost_bytes} B were not inspected because the inspector fell behind: findings may be missing"


class RelayFault(Event):
    """A fault of the relay itself; it cost this one connection (0: none)."""

    warning = True
    connection: int
    reason: str

    @property
    def text(self) -> str:
        if not self.connection:
            return f"fault in the relay: {self.reason}"
        return f"connection {self.connection} was reset because of a fault in the relay: {self.reason}"


class InternalError(Event):
    """Errors inside Barnabas that a boundary contained (`diagnostics.contained`). count: how many since this boundary's last event."""

    warning = True
    what: str
    error: str
    count: int

    @property
    def text(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"internal error in {self.what}{times}: {self.error}; traffic continues; --log-file keeps the traceback"


class Suppressed(Event):
    """So many events were left out because they came too fast."""

    warning = True
    count: int
    template = "{count} more events of this kind were left out"


class ProcessFailed(Event):
    """A process of the proxy ended although nobody asked it to. `again`: seconds until another takes its place, None: none will."""

    warning = True
    process: str
    code: int
    again: float | None = 0.0

    @property
    def text(self) -> str:
        then = f"a new one starts in {self.again:g} s" if self.again else "a new one replaces it"
        if self.again is None:
            then = "it ended too often to be started again"
        return f"the {self.process} process ended unexpectedly (exit code {self.code}); {_AFTER[self.process]}; {then}"


class ProcessStarted(Event):
    """A process stands in the place of one that ended."""

    process: str
    pid: int
    template = "the {process} process is running again"


class ProxyFailed(Event):
    """The proxy ends: it has no relay any more."""

    warning = True
    reason: str
    template = "the proxy stops: {reason}"


# -- limits, workers, and clients whose broker cannot be reached -----------------------------------------------------


class FewFiles(Event):
    """The system lets the relay open so few files that it stands `connections` connections; `wanted` 0: no limit."""

    warning = True
    files: int
    connections: int
    wanted: int

    @property
    def text(self) -> str:
        wanted = f", not {self.wanted}" if self.wanted else ""
        return (
            f"this process may open {self.files} files, enough for about {self.connections} connections{wanted}: "
            "raise the limit (ulimit -n, or LimitNOFILE= of the systemd unit)"
        )


class ClockSet(Event):
    """The system's clock was set by so much at once that the times of what is recorded went there, too."""

    warning = True
    seconds: float

    @property
    def text(self) -> str:
        way = "forward" if self.seconds > 0 else "back"
        return (
            f"the system clock was set {way} by {abs(self.seconds):.0f} s: times continue from there; latencies of "
            "requests that were in flight are wrong by this amount"
        )


class ReaderStuck(Event):
    """A process that must not miss anything has read nothing for so long, while traffic waited for it: it is ended."""

    warning = True
    process: str
    seconds: float
    template = (
        "the {process} has read nothing for {seconds:g} s while traffic waited for it (--lossless): it is "
        "terminated and replaced, and traffic until then is not observed"
    )


class ConnectionsFull(Event):
    """So many connections stand as were allowed; new clients wait until one ends."""

    warning = True
    limit: int
    template = "{limit} connections are open, as many as --max-connections allows: new clients wait until one closes"


class FilesUsedUp(Event):
    """`connections` stand, and the system lets the relay open no files for another; new clients wait until one ends."""

    warning = True
    connections: int
    files: int
    template = (
        "{connections} connections are open, and the limit of {files} open files allows no more: new clients wait "
        "until one closes; raise the limit (ulimit -n, or LimitNOFILE= of the systemd unit)"
    )


class PortPassedOver(Event):
    """A broker's listener does not get this port: it is in use. `whose`: by what of the proxy, "" by others."""

    warning = True
    broker: Address
    port: int
    whose: str

    @property
    def text(self) -> str:
        why = f"belongs to {self.whose}" if self.whose else "is in use"
        return f"port {self.port} {why}: broker {show(self.broker)} gets a later one"


class WorkerEnded(Event):
    """One of several relay workers (from 1) ended although nobody asked it to, and its connections with it; the others
    go on. `again`: another one is started in its place."""

    warning = True
    worker: int
    code: int
    again: bool

    @property
    def text(self) -> str:
        then = "a new one replaces it" if self.again else "it ended too often to be started again"
        return (
            f"relay worker {self.worker} ended unexpectedly (exit code {self.code}) and its connections with it; "
            f"the others continue; {then}"
        )


class WorkerStarted(Event):
    """A relay worker stands in the place of one that ended."""

    worker: int
    pid: int
    template = "relay worker {worker} is running again"


class IdleClosed(Event):
    """A connection was closed because nothing went through it for so long."""

    connection: int
    client: Address
    seconds: float
    template = "connection {connection} from {client}: closed after {seconds:g} s without traffic"


class ClientTried(Event):
    """What a client wanted of a broker that cannot be reached: its first requests, each in words."""

    connection: int
    client: Address
    broker: Address
    requests: tuple[str, ...]

    @property
    def text(self) -> str:
        return (
            f"connection {self.connection}: {show(self.client)} asked {show(self.broker)} without success: "
            + ", ".join(self.requests)
        )


class NamesUnused(Event):
    """A client comes by the name of the bootstrap only, and never by one of those that responses give it."""

    warning = True
    client: str
    times: int
    name: str
    template = (
        "client {client} connected {times} times, but never by a name from the proxy's responses, such as {name}: does that name "
        "resolve to this proxy there (DNS, /etc/hosts)?"
    )


class RulesReplaced(Event):
    """These rules stand now, in this order; no connection was touched."""

    rules: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"rules replaced: {', '.join(self.rules) or 'none'}"


class BrokersDown(Event):
    """These brokers (host:port) are kept down from now on, and no others (`down_brokers`)."""

    brokers: tuple[str, ...]

    @property
    def text(self) -> str:
        if not self.brokers:
            return "all brokers are up again"
        return f"kept down by the control API: {', '.join(self.brokers)}; their connections are closed, new ones refused"


class RulesKept(Event):
    """The rules that stood go on: others could not be taken."""

    warning = True
    reason: str
    template = "the old rules stay in effect: {reason}"


class BrokerGone(Event):
    """A broker's listener was closed: no response has named it for `seconds`, and no connection leads there."""

    broker: Address
    address: Address
    seconds: float
    template = "broker {broker} has not been named for {seconds:.0f} s: its listener {address} is closed"


class BrokerIsProxy(Event):
    """A broker advertises a listener of the proxy as its own address."""

    node: int
    broker: Address
    template = "broker {node} advertises the proxy itself ({broker}): the address is not changed"


# -- TLS and logins: no event holds a password, a key, a token, or bytes of one --------------------------------------


class TlsFailed(Event):
    """TLS failed. `side`: "client" or "broker"; `peer`: its address."""

    warning = True
    connection: int
    side: str
    peer: Address
    reason: str
    template = "connection {connection}: no TLS with {side} {peer}: {reason}"


class BrokerNameUnknown(Event):
    """A client was refused: the name in its TLS hello is that of a broker, and the cluster has no such broker."""

    warning = True
    connection: int
    client: Address
    reason: str
    template = "connection {connection}: {client} is refused: {reason}"


class LoggedIn(Event):
    """The proxy has logged in at a broker (reported once per broker). `lifetime_ms`: the session's; 0: it has no end."""

    broker: Address
    mechanism: str
    username: str
    lifetime_ms: int

    @property
    def text(self) -> str:
        who = f" as {self.username}" if self.username else ""
        again = f", again every {self.lifetime_ms / 1000:g} s at the latest" if self.lifetime_ms else ""
        return f"logged in at {show(self.broker)}{who} with {self.mechanism}{again}"


class LoginFailed(Event):
    """A broker did not accept the proxy's login. `reason` has the broker's own words."""

    warning = True
    connection: int
    broker: Address
    mechanism: str
    reason: str
    template = "connection {connection}: login at {broker} with {mechanism} failed: {reason}"


class NotVerified(Event):
    """Said at the start and again and again, for as long as brokers' certificates are not verified."""

    warning = True
    template = (
        "brokers' certificates are NOT verified (--broker-insecure): anyone on the path can read and change the traffic; "
        "use --broker-ca instead"
    )


# -- versions that differ between client and broker ------------------------------------------------------------------


class NotTranslated(Event):
    """A frame could not be brought into the version of its receiver, and passing it as it was would have been
    wrong: its connection was ended."""

    warning = True
    connection: int
    api_key: int
    api_version: int
    reason: str

    @property
    def text(self) -> str:
        return (
            f"connection {self.connection}: ended, because {facts.api_name(self.api_key)} v{self.api_version} cannot be "
            f"passed to the other side: {self.reason}"
        )


class NotHonoured(Event):
    """What of a profile the broker does not serve; clients are not offered it. `missing`: a text for each API."""

    warning = True
    profile: str
    missing: tuple[str, ...]

    @property
    def text(self) -> str:
        few = ", ".join(self.missing[:_FEW])
        more = f" and {len(self.missing) - _FEW} more" if len(self.missing) > _FEW else ""
        return (
            f"clients are offered {self.profile}, except what this broker does not serve: {few}{more}; "
            "--translate bridges versions"
        )


class OffersLearned(Event):
    """What a broker offers is known, so that requests can be translated. `release`: by how it behaved, if it has no
    ApiVersions, else empty."""

    broker: Address
    apis: int
    release: str = ""

    @property
    def text(self) -> str:
        if self.release:
            return f"{show(self.broker)} has no ApiVersions: treated as Kafka {self.release}"
        return f"{show(self.broker)} offers {self.apis} APIs"


_FEW = 8


# -- plugins ---------------------------------------------------------------------------------------------------------


class PluginsLoaded(Event):
    """These plugins are at work. `again`: a file was saved, and this is its new version."""

    plugins: tuple[str, ...]
    again: bool = False

    @property
    def text(self) -> str:
        return f"plugins {'loaded again' if self.again else 'loaded'}: {', '.join(self.plugins)}"


class PluginsKept(Event):
    """A new version cannot be loaded; the one before goes on. `reason` begins with file and line."""

    warning = True
    reason: str
    template = "{reason}; the old plugins stay in effect"


class PluginFault(Event):
    """A plugin did something wrong, and its message went on as it came. `faults`: within the last minute; with `most` of them
    it is disabled. `plugin` is "" where none can be blamed."""

    warning = True
    plugin: str
    hook: str
    reason: str
    faults: int
    most: int

    @property
    def text(self) -> str:
        hook = f", hook {self.hook}" if self.hook else ""
        who = f"plugin {self.plugin!r}{hook}" if self.plugin else "the plugins' process"
        return f"{who}: {self.reason} (fault {self.faults} of {self.most})"


class PluginDisabled(Event):
    """A plugin had too many faults; traffic goes on without it. `plugin` is "" for all of them."""

    warning = True
    plugin: str
    reason: str

    @property
    def text(self) -> str:
        who = f"plugin {self.plugin!r} is" if self.plugin else "all plugins are"
        return f"{who} disabled: {self.reason}; traffic continues without it; save the file to try again"


class PluginLate(Event):
    """So many messages went on as they came because plugins had too much to do to look at them in time."""

    warning = True
    count: int
    template = "{count} messages were passed on without the plugins, which did not keep up"


class PluginHangs(Event):
    """A plugin changes requests so that their client cannot take the answer: it waits, or finds nothing of what it asked for."""

    warning = True
    plugin: str
    api: str
    reason: str

    @property
    def text(self) -> str:
        shown = "".join(each if each.isprintable() else "\ufffd" for each in self.reason)
        return f"plugin {self.plugin!r} changes {self.api} requests so that clients hang or fail: {shown}"


class PluginSaid(Event):
    """What a plugin logs."""

    plugin: str
    line: str

    @property
    def text(self) -> str:
        shown = "".join(each if each.isprintable() else "\ufffd" for each in self.line)
        return f"plugin {self.plugin!r}: {shown}" if self.plugin else f"plugins: {shown}"


# -- recordings: what was removed, a disk that has room again, flight recordings -------------------------------------


def size(count: int) -> str:
    """Bytes for people."""
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return f"{count} B"


def span(seconds: float) -> str:
    """A duration for people, as it can be given."""
    for unit, least in (("h", 3600), ("m", 60)):
        if seconds >= least and seconds % least == 0:
            return f"{seconds / least:.0f}{unit}"
    return f"{seconds:g}s"


class RecordingResumed(Event):
    """The disk takes the recording again."""

    reason: str
    template = "{reason}"


class SegmentsRemoved(Event):
    """Retention has removed the oldest segments; `first` and `last` name them."""

    directory: str
    segments: int
    bytes: int
    first: str
    last: str

    @property
    def text(self) -> str:
        names = self.first if self.segments == 1 else f"{self.segments} segments, {self.first} to {self.last}"
        return f"removed from {self.directory}: {names} ({size(self.bytes)})"


class RemovalFailed(Event):
    """A segment that is too old, or too much, cannot be removed."""

    warning = True
    reason: str
    template = "{reason}; the recording grows beyond its limit"


class FlightStands(Event):
    """The flight recorder keeps the last `seconds` and `bytes` (None: no limit), and writes them into `directory`."""

    directory: str
    seconds: float | None
    bytes: int | None

    @property
    def text(self) -> str:
        limits = [span(self.seconds)] if self.seconds is not None else []
        limits += [size(self.bytes)] if self.bytes is not None else []
        kept = ", at most ".join(limits)
        return f"flight recorder: the last {kept} are kept, and written into {self.directory} on request"


class FlightShort(Event):
    """The flight recorder's size is full before its time is: it holds about so many seconds."""

    warning = True
    seconds: float
    wanted: float
    bytes: int

    @property
    def text(self) -> str:
        return (
            f"the flight recorder holds the last {self.seconds:.0f} s, not {span(self.wanted)}: {size(self.bytes)} is "
            f"full by then; give it more with --flight-keep {span(self.wanted)},SIZE"
        )


class FlightWanted(Event):
    """Something happened for which a flight recording is written; `others` more like it since the last such event.
    From the process that looks, for the one that records."""

    kind: str
    reason: str
    label: str
    time_ns: int
    about: Mapping[str, Any]
    others: int = 0
    template = "flight recording requested: {reason}"


class FlightWritten(Event):
    """A flight recording is complete. `others`: more reasons that were counted since the one before."""

    path: str
    segments: int
    bytes: int
    reason: str
    others: int

    @property
    def text(self) -> str:
        others = f" and {self.others} more" if self.others else ""
        return f"flight recording ({self.reason}{others}): barnabas ui {self.path} ({size(self.bytes)})"


class FlightFailed(Event):
    """A flight recording could not be written; traffic and recording go on."""

    warning = True
    reason: str
    template = "no flight recording was written: {reason}"


class FlightFull(Event):
    """So many were written by themselves as are wanted; no more are."""

    warning = True
    reason: str
    template = "{reason}"


class FlightCounted(Event):
    """So many reasons came too soon after the last flight recording, or when there were enough."""

    count: int
    template = "{count} more triggers of a flight recording were only counted"


def encode(event: Event) -> bytes:
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode()


def decode(packet: bytes) -> Event:
    fields: dict[str, Any] = json.loads(packet)
    kind = _BY_NAME[fields.pop("event")]
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
