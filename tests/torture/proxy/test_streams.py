"""SHA-256 of what goes in and what comes out, per direction and connection, through a proxy that runs: pieces of any
size, slow readers, half-close, with everything that may watch."""

from __future__ import annotations

import random
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.schema import facts
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import ConnectionClosed
from harness.proxies import Proxy
from harness.run.slices import only
from harness.scripted import Broker
from harness.waiting import PATIENCE, until
from harness.wire import connect, read_frame
from torture.proxy.peers.plain_clients import digest, echo, reset, sockets, taken, unfaulted, warm
from torture.proxy.peers.traffic import Author
from torture.proxy.test_correlation import heartbeat
from traffic.error_rules import error_rule

CONNECTIONS = 12
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recording": {"record": True},
    "findings": {"findings": True},
    "lossless": {"record": True, "lossless": True},
    "rules": {"rules": [error_rule("never", facts.api_key("Heartbeat"), 27, after=1 << 60)]},
    "everything": {
        "record": True,
        "findings": True,
        "lossless": True,
        "rules": [error_rule("never", facts.api_key("Fetch"), 1, after=1 << 60)],
    },
}


def streams(seed: int, count: int) -> tuple[bytes, bytes]:
    """What a client sends and what it is answered."""
    conversation = Author(seed).conversation(count, first=seed, most=400_000)
    return b"".join(e.request for e in conversation), b"".join(e.expected for e in conversation)


def send(sock: socket.socket, data: bytes, seed: int) -> None:
    """In pieces of one byte to everything, with pauses now and then; then the end."""
    chance = random.Random(seed)
    at = 0
    while at < len(data):
        size = chance.choice((1, 2, 3, 17, 1460, 5000, 65536, 300_000, 1 << 20))
        sock.sendall(data[at : at + size])
        at += size
        if chance.random() < 0.05:
            time.sleep(0.002)
    sock.shutdown(socket.SHUT_WR)


def receive(sock: socket.socket, seed: int) -> bytes:
    """To the end, sometimes slowly."""
    chance = random.Random(seed)
    got = bytearray()
    while part := sock.recv(chance.choice((1, 100, 4096, 1 << 20))):
        got += part
        if chance.random() < 0.01:
            time.sleep(0.005)
    return bytes(got)


@pytest.mark.slow
@pytest.mark.parametrize("way", only(WAYS, "everything"))
def test_digests(way: str, tmp_path: Path, scale: float) -> None:
    """The last of the connections closes its side first and goes on reading; brokers speak whenever they like."""
    options = dict(WAYS[way])
    if options.get("record"):
        options["record"] = tmp_path
    conversations = [streams(seed, int(40 * scale)) for seed in range(CONNECTIONS)]
    asked: dict[int, str] = {}
    answered: dict[int, str] = {}

    # Which conversation a broker's end belongs to has to be told by the bytes themselves: the first request's id.
    def script(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = b""
        while len(first) < 12:
            first += sock.recv(12 - len(first))
        number = int.from_bytes(first[8:12], "big")
        sender = threading.Thread(target=send, args=(sock, conversations[number][1], number))
        sender.start()
        asked[number] = digest(first + receive(sock, 100 + number))
        sender.join()

    def client(address: tuple[str, int], number: int) -> None:
        with connect(address) as sock:
            sender = threading.Thread(target=send, args=(sock, conversations[number][0], 50 + number))
            sender.start()
            answered[number] = digest(receive(sock, 150 + number))
            sender.join()

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False, **options)) as proxy:
        clients = [threading.Thread(target=client, args=(proxy.address, n)) for n in range(CONNECTIONS)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a connection that does not end"
        closed = 0
        while closed < CONNECTIONS:
            event = proxy.next_event(PATIENCE)
            assert event is not None, f"{closed} of {CONNECTIONS} connections have ended"
            assert not event.warning or type(event).__name__ == "NotInspected", event.text
            closed += isinstance(event, ConnectionClosed)
    assert asked == {n: digest(up) for n, (up, _) in enumerate(conversations)}
    assert answered == {n: digest(down) for n, (_, down) in enumerate(conversations)}
    if options.get("lossless"):
        with open_capture(tmp_path) as capture:
            assert not capture.lost
            assert sum(1 for _ in capture.exchanges()) >= CONNECTIONS * 30


def test_ends_at_any_point() -> None:
    """Scripted connections end in the middle of anything, by either side; nothing is left of them."""
    chance = random.Random(4)

    def script(sock: socket.socket) -> None:
        fate = chance.random()
        if fate < 0.4:
            echo(sock)
            return
        for _ in range(chance.randrange(4)):
            frame = read_frame(sock)
            sock.sendall((len(frame) + 4).to_bytes(4, "big") + frame[8:12] + frame)
        sock.sendall(b"\0\0\x10\0"[: chance.randrange(5)])
        if fate < 0.8:
            reset(sock)

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        relay = warm(proxy)
        base = sockets(relay)
        for round_ in range(120):
            frame = heartbeat(round_).request
            try:
                sock = connect(proxy.address)
            except ConnectionResetError:
                continue  # the broker was quicker
            try:
                for _ in range(chance.randrange(4)):
                    sock.sendall(frame)
                sock.sendall(frame[: chance.randrange(len(frame))])
                if chance.random() < 0.3:
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(4096):
                        pass
            except OSError:
                pass
            reset(sock) if chance.random() < 0.5 else sock.close()
        until(
            lambda: len(sockets(relay)) <= len(base), lambda: f"connections do not end: {base} became {sockets(relay)}"
        )
        events = taken(proxy)
        unfaulted(events)
        assert sum(isinstance(event, ConnectionClosed) for event in events) > 20
