"""Who ended a connection, as the recording has it: each side's FIN and RST, a broker that cannot be reached."""

from __future__ import annotations

import select
import socket
import struct
import threading
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.pcap.packets import FIN, endpoint, parse
from barnabas.captures.pcap.pcapng import CaptureReader
from barnabas.decoder import ExchangeDone
from barnabas.decoder.connection.events import Closed, ConnectionEvent, Opened
from barnabas.decoder.connection.exchange import State
from barnabas.proxy.events import ConnectionClosed, FindingSeen, UpstreamFailed
from harness import wire
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, attempts, until


def leave(sock: socket.socket, how: str) -> None:
    if how == "rst":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def end_of(sock: socket.socket) -> str:
    """How the stream ends for its reader."""
    try:
        return "fin" if sock.recv(1) == b"" else "data"
    except ConnectionResetError:
        return "rst"


def send_until_it_fails(sock: socket.socket, data: bytes, full: threading.Event) -> None:
    """`full` is set when nothing more is taken."""
    for _ in attempts(pause=0):
        if not select.select([], [sock], [], 0)[1]:
            full.set()
        sock.sendall(data)


def recorded(path: Path) -> list[ConnectionEvent]:
    with open_capture(path) as capture:
        return list(capture.events())


def closings(path: Path) -> list[tuple[str, str]]:
    return [(h.how, h.by) for h in recorded(path) if isinstance(h, Closed)]


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("by", ["client", "broker"])
def test_who_ended_it(testbed: Testbed, tmp_path: Path, how: str, by: str) -> None:
    """A FIN reaches the other side as FIN, a reset as reset."""
    ends: list[str] = []

    def script(sock: socket.socket) -> None:
        sock.sendall(wire.response(1, wire.read_frame(sock)))
        if by == "broker":
            leave(sock, how)
        else:
            ends.append(end_of(sock))

    proxy = testbed.proxy(testbed.broker(script).address, record=tmp_path)
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(18, 0, 1))
    if by == "client":
        leave(client, how)
    else:
        ends.append(end_of(client))
        client.close()
    assert until(lambda: ends) == [how]
    closed = next_event(proxy, ConnectionClosed)
    assert (closed.how, closed.by) == (how, by)
    assert f"({how} by {by})" in closed.text
    proxy.stop()
    assert closings(tmp_path) == [(how, by)]


@pytest.fixture(params=["accelerator", "pure Python"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy's processes with the accelerator and without."""
    if request.param == "pure Python":
        monkeypatch.setenv("BARNABAS_PURE", "1")


def fins(path: Path, broker: int) -> list[str]:
    """Whose FINs the client's leg of a recording has, which may still grow; `broker`: the broker's port."""
    found: list[str] = []
    for segment in sorted(path.glob("*.pcapng*")):
        with segment.open("rb") as file:
            for packet in CaptureReader(file).packets():
                parsed = parse(packet.linktype, packet.data, packet.size)
                if parsed is not None and parsed.flags & FIN and not packet.interface:
                    found.append("broker" if endpoint(parsed.source)[1] == broker else "client")
    return found


@pytest.mark.usefixtures("either")
def test_a_broker_ends_and_the_client_stays(testbed: Testbed, tmp_path: Path) -> None:
    """Clients in CLOSE_WAIT: the finding comes, and the broker's FINs are recorded, before a client closes."""
    broker = testbed.broker(wire.read_frame).address
    proxy = testbed.proxy(broker, record=tmp_path, findings=True)
    clients = [testbed.client(proxy.address) for _ in range(3)]
    for client in clients:
        client.sendall(wire.request(18, 0, 1))
        assert end_of(client) == "fin"
    found = next_event(proxy, FindingSeen)
    assert (found.finding, found.severity, found.count) == ("closed-on-first-request", "high", 3)
    assert until(lambda: fins(tmp_path, broker[1])[2:]) == ["broker"]
    clients[0].sendall(wire.request(3, 0, 2, bytes(4)))  # the broker is gone; it is recorded all the same
    assert next_event(proxy, ConnectionClosed).by == "broker"
    for client in clients[1:]:
        client.close()
        assert next_event(proxy, ConnectionClosed).by == "broker"
    proxy.stop()
    assert fins(tmp_path, broker[1]) == ["broker", "broker", "broker", "client", "client"]
    assert closings(tmp_path) == [("fin", "broker")] * 3
    states = [(e.exchange.correlation_id, e.exchange.state) for e in recorded(tmp_path) if isinstance(e, ExchangeDone)]
    assert sorted(states) == [*[(1, State.NO_RESPONSE)] * 3, (2, State.NO_RESPONSE)]
    assert {e.finding for e in proxy.events() if isinstance(e, FindingSeen)} <= {"closed-on-first-request"}


@pytest.mark.usefixtures("either")
def test_a_client_ends_and_the_broker_stays(testbed: Testbed, tmp_path: Path) -> None:
    """A broker that hangs: what it still sends reaches the client."""
    go = threading.Event()

    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        assert end_of(sock) == "fin"
        go.wait(PATIENCE)
        sock.sendall(wire.response(1))

    broker = testbed.broker(script).address
    proxy = testbed.proxy(broker, record=tmp_path, findings=True)
    client = testbed.client(proxy.address)
    client.sendall(wire.request(18, 0, 1))
    client.shutdown(socket.SHUT_WR)
    assert until(lambda: fins(tmp_path, broker[1])) == ["client"]
    go.set()
    assert wire.read_frame(client) == wire.response(1)
    assert next_event(proxy, ConnectionClosed).by == "client"
    proxy.stop()
    assert fins(tmp_path, broker[1]) == ["client", "broker"]
    assert closings(tmp_path) == [("fin", "client")]
    assert [e.exchange.state for e in recorded(tmp_path) if isinstance(e, ExchangeDone)] == [State.PAIRED]


def test_a_broker_that_resets_while_the_client_sends(testbed: Testbed, tmp_path: Path) -> None:
    """The reset shows when the proxy writes, not when it reads."""

    full = threading.Event()

    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        full.wait(PATIENCE)
        leave(sock, "rst")

    proxy = testbed.proxy(testbed.broker(script).address, record=tmp_path)
    client = testbed.client(proxy.address)
    with pytest.raises(OSError):
        send_until_it_fails(client, wire.request(18, 0, 1, bytes(100_000)), full)
    closed = next_event(proxy, ConnectionClosed)
    assert (closed.how, closed.by) == ("rst", "broker")


def test_the_proxy_itself(testbed: Testbed, tmp_path: Path) -> None:
    def script(sock: socket.socket) -> None:
        sock.sendall(wire.response(1, wire.read_frame(sock)))
        sock.recv(1)

    proxy = testbed.proxy(testbed.broker(script).address, record=tmp_path)
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(18, 0, 1))
    proxy.stop()
    assert closings(tmp_path) == [("fin", "")]


def test_a_broker_that_refuses(testbed: Testbed, tmp_path: Path) -> None:
    address = testbed.closed_port()
    proxy = testbed.proxy(address, record=tmp_path)
    for _ in range(2):
        client = testbed.client(proxy.address)
        assert client.recv(1) == b""
        failed = next_event(proxy, UpstreamFailed)
        assert failed.broker == address and "connection refused" in failed.text and "--broker" in failed.text
    proxy.stop()
    found = recorded(tmp_path)
    assert [type(h).__name__ for h in found] == ["Opened", "Closed"] * 2
    opened, closed = found[:2]
    assert isinstance(opened, Opened)
    assert isinstance(closed, Closed)
    assert (opened.established, opened.broker) == (False, f"127.0.0.1:{address[1]}")
    assert opened.client.startswith("127.0.0.1:")
    assert (closed.how, closed.by) == ("refused", "broker")


def test_a_broker_whose_name_is_unknown(testbed: Testbed, tmp_path: Path) -> None:
    proxy = testbed.proxy(("no-such-host.invalid", 9092), record=tmp_path)
    client = testbed.client(proxy.address)
    assert client.recv(1) == b""
    next_event(proxy, UpstreamFailed)
    proxy.stop()
    opened, closed = recorded(tmp_path)
    assert isinstance(opened, Opened)
    assert (opened.established, opened.broker) == (False, "no-such-host.invalid:9092")
    assert isinstance(closed, Closed)
    assert (closed.how, closed.by) == ("unreached", "")
