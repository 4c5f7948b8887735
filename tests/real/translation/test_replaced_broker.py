"""A broker is replaced by one of another release on its port: what it offered holds for its connections only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import NotTranslated, show
from barnabas.proxy.negotiation.security import TlsConfig
from barnabas.proxy.negotiation.version_negotiation import VersionsConfig
from harness.peers.certificates import client_context
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from kafka import KafkaProducer
from real.brokers.broker import free_ports
from real.brokers.old_broker import WITH_API_VERSIONS, WITH_GROUPS, start_old
from real.clients import confluent_client

pytestmark = pytest.mark.slow

HOW = ("plain", "workers", "TLS")
RELEASES = (WITH_API_VERSIONS, WITH_GROUPS, WITH_API_VERSIONS)


def kafka_python(bootstrap: str, ca: Path | None, topic: str) -> None:
    """A client that is told its broker's release, and asks for its versions only to say its name."""
    secure = {} if ca is None else {"security_protocol": "SSL", "ssl_context": client_context(ca)}
    producer = KafkaProducer(bootstrap_servers=bootstrap, api_version=(1, 0), enable_idempotence=False, **secure)
    try:
        assert producer.send(topic, b"as of 1.0").get(PATIENCE).offset == 0
    finally:
        producer.close()


def librdkafka(bootstrap: str, ca: Path | None, topic: str) -> None:
    """A client that uses the versions that it is offered."""
    secure = {} if ca is None else {"security.protocol": "ssl", "ssl.ca.location": str(ca)}
    confluent_client.send(bootstrap, topic, ["as offered"], **secure)


@pytest.mark.parametrize("how", HOW)
def test_the_next_connection_gets_the_new_range(tmp_path: Path, how: str) -> None:
    """0.10.2 reads Produce up to 2; 0.9 up to 1, and has no ApiVersions: with the wrong range it ends connections."""
    (port,) = free_ports(1)
    ca = tmp_path / "ca.pem" if how == "TLS" else None
    options: dict[str, Any] = {"tls": TlsConfig(ca=tmp_path)} if ca else {"workers": 2 if how == "workers" else 1}
    with Proxy(ProxyConfig(upstream=("127.0.0.1", port), versions=VersionsConfig(translate=True), **options)) as proxy:
        for number, release in enumerate(RELEASES):
            with start_old(release, port=port):
                for client in (kafka_python, librdkafka):
                    client(show(proxy.address), ca, f"{client.__name__}-{number}")
    assert [event for event in proxy.events() if isinstance(event, NotTranslated)] == []
