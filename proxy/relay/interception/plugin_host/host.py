"""The process that runs plugins: gets messages from the relay, calls the hooks, sends verdicts.

The forkserver has forked it, and it may be killed at any time; nothing here has to be saved. See `messages`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from .....decoder import DecodeError, Direction, Exchange, Message, Topics, decode_response
from .....decoder.codec import secrets
from .....decoder.codec.codec import peek_request
from .....decoder.connection.exchange import State
from .....decoder.schema import facts
from .....diagnostics import contained
from .....plugins.hooks import Ask, PeerView, Plugin, PluginError, PluginSource, load
from .....plugins.hooks.chain import Chain, ChainResult
from .....plugins.hooks.context import AskFailed, ConnectionEnded, HookEnvironment
from .....plugins.hooks.loader import described
from .....plugins.hooks.plugin import HOOKS
from ....processes.channel import Channel
from ....processes.serialization import from_named, to_named
from . import messages
from .running_hook import RunningHook

TICK_SECONDS = 1.0
API_VERSIONS = facts.api_key("ApiVersions")
RUNNING = [*HOOKS, "state", "restore"]
"""What the numbers in a `RunningHook` mean."""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(slots=True)
class HookTask:
    """A chain of hooks that runs, or waits for an answer. `decides`: its result is a verdict about the message, which the relay
    waits for. `running`: (plugin, hook) to blame, (-1, -1): none. `about`: the exchange's request."""

    hooks: Coroutine[Ask, Message | None, Any]
    question: int = 0
    decides: bool = False
    running: tuple[int, int] = (-1, -1)
    about: bytes = b""


class PluginHost:
    """The plugins, and the relay's end of the channel."""

    def __init__(self, channel: Channel, running_hook: RunningHook, plugins: list[Plugin], paths: dict[str, str]) -> None:
        self._channel = channel
        self._running_hook = running_hook
        self._plugins = plugins
        self._paths = paths
        self._names = list(paths)
        """Of all plugins, also those that were left out: `RunningHook` holds a place in this list."""
        self._connections: dict[int, PeerView] = {}
        self._topics = Topics()
        self._offers: dict[str, dict[int, int]] = {}
        self._task: HookTask | None = None
        self._asks: dict[int, tuple[HookTask, Ask]] = {}
        self._numbers = count(1)
        self._ticking: HookTask | None = None
        environment = HookEnvironment(self._connections, self._version, self._log, self._close)
        self._chain = Chain(plugins, environment, self._fault, self._watch, self._warn)
        self._warned: set[tuple[str, str, str]] = set()

    def serve(self) -> None:
        """Until the relay hangs up."""
        poll = select.poll()
        channel = self._channel
        poll.register(channel.fileno(), select.POLLIN)
        ticks = any("tick" in plugin.hooks for plugin in self._plugins)
        next_tick = time.monotonic() + TICK_SECONDS
        while not channel.closed:
            writes = select.POLLOUT if channel.pending else 0
            poll.modify(channel.fileno(), select.POLLIN | writes)
            poll.poll(max(next_tick - time.monotonic(), 0.0) * 1000 if ticks else None)
            channel.flush()
            for fields, data in channel.receive():
                self._receive(from_named(messages.ToHost, fields), data)
            if ticks and time.monotonic() >= next_tick:
                next_tick = time.monotonic() + TICK_SECONDS
                if self._ticking is None:
                    self._ticking = self._begin(self._chain.notify("tick", None, None))

    # -- messages of the relay ---------------------------------------------------------------------------------

    def _receive(self, message: messages.ToHost, data: bytes) -> None:
        match message:
            case messages.HookCall():
                self._call(message, data)
            case messages.ClientConnected(number, client, broker):
                peer = self._connections[number] = PeerView(number, client, broker)
                self._begin(self._chain.notify("connected", None, peer))
            case messages.ClientDisconnected(number):
                if (left := self._connections.pop(number, None)) is not None:
                    self._begin(self._chain.notify("disconnected", None, left))
            case messages.Learn():
                self._learn(message, data)
            case messages.AskAnswer():
                self._answered(message, data)
            case messages.Forget(question):
                for number, (task, _) in list(self._asks.items()):
                    if task.question == question:
                        del self._asks[number]
                        task.hooks.close()
            case messages.DisablePlugin(name):
                self._plugins[:] = [plugin for plugin in self._plugins if plugin.name != name]
            case messages.SaveState():
                self._save()
            case messages.RestoreState(states):
                for plugin in self._plugins:
                    if plugin.restore is not None and plugin.name in states:
                        self._guarded(plugin, "restore", partial(plugin.restore, states[plugin.name]))

    def _call(self, call: messages.HookCall, data: bytes) -> None:
        exchange, peer = self._exchange(call, data), self._connections.get(call.connection)
        asked = exchange.request or b""
        if call.kind is messages.HookCallKind.EXCHANGE:
            self._begin(self._chain.notify("exchange", exchange, peer), about=asked)
        else:
            self._begin(self._chain.message(call.kind, exchange, peer), call.question, decides=True, about=asked)

    def _learn(self, learn: messages.Learn, data: bytes) -> None:
        key, version = learn.api_key, learn.api_version
        exchange = Exchange(api_key=key, api_version=version, response=data, state=State.PAIRED)
        try:
            self._topics.learn(exchange)
            if key == API_VERSIONS and (found := exchange.response_message) is not None:
                offers = found.to_dict()["api_keys"] or ()
                self._offers[learn.broker] = {each["api_key"]: each["max_version"] for each in offers}
        except Exception as error:  # bytes of a broker: without them, plugins know less
            contained("reading what a broker offers", error)

    def _answered(self, came: messages.AskAnswer, data: bytes) -> None:
        task, ask = self._asks.pop(came.id, (None, None))
        if task is None or ask is None:
            return
        if came.error:
            self._go_on(task, None, (ConnectionEnded if came.ended else AskFailed)(came.error))
            return
        try:
            answer = decode_response(data, api_key=ask.api_key, api_version=ask.api_version)
        except DecodeError as error:
            self._go_on(task, None, AskFailed(f"the answer cannot be read: {error}"))
            return
        self._go_on(task, answer)

    def _save(self) -> None:
        """Send what plugins hand over to their next version."""
        states: dict[str, Any] = {}

        def keep(name: str, state: Callable[[], object]) -> None:
            states[name] = json.loads(json.dumps(state()))

        for plugin in self._plugins:
            if plugin.state is not None:
                self._guarded(plugin, "state", partial(keep, plugin.name, plugin.state))
        self._send(messages.SavedState(states))

    def _send(self, message: messages.ToRelay, data: bytes = b"") -> None:
        self._channel.send(to_named(message), data)

    def _guarded(self, plugin: Plugin, hook: str, call: Callable[[], object]) -> None:
        """Call something of a plugin that no message waits for."""
        self._task = None
        self._watch(plugin, hook)
        try:
            call()
        except Exception as error:  # a plugin's own code
            contained("a hook of a plugin", error, reported=True)
            self._fault(plugin, hook, error)
        finally:
            self._watch(None, "")

    # -- running ---------------------------------------------------------------------------------------------

    def _begin(
        self,
        hooks: Coroutine[Ask, Message | None, Any],
        question: int = 0,
        *,
        decides: bool = False,
        about: bytes = b"",
    ) -> HookTask | None:
        """Run hooks as far as they go; the task, if they wait for an answer."""
        task = HookTask(hooks, question, decides, about=about)
        return task if self._go_on(task) else None

    def _go_on(self, task: HookTask, answer: Message | None = None, failure: Exception | None = None) -> bool:
        """Whether it waits for an answer now."""
        self._task = task
        if task.running[0] >= 0:
            self._running_hook.begin(*task.running, task.question)
        try:
            asked = task.hooks.send(answer) if failure is None else task.hooks.throw(failure)
        except StopIteration as done:
            self._done(task, done.value)
            return False
        except MemoryError:
            raise
        except Exception as error:  # of what surrounds the hooks, which contains theirs
            contained("a chain of hooks", error, reported=True)
            self._send(messages.Log("", f"{type(error).__name__}: {error}"))
            self._done(task, ChainResult() if task.decides else [])
            return False
        finally:
            self._running_hook.end()
            self._task = None
        if not isinstance(asked, Ask):
            # Something like asyncio.sleep: there is no loop here that would ever wake it.
            return self._go_on(task, None, RuntimeError("hooks can await only what ctx.request returns"))
        number = next(self._numbers)
        self._asks[number] = task, asked
        plugin = self._names[task.running[0]]
        ask = messages.AskRequest(number, task.question, asked.connection, asked.seconds, plugin)
        self._send(ask, asked.frame)
        return True

    def _done(self, task: HookTask, result: Any) -> None:
        if task is self._ticking:
            self._ticking = None
        if not task.decides:
            if result:
                self._send(messages.Notified(result))
            return
        done: ChainResult = result
        changed = done.frame is not None
        self._send(messages.Decided(task.question, done.kind, changed, done.delay_ns, done.reset, done.note(), done.hits), done.frame or b"")

    def _watch(self, plugin: Plugin | None, hook: str) -> None:
        task = self._task
        running = (-1, -1) if plugin is None else (self._names.index(plugin.name), RUNNING.index(hook))
        if task is not None:
            task.running = running
        if plugin is None:
            self._running_hook.end()
        else:
            self._running_hook.begin(*running, task.question if task is not None else 0)

    def _fault(self, plugin: Plugin, hook: str, error: BaseException) -> None:
        if isinstance(error, ConnectionEnded):
            return  # a client may leave at any time
        path = self._paths.get(plugin.name, "")
        if isinstance(error, MemoryError):
            # What it has taken would be missing to all others: the whole process goes.
            self._plugins = []
            self._send(messages.HookFault(plugin.name, hook, "it needs too much memory", last=True))
            _flush(self._channel)
            os._exit(1)
        about, text = self._task.about if self._task is not None else b"", described(error, path)
        if len(about) >= 8 and secrets.concerns(Direction.REQUEST, *peek_request(about)[:2]):
            text = secrets.without_quotes("", text, about)
        self._send(messages.HookFault(plugin.name, hook, text))

    def _warn(self, plugin: Plugin, api: str, text: str) -> None:
        """Of what clients will not get over: once for each plugin, API and kind of it."""
        kind = plugin.name, api, text.partition(" ")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            self._send(messages.HangWarning(plugin.name, api, text[:2000]))

    # -- what contexts need ----------------------------------------------------------------------------------

    def _version(self, connection: int, api_key: int) -> int | None:
        peer = self._connections.get(connection)
        offered = self._offers.get(peer.broker, {}).get(api_key) if peer is not None else None
        known = facts.api(api_key).versions.high
        return None if offered is None or known is None else min(offered, known)

    def _log(self, plugin: str, text: str) -> None:
        self._send(messages.Log(plugin, text[:2000]))

    def _close(self, plugin: str, connection: int, reset: bool) -> None:
        self._send(messages.CloseConnection(plugin, connection, reset))

    def _exchange(self, call: messages.HookCall, data: bytes) -> Exchange:
        """The exchange that a call is about, with its response if it has one."""
        frame, response = data[: call.request_size], data[call.request_size :]
        peer = self._connections.get(call.connection)
        length = int.from_bytes(frame[8:10], "big", signed=True)
        client_id = frame[10 : 10 + length].decode("utf-8", "replace") if 0 <= length <= len(frame) - 10 else None
        exchange = Exchange(
            connection=call.connection,
            client=peer.client if peer is not None else "",
            broker=peer.broker if peer is not None else "",
            api_key=int.from_bytes(frame[:2], "big", signed=True),
            api_version=int.from_bytes(frame[2:4], "big", signed=True),
            correlation_id=int.from_bytes(frame[4:8], "big", signed=True),
            client_id=client_id,
            request=frame,
            request_time_ns=call.request_time_ns,
            topics=self._topics,
        )
        if call.response_time_ns:
            exchange.response, exchange.response_time_ns = response, call.response_time_ns
            exchange.state = State.PAIRED
        elif call.kind is messages.HookCallKind.EXCHANGE:
            exchange.state = State.NO_RESPONSE
        return exchange


def run(channel_fd: int, running_hook_fd: int, sources: list[PluginSource], memory: int, without: set[str]) -> None:
    """Load the plugins and serve until the relay hangs up."""
    channel = Channel(socket.socket(fileno=channel_fd))
    running_hook = RunningHook(running_hook_fd)
    os.close(running_hook_fd)
    _restrain(memory)
    plugins: list[Plugin] = []
    paths: dict[str, str] = {}
    try:
        for number, source in enumerate(sources):
            for plugin in load(source, number):
                again = sum(each.name == plugin.name or each.name.startswith(f"{plugin.name}-") for each in plugins)
                plugin.name += f"-{again + 1}" if again else ""
                plugins.append(plugin)
                paths[plugin.name] = source.path
    except (PluginError, MemoryError) as error:
        text = str(error) if isinstance(error, PluginError) else "the plugins need too much memory"
        channel.send(to_named(messages.LoadFailed(text)))
        _flush(channel)
        return
    folders = {os.path.dirname(source.path) for source in sources if source.path}
    files = [file for each in list(sys.modules.values()) if (file := getattr(each, "__file__", None))]
    beside = [file for file in files if file.endswith(".py") and os.path.dirname(file) in folders]
    channel.send(to_named(messages.Ready([plugin.describe() for plugin in plugins], beside)))
    plugins[:] = [plugin for plugin in plugins if plugin.name not in without]
    try:
        PluginHost(channel, running_hook, plugins, paths).serve()
    except MemoryError:
        os._exit(1)


def _restrain(memory: int) -> None:
    """No more memory than was allowed, no core files, and no life without a parent."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    try:
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    except (OSError, ValueError, AttributeError):
        pass  # not Linux


def _flush(channel: Channel) -> None:
    """Send what is pending before the process ends."""
    until = time.monotonic() + 1.0
    while channel.pending and not channel.closed and time.monotonic() < until:
        select.select([], [channel.fileno()], [], 0.1)
        channel.flush()
