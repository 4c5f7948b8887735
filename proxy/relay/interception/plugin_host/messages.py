"""The messages between a relay, its plugin host and the forkserver, each described once. With the host they are packets of a `Channel`,
whose bytes are frames without their sizes. Times are nanoseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from .....plugins.hooks.context import Decision
from .....plugins.hooks.plugin import PluginDescription

# -- from the relay to its host -----------------------------------------------------------------------------


@dataclass(slots=True)
class ClientConnected:
    """A client's connection, with the addresses of both ends."""

    connection: int
    client: str
    broker: str


@dataclass(slots=True)
class ClientDisconnected:
    """It has ended."""

    connection: int


class HookCallKind(StrEnum):
    """Which hook gets the message."""

    REQUEST = "request"
    RESPONSE = "response"
    EXCHANGE = "exchange"


@dataclass(slots=True)
class HookCall:
    """A message for the plugins' hooks: the request's frame, then the response's.

    question: its number, 0 if nobody waits for a verdict. request_size: bytes of the
    request's frame. response_time_ns: 0 if there is no response.
    """

    kind: HookCallKind
    connection: int
    request_time_ns: int
    request_size: int
    response_time_ns: int = 0
    question: int = 0


@dataclass(slots=True)
class Learn:
    """A response that names topics, or lists the versions that a broker offers. With its frame."""

    broker: str
    api_key: int
    api_version: int


@dataclass(slots=True)
class AskAnswer:
    """What came of an `AskRequest`: a response's frame, or why there is none. ended: the error is that the connection ended."""

    id: int
    error: str = ""
    ended: bool = False


@dataclass(slots=True)
class Forget:
    """Nobody waits for the verdict about this question any more."""

    question: int


@dataclass(slots=True)
class DisablePlugin:
    """Run it no more."""

    plugin: str


@dataclass(slots=True)
class SaveState:
    """Send what plugins hand over to their next version (`SavedState`)."""


@dataclass(slots=True)
class RestoreState:
    """What plugins of the version before have handed over, by their names."""

    states: dict[str, Any]


# -- from the host to its relay -----------------------------------------------------------------------------


@dataclass(slots=True)
class Ready:
    """The plugins are loaded: their descriptions (`Plugin.describe`), and the files that they import from beside them."""

    plugins: list[PluginDescription]
    files: list[str]


@dataclass(slots=True)
class LoadFailed:
    """They cannot be loaded: why, with file and line."""

    text: str


class HookDecision(NamedTuple):
    """What the hooks want. `frame`: the message instead, None: as it is;
    `note`: for the recording, "" if they did nothing."""

    kind: Decision = Decision.FORWARD
    frame: bytes | None = None
    delay_ns: int = 0
    reset: bool = False
    note: str = ""


@dataclass(slots=True)
class Decided:
    """A verdict. changed: with another frame. hits: the plugins whose hooks were called."""

    question: int
    kind: Decision
    changed: bool
    delay_ns: int
    reset: bool
    note: str
    hits: list[str]

    def verdict(self, data: bytes) -> HookDecision:
        return HookDecision(self.kind, data if self.changed else None, self.delay_ns, self.reset, self.note)


@dataclass(slots=True)
class Notified:
    """Hooks of these plugins were called that no message waits for."""

    hits: list[str]


@dataclass(slots=True)
class HookFault:
    """A hook failed. last: the host ends because of it."""

    plugin: str
    hook: str
    text: str
    last: bool = False


@dataclass(slots=True)
class HangWarning:
    """A plugin changes requests of an API so that clients hang or fail."""

    plugin: str
    api: str
    text: str


@dataclass(slots=True)
class Log:
    """A line for people; plugin: "" if it is of none."""

    plugin: str
    text: str


@dataclass(slots=True)
class AskRequest:
    """A request of a plugin's own, with its frame. id: the host's number. question: the message whose hook waits for the answer, 0: none."""

    id: int
    question: int
    connection: int
    seconds: float
    plugin: str


@dataclass(slots=True)
class CloseConnection:
    """A plugin ends a client's connection. reset: with RST."""

    plugin: str
    connection: int
    reset: bool


@dataclass(slots=True)
class SavedState:
    """What plugins hand over to their next version, by their names."""

    states: dict[str, Any] = field(default_factory=dict)


# -- between the relay and its forkserver -------------------------------------------------------------------


@dataclass(slots=True)
class StartHost:
    """Fork a host. fresh: with the files as they are now, otherwise as they were accepted. without: plugins that are disabled. With
    descriptors: its channel and its `RunningHook`."""

    number: int
    fresh: bool
    without: list[str]


@dataclass(slots=True)
class AcceptVersion:
    """The version that a host has loaded is the one to run from now on. files: those that are to be watched."""

    number: int
    files: list[str]


@dataclass(slots=True)
class KillHost:
    """End a host."""

    number: int


class ForkServerEventKind(StrEnum):
    """A plugin's file has changed, or could not be read for a host; a host has ended."""

    CHANGED = "changed"
    FAILED = "failed"
    ENDED = "ended"


class ForkServerEvent(NamedTuple):
    """What the forkserver reports. `number`: of the host; `text`: why, or how."""

    kind: ForkServerEventKind
    number: int = 0
    text: str = ""


ToHost = ClientConnected | ClientDisconnected | HookCall | Learn | AskAnswer | Forget | DisablePlugin | SaveState | RestoreState
ToRelay = Ready | LoadFailed | Decided | Notified | HookFault | HangWarning | Log | AskRequest | CloseConnection | SavedState
ToForkServer = StartHost | AcceptVersion | KillHost
