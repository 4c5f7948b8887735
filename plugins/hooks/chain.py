"""Several plugins and one message: the hooks in their order, each with the result of the one before.

Requests pass the plugins in the order they were given, responses in reverse, so that the first plugin is nearest to the
client in both directions. Hooks may be coroutines, and so are these functions: they await an `Ask`, and whoever runs them
answers it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...decoder import Exchange, Message, decode_request
from ...decoder.connection import hit_notes
from ...decoder.connection.exchange import State
from ...diagnostics import contained
from ..answers import unanswerable
from .context import Context, Decision, HookEnvironment, HookOutcome, PeerView
from .plugin import Plugin

_DID = {Decision.RESPOND: hit_notes.ANSWERED, Decision.DROP: hit_notes.DROPPED, Decision.CLOSE: hit_notes.CLOSED}
Fault = Callable[[Plugin, str, BaseException], None]
"""(plugin, hook, what it raised)."""
Warn = Callable[[Plugin, str, str], None]
"""(plugin, API, why its clients cannot use the answer)."""
Watch = Callable[[Plugin | None, str], None]
"""Called with the hook that runs now; None: none does."""


@dataclass(slots=True)
class ChainResult:
    """The result of the plugins for a message. `frame`: None if unchanged; `by`: plugins that did something; `notes`: for
    the recording."""

    kind: Decision = Decision.FORWARD
    frame: bytes | None = None
    delay_ns: int = 0
    reset: bool = False
    by: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    hits: list[str] = field(default_factory=list)
    """The plugins whose hooks were called."""

    def note(self) -> str:
        """A line for the recording; empty if nothing was done."""
        if not self.by and not self.notes:
            return ""
        if self.kind is Decision.FORWARD:
            did = hit_notes.CHANGED if self.frame is not None else hit_notes.DELAYED if self.delay_ns else ""
        else:
            did = _DID[self.kind]
        parts = [hit_notes.plugin_note(self.by, did)] if self.by and did else []
        return "; ".join([*parts, *self.notes])


@dataclass(slots=True)
class Chain:
    """The plugins of one process."""

    plugins: Sequence[Plugin]
    environment: HookEnvironment
    fault: Fault
    watch: Watch
    warn: Warn = lambda plugin, api, text: None

    async def message(self, hook: str, exchange: Exchange, peer: PeerView | None) -> ChainResult:
        """Run the hooks "request" or "response". A fault is reported, and that hook's message passes unchanged."""
        passed = ChainResult()
        current: Message | None = None
        for plugin in self.plugins if hook == "request" else reversed(self.plugins):
            if not self._wants(plugin, hook, exchange):
                continue
            if current is None:
                current = exchange.request_message if hook == "request" else exchange.response_message
            if current is None:
                break  # it cannot be decoded, so no plugin can change it
            context = Context(plugin.name, hook, self.environment, peer, exchange, current)
            outcome = await self._call_hook(plugin, hook, context, current)
            if outcome is None:
                continue
            passed.hits.append(plugin.name)
            passed.notes += context.notes
            passed.delay_ns += outcome.delay_ns
            if outcome.kind is not Decision.FORWARD or outcome.frame is not None or outcome.delay_ns:
                passed.by.append(plugin.name)
            if outcome.kind is not Decision.FORWARD:
                passed.kind, passed.frame, passed.reset = outcome.kind, outcome.frame, outcome.reset
                break
            if outcome.frame is not None:
                passed.frame = outcome.frame
                if hook == "request":
                    self._warn_if_unanswerable(plugin, exchange, current, outcome.frame)
                exchange = _with_frame(exchange, hook, outcome.frame)
                current = None
        return passed

    async def notify(self, hook: str, argument: Exchange | None, peer: PeerView | None) -> list[str]:
        """Run the hooks that change nothing: "exchange", "connected", "disconnected", "tick". Returns the plugins that
        were called."""
        called = []
        for plugin in self.plugins:
            if hook not in plugin.hooks or (argument is not None and not self._wants(plugin, hook, argument)):
                continue
            context = Context(plugin.name, hook, self.environment, peer, argument)
            arguments = () if argument is None else (argument,)
            if await self._call_hook(plugin, hook, context, *arguments) is not None:
                called.append(plugin.name)
        return called

    def _warn_if_unanswerable(self, plugin: Plugin, exchange: Exchange, before: Message, frame: bytes) -> None:
        """Warn of a changed request whose answer the client cannot use."""
        after = decode_request(frame)
        renames_back = "response" in plugin.hooks and self._wants(plugin, "response", exchange)
        if text := unanswerable.why(before, after, renames_back):
            self.warn(plugin, before.api, text)

    def _wants(self, plugin: Plugin, hook: str, exchange: Exchange) -> bool:
        try:
            return plugin.wants(hook, exchange)
        except MemoryError:
            raise
        except Exception as error:  # a match of the user's on bytes of others: only this plugin misses the message
            contained("a plugin's match", error, reported=True)
            self.fault(plugin, hook, error)
            return False

    async def _call_hook(self, plugin: Plugin, hook: str, context: Context, *arguments: Any) -> HookOutcome | None:
        """The outcome of a hook; None if it failed."""
        self.watch(plugin, hook)
        try:
            returned = plugin.hooks[hook](*arguments, context)
            if inspect.isawaitable(returned):
                returned = await returned
            return context.take(returned)
        except (Exception, SystemExit) as error:  # the user's code
            contained("a plugin's hook", error, reported=True)
            self.fault(plugin, hook, error)
            return None
        finally:
            self.watch(None, "")


def _with_frame(exchange: Exchange, hook: str, frame: bytes) -> Exchange:
    """The exchange with another request, or response."""
    request, response = (frame, exchange.response) if hook == "request" else (exchange.request, frame)
    return Exchange(
        connection=exchange.connection,
        client=exchange.client,
        broker=exchange.broker,
        api_key=exchange.api_key,
        api_version=exchange.api_version,
        correlation_id=exchange.correlation_id,
        client_id=exchange.client_id,
        request=request,
        request_time_ns=exchange.request_time_ns,
        response=response,
        response_time_ns=exchange.response_time_ns,
        state=State.PENDING if response is None else State.PAIRED,
        topics=exchange.topics,
        about=exchange.about,
    )
