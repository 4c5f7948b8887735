"""The relay workers, one or several, as one relay.

Changes of rules and intercepts go to all workers, one after the other, so that all have the same; counts are added up. The
number of a connection or a held frame gives its worker: numbers of `n` workers go up by `n`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any, NamedTuple

from ..interception.rules.hits import KEPT
from .async_channel import ASK_SECONDS, Answer, AsyncChannel, CommandFailed, Notice

_CHANGES = frozenset(
    {"rules.add", "rules.put", "rules.replace", "rules.remove", "rules.enable", "intercepts.add", "intercepts.remove", "brokers.down"}
)
_ADDED = {"rules": "name", "intercepts": "id", "plugins": "name"}
_SUMS = ("held", "passed", "calls", "faults")
_SHARED = ("matched", "hits")
"""Counted by all workers together (`SharedCounters`); one may be ahead of another."""


class WorkerState(NamedTuple):
    """What a worker was given while it ran, as its answers have it. down: addresses of brokers that are kept down."""

    rules: list[Any]
    intercepts: list[Any]
    down: list[Any]


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

    async def ask(self, do: str, data: bytes = b"", within: float = ASK_SECONDS, **fields: Any) -> Answer:
        """The answer to a command; CommandFailed if there is none."""
        if len(self._channels) == 1:
            answer = await self._channels[0].ask(do, data, within, **fields)
            if do in _CHANGES:
                await self.remember()
            return answer
        if do in ("close", "decide", "extend"):
            number = int(fields["connection" if do == "close" else "held"])
            if number < 1:
                raise CommandFailed("missing", f"there is no number {number}")
            return await self._channels[(number - 1) % len(self._channels)].ask(do, data, within, **fields)
        if do == "brokers":
            return await self._one().ask(do, data, within, **fields)
        if do == "rules.hits":
            return _merged_hits(await self._all_of(do, data, within, fields))
        if do == "wait":
            async with asyncio.timeout(within):
                return await self._wait(fields["name"], fields["hits"])
        if do not in _CHANGES:
            return await self._all(do, data, within, fields)
        async with self._changing:
            answer = await self._all(do, data, within, fields)
            if do == "intercepts.add" and answer["intercept"]["times_left"] is not None:
                self._left[answer["intercept"]["id"]] = answer["intercept"]["times_left"]
            return answer

    def _up(self) -> list[AsyncChannel]:
        up = [channel for channel in self._channels if channel.up]
        if not up:
            raise CommandFailed("gone", "no relay process runs")
        return up

    def _one(self) -> AsyncChannel:
        return self._up()[0]

    async def _all(self, do: str, data: bytes, within: float, fields: dict[str, Any]) -> Answer:
        return _merged(await self._all_of(do, data, within, fields))

    async def _all_of(self, do: str, data: bytes, within: float, fields: dict[str, Any]) -> list[Answer]:
        answers = await asyncio.gather(
            *(channel.ask(do, data, within, **fields) for channel in self._up()), return_exceptions=True
        )
        found = [answer for answer in answers if isinstance(answer, dict)]
        for failed in answers:
            # One that has just ended does not count.
            if isinstance(failed, BaseException) and not (found and isinstance(failed, CommandFailed) and failed.kind == "gone"):
                raise failed
        return found

    async def _wait(self, name: str, hits: int) -> Answer:
        """Wait until a rule has so many hits at all workers together."""
        while True:
            up = self._up()
            counts = await asyncio.gather(*(channel.ask("rules") for channel in up))
            each = [next((rule["hits"] for rule in answer["rules"] if rule["name"] == name), None) for answer in counts]
            if None in each:
                raise CommandFailed("missing", f"no rule is named {name!r}")
            total = max(count for count in each if count is not None)
            if total >= hits:
                return {"hits": total}
            # Whichever fires next answers.
            await _first([channel.ask("wait", within=86400.0, name=name, hits=total + 1) for channel in up])

    # -- frames that are held --------------------------------------------------------------------------------

    def notice(self, message: dict[str, Any], data: bytes) -> None:
        """Take a notice of a worker. Each worker holds as many frames as an intercept allows in all; those beyond are
        released here."""
        held = message.get("held", {})
        left = self._left.get(held.get("intercept", -1))
        if left is not None:
            self._left[held["intercept"]] = left - 1
            if left <= 1:
                self._notify("intercepts.spent", intercept=held["intercept"])
            if left <= 0:
                self._notify("decide", held=held["id"], action="resume")
                return
        self._held(message, data)

    def _notify(self, do: str, **fields: Any) -> None:
        async def ask() -> None:
            try:
                await (self.ask(do, **fields) if do == "decide" else self._all(do, b"", ASK_SECONDS, fields))
            except CommandFailed:
                pass  # the worker is gone, with all that it held

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
                    await fresh.ask("rules.replace", rules=known.rules)
                    await fresh.ask("intercepts.take", intercepts=known.intercepts)
                    if known.down:
                        await fresh.ask("brokers.down", brokers=known.down)
            except CommandFailed:
                pass  # it keeps the rules of the start

    async def remember(self) -> None:
        """Keep the rules and intercepts of the only worker; several have them from each other."""
        if len(self._channels) == 1:
            with contextlib.suppress(CommandFailed):
                self._known = await _state_of(self._channels[0])


async def _state_of(channel: AsyncChannel) -> WorkerState:
    rules, intercepts, brokers = [await channel.ask(do) for do in ("rules.dump", "intercepts", "brokers")]
    return WorkerState(rules["standing"], intercepts["intercepts"], brokers["down"])


_notifying: set[asyncio.Task[None]] = set()


async def _first(asking: list[Coroutine[Any, Any, Answer]]) -> None:
    """Until one of them is answered, or has failed."""
    tasks = [asyncio.ensure_future(each) for each in asking]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _merged_hits(answers: list[Answer]) -> Answer:
    """The hits of all workers in the order of their times."""
    hits = sorted((hit for answer in answers for hit in answer["hits"]), key=lambda hit: int(hit["time_ns"]))
    return {"hits": hits[-KEPT:], "total": max(answer["total"] for answer in answers)}


def _merged(answers: list[Answer]) -> Answer:
    """The first answer, with the counts of all in it."""
    first, *rest = answers
    for answer in rest:
        for kind, key in _ADDED.items():
            known = {each[key]: each for each in first.get(kind, ())}
            for each in answer.get(kind, ()):
                if each[key] in known:
                    _add(known[each[key]], each)
        if "intercept" in first and "intercept" in answer:
            _add(first["intercept"], answer["intercept"])
    return first


def _add(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in _SUMS:
        if name in one:
            one[name] += other[name]
    for name in _SHARED:
        if name in one:
            one[name] = max(one[name], other[name])

