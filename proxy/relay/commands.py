"""Commands to the relay: from the control server by a channel of its own, and from the supervisor over the control socket, by which
workers hand each other listeners, too.

Each is a JSON object with `do`; where it has an `id`, an answer with the same `id` goes back: its fields, or `error`
(a kind: "missing", "exists", "invalid") and `text`. Nothing here waits. When the control server goes, whatever waits
for its decisions goes on.
"""

from __future__ import annotations

import socket
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...decoder.filter import FilterError
from ..events import Address, RulesKept, RulesReplaced
from ..interception.rules.live_rules import NoSuchRule, RuleEntry, RuleExists
from ..supervisor import messages
from ..supervisor.channel import Channel
from ..supervisor.child import PACKET

if TYPE_CHECKING:
    from .interfaces import RelayInterface

Answer = dict[str, Any]


class Commands:
    """Carries out the commands of the control server and the supervisor."""

    def __init__(self, relay: RelayInterface, channel: Channel | None) -> None:
        self._relay = relay
        self._channel = channel
        self._waits: dict[int, int] = {}  # id of a request for hits -> its number among the rules' waits

    # -- the channel -----------------------------------------------------------------------------------------

    def notify(self, message: dict[str, Any], data: bytes = b"") -> bool:
        """Send a notice to the control server; whether it is there."""
        return self._channel is not None and self._channel.send(message, data)

    def renew(self, channel: Channel) -> None:
        """Another control server asks from now on."""
        before, self._channel = self._channel, channel
        self._waits.clear()
        if before is not None:
            before.close()
            self._relay.lost_control(before)

    def ready(self, _: int) -> None:
        """The channel's socket can be read or written."""
        channel = self._channel
        if channel is None:
            return
        channel.flush()
        for message, data in channel.receive():
            if message.get("do") == "wait":
                self._wait(message)
            elif message.get("do") == "forget":
                self._relay.rules.forget(self._waits.pop(message["wait"], 0))
            else:
                channel.send({"id": message.get("id"), **self.do(message, data)})
        if channel.closed:
            self._channel = None
            self._relay.lost_control(channel)

    def do(self, message: dict[str, Any], data: bytes = b"") -> Answer:
        """Carry a command out; its answer."""
        try:
            return self._do(message, data)
        except NoSuchRule as error:
            return {"error": "missing", "text": str(error.args[0])}
        except RuleExists as error:
            return {"error": "exists", "text": str(error)}
        except FilterError as error:
            return {"error": "invalid", "text": error.message, "start": error.start, "end": error.end}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": "invalid", "text": f"{type(error).__name__}: {error}"}

    def _do(self, message: dict[str, Any], data: bytes) -> Answer:
        relay, rules, intercepts = self._relay, self._relay.rules, self._relay.intercepts
        match message:
            case {"do": "rules"}:
                return {"rules": rules.listed()}
            case {"do": "rules.add", "rules": added}:
                rules.add([RuleEntry.from_dict(each) for each in added])
                return {"rules": rules.listed()}
            case {"do": "rules.put", "rule": rule}:
                created = rules.put(RuleEntry.from_dict(rule))
                return {"rules": rules.listed(), "created": created}
            case {"do": "rules.replace", "rules": replacing}:
                rules.replace_all([RuleEntry.from_dict(each) for each in replacing])
                return {"rules": rules.listed()}
            case {"do": "rules.dump"}:
                return {"standing": rules.dump()}
            case {"do": "rules.remove", "name": name}:
                rules.remove(name)
                return {"rules": rules.listed()}
            case {"do": "rules.enable", "name": name, "enabled": enabled}:
                rules.enable(name, bool(enabled))
                return {"rules": rules.listed()}
            case {"do": "rules.hits", "name": name}:
                return rules.hits(name, int(message.get("since", 0)))
            case {"do": "brokers"}:
                relay.addresses.catch_up()
                return {"brokers": [asdict(found) for found in relay.addresses.found], "down": relay.down.named}
            case {"do": "brokers.down", "brokers": brokers}:
                relay.down.replace((str(host), int(port)) for host, port in brokers)
                return {"brokers": relay.down.named}
            case {"do": "plugins"}:
                return {"plugins": relay.plugins.listed() if relay.plugins is not None else []}
            case {"do": "close", "connection": number, "how": "fin" | "rst" as how}:
                connection = relay.connections.get(int(number))
                if connection is None:
                    return {"error": "missing", "text": f"no connection {number} is open"}
                connection.close(how, "control API")
                return {"closed": number, "how": how}
            case {"do": "intercepts"}:
                return {"intercepts": intercepts.listed()}
            case {"do": "intercepts.add"}:
                if self._channel is None:
                    raise ValueError("there is nobody to decide")
                return {"intercept": intercepts.add(message)}
            case {"do": "intercepts.remove", "intercept": number}:
                if not intercepts.remove(int(number)):
                    return {"error": "missing", "text": f"there is no intercept {number}"}
                return {"removed": number}
            case {"do": "intercepts.take", "intercepts": taken}:
                intercepts.take(taken)
                return {"intercepts": intercepts.listed()}
            case {"do": "intercepts.spent", "intercept": number}:
                intercepts.spent(int(number))
                return {}
            case {"do": "decide", "held": held, "action": action}:
                refused = intercepts.decide(int(held), str(action), data, str(message.get("how", "fin")))
                if refused:
                    return {"error": "invalid", "text": refused} if refused != "gone" else _not_held(held)
                return {"held": held, "action": action}
            case {"do": "extend", "held": held, "seconds": seconds}:
                return {"held": held} if intercepts.extend(int(held), float(seconds)) else _not_held(held)
        return {"error": "invalid", "text": f"the relay knows no command {message.get('do')!r} with these fields"}

    def _wait(self, message: dict[str, Any]) -> None:
        asked = message["id"]

        def on_hits(hits: int) -> None:
            self._waits.pop(asked, None)
            self.notify({"id": asked, "hits": hits})

        try:
            number = self._relay.rules.wait(message["name"], int(message["hits"]), on_hits)
        except NoSuchRule as error:
            self.notify({"id": asked, "error": "missing", "text": str(error.args[0])})
            return
        if number is not None:
            self._waits[asked] = number


def _not_held(held: object) -> Answer:
    return {"error": "missing", "text": f"held {held} does not wait any more"}


class SupervisorCommands:
    """The relay's end of the control socket."""

    def __init__(self, relay: RelayInterface) -> None:
        self._relay = relay
        self._unsent: list[tuple[messages.ListenerOpened | messages.ListenerClosed, socket.socket | None]] = []

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
            self._execute(messages.decode(packet), fds)
        else:
            self._relay.stop()

    def _execute(self, message: messages.Message, fds: list[int]) -> None:
        relay = self._relay
        match message:
            case messages.Stop(seconds):
                relay.drain(seconds)
            case messages.ReaderGone():
                relay.reader_gone()
            case messages.NewControlServer():
                relay.control_again(socket.socket(fileno=fds[0]))
            case messages.ReloadPlugins():
                if relay.plugins is not None:
                    relay.plugins.reload()
            case messages.AddListener(broker):
                listener = socket.socket(fileno=fds[0])
                if relay.draining:
                    listener.close()
                else:
                    relay.acceptor.add(listener, broker)
            case messages.ReplaceFileRules(rules):
                try:
                    relay.rules.replace_file([RuleEntry.from_file(each) for each in rules])
                    relay.emit(RulesReplaced(tuple(rule["name"] for rule in relay.rules.listed())))
                except RuleExists as error:
                    relay.emit(RulesKept(str(error)))

    def share(self, listener: socket.socket, broker: Address) -> None:
        """Give a new listener to the other workers, by way of the supervisor. Until they have it, this one serves."""
        self._send(messages.ListenerOpened(broker), listener)

    def unshare(self, broker: Address, port: int) -> None:
        """The listener was closed here; the supervisor is to close its own, too."""
        self._send(messages.ListenerClosed(broker, port), None)

    def tick(self) -> None:
        """About once a second: what could not be sent yet."""
        again, self._unsent = self._unsent, []
        for message, listener in again:
            if listener is None or listener.fileno() >= 0:
                self._send(message, listener)

    def _send(self, message: messages.ListenerOpened | messages.ListenerClosed, listener: socket.socket | None) -> None:
        control, packet = self._relay.control, messages.encode(message)
        try:
            if listener is None:
                control.send(packet, socket.MSG_DONTWAIT)
            else:
                socket.send_fds(control, [packet], [listener.fileno()], socket.MSG_DONTWAIT)
        except OSError:
            self._unsent.append((message, listener))  # no room now
