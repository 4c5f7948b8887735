"""A real Apache Kafka in KRaft mode on loopback, for as long as a test needs it.

``start_cluster()`` formats a temporary log directory, starts one JVM per node under ``broker_guard.py`` and waits
until every node answers. Node 1 is broker and controller; further nodes are brokers only, unless more controllers are
asked for. The jars are the ones that ``make broker`` fetches (see tests/broker/pom.xml), or those of the folder that
BARNABAS_KAFKA_JARS names.
"""

from __future__ import annotations

import base64
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"

# Small and quick to start; a test broker never lives long enough for the optimising compiler to pay.
JVM = [
    "java", "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    # what jps reads is a file, and a JVM stands still while a busy disk takes its pages
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dlog4j2.level=WARN",
]  # fmt: skip


CLASSES = "classes.jsa"
"""An archive of what a broker loads, beside its jars (class_archive.py): a JVM with it starts in half the time."""


class BrokerFailed(AssertionError):
    """The broker could not be had; the text says why and what to do."""


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


def free_ports(count: int) -> list[int]:
    """``count`` loopback ports that nobody listens on, from below the range that outgoing connections take."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


@dataclass
class Node:
    """One JVM of the cluster."""

    node_id: int
    port: int
    directory: Path
    properties: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    listeners: dict[str, int] = field(default_factory=dict)
    """The ports of further listeners, by listener name."""
    jars: Path = field(default_factory=jar_directory)
    """The release that it is."""
    options: Sequence[str] = ()
    """Further ones of its JVM."""

    @property
    def address(self) -> tuple[str, int]:
        """Where clients reach it."""
        return HOST, self.port

    @property
    def log(self) -> Path:
        """What the JVM printed."""
        return self.directory / "broker.log"

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of the log, for the text of a failure."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"

    def start(self) -> None:
        """Start the JVM; ``wait_until_ready`` tells when it can be used."""
        command = [*JVM, *self.options, "-cp", f"{self.jars}/*", "kafka.Kafka", str(self.properties)]
        guard = [sys.executable, str(Path(__file__).with_name("broker_guard.py")), str(self.directory), "--"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*guard, *command], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until_ready(self, deadline: float) -> None:
        """Return when the node answers ApiVersions; raise BrokerFailed with the log's tail when it does not."""
        while True:
            if self.process is None or self.process.poll() is not None:
                code = None if self.process is None else self.process.returncode
                raise BrokerFailed(f"Kafka node {self.node_id} ended ({code}) at its start:\n{self.log_tail()}")
            if answers_api_versions(self.address):
                return
            if time.monotonic() > deadline:
                raise BrokerFailed(f"Kafka node {self.node_id} does not answer on {self.port}:\n{self.log_tail()}")
            time.sleep(0.1)

    @property
    def jvm(self) -> int:
        """The JVM's process id; the node has to run."""
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        (pid,) = map(int, path.read_text().split())
        return pid

    def end(self, how: int = signal.SIGKILL, seconds: float = 30) -> None:
        """End the JVM by this signal but keep its data; ``start`` brings it back."""
        assert self.process is not None
        os.kill(self.jvm, how)
        self.process.wait(seconds)

    def stop(self) -> None:
        """End the JVM (SIGTERM, after 10 s SIGKILL) and remove its directory: both are the guard's work."""
        if self.process is None:
            return
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


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
        """(host, port) of every broker, as its Metadata responses say."""
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
    """A new folder for a broker's data, where the run of the tests has it (``harness.session``); it is removed with the run."""
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
) -> Cluster:
    """Start ``nodes`` brokers and wait until they answer.

    ``config`` adds to or replaces the broker settings of ``_settings``; ``listeners`` are further ones, name to
    security protocol; ``advertised``: of such a listener the port that clients are told, node by node. The first
    ``controllers`` nodes are controllers, too; ``jars``: another release than that of ``make broker``, from 3.9 on;
    ``options`` of the JVMs stand instead of the archive of classes. Raises BrokerFailed.
    """
    jars = jars or jar_directory()
    if options is None:
        options = [f"-XX:SharedArchiveFile={jars / CLASSES}"] if (jars / CLASSES).exists() else []
    more = dict(listeners or {})
    ports = free_ports(nodes * (1 + len(more)) + controllers)
    quorum, ports = ports[:controllers], ports[controllers:]
    further = [dict(zip(more, ports[nodes + len(more) * number :])) for number in range(nodes)]
    ports = ports[:nodes]
    cluster_id = _kafka_id()
    voters = ",".join(f"{n}@{HOST}:{at}:{_kafka_id()}" for n, at in enumerate(quorum, start=1))
    root = data_folder("barnabas-kafka-")
    cluster = Cluster([], root)
    try:
        for number, port in enumerate(ports, start=1):
            folder = root / f"node-{number}"
            folder.mkdir(mode=0o700)
            settings = _settings(number, port, quorum, min(nodes, 3)) | dict(config or {})
            for name, own in further[number - 1].items():
                told = (advertised or {}).get(name)
                for setting, at in (("listeners", own), ("advertised.listeners", told[number - 1] if told else own)):
                    settings[setting] = f"{settings[setting]},{name}://{HOST}:{at}"
                settings["listener.security.protocol.map"] = (
                    f"{settings['listener.security.protocol.map']},{name}:{more[name]}"
                )
            settings["log.dirs"] = folder / "logs"
            properties = folder / "server.properties"
            properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            node = Node(number, port, folder, properties, listeners=further[number - 1], jars=jars, options=options)
            cluster.nodes.append(node)
            _format(node, cluster_id, voters if number <= controllers else "")
        deadline = time.monotonic() + PATIENCE
        for node in cluster.nodes:
            node.start()
        for node in cluster.nodes:
            node.wait_until_ready(deadline)
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _kafka_id() -> str:
    """A random id as Kafka writes its own."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _settings(node_id: int, port: int, quorum: Sequence[int], replicas: int) -> dict[str, object]:
    controls = node_id <= len(quorum)
    listeners = f"PLAINTEXT://{HOST}:{port}" + (f",CONTROLLER://{HOST}:{quorum[node_id - 1]}" if controls else "")
    return {
        "node.id": node_id,
        "process.roles": "broker,controller" if controls else "broker",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{at}" for at in quorum),
        "num.partitions": 3,
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 3,
        # The coordinator looks for transactions that outlive their timeout every 10 s otherwise.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 3,
        "group.initial.rebalance.delay.ms": 0,
        # KIP-848 members learn their partitions with a heartbeat; the default is one in 5 s.
        "group.consumer.min.heartbeat.interval.ms": 200,
        "group.consumer.heartbeat.interval.ms": 200,
        # So do members of share groups (KIP-932).
        "group.share.min.heartbeat.interval.ms": 200,
        "group.share.heartbeat.interval.ms": 200,
        # A topic that a test did not create is that test's fault; it should not appear by itself.
        "auto.create.topics.enable": "false",
        "num.network.threads": 2,
        "num.io.threads": 4,
        # Tests choose their records' timestamps; 30 s after its start a broker deletes what is older than a week.
        "log.retention.ms": -1,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
        "controlled.shutdown.enable": "false",
    }


def _format(node: Node, cluster_id: str, voters: str) -> None:
    command = [*JVM, *node.options, "-cp", f"{node.jars}/*", "kafka.tools.StorageTool", "format"]
    command += [f"--cluster-id={cluster_id}", "--config", str(node.properties)]  # an id may start with a dash
    command += [f"--initial-controllers={voters}"] if voters else ["--no-initial-controllers"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    if done.returncode != 0:
        raise BrokerFailed(f"Kafka's StorageTool could not format node {node.node_id}:\n{done.stdout}{done.stderr}")


def answers_api_versions(address: tuple[str, int]) -> bool:
    """Whether a broker answers an ApiVersions v0 request there with error NONE."""
    body = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection(address, timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            head = b""
            while len(head) < 10:  # size, correlation id, error code
                more = connection.recv(10 - len(head))
                if not more:
                    return False
                head += more
    except OSError:
        return False
    return struct.unpack(">h", head[8:10])[0] == 0
