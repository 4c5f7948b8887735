"""A real broker with a listener of each kind: in clear, SASL in clear, TLS, and wrongly advertised ones.

Two listeners are advertised wrongly: one as 127.0.0.2 with the same port, where nobody listens, one by a name that
does not resolve. Users: alice, by PLAIN and SCRAM-SHA-256, who may describe the topic ``open`` and nothing else; PLAIN
sessions last `SESSION_MS`. In clear everybody may do everything.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from barnabas.ui.testing.kafka import format_storage, kafka_id, settings, write_properties
from barnabas.ui.testing.kafka_release import KafkaJars
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from harness.waiting import PATIENCE, until
from real.brokers import broker
from real.brokers.broker import HOST, Cluster, Node

USER, PASSWORD = "alice", "alice-keeps-this"
SESSION_MS = 3000
ELSEWHERE = "127.0.0.2"
NOWHERE = "kafka-1.invalid"
_JAAS = "org.apache.kafka.common.security"


@dataclass
class SecureCluster:
    """A running cluster of one broker; the ports of its listeners."""

    cluster: Cluster
    plain: int
    sasl: int
    tls: int
    wrong: int
    named: int
    closed: int
    """Nobody listens there."""

    def at(self, port: int) -> str:
        return f"{HOST}:{port}"

    def __enter__(self) -> SecureCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()


def start_secure_cluster() -> SecureCluster:
    """Start it and wait until it answers, its users, topic and ACL made."""
    controller, plain, sasl, tls, wrong, named, closed = broker.free_ports(7)
    root = broker.data_folder("barnabas-kafka-")
    cluster = Cluster([], root)
    try:
        folder = root / "node-1"
        folder.mkdir(mode=0o700)
        values = settings(1, plain, [controller]) | {
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
            "auto.create.topics.enable": "false",
            "listeners": f"PLAINTEXT://{HOST}:{plain},SASL_PLAINTEXT://{HOST}:{sasl},SSL://{HOST}:{tls},"
            f"WRONG://{HOST}:{wrong},NAMED://{HOST}:{named},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},SASL_PLAINTEXT://{HOST}:{sasl},SSL://{HOST}:{tls},"
            f"WRONG://{ELSEWHERE}:{wrong},NAMED://{NOWHERE}:{named},CONTROLLER://{HOST}:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,"
            "WRONG:PLAINTEXT,NAMED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_JAAS}.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";',
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": SESSION_MS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": _certificate(root),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "log.dirs": folder / "logs",
        }
        properties = folder / "server.properties"
        write_properties(properties, values)
        node = Node(1, plain, folder, properties, KafkaJars(broker.jar_directory()))
        cluster.nodes.append(node)
        format_storage(node, kafka_id(), f"--initial-controllers=1@{HOST}:{controller}:{kafka_id()}")
        node.start()
        node.wait_until_ready(time.monotonic() + PATIENCE)
        _prepare(f"{HOST}:{plain}")
    except BaseException:
        cluster.stop()
        raise
    return SecureCluster(cluster, plain, sasl, tls, wrong, named, closed)


def _certificate(root: Path) -> Path:
    """A key and a certificate that nobody trusts, in one file."""
    key, cert, both = root / "key.pem", root / "cert.pem", root / "keystore.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    both.write_text(key.read_text() + cert.read_text())
    return both


def _prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("open", 1), NewTopic("closed", 1)])["closed"].result(PATIENCE)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())])[USER].result(
        PATIENCE
    )
    allow = AclBinding(
        ResourceType.TOPIC, "open", ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    admin.create_acls([allow])[allow].result(PATIENCE)
    until(lambda: "closed" in admin.list_topics(timeout=PATIENCE).topics, "topic closed")
