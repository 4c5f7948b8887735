"""Recordings of real runs compared: what is the same program twice, what is another client, what is another broker."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.captures.diff import DifferenceKind, DiffReport, Level, compare
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from confluent_kafka import Consumer
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from kafka import KafkaConsumer, KafkaProducer
from real.clients import confluent_client, kafka_python_client
from real.clients.workloads import WORKLOADS, expected, in_turn


def record(broker: tuple[str, int], folder: Path, work: Callable[[str], Any]) -> Path:
    with Proxy(ProxyConfig(upstream=broker, record=folder)) as proxy:
        work(show(proxy.address))
    return folder


def difference(a: Path, b: Path) -> DiffReport:
    with open_capture(a) as one, open_capture(b) as other:
        return compare(one.exchanges(), other.exchanges())


def lines(report: DiffReport, level: Level) -> list[str]:
    return [f"{d.level.word} {d.kind} {d.api} {d.what}: {d.a} -> {d.b}" for d in report.above(level)]


@pytest.mark.parametrize("name", in_turn("aiokafka transactions"))
def test_the_same_workload_twice_differs_by_noise_alone(name, broker, tmp_path):
    work = WORKLOADS[name]
    runs = []
    for run in ("first", "second"):
        label = f"{run}-{name.replace(' ', '-')}"

        def once(bootstrap: str, label: str = label) -> None:
            assert work(bootstrap, label) == expected(name)

        runs.append(record(broker.addresses[0], tmp_path / run, once))
    report = difference(*runs)
    assert lines(report, Level.MEDIUM) == []
    assert len(report.above(Level.LOW)) <= 3, lines(report, Level.LOW)


def few_records(bootstrap: str, topic: str, **config: Any) -> None:
    """Sends and reads three records with kafka-python."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **config)
    for number in range(3):
        producer.send(topic, b"%d" % number, partition=0).get(PATIENCE)
    producer.close(PATIENCE)
    group = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, **group, **config)
    kafka_python_client.read(consumer, 3)
    consumer.commit()
    consumer.close()


def librdkafka_records(bootstrap: str, topic: str) -> None:
    """The same with confluent-kafka."""
    settings = {"bootstrap.servers": bootstrap, "client.id": "till"}
    confluent_client.send(bootstrap, topic, (b"%d" % number for number in range(3)), **{"client.id": "till"})
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    confluent_client.read(consumer, 3)
    consumer.close()


@pytest.fixture
def topic(broker, request) -> str:
    return confluent_client.create_topic(broker.bootstrap, request.node.name.replace("_", "-")[:60])


def test_a_client_as_old_as_another_release_shows_in_its_versions(broker, topic, tmp_path):
    old = functools.partial(few_records, topic=topic, api_version=(2, 1))
    a = record(broker.addresses[0], tmp_path / "old", old)
    b = record(broker.addresses[0], tmp_path / "new", functools.partial(few_records, topic=topic))
    report = difference(a, b)
    versions = {d.api: (d.a, d.b) for d in report.differences if d.kind is DifferenceKind.VERSION}
    assert {"Produce", "Fetch"} <= set(versions)
    assert not [d for d in report.differences if d.level is Level.HIGH]
    produce = versions["Produce"]
    assert int(produce[0].split(", ")[-1][1:]) < int(produce[1].split(", ")[-1][1:])


def test_the_same_program_at_a_broker_of_today_and_of_2017(broker, old_broker, topic, tmp_path):
    work = functools.partial(librdkafka_records, topic=topic)
    a = record(broker.addresses[0], tmp_path / "today", work)
    b = record(old_broker.address, tmp_path / "2017", work)
    report = difference(a, b)
    versions = {d.api: (d.a, d.b) for d in report.differences if d.kind is DifferenceKind.VERSION}
    assert {"Produce", "Fetch", "Metadata"} <= set(versions)
    offers = {d.what: (d.a, d.b) for d in report.differences if d.kind is DifferenceKind.OFFER}
    assert offers["offered versions of Produce"][1] == "0-2"
    assert offers["offered versions of DescribeCluster"][1] == ""
    assert not [d for d in report.differences if d.kind is DifferenceKind.RECORDS]
