"""What the proxy tells its owner: one small dataclass per kind of event, each with a line for people (`text`).

They cross from the child processes as JSON packets (`encode`, `decode`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

Address = tuple[str, int]


def show(address: Address) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    warning: ClassVar[bool] = False

    @property
    def text(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class Listening(Event):
    """The bootstrap listener stands; clients connect here instead of to `upstream`."""

    address: Address
    upstream: Address

    @property
    def text(self) -> str:
        return f"listening on {show(self.address)} for {show(self.upstream)}"


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
    """No listener could be opened for a broker; its own address went to the client."""

    warning: ClassVar[bool] = True
    broker: Address
    reason: str

    @property
    def text(self) -> str:
        return f"no listener for broker {show(self.broker)}: {self.reason}; clients reach it past the proxy"


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
    """`how`: "fin" or "rst"; `sent`, `received`: bytes from and to the client."""

    connection: int
    how: str
    sent: int
    received: int

    @property
    def text(self) -> str:
        return f"connection {self.connection}: closed ({self.how}) after {self.sent} B up, {self.received} B down"


@dataclass(frozen=True, slots=True)
class UpstreamFailed(Event):
    """A broker could not be reached. `connection` is 0 for the check at the start."""

    warning: ClassVar[bool] = True
    connection: int
    broker: Address
    reason: str

    @property
    def text(self) -> str:
        return (
            f"cannot reach broker {show(self.broker)}: {self.reason}; the proxy keeps listening: "
            "start the broker or correct --broker"
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
        return f"recording stopped: {self.reason}; traffic goes on unrecorded"


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
    """The relay or the observer ended although nobody asked it to."""

    warning: ClassVar[bool] = True
    process: str
    code: int

    @property
    def text(self) -> str:
        after = "traffic has stopped: restart the proxy" if self.process == "relay" else "traffic goes on unobserved"
        return f"the {self.process} process ended unexpectedly (exit code {self.code}); {after}"


_BY_NAME: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}


def encode(event: Event) -> bytes:
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode()


def decode(packet: bytes) -> Event:
    fields: dict[str, Any] = json.loads(packet)
    kind = _BY_NAME[fields.pop("event")]
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
