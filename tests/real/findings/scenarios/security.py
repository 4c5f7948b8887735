"""What keeps clients from a broker, or sends them away: each function does one such thing to an address.

A client that never gets through tries again and again: such a function is an iterator, and gives way after each moment of
that, for as long as it is asked.

`RECORDED`: which listener of `secure_broker` each takes for the recordings of tests/decoder/findings/captures.
They are foreign captures (dumpcap's, the port renumbered to 9092): what TCP shows of refusals and resets is in them,
and nothing in them is masked.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from time import sleep
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE, until
from kafka import KafkaProducer
from kafka.errors import KafkaError
from real.findings.scenarios.group_clients import poll
from real.findings.scenarios.raw_client import RawClient
from real.findings.scenarios.secure_broker import PASSWORD, SESSION_MS, USER


def _librdkafka(bootstrap: str, **config: Any) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "client.id": "shop", "log_level": 0, "error_cb": lambda _: None, **config}


def _sasl(mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def _tries(config: dict[str, Any]) -> Iterator[None]:
    """A producer that gets nowhere."""
    producer = Producer(config)
    producer.produce("open", b"x")
    try:
        while True:
            producer.poll(0.3)
            yield
    finally:
        producer.purge()


# --- who may come in ---------------------------------------------------------------------------------------


def plain(bootstrap: str) -> None:
    """PLAIN with the right password: nothing is wrong but that everybody can read it."""
    AdminClient(_librdkafka(bootstrap, **_sasl())).list_topics("open", timeout=PATIENCE)


def scram(bootstrap: str) -> None:
    """SCRAM with the right password."""
    AdminClient(_librdkafka(bootstrap, **_sasl("SCRAM-SHA-256"))).list_topics("open", timeout=PATIENCE)


def wrong_password(bootstrap: str) -> Iterator[None]:
    """PLAIN with a wrong password, tried again and again."""
    return _tries(_librdkafka(bootstrap, **_sasl(password="not-alices-secret")))


def wrong_password_scram(bootstrap: str) -> Iterator[None]:
    """The same with SCRAM."""
    return _tries(_librdkafka(bootstrap, **_sasl("SCRAM-SHA-256", "not-alices-secret")))


def wrong_mechanism(bootstrap: str) -> Iterator[None]:
    """SCRAM-SHA-512, which the listener has not enabled."""
    return _tries(_librdkafka(bootstrap, **_sasl("SCRAM-SHA-512")))


def sasl_on_plain_listener(bootstrap: str) -> Iterator[None]:
    """SASL where none is expected."""
    return _tries(_librdkafka(bootstrap, **_sasl(), **{"reconnect.backoff.ms": 200}))


def no_sasl(bootstrap: str) -> Iterator[None]:
    """A client without SASL at a listener that wants it."""
    return _tries(_librdkafka(bootstrap, **{"reconnect.backoff.ms": 200}))


def _authenticate(client: RawClient, password: str = PASSWORD) -> Any:
    client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
    return client.ask("SaslAuthenticate", 2, {"auth_bytes": f"\0{USER}\0{password}".encode()})


def session_expires(bootstrap: str) -> None:
    """A client that does not re-authenticate (KIP-368), twice."""
    for _ in range(2):
        client = RawClient(bootstrap, "shop")
        client.ask("ApiVersions", 3, {"client_software_name": "raw", "client_software_version": "1"})
        _authenticate(client)
        client.ask("Metadata", 12, {"topics": []})
        sleep(SESSION_MS / 1000 + 0.2)
        client.ask("Metadata", 12, {"topics": []})


def session_renewed(bootstrap: str) -> None:
    """librdkafka re-authenticates in time."""
    admin = AdminClient(_librdkafka(bootstrap, **_sasl()))
    for _ in range(5):
        admin.list_topics("open", timeout=PATIENCE)
        sleep(SESSION_MS / 2000)


def reauthentication_fails(bootstrap: str) -> None:
    """The password changed meanwhile."""
    client = RawClient(bootstrap, "shop")
    _authenticate(client)
    client.ask("Metadata", 12, {"topics": []})
    sleep(1.0)
    _authenticate(client, "no-longer-the-one")


def not_allowed(bootstrap: str) -> None:
    """alice produces to what she may only describe, reads what she may not see, and joins a group."""
    producer = Producer(_librdkafka(bootstrap, **_sasl("SCRAM-SHA-256")))
    for _ in range(3):
        with contextlib.suppress(KafkaException):  # by the second one it knows
            producer.produce("open", b"x")
            producer.flush(PATIENCE)
    consumer = Consumer(_librdkafka(bootstrap, **_sasl("SCRAM-SHA-256"), **{"group.id": "billing"}))
    consumer.subscribe(["closed"])
    until(lambda: poll(consumer), "the consumer is not refused")
    consumer.close()


# --- other protocols ----------------------------------------------------------------------------------------


def _handshakes(bootstrap: str, context: ssl.SSLContext, count: int) -> None:
    """So many TLS handshakes, whatever comes of them."""
    host, _, port = bootstrap.rpartition(":")
    for _ in range(count):
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port)), timeout=PATIENCE) as raw,
            context.wrap_socket(raw),
        ):
            pass


def tls_hello(bootstrap: str) -> None:
    """A TLS client at a listener in clear."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _handshakes(bootstrap, context, 2)


def tls_session(bootstrap: str) -> None:
    """TLS where TLS is spoken."""
    AdminClient(
        _librdkafka(
            bootstrap, **{"security.protocol": "SSL", "enable.ssl.certificate.verification": False}
        )
    ).list_topics(timeout=PATIENCE)  # fmt: skip


def tls_untrusted(bootstrap: str) -> None:
    """A client that does not trust the broker's certificate, in a TLS version whose alerts are in clear."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    _handshakes(bootstrap, context, 3)


def plain_on_tls(bootstrap: str) -> Iterator[None]:
    """A client in clear at a TLS listener."""
    return _tries(_librdkafka(bootstrap))


def kafka_python_on_tls(bootstrap: str) -> None:
    """kafka-python does the same, in its own way."""
    with contextlib.suppress(KafkaError):
        KafkaProducer(bootstrap_servers=bootstrap, client_id="shop", bootstrap_timeout_ms=2500)


def http_probe(bootstrap: str) -> None:
    """A health check by HTTP."""
    host, _, port = bootstrap.rpartition(":")
    for _ in range(2):
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/healthz")
            connection.getresponse()
        connection.close()


def send_bytes(bootstrap: str, data: bytes, wait: float = 1.0) -> None:
    """Send bytes, and wait for the end."""
    host, _, port = bootstrap.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=wait) as raw:
        raw.sendall(data)
        while raw.recv(4096):
            pass


def proxy_protocol(bootstrap: str) -> None:
    """A load balancer that puts a PROXY header in front, both versions of it."""
    send_bytes(bootstrap, b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9092\r\n")
    send_bytes(bootstrap, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12))


def redis_ping(bootstrap: str) -> None:
    """Somebody takes the port for Redis."""
    send_bytes(bootstrap, b"*1\r\n$4\r\nPING\r\n")


def postgres(bootstrap: str) -> None:
    """Somebody takes the port for PostgreSQL."""
    send_bytes(bootstrap, b"\0\0\0\x08\x04\xd2\x16\x2f", 0.5)


def oversize(bootstrap: str) -> None:
    """A request of 101 MiB is announced; brokers do not wait for it."""
    send_bytes(bootstrap, ((101 << 20) + 40).to_bytes(4, "big") + b"\0\0\0\x09\0\0\0\x01\0\x04shop\0" + bytes(20))


def absurd_size(bootstrap: str) -> None:
    """A negative size."""
    send_bytes(bootstrap, b"\xff\xff\xff\xf0\0\x12\0\x03")


# --- where it is -------------------------------------------------------------------------------------------


def wrong_address(bootstrap: str) -> Iterator[None]:
    """A producer that gets an address where nobody listens."""
    return _tries(_librdkafka(bootstrap))


def unknown_name(bootstrap: str) -> Iterator[None]:
    """A producer that gets a name which does not resolve: it never even tries to connect there."""
    return _tries(_librdkafka(bootstrap))


def unknown_name_group(bootstrap: str) -> Iterator[None]:
    """A consumer the same."""
    backoff = {"reconnect.backoff.ms": 500, "retry.backoff.ms": 500}
    consumer = Consumer(_librdkafka(bootstrap, **{"group.id": "billing"}, **backoff))
    consumer.subscribe(["open"])
    while True:
        consumer.poll(0.3)
        yield


def refused(bootstrap: str) -> Iterator[None]:
    """A client of a broker that is down."""
    return _tries(_librdkafka(bootstrap, **{"reconnect.backoff.max.ms": 800}))


def listing(bootstrap: str) -> None:
    """A monitor that only lists, all of it well."""
    admin = AdminClient(_librdkafka(bootstrap))
    for _ in range(8):
        admin.list_topics("open", timeout=PATIENCE)
        sleep(0.8)


RECORDED = {
    plain: "sasl", scram: "sasl", wrong_password: "sasl", wrong_password_scram: "sasl", wrong_mechanism: "sasl",
    sasl_on_plain_listener: "plain", no_sasl: "sasl", session_expires: "sasl",
    session_renewed: "sasl", reauthentication_fails: "sasl", not_allowed: "sasl",
    tls_hello: "plain", tls_session: "tls", tls_untrusted: "tls", plain_on_tls: "tls", kafka_python_on_tls: "tls",
    http_probe: "plain", proxy_protocol: "plain", redis_ping: "plain", postgres: "plain", oversize: "plain",
    absurd_size: "plain", wrong_address: "wrong", unknown_name: "named", unknown_name_group: "named", refused: "closed", listing: "plain",
}  # fmt: skip
