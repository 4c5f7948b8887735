"""What the proxy tells its owner: one small dataclass per kind of event, each with a line for people (`text`).

They cross from the child processes as JSON packets (`encode`, `decode`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from ..decoder import facts

Address = tuple[str, int]
_AFTER = {
    "relay": "its connections have ended with it",
    "observer": "traffic goes on unobserved",
    "inspector": "traffic goes on, no more is found wrong with it",
    "control": "traffic goes on, the control API is gone",
    "meter": "traffic goes on, live feed and metrics have ended",
}


def show(address: Address) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_BY_NAME: dict[str, type[Event]] = {}


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    warning: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        _BY_NAME[cls.__name__] = cls

    @property
    def text(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class BrokerFound(Event):
    """A broker appeared in a response and has its own listener now. `node` is -1 where the response names none."""

    node: int
    broker: Address
    address: Address

    @property
    def text(self) -> str:
        return f"broker {self.node} at {show(self.broker)}: listening on {show(self.address)}"


@dataclass(frozen=True, slots=True)
class ListenerFailed(Event):
    """No listener was opened for a broker; its own address went to the client. `brokers`: so many, this one and others, since
    the last such event."""

    warning: ClassVar[bool] = True
    broker: Address
    reason: str
    brokers: int = 1

    @property
    def text(self) -> str:
        others = f" and {self.brokers - 1} more" if self.brokers > 1 else ""
        return f"no listener for broker {show(self.broker)}{others}: {self.reason}; clients reach it past the proxy"


@dataclass(frozen=True, slots=True)
class ClientRefused(Event):
    """A client was turned away before anything was read from it."""

    warning: ClassVar[bool] = True
    client: Address
    reason: str

    @property
    def text(self) -> str:
        return f"refused {show(self.client)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ConnectionOpened(Event):
    connection: int
    client: Address
    broker: Address

    @property
    def text(self) -> str:
        return f"connection {self.connection}: {show(self.client)} to {show(self.broker)}"


@dataclass(frozen=True, slots=True)
class ConnectionClosed(Event):
    """`how`: "fin" or "rst"; `sent`, `received`: bytes from and to the client; `by`: "client" or "broker", whose end
    came first, "" when the proxy ended it; `awaited`: requests whose responses were still looked for."""

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


@dataclass(frozen=True, slots=True)
class UpstreamFailed(Event):
    """A broker could not be reached. `connection` is 0 for the check at the start. `instead`: the one that is tried next."""

    warning: ClassVar[bool] = True
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


@dataclass(frozen=True, slots=True)
class Capped(Event):
    """Clients are offered a lower version than the broker offers, because the newer one could not be changed here."""

    warning: ClassVar[bool] = True
    api_key: int
    offered: int
    capped: int

    @property
    def text(self) -> str:
        return (
            f"{facts.api_name(self.api_key)} v{self.offered} is newer than this barnabas, which has to change broker "
            f"addresses in it: clients are offered v{self.capped}; a newer barnabas passes it (or `barnabas schema import`)"
        )


@dataclass(frozen=True, slots=True)
class NotKafka(Event):
    """A connection does not carry Kafka frames (any more); its bytes go on unread."""

    warning: ClassVar[bool] = True
    connection: int
    client: Address
    reason: str

    @property
    def text(self) -> str:
        return f"connection {self.connection} from {show(self.client)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Undecoded(Event):
    """A held frame was forwarded as it was."""

    warning: ClassVar[bool] = True
    connection: int
    api_key: int
    api_version: int
    reason: str

    @property
    def text(self) -> str:
        return (
            f"connection {self.connection}: api key {self.api_key} version {self.api_version} "
            f"passed unchanged: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class RuleHit(Event):
    """A rule fired; `hits` counts from 1."""

    rule: str
    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    hits: int

    @property
    def text(self) -> str:
        return f"rule {self.rule!r} hit {self.hits} on connection {self.connection}"


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class InterceptReleased(Event):
    """A frame that waited does so no more. `how`: "resumed", "edited", "answered", "closed", "timeout", or why."""

    held: int
    connection: int
    direction: int
    api_key: int
    correlation_id: int
    how: str

    @property
    def text(self) -> str:
        return f"held {self.held} on connection {self.connection}: {self.how}"


@dataclass(frozen=True, slots=True)
class ControlListening(Event):
    """The control API can be used. `url`: "http://127.0.0.1:PORT", or "unix:PATH"; `token_file`: where the token is
    ("" where none is needed)."""

    url: str
    token_file: str

    @property
    def text(self) -> str:
        return f"control API at {self.url}" + (f", token in {self.token_file}" if self.token_file else "")


@dataclass(frozen=True, slots=True)
class MeterListening(Event):
    """Where the live feed (UDP) and `GET /metrics` are; None: not asked for."""

    feed: Address | None
    metrics: Address | None

    @property
    def text(self) -> str:
        said = [f"live feed at {show(self.feed)}"] if self.feed else []
        said += [f"metrics at http://{show(self.metrics)}/metrics"] if self.metrics else []
        return ", ".join(said) or "metrics go to StatsD"


@dataclass(frozen=True, slots=True)
class ShutdownAsked(Event):
    """Somebody asked over the control API to stop the proxy."""

    @property
    def text(self) -> str:
        return "stopping, as asked over the control API"


@dataclass(frozen=True, slots=True)
class Recording(Event):
    """Recording into this directory."""

    path: str

    @property
    def text(self) -> str:
        return f"recording to {self.path}"


@dataclass(frozen=True, slots=True)
class RecordingFailed(Event):
    """The observer cannot record; traffic goes on."""

    warning: ClassVar[bool] = True
    reason: str

    @property
    def text(self) -> str:
        so = "" if "goes on unrecorded" in self.reason else "; traffic goes on unrecorded"
        return f"recording stopped: {self.reason}{so}"


@dataclass(frozen=True, slots=True)
class Counts(Event):
    """Totals since the start, about once a second. `exchanges` and `errors` are 0 while the recorder decodes."""

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


@dataclass(frozen=True, slots=True)
class FindingSeen(Event):
    """Something is wrong in the traffic (`decoder.findings.Finding`): seen for the first time, worse than before, or
    twice as often as when it was told last. `number` is that of the finding, from 1; its last event says its last
    count."""

    id: str
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
        return f"finding ({self.severity}, {self.id}{times}): {self.seen}"


@dataclass(frozen=True, slots=True)
class NotInspected(Event):
    """So many bytes were not inspected, in all: the inspector did not keep up. Findings may be missing."""

    warning: ClassVar[bool] = True
    lost_bytes: int

    @property
    def text(self) -> str:
        return f"{self.lost_bytes} B were not inspected, the inspector did not keep up: findings may be missing"


@dataclass(frozen=True, slots=True)
class RelayFault(Event):
    """A fault of the relay itself; it cost this one connection (0: none)."""

    warning: ClassVar[bool] = True
    connection: int
    reason: str

    @property
    def text(self) -> str:
        if not self.connection:
            return f"fault in the relay: {self.reason}"
        return f"connection {self.connection} was reset because of a fault in the relay: {self.reason}"


@dataclass(frozen=True, slots=True)
class Suppressed(Event):
    """So many events were left out because they came too fast."""

    warning: ClassVar[bool] = True
    count: int

    @property
    def text(self) -> str:
        return f"{self.count} more events of this kind were left out"


@dataclass(frozen=True, slots=True)
class ProcessFailed(Event):
    """A process of the proxy ended although nobody asked it to. `again`: seconds until another takes its place, None: none will."""

    warning: ClassVar[bool] = True
    process: str
    code: int
    again: float | None = 0.0

    @property
    def text(self) -> str:
        then = f"another one starts in {self.again:g} s" if self.again else "another one takes its place"
        if self.again is None:
            then = "it ended too often to be started again"
        return f"the {self.process} process ended unexpectedly (exit code {self.code}); {_AFTER[self.process]}; {then}"


@dataclass(frozen=True, slots=True)
class ProcessStarted(Event):
    """A process stands in the place of one that ended."""

    process: str
    pid: int

    @property
    def text(self) -> str:
        return f"the {self.process} process runs again"


@dataclass(frozen=True, slots=True)
class ProxyFailed(Event):
    """The proxy ends: it has no relay any more."""

    warning: ClassVar[bool] = True
    reason: str

    @property
    def text(self) -> str:
        return f"the proxy ends: {self.reason}"


def encode(event: Event) -> bytes:
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode()


def decode(packet: bytes) -> Event:
    fields: dict[str, Any] = json.loads(packet)
    kind = _BY_NAME[fields.pop("event")]
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
