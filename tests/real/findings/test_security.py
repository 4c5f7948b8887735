"""A real broker with listeners of every kind behind the proxy, and real clients that come in the wrong way."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import ConnectionClosed
from harness.proxies import Proxy
from real.broker import HOST
from real.findings import scenarios_security as scenarios
from real.findings.secure_broker import PASSWORD, SecureCluster, start_secure_cluster

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureCluster]:
    with start_secure_cluster() as cluster:
        yield cluster


def findings_of(directory: Path) -> list[Finding]:
    inspector = Inspector()
    with open_capture(directory) as capture:
        for happening in capture.happenings():
            inspector.feed(happening)
    return [f for f in inspector.findings() if f.severity is not Severity.INFO]


def at_work(proxy: Proxy) -> None:
    """Wait until the proxy's processes have begun: on a busy machine that takes as long as these clients wait at all."""
    socket.create_connection(proxy.address, timeout=60).close()
    while not isinstance(event := proxy.next_event(60), ConnectionClosed):
        assert event is not None


# What the proxy's recording shows: its secrets are masked, and so is most of what is no Kafka.
@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (scenarios.plain, None),
        (scenarios.session_renewed, None),
        (scenarios.wrong_password, "sasl-authentication-failed"),
        (scenarios.wrong_mechanism, "sasl-mechanism-mismatch"),
        (scenarios.no_sasl, "request-before-authentication"),
        (scenarios.session_expires, "sasl-session-expired"),
        (scenarios.not_allowed, "authorization-failed"),
        (scenarios.tls_hello, "tls-on-plaintext-port"),
        (scenarios.plain_on_tls, "plaintext-on-tls-port"),
        (scenarios.http_probe, "foreign-protocol"),
        (scenarios.wrong_address, "unreachable-advertised-address"),
    ],
)
def test_through_the_proxy(secure: SecureCluster, tmp_path: Path, scenario, expected: str | None):
    port = getattr(secure, scenarios.RECORDED[scenario])
    found: list[Finding] = []
    for attempt in range(4):  # a client that gives up after seconds may not have come far on a busy machine
        record = tmp_path / str(attempt)
        with Proxy(ProxyConfig(upstream=(HOST, port), record=record)) as proxy:
            host, own = proxy.address
            at_work(proxy)
            scenario(f"{host}:{own}")
        found = findings_of(record)
        if expected is None or expected in {f.id for f in found}:
            break
    assert not any(PASSWORD in json.dumps(f.to_dict()) for f in found)
    if expected is None:
        assert [f.seen for f in found] == []
    else:
        assert expected in {f.id for f in found}
        assert {f.severity for f in found if f.id == expected} == {
            Severity.MEDIUM if expected in ("sasl-session-expired", "foreign-protocol") else Severity.HIGH
        }
