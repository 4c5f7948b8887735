"""The options of `barnabas proxy` for TLS and SASL: what they become, and what is said when they cannot work."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.negotiation.security import TlsConfig
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.proxy.options import PASSWORD_VARIABLE, SaslOptions
from barnabas.ui.cli.proxy.running import bootstrap_line
from harness.slices import slow
from harness.waiting import PATIENCE

CANARY = "canary-3Lm"


def proxy(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "barnabas", "proxy", "--broker", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
    return subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=PATIENCE, env=os.environ | environment
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tls-cert", "x.pem"], "--tls-key"),
        slow((["--sni-suffix", "kafka.example"], "--tls-ca")),
        (["--broker-ca", "missing.pem"], "--broker-ca"),
        slow((["--sasl-username", "alice"], "--sasl-mechanism")),
        slow((["--sasl-mechanism", "plain", "--sasl-username", "alice"], "--sasl-password-file")),
        (["--sasl-mechanism", "PLAIN", "--sasl-username", "a", "--sasl-password-file", "missing"], "cannot be read"),
        slow((["--sasl-mechanism", "GSSAPI"], "leave --sasl-mechanism out")),
    ],
)
def test_what_cannot_work_is_said_in_a_line(options: list[str], words: str, tmp_path: Path) -> None:
    done = proxy(*options)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


def test_the_password_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text(f" {CANARY} \n")
    monkeypatch.setenv(PASSWORD_VARIABLE, "from the environment")
    made = SaslOptions("plain", "alice").config()
    assert made is not None and (made.mechanism, made.secret) == ("PLAIN", "from the environment")
    assert PASSWORD_VARIABLE not in os.environ  # the proxy's processes do not inherit it
    made = SaslOptions("PLAIN", "alice", file).config()
    assert made is not None and made.secret == f" {CANARY} "
    assert CANARY not in repr(made)
    assert SaslOptions().config() is None
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Failure, match="no text"):
        SaslOptions("PLAIN", "alice", file).config()


def test_clients_are_told_where_to_begin() -> None:
    config = ProxyConfig(upstream=("kafka", 9092))
    assert bootstrap_line(config, ("127.0.0.1", 19092)) == "clients: bootstrap.servers=127.0.0.1:19092"
    config = replace(config, tls=TlsConfig(ca=Path("ca"), sni_suffix="Kafka.Example"))
    told = bootstrap_line(config, ("0.0.0.0", 19092))
    assert told.startswith("clients: bootstrap.servers=kafka.example:19092 ") and "broker-ID.kafka.example" in told


def test_what_turns_tls_on() -> None:
    assert not TlsConfig().clients and not TlsConfig().brokers
    assert TlsConfig(ca=Path("x")).clients and TlsConfig(certificate=Path("x")).clients
    assert TlsConfig(broker=True).brokers and TlsConfig(broker_ca=Path("x")).brokers
    assert TlsConfig(broker_insecure=True).brokers and TlsConfig(broker_name="x").brokers
