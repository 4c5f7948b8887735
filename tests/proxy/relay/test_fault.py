"""A fault in the relay itself costs one connection, not the relay."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas.proxy import events
from barnabas.proxy.processes.messages import Accepting, decode
from barnabas.proxy.relay.connections.half_connection import HalfConnection
from harness import wire
from harness.run.relays import running_relay
from harness.scripted import answering
from harness.testbed import Testbed


def test_a_fault_costs_one_connection(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = testbed.broker(answering(b"ok"))
    with running_relay(broker.address) as running:
        ours = running.supervisor
        assert decode(ours.recv(65536)) == Accepting()
        steady = testbed.client(running.address)
        assert wire.ask(steady, wire.request(18, 0, 1)) == wire.response(1, b"ok")
        with monkeypatch.context() as broken:

            def fail(self: HalfConnection, chunk: bytes, now: int) -> Any:
                if b"victim" not in chunk:  # bytes are sent before they are looked at: these may be the other client's
                    return sift(self, chunk, now)
                raise RuntimeError("out of luck")

            sift = HalfConnection.filter_frames
            broken.setattr(HalfConnection, "filter_frames", fail)
            victim = testbed.client(running.address)
            victim.sendall(wire.request(18, 0, 1, b"victim"))
            with pytest.raises(ConnectionResetError):
                victim.recv(100)
        assert wire.ask(steady, wire.request(18, 0, 2)) == wire.response(2, b"ok")
        while not isinstance(event := decode(ours.recv(65536)), events.RelayFault):
            pass
        assert "out of luck at fail" in event.text
