"""A fault in the relay itself costs one connection, not the relay."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any

import pytest
from barnabas.proxy import events
from barnabas.proxy.relay.half_connection import HalfConnection
from barnabas.proxy.relay.loop import Relay
from barnabas.proxy.ring.ring import Ring
from barnabas.proxy.supervisor.child import ACCEPTING
from barnabas.proxy.supervisor.worker_shared_state import Board
from harness import wire
from harness.scripted import answering
from harness.testbed import Testbed
from harness.waiting import PATIENCE


def test_a_fault_costs_one_connection(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = testbed.broker(answering(b"ok"))
    ring = Ring.create()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    settings = {
        "ring": ring.fd,
        "board": Board.create(1, 0).fd,
        "bells": {},
        "room_bell": os.eventfd(0, os.EFD_NONBLOCK),
        "lossless": False,
        "upstream": broker.address,
        "listener": listener.detach(),
        "fixed_ports": False,
        "rules": [],
        "probe": False,
    }
    relay = Relay(theirs, settings)
    theirs.setblocking(False)
    thread = threading.Thread(target=relay.run)
    thread.start()
    assert ours.recv(65536) == ACCEPTING
    try:
        steady = testbed.client(address)
        steady.sendall(wire.request(18, 0, 1))
        assert wire.read_frame(steady) == wire.response(1, b"ok")
        with monkeypatch.context() as broken:

            def fail(self: HalfConnection, chunk: bytes, now: int) -> Any:
                if b"victim" not in chunk:  # bytes are sent before they are looked at: these may be the other client's
                    return sift(self, chunk, now)
                raise RuntimeError("out of luck")

            sift = HalfConnection.filter_frames
            broken.setattr(HalfConnection, "filter_frames", fail)
            victim = testbed.client(address)
            victim.sendall(wire.request(18, 0, 1, b"victim"))
            with pytest.raises(ConnectionResetError):
                victim.recv(100)
        steady.sendall(wire.request(18, 0, 2))
        assert wire.read_frame(steady) == wire.response(2, b"ok")
        while not isinstance(event := events.decode(ours.recv(65536)), events.RelayFault):
            pass
        assert "out of luck at fail" in event.text
    finally:
        ours.send(json.dumps({"do": "stop", "seconds": 0.1}).encode())
        thread.join(PATIENCE)
        os.close(settings["room_bell"])
        ours.close()
        theirs.close()
    assert not thread.is_alive()
