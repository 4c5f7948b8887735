"""The brokers of the matrix: releases from Maven, started one at a time, topics made by asking for them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from real.brokers import old_broker
from real.brokers.broker import REPOSITORY, BrokerFailed, jar_directory, start_cluster

JARS = REPOSITORY / ".cache" / "matrix" / "brokers"
Address = tuple[str, int]

# Topics have two partitions wherever they come from, and make themselves; a group does not wait for more members.
SETTINGS: dict[str, object] = {
    "num.partitions": 2,
    "auto.create.topics.enable": "true",
    "delete.topic.enable": "true",
    "group.initial.rebalance.delay.ms": 0,
    # 30 s in 0.9, and today's clients ask for 45
    "group.max.session.timeout.ms": 300_000,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
}


@dataclass(frozen=True)
class Broker:
    """A release. `scala`: of its artifact; "" where `make broker` has fetched it. `keeper`: it needs ZooKeeper."""

    name: str
    release: str
    scala: str = ""
    keeper: bool = True

    def jars(self) -> Path:
        """Its jars, fetched if need be; BrokerFailed where that fails."""
        if not self.scala:
            return old_broker.jar_directory(self.release) if self.keeper else jar_directory()
        folder = JARS / self.release
        if any(folder.glob(f"kafka_{self.scala}-*.jar")):
            return folder
        if shutil.which("mvn") is None:
            raise BrokerFailed("no mvn on the PATH: install Maven, it fetches the releases")
        pom = Path(__file__).parent / "brokers" / "pom.xml"
        settings = [f"-Drelease={self.release}", f"-Dscala={self.scala}", f"-Djars={folder}"]
        done = subprocess.run(
            ["mvn", "-q", "-B", "-ntp", "-f", str(pom), *settings, "dependency:copy-dependencies"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        if done.returncode:
            raise BrokerFailed(f"Kafka {self.release} cannot be fetched: {done.stdout.strip().splitlines()[:1]}")
        return folder

    @contextlib.contextmanager
    def running(self) -> Iterator[Address]:
        """Its address while it runs; BrokerFailed with its log where it does not start."""
        jars = self.jars()
        if self.keeper:
            with old_broker.start_old(self.release, jars, SETTINGS) as old:
                yield old.address
        else:
            with start_cluster(config=SETTINGS, jars=jars) as cluster:
                yield cluster.addresses[0]


BROKERS = [
    Broker("4.4", "4.4.0", keeper=False),
    Broker("3.9", "3.9.1", "2.13", keeper=False),
    Broker("3.9-zookeeper", "3.9.1", "2.13"),
    Broker("2.8", "2.8.2", "2.13"),
    Broker("1.1", "1.1.1", "2.11"),
    Broker("0.11", "0.11.0.3", "2.11"),
    Broker("0.10.2", "0.10.2.2"),
    Broker("0.9", "0.9.0.1", "2.11"),
    Broker("0.8.2", "0.8.2.2"),
]
