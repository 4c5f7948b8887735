"""Real clients behind caps that other versions depend on; in one proxy, each client has its cap by its client id."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from barnabas.decoder.schema import facts
from barnabas.plugins.versions import dependencies
from barnabas.ui.testing.fixture import Barnabas
from confluent_kafka import Consumer
from harness.waiting import PATIENCE
from kafka import KafkaConsumer, KafkaProducer
from real.brokers.fault_bench import seen
from real.clients import confluent_client, kafka_python_client
from real.clients.go import programs as go_clients
from real.clients.reactions import Java, reacting, sent

pytestmark = pytest.mark.slow

DOCUMENTED = {"Fetch": 12, "Metadata": 9}
OLDER_THAN_CLIENTS = {("Produce", 2), ("FindCoordinator", 0)}
"""Caps that no Java client of today can work with, or not in a transaction."""
CAPS = [
    DOCUMENTED,
    {"Produce": 7},  # transaction.version 2 needs 12
    {"EndTxn": 3},
    *(
        {facts.api_name(key): version}
        for key, version in sorted({(each.other, each.needed - 1) for each in dependencies.table() if each.needed})
        if (facts.api_name(key), version) not in OLDER_THAN_CLIENTS
    ),
]


def named(cap: dict[str, int]) -> str:
    return "-".join(f"{api}{version}" for api, version in cap.items())


@pytest.fixture(scope="module")
def java(bench: Barnabas, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    with reacting(bench.bootstrap, tmp_path_factory.mktemp("java")) as ask:
        yield ask


@pytest.fixture(params=CAPS, ids=named)
def client(request: pytest.FixtureRequest, bench: Barnabas) -> Iterator[str]:
    """The id of clients that have this cap."""
    name = f"{named(request.param)}-{uuid.uuid4().hex[:6]}"
    with bench.inject(f"client == '{name}'", api="ApiVersions", cap=request.param) as fault:
        yield name
        assert fault.hits


def refused(bench: Barnabas, client: str) -> list[str]:
    """Requests of a client that got no answer or an error about ids and versions."""
    bad = {"UNKNOWN_TOPIC_ID", "UNSUPPORTED_VERSION", "INVALID_REQUEST"}
    return [f"{each['api']} {each['error']}" for each in seen(bench, 0, f"client == '{client}'") if each["error"] in bad]


def test_java(bench: Barnabas, java: Java, topic: str, client: str) -> None:
    assert sent(java("send", topic, 3, client_id=client)) == ["0", "1", "2"]
    assert java("read", topic, 3, client_id=client) == ["0", "1", "2"]
    assert java("group", topic, 3, client_id=client, group_id=f"g-{topic}") == ["0", "1", "2"]
    assert java("transaction", topic, 1, client_id=client, transactional_id=f"x-{topic}") == ["committed"]
    assert refused(bench, client) == []


def test_java_with_the_new_group_protocol(bench: Barnabas, java: Java, topic: str, client: str) -> None:
    """It works, or Java says that the broker has no such protocol, as with an old one."""
    assert sent(java("send", topic, 3, client_id=client)) == ["0", "1", "2"]
    became = java("group", topic, 3, client_id=client, group_id=f"g-{topic}", group_protocol="consumer")
    apis = {each["api"] for each in seen(bench, 0, f"client == '{client}'")}
    if became != ["0", "1", "2"]:
        assert became[0].startswith("UnsupportedVersionException"), became
        assert "ConsumerGroupHeartbeat" not in apis
    assert refused(bench, client) == []


def test_librdkafka(bench: Barnabas, topic: str, client: str) -> None:
    config = {"client.id": client}
    confluent_client.send(bench.bootstrap, topic, ["0", "1", "2"], **config)
    own = {"bootstrap.servers": bench.bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(own | config)
    try:
        consumer.subscribe([topic])
        assert [message.value() for message in confluent_client.read(consumer, 3)] == [b"0", b"1", b"2"]
        consumer.commit()
    finally:
        consumer.close()
    assert refused(bench, client) == []


def test_kafka_python(bench: Barnabas, topic: str, client: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bench.bootstrap, client_id=client)
    try:
        assert [producer.send(topic, str(n).encode()).get(PATIENCE).offset for n in range(3)] == [0, 1, 2]
    finally:
        producer.close()
    own = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "enable_auto_commit": False, "client_id": client}
    consumer = KafkaConsumer(topic, bootstrap_servers=bench.bootstrap, **own)
    try:
        assert [record.value for record in kafka_python_client.read(consumer, 3)] == [b"0", b"1", b"2"]
        consumer.commit()
    finally:
        consumer.close()
    assert refused(bench, client) == []


@pytest.mark.parametrize("library", go_clients.LIBRARIES)
def test_go(bench: Barnabas, topic: str, client: str, library: str) -> None:
    assert go_clients.group(library, bench.bootstrap, client, topic, ["0", "1", "2"]) == ["0", "1", "2"]
    assert refused(bench, client) == []
