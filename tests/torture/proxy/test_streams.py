"""SHA-256 of what goes in and what comes out, per direction and connection, through a proxy with everything that may watch."""

from __future__ import annotations

import random
import socket
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
from harness.waiting import until
from harness.wire import connect, read_frame
from torture.proxy import volume
from torture.proxy.peers.plain_clients import echo, reset, sockets, taken, unfaulted, warm
from torture.proxy.test_correlation import heartbeat
from traffic.error_rules import error_rule

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


@pytest.mark.slow
@pytest.mark.parametrize("way", only(WAYS, "everything"))
def test_digests(way: str, tmp_path: Path, scale: float) -> None:
    """Pieces of any size, slow readers, both sides speaking at once, each closing its own side first."""
    options = WAYS[way] | ({"record": tmp_path} if WAYS[way].get("record") else {})
    load = volume.Volume(1, cuts=False, exchanges=int(40 * scale))
    found = volume.run(load, 0.015 * scale, print, **options)
    assert found.warnings == [] and found.connections >= volume.AT_ONCE
    if options.get("lossless"):
        with open_capture(tmp_path) as capture:
            assert not capture.lost
            assert sum(1 for _ in capture.exchanges()) >= found.connections * 30


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
