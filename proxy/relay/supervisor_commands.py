"""Commands of the supervisor over a relay's control socket, and the listeners that workers hand each other there."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from ..events import Address, RulesKept, RulesReplaced
from ..supervisor.child import PACKET

if TYPE_CHECKING:
    from .interfaces import RelayInterface

DRAIN_SECONDS = 5.0


class SupervisorCommands:
    """The relay's end of the control socket."""

    def __init__(self, relay: RelayInterface) -> None:
        self._relay = relay
        self._unsent: list[tuple[dict[str, Any], socket.socket | None]] = []

    def readable(self, _: int) -> None:
        """The control socket can be read."""
        control = self._relay.control
        try:
            packet, fds, _flags, _from = socket.recv_fds(control, PACKET, 4)
        except BlockingIOError:
            return
        except OSError:
            packet, fds = b"", []
        if packet:
            self._execute(json.loads(packet), fds)
        else:
            self._relay.stop()

    def _execute(self, message: dict[str, Any], fds: list[int]) -> None:
        relay = self._relay
        if message["do"] == "stop":
            relay.drain(message.get("seconds", DRAIN_SECONDS))
        elif message["do"] == "reader gone":
            relay.reader_gone()
        elif message["do"] == "commands":
            relay.control_again(socket.socket(fileno=fds[0]))
        elif message["do"] == "plugins.reload":
            if relay.plugins is not None:
                relay.plugins.reload()
        elif message["do"] == "listen":
            listener = socket.socket(fileno=fds[0])
            if relay.draining:
                listener.close()
            else:
                relay.acceptor.add(listener, tuple(message["broker"]))
        else:
            answer = relay.commands.do(message)
            rules = tuple(rule["name"] for rule in answer.get("rules", ()))
            relay.emit(RulesReplaced(rules) if "error" not in answer else RulesKept(str(answer["text"])))

    def share(self, listener: socket.socket, broker: Address) -> None:
        """Give a new listener to the other workers, by way of the supervisor. Until they have it, this one serves."""
        self._send({"share": broker}, listener)

    def unshare(self, broker: Address, port: int) -> None:
        """The listener was closed here; the supervisor is to close its own, too."""
        self._send({"unshare": broker, "port": port}, None)

    def tick(self) -> None:
        """About once a second: what could not be sent yet."""
        again, self._unsent = self._unsent, []
        for message, listener in again:
            if listener is None or listener.fileno() >= 0:
                self._send(message, listener)

    def _send(self, message: dict[str, Any], listener: socket.socket | None) -> None:
        control, packet = self._relay.control, json.dumps(message).encode()
        try:
            if listener is None:
                control.send(packet, socket.MSG_DONTWAIT)
            else:
                socket.send_fds(control, [packet], [listener.fileno()], socket.MSG_DONTWAIT)
        except OSError:
            self._unsent.append((message, listener))  # no room now
