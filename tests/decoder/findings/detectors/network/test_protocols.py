"""Other protocols on Kafka's port, on recorded traffic; what brokers cannot be made to do quickly is made up."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder.connection.events import Opened
from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.findings.detectors.network.first_bytes import alert, protocol
from barnabas.decoder.wire.frame import Direction
from harness.wire import with_size
from traffic.conversations import Conversations
from traffic.edited_exchanges import copied
from traffic.recordings import findings, one

OURS = [
    "tls-on-plaintext-port", "plaintext-on-tls-port", "tls-handshake-failed", "tls-traffic", "foreign-protocol",
    "frame-size", "closed-on-first-request",
]  # fmt: skip


def played(*connections: tuple[bytes, bytes], how: str = "fin", by: str = "broker") -> list[Finding]:
    """The findings of connections, each given as the bytes of client and broker."""
    conversation = Conversations(*OURS)
    for request_bytes, response in connections:
        connection = conversation.open()
        conversation.sent(connection, request_bytes)
        conversation.received(connection, response)
        conversation.close(connection, how, by)
        conversation.wait(1e-6)
    return conversation.findings()


@pytest.mark.parametrize(
    ("name", "id_", "severity", "words"),
    [
        ("tls-hello", "tls-on-plaintext-port", Severity.HIGH, "starts TLS 2 times on broker 127.0.0.1:9092"),
        ("plain-on-tls", "plaintext-on-tls-port", Severity.HIGH, "ApiVersions v3 in plaintext"),
        ("kafka-python-on-tls", "plaintext-on-tls-port", Severity.HIGH, "answers with TLS (alert internal_error)"),
        ("http-probe", "foreign-protocol", Severity.MEDIUM, "speaks HTTP to broker 127.0.0.1:9092 2 times"),
        ("proxy-protocol", "foreign-protocol", Severity.HIGH, "speaks the PROXY protocol"),
        ("redis-ping", "foreign-protocol", Severity.MEDIUM, "speaks Redis"),
        ("postgres", "foreign-protocol", Severity.MEDIUM, "speaks PostgreSQL"),
        ("oversize", "frame-size", Severity.HIGH, "a request of 105906216 bytes"),
        ("absurd-size", "frame-size", Severity.MEDIUM, "a frame of -16 bytes"),
        ("tls-session", "tls-traffic", Severity.INFO, "speaks TLS with broker 127.0.0.1:9092"),
    ],
)
def test_recorded(name: str, id_: str, severity: Severity, words: str) -> None:
    (found,) = findings(f"security-{name}", *OURS)
    assert (found.id, found.severity) == (id_, severity)
    assert words in found.seen
    assert found.first_ns and found.last_ns


def test_a_certificate_that_is_not_trusted() -> None:
    failed, session = findings("security-tls-untrusted", *OURS)
    assert (failed.id, failed.severity, failed.count) == ("tls-handshake-failed", Severity.HIGH, 3)
    assert "the client sends unknown_ca 3 times" in failed.seen and "truststore" in failed.remedy
    assert session.severity is Severity.INFO


@pytest.mark.parametrize("name", ["plain", "no-sasl", "wrong-password", "session-expires", "refused", "wrong-address"])
def test_other_troubles_are_not_of_this_kind(name: str) -> None:
    assert findings(f"security-{name}", *OURS) == []


def request(api: int, version: int) -> bytes:
    return with_size(decoder.encode_request(api, version, {}, correlation_id=1, client_id="shop"))


def answer(api: int, version: int) -> bytes:
    return with_size(decoder.encode_response(api, version, {}, correlation_id=1))


def test_silence_is_no_proof_of_tls_and_means_something_only_when_it_comes_again() -> None:
    assert played(*[(request(18, 3), b"")] * 2) == []
    (found,) = played(*[(request(18, 3), b"")] * 4)
    assert found.id == "closed-on-first-request" and found.count == 4 and "max.connections" in found.why
    # a client that gives up by itself, and a broker of 0.9: it closes on ApiVersions and answers the rest
    assert played(*[(request(18, 3), b"")] * 4, by="client") == []
    assert played((request(3, 1), answer(3, 1)), *[(request(18, 3), b"")] * 4) == []


def test_a_kafka_client_at_another_service() -> None:
    for alert_bytes, name in (
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"J\0\0\0\x0a8.0.36\0", "MySQL"),
        (b"E\0\0\0\x6bSFATAL\0VFATAL\0", "PostgreSQL"),
        (b"-ERR unknown command\r\n", "Redis"),
    ):
        (found,) = played((request(18, 3), alert_bytes))
        assert (
            found.id == "foreign-protocol" and found.severity is Severity.HIGH and f"with {name} instead of Kafka" in found.seen
        )


def test_large_responses_by_software() -> None:
    conversation = Conversations(*OURS)
    conversation.ask(conversation.open(), "Fetch", 4, {}, {})
    assert conversation.findings() == []
    fetched = copied(conversation.exchanges[0], response=bytes(100_000_001))
    found = one([Opened(1, fetched.client, fetched.broker, 1), fetched], "frame-size")
    assert found.severity is Severity.LOW
    assert "100000001 bytes" in found.seen and "receive.message.max.bytes" in found.why


@pytest.mark.parametrize(
    ("data", "side", "name"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 0, "TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x50", 1, "TLS"),
        (b"PRI * HT", 0, "HTTP/2"),
        (b"\x00\x00\x00\x25\x00\x03\x00\x00" + bytes(29), 0, "PostgreSQL"),
        (b"\x10\x0c\x00\x04MQTT", 0, "MQTT"),
        (b"\x00\x00\x00\x25\x00\x03\x00\x0c", 0, None),  # Metadata v12
        (b"\x00\x00\x00\x25\x00\x03\x00\x00", 0, None),  # Metadata v0, not whole
        (b"\x00\x00\x01\x00\x00\x00\x00\x01", 1, None),
    ],
)
def test_first_bytes(data: bytes, side: int, name: str | None) -> None:
    assert protocol(data, Direction(side)) == name
    # Eight bytes are what a redacted recording keeps, and enough but for a PostgreSQL start, which needs its length.
    assert protocol(data[:8], Direction(side)) in (name, None if name == "PostgreSQL" else name)


def test_alerts() -> None:
    assert alert(b"\x15\x03\x03\x00\x02\x02\x30") == (True, "unknown_ca")
    assert alert(b"\x15\x03\x03\x00\x02\x01\x00") == (False, "alert 0")  # close_notify
    assert alert(b"\x15\x03\x03\x00\x1a" + bytes(26)) is None  # encrypted
