"""Three brokers that are controllers, too, each behind an unruly way, and what can befall them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE, until
from kafka import KafkaAdminClient
from kafka import TopicPartition as Place
from real.brokers.broker import Cluster, Node, free_ports, start_cluster
from torture.proxy.peers.clients import QUICK
from torture.proxy.peers.faulty_forwarder import FaultyForwarder

WAY = "WAY"
"""The listener that is reached by the ways only; inter-broker traffic and admin clients take the other."""
NODES = 3


class FaultyCluster:
    """The cluster, the ways to it, and every fault by its name in `FAULTS`."""

    def __init__(self, cluster: Cluster, ways: list[FaultyForwarder], chance: random.Random) -> None:
        self.cluster = cluster
        self.ways = ways
        self.chance = chance
        self.done: Counter[str] = Counter()
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUICK})

    @property
    def address(self) -> tuple[str, int]:
        """A bootstrap broker, by its way."""
        return "127.0.0.1", self.ways[0].port

    def inject(self, fault: str, topic: str) -> None:
        """Do one; the ways are whole again afterwards. A broker that ended comes back while the next ones are done."""
        if fault not in ON_THE_WAY:
            self.settle()
        way = self.chance.choice(self.ways)
        self.done[fault] += 1
        if fault in ("near", "far", "half"):
            way.break_all(fault)
        elif fault in ("silent", "bytes", "bursts"):
            way.be(fault, 0.2)
        elif fault == "refuse":
            way.refuse(0.3)
        elif fault == "lost":
            way.lose()
            time.sleep(5)  # longer than a request of the clients may take
            way.find()
        elif fault == "leader":
            self.move_leader(topic)
        elif fault == "frozen":
            node = self.chance.choice(self.cluster.nodes)
            os.kill(node.jvm, signal.SIGSTOP)
            time.sleep(2)
            os.kill(node.jvm, signal.SIGCONT)
        else:
            self.restart(self.chance.choice(self.cluster.nodes), signal.SIGKILL if fault == "kill" else signal.SIGTERM)

    def restart(self, node: Node, how: int) -> None:
        """End a broker and start it again; `settle` waits for it."""
        node.end(how)
        node.start()

    def settle(self) -> None:
        """Wait until all brokers are there, and in sync."""
        for node in self.cluster.nodes:
            node.wait_until_ready(time.monotonic() + PATIENCE)
        until(self.in_sync, "a broker does not catch up")

    def in_sync(self) -> bool:
        """Whether every partition has all its replicas, and a leader."""
        topics = self.admin.list_topics(timeout=PATIENCE).topics.values()
        parts = [part for topic in topics for part in topic.partitions.values()]
        return all(len(part.isrs) == len(part.replicas) and part.leader in part.isrs for part in parts)

    def move_leader(self, topic: str) -> None:
        """Another replica becomes a partition's leader."""
        partitions = self.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        number = self.chance.choice(list(partitions))
        replicas = list(partitions[number].replicas)
        others = [node for node in replicas if node != partitions[number].leader]
        leader = self.chance.choice(others)
        # the first replica is the preferred leader
        client = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap)
        client.alter_partition_reassignments({Place(topic, number): [leader, *(n for n in replicas if n != leader)]})
        client.close()

        def moved() -> bool:
            found = self.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions[number]
            if found.leader != leader and found.replicas[0] == leader and leader in found.isrs:
                place = TopicPartition(topic, number)
                self.admin.elect_leaders(ElectionType.PREFERRED, [place]).result(PATIENCE)
            return found.leader == leader

        until(moved, f"{topic}/{number} does not move to broker {leader}")


ON_THE_WAY = ("near", "far", "half", "silent", "bytes", "bursts", "refuse")
"""Between the proxy and a broker."""
FAULTS = (*ON_THE_WAY, "leader", "kill", "stop", "lost", "frozen")


def plan(count: int, chance: random.Random) -> list[str]:
    """So many faults. Those that take long come once in 25, but the death of a broker and a new leader in every plan."""
    rare = ["kill", "leader"] if count < 25 else [kind for kind in FAULTS if kind not in ON_THE_WAY] * (count // 25)
    found = [*rare, *(ON_THE_WAY[n % len(ON_THE_WAY)] for n in range(count - len(rare)))]
    chance.shuffle(found)
    return found


@contextmanager
def three_brokers(seed: int = 1) -> Iterator[FaultyCluster]:
    ports = free_ports(NODES)
    config = {"controlled.shutdown.enable": "true", "broker.session.timeout.ms": 6000}
    cluster = start_cluster(NODES, config, {WAY: "PLAINTEXT"}, controllers=NODES, advertised={WAY: ports})
    ways = [FaultyForwarder(port, ("127.0.0.1", node.listeners[WAY])) for port, node in zip(ports, cluster.nodes, strict=True)]
    try:
        yield FaultyCluster(cluster, ways, random.Random(seed))
    finally:
        for way in ways:
            way.close()
        for node in cluster.nodes:
            if node.process is not None and node.process.poll() is None:
                node.end()  # the last controllers would wait for a quorum
        cluster.stop()
