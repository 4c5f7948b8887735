"""Translation on a proxy's connections, in front of a broker that is scripted: order, own requests, refusals, acks=0."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import records
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from harness.wire import with_size

FIND, METADATA, PRODUCE = (facts.api_key(name) for name in ("FindCoordinator", "Metadata", "Produce"))


class OldBroker:
    """A broker that offers what 0.10.2 does, and answers some of it; `seen`: what it was asked, but for ApiVersions."""

    def __init__(self) -> None:
        self.seen: list[decoder.Message] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while frame := read(connection):
                message = decoder.decode_request(frame)
                if message.api != "ApiVersions":
                    self.seen.append(message)
                if message.api == "Produce" and message["acks"] == 0:
                    continue
                body = getattr(self, message.api)(message)
                key, version, correlation = decoder.peek_request(frame)
                write(connection, decoder.encode_response(key, version, body, correlation_id=correlation))

    def ApiVersions(self, message: decoder.Message) -> dict[str, Any]:
        offered = releases.release("0.10.2").offered.items()
        return {"api_keys": [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in offered]}

    def FindCoordinator(self, message: decoder.Message) -> dict[str, Any]:
        host, port = self.address
        return {"error_code": 0, "node_id": len(message["key"]), "host": host, "port": port}

    def Metadata(self, message: decoder.Message) -> dict[str, Any]:
        return {"brokers": [], "topics": [], "cluster_id": "old", "controller_id": 5}


def read(connection: socket.socket) -> bytes:
    """A frame without its size; b"" at the end."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        try:
            more = connection.recv(4 if len(data) < 4 else 4 + int.from_bytes(data[:4], "big") - len(data))
        except OSError:
            return b""
        if not more:
            return b""
        data += more
    return data[4:]


def write(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(with_size(frame))


@pytest.fixture
def broker() -> Iterator[OldBroker]:
    broker = OldBroker()
    yield broker
    broker.listener.close()


@pytest.fixture
def client(broker: OldBroker) -> Iterator[socket.socket]:
    config = ProxyConfig(upstream=broker.address, versions=VersionsConfig(translate=True))
    with Proxy(config) as proxy, socket.create_connection(proxy.address, 30) as client:
        yield client


def test_one_request_becomes_several_and_order_is_kept(broker: OldBroker, client: socket.socket) -> None:
    keys = {"key_type": 0, "coordinator_keys": ["a", "bb", "ccc"]}
    write(client, decoder.encode_request(FIND, 4, keys, correlation_id=1, client_id="new"))
    write(client, decoder.encode_request(METADATA, 7, {"topics": None}, correlation_id=2, client_id="new"))
    found = decoder.decode_response(read(client), api_key=FIND, api_version=4)
    assert found.header["correlation_id"] == 1
    assert [(c["key"], c["node_id"]) for c in found.to_dict()["coordinators"]] == [("a", 1), ("bb", 2), ("ccc", 3)]
    # what stands between still gives the proxy's own address for the broker's
    assert {c["port"] for c in found.to_dict()["coordinators"]} == {client.getpeername()[1]}
    metadata = decoder.decode_response(read(client), api_key=METADATA, api_version=7)
    assert metadata.header["correlation_id"] == 2 and metadata["cluster_id"] == "old" and metadata["controller_id"] == 5
    assert sorted((m.api, m.api_version) for m in broker.seen) == [("FindCoordinator", 0)] * 3 + [("Metadata", 2)]


def test_what_nobody_answers_and_what_is_refused_here(broker: OldBroker, client: socket.socket) -> None:
    batch = records.encode_batch([records.Record(0, 1, b"k", b"v")])
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
    fields = {"acks": 0, "timeout_ms": 1, "topic_data": topics}
    write(client, decoder.encode_request(PRODUCE, 7, fields, correlation_id=1, client_id="new"))
    producer = facts.api_key("InitProducerId")
    write(client, decoder.encode_request(producer, 0, {}, correlation_id=2, client_id="new"))
    write(client, decoder.encode_request(METADATA, 2, {"topics": []}, correlation_id=3, client_id="new"))
    refused = decoder.decode_response(read(client), api_key=producer, api_version=0)
    assert refused.header["correlation_id"] == 2 and refused["error_code"] == facts.error_code("UNSUPPORTED_VERSION")
    assert decoder.decode_response(read(client), api_key=METADATA, api_version=2).header["correlation_id"] == 3
    produced, _ = broker.seen
    assert (produced.api_version, produced.header["correlation_id"]) == (2, 1)
    (message,) = records.batches(produced["topic_data[0].partition_data[0].records"])
    assert message.magic == 1


def test_a_topic_id_that_an_old_broker_does_not_know_is_refused_behind_earlier_answers(client: socket.socket) -> None:
    write(client, decoder.encode_request(METADATA, 2, {"topics": []}, correlation_id=1, client_id="new"))
    by_id = {"topics": [{"topic_id": bytes(range(16)), "name": None}]}
    write(client, decoder.encode_request(METADATA, 11, by_id, correlation_id=2, client_id="new"))
    assert decoder.decode_response(read(client), api_key=METADATA, api_version=2).header["correlation_id"] == 1
    refused = decoder.decode_response(read(client), api_key=METADATA, api_version=11)
    assert refused.header["correlation_id"] == 2 and refused["topics[0].topic_id"].bytes == bytes(range(16))
    assert refused["topics[0].error_code"] == facts.error_code("UNSUPPORTED_VERSION")


def test_a_request_without_a_possible_answer_ends_the_connection_behind_earlier_answers(client: socket.socket) -> None:
    write(client, decoder.encode_request(METADATA, 2, {"topics": []}, correlation_id=1, client_id="new"))
    batch = records.encode_batch([records.Record(0, 1, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
    fields = {"transactional_id": "tx", "acks": 0, "timeout_ms": 1, "topic_data": topics}
    write(client, decoder.encode_request(PRODUCE, 7, fields, correlation_id=2, client_id="new"))
    assert decoder.decode_response(read(client), api_key=METADATA, api_version=2).header["correlation_id"] == 1
    assert read(client) == b""
