"""Commands to the relay: from the control server by a channel of its own, and from the supervisor over the control socket, by which
workers hand each other listeners, too.

Those of the control server are described in `processes.control_messages`. Nothing here waits. When the control server ends, everything that waits
for its decisions goes on.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ...decoder.filter import FilterError
from ..events import Address, RulesKept, RulesReplaced
from ..processes import control_messages as control
from ..processes import messages
from ..processes.channel import Channel
from ..processes.child import PACKET
from ..processes.control_messages import Answers, Failure, Json, Refused
from .interception.rules.live_rules import NoSuchRule, RuleExists

if TYPE_CHECKING:
    from .interfaces import RelayInterface


class Commands:
    """Carries out the commands of the control server and the supervisor."""

    def __init__(self, relay: RelayInterface, channel: Channel | None) -> None:
        self._relay = relay
        self._channel = channel
        self._waits: dict[int, int] = {}  # id of a request for hits -> its number among the rules' waits

    # -- the channel -----------------------------------------------------------------------------------------

    def notify(self, notice: control.Notices, data: bytes = b"") -> bool:
        """Send a notice to the control server; whether it is there."""
        return self._channel is not None and self._channel.send(control.packed(notice), data)

    def _answer(self, number: int, answer: Answers) -> None:
        if self._channel is not None:
            self._channel.send(control.packed(answer, number))

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
        for packet, data in channel.receive():
            number = int(packet.pop("id"))
            answer = self._carry_out(number, packet, data)
            if answer is not None:
                self._answer(number, answer)
        if channel.closed:
            self._channel = None
            self._relay.lost_control(channel)

    def _carry_out(self, number: int, packet: Json, data: bytes) -> Answers | None:
        """Carry a command out; its answer, None if that comes later."""
        try:
            return self._do(number, control.command(packet), data)
        except NoSuchRule as error:
            return Refused(Failure.MISSING, str(error.args[0]))
        except RuleExists as error:
            return Refused(Failure.EXISTS, str(error))
        except FilterError as error:
            return Refused(Failure.INVALID, error.message, error.start, error.end)
        except (KeyError, TypeError, ValueError) as error:
            return Refused(Failure.INVALID, f"{type(error).__name__}: {error}")

    def _do(self, asked: int, command: control.Commands, data: bytes) -> Answers | None:
        relay, rules, intercepts = self._relay, self._relay.rules, self._relay.intercepts
        match command:
            case control.ListRules():
                return control.RuleList(rules.listed())
            case control.AddRules(added):
                rules.add(added)
                return control.RuleList(rules.listed())
            case control.PutRule(rule):
                created = rules.put(rule)
                return control.RulePut(rules.listed(), created)
            case control.ReplaceRules(replacing):
                rules.replace_all(replacing)
                return control.RuleList(rules.listed())
            case control.DumpRules():
                return control.RuleEntries(rules.entries())
            case control.RemoveRule(name):
                rules.remove(name)
                return control.RuleList(rules.listed())
            case control.EnableRule(name, enabled):
                rules.enable(name, enabled)
                return control.RuleList(rules.listed())
            case control.ListHits(name, since):
                return rules.hits(name, since)
            case control.AwaitHits(name, hits):
                self._wait(asked, name, hits)
                return None
            case control.ForgetWait(wait):
                rules.forget(self._waits.pop(wait, 0))
                return None
            case control.ListBrokers():
                relay.addresses.catch_up()
                return control.BrokerList(relay.addresses.found, list(relay.down.named))
            case control.KeepBrokersDown(brokers):
                relay.down.replace(brokers)
                return control.BrokersKeptDown(list(relay.down.named))
            case control.ListPlugins():
                return control.PluginList(relay.plugins.listed() if relay.plugins is not None else [])
            case control.CloseConnection(number, how):
                connection = relay.connections.get(number)
                if connection is None:
                    return Refused(Failure.MISSING, f"there is no open connection {number}")
                connection.close(how, "control API")
                return control.ConnectionClosed(number, how)
            case control.ListIntercepts():
                return control.InterceptList(intercepts.listed())
            case control.AddIntercept():
                return control.InterceptAdded(intercepts.add(command))
            case control.RemoveIntercept(number):
                if not intercepts.remove(number):
                    return Refused(Failure.MISSING, f"there is no intercept {number}")
                return control.Removed(number)
            case control.TakeIntercepts(taken):
                intercepts.take(taken)
                return control.InterceptList(intercepts.listed())
            case control.SpendIntercept(number):
                intercepts.spent(number)
                return control.Done()
            case control.Decide(held, action, how):
                refused = intercepts.decide(held, action, data, how)
                if refused:
                    return Refused(Failure.INVALID, refused) if refused != "gone" else _not_held(held)
                return control.Done()
            case control.ExtendHold(held, seconds):
                return control.Done() if intercepts.extend(held, seconds) else _not_held(held)
        return Refused(Failure.INVALID, f"the relay knows no command {type(command).__name__}")

    def _wait(self, asked: int, name: str, hits: int) -> None:
        def on_hits(count: int) -> None:
            self._waits.pop(asked, None)
            self._answer(asked, control.HitCount(count))

        number = self._relay.rules.wait(name, hits, on_hits)
        if number is not None:
            self._waits[asked] = number


def _not_held(held: int) -> Refused:
    return Refused(Failure.MISSING, f"held {held} is no longer waiting")


class SupervisorCommands:
    """The relay's end of the control socket."""

    def __init__(self, relay: RelayInterface) -> None:
        self._relay = relay
        self._unsent: list[tuple[messages.ListenerOpened | messages.ListenerClosed, socket.socket | None]] = []

    def readable(self, _: int) -> None:
        """The control socket can be read."""
        try:
            packet, fds, _flags, _from = socket.recv_fds(self._relay.control, PACKET, 4)
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
            case messages.Stop(until):
                relay.drain(until)
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
                    relay.rules.replace_file(rules)
                    relay.emit(RulesReplaced(tuple(rule.name for rule in relay.rules.listed())))
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
        supervisor, packet = self._relay.control, messages.encode(message)
        try:
            if listener is None:
                supervisor.send(packet, socket.MSG_DONTWAIT)
            else:
                socket.send_fds(supervisor, [packet], [listener.fileno()], socket.MSG_DONTWAIT)
        except OSError:
            self._unsent.append((message, listener))  # no room now
