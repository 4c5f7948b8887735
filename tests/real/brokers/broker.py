"""A real Apache Kafka in KRaft mode on loopback, for as long as a test needs it.

``start_cluster()`` formats a temporary log directory, starts one JVM per node as the pytest plugin does (ui/testing/kafka.py)
and waits until every node answers. Node 1 is broker and controller; further nodes are brokers only, unless more controllers are
asked for. The jars are the ones that ``make broker`` fetches (see tests/real/brokers/pom.xml), or those of the folder that
BARNABAS_KAFKA_JARS names.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from barnabas.ui.testing.kafka import (
    HOST,
    OPTIONS,
    Node,
    answers_api_versions,
    format_storage,
    free_ports,
    kafka_id,
    settings,
    write_properties,
)
from barnabas.ui.testing.kafka_release import KafkaFailed, KafkaJars
from harness.waiting import PATIENCE

__all__ = ["HOST", "JVM", "REPOSITORY", "BrokerFailed", "Cluster", "Node", "answers_api_versions", "data_folder", "free_ports"]
__all__ += ["jar_directory", "start_cluster"]

REPOSITORY = Path(__file__).resolve().parents[3]
JVM = ["java", *OPTIONS]
BrokerFailed = KafkaFailed


def jar_directory() -> Path:
    """The folder with the jars of ``org.apache.kafka:kafka_2.13`` and all it needs."""
    named = os.environ.get("BARNABAS_KAFKA_JARS")
    folder = Path(named) if named else REPOSITORY / ".cache" / "broker"
    if not any(folder.glob("kafka_2.1*.jar")):
        raise BrokerFailed(
            f"no Apache Kafka in {folder}: run `make broker` (or `make test`, which does it first), "
            "or name a folder with its jars in BARNABAS_KAFKA_JARS"
        )
    if shutil.which("java") is None:
        raise BrokerFailed("no java on the PATH: install Java 17 or newer, the real broker needs it")
    return folder


@dataclass
class Cluster:
    """A running cluster; a context manager that stops it."""

    nodes: list[Node]
    directory: Path

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers, as clients want them: ``host:port,host:port``."""
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(host, port) of every broker, as in its Metadata responses."""
        return [node.address for node in self.nodes]

    def log_tail(self) -> str:
        """The last lines of every node's log, for the report of a failure."""
        return "\n".join(f"node {node.node_id}: {node.log_tail(10)}" for node in self.nodes)

    def stop(self) -> None:
        """Stop every node and remove everything they wrote. May be called twice."""
        for node in reversed(self.nodes):
            node.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def data_folder(prefix: str) -> Path:
    """A new folder for a broker's data, where the run of the tests has it (``harness.run.session``); it is removed with the run."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("BARNABAS_TEST_BROKERS") or None))


def start_cluster(
    nodes: int = 1,
    config: Mapping[str, object] | None = None,
    listeners: Mapping[str, str] | None = None,
    *,
    controllers: int = 1,
    advertised: Mapping[str, Sequence[int]] | None = None,
    jars: Path | None = None,
    options: Sequence[str] | None = None,
    fixed: Mapping[str, int] | None = None,
) -> Cluster:
    """Start ``nodes`` brokers and wait until they answer.

    ``config`` adds to or replaces the broker settings; ``listeners`` are further ones, name to
    security protocol; ``advertised``: the port of such a listener that clients get, node by node. The first
    ``controllers`` nodes are controllers, too; ``jars``: another release than that of ``make broker``, from 3.9 on;
    ``options`` of the JVMs stand instead of the archive of classes; ``fixed``: the ports of some listeners of node 1,
    instead of any ("": of its own). Raises BrokerFailed.
    """
    release = KafkaJars(jars or jar_directory())
    if options is None:
        options = [f"-XX:SharedArchiveFile={release.classes}"] if release.classes.exists() else []
    more = dict(listeners or {})
    ports = free_ports(nodes * (1 + len(more)) + controllers)
    quorum, ports = ports[:controllers], ports[controllers:]
    further = [dict(zip(more, ports[nodes + len(more) * number :])) for number in range(nodes)]
    ports = ports[:nodes]
    for name, port in (fixed or {}).items():
        if name:
            further[0][name] = port
        else:
            ports[0] = port
    cluster_id = kafka_id()
    voters = ",".join(f"{n}@{HOST}:{at}:{kafka_id()}" for n, at in enumerate(quorum, start=1))
    root = data_folder("barnabas-kafka-")
    cluster = Cluster([], root)
    try:
        for number, port in enumerate(ports, start=1):
            folder = root / f"node-{number}"
            folder.mkdir(mode=0o700)
            values = settings(number, port, quorum, min(nodes, 3)) | {
                "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{at}" for at in quorum),
                # A topic that a test did not create is that test's fault; it should not appear by itself.
                "auto.create.topics.enable": "false",
                **(config or {}),
            }
            for name, own in further[number - 1].items():
                advertised_ports = (advertised or {}).get(name)
                for setting, at in (("listeners", own), ("advertised.listeners", advertised_ports[number - 1] if advertised_ports else own)):
                    values[setting] = f"{values[setting]},{name}://{HOST}:{at}"
                protocols = "listener.security.protocol.map"
                values[protocols] = f"{values[protocols]},{name}:{more[name]}"
            values["log.dirs"] = folder / "logs"
            properties = folder / "server.properties"
            write_properties(properties, values)
            node = Node(number, port, folder, properties, release, listeners=further[number - 1], options=options)
            cluster.nodes.append(node)
            format_storage(node, cluster_id, f"--initial-controllers={voters}" if number <= controllers else "--no-initial-controllers")
        deadline = time.monotonic() + PATIENCE
        for node in cluster.nodes:
            node.start()
        for node in cluster.nodes:
            node.wait_until_ready(deadline)
    except BaseException:
        cluster.stop()
        raise
    return cluster
