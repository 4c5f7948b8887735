"""The process that forks hosts: everything is imported already, so that a new one stands within milliseconds.

    python -m barnabas.proxy.relay.interception.plugin_host.forkserver FD      FD: the relay's socket; settings come as its first packet

It looks after the plugins' files as well, keeps the text of the version that works (so that a host that dies is
replaced by what ran, whatever the file holds by now), and ends its hosts when the relay is gone. No plugin's code runs
here.

From the relay: `messages.ToForkServer`. To the relay: `ForkServerEvent`.

Why not `processes.fork_server`: see there. A host that is started as a fresh interpreter takes half a second, for which the
traffic of a connection would wait after every fault of a plugin.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

from .....plugins.hooks import PluginError
from .....plugins.hooks.sources import PluginSource
from ....processes.child import PACKET, receive_settings
from ....processes.serialization import from_named
from . import host
from .config import PluginsConfig
from .messages import AcceptVersion, ForkServerEvent, ForkServerEventKind, KillHost, StartHost, ToForkServer

LOOK_SECONDS = 0.15
"""How often files are looked at."""
_Signature = tuple[int, int, int]


class PluginForkServer:
    """See the module."""

    def __init__(self, control: socket.socket, config: PluginsConfig) -> None:
        self._control = control
        self._config = config
        self._hosts: dict[int, int] = {}  # pid -> number
        self._versions: dict[int, list[PluginSource]] = {}
        self._accepted: list[PluginSource] | None = None
        self._watched: dict[str, _Signature | None] = {}
        self._saving: dict[str, _Signature] = {}
        for source in config.sources:
            if source.path:
                self._watched[source.path] = _signature(source.path)
        self._bell = os.pipe()
        for end in self._bell:
            os.set_blocking(end, False)

    def run(self) -> None:
        """Until the relay is gone."""
        signal.set_wakeup_fd(self._bell[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._bell[0], select.POLLIN)
        look = time.monotonic() + LOOK_SECONDS
        while True:
            ready = [fd for fd, _ in poll.poll(max(look - time.monotonic(), 0.0) * 1000)]
            if self._bell[0] in ready:
                os.read(self._bell[0], 4096)
            if self._control.fileno() in ready and not self._command_received():
                break
            self._reap()
            if time.monotonic() >= look:
                self._look()
                look = time.monotonic() + LOOK_SECONDS
        for pid in self._hosts:
            _kill(pid)
        for pid in self._hosts:  # so that none is left when this process has ended
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _report(self, kind: ForkServerEventKind, number: int = 0, text: str = "") -> None:
        try:
            self._control.send(json.dumps(ForkServerEvent(kind, number, text)).encode())
        except OSError:
            pass  # the relay is gone: the next receive shows it

    # -- commands ----------------------------------------------------------------------------------------------

    def _command_received(self) -> bool:
        """Whether the relay is there."""
        try:
            packet, fds, _, _ = socket.recv_fds(self._control, PACKET, 2)
        except OSError:
            return False
        if not packet:
            return False
        match from_named(ToForkServer, json.loads(packet)):
            case StartHost() as command:
                self._start(command, fds)
            case AcceptVersion(number, files):
                self._accepted = self._versions.pop(number, self._accepted)
                for path in files:
                    self._watched.setdefault(path, _signature(path))
            case KillHost(number):
                self._versions.pop(number, None)
                for pid, each in self._hosts.items():
                    if each == number:
                        _kill(pid)
        return True

    def _start(self, command: StartHost, fds: list[int]) -> None:
        number = command.number
        try:
            sources = self._accepted
            if command.fresh or sources is None:
                for path in self._watched:
                    self._watched[path] = _signature(path)  # before it is read: what comes later is news
                sources = [source.read() for source in self._config.sources]
            self._versions[number] = sources
        except PluginError as error:
            for fd in fds:
                os.close(fd)
            self._report(ForkServerEventKind.FAILED, number, str(error))
            return
        pid = os.fork()
        if pid == 0:
            self._become(fds, sources, command)
        for fd in fds:
            os.close(fd)
        self._hosts[pid] = number

    def _become(self, fds: list[int], sources: list[PluginSource], command: StartHost) -> NoReturn:
        """The rest of the child's life."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.setpgid(0, 0)  # what the plugin starts goes with it
            self._control.close()
            for end in self._bell:
                os.close(end)
            os.dup2(2, 1)  # what plugins print must not come between the proxy's events
            host.run(fds[0], fds[1], sources, self._config.memory, set(command.without))
            status = 0
        except BaseException as error:
            print(f"plugin host: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(status)

    # -- hosts and files -------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Report which hosts have ended, and how; what they have started ends with them."""
        while self._hosts:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            number = self._hosts.pop(pid, None)
            _kill(pid)
            if number is not None:
                code = os.waitstatus_to_exitcode(status)
                how = f"exit status {code}" if code >= 0 else f"signal {-code} ({signal.strsignal(-code)})"
                self._report(ForkServerEventKind.ENDED, number, how)

    def _look(self) -> None:
        """Report files that were saved, once they have been the same for two looks: while it is saved a file may be empty or gone
        for a moment."""
        changed = False
        for path, before in self._watched.items():
            now = _signature(path)
            if now is None or now == before:
                continue
            if self._saving.get(path) == now:
                self._watched[path] = now
                changed = True
            self._saving[path] = now
        if changed:
            self._report(ForkServerEventKind.CHANGED)


def _kill(pid: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def _signature(path: str) -> _Signature | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def main() -> None:
    control, config = receive_settings(int(sys.argv[1]), PluginsConfig)
    gc.collect()
    gc.freeze()
    PluginForkServer(control, config).run()


if __name__ == "__main__":
    main()
