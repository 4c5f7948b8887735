"""Real clients through the proxy to a real broker: the same results as without it, no client ever leaves it, and the
recording holds everything, decoded, in a file that tshark opens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.decoder import Exchange, State
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import BrokerFound, show
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import PATIENCE, until
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition
from matrix.recording import addresses
from real.brokers.broker import Cluster, start_cluster
from real.brokers.secured import Secured
from real.brokers.wireshark import tshark
from real.clients import confluent_client
from real.clients.own_connections import OwnConnections
from real.clients.workloads import CLIENTS, WORKLOADS, expected, in_turn

ALL_CLIENTS = [pytest.param(name, marks=[pytest.mark.slow] * (name != "confluent-kafka")) for name in CLIENTS]


class Recorded:
    """A proxy in front of a cluster, with its recording to be read after the ``with`` block."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.proxy = Proxy(ProxyConfig(upstream=cluster.addresses[0], record=directory))
        self.connections = OwnConnections(port for _, port in cluster.addresses)

    def __enter__(self) -> Recorded:
        self.proxy.start()
        self.connections.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.connections.__exit__(*error)
        self.proxy.stop()
        self.events = list(self.proxy.events())

    @property
    def bootstrap(self) -> str:
        return show(self.proxy.address)

    def exchanges(self) -> list[Exchange]:
        with open_capture(self.directory) as capture:
            assert not capture.lost
            return list(capture.exchanges())

    def check(self, alone: bool = True) -> list[Exchange]:
        """What must hold after any healthy traffic: nothing lost, nothing undecoded, nobody past the proxy, and no
        detector that calls anything wrong.

        ``alone`` is False where the test itself speaks with the brokers meanwhile.
        """
        assert [event.text for event in self.events if event.warning] == []
        exchanges = self.exchanges()
        assert exchanges
        assert [(e.api, e.api_version, e.undecoded) for e in exchanges if e.undecoded] == []
        # A connection may end while a request waits at the broker (a long poll), or while a client that is closed
        # looks for something once more, but only then.
        waiting = {"Fetch", "JoinGroup", "Metadata", "FindCoordinator"}
        assert [(e.api, e.state) for e in exchanges if e.state is not State.PAIRED and e.api not in waiting] == []
        own = {self.proxy.address} | {e.address for e in self.events if isinstance(e, BrokerFound)}
        named = {address for e in exchanges for address in addresses(e)}
        assert named, "no response named a broker"
        assert named <= own
        assert not named & set(self.cluster.addresses)
        assert not alone or self.connections.seen == set(), "a client connected to a broker past the proxy"
        # Admin programs delete a topic that does not exist, on purpose.
        found = [f for f in self.findings() if f.severity is not Severity.INFO]
        deleted = [f for f in found if (f.id, f.about.get("api"), f.severity) == ("admin-request-refused", "DeleteTopics", Severity.LOW)]
        assert all("no-such" in f.seen and "UNKNOWN_TOPIC_OR_PARTITION" in f.seen for f in deleted)
        assert [f"{f.id}: {f.seen}" for f in found if f not in deleted] == []
        return exchanges

    def findings(self) -> list[Finding]:
        """What the detectors find in the recording."""
        inspector = Inspector()
        with open_capture(self.directory) as capture:
            for event in capture.events():
                inspector.feed(event)
        return inspector.findings()


def check_with_tshark(directory: Path, exchanges: list[Exchange]) -> None:
    """Every segment opens, the TCP of each leg is whole, and tshark reads the same requests out of the bytes."""
    seen: set[tuple[int, int]] = set()
    for segment in sorted(directory.glob("*.pcapng")):
        opening = ("-Y", "tcp.flags.syn==1 && tcp.flags.ack==0")
        ports = {int(line) for line in tshark(segment, "-T", "fields", "-e", "tcp.dstport", *opening)}
        # Its Kafka dissector does not know today's versions; without it the packets themselves must be right. Leg by
        # leg: on loopback the proxy's port towards the broker may be the one a client has towards the proxy.
        plain = [part for port in sorted(ports) for part in ("-d", f"tcp.port=={port},data")]
        for leg in (0, 1):
            alone = directory / f"{segment.stem}.leg-{leg}"
            tshark(segment, "-Y", f"frame.interface_id == {leg}", "-w", str(alone))
            assert tshark(alone, *plain, "-Y", "_ws.malformed || tcp.analysis.flags") == []
        kafka = [part for port in sorted(ports) for part in ("-d", f"tcp.port=={port},kafka")]
        fields = ("-T", "json", "-e", "kafka.api_key", "-e", "kafka.correlation_id", "-Y", "kafka.api_key")
        for packet in json.loads("\n".join(tshark(segment, *kafka, *fields))):
            layers = packet["_source"]["layers"]
            keys, ids = layers["kafka.api_key"], layers.get("kafka.correlation_id", [])
            seen |= {(int(key), int(number)) for key, number in zip(keys, ids, strict=False)}
    # ApiVersions and Metadata requests come alone in their packet in every client, so tshark must have all of them.
    asked = {(e.api_key, e.correlation_id) for e in exchanges if e.api in ("ApiVersions", "Metadata")}
    assert asked <= seen


@pytest.mark.parametrize("name", in_turn("confluent-kafka new_group_protocol", "kafka-python admin"))
def test_same_result_as_without_the_proxy(name, broker, tmp_path):
    with Recorded(broker, tmp_path / "recording") as through:
        result = WORKLOADS[name](through.bootstrap, "proxied-" + name.replace(" ", "-"))
    assert result == expected(name)
    check_with_tshark(through.directory, through.check())


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_clients_get_the_proxys_address(client, broker, tmp_path):
    with Recorded(broker, tmp_path / "recording") as through:
        assert CLIENTS[client].broker_addresses(through.bootstrap) == [through.proxy.address]
    through.check()


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[Cluster]:
    """Of its own: others of the session have one or two."""
    with start_cluster(3, {"default.replication.factor": 1}) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_each_of_three_brokers_has_its_own_listener(client, three_brokers, tmp_path):
    name = f"{client} produce_and_consume"
    with Recorded(three_brokers, tmp_path / "recording") as through:
        result = WORKLOADS[name](through.bootstrap, f"three-{client}")
        listeners = CLIENTS[client].broker_addresses(through.bootstrap)
    assert result == expected(name)
    exchanges = through.check()
    assert len(set(listeners)) == 3
    assert {e.broker for e in exchanges} == {f"{host}:{port}" for host, port in three_brokers.addresses}


@contextmanager
def leader_on(cluster: Cluster, topic: str) -> Iterator[Any]:
    """A topic of one partition on broker 1; gives a function that moves it to another broker, past the proxy."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[1]])])[topic].result(PATIENCE)
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)

    def move(broker: int) -> None:
        client.alter_partition_reassignments({KafkaTopicPartition(topic, 0): [broker]})

        def moved() -> bool:
            partition = admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions[0]
            return bool(partition.leader == broker and partition.replicas == [broker])

        until(moved)

    try:
        yield move
    finally:
        client.close()


def test_clients_stay_behind_the_proxy_when_a_leader_moves(secured: Secured, tmp_path: Path) -> None:
    """Produce from version 10 and Fetch from version 16 name the new leader's address in the error (KIP-951)."""
    topic, cluster = "moving", secured.cluster
    with leader_on(cluster, topic) as move, Recorded(cluster, tmp_path / "recording") as through:
        quiet = {"bootstrap.servers": through.bootstrap, "topic.metadata.refresh.interval.ms": -1, "linger.ms": 0}
        producer = Producer(quiet)
        consumer = Consumer(quiet | {"group.id": topic, "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = []
        for number, leader in enumerate((2, 1, 2)):
            producer.produce(topic, f"before {number}")
            confluent_client.flush(producer)
            read += [message.value().decode() for message in confluent_client.read(consumer, 1)]
            move(leader)
            producer.produce(topic, f"after {number}")
            confluent_client.flush(producer)
            read += [message.value().decode() for message in confluent_client.read(consumer, 1)]
        consumer.close()
        del producer
    assert read == [f"{when} {number}" for number in range(3) for when in ("before", "after")]
    exchanges = through.check(alone=False)
    assert any(e.api == "Produce" and e.error == 6 for e in exchanges), "the move was not noticed by the producer"
