"""Connections that the proxy itself failed to establish are recorded, copied and found as such."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.decoder.connection.events import NEVER_ESTABLISHED, Closed, Opened
from barnabas.proxy.events import Event, LoginFailed
from barnabas.proxy.relay.negotiation.handshake import Security
from barnabas.proxy.relay.negotiation.sasl import SaslConfig
from barnabas.proxy.relay.negotiation.security import SecurityConfig
from harness import commands

from ..event_words import findings_of

NOW, SECOND = 1_795_223_022_000_000_000, 10**9
BROKER = ("10.0.0.1", 9092)


def recorded(directory: Path, failed: str, times: int = 8) -> Path:
    recorder = Recorder(directory)
    for n in range(times):
        recorder.opened(n + 1, NOW + n * SECOND, ("10.0.0.5", 40001 + n), BROKER, None, failed)
        recorder.closed(n + 1, NOW + n * SECOND + 1000, "rst", "")
    recorder.close()
    return directory


def found(path: Path) -> dict[str, Any]:
    return {finding.id: finding for finding in findings_of(path)}


@pytest.mark.parametrize("failed", NEVER_ESTABLISHED)
def test_the_reason_why_no_connection_was_established_is_kept(failed: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "a", failed)
    for place in (path, tmp_path / "b"):
        with open_capture(place) as capture:
            happened = list(capture.events())
        assert {h.how for h in happened if isinstance(h, Closed)} == {failed}
        assert not any(h.established for h in happened if isinstance(h, Opened))
        if place == path:
            assert commands.run("merge", path, path, "-o", tmp_path / "b").returncode == 0


@pytest.mark.parametrize(("failed", "what"), [("login", "the proxy's login"), ("tls", "the proxy's TLS handshake")])
def test_a_login_of_the_proxy_that_fails_is_no_refused_connection(failed: str, what: str, tmp_path: Path) -> None:
    by_id = found(recorded(tmp_path, failed))
    assert by_id["proxy-not-let-in"].seen.startswith(f"{what} at broker 10.0.0.1:9092 failed 8 times")
    assert not {"connection-refused", "advertised-address-unreachable"} & set(by_id)


def test_a_refusing_broker_is_still_reported(tmp_path: Path) -> None:
    by_id = found(recorded(tmp_path, "refused"))
    assert "connection-refused" in by_id and "proxy-not-let-in" not in by_id


@dataclass
class Connecting:
    """A connection that the proxy is logging in to its broker."""

    number: int = 1
    broker: tuple[str, int] = BROKER
    closed: bool = False
    established: bool = False
    failed: str = ""

    def give_up(self, why: str) -> None:
        self.failed = why


@dataclass
class Relay:
    """As much of a relay as security needs."""

    events: list[Event]

    def emit(self, event: Event) -> None:
        self.events.append(event)


def test_the_proxy_reports_its_failed_login() -> None:
    relay: Any = Relay([])
    connection: Any = Connecting()
    Security(relay, SecurityConfig(None, SaslConfig("PLAIN"))).login_failed(connection, "no such user")
    assert connection.failed == "login"
    assert relay.events == [LoginFailed(1, BROKER, "PLAIN", "no such user")]
