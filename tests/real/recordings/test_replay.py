"""Recordings of real clients, replayed to another real cluster: afterwards both hold the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.captures.replay.mapping import NameMap
from barnabas.captures.replay.policy import Policy
from barnabas.captures.replay.report import ReplayReport
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from barnabas.proxy.replay.session import Replay
from barnabas.proxy.replay.settings import Order, Pace, Settings
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from real.brokers.broker import Cluster, start_cluster
from real.brokers.old_broker import OldBroker
from real.clients import kafka_python_client
from real.clients.workload import Deadline
from real.clients.workloads import WORKLOADS, expected
from scapy.utils import PcapReader, PcapWriter


@pytest.fixture(scope="module")
def alike() -> Iterator[Cluster]:
    """Where recordings of lists of everything are made. Of its own: it and the target hold nothing but the same work."""
    with start_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target() -> Iterator[Cluster]:
    """Where recordings are replayed to. Of its own: nothing that was recorded may be there."""
    with start_cluster() as cluster:
        yield cluster


def record(address: tuple[str, int], directory: Path, work: Any, run: str) -> Any:
    with Proxy(ProxyConfig(upstream=address, record=directory)) as proxy:
        return work(show(proxy.address), run)


def contents(
    bootstrap: str, isolation: str = "read_uncommitted", only: Collection[str] = ()
) -> dict[str, list[tuple[Any, ...]]]:
    """Every record of every topic, or of these: (partition, offset, time, key, value, headers)."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, isolation_level=isolation)
    try:
        found: dict[str, list[tuple[Any, ...]]] = {}
        for topic in sorted(only or (name for name in consumer.topics() if not name.startswith("__"))):
            places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
            ends = consumer.end_offsets(places)
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            found[topic] = []
            deadline = Deadline()
            while any(consumer.position(place) < ends[place] for place in places):
                deadline.check(f"the records of {topic}")
                for batch in consumer.poll(timeout_ms=200).values():
                    for r in batch:
                        found[topic].append((r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)))
            found[topic].sort()
        return found
    finally:
        consumer.close()


def committed(bootstrap: str, *only: str) -> dict[str, dict[tuple[str, int], int]]:
    """The committed offsets of every group, or of these."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        found = {}
        for group in sorted(only or (entry["group_id"] for entry in admin.list_groups())):
            offsets = admin.list_group_offsets({group: None})[group]
            found[group] = {(place.topic, place.partition): at.offset for place, at in offsets.items()}
        return found


def as_text(report: ReplayReport) -> str:
    document = report.to_dict()
    document.pop("latency")
    return json.dumps(document, indent=1, default=str)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_both_clusters_hold_the_same(name: str, alike: Cluster, target: Cluster, tmp_path: Path) -> None:
    run = "replayed-" + name.replace(" ", "-").replace("_", "-")
    assert record(alike.addresses[0], tmp_path / "rec", WORKLOADS[name], run) == expected(name)
    patient = Settings(patience=PATIENCE)
    report = Replay(tmp_path / "rec", target.addresses[0], policy=Policy(admin=True), settings=patient).run()
    assert report.count == 0, as_text(report)
    with open_capture(tmp_path / "rec") as capture:
        assert report.sent + sum(report.skipped.values()) == len(capture.rows()), as_text(report)
    assert all("refused when recorded" in why for why in report.skipped) and not report.warnings, as_text(report)
    assert contents(target.bootstrap) == contents(alike.bootstrap)
    assert contents(target.bootstrap, "read_committed") == contents(alike.bootstrap, "read_committed")
    assert committed(target.bootstrap) == committed(alike.bootstrap)


@pytest.mark.slow
def test_at_full_speed_with_other_names(broker: Cluster, target: Cluster, tmp_path: Path) -> None:
    run, name = "hurried", "kafka-python transactions"
    assert record(broker.addresses[0], tmp_path / "rec", WORKLOADS[name], run) == expected(name)
    names = NameMap(
        topics={f"payments-{run}": "payments-b", f"ledger-{run}": "ledger-b"},
        groups={f"booking-{run}": "booking-b"},
        transactional_ids={f"booker-{run}": "booker-b"},
    )
    report = Replay(tmp_path / "rec", target.addresses[0], names, settings=Settings(Pace(0.0), patience=PATIENCE)).run()
    assert report.count == 0, as_text(report)
    there = contents(target.bootstrap, "read_committed")
    here = contents(broker.bootstrap, "read_committed", [*names.topics])
    for old, new in names.topics.items():
        assert [r[:2] + r[3:] for r in there[new]] == [r[:2] + r[3:] for r in here[old]] and there[new]
        assert old not in there
    group = f"booking-{run}"
    mine = committed(broker.bootstrap, group)[group].items()
    assert committed(target.bootstrap)["booking-b"] == {(names.topic(topic), number): at for (topic, number), at in mine}
    assert group not in committed(target.bootstrap)


@pytest.mark.slow
def test_twice_appends_twice(broker: Cluster, target: Cluster, tmp_path: Path) -> None:
    def work(bootstrap: str, run: str) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
        for number in range(5):
            producer.send("twice", str(number).encode()).get(PATIENCE)
        producer.close()

    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics({"twice": {"num_partitions": 2, "replication_factor": 1}})
    record(broker.addresses[0], tmp_path / "rec", work, "")
    report = Replay(tmp_path / "rec", target.addresses[0], create_topics=True, rounds=2).run()
    assert report.count == 0, as_text(report)
    found = sorted(r[4] for r in contents(target.bootstrap)["twice"])
    assert found == sorted([b"%d" % number for number in range(5)] * 2)


def old_client(bootstrap: str, run: str) -> list[bytes]:
    """A client of 0.10.2 that produces compressed message sets, reads them in a group and commits."""
    version = (0, 10, 2)
    for codec in (None, "gzip", "snappy"):
        producer = KafkaProducer(bootstrap_servers=bootstrap, api_version=version, compression_type=codec, acks=1)
        times = range(1_600_000_000_000, 1_600_000_000_004)
        for future in [producer.send("old", f"{codec} {n}".encode(), b"key", timestamp_ms=n) for n in times]:
            future.get(PATIENCE)
        producer.close()
    consumer = KafkaConsumer(
        "old", bootstrap_servers=bootstrap, api_version=version, group_id="old-group", auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    read = [record.value for record in kafka_python_client.read(consumer, 12)]
    consumer.commit()
    consumer.close()
    return read


@pytest.mark.slow
def test_an_old_client_on_a_new_cluster(old_broker: OldBroker, target: Cluster, tmp_path: Path) -> None:
    read = record(old_broker.address, tmp_path / "rec", old_client, "")
    patient = Settings(patience=PATIENCE)
    report = Replay(tmp_path / "rec", target.addresses[0], create_topics=True, settings=patient).run()
    changed = {text.split()[0] for text in report.versions}
    assert {"Produce", "Fetch"} <= changed, as_text(report)
    assert not report.failed and not report.skipped, as_text(report)
    assert report.count == 0, as_text(report)
    there = contents(target.bootstrap)["old"]
    assert sorted(r[4] for r in there) == sorted(read)
    assert {r[2] for r in there} == {1_600_000_000_000 + n for n in range(4)} and {r[3] for r in there} == {b"key"}
    assert sum(committed(target.bootstrap)["old-group"].values()) == 12


def test_a_foreign_capture_by_the_command(broker: Cluster, target: Cluster, tmp_path: Path) -> None:
    name, run = "aiokafka produce_and_consume", "foreign"
    record(broker.addresses[0], tmp_path / "rec", WORKLOADS[name], run)
    foreign, document = tmp_path / "foreign.pcap", tmp_path / "report.json"
    with PcapWriter(str(foreign), nano=True) as out:
        for segment in sorted((tmp_path / "rec").glob("*.pcapng")):
            with PcapReader(str(segment)) as packets:
                for packet in packets:
                    out.write(packet)
    command = [sys.executable, "-m", "barnabas", "replay", str(foreign), "--broker", show(target.addresses[0]), "--speed", "10x",
               "-o", str(document), "--fail-on", "differences", "--patience", str(PATIENCE)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(document.read_text())["differences"] == 0
    assert document.stat().st_mode & 0o777 == 0o600
    topic, group = f"orders-{run}", f"billing-{run}"
    assert contents(target.bootstrap)[topic] == contents(broker.bootstrap, only=[topic])[topic] != []
    assert committed(target.bootstrap)[group] == committed(broker.bootstrap, group)[group]


def test_a_difference_is_reported(broker: Cluster, target: Cluster, tmp_path: Path) -> None:
    def work(bootstrap: str, run: str) -> None:
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics({"reported": {"num_partitions": 1, "replication_factor": 1}})

    record(broker.addresses[0], tmp_path / "rec", work, "")
    again = Replay(tmp_path / "rec", broker.addresses[0], settings=Settings(Pace(0.0), Order.CONNECTION)).run()
    assert again.different == {"CreateTopics topics[*].error_code": 1}, as_text(again)
    (found,) = again.differences
    assert (found["recorded"], found["got"]) == ("NONE", "TOPIC_ALREADY_EXISTS")
    fresh = Replay(tmp_path / "rec", target.addresses[0], settings=Settings(Pace(0.0))).run()
    assert fresh.count == 0, as_text(fresh)
