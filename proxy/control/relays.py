"""The relay workers, one or several, as one relay.

Changes of rules and intercepts go to all workers, one after the other, so that all have the same; counts are added up. The
number of a connection or a held frame gives its worker: numbers of `n` workers go up by `n`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from ..events import Address
from ..processes import control_messages as messages
from ..processes.control_messages import Failure
from .async_channel import ASK_SECONDS, AsyncChannel, CommandFailed, Notice

A = TypeVar("A")

class WorkerState(NamedTuple):
    """What a worker was given while it ran. down: addresses of brokers that are kept down."""

    rules: list[messages.RuleEntry]
    intercepts: list[messages.InterceptState]
    down: list[Address]


class Relays:
    """Like an `AsyncChannel`, to all workers. `channels` in the workers' order; `held` is called with notices of held
    frames."""

    def __init__(self, channels: list[AsyncChannel], held: Notice) -> None:
        self._channels = channels
        self._held = held
        self._changing = asyncio.Lock()
        self._left: dict[int, int] = {}
        """Intercept -> how many more frames it may hold, over all workers."""
        self._known: WorkerState | None = None
        """The state of the only worker, for one that takes its place."""

    @property
    def workers(self) -> int:
        return len(self._channels)

    def channel(self, name: str) -> AsyncChannel | None:
        """The worker of this name."""
        return next((channel for channel in self._channels if channel.name == name), None)

    async def ask(self, command: messages.Command[A], data: bytes = b"", within: float = ASK_SECONDS) -> A:
        """The answer to a command; CommandFailed if there is none."""
        if len(self._channels) == 1:
            answer = await self._channels[0].ask(command, data, within)
            if isinstance(command, messages.Change):
                await self.remember()
            return answer
        if (one := self._only(command)) is not None:
            return await one.ask(command, data, within)
        if not isinstance(command, messages.Change):
            return await self._all(command, within)
        async with self._changing:
            answer = await self._all(command, within)
            if isinstance(answer, messages.InterceptAdded) and answer.intercept.times_left is not None:
                self._left[answer.intercept.id] = answer.intercept.times_left
            return answer

    def _only(self, command: messages.Command[Any]) -> AsyncChannel | None:
        """The worker that answers alone: any of them, or the one that has the connection or held frame."""
        match command:
            case messages.ListBrokers():
                return self._up()[0]
            case messages.CloseConnection(number) | messages.Decide(number) | messages.ExtendHold(number):
                if number < 1:
                    raise CommandFailed(Failure.MISSING, f"there is no number {number}")
                return self._channels[(number - 1) % len(self._channels)]
        return None

    def _up(self) -> list[AsyncChannel]:
        up = [channel for channel in self._channels if channel.up]
        if not up:
            raise CommandFailed(Failure.GONE, "no relay process is running")
        return up

    async def _all(self, command: messages.Command[A], within: float = ASK_SECONDS) -> A:
        answers = await asyncio.gather(*(channel.ask(command, b"", within) for channel in self._up()), return_exceptions=True)
        found: list[A] = []
        failed: list[BaseException] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                failed.append(answer)
            else:
                found.append(answer)
        for error in failed:
            # One that has just ended does not count.
            if not (found and isinstance(error, CommandFailed) and error.kind is Failure.GONE):
                raise error
        return _merged(found)

    async def wait_for_hits(self, name: str, hits: int, within: float) -> int:
        """Wait until a rule has fired so often at all workers together; how often it has."""
        if len(self._channels) == 1:
            return (await self._channels[0].ask(messages.AwaitHits(name, hits), within=within)).hits
        async with asyncio.timeout(within):
            while True:
                up = self._up()
                answers = await asyncio.gather(*(channel.ask(messages.ListRules()) for channel in up))
                counts = [messages.hits_of(answer.rules, name) for answer in answers]
                if None in counts:
                    raise CommandFailed(Failure.MISSING, f"no rule is named {name!r}")
                total = max(count for count in counts if count is not None)
                if total >= hits:
                    return total
                # Whichever fires next answers.
                await _first([channel.ask(messages.AwaitHits(name, total + 1), within=86400.0) for channel in up])

    # -- frames that are held --------------------------------------------------------------------------------

    def notice(self, notice: messages.Notices, data: bytes) -> None:
        """Take a notice of a worker. Each worker holds as many frames as an intercept allows in all; those beyond are
        released here."""
        if isinstance(notice, messages.FrameHeld):
            held = notice.held
            left = self._left.get(held.intercept)
            if left is not None:
                self._left[held.intercept] = left - 1
                if left <= 1:
                    self._start(self._all(messages.SpendIntercept(held.intercept)))
                if left <= 0:
                    self._start(self.ask(messages.Decide(held.id, messages.HeldAction.RESUME)))
                    return
        self._held(notice, data)

    def _start(self, asking: Coroutine[Any, Any, messages.Done]) -> None:
        async def ask() -> None:
            with contextlib.suppress(CommandFailed):  # the worker is gone, with all that it held
                await asking

        task = asyncio.get_running_loop().create_task(ask())
        _notifying.add(task)
        task.add_done_callback(_notifying.discard)

    # -- a worker that replaces another --------------------------------------------------------------------

    async def renew(self, name: str, sock: socket.socket) -> None:
        """Give a worker that was started again the rules and intercepts of the others."""
        channel = self.channel(name)
        if channel is None:
            sock.close()
            return
        async with self._changing:
            others = [other for other in self._channels if other.up and other is not channel]
            fresh = AsyncChannel(name, self.notice)
            await fresh.connect(sock)
            self._channels[self._channels.index(channel)] = fresh
            try:
                known = await _state_of(others[0]) if others else self._known
                if known is not None:
                    await fresh.ask(messages.ReplaceRules(known.rules))
                    await fresh.ask(messages.TakeIntercepts(known.intercepts))
                    if known.down:
                        await fresh.ask(messages.KeepBrokersDown(known.down))
            except CommandFailed:
                pass  # it keeps the rules of the start

    async def remember(self) -> None:
        """Keep the rules and intercepts of the only worker; several have them from each other."""
        if len(self._channels) == 1:
            with contextlib.suppress(CommandFailed):
                self._known = await _state_of(self._channels[0])


async def _state_of(channel: AsyncChannel) -> WorkerState:
    rules = await channel.ask(messages.DumpRules())
    intercepts = await channel.ask(messages.ListIntercepts())
    brokers = await channel.ask(messages.ListBrokers())
    return WorkerState(rules.rules, intercepts.intercepts, brokers.down)


_notifying: set[asyncio.Task[None]] = set()


async def _first(asking: list[Coroutine[Any, Any, messages.HitCount]]) -> None:
    """Until one of them is answered, or has failed."""
    tasks = [asyncio.ensure_future(each) for each in asking]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Counted(Protocol):
    """A part of an answer that has counts. Parts of the same key are counted together."""

    @property
    def key(self) -> object: ...
    def add(self, other: Self, /) -> None: ...


def _counted(answer: object) -> Sequence[_Counted]:
    match answer:
        case messages.RuleList(rules) | messages.RulePut(rules):
            return rules
        case messages.InterceptList(intercepts):
            return intercepts
        case messages.InterceptAdded(intercept):
            return [intercept]
        case messages.PluginList(plugins):
            return plugins
        case messages.RuleHits():
            return [answer]
    return []


def _merged(answers: list[A]) -> A:
    """The first answer, with the counts of all in it."""
    first, *rest = answers
    known = {each.key: each for each in _counted(first)}
    for answer in rest:
        for each in _counted(answer):
            if each.key in known:
                known[each.key].add(each)
    return first
