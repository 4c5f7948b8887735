"""A real broker with listeners of every kind behind the proxy, and real clients that come in the wrong way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from barnabas.captures import NotACapture
from barnabas.decoder.findings import Finding, Severity
from harness.waiting import until
from real.brokers.broker import HOST
from real.findings.scenarios import security as scenarios
from real.findings.scenarios.scene import described, record
from real.findings.scenarios.secure_broker import PASSWORD, SecureCluster, start_secure_cluster
from traffic.recordings import findings

pytestmark = [pytest.mark.real, pytest.mark.slow]

Scenario = Callable[[str], Iterator[None] | None]


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureCluster]:
    with start_secure_cluster() as cluster:
        yield cluster


def above_info(recording: Path) -> list[Finding]:
    return [f for f in findings(recording) if f.severity is not Severity.INFO]


def so_far(recording: Path) -> list[Finding]:
    """What the recording of a running proxy shows; nothing before the first bytes are written."""
    try:
        return above_info(recording)
    except (FileNotFoundError, NotACapture):
        return []


# What the proxy's recording shows: its secrets are masked, and so is most of what is no Kafka.
@pytest.mark.parametrize(
    ("scenario", "expected", "severity"),
    [
        (scenarios.wrong_password, "sasl-authentication-failed", Severity.HIGH),
        (scenarios.plain, None, None),
        (scenarios.session_renewed, None, None),
        (scenarios.wrong_mechanism, "sasl-mechanism-mismatch", Severity.HIGH),
        (scenarios.no_sasl, "request-before-authentication", Severity.HIGH),
        (scenarios.session_expires, "sasl-session-expired", Severity.MEDIUM),
        (scenarios.not_allowed, "authorization-failed", Severity.HIGH),
        (scenarios.tls_hello, "tls-on-plaintext-port", Severity.HIGH),
        (scenarios.plain_on_tls, "plaintext-on-tls-port", Severity.HIGH),
        (scenarios.http_probe, "foreign-protocol", Severity.MEDIUM),
        (scenarios.wrong_address, "unreachable-advertised-address", Severity.HIGH),
    ],
)
def test_through_the_proxy(
    secure: SecureCluster, tmp_path: Path, scenario: Scenario, expected: str | None, severity: Severity | None
) -> None:
    def run(bootstrap: str) -> None:
        tries = scenario(bootstrap)
        if tries is not None:  # until what it does shows

            def found() -> bool:
                next(tries)
                return expected in {f.id for f in so_far(tmp_path / "recording")}

            until(found, lambda: described(so_far(tmp_path / "recording")))

    port = getattr(secure, scenarios.RECORDED[scenario])
    found = above_info(record((HOST, port), run, tmp_path))
    assert not any(PASSWORD in json.dumps(f.to_dict()) for f in found)
    if expected is None:
        assert found == [], described(found)
    else:
        assert {f.severity for f in found if f.id == expected} == {severity}, described(found)
