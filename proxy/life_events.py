"""What the proxy tells of its limits, and of clients whose broker cannot be reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .events import Address, Event, show


@dataclass(frozen=True, slots=True)
class FewFiles(Event):
    """The system lets the relay open so few files that it stands `connections` connections; `wanted` 0: no limit."""

    warning: ClassVar[bool] = True
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


@dataclass(frozen=True, slots=True)
class ClockSet(Event):
    """The system's clock was set by so much at once that the times of what is recorded went there, too."""

    warning: ClassVar[bool] = True
    seconds: float

    @property
    def text(self) -> str:
        way = "forward" if self.seconds > 0 else "back"
        return (
            f"the clock was set {way} by {abs(self.seconds):.0f} s: times go on from there; latencies of requests that were in "
            "flight are wrong by as much"
        )


@dataclass(frozen=True, slots=True)
class ReaderStuck(Event):
    """A process that must not miss anything has read nothing for so long, while traffic waited for it: it is ended."""

    warning: ClassVar[bool] = True
    process: str
    seconds: float

    @property
    def text(self) -> str:
        return (
            f"the {self.process} has read nothing for {self.seconds:g} s while traffic waited for it (--lossless): it is ended, "
            "another one takes its place, and what passes until then is not observed"
        )


@dataclass(frozen=True, slots=True)
class ConnectionsFull(Event):
    """So many connections stand as were allowed; new clients wait until one ends."""

    warning: ClassVar[bool] = True
    limit: int

    @property
    def text(self) -> str:
        return (
            f"{self.limit} connections stand, as many as --max-connections allows: new clients wait until one ends"
        )


@dataclass(frozen=True, slots=True)
class FilesUsedUp(Event):
    """`connections` stand, and the system lets the relay open no files for another; new clients wait until one ends."""

    warning: ClassVar[bool] = True
    connections: int
    files: int

    @property
    def text(self) -> str:
        return (
            f"{self.connections} connections stand, and of the {self.files} files that this process may open none are "
            "left for more: new clients wait until one ends; raise the limit (ulimit -n, or LimitNOFILE= of the systemd unit)"
        )


@dataclass(frozen=True, slots=True)
class PortPassedOver(Event):
    """A broker's listener does not get this port: somebody has it. `whose`: what of the proxy's own, "" if of others."""

    warning: ClassVar[bool] = True
    broker: Address
    port: int
    whose: str

    @property
    def text(self) -> str:
        why = f"belongs to {self.whose}" if self.whose else "is in use"
        return f"port {self.port} {why}: broker {show(self.broker)} gets one behind it"


@dataclass(frozen=True, slots=True)
class WorkerEnded(Event):
    """One of several relay workers (from 1) ended although nobody asked it to, and its connections with it; the others
    go on. `again`: another one is started in its place."""

    warning: ClassVar[bool] = True
    worker: int
    code: int
    again: bool

    @property
    def text(self) -> str:
        then = "another one takes its place" if self.again else "it ended too often to be started again"
        return (
            f"relay worker {self.worker} ended unexpectedly (exit code {self.code}) and its connections with it; "
            f"the others go on, {then}"
        )


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """A relay worker stands in the place of one that ended."""

    worker: int
    pid: int

    @property
    def text(self) -> str:
        return f"relay worker {self.worker} runs again"


@dataclass(frozen=True, slots=True)
class IdleClosed(Event):
    """A connection was closed because nothing went through it for so long."""

    connection: int
    client: Address
    seconds: float

    @property
    def text(self) -> str:
        return (
            f"connection {self.connection} from {show(self.client)}: closed after {self.seconds:g} s without a byte"
        )


@dataclass(frozen=True, slots=True)
class ClientTried(Event):
    """What a client wanted of a broker that cannot be reached: its first requests, each in words."""

    connection: int
    client: Address
    broker: Address
    requests: tuple[str, ...]

    @property
    def text(self) -> str:
        return (
            f"connection {self.connection}: {show(self.client)} asked {show(self.broker)} in vain: "
            + ", ".join(self.requests)
        )


@dataclass(frozen=True, slots=True)
class NamesUnused(Event):
    """A client comes by the name of the bootstrap only, and never by one of those that it is told."""

    warning: ClassVar[bool] = True
    client: str
    times: int
    name: str

    @property
    def text(self) -> str:
        return (
            f"client {self.client} came {self.times} times, and never by a name that answers give it, such as {self.name}: "
            "does that name lead to this proxy there (DNS, /etc/hosts)?"
        )


@dataclass(frozen=True, slots=True)
class RulesReplaced(Event):
    """These rules stand now, in this order; no connection was touched."""

    rules: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"rules replaced: {', '.join(self.rules) or 'none stand'}"


@dataclass(frozen=True, slots=True)
class BrokersDown(Event):
    """These brokers (host:port) are kept down from now on, and no others (`down_brokers`)."""

    brokers: tuple[str, ...]

    @property
    def text(self) -> str:
        if not self.brokers:
            return "no broker is kept down any more"
        return f"kept down by the control API: {', '.join(self.brokers)}; their connections are closed, new ones refused"


@dataclass(frozen=True, slots=True)
class RulesKept(Event):
    """The rules that stood go on: others could not be taken."""

    warning: ClassVar[bool] = True
    reason: str

    @property
    def text(self) -> str:
        return f"the old rules stay: {self.reason}"


@dataclass(frozen=True, slots=True)
class BrokerGone(Event):
    """A broker's listener was closed: no response has named it for `seconds`, and no connection leads there."""

    broker: Address
    address: Address
    seconds: float

    @property
    def text(self) -> str:
        return f"broker {show(self.broker)} has not been named for {self.seconds:.0f} s: its listener {show(self.address)} is closed"


@dataclass(frozen=True, slots=True)
class BrokerIsProxy(Event):
    """A broker advertises a listener of the proxy as its own address."""

    node: int
    broker: Address

    @property
    def text(self) -> str:
        return f"broker {self.node} advertises the proxy itself ({show(self.broker)}): the address stays as it is"
