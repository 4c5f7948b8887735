"""Commands to the relay: from the control server by a channel of its own, and from the supervisor over the control socket, by which
workers hand each other listeners, too.

Each is a JSON object with `do`; where it has an `id`, an answer with the same `id` goes back: its fields, or `error`
(a kind: "missing", "exists", "invalid") and `text`. Nothing here waits. When the control server goes, whatever waits
for its decisions goes on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...decoder.filter import FilterError
from ..events import Address, RulesKept, RulesReplaced
from ..interception.rules.live_rules import NoSuchRule, RuleEntry, RuleExists
from ..supervisor.channel import Channel
from ..supervisor.child import PACKET
from ..supervisor.messages import (
    AddListener,
    ListenerClosed,
    ListenerOpened,
    Message,
    NewControlServer,
    ReaderGone,
    ReloadPlugins,
    ReplaceFileRules,
    Stop,
    decode,
    encode,
)  # fmt: skip

if TYPE_CHECKING:
    from .interfaces import RelayInterface

Answer = dict[str, Any]


class Commands:
    """Carries out the commands of the control server and the supervisor."""

    def __init__(self, relay: RelayInterface, channel: Channel | None) -> None:
        self._relay = relay
        self._channel = channel
        self._waits: dict[int, int] = {}  # id of a request for hits -> its number among the rules' waits
        self._known: dict[str, Callable[[dict[str, Any], bytes], Answer]] = {
            "rules": self._rules,
            "rules.add": self._rules_add,
            "rules.put": self._rules_put,
            "rules.replace": self._rules_replace,
            "rules.dump": self._rules_dump,
            "rules.remove": self._rules_remove,
            "rules.enable": self._rules_enable,
            "rules.hits": self._rules_hits,
            "brokers": self._brokers,
            "brokers.down": self._brokers_down,
            "plugins": self._plugins,
            "close": self._close,
            "intercepts": self._intercepts,
            "intercepts.add": self._intercepts_add,
            "intercepts.remove": self._intercepts_remove,
            "intercepts.take": self._intercepts_take,
            "intercepts.spent": self._intercepts_spent,
            "decide": self._decide,
            "extend": self._extend,
        }

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
        command = self._known.get(str(message.get("do")))
        if command is None:
            return {"error": "invalid", "text": f"the relay knows no command {message.get('do')!r}"}
        try:
            return command(message, data)
        except NoSuchRule as error:
            return {"error": "missing", "text": str(error.args[0])}
        except RuleExists as error:
            return {"error": "exists", "text": str(error)}
        except FilterError as error:
            return {"error": "invalid", "text": error.message, "start": error.start, "end": error.end}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": "invalid", "text": f"{type(error).__name__}: {error}"}

    # -- rules -----------------------------------------------------------------------------------------------

    def _rules(self, message: dict[str, Any], data: bytes) -> Answer:
        return {"rules": self._relay.rules.listed()}

    def _rules_add(self, message: dict[str, Any], data: bytes) -> Answer:
        self._relay.rules.add([RuleEntry.from_dict(each) for each in message["rules"]])
        return self._rules(message, data)

    def _rules_put(self, message: dict[str, Any], data: bytes) -> Answer:
        created = self._relay.rules.put(RuleEntry.from_dict(message["rule"]))
        return self._rules(message, data) | {"created": created}

    def _rules_replace(self, message: dict[str, Any], data: bytes) -> Answer:
        self._relay.rules.replace_all([RuleEntry.from_dict(each) for each in message["rules"]])
        return self._rules(message, data)

    def _rules_dump(self, message: dict[str, Any], data: bytes) -> Answer:
        return {"standing": self._relay.rules.dump()}

    def _rules_remove(self, message: dict[str, Any], data: bytes) -> Answer:
        self._relay.rules.remove(message["name"])
        return self._rules(message, data)

    def _rules_enable(self, message: dict[str, Any], data: bytes) -> Answer:
        self._relay.rules.enable(message["name"], bool(message["enabled"]))
        return self._rules(message, data)

    def _rules_hits(self, message: dict[str, Any], data: bytes) -> Answer:
        return self._relay.rules.hits(message["name"], int(message.get("since", 0)))

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

    # -- brokers and connections -----------------------------------------------------------------------------

    def _brokers(self, message: dict[str, Any], data: bytes) -> Answer:
        addresses = self._relay.addresses
        addresses.catch_up()
        return {"brokers": [asdict(found) for found in addresses.found], "down": self._relay.down.named}

    def _brokers_down(self, message: dict[str, Any], data: bytes) -> Answer:
        self._relay.down.replace((str(host), int(port)) for host, port in message["brokers"])
        return {"brokers": self._relay.down.named}

    def _plugins(self, message: dict[str, Any], data: bytes) -> Answer:
        plugins = self._relay.plugins
        return {"plugins": plugins.listed() if plugins is not None else []}

    def _close(self, message: dict[str, Any], data: bytes) -> Answer:
        how = message["how"]
        if how not in ("fin", "rst"):
            raise ValueError("how is fin or rst")
        connection = self._relay.connections.get(int(message["connection"]))
        if connection is None:
            return {"error": "missing", "text": f"no connection {message['connection']} is open"}
        connection.close(how, "control API")
        return {"closed": message["connection"], "how": how}

    # -- intercepts ------------------------------------------------------------------------------------------

    def _intercepts(self, message: dict[str, Any], data: bytes) -> Answer:
        return {"intercepts": self._relay.intercepts.listed()}

    def _intercepts_add(self, message: dict[str, Any], data: bytes) -> Answer:
        if self._channel is None:
            raise ValueError("there is nobody to decide")
        return {"intercept": self._relay.intercepts.add(message)}

    def _intercepts_remove(self, message: dict[str, Any], data: bytes) -> Answer:
        if not self._relay.intercepts.remove(int(message["intercept"])):
            return {"error": "missing", "text": f"there is no intercept {message['intercept']}"}
        return {"removed": message["intercept"]}

    def _intercepts_take(self, message: dict[str, Any], data: bytes) -> Answer:
        self._relay.intercepts.take(message["intercepts"])
        return self._intercepts(message, data)

    def _intercepts_spent(self, message: dict[str, Any], data: bytes) -> Answer:
        self._relay.intercepts.spent(int(message["intercept"]))
        return {}

    def _decide(self, message: dict[str, Any], data: bytes) -> Answer:
        decide = self._relay.intercepts.decide
        refused = decide(int(message["held"]), str(message["action"]), data, str(message.get("how", "fin")))
        if refused == "gone":
            return {"error": "missing", "text": f"held {message['held']} does not wait any more"}
        if refused:
            return {"error": "invalid", "text": refused}
        return {"held": message["held"], "action": message["action"]}

    def _extend(self, message: dict[str, Any], data: bytes) -> Answer:
        if not self._relay.intercepts.extend(int(message["held"]), float(message["seconds"])):
            return {"error": "missing", "text": f"held {message['held']} does not wait any more"}
        return {"held": message["held"]}


class SupervisorCommands:
    """The relay's end of the control socket."""

    def __init__(self, relay: RelayInterface) -> None:
        self._relay = relay
        self._unsent: list[tuple[ListenerOpened | ListenerClosed, socket.socket | None]] = []

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
            self._execute(decode(packet), fds)
        else:
            self._relay.stop()

    def _execute(self, message: Message, fds: list[int]) -> None:
        relay = self._relay
        match message:
            case Stop(seconds):
                relay.drain(seconds)
            case ReaderGone():
                relay.reader_gone()
            case NewControlServer():
                relay.control_again(socket.socket(fileno=fds[0]))
            case ReloadPlugins():
                if relay.plugins is not None:
                    relay.plugins.reload()
            case AddListener(broker):
                listener = socket.socket(fileno=fds[0])
                if relay.draining:
                    listener.close()
                else:
                    relay.acceptor.add(listener, broker)
            case ReplaceFileRules(rules):
                try:
                    relay.rules.replace_file([RuleEntry.from_file(each) for each in rules])
                    relay.emit(RulesReplaced(tuple(rule["name"] for rule in relay.rules.listed())))
                except RuleExists as error:
                    relay.emit(RulesKept(str(error)))

    def share(self, listener: socket.socket, broker: Address) -> None:
        """Give a new listener to the other workers, by way of the supervisor. Until they have it, this one serves."""
        self._send(ListenerOpened(broker), listener)

    def unshare(self, broker: Address, port: int) -> None:
        """The listener was closed here; the supervisor is to close its own, too."""
        self._send(ListenerClosed(broker, port), None)

    def tick(self) -> None:
        """About once a second: what could not be sent yet."""
        again, self._unsent = self._unsent, []
        for message, listener in again:
            if listener is None or listener.fileno() >= 0:
                self._send(message, listener)

    def _send(self, message: ListenerOpened | ListenerClosed, listener: socket.socket | None) -> None:
        control, packet = self._relay.control, encode(message)
        try:
            if listener is None:
                control.send(packet, socket.MSG_DONTWAIT)
            else:
                socket.send_fds(control, [packet], [listener.fileno()], socket.MSG_DONTWAIT)
        except OSError:
            self._unsent.append((message, listener))  # no room now
