"""A broker is replaced by one of another release on its port: what it offered holds for its connections only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import NotTranslated, OffersLearned, show
from barnabas.proxy.relay.addressing.transparent import EVERYWHERE, TransparentConfig
from barnabas.proxy.relay.negotiation.sasl import SaslConfig
from barnabas.proxy.relay.negotiation.security import TlsConfig
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from harness.peers.certificates import client_context
from harness.peers.namespaces import Namespaces, inside, missing, run_in
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from kafka import KafkaProducer
from matrix.brokers import BROKERS
from real.brokers.broker import HOST, JVM, free_ports, start_cluster
from real.brokers.old_broker import OLDEST, WITH_API_VERSIONS, WITH_GROUPS, OldBroker, start_old
from real.brokers.secured import JAAS, PASSWORD, USER, add_scram_users
from real.clients import confluent_client

pytestmark = pytest.mark.slow

HOW = ("plain", "workers", "TLS")
MIDDLE, NEWEST = "2.8.2", "4.4.0"
RELEASES = (WITH_API_VERSIONS, OLDEST, NEWEST, WITH_GROUPS, MIDDLE)
TRANSLATE = VersionsConfig(translate=True)


@contextmanager
def running(release: str, port: int, login: int | None = None) -> Iterator[None]:
    """This release on a port, and with a listener on which clients have to log in."""
    more: dict[str, Any] = {"auto.create.topics.enable": "true"}
    if login is not None:
        more |= {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    if release == NEWEST:
        jaas = {f"listener.name.login.{name}.sasl.jaas.config": JAAS[name] for name in ("plain", "scram-sha-256")}
        listeners, fixed = ({}, {}) if login is None else ({"LOGIN": "SASL_PLAINTEXT"}, {"LOGIN": login})
        with start_cluster(config=more | jaas, listeners=listeners, fixed={"": port} | fixed) as cluster:
            if login is not None:
                add_scram_users(cluster.bootstrap)
            yield
        return
    (jars,) = [broker.jars() for broker in BROKERS if broker.release == release]
    if login is None:
        with start_old(release, jars, more, port):
            yield
        return
    listed = f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{login}"
    with NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(f"KafkaServer {{ {JAAS['plain']} {JAAS['scram-sha-256']} }};")
        file.flush()
        option = f"-Djava.security.auth.login.config={file.name}"
        more |= {"listeners": listed, "advertised.listeners": listed}
        with start_old(release, jars, more, port, [option]) as old:
            scram_user(old)
            yield


def scram_user(broker: OldBroker) -> None:
    """A user of SCRAM as old releases have it: in ZooKeeper."""
    command = [*JVM, "-cp", f"{broker.jars}/*", "kafka.admin.ConfigCommand", "--zookeeper", broker.keeper, "--alter"]
    command += ["--entity-type", "users", "--entity-name", USER, "--add-config", f"SCRAM-SHA-256=[password={PASSWORD}]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr


def kafka_python(bootstrap: str, topic: str, ca: Path | None = None, mechanism: str = "") -> None:
    """A client that is told its broker's release, and asks for its versions only to say its name."""
    own: dict[str, Any] = {} if ca is None else {"security_protocol": "SSL", "ssl_context": client_context(ca)}
    if mechanism:
        own = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
        own |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    producer = KafkaProducer(bootstrap_servers=bootstrap, api_version=(1, 0), enable_idempotence=False, **own)
    try:
        assert producer.send(topic, b"as of 1.0").get(PATIENCE).offset == 0
    finally:
        producer.close()


def librdkafka(bootstrap: str, topic: str, ca: Path | None = None, mechanism: str = "") -> None:
    """A client that uses the versions that it is offered."""
    own: dict[str, Any] = {} if ca is None else {"security.protocol": "ssl", "ssl.ca.location": str(ca)}
    if mechanism:
        own = {"security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism}
        own |= {"sasl.username": USER, "sasl.password": PASSWORD}
    confluent_client.send(bootstrap, topic, ["as offered"], **own)


def sound(proxy: Proxy) -> None:
    """Nothing was cut off for want of a translation, and no broker with ApiVersions was taken for an old one."""
    events = proxy.events()
    assert [event for event in events if isinstance(event, NotTranslated)] == []
    old = [event.release for event in events if isinstance(event, OffersLearned)]
    assert set(old) <= {"0.8.2", "0.9.0"}, old


@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", HOW)
def test_the_next_connection_gets_the_new_range(tmp_path: Path, how: str) -> None:
    """With the wrong range they end connections: 0.10.2 reads Produce up to 2, 0.9 up to 1, 0.8.2 only 0, and 4.4 from
    3 on; 0.8.2 and 0.9 have no ApiVersions."""
    (port,) = free_ports(1)
    ca = tmp_path / "ca.pem" if how == "TLS" else None
    options: dict[str, Any] = {"tls": TlsConfig(ca=tmp_path)} if ca else {"workers": 2 if how == "workers" else 1}
    with Proxy(ProxyConfig(upstream=(HOST, port), versions=TRANSLATE, **options)) as proxy:
        for number, release in enumerate(RELEASES):
            with running(release, port):
                for client in (kafka_python, librdkafka):
                    client(show(proxy.address), f"{client.__name__}-{number}", ca)
    sound(proxy)


@pytest.mark.timeout(900)
def test_behind_logins() -> None:
    """The proxy logs in, or each client does so itself. 0.10.2 takes SASL tokens without a header (SaslHandshake 0)."""
    port, login = free_ports(2)
    mechanisms = ("PLAIN", "SCRAM-SHA-256")
    with ExitStack() as stack:
        def proxy(sasl: SaslConfig | None) -> Proxy:
            return stack.enter_context(Proxy(ProxyConfig(upstream=(HOST, login), versions=TRANSLATE, sasl=sasl)))

        proxies = {mechanism: proxy(SaslConfig(mechanism, USER, PASSWORD)) for mechanism in mechanisms}
        passing = proxy(None)
        for number, release in enumerate((WITH_API_VERSIONS, MIDDLE, NEWEST, WITH_API_VERSIONS)):
            with running(release, port, login):
                for client in (kafka_python, librdkafka):
                    for mechanism in mechanisms:
                        topic = f"{client.__name__}-{mechanism}-{number}"
                        client(show(proxies[mechanism].address), f"{topic}-proxy")
                        client(show(passing.address), f"{topic}-client", mechanism=mechanism)
    for each in (*proxies.values(), passing):
        sound(each)


@pytest.mark.needs(why_not=missing)
@pytest.mark.timeout(900)
def test_in_transparent_mode() -> None:
    """The brokers are asked on the clients' connections, which they may lose: clients connect again."""
    spaces = Namespaces()
    try:
        space = spaces.one()
        (port,) = free_ports(1)
        config = ProxyConfig(EVERYWHERE, ("::", 19092), transparent=TransparentConfig("redirect"), versions=TRANSLATE)
        proxy = inside(space, lambda: Proxy(config).start())
        try:
            for number, release in enumerate((NEWEST, OLDEST, MIDDLE, WITH_API_VERSIONS)):
                inside(space, lambda number=number, release=release: redirected(space, release, port, number))
        finally:
            proxy.stop()
    finally:
        spaces.close()
    sound(proxy)


def redirected(space: str, release: str, port: int, number: int) -> None:
    """Both clients at a broker of this release, which is asked whether it runs past the proxy."""
    command = [sys.executable, "-P", "-m", "barnabas", "transparent"]
    with running(release, port):
        run_in(space, *command, "up", "--mode", "redirect", "--port", str(port), "--yes")
        try:
            for client in (kafka_python, librdkafka):
                client(f"{HOST}:{port}", f"{client.__name__}-{number}")
        finally:
            run_in(space, *command, "down")
