"""Send a recorded request again, with fields changed if need be, and a warning of what that does.

It is sent through the proxy on a connection of its own, so that it is shown and recorded like any other. Its bytes, also the
client id, are those that were recorded, but for the fields that were changed.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ....captures import Row
from ....captures.replay.policy import Policy, administrative
from ....decoder import DecodeError, EncodeError, Exchange, Message, decode_response
from ....decoder.present import present
from ....decoder.schema import facts
from ....decoder.wire.frame import MAX_FRAME
from ....errors import BarnabasError
from ....proxy.control import ControlError
from ....proxy.events import Address
from ...safe import visible
from ...times import clock
from ..application import AppScreen
from ..dialogs.dialogs import Confirm
from ..keys import bindings
from ..model.columns import duration
from .body_editor import BadValue, EditTree, body_tree, from_yaml, to_yaml
from .side_screen import SideScreen

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 60.0
_READS = re.compile(r"Describe|List|Get|Find|Metadata|ApiVersions|Fetch|OffsetFetch|OffsetForLeaderEpoch|.*Describe$")


class NotSent(BarnabasError):
    """The request cannot be sent, or was not answered. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome. `client`: the address it was sent from; `error`: the name of the first error, or ""."""

    client: str
    latency_ns: int
    answered: bool
    error: str = ""


def why_not(exchange: Exchange) -> str:
    """Why a request cannot be sent again; "" if it can."""
    reason = Policy(admin=True, internal=True, refused=True).why_not(exchange)
    return f"it cannot be sent again: {reason}" if reason else ""


def warning(api_key: int) -> str:
    """What sending it again does; "" for an API that only reads."""
    name = facts.api_name(api_key)
    if _READS.match(name):
        return ""
    if administrative(api_key):
        return f"{name} alters or deletes something on the cluster, and will do so again"
    return f"{name} changes something on the cluster: sending it again may change it twice"


def listener(brokers: list[dict[str, Any]], row: Row) -> Address:
    """The proxy's address for the broker that the request was sent to; its bootstrap address where that is not known."""
    where = {f"{each['broker'][0]}:{each['broker'][1]}": each["listen"] for each in brokers if each["listen"]}
    first = next(each["listen"] for each in brokers if each["bootstrap"])
    host, port = where.get(row.broker, first)
    return ("127.0.0.1" if host in ("0.0.0.0", "::", "") else str(host)), int(port)


def expects_response(message: Message) -> bool:
    """Whether brokers answer the request."""
    return not (message.api == "Produce" and message["acks"] == 0)


def send(address: Address, message: Message) -> Sent:
    """Send a request and read the response. Raises `NotSent`."""
    where = f"{address[0]}:{address[1]}"
    frame = message.encode()
    try:
        connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
    except OSError as error:
        raise NotSent(f"the proxy does not accept connections at {where}: {error.strerror or error}") from None
    with connection:
        connection.settimeout(ANSWER_SECONDS)
        host, port = connection.getsockname()[:2]
        client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        began = time.monotonic_ns()
        try:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            if not expects_response(message):
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)  # until the broker has read the request and closes the connection
                return Sent(client, time.monotonic_ns() - began, False)
            size = int.from_bytes(_exactly(connection, 4), "big")
            if not 4 <= size <= MAX_FRAME:
                raise NotSent(f"the reply from {where} is not a Kafka response: does the proxy use TLS there?")
            answer = _exactly(connection, size)
        except TimeoutError:
            raise NotSent(f"no answer came from {where} in {ANSWER_SECONDS:g} s") from None
        except OSError as error:
            raise NotSent(f"the connection to {where} broke: {error.strerror or error}") from None
        took = time.monotonic_ns() - began
    return Sent(client, took, True, _error(message, answer))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise NotSent(
                "the connection ended without an answer: the broker requires a login or TLS that the recording cannot provide "
                "(barnabas replay logs in), or it refused the request"
            )
        data += part
    return bytes(data)


def _error(message: Message, answer: bytes) -> str:
    try:
        response = decode_response(answer, api_key=message.api_key, api_version=message.api_version)
    except DecodeError as fault:
        if fault.message is None:
            return "the answer cannot be decoded"
        response = fault.message
    return next((facts.error_name(code) for _, code in response.errors()), "")


SEARCH_EVERY, SEARCH_FOR = 0.25, 10.0
"""Seconds between two searches for the new exchange, and altogether."""
_NEWEST = 5000
"""The newest rows among which the new exchange is searched."""


class ResendScreen(SideScreen):
    """The request of a row, to be changed and sent."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("resend")
    AUTO_FOCUS = "EditTree"
    context = "resend"
    contexts = ("resend", "tree", "app")

    def __init__(self, row: Row, message: Message):
        super().__init__()
        self.row, self.message = row, message
        self.edits: dict[str, Any] = {}
        self.shown = present(message, False)
        self.fields_tree = EditTree("Request", id="fields")
        self._what = ("request", message.api_key, message.api_version)

    def body(self) -> Iterable[Widget]:
        return (self.fields_tree,)

    def begin(self) -> None:
        self._show(False)

    def _show(self, keep_place: bool = True) -> None:
        row = self.row
        self.fields_tree.show_body(body_tree(*self._what, self.shown, self.edits), keep_place)
        self.fields_tree.border_title = f"Request {self.message.api} v{self.message.api_version}"
        changed = f"  * {len(self.edits)} changed" if self.edits else ""
        self.headline.show([
            (" SEND AGAIN ", "label"), (f" #{row.number + 1} {self.message.api} v{self.message.api_version}", "title"),
            (f"  of {visible(row.client_id or row.client)}, {clock(row.time_ns)}", "muted"), (changed, "warning"),
        ])  # fmt: skip
        note = warning(self.message.api_key)
        self.about.show([(f" ! {note}" if note else " it only reads", "warning" if note else "muted")])

    def on_edit_tree_changed(self, event: EditTree.Changed) -> None:
        self.edits[event.path] = event.value
        self._show()

    # --- keys ----------------------------------------------------------------------------------------------

    def action_undo(self) -> None:
        self.edits.clear()
        self._show()

    def action_editor(self) -> None:
        from ..dialogs.editor import edit

        def take(text: str) -> str:
            try:
                self.edits = from_yaml(*self._what, self.shown, text)
            except BadValue as error:
                return str(error)
            return ""

        edit(
            self.app, "Edit the request", to_yaml(*self._what, self.shown, self.edits), take,
            remarks="Fields that you leave out keep their bytes.", done=self._show,
        )  # fmt: skip

    def action_send(self) -> None:
        note = warning(self.message.api_key)
        if not note:
            self._send()
            return
        self.app.push_screen(Confirm(f"{note}. Send it?"), lambda yes: self._send() if yes else None)

    def _send(self) -> None:
        try:
            message = self.message.replace(self.edits) if self.edits else self.message
        except (EncodeError, KeyError, IndexError, OverflowError) as error:
            self.notify(visible(str(error)), severity="error", timeout=6, markup=False)
            return
        app, row, control = self.app, self.row, self.session.control
        assert control is not None

        def work() -> None:
            try:
                done = send(listener(control.brokers(), row), message)
            except (NotSent, ControlError) as error:
                app.call_from_thread(_failed, self, f"#{row.number + 1} sent again: {error}")
            else:
                app.call_from_thread(_done, self, row, done)

        app.run_worker(work, thread=True, group="resend", exit_on_error=False)
        self.dismiss()


def resend(screen: AppScreen[Any], row: Row, exchange: Exchange) -> None:
    """Show the request before it is sent, or the reason why it cannot be."""
    session = screen.session
    message = exchange.request_message
    reason = why_not(exchange)
    if refused := session.read_only("barnabas replay sends it to a broker"):
        screen.notify(refused, severity="warning", timeout=4)
    elif reason or message is None:
        screen.notify(visible(reason or "its request cannot be decoded"), severity="warning", timeout=5, markup=False)
    else:
        screen.app.push_screen(ResendScreen(row, message))


def _failed(screen: AppScreen[Any], text: str) -> None:
    screen.session.add_to_log(text, True)
    screen.notify(visible(text), severity="error", timeout=8, markup=False)


def _done(screen: AppScreen[Any], row: Row, done: Sent) -> None:
    outcome = (f"! {done.error}" if done.error else "ok") if done.answered else "no response expected"
    text = f"#{row.number + 1} sent again from {done.client}: {outcome}, {duration(done.latency_ns)}"
    screen.session.add_to_log(text)
    screen.notify(text, timeout=4, markup=False)
    until = monotonic() + SEARCH_FOR

    def look() -> None:
        """Report the new exchange as soon as the recording has it."""
        rows = screen.session.capture.rows()
        for number in range(len(rows) - 1, max(len(rows) - 1 - _NEWEST, -1), -1):
            if rows[number].client == done.client:
                screen.notify(f"It is #{number + 1}: :go {number + 1} shows it.", timeout=5)
                screen.session.add_to_log(f"#{row.number + 1} sent again is #{number + 1}")
                return
        if monotonic() < until:
            screen.app.set_timer(SEARCH_EVERY, look)

    look()
