"""Clients that come all at once: those that have left again cost next to nothing, and nobody is forgotten."""

from __future__ import annotations

import os
import signal
import socket
import struct
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.proxy.events import Address, ClientLeft, ConnectionOpened, show
from barnabas.proxy.relay.io.acceptor import MOST_AT_ONCE
from barnabas.proxy.supervisor.supervisor import Proxy
from harness import wire
from harness.scripted import echo
from harness.testbed import Testbed
from harness.waiting import PATIENCE

REQUEST = wire.request(18, 0, 7)


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


class Paused:
    """The relays take no clients meanwhile: these wait in the kernel."""

    def __init__(self, proxy: Proxy) -> None:
        self._pids = [child.pid for name, child in proxy._children.items() if name.startswith(("relay", "worker"))]
        assert self._pids

    def __enter__(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("workers", [1, 2])
def test_clients_that_reset_before_they_are_accepted(testbed: Testbed, tmp_path: Path, workers: int) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, record=tmp_path / "rec", workers=workers)
    with Paused(proxy):
        gone = [testbed.client(proxy.address) for _ in range(50)]
        said = testbed.client(proxy.address)
        addresses = {client.getsockname() for client in gone}
        spoke = said.getsockname()
        said.sendall(REQUEST)
        for client in (*gone, said):
            reset(client)
        last = testbed.client(proxy.address)
    assert wire.ask(last, REQUEST)
    kept = {spoke, last.getsockname()}
    left: set[Address] = set()
    opened: set[Address] = set()
    while len(left) < len(gone) or len(opened) < len(kept):
        event = proxy.next_event(PATIENCE)
        assert event is not None, (left, opened)
        left |= {event.client} if isinstance(event, ClientLeft) else set()
        opened |= {event.client} if isinstance(event, ConnectionOpened) else set()
    assert (left, opened) == (addresses, kept)
    last.close()
    proxy.stop()
    with open_capture(tmp_path / "rec") as capture:  # what the other one has sent before it left is kept
        assert {exchange.client for exchange in capture.exchanges()} == set(map(show, kept))


@pytest.mark.parametrize("workers", [1, 2])
def test_all_of_many_are_served(testbed: Testbed, workers: int) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, workers=workers)
    with Paused(proxy):
        clients = [testbed.client(proxy.address) for _ in range(2 * MOST_AT_ONCE + 5)]
    for client in clients:
        assert wire.ask(client, REQUEST)
