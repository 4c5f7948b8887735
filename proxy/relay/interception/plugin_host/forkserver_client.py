"""The relay's end of the forkserver (`forkserver`): starting it and hosts, and loading plugins once to check them."""

from __future__ import annotations

import json
import os
import select
import socket
import time

from .....plugins.hooks.plugin import PluginDescription
from .....plugins.hooks.sources import PluginError
from ....processes.channel import Channel
from ....processes.child import PACKET
from ....processes.children import start_child, wait_or_kill
from ....processes.serialization import from_named, to_named
from . import messages
from .config import PluginsConfig
from .running_hook import RunningHook, new_running_hook

LOAD_SECONDS = 20.0
"""A version that has not loaded within so long does not work."""
END_SECONDS = 2.0
BUFFER = 1 << 20


class HostProcess:
    """A host as it is seen from the outside. `plugins`: their descriptions, once it is ready."""

    def __init__(self, number: int, fresh: bool, channel: Channel, running_hook: RunningHook) -> None:
        self.number = number
        self.fresh = fresh
        self.channel = channel
        self.running_hook = running_hook
        self.plugins: list[PluginDescription] = []
        self.ready = False
        self.over = False
        """Whether it has reported why it ends."""

    def send(self, message: messages.ToHost, data: bytes = b"") -> bool:
        return self.channel.send(to_named(message), data)

    def receive(self) -> list[tuple[messages.ToRelay, bytes]]:
        return [(from_named(messages.ToRelay, fields), data) for fields, data in self.channel.receive()]


class ForkServerClient:
    """The process and our end of its socket. OSError if it cannot be started."""

    def __init__(self, config: PluginsConfig) -> None:
        self._child, self.control = start_child("relay.interception.plugin_host.forkserver", config, [])
        self.control.setblocking(False)
        self._number = 0

    def start(self, fresh: bool, without: list[str]) -> HostProcess:
        """A new host. `fresh`: with the files as they are now, otherwise as they were accepted. OSError if the forkserver is
        gone. It sends `Ready` or `LoadFailed`."""
        self._number += 1
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        running_hook, fd = new_running_hook()
        command = json.dumps(to_named(messages.StartHost(self._number, fresh, without))).encode()
        try:
            socket.send_fds(self.control, [command], [theirs.fileno(), fd])
        except BaseException:
            ours.close()
            running_hook.close()
            raise
        finally:
            theirs.close()
            os.close(fd)
        return HostProcess(self._number, fresh, Channel(ours), running_hook)

    def accept(self, host: HostProcess, files: list[str]) -> None:
        """The version that a host has loaded is the one to run from now on."""
        self._send(messages.AcceptVersion(host.number, files))

    def kill(self, host: HostProcess) -> None:
        self._send(messages.KillHost(host.number))

    def _send(self, command: messages.ToForkServer) -> None:
        try:
            self.control.send(json.dumps(to_named(command)).encode())
        except OSError:
            pass  # it is gone, as `receive` reports

    def receive(self) -> list[messages.ForkServerEvent] | None:
        """What has come; None: the forkserver is gone."""
        found: list[messages.ForkServerEvent] = []
        while True:
            try:
                packet = self.control.recv(PACKET)
            except BlockingIOError:
                return found
            except OSError:
                packet = b""
            if not packet:
                return found or None
            kind, number, text = json.loads(packet)
            found.append(messages.ForkServerEvent(messages.ForkServerEventKind(kind), number, text))

    def close(self) -> None:
        """End it, and its hosts with it."""
        self.control.close()
        wait_or_kill(self._child, END_SECONDS)


def check(config: PluginsConfig) -> list[PluginDescription]:
    """Descriptions of the plugins (`Plugin.describe`); PluginError with file and line of what is wrong."""
    for source in config.sources:
        source.read()
    try:
        forkserver = ForkServerClient(config)
    except OSError as error:
        raise PluginError(f"plugins cannot be loaded: {error.strerror or error}") from None
    host = None
    ended = False
    try:
        host = forkserver.start(True, [])
        poll = select.poll()
        poll.register(forkserver.control, select.POLLIN)
        poll.register(host.channel.fileno(), select.POLLIN)
        until = time.monotonic() + LOAD_SECONDS
        while (left := until - time.monotonic()) > 0:
            poll.poll(left * 1000)
            for message, _ in host.receive():
                if isinstance(message, messages.Ready):
                    return message.plugins
                if isinstance(message, messages.LoadFailed):
                    raise PluginError(message.text)
            if host.channel.closed and not ended:
                ended = True
                poll.unregister(host.channel.fileno())
            events = forkserver.receive()
            gone = messages.ForkServerEvent(messages.ForkServerEventKind.ENDED, 0, "the process that starts it has ended")
            for event in events if events is not None else [gone]:
                if event.kind is messages.ForkServerEventKind.FAILED:
                    raise PluginError(event.text)
                if event.kind is messages.ForkServerEventKind.ENDED:
                    raise PluginError(f"{_names(config)}: the process ended while it was loaded: {event.text}")
        raise PluginError(
            f"{_names(config)}: not loaded within {LOAD_SECONDS:g} s: its code outside methods takes too long"
        )
    except OSError as error:
        raise PluginError(f"plugins cannot be loaded: {error.strerror or error}") from None
    finally:
        forkserver.close()
        if host is not None:
            host.running_hook.close()


def _names(config: PluginsConfig) -> str:
    return ", ".join(source.given for source in config.sources)
