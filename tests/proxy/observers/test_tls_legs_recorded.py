"""A proxy records which of its legs are TLS, and finds passwords in clear only where they are."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.decoder.connection.events import Opened
from barnabas.decoder.findings import Inspector
from barnabas.decoder.schema import facts
from barnabas.proxy.observers.ring_feed import ConnectionEnds
from barnabas.proxy.observers.traffic_decoder import TrafficDecoder
from barnabas.proxy.relay.negotiation.security import TlsConfig
from harness import wire
from harness.peers.certificates import client_context, make, server_context
from harness.testbed import Testbed

HANDSHAKE = facts.api_key("SaslHandshake")


@pytest.mark.parametrize("tls", [{"client", "broker"}, {"client"}, {"broker"}], ids=["both", "client", "broker"])
def test_the_legs_of_a_proxy(testbed: Testbed, tmp_path: Path, tls: set[str]) -> None:
    ca = make(tmp_path, "ca", ca=True)
    context = server_context(make(tmp_path, "broker", ("127.0.0.1", "localhost"), ca))

    def script(sock: socket.socket) -> None:
        end = context.wrap_socket(sock, server_side=True) if "broker" in tls else sock
        while frame := wire.read_frame(end):
            number = int.from_bytes(frame[8:12], "big")
            answer = decoder.encode_response(HANDSHAKE, 1, {"mechanisms": ["PLAIN"]}, correlation_id=number)
            end.sendall(wire.with_size(answer))

    config = TlsConfig(ca=tmp_path / "own" if "client" in tls else None, broker_ca=ca.path if "broker" in tls else None)
    proxy = testbed.proxy(testbed.broker(script).address, tls=config, record=tmp_path / "r")
    client: socket.socket = testbed.client(proxy.address)
    if "client" in tls:
        secure: ssl.SSLSocket = client_context(tmp_path / "own" / "ca.pem").wrap_socket(client, server_hostname="localhost")
        client = secure
    asked = decoder.encode_request(HANDSHAKE, 1, {"mechanism": "PLAIN"}, correlation_id=1, client_id="shop")
    assert wire.ask(client, wire.with_size(asked))
    client.close()
    proxy.stop()
    with open_capture(tmp_path / "r") as capture:
        (opened,) = (each for each in capture.events() if isinstance(each, Opened))
    assert opened.tls == tls
    inspector = Inspector(["credentials-in-clear"])
    with open_capture(tmp_path / "r") as capture:
        for event in capture.events():
            inspector.feed(event)
    assert [each.about["in_clear"] for each in inspector.findings()] == [[leg] for leg in ("client", "broker") if leg not in tls]


@pytest.mark.parametrize("tls", [{"client", "broker"}, {"client"}, set()], ids=["both", "client", "none"])
def test_findings_while_it_runs(tls: set[str]) -> None:
    """As the inspector of a proxy gets a connection."""
    inspector = Inspector()
    traffic = TrafficDecoder(inspector.feed)
    traffic.opened(1, 1, ConnectionEnds(("10.0.0.5", 40_000), ("10.0.0.9", 9092), tls=frozenset(tls)))
    for direction, frame in enumerate((
        decoder.encode_request(HANDSHAKE, 1, {"mechanism": "PLAIN"}, correlation_id=1),
        decoder.encode_response(HANDSHAKE, 1, {"mechanisms": ["PLAIN"]}, correlation_id=1),
    )):  # fmt: skip
        traffic.data(1, direction, 2 + direction, wire.with_size(frame))
    found = [each for each in inspector.findings() if each.id == "credentials-in-clear"]
    assert bool(found) is (tls != {"client", "broker"})
