"""Brokers of one cluster, and a client's first request."""

from __future__ import annotations

import socket

from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.proxy.events import Address
from harness import wire
from harness.scripted import Broker
from harness.testbed import Testbed

METADATA = facts.api_key("Metadata")


class Cluster:
    """Brokers that name all of them, as `host`, and themselves as the controller; `left`: how many connections of each have ended."""

    def __init__(self, testbed: Testbed, count: int, host: str = "127.0.0.1") -> None:
        self._host = host
        self.left = [0] * count
        self.brokers: list[Broker] = [testbed.broker(lambda sock, n=n: self._serve(sock, n)) for n in range(count)]
        self.addresses: list[Address] = [(host, broker.address[1]) for broker in self.brokers]

    def _serve(self, sock: socket.socket, node: int) -> None:
        while frame := wire.read_frame(sock):
            named = [{"node_id": n, "host": self._host, "port": port} for n, (_, port) in enumerate(self.addresses)]
            fields = {"brokers": named, "controller_id": node}
            number = int.from_bytes(frame[8:12], "big")
            sock.sendall(wire.with_size(decoder.encode_response(METADATA, 9, fields, correlation_id=number)))
        self.left[node] += 1


def ask(client: socket.socket) -> tuple[int, dict[int, int]] | None:
    """Who answers, and the ports of all brokers; None when the connection ends instead."""
    try:
        frame = wire.ask_or_end(client, wire.with_size(decoder.encode_request(METADATA, 9, {}, correlation_id=1)))
    except OSError:
        frame = b""
    if not frame:
        return None
    message = decoder.decode_response(frame[4:], api_key=METADATA, api_version=9)
    return message["controller_id"], {each["node_id"]: each["port"] for each in message["brokers"]}
