"""A Java client and brokers by name (SNI): its own look at certificates, in every major release."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.proxy.events import ConnectionOpened
from barnabas.proxy.relay.negotiation.security import TlsConfig
from real.brokers.secured import Secured
from real.clients import java_programs


@pytest.mark.slow
@pytest.mark.parametrize("release", ["3.9.1", "4.3.1", "4.4.0"])
def test_java_finds_brokers_by_name(secured: Secured, tmp_path: Path, release: str) -> None:
    """A hosts file stands for the DNS."""
    tls = TlsConfig(ca=secured.proxy_ca, broker_ca=secured.ca.path, sni_suffix="kafka.example")
    hosts = tmp_path / "hosts"
    names = ["kafka.example", *(f"broker-{node.node_id}.kafka.example" for node in secured.cluster.nodes)]
    hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in names))
    with secured.proxy("TLS", tls=tls, record=tmp_path / "recording") as running:
        bootstrap = f"kafka.example:{running.proxy.address[1]}"
        jars = java_programs.jars_of(release)
        options = [f"-Djdk.net.hosts.file={hosts}"]
        output = java_programs.run("ByName", jars, bootstrap, running.ca, "t", 4, options=options)
        assert output.strip() == "java 0,java 1,java 2,java 3"
    reached = {event.broker[1] for event in running.events(ConnectionOpened)}
    assert reached == {node.listeners["TLS"] for node in secured.cluster.nodes}
    assert not running.warnings()
    with open_capture(tmp_path / "recording") as capture:
        exchanges = list(capture.exchanges())
        hellos = [e.request_message for e in exchanges if e.api == "ApiVersions"]
        assert {hello["client_software_version"] for hello in hellos if hello is not None} == {release}
    assert not [exchange for exchange in exchanges if exchange.undecoded]
