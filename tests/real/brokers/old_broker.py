"""An old Apache Kafka with its ZooKeeper on loopback, for as long as a test needs it.

Two JVMs under the guard of the pytest plugin (ui/testing/guard.py), from the jars that ``make broker`` puts into .cache/old (tests/real/brokers/pom.xml):

- 0.8.2.2, the oldest that was tried, and 0.9.0.1, the first with groups of its own. They run on Java 17 as they are. Neither has
  ApiVersions.
- 0.10.2.2, old and with ApiVersions. From 0.10.1 (its cluster id) to 0.10.2 Kafka asks for javax.xml.bind, which Java
  has not had since 11; with the jar of that API beside it, it runs.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.proxy.processes.interpreter import python
from harness.waiting import PATIENCE
from real.brokers.broker import HOST, REPOSITORY, BrokerFailed, data_folder, free_ports

OLDEST, WITH_GROUPS, WITH_API_VERSIONS = "0.8.2.2", "0.9.0.1", "0.10.2.2"
JVM = [
    "java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true"
]  # fmt: skip
# ZooKeeper's own: it looks for a class that log4j's successor dropped, answers no question unasked since 3.5, and has a
# web server that nobody needs. (Kafka 2.2 and 2.3 do not start even so: the client of their ZooKeeper 3.4.14 cannot read
# how Java 14 and newer write an address.)
KEEPER = [
    "-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.4lw.commands.whitelist=ruok,dump", "-Dzookeeper.admin.enableServer=false",
]  # fmt: skip
LOG4J = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
"""


@dataclass
class OldBroker:
    """A running broker; a context manager that stops it."""

    release: str
    address: tuple[str, int]
    directory: Path
    jars: Path
    keeper: str
    """ZooKeeper's `host:port`."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    @property
    def bootstrap(self) -> str:
        """``host:port``"""
        return f"{HOST}:{self.address[1]}"

    def run(self, name: str, *command: str) -> None:
        """Start one of the JVMs; its log is NAME/log under the directory."""
        folder = self.directory / name
        (folder / "log4j.properties").write_text(LOG4J)
        settings = f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}"
        guard = python("ui.testing.guard", str(folder), "--")
        with (folder / "log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [*guard, *JVM, *KEEPER, settings, "-cp", f"{self.jars}/*", *command],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
                )
            )  # fmt: skip

    def wait(self, name: str, ready: bool, deadline: float) -> bool:
        """Whether to go on waiting; BrokerFailed when that is in vain."""
        if ready:
            return False
        if self.processes[-1].poll() is not None or time.monotonic() > deadline:
            raise BrokerFailed(f"Kafka {self.release}'s {name} does not answer:\n{self.log_tail(name, 25)}")
        time.sleep(0.05)
        return True

    def log_tail(self, name: str = "broker", lines: int = 10) -> str:
        """The last lines of a JVM's log."""
        try:
            text = (self.directory / name / "log").read_text(errors="replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"

    def stop(self) -> None:
        """End both (the broker first, without a farewell) and remove what they wrote. May be called twice."""
        for process in reversed(self.processes):
            assert process.stdin is not None
            process.stdin.close()
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> OldBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def jar_directory(release: str) -> Path:
    """The folder with a release's jars."""
    folder = REPOSITORY / ".cache" / "old" / release
    if not any(folder.glob("kafka_*.jar")):
        raise BrokerFailed(f"no Kafka {release} in {folder}: run `make broker` (or `make test`, which does it first)")
    return folder


def start_old(
    release: str = OLDEST,
    jars: Path | None = None,
    config: Mapping[str, object] | None = None,
    port: int | None = None,
    options: Sequence[str] = (),
) -> OldBroker:
    """Start ZooKeeper and a broker of `release`, and wait until it is known. Topics make themselves.

    `jars`: a folder with them, instead of what `make broker` fetched; `config` adds to the broker's settings;
    `port`: the broker's, instead of any; `options` of the broker's JVM.
    """
    jars = jars or jar_directory(release)
    keeper, any_port = free_ports(2)
    port = port or any_port
    root = data_folder("barnabas-old-kafka-")
    broker = OldBroker(release, (HOST, port), root, jars, f"{HOST}:{keeper}")
    settings: dict[str, object] = {
        "broker.id": 1,
        # `listeners` came with 0.9, and has been the only one since 3.0
        "port": port,
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "host.name": HOST,
        "advertised.host.name": HOST,
        "zookeeper.connect": broker.keeper,
        # 6 s otherwise: a JVM that a busy machine holds up for longer loses its topics' leaders for a while. The most that
        # ZooKeeper grants.
        "zookeeper.session.timeout.ms": 60_000,
        "log.dirs": root / "broker" / "logs",
        "num.partitions": 1,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "log.cleaner.enable": "false",
        "controlled.shutdown.enable": "false",
        "log.retention.hours": 1_000_000,
        **(config or {}),
    }
    try:
        # All in the two folders that the guards remove: the parent goes with the last of them, also where this process is killed.
        for name in ("keeper", "broker"):
            (root / name).mkdir(mode=0o700)
        properties = root / "broker" / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        deadline = time.monotonic() + PATIENCE
        data = root / "keeper" / "data"
        broker.run("keeper", "org.apache.zookeeper.server.ZooKeeperServerMain", str(keeper), str(data))
        while broker.wait("keeper", _answer(keeper, b"ruok", 4) == b"imok", deadline):
            pass
        broker.run("broker", *options, "kafka.Kafka", str(properties))
        metadata = struct.pack(">hhihi", 3, 0, 1, -1, 0)  # v0, no client id, all topics
        asking = struct.pack(">i", len(metadata)) + metadata
        # It answers before its controller knows it: Metadata without brokers, and a topic made then has no leaders, and
        # CreateTopics no answer, for long. 0.8 names no broker before there is a topic, but ZooKeeper knows it.
        while broker.wait("broker", any(_answer(port, asking, 12)[8:]) or _registered(release, keeper), deadline):
            pass
    except BaseException:
        broker.stop()
        raise
    return broker


def _registered(release: str, keeper: int) -> bool:
    return release.startswith("0.8.") and b"/brokers/ids/1\n" in _answer(keeper, b"dump", 1 << 16)


def _answer(port: int, words: bytes, size: int) -> bytes:
    """The first `size` bytes of the answer, or all until its end; b"" if there is none."""
    data = b""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(words)
            while len(data) < size and (more := connection.recv(size - len(data))):
                data += more
    except OSError:
        return b""
    return data
