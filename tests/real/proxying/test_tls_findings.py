"""TLS handshakes that fail, by real clients at a real broker: the proxy says so live, and the recording says the same."""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from barnabas.captures.reading.events import EventReader
from barnabas.decoder.findings import Inspector, Severity
from barnabas.proxy.events import FindingSeen
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from harness.peers.certificates import Certificate, client_context, make
from kafka import KafkaConsumer
from kafka.errors import KafkaError
from real.brokers.secured import Secured
from real.clients import java_programs
from real.clients.go import programs as go_clients

TRIES_S = 2.0
"""So long a client tries: several handshakes, the first of which already fails."""
Client = Callable[[str, Path, "Certificate | None", bool], None]


class Case(NamedTuple):
    """What is wrong: the listener, whether the client trusts its CA, the client's certificate, TLS 1.2 at most, and what the
    finding says."""

    listener: str
    trusts: bool = True
    certificate: str = ""
    old: bool = False
    says: str = "the client (sends (unknown_ca|certificate_unknown|bad_certificate|certificate_expired)|ends the handshake)"


CASES = {
    "unknown CA": Case("TLS", trusts=False),
    "unknown CA, TLS 1.2": Case("TLS", trusts=False, old=True),
    "expired": Case("EXPIRED"),
    "another name": Case("ELSEWHERE"),
    "no client certificate": Case("MTLS", says="the broker asks for a client certificate, the client sends none"),
    "no client certificate, TLS 1.2": Case("MTLS", old=True, says="the broker sends (bad_certificate|handshake_failure)"),
    "strange client certificate": Case(
        "MTLS", certificate="stranger", says="(the client sends none|right after the client's Finished)"
    ),
    "old version": Case("NEWEST", old=True, says="the broker sends (protocol_version|handshake_failure)"),
    "works": Case("TLS", says=""),
    "works with a certificate": Case("MTLS", certificate="client", says=""),
    "works, TLS 1.2": Case("TLS", old=True, says=""),
}


def librdkafka(bootstrap: str, ca: Path, own: Certificate | None, old: bool) -> None:
    settings = {"bootstrap.servers": bootstrap, "security.protocol": "ssl", "ssl.ca.location": str(ca), "log_level": 0}
    if own is not None:
        settings |= {"ssl.certificate.location": str(own.path), "ssl.key.location": str(own.key_path)}
    with contextlib.suppress(KafkaException):
        AdminClient(settings).list_topics(timeout=TRIES_S)


def kafka_python(bootstrap: str, ca: Path, own: Certificate | None, old: bool) -> None:
    context = client_context(ca)
    if own is not None:
        context.load_cert_chain(own.path, own.key_path)
    if old:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    with contextlib.suppress(KafkaError):
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, security_protocol="SSL", ssl_context=context, bootstrap_timeout_ms=int(1000 * TRIES_S)
        )
        consumer.topics()
        consumer.close()


def java(bootstrap: str, ca: Path, own: Certificate | None, old: bool) -> None:
    words = ["security.protocol=SSL", "ssl.truststore.type=PEM", f"ssl.truststore.location={ca}"]
    if own is not None:
        keystore = own.path.with_name(f"{own.path.stem}-own.pem")
        keystore.write_bytes(own.key_path.read_bytes() + own.path.read_bytes())
        words += ["ssl.keystore.type=PEM", f"ssl.keystore.location={keystore}"]
    if old:
        words.append("ssl.enabled.protocols=TLSv1.2")
    java_programs.run("OneRecord", java_programs.broker_jars(), bootstrap, "t", *words)


def go(library: str, bootstrap: str, ca: Path, own: Certificate | None, old: bool) -> None:
    go_clients.connect(library, bootstrap, TRIES_S, ca, None if own is None else (own.path, own.key_path), old)


CLIENTS: dict[str, Client] = {"librdkafka": librdkafka, "kafka-python": kafka_python, "java": java} | {
    library: partial(go, library) for library in go_clients.LIBRARIES
}
EVERY_DAY = {
    ("librdkafka", "unknown CA"), ("librdkafka", "no client certificate"), ("librdkafka", "works with a certificate"),
    ("kafka-python", "strange client certificate"), ("kafka-python", "old version"),
}  # fmt: skip
ALL = [
    pytest.param(client, name, marks=[] if (client, name) in EVERY_DAY else [pytest.mark.slow])
    for client in CLIENTS
    for name, case in CASES.items()
    if not (case.old and client == "librdkafka")  # which has no setting for the newest version of TLS
]


@pytest.mark.real
@pytest.mark.parametrize(("client", "name"), ALL)
def test_live_and_recording_say_what_fails(secured: Secured, tmp_path: Path, client: str, name: str) -> None:
    case = CASES[name]
    ca = secured.ca.path if case.trusts else make(tmp_path, "other", ca=True).path
    own = secured.client if case.certificate == "client" else None
    if case.certificate == "stranger":
        own = make(tmp_path, "stranger", (), make(tmp_path, "another", ca=True))
    with secured.proxy(case.listener, record=tmp_path / "recording", findings=True, findings_from="low") as running:
        CLIENTS[client](running.bootstrap, ca, own, case.old)
        if case.says:
            running.wait_for(FindingSeen)
    live = {(event.severity, event.finding, without_count(event.seen)) for event in running.events(FindingSeen)}

    inspector = Inspector()
    for event in EventReader(tmp_path / "recording").read():
        inspector.feed(event)
    found = [each for each in inspector.findings() if each.severity.rank >= Severity.LOW.rank]
    # A single refusal that shows no reason is medium, several are high: live it was both, one after the other.
    assert {each[1:] for each in live} == {(each.id, without_count(each.seen)) for each in found}
    if not case.says:
        assert found == []
        return
    assert found[0].id == "tls-handshake-failed" and found[0].severity.rank >= Severity.MEDIUM.rank
    assert re.search(case.says, found[0].seen), found[0].seen


def without_count(seen: str) -> str:
    return re.sub(r"\(?\b(once|\d+ times)\)?", "", seen).strip()
