"""The relay's hosts: one at work, perhaps one that is coming, and what goes wrong with them.

A new version of a file is loaded by a new host while the old one works on; it takes over when it is ready, with the
state that the old one hands over. A host that hangs is killed, one that dies is replaced, and the plugin whose hook
was running gets the fault.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .....plugins.hooks.plugin import PluginDescription
from ....events import PluginDisabled, PluginFault, PluginHangs, PluginSaid, PluginsKept, PluginsLoaded
from ....ring import polling
from . import messages
from .config import FAULT_SECONDS, PluginsConfig
from .forkserver_client import LOAD_SECONDS, ForkServerClient, HostProcess
from .host import RUNNING

if TYPE_CHECKING:
    from ...interfaces import RelayInterface

AGAIN_SECONDS = 1.0
"""Between two attempts to have a forkserver."""


class HostListener(Protocol):
    """Whom the hosts work for (`plugin_interceptor.PluginInterceptor`)."""

    def host_ready(self) -> None:
        """Another host is at work: send it everything it has to know."""

    def host_gone(self) -> None:
        """There is none, and none will come by itself."""

    def on_message(self, message: messages.ToRelay, data: bytes) -> None:
        """A message of the host at work."""


class HostManager:
    """See the module."""

    def __init__(self, relay: RelayInterface, config: PluginsConfig, listener: HostListener) -> None:
        self._relay = relay
        self._config = config
        self._listener = listener
        self._forkserver: ForkServerClient | None = None
        self.current: HostProcess | None = None
        """The one at work."""
        self.coming: HostProcess | None = None
        """The one that is being loaded, or waits for the other's state."""
        self._changed = False
        """Whether a file was saved while one was being loaded."""
        self._faults: dict[str, deque[float]] = {}
        self.disabled: dict[str, str] = {}
        """Plugins that had too many faults: name -> the last of them."""
        self.total_faults: dict[str, int] = {}
        self.plugins: list[PluginDescription] = []
        """Descriptions of the version that was accepted last."""
        self.ended = False

    # -- starting --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Load the plugins before anything else happens, for LOAD_SECONDS at most."""
        if not self._have_forkserver():
            return
        self.start(fresh=True)
        until = time.monotonic() + LOAD_SECONDS
        while self.current is None and self.coming is not None and time.monotonic() < until:
            self._forkserver_readable(0)
            if self.coming is not None:
                self._host_readable(self.coming, 0)
            time.sleep(0.002)

    def _have_forkserver(self) -> bool:
        if self._forkserver is not None:
            return True
        try:
            self._forkserver = forkserver = ForkServerClient(self._config)
        except OSError as error:
            self._relay.emit(PluginFault("", "", f"cannot be started: {error.strerror}", 1, 1))
            self._relay.timers.after(int(AGAIN_SECONDS * 1e9), self._once_more)
            return False
        self._relay.sockets.listen_for(forkserver.control.fileno(), self._forkserver_readable, edge=False)
        return True

    def _once_more(self) -> None:
        if self._forkserver is None and not self.ended and self._have_forkserver():
            self.start(fresh=not self.plugins)

    def start(self, fresh: bool) -> None:
        """Another host. `fresh`: with the files as they are now."""
        if self.ended or self._forkserver is None:
            return
        if self.coming is not None:
            if not fresh or self.coming.fresh:
                self._changed |= fresh
                return
            self._drop(self.coming)
        without = [] if fresh else list(self.disabled)
        try:
            self.coming = host = self._forkserver.start(fresh, without)
        except OSError:  # it is gone; `_forkserver_readable` finds out
            self.coming = None
            return
        sockets = self._relay.sockets
        sockets.others[host.channel.fileno()] = partial(self._host_readable, host)
        sockets.poll.register(host.channel.fileno(), polling.ALL)
        self._relay.timers.after(int(LOAD_SECONDS * 1e9), partial(self._overdue, host))

    def _overdue(self, host: HostProcess) -> None:
        if self.coming is host and not host.ready:
            self._failed(host, f"the plugins were not loaded within {LOAD_SECONDS:g} s")

    def reload(self) -> None:
        """Load the files as they are now."""
        if self._have_forkserver():
            self.start(fresh=True)

    # -- messages of hosts and the forkserver --------------------------------------------------------------------

    def _host_readable(self, host: HostProcess, _: int) -> None:
        host.channel.flush()
        for message, data in host.receive():
            match message:
                case messages.Ready():
                    self._ready(host, message)
                case messages.LoadFailed(text):
                    self._failed(host, text)
                case messages.SavedState(states):
                    if self.coming is not None and self.coming.ready:
                        self._switch(self.coming, states)
                case messages.HookFault(plugin, hook, text, last):
                    host.over = last
                    self.fault(plugin, hook, text)
                case messages.HangWarning(plugin, api, text):
                    self._relay.emit(PluginHangs(plugin, api, text))
                case messages.Log(plugin, text):
                    self._relay.emit(PluginSaid(plugin, text))
                case _ if host is self.current:
                    self._listener.on_message(message, data)
        if host.channel.closed:
            self._forget(host)  # the forkserver reports how it ended

    def drain(self) -> None:
        """Handle what the host at work has sent already."""
        if self.current is not None:
            self._host_readable(self.current, 0)

    def _forkserver_readable(self, _: int) -> None:
        if self._forkserver is None:
            return
        events = self._forkserver.receive()
        if events is None:
            self._forkserver_gone()
            return
        for kind, number, text in events:
            if kind is messages.ForkServerEventKind.CHANGED:
                self.start(fresh=True)
            elif kind is messages.ForkServerEventKind.FAILED:
                if self.coming is not None and self.coming.number == number:
                    self._failed(self.coming, text)
            elif self.current is not None and self.current.number == number:
                self.drain()
                self.died(self.current, f"its process ended: {text}")
            elif self.coming is not None and self.coming.number == number:
                self._host_readable(self.coming, 0)
                if self.coming is not None and self.coming.number == number:
                    self._failed(self.coming, f"the plugins' process ended while they were loaded: {text}")

    def _forkserver_gone(self) -> None:
        forkserver, self._forkserver = self._forkserver, None
        if forkserver is None:
            return
        self._unregister(forkserver.control.fileno())
        forkserver.close()
        for host in (self.current, self.coming):
            if host is not None:
                self._drop(host)
        if not self.ended:
            self.fault("", "", "it ended unexpectedly")
            self._relay.timers.after(int(AGAIN_SECONDS * 1e9), self._once_more)

    # -- one takes the other's place -------------------------------------------------------------------------

    def _ready(self, host: HostProcess, message: messages.Ready) -> None:
        if host is not self.coming or self._forkserver is None:
            return
        host.ready = True
        host.plugins = message.plugins
        self._forkserver.accept(host, message.files)
        if host.fresh and self.current is not None and self.current.send(messages.SaveState()):
            self._relay.timers.after(int(self._config.budget * 1e9), partial(self._switch, host, {}))
        else:
            self._switch(host, {})

    def _switch(self, host: HostProcess, states: dict[str, Any]) -> None:
        if host is not self.coming:
            return
        self.coming = None
        again = bool(self.plugins)
        if self.current is not None:
            self._drop(self.current)
        self.current = host
        self.plugins = host.plugins
        if host.fresh:
            self.disabled.clear()
            self._faults.clear()
            self._relay.emit(PluginsLoaded(tuple(each.name for each in host.plugins), again))
        if states:
            host.send(messages.RestoreState(states))
        self._listener.host_ready()
        if self._changed:
            self._changed = False
            self.start(fresh=True)

    def _failed(self, host: HostProcess, why: str) -> None:
        """A version cannot be loaded."""
        if host is not self.coming:
            return
        self._drop(host)
        if not self.plugins:
            self._relay.emit(PluginDisabled("", why))
            self._listener.host_gone()
        elif host.fresh:
            self._relay.emit(PluginsKept(why))
            if self.current is None:
                self.start(fresh=False)
        else:
            self.fault("", "", why)
            self._again()
        if self._changed:
            self._changed = False
            self.start(fresh=True)

    def _drop(self, host: HostProcess) -> None:
        """Not needed any more."""
        if self._forkserver is not None:
            self._forkserver.kill(host)
        self._forget(host)
        if host is self.current:
            self.current = None
        if host is self.coming:
            self.coming = None

    def _forget(self, host: HostProcess) -> None:
        self._unregister(host.channel.fileno())
        host.channel.close()

    def _unregister(self, fd: int) -> None:
        if self._relay.sockets.others.pop(fd, None) is not None:
            self._relay.sockets.poll.unregister(fd)

    # -- what goes wrong -------------------------------------------------------------------------------------

    def stuck(self, seconds: float, question: int = -1) -> bool:
        """Whether the hook that is running has been for so long (half of it, if it is about this question); then it is
        ended, and blamed."""
        host = self.current
        if host is None:
            return False
        running = host.running_hook.read()
        spent = running.seconds()
        if spent < (seconds / 2 if running.question == question else seconds):
            return False
        self.died(host, f"it did not return within {seconds * 1000:.0f} ms")
        return True

    def died(self, host: HostProcess, why: str) -> None:
        """The host at work is gone, or has to go; another one comes."""
        running = host.running_hook.read()
        name, hook = "", ""
        if running.begun_ns and 0 <= running.plugin < len(host.plugins):
            name, hook = host.plugins[running.plugin].name, RUNNING[running.hook]
        elif len(host.plugins) == 1:
            name = host.plugins[0].name
        self._drop(host)
        if not host.over:
            self.fault(name, hook, why)
        self._again()

    def _again(self) -> None:
        """Another host with what ran before, if it makes sense."""
        if "" in self.disabled:
            self._listener.host_gone()
        else:
            self.start(fresh=False)

    def fault(self, name: str, hook: str, why: str) -> None:
        """Count a fault; too many disable the plugin, or all if nobody can be blamed."""
        now = time.monotonic()
        found = self._faults.setdefault(name, deque())
        found.append(now)
        while now - found[0] > FAULT_SECONDS:
            found.popleft()
        self.total_faults[name] = self.total_faults.get(name, 0) + 1
        if name in self.disabled:
            return
        most = self._config.faults
        self._relay.emit(PluginFault(name, hook, why, len(found), most))
        if len(found) >= most:
            self.disabled[name] = why
            self._relay.emit(PluginDisabled(name, f"{len(found)} faults within {FAULT_SECONDS:g} s, the last: {why}"))
            if self.current is not None:
                self.current.send(messages.DisablePlugin(name))
            self._relay.inline_changed()

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End them all."""
        self.ended = True
        for host in (self.current, self.coming):
            if host is not None:
                self._drop(host)
        if self._forkserver is not None:
            self._unregister(self._forkserver.control.fileno())
            self._forkserver.close()
            self._forkserver = None
