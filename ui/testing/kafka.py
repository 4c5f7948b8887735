"""A real Apache Kafka of one node in KRaft mode on loopback, for a session of tests.

It starts in two to three seconds: its JVM maps the classes that it needs from an archive, and its log directory is a copy of
one that was formatted before. A JVM never outlives the process that started it (``guard``).
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...decoder import DecodeError
from ...decoder.connection import api_versions
from ...proxy.events import Address
from ...proxy.processes.interpreter import python
from .kafka_release import KafkaFailed, KafkaJars, java

HOST = "127.0.0.1"
START_SECONDS = 120.0

OPTIONS = [
    # Small and quick to start; a test broker never lives long enough for the optimising compiler to pay.
    "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    # what jps reads is a file, and a JVM stands still while a busy disk takes its pages
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dlog4j2.level=WARN",
]  # fmt: skip


def free_ports(count: int) -> list[int]:
    """``count`` loopback ports without a listener, from below the range that outgoing connections take."""
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


def kafka_id() -> str:
    """A random id as Kafka writes its own."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass
class Node:
    """One JVM of a cluster."""

    node_id: int
    port: int
    directory: Path
    properties: Path
    release: KafkaJars
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    listeners: dict[str, int] = field(default_factory=dict)
    """The ports of further listeners, by listener name."""
    options: Sequence[str] = ()
    """Further ones of its JVM."""

    @property
    def address(self) -> Address:
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
        """Start the JVM; ``wait_until_ready`` returns when it can be used."""
        command = [java(), *OPTIONS, *self.options, "-cp", self.release.class_path, "kafka.Kafka", str(self.properties)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                python("ui.testing.guard", str(self.directory), "--", *command),
                stdin=subprocess.PIPE, stdout=log, stderr=log,
                start_new_session=True,  # Ctrl-C reaches the tests, which end it in their own time
            )  # fmt: skip

    def wait_until_ready(self, deadline: float) -> None:
        """Return when the node answers ApiVersions; raise KafkaFailed with the log's tail when it does not."""
        while True:
            if self.process is None or self.process.poll() is not None:
                code = None if self.process is None else self.process.returncode
                raise KafkaFailed(f"Kafka node {self.node_id} exited during startup ({code}){why_ended(self.log_tail())}:\n{self.log_tail()}")
            if answers_api_versions(self.address):
                return
            if time.monotonic() > deadline:
                raise KafkaFailed(f"Kafka node {self.node_id} does not answer on {self.port}:\n{self.log_tail()}")
            time.sleep(0.05)

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


def why_ended(log: str) -> str:
    """What is known of a JVM that ended at its start, with what to do about it."""
    if "UnsupportedClassVersionError" in log:
        return ": it needs a newer Java; install one (17 for Apache Kafka 4) and put it first in PATH, or name it in JAVA_HOME"
    return ""


def settings(node_id: int, port: int, quorum: Sequence[int], replicas: int = 1) -> dict[str, object]:
    """The settings of a node, but for where it finds its controllers and where its data is. `quorum`: the controllers' ports, by
    node id from 1 on. It answers soon and needs little."""
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
        "num.network.threads": 2,
        "num.io.threads": 4,
        # Tests choose their records' timestamps; 30 s after its start a broker deletes what is older than a week.
        "log.retention.ms": -1,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
        "controlled.shutdown.enable": "false",
    }


def write_properties(path: Path, values: Mapping[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))


def format_storage(node: Node, cluster_id: str, *options: str) -> None:
    """Have Kafka's StorageTool format a node's log directory. KafkaFailed has its output."""
    command = [java(), *OPTIONS, *node.options, "-cp", node.release.class_path, "kafka.tools.StorageTool", "format"]
    command += [f"--cluster-id={cluster_id}", "--config", str(node.properties), *options]  # an id may start with a dash
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=START_SECONDS)
    if done.returncode != 0:
        output = done.stdout + done.stderr
        raise KafkaFailed(f"Kafka's StorageTool could not format node {node.node_id}{why_ended(output)}:\n{output}")


def answers_api_versions(address: Address) -> bool:
    """Whether a broker answers an ApiVersions v0 request there with error NONE."""
    request = api_versions.request(correlation_id=1, client_id=None)
    try:
        with socket.create_connection(address, timeout=2) as connection, connection.makefile("rb") as answers:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            size = int.from_bytes(answers.read(4), "big")
            answer = api_versions.read(answers.read(size), 0)
    except (OSError, DecodeError):
        return False
    return not answer.error_code


class Kafka:
    """A broker that runs; ``stop`` ends it and removes what it wrote."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def addresses(self) -> list[Address]:
        """Host and port of its brokers."""
        return [self.node.address]

    def log_tail(self) -> str:
        """The last lines of its log, for the report of a failure."""
        return self.node.log_tail(10)

    def stop(self) -> None:
        """May be called twice."""
        self.node.stop()
        shutil.rmtree(self.node.directory.parent, ignore_errors=True)


def start(release: KafkaJars, options: Sequence[str] | None = None) -> Kafka:
    """Start one node, controller and broker, and wait until it answers. Raises KafkaFailed.

    `options` of its JVM stand instead of the archive of classes.
    """
    if options is None:
        options = [f"-XX:SharedArchiveFile={release.classes}"] if release.classes.exists() else []
    port, controller = free_ports(2)
    kafka = Kafka(_node(Path(tempfile.mkdtemp(prefix="barnabas-kafka-")), port, controller, release, options))
    try:
        if release.formatted.is_dir():
            _copy_formatted(release.formatted, _logs(kafka.node))
        else:
            format_storage(kafka.node, kafka_id())
        kafka.node.start()
        kafka.node.wait_until_ready(time.monotonic() + START_SECONDS)
    except BaseException:
        kafka.stop()
        raise
    return kafka


def _node(root: Path, port: int, controller: int, release: KafkaJars, options: Sequence[str] = ()) -> Node:
    """The only one of a cluster, in a folder below `root`, which the guard removes with its last node."""
    folder = root / "node-1"
    folder.mkdir(mode=0o700)
    node = Node(1, port, folder, folder / "server.properties", release, options=options)
    more = {"controller.quorum.voters": f"1@{HOST}:{controller}", "log.dirs": _logs(node)}
    write_properties(node.properties, settings(1, port, [controller]) | more)
    return node


def _logs(node: Node) -> Path:
    return node.directory / "logs"


def _copy_formatted(source: Path, logs: Path) -> None:
    """A formatted directory of another cluster and directory id; all else in it is the same for every cluster."""
    shutil.copytree(source, logs)
    meta = logs / "meta.properties"
    text = meta.read_text()
    for name in ("cluster.id", "directory.id"):
        text = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={kafka_id()}", text)
    meta.write_text(text)


def prepare(release: KafkaJars) -> None:
    """Make what lets brokers of a release start fast, where it is not there yet: a formatted log directory, and the archive
    of classes. Nothing where the folder cannot be written: they start slower then. Raises KafkaFailed."""
    if release.formatted.is_dir() and release.classes.exists():
        return
    with contextlib.suppress(OSError), release.locked():
        if not release.formatted.is_dir():
            _format_once(release)
        if not release.classes.exists():
            archive(release)


def _format_once(release: KafkaJars) -> None:
    with tempfile.TemporaryDirectory(prefix="formatting-", dir=release.folder) as made:
        node = _node(Path(made), 1, 2, release)
        format_storage(node, kafka_id())
        _logs(node).rename(release.formatted)


def archive(release: KafkaJars, use: Callable[[str], object] = lambda bootstrap: None) -> None:
    """Write the archive of the classes that a broker loads (JEP 350), so that a JVM starts in half the time. `use` gets the
    bootstrap server of one: the classes of what it does are among them.

    A JVM that does not find what the archive was made of (other jars, another Java) says so in its log and starts without.
    """
    with tempfile.TemporaryDirectory(prefix="classes-", dir=release.folder) as folder:
        made = Path(folder) / release.classes.name
        kafka = start(release, [f"-XX:ArchiveClassesAtExit={made}"])
        try:
            use(f"{HOST}:{kafka.node.port}")
            kafka.node.end(signal.SIGTERM, START_SECONDS)
            log = kafka.log_tail()
        finally:
            kafka.stop()
        if not made.exists():
            raise KafkaFailed(f"the JVM wrote no archive of its classes:\n{log}")
        made.rename(release.classes)
