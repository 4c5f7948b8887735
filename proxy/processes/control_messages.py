"""What the control server asks the relay, the observer and the inspector, what they answer, and the relay's notices about held frames.

Each is a packet of a `processes.channel`: the message by its name (`serialization.to_named`) and the `id` that a command and its answer
share, so no message has a field `id`; a notice has none. The control API passes most answers on, so their fields are those of
docs/control.md. Times are nanoseconds since the epoch, durations seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Generic, TypeVar

from ...plugins.rules.rules import Rule
from ..events import Address, BrokerFound
from .serialization import from_named

Json = dict[str, Any]
"""An object whose fields are Kafka's or a rule file's."""
Answer = TypeVar("Answer", covariant=True)
HITS_KEPT = 1000
"""How many of the newest hits of a rule can be listed."""


class Command(Generic[Answer]):
    """A command whose answer is an `Answer`, or `Refused`."""

    __slots__ = ()


class Change(Command[Answer]):
    """A command to the relay that every worker carries out, and one that is started later, too."""

    __slots__ = ()


class Failure(StrEnum):
    """Why a command or a request fails."""

    MALFORMED = "malformed"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    MISSING = "missing"
    METHOD = "method"
    EXISTS = "exists"
    TOO_LARGE = "too large"
    INVALID = "invalid"
    FAILED = "failed"
    BUSY = "busy"
    GONE = "gone"


class HeldAction(StrEnum):
    """What becomes of a held frame: it goes on; a request is answered and not forwarded; it goes nowhere; its connection is closed."""

    RESUME = "resume"
    ANSWER = "answer"
    DROP = "drop"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Refused:
    """A command was not carried out. start, end: where in the text of a filter."""

    error: Failure
    text: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A command was carried out, and there is nothing to report."""


# -- rules -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RuleEntry:
    """A rule in the relay's list. source: as the user wrote it. origin: "file" (given at the start, or read again), or "api".

    serial: identifies the rule among all workers, 0 if not given. fresh: the serial that it gets if it is new or changed.
    """

    rule: Rule
    source: Json
    enabled: bool = True
    origin: str = "api"
    serial: int = 0
    fresh: int = 0


@dataclass(slots=True)
class RuleState:
    """A rule, how many exchanges it has matched, and how often it has fired."""

    name: str
    enabled: bool
    matched: int
    hits: int
    origin: str
    source: Json

    @property
    def key(self) -> object:
        return self.name

    def add(self, other: RuleState) -> None:
        """Add another worker's counts. All workers count together (`SharedCounters`); one may be ahead of another."""
        self.matched, self.hits = max(self.matched, other.matched), max(self.hits, other.hits)


@dataclass(slots=True)
class RuleList:
    rules: list[RuleState]


@dataclass(slots=True)
class RulePut:
    """created: whether no rule had the name before."""

    rules: list[RuleState]
    created: bool


@dataclass(slots=True)
class RuleEntries:
    rules: list[RuleEntry]


@dataclass(frozen=True, slots=True)
class Hit:
    """One firing of a rule. `hit`: its number, from 1; `note`: the note on the exchange, word for word."""

    hit: int
    time_ns: int
    connection: int
    client: str
    client_id: str | None
    broker: str
    api_key: int
    api: str
    api_version: int
    correlation_id: int
    done: list[str]
    note: str


@dataclass(slots=True)
class RuleHits:
    """The newest hits of a rule, oldest first. total: how often it has fired in all."""

    hits: list[Hit]
    total: int

    @property
    def key(self) -> object:
        return None

    def add(self, other: RuleHits) -> None:
        """Add another worker's hits, in the order of their times."""
        self.hits = sorted(self.hits + other.hits, key=lambda hit: hit.time_ns)[-HITS_KEPT:]
        self.total = max(self.total, other.total)


@dataclass(frozen=True, slots=True)
class HitCount:
    hits: int


@dataclass(frozen=True, slots=True)
class ListRules(Command[RuleList]):
    """All rules, with their counts."""


@dataclass(frozen=True, slots=True)
class AddRules(Change[RuleList]):
    rules: list[RuleEntry]


@dataclass(frozen=True, slots=True)
class PutRule(Change[RulePut]):
    """Put a rule in the place of the one of its name, or at the end."""

    rule: RuleEntry


@dataclass(frozen=True, slots=True)
class ReplaceRules(Change[RuleList]):
    rules: list[RuleEntry]


@dataclass(frozen=True, slots=True)
class RemoveRule(Change[RuleList]):
    name: str


@dataclass(frozen=True, slots=True)
class EnableRule(Change[RuleList]):
    name: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class DumpRules(Command[RuleEntries]):
    """All rules as `ReplaceRules` takes them."""


@dataclass(frozen=True, slots=True)
class ListHits(Command[RuleHits]):
    """The newest hits of a rule after its `since`-th."""

    name: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class AwaitHits(Command[HitCount]):
    """Answered once the rule has fired so often in all."""

    name: str
    hits: int


@dataclass(frozen=True, slots=True)
class ForgetWait(Command[Done]):
    """The client that sent an `AwaitHits` has gone; wait: its id. Not answered."""

    wait: int


# -- brokers, plugins, connections -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerList:
    """Brokers with a listener of their own, and the addresses of those that are kept down."""

    found: list[BrokerFound]
    down: list[Address]


@dataclass(frozen=True, slots=True)
class BrokersKeptDown:
    brokers: list[Address]


@dataclass(slots=True)
class PluginState:
    """A plugin. state: "running", "starting", "disabled" or "gone"; calls: of its hooks; last_fault: None unless it is disabled."""

    name: str
    source: str
    hooks: list[str]
    state: str
    calls: int
    faults: int
    last_fault: str | None

    @property
    def key(self) -> object:
        return self.name

    def add(self, other: PluginState) -> None:
        """Add another worker's counts."""
        self.calls, self.faults = self.calls + other.calls, self.faults + other.faults


@dataclass(slots=True)
class PluginList:
    plugins: list[PluginState]


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    closed: int
    how: str


@dataclass(frozen=True, slots=True)
class ListBrokers(Command[BrokerList]):
    """The brokers that responses have named."""


@dataclass(frozen=True, slots=True)
class KeepBrokersDown(Change[BrokersKeptDown]):
    """Keep exactly these brokers down from now on."""

    brokers: list[Address]


@dataclass(frozen=True, slots=True)
class ListPlugins(Command[PluginList]):
    """All plugins."""


@dataclass(frozen=True, slots=True)
class CloseConnection(Command[ConnectionClosed]):
    """Close both sides. how: "fin" or "rst"."""

    connection: int
    how: str


# -- intercepts --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class InterceptState:
    """An intercept. most: frames held at one time; times_left: frames that it may still hold, None for no limit; held: now;
    passed: matched, but beyond a limit; failed: why its filter failed."""

    id: int
    filter: str
    zone: str
    request: bool
    response: bool
    timeout: float
    most: int
    times_left: int | None
    held: int
    passed: int
    failed: str | None

    @property
    def key(self) -> object:
        return self.id

    def add(self, other: InterceptState) -> None:
        """Add another worker's counts."""
        self.held, self.passed = self.held + other.held, self.passed + other.passed


@dataclass(slots=True)
class InterceptList:
    intercepts: list[InterceptState]


@dataclass(slots=True)
class InterceptAdded:
    intercept: InterceptState


@dataclass(frozen=True, slots=True)
class Removed:
    removed: int | str


@dataclass(frozen=True, slots=True)
class ListIntercepts(Command[InterceptList]):
    """All intercepts."""


@dataclass(frozen=True, slots=True)
class AddIntercept(Change[InterceptAdded]):
    """Hold requests, responses or both that a filter selects. zone: of the filter's times; timeout: of each frame; most: at one time;
    times: in all, None for no limit."""

    filter: str
    zone: str
    request: bool
    response: bool
    timeout: float
    most: int
    times: int | None


@dataclass(frozen=True, slots=True)
class RemoveIntercept(Change[Removed]):
    """Remove an intercept; what it holds goes on."""

    intercept: int


@dataclass(frozen=True, slots=True)
class TakeIntercepts(Command[InterceptList]):
    """Intercepts of another worker, under their numbers."""

    intercepts: list[InterceptState]


@dataclass(frozen=True, slots=True)
class SpendIntercept(Command[Done]):
    """All workers together have held as many frames as the intercept may hold."""

    intercept: int


@dataclass(frozen=True, slots=True)
class Decide(Command[Done]):
    """Do with a held frame what was decided, with the frame that goes instead, if there is one. how: "fin" or "rst"."""

    held: int
    action: HeldAction
    how: str = "fin"


@dataclass(frozen=True, slots=True)
class ExtendHold(Command[Done]):
    """Hold a frame for so long from now on."""

    held: int
    seconds: float


@dataclass(frozen=True, slots=True)
class HeldNotice:
    """A held frame. side: "request" or "response"; request_size: bytes of the request, 0 if the frame is one itself."""

    id: int
    intercept: int
    connection: int
    client: str
    broker: str
    side: str
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    time_ns: int
    timeout: float
    request_size: int


@dataclass(frozen=True, slots=True)
class FrameHeld:
    """A frame is held. With the request (of a response) and the frame, with their sizes."""

    held: HeldNotice


@dataclass(frozen=True, slots=True)
class FrameReleased:
    """A frame is no longer held."""

    held: int
    how: str


# -- recording ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlightState:
    """A flight recorder: what it keeps, and how many recordings it has written, or only counted. writing: the one in progress."""

    directory: str
    seconds: float | None
    bytes: int | None
    after: float
    written: int
    counted: int
    writing: str | None


@dataclass(frozen=True, slots=True)
class RecordingState:
    """Whether, where and how much is recorded. A flight recorder's own recording does not count."""

    recording: bool
    directory: str | None
    segment: str | None
    paused: bool
    trouble: str | None
    counts: dict[str, int]
    flight: FlightState | None


@dataclass(frozen=True, slots=True)
class FlightBegun:
    """flight: the directory that the flight recording will have, None if none is written; text: the reason."""

    flight: str | None
    text: str


@dataclass(frozen=True, slots=True)
class GetRecording(Command[RecordingState]):
    """What is recorded."""


@dataclass(frozen=True, slots=True)
class StartRecording(Command[RecordingState]):
    """Record into a directory. What is None is as the proxy was started with (`RecordingConfig`)."""

    directory: str
    rotate_bytes: int | None = None
    rotate_seconds: float | None = None
    keep_bytes: int | None = None
    keep_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StopRecording(Command[RecordingState]):
    """End the recording."""


@dataclass(frozen=True, slots=True)
class RotateRecording(Command[RecordingState]):
    """End the segment and go on in another."""


@dataclass(frozen=True, slots=True)
class WriteFlight(Command[FlightBegun]):
    """Write what the flight recorder holds. label: what its name begins with; "" for the usual."""

    label: str = ""
    reason: str = ""


# -- what was seen -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExchangePage:
    """Exchanges, oldest first. next: the cursor to go on with; lost: how many after `since` were dropped; more: whether `limit` ended it.
    pending: requests that wait for their responses and match, the oldest first, up to `limit`; they have no number yet."""

    exchanges: list[Json]
    next: int
    lost: int
    more: bool
    pending: list[Json] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ExchangeFound:
    exchange: Json


@dataclass(frozen=True, slots=True)
class PendingExchanges:
    exchanges: list[Json]


@dataclass(frozen=True, slots=True)
class NotedExchanges:
    """Numbers of exchanges; None for those that are not finished, or not kept any more."""

    numbers: list[int | None]


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """An open connection. Bytes and exchanges so far; software: as the client names itself."""

    connection: int
    client: str
    broker: str
    opened_ns: int
    last_ns: int
    request_bytes: int
    response_bytes: int
    exchanges: int
    client_id: str | None
    software: str | None


@dataclass(frozen=True, slots=True)
class ConnectionList:
    connections: list[ConnectionState]


@dataclass(frozen=True, slots=True)
class FindingState:
    """A finding (`decoder.findings.Finding`)."""

    id: str
    severity: str
    seen: str
    why: str
    remedy: str
    injected: bool
    rules: list[str]
    count: int
    about: Json


@dataclass(frozen=True, slots=True)
class FindingList:
    findings: list[FindingState]


@dataclass(frozen=True, slots=True)
class ExchangesKept:
    """How many exchanges are kept, in how many bytes, and the numbers of the oldest and the newest; what the inspector missed."""

    kept: int
    bytes: int
    oldest: int
    newest: int
    lost_bytes: int = 0
    lost_chunks: int = 0


@dataclass(frozen=True, slots=True)
class FindExchanges(Command[ExchangePage]):
    """Exchanges after a cursor that a filter selects, None for the newest; answered once there is one, or after `wait`."""

    filter: str | None
    zone: str = "UTC"
    since: int | None = None
    limit: int = 100
    wait: float = 0.0
    bodies: bool = False


@dataclass(frozen=True, slots=True)
class GetExchange(Command[ExchangeFound]):
    number: int


@dataclass(frozen=True, slots=True)
class FindNoted(Command[NotedExchanges]):
    """Exchanges that carry a note: connection, note and about when the request was sent, of each."""

    wanted: list[tuple[int, str, int]]


@dataclass(frozen=True, slots=True)
class ListPending(Command[PendingExchanges]):
    """Requests that wait for their responses."""


@dataclass(frozen=True, slots=True)
class ListConnections(Command[ConnectionList]):
    """Open connections."""


@dataclass(frozen=True, slots=True)
class ListFindings(Command[FindingList]):
    """What was found so far."""


@dataclass(frozen=True, slots=True)
class CountKept(Command[ExchangesKept]):
    """How many exchanges are kept."""


# -- packets -----------------------------------------------------------------------------------------------------

Commands = (
    ListRules | AddRules | PutRule | ReplaceRules | RemoveRule | EnableRule | DumpRules | ListHits | AwaitHits | ForgetWait
    | ListBrokers | KeepBrokersDown | ListPlugins | CloseConnection
    | ListIntercepts | AddIntercept | RemoveIntercept | TakeIntercepts | SpendIntercept | Decide | ExtendHold
    | GetRecording | StartRecording | StopRecording | RotateRecording | WriteFlight
    | FindExchanges | GetExchange | FindNoted | ListPending | ListConnections | ListFindings | CountKept
)  # fmt: skip
Answers = (
    Refused | Done | RuleList | RulePut | RuleEntries | RuleHits | HitCount | BrokerList | BrokersKeptDown | PluginList
    | ConnectionClosed | InterceptList | InterceptAdded | Removed | RecordingState | FlightBegun
    | ExchangePage | ExchangeFound | PendingExchanges | NotedExchanges | ConnectionList | FindingList | ExchangesKept
)  # fmt: skip
Notices = FrameHeld | FrameReleased


def packed(message: Commands | Answers | Notices | Command[Any], number: int | None = None) -> Json:
    """A message as `processes.channel.pack` takes it, with the id of a command or of the one that it answers."""
    numbered: Json = {} if number is None else {"id": number}
    # Not `to_named`, which goes through everything in it: an answer may hold thousands of exchanges, which are plain already.
    return numbered | {"message": type(message).__name__} | {each.name: getattr(message, each.name) for each in fields(message)}  # type: ignore[arg-type]


def command(packet: Json) -> Commands:
    """The command in a packet without its id. KeyError, TypeError or ValueError if there is none."""
    found: Commands = from_named(Commands, packet)
    return found


def answer(packet: Json) -> Answers:
    """The answer in a packet without its id."""
    found: Answers = from_named(Answers, packet)
    return found


def notice(packet: Json) -> Notices:
    """The notice in a packet."""
    found: Notices = from_named(Notices, packet)
    return found


def hits_of(rules: Sequence[RuleState], name: str) -> int | None:
    """How often the rule of a name has fired; None if there is none."""
    return next((rule.hits for rule in rules if rule.name == name), None)
