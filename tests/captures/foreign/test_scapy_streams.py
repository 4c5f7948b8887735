"""The scapy layer in TCPSession: data that is not Kafka ends nothing, and a body names its API."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures.foreign.scapy_layer import KafkaRequest, KafkaResponse, body
from harness.wire import with_size
from scapy.packet import Raw
from scapy.sendrecv import sniff
from scapy.sessions import TCPSession
from traffic.packets import as_pcap, one_connection

METADATA = {"topics": [{"name": "orders"}]}
ASKED = with_size(decoder.encode_request(3, 1, METADATA, correlation_id=7, client_id="me"))
HANDSHAKE = with_size(decoder.encode_request(17, 0, {"mechanism": "PLAIN"}, correlation_id=6, client_id="me"))


def test_a_body_names_its_api() -> None:
    """The line that the documentation shows."""
    built = KafkaRequest(correlation_id=7, client_id="me") / body("request", 3, 1)(topics=[{"name": "orders"}])
    assert (built.api_key, built.api_version) == (3, 1)
    assert bytes(built) == ASKED
    header, _ = decoder.decode_request_header(bytes(built)[4:])
    assert (header["request_api_key"], header["request_api_version"]) == (3, 1)


def test_the_api_of_a_body_stays() -> None:
    """For frames that are wrong on purpose."""
    built = KafkaRequest(api_key=18, api_version=0, correlation_id=7, client_id="me") / body("request", 3, 1)()
    assert bytes(built)[4:8] == b"\0\x12\0\0"


def test_a_response_knows_the_header_of_its_api() -> None:
    built = KafkaResponse(correlation_id=7) / body("response", 3, 9)()
    assert (built.api_key, built.api_version) == (3, 9)
    assert bytes(built) == with_size(decoder.encode_response(3, 9, {}, correlation_id=7))


@pytest.mark.parametrize(
    "between",
    [
        with_size(b"\0alice\0open sesame"),  # a raw SASL token, as after SaslHandshake v0
        with_size(b"\0"),
        with_size(b""),
        b"\x7f\xff\xff\xff" + b"x" * 100,  # a frame of two gigabytes
        b"\xff\xff\xff\xff" + b"x" * 100,
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # the beginning of a TLS handshake
    ],
    ids=["token", "one byte", "empty", "oversize", "negative", "http", "tls"],
)
def test_data_that_is_not_kafka_stays_bytes(tmp_path: Path, between: bytes) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(as_pcap(one_connection((0, HANDSHAKE), (0, between), (0, ASKED))))
    found = sniff(offline=str(path), session=TCPSession)
    apis = [packet[KafkaRequest].api_key for packet in found if KafkaRequest in packet]
    assert apis[0] == 17
    assert 3 in apis
    assert any(Raw in packet and between[-5:] in bytes(packet[Raw]) for packet in found) or len(between) < 6
