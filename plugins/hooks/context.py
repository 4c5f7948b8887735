"""`ctx`, the last argument of every hook. It notes what a hook asks for; the relay carries it out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ... import decoder
from ...decoder import Exchange, Message
from ...decoder.codec.message import shown_value
from ...decoder.schema import facts
from ...errors import BarnabasError
from ..answers import responses
from ..answers.leaves import leaves

ENTITIES = {"topicName", "groupId", "transactionalId", "producerId", "brokerId"}
HIGHEST_DELAY_MS = 600_000
ASK_SECONDS = 5.0


class HookUsageError(BarnabasError):
    """A hook called something that is not possible there; the text names the call and what to do instead."""


class AskFailed(BarnabasError):
    """`Context.request` got no answer: it timed out, or the connection ended; the text gives the reason."""


class ConnectionEnded(AskFailed):
    """`Context.request` got no answer because the connection ended. A hook that does not catch this is not counted as
    faulty."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """A connection as plugins see it. `number`: its id in this proxy; `client`, `broker`: HOST:PORT."""

    number: int
    client: str
    broker: str


class Decision(StrEnum):
    """What becomes of a message."""

    FORWARD = "forward"
    RESPOND = "respond"
    DROP = "drop"
    CLOSE = "close"


@dataclass(slots=True)
class HookOutcome:
    """What one hook asks for. `frame`: the message instead (without its
    size), None: as it is."""

    kind: Decision = Decision.FORWARD
    frame: bytes | None = None
    delay_ns: int = 0
    reset: bool = False


@dataclass(slots=True)
class Ask:
    """A request of a plugin's own, to the broker of a connection. `frame`: with correlation id 0."""

    connection: int
    api_key: int
    api_version: int
    frame: bytes
    seconds: float

    def __await__(self) -> Generator[Ask, Message, Message]:
        return (yield self)


Version = Callable[[int, int], int | None]
"""(connection, api key) -> the newest version that both its broker and this barnabas have, None if that is not known."""


@dataclass(slots=True)
class HookEnvironment:
    """The common part of all contexts, made by the process that runs the hooks."""

    connections: dict[int, PeerView]
    version: Version
    log: Callable[[str, str], None]
    """(plugin, text): adds a line to the proxy's events."""
    close: Callable[[str, int, bool], None]
    """(plugin, connection, as a reset): end it."""


@dataclass(slots=True)
class Context:
    """`ctx`: the actions and information available to a hook, for one call. `connection` is None in `tick`.

    Calls that are not possible in this hook raise HookUsageError.
    """

    plugin: str
    hook: str
    environment: HookEnvironment
    connection: PeerView | None = None
    exchange: Exchange | None = None
    """Request and, in `response`, response, with names, times and ids."""
    message: Message | None = None
    outcome: HookOutcome = field(default_factory=HookOutcome)
    notes: list[str] = field(default_factory=list)

    # -- the message -------------------------------------------------------------------------

    def forward(self, message: Message | None = None) -> None:
        """Forward the message, or another one with the same API, version and correlation id. This is the default; a hook
        may also return the message."""
        self._with_message("forward")
        self._decide(Decision.FORWARD, None if message is None else self._checked(message))

    def respond(self, fields: Mapping[str, Any] | None = None, *, error: str | int | None = None) -> None:
        """Answer the request here; the broker does not receive it. In `response`: replace the broker's response.

        `fields`: fields of the response at the request's version; others are taken from the request (its topics and
        partitions), or get the schema's default. `error`: a Kafka error by name or number, for everything in the request.
        """
        self._with_message("respond")
        exchange = self.exchange
        request = exchange.request_message if exchange is not None else None
        if exchange is None or request is None:
            raise HookUsageError("respond: the request cannot be read")
        key, version = request.api_key, request.api_version
        code = 0 if error is None else facts.error_code(error) if isinstance(error, str) else error
        if code and not responses.has_error_code(key, version):
            raise HookUsageError(f"respond: {facts.api_name(key)} v{version} has no error code")
        body = responses.mirror_request(request, code) | dict(fields or {})
        frame = responses.encode_frame(request, body, exchange.correlation_id)
        self._decide(Decision.RESPOND if self.hook == "request" else Decision.FORWARD, frame)

    def drop(self) -> None:
        """Drop the message: a request is never answered, a response never delivered."""
        self._with_message("drop")
        self._decide(Decision.DROP, None)

    def delay(self, milliseconds: float) -> None:
        """Forward the message after this delay; later messages on the connection wait as well."""
        self._with_message("delay")
        if not 0 <= milliseconds <= HIGHEST_DELAY_MS:
            raise HookUsageError(f"delay: from 0 to {HIGHEST_DELAY_MS} ms, not {milliseconds!r}")
        self.outcome.delay_ns += int(milliseconds * 1e6)

    def close(self, connection: PeerView | int | None = None, *, reset: bool = False) -> None:
        """Close a connection, by default this one. `reset`: with RST."""
        number = connection.number if isinstance(connection, PeerView) else connection
        if number is None and self.connection is None:
            raise HookUsageError(f"close: {self.hook} has no connection: give one of ctx.connections")
        if number is None and self.hook in ("request", "response"):
            self._decide(Decision.CLOSE, None)
            self.outcome.reset = reset
        else:
            self.environment.close(self.plugin, number if number is not None else self.connection.number, reset)  # type: ignore[union-attr]

    # -- the connection -------------------------------------------------------------------------------------------

    @property
    def connections(self) -> Sequence[PeerView]:
        """All open connections."""
        return list(self.environment.connections.values())

    def fields(self, of: str, message: Message | None = None) -> dict[str, Any]:
        """Paths and values of all fields of this message (or of another) that hold a ``topicName``, ``groupId``,
        ``transactionalId``, ``producerId`` or ``brokerId``, in any API and version; as `Message.replace` accepts them.
        Fields that are null are omitted."""
        found = message if message is not None else self.message
        if found is None:
            raise HookUsageError(f"fields: {self.hook} has no message: give one")
        if of not in ENTITIES:
            raise HookUsageError(f"fields: {of!r} is not one of {', '.join(sorted(ENTITIES))}")
        named = (leaf for leaf in leaves(found) if leaf.field.entity == of and leaf.value is not None)
        return {leaf.path: shown_value(leaf.field, leaf.value) for leaf in named}

    def log(self, text: str) -> None:
        """Add a line to the proxy's events."""
        self.environment.log(self.plugin, str(text))

    def note(self, text: str) -> None:
        """A comment on this exchange in the recording."""
        self.notes.append(" ".join(str(text).split())[:500])

    def request(
        self,
        api: str,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        connection: PeerView | None = None,
        timeout: float = ASK_SECONDS,
    ) -> Ask:
        """Send a request to the broker, in an ``async def`` hook: ``answer = await ctx.request("ListOffsets", {...})``.

        It goes to the broker of the message's connection (or of `connection`), over that connection and with its login, and
        its answer is returned here and never sent to the client. Not possible in `response`, where it would wait for
        itself. `version`: by default the newest that the broker offers. Raises AskFailed if there is no answer within
        `timeout` seconds, and its subclass ConnectionEnded if the connection ends.
        """
        where = connection or self.connection
        if where is None:
            raise HookUsageError(f"request: {self.hook} has no connection: give one of ctx.connections")
        if self.hook == "response" and where == self.connection:
            raise HookUsageError(
                "request: its response would come after the one that waits here: send it in request or exchange"
            )
        key = facts.api_key(api)
        wanted = version if version is not None else self.environment.version(where.number, key)
        if wanted is None:
            raise HookUsageError(
                f"request: the versions that this broker offers are not known yet: add version=, one of {api}'s"
            )
        frame = decoder.encode_request(key, wanted, dict(fields), correlation_id=0, client_id=f"barnabas-{self.plugin}")
        return Ask(where.number, key, wanted, frame, min(max(float(timeout), 0.001), 60.0))

    # -- what the hook returned ------------------------------------------------------------------------------

    def take(self, returned: Any) -> HookOutcome:
        """The outcome, including the hook's return value; HookUsageError if a hook may not return such a value."""
        if returned is None or isinstance(returned, HookOutcome):
            return self.outcome
        if self.hook not in ("request", "response"):
            raise HookUsageError(f"{self.hook} returned {type(returned).__name__}: it returns nothing")
        if not isinstance(returned, Message):
            raise HookUsageError(
                f"{self.hook} returned {type(returned).__name__}: return a message (message.replace({{...}})), or nothing"
            )
        if self.outcome.kind is Decision.FORWARD:
            self._decide(Decision.FORWARD, self._checked(returned))
        return self.outcome

    def _checked(self, message: Message) -> bytes | None:
        """The bytes of a message that takes the place of this one; None if they are the same."""
        if not isinstance(message, Message) or self.message is None:
            raise HookUsageError(f"forward: a message, not {type(message).__name__}")
        frame, before = message.encode(), self.message.encode()
        same = 8 if self.hook == "request" else 4
        if frame[:same] != before[:same]:
            raise HookUsageError(f"{self.hook}: the API, version or correlation id of the message has changed")
        return None if frame == before else frame

    def _decide(self, kind: Decision, frame: bytes | None) -> None:
        self.outcome.kind, self.outcome.frame = kind, frame

    def _with_message(self, what: str) -> None:
        if self.hook not in ("request", "response"):
            raise HookUsageError(f"{what}: {self.hook} has no message; this is for request and response")
