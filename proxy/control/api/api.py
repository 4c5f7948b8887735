"""What the handlers share: the other processes, events, held frames, and how requests are read and answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web

from ....plugins.conditions.input_value import encodable
from ...events import Event, ProcessFailed, ProcessStarted, RulesReplaced, WorkerEnded, WorkerStarted
from ...processes.control_messages import Failure, Json, RemoveIntercept
from ...processes.serialization import to_plain
from ..async_channel import AsyncChannel, CommandFailed
from ..held_frame_copies import HeldFrameCopies
from ..history import EventHistory
from ..leases import Leases
from ..relays import Relays
from ..startup import ProxyInfo
from .bounds import CURSOR, Bounds

Metrics = Callable[[str], Awaitable[tuple[bytes, str]]]
"""From an Accept header to (text, content type): what `GET /metrics` answers."""
Handler = Callable[["Api", web.Request], Awaitable[web.StreamResponse]]

STATUS = {
    Failure.MALFORMED: 400, Failure.MISSING: 404, Failure.EXISTS: 409, Failure.TOO_LARGE: 413, Failure.INVALID: 422, Failure.FAILED: 500,
    Failure.BUSY: 503, Failure.GONE: 503,
}  # fmt: skip
HEARTBEAT_SECONDS = 10.0
"""How often a stream without events sends a comment, so that a vanished reader is noticed."""


class ProcessState(NamedTuple):
    """A process of the proxy. `code`: its exit code, once it has ended."""

    pid: int | None
    code: int | None = None

    @property
    def alive(self) -> bool:
        return self.code is None

    def to_dict(self) -> Json:
        return {"alive": self.alive} | {name: value for name, value in self._asdict().items() if value is not None}


@dataclass(slots=True)
class Api:
    """What the handlers of one control server share. `shutdown` asks the supervisor to stop the proxy."""

    info: ProxyInfo
    channels: dict[str, AsyncChannel]
    shutdown: Callable[[], None]
    history: EventHistory
    held: HeldFrameCopies
    relays: Relays
    metrics: Metrics | None = None
    latest: dict[str, Event] = field(default_factory=dict)
    processes: dict[str, ProcessState] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    leases: Leases = field(init=False)

    def __post_init__(self) -> None:
        self.leases = Leases(self.remove_intercept)

    async def remove_intercept(self, number: int) -> None:
        """Remove an intercept whose lease has run out, if the relay still has it."""
        with contextlib.suppress(CommandFailed):
            await self.relays.ask(RemoveIntercept(number))

    def on_event(self, event: Event) -> None:
        """Take an event of the proxy."""
        self.latest[type(event).__name__] = event
        if isinstance(event, ProcessFailed):
            self._ended(event.process, event.code)
            if event.process == "relay":
                self.held.drop(0, 1)
        elif isinstance(event, ProcessStarted):
            self.processes[event.process] = ProcessState(event.pid)
        elif isinstance(event, WorkerEnded):
            self._ended(f"relay-{event.worker}", event.code)
            self.held.drop(event.worker - 1, self.relays.workers)
        elif isinstance(event, WorkerStarted):
            self.processes[f"relay-{event.worker}"] = ProcessState(event.pid)
        elif isinstance(event, RulesReplaced):
            self.start(self.relays.remember())

    def _ended(self, name: str, code: int) -> None:
        before = self.processes.get(name)
        self.processes[name] = ProcessState(before.pid if before is not None else None, code)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task of this server."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def live(self) -> bool:
        """Whether there is a relay that takes clients."""
        return any(state.alive for name, state in self.processes.items() if name.startswith("relay"))

    @property
    def down(self) -> list[str]:
        """The processes that do not run."""
        return sorted(name for name, state in self.processes.items() if not state.alive)

    @property
    def observer(self) -> AsyncChannel:
        return self.channels["observer"]

    @property
    def inspector(self) -> AsyncChannel:
        return self.channels["inspector"]

    @property
    def values(self) -> bool:
        return self.info.show_values


def answer(body: object, status: int = 200) -> web.Response:
    """JSON, in UTF-8. `body`, and what is in it, may be dataclasses."""
    text = json.dumps(body, ensure_ascii=False, default=to_plain).encode("utf-8", "replace")
    return web.Response(body=text, status=status, content_type="application/json", charset="utf-8")


def failure(error: CommandFailed) -> web.Response:
    """A failure as JSON: `error` (its kind), `message`, and where in a filter, if that is where."""
    return answer({"error": error.kind, "message": str(error), **error.more}, STATUS[error.kind])


# -- reading requests ------------------------------------------------------------------------------------------


async def body_of(request: web.Request) -> Json:
    """A JSON object; CommandFailed if the body is none. An empty body is an empty object."""
    text = await text_of(request)
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CommandFailed(Failure.MALFORMED, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise CommandFailed(Failure.MALFORMED, "the body is nested too deeply") from None
    if not isinstance(found, dict):
        raise CommandFailed(Failure.MALFORMED, "the body must be a JSON object")
    if "\\u" in text and not encodable(json.dumps(found, ensure_ascii=False)):
        raise CommandFailed(Failure.INVALID, "the body has half of a surrogate pair, which no text may have")
    return found


async def text_of(request: web.Request) -> str:
    try:
        return (await request.read()).decode()
    except UnicodeDecodeError:
        raise CommandFailed(Failure.MALFORMED, "the body is not UTF-8 text") from None


def number(name: str, given: Any, bounds: Bounds, whole: bool = True) -> Any:
    """A number of a query or a body, within bounds; their default where nothing is given."""
    low, high, default = bounds
    if given is None:
        return default
    try:
        if isinstance(given, bool):
            raise ValueError
        value = int(given) if whole else float(given)
        if whole and isinstance(given, float) and given != value:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise CommandFailed(Failure.INVALID, f"{name} must be a {'whole ' if whole else ''}number, not {given!r}") from None
    if not low <= value <= high:
        raise CommandFailed(Failure.INVALID, f"{name} must be from {low:g} to {high:g}")
    return value


def flag(name: str, given: str | None) -> bool:
    if given is None or given in ("0", "false", "no"):
        return False
    if given in ("", "1", "true", "yes"):
        return True
    raise CommandFailed(Failure.INVALID, f"{name} must be 0 or 1, not {given!r}")


def in_path(request: web.Request, name: str) -> int:
    """A number in the path."""
    text = request.match_info[name]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise CommandFailed(Failure.MISSING, f"{text!r} is not a number")
    return int(text)


# -- server-sent events ----------------------------------------------------------------------------------------


async def stream(request: web.Request, cursor: int) -> web.StreamResponse:
    """Start an answer of server-sent events, which continue after `cursor`."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
    )
    await response.prepare(request)
    await response.write(f"retry: 1000\nid: {cursor}\n\n".encode())
    return response


async def send_event(response: web.StreamResponse, event: str, data: Any, cursor: int | None = None) -> None:
    """Send an event; `cursor` is its id, from which a reader can continue."""
    lines = [f"event: {event}", f"data: {json.dumps(data)}"]
    if cursor is not None:
        lines.insert(0, f"id: {cursor}")
    await response.write(("\n".join(lines) + "\n\n").encode())


def cursor_of(request: web.Request) -> int | None:
    """The cursor of a reader of a stream: Last-Event-ID, or `since`."""
    given = request.headers.get("Last-Event-ID") or request.query.get("since")
    cursor: int | None = number("since", given, CURSOR)
    return cursor
