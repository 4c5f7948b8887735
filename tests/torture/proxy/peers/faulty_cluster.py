"""Three brokers that are controllers, too, each behind a faulty forwarder, and the faults of both."""

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

FORWARDED = "FORWARDED"
"""The listener that only the forwarders reach; inter-broker traffic and admin clients take the other."""
NODES = 3


class FaultyCluster:
    """The cluster, the forwarders to it, and every fault by its name in `FAULTS`."""

    def __init__(self, cluster: Cluster, forwarders: list[FaultyForwarder], chance: random.Random) -> None:
        self.cluster = cluster
        self.forwarders = forwarders
        self.chance = chance
        self.done: Counter[str] = Counter()
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUICK})

    @property
    def address(self) -> tuple[str, int]:
        """A bootstrap broker, through its forwarder."""
        return "127.0.0.1", self.forwarders[0].port

    def inject(self, fault: str, topic: str) -> None:
        """Do one; the forwarders work again afterwards. A broker that ended comes back while the next ones are done."""
        if fault not in OF_THE_FORWARDER:
            self.settle()
        forwarder = self.chance.choice(self.forwarders)
        self.done[fault] += 1
        if fault in ("near", "far", "half"):
            forwarder.break_all(fault)
        elif fault in ("silent", "bytes", "bursts"):
            forwarder.be(fault, 0.2)
        elif fault == "refuse":
            forwarder.refuse(0.3)
        elif fault == "lost":
            forwarder.lose()
            time.sleep(5)  # longer than a request of the clients may take
            forwarder.find()
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


OF_THE_FORWARDER = ("near", "far", "half", "silent", "bytes", "bursts", "refuse")
"""Between the proxy and a broker."""
FAULTS = (*OF_THE_FORWARDER, "leader", "kill", "stop", "lost", "frozen")


def plan(count: int, chance: random.Random) -> list[str]:
    """So many faults. Those that take long come once in 25, but the death of a broker and a new leader in every plan."""
    rare = ["kill", "leader"] if count < 25 else [kind for kind in FAULTS if kind not in OF_THE_FORWARDER] * (count // 25)
    found = [*rare, *(OF_THE_FORWARDER[n % len(OF_THE_FORWARDER)] for n in range(count - len(rare)))]
    chance.shuffle(found)
    return found


@contextmanager
def three_brokers(seed: int = 1) -> Iterator[FaultyCluster]:
    ports = free_ports(NODES)
    config = {"controlled.shutdown.enable": "true", "broker.session.timeout.ms": 6000}
    cluster = start_cluster(NODES, config, {FORWARDED: "PLAINTEXT"}, controllers=NODES, advertised={FORWARDED: ports})
    forwarders = [FaultyForwarder(port, ("127.0.0.1", node.listeners[FORWARDED])) for port, node in zip(ports, cluster.nodes, strict=True)]
    try:
        yield FaultyCluster(cluster, forwarders, random.Random(seed))
    finally:
        for forwarder in forwarders:
            forwarder.close()
        for node in cluster.nodes:
            if node.process is not None and node.process.poll() is None:
                node.end()  # the last controllers would wait for a quorum
        cluster.stop()
