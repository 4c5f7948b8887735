"""A cluster with TLS and SASL listeners, proxies in front of it, and their events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import Event, show
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from harness.peers.certificates import Certificate, make
from harness.proxies import Proxy
from harness.waiting import PATIENCE, until
from real.brokers.broker import Cluster, Node, start_cluster

E = TypeVar("E", bound=Event)

USER, PASSWORD = "alice", "canary-Wb7-password"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
LISTENERS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "TLSLOGIN": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",  # sessions of 6 s
    "EXPIRED": "SSL",  # with a certificate that has expired
    "ELSEWHERE": "SSL",  # with the name of another host
    "NEWEST": "SSL",  # TLS 1.3 only
}
JAAS = {
    "plain": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "oauthbearer": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";'
    ),
}


class Secured:
    """The cluster and the certificates."""

    def __init__(self, cluster: Cluster, folder: Path, ca: Certificate, client: Certificate) -> None:
        self.cluster = cluster
        self.folder = folder
        self.ca = ca
        self.client = client
        self.proxy_ca = folder / "proxy"

    def address(self, listener: str) -> tuple[str, int]:
        node: Node = self.cluster.nodes[0]
        return "127.0.0.1", node.listeners[listener]

    @contextmanager
    def proxy(self, listener: str, **options: Any) -> Iterator[Running]:
        with Proxy(ProxyConfig(upstream=self.address(listener), **({"probe": False} | options))) as proxy:
            yield Running(proxy, self.proxy_ca / "ca.pem")


class Running:
    """A proxy and its events."""

    def __init__(self, proxy: Proxy, ca: Path) -> None:
        self.proxy = proxy
        self.ca = str(ca)
        self.bootstrap = show(proxy.address)
        self._events: list[Event] = []

    def warnings(self) -> list[str]:
        """What was warned of. Clients open connections in the background, and one that is closed meanwhile breaks off
        their handshakes: that is left out, while a client that refuses a certificate says so."""
        broken_off = "the client closed the connection during the TLS handshake"
        return [event.text for event in self.events() if event.warning and not event.text.endswith(broken_off)]

    def wait_for(self, kind: type[E], count: int = 1) -> list[E]:
        """Events of this kind, as soon as there are so many."""
        return until(
            lambda: found if len(found := self.events(kind)) >= count else None,
            lambda: [event.text for event in self._events],
        )

    def events(self, kind: type[E] = Event) -> list[E]:  # type: ignore[assignment]
        """Those of this kind up to now; behind the ``with`` of the proxy: all."""
        while (event := self.proxy.next_event(0)) is not None:
            self._events.append(event)
        return [event for event in self._events if isinstance(event, kind)]


@contextmanager
def start_secured(folder: Path) -> Iterator[Secured]:
    """Two brokers with all the listeners of `LISTENERS`, and the topic ``t`` of four partitions on both."""
    ca = make(folder, "ca", ca=True)
    broker = make(folder, "broker", ("127.0.0.1", "localhost"), ca)
    keystore = _keystore(broker, ca)
    config: dict[str, object] = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca.path,
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.short.connections.max.reauth.ms": 6000,
        "listener.name.expired.ssl.keystore.type": "PEM",
        "listener.name.expired.ssl.keystore.location": _keystore(make(folder, "expired", ("127.0.0.1",), ca, days=(-30, -1)), ca),
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": _keystore(make(folder, "elsewhere", ("kafka.example",), ca), ca),
        "listener.name.newest.ssl.enabled.protocols": "TLSv1.3",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    for listener in ("login", "tlslogin", "short"):
        config |= {f"listener.name.{listener}.{name}.sasl.jaas.config": jaas for name, jaas in JAAS.items()}
    with start_cluster(2, config, LISTENERS) as cluster:
        admin = add_scram_users(cluster.bootstrap)
        for done in admin.create_topics([NewTopic("t", 4, 2)]).values():
            done.result(PATIENCE)
        yield Secured(cluster, folder, ca, make(folder, "client", (), ca))


def add_scram_users(bootstrap: str) -> AdminClient:
    """Let `USER` log in with SCRAM."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        user = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([user]).values():
            done.result(PATIENCE)
    return admin


def _keystore(of: Certificate, ca: Certificate) -> Path:
    """A PEM keystore as Kafka reads it."""
    made = of.path.with_name(f"{of.path.stem}-keystore.pem")
    made.write_bytes(of.key_path.read_bytes() + of.path.read_bytes() + ca.path.read_bytes())
    return made
