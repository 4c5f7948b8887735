"""A broker that cannot be reached: what clients try is read, reported and recorded, and nobody waits long."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.connection.events import Closed, Opened
from barnabas.proxy.events import Address, ClientTried, UpstreamFailed
from harness import wire
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE


@pytest.fixture
def nobody(testbed: Testbed) -> Address:
    """An address where nobody listens."""
    return testbed.closed_port()


def test_the_first_requests_are_reported_and_recorded(testbed: Testbed, tmp_path: Path, nobody: Address) -> None:
    proxy = testbed.proxy(nobody, record=tmp_path)
    client = testbed.client(proxy.address)
    client.sendall(wire.request(18, 0, 1) + wire.request(3, 8, 2, b"\xff\xff\xff\xff\x00\x00\x00"))
    assert client.recv(1) == b""  # in order: everything was read
    tried = next_event(proxy, ClientTried)
    assert tried.requests == ("ApiVersions v0", "Metadata v8")
    assert tuple(tried.client) == client.getsockname() and tuple(tried.broker) == nobody
    assert "ApiVersions v0, Metadata v8" in tried.text
    proxy.stop()
    with open_capture(tmp_path) as capture:
        found = [(e.api_key, e.api_version, e.state) for e in capture.exchanges()]
        happened = [h for h in capture.events() if isinstance(h, (Opened, Closed))]
    assert found == [(18, 0, "no_response"), (3, 8, "no_response")]
    opened, closed = happened
    assert isinstance(opened, Opened) and not opened.established
    assert isinstance(closed, Closed) and (closed.how, closed.by) == ("refused", "broker")


def test_a_request_that_comes_a_little_later(testbed: Testbed, nobody: Address) -> None:
    proxy = testbed.proxy(nobody)
    client = testbed.client(proxy.address)
    next_event(proxy, UpstreamFailed)
    frame = wire.request(18, 3, 1)
    client.sendall(frame[:7])
    testbed.client(proxy.address)
    next_event(proxy, UpstreamFailed)  # of that one: the relay has read the half frame by then
    client.sendall(frame[7:])
    assert next_event(proxy, ClientTried).requests == ("ApiVersions v3",)
    assert client.recv(1) == b""


@pytest.mark.parametrize("sent", [b"", b"\0\0\0"])
def test_a_client_that_sends_no_whole_request_is_not_kept(testbed: Testbed, nobody: Address, sent: bytes) -> None:
    proxy = testbed.proxy(nobody)
    client = testbed.client(proxy.address)
    client.sendall(sent)
    assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("sent", "text"),
    [(b"GET / HTTP/1.1\r\n\r\n", "HTTP"), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS")],
)
def test_what_is_no_kafka(testbed: Testbed, nobody: Address, sent: bytes, text: str) -> None:
    proxy = testbed.proxy(nobody)
    testbed.client(proxy.address).sendall(sent)
    assert text in next_event(proxy, ClientTried).text


def test_a_flood_is_bounded(testbed: Testbed, nobody: Address) -> None:
    proxy = testbed.proxy(nobody)
    client = testbed.client(proxy.address)
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        client.sendall((b"\0\x10\0\0" + bytes(1 << 20)) * 50)


def test_clients_that_come_again_and_again(testbed: Testbed, nobody: Address) -> None:
    """Nothing piles up, and a broker that comes back is reached."""
    proxy = testbed.proxy(nobody)
    for _ in range(100):
        with socket.create_connection(proxy.address, timeout=PATIENCE) as client:
            client.sendall(wire.request(18, 0, 1))
            assert client.recv(1) == b""
    with socket.create_server(nobody) as server:
        client = testbed.client(proxy.address)
        sock, _ = server.accept()
        with sock:
            client.sendall(wire.request(18, 0, 1))
            assert wire.read_frame(sock) == wire.request(18, 0, 1)


def test_stopping_does_not_wait_for_them(testbed: Testbed, nobody: Address) -> None:
    proxy = testbed.proxy(nobody, drain_seconds=600.0)  # longer than a test may take
    client = testbed.client(proxy.address)
    next_event(proxy, UpstreamFailed)
    proxy.stop()
    assert client.recv(1) == b""
