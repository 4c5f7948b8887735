"""Old clients on a Kafka 4.x broker, through the proxy with translation: each produces, consumes in a group, commits and
resumes, and its records are equal to what a current client reads at the broker itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder import decode_response, encode_request
from barnabas.decoder.schema import facts
from barnabas.plugins.versions.profile import Profile
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from confluent_kafka import Producer
from harness.proxies import Proxy
from harness.run.slices import thin
from harness.waiting import PATIENCE_MS
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from real.brokers.broker import Cluster
from real.clients import kafka_python_client
from real.clients.confluent_client import create_topic
from real.clients.raw_client import RawClient
from real.clients.translated_clients import Read, expected, java, kafka_python, librdkafka, sarama

Makes = Callable[[str], str]
TRANSLATE = VersionsConfig(translate=True)


@pytest.fixture(scope="module")
def translated(broker: Cluster) -> Iterator[str]:
    """The address of a translating proxy."""
    with Proxy(ProxyConfig(upstream=broker.addresses[0], versions=TRANSLATE)) as proxy:
        yield show(proxy.address)
    assert [event.text for event in proxy.events() if event.warning] == []


@pytest.fixture(scope="module")
def topic(broker: Cluster) -> Makes:
    """Makes a topic of two partitions, past the proxy."""
    return lambda name: create_topic(broker.bootstrap, name, 2)


def at_the_broker(broker: Cluster, topic: str, count: int) -> list[Read]:
    """What is in the log, read by a current client."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    found = kafka_python_client.read(consumer, count)
    consumer.close()
    return sorted(Read(r.partition, r.offset, r.timestamp, r.key.decode(), r.value.decode()) for r in found)


ALL = ("none", "gzip", "snappy", "lz4")
WITHOUT_LZ4 = ALL[:3]  # needs xxhash in kafka-python, and came with 0.8.2's successor in sarama


@pytest.mark.parametrize(
    ("api_version", "codecs"),
    thin([((0, 9), WITHOUT_LZ4), ((0, 10), ALL), ((0, 10, 2), ("none",)), ((0, 8, 2), ("gzip",))], 2),
)
def test_old_kafka_python(api_version, codecs, translated, broker, topic) -> None:
    name = topic("old-kafka-python-" + "-".join(map(str, api_version)))
    should = expected(codecs, timestamps=api_version >= (0, 10))
    assert kafka_python(translated, name, codecs, api_version) == should
    assert at_the_broker(broker, name, len(should)) == should


def test_old_librdkafka(translated, broker, topic) -> None:
    name, should = topic("old-librdkafka"), expected(ALL, timestamps=False)
    assert librdkafka(translated, name, ALL, "0.9.0") == should
    assert at_the_broker(broker, name, len(should)) == should


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "settings"),
    [pytest.param("0.10.2.2", (), id="0.10.2"), pytest.param("0.11.0.3", ("true",), id="0.11 idempotent")],
)
def test_old_java(release, settings, translated, broker, topic) -> None:
    """0.11 is the first client that writes record batches (magic 2) and has producer ids."""
    name, should = topic(f"old-java-{len(settings)}"), expected(ALL, timestamps=True)
    assert java(translated, name, ALL, release, *settings) == should
    assert at_the_broker(broker, name, len(should)) == should


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["0.10.0.0", "0.8.2.0"])
def test_old_sarama(version, translated, broker, topic, tmp_path_factory) -> None:
    timed = version == "0.10.0.0"
    name, should = topic(f"old-sarama-{version}"), expected(ALL if timed else WITHOUT_LZ4, timestamps=timed)
    assert sarama(translated, name, version, tmp_path_factory.getbasetemp() / "sarama") == should
    assert at_the_broker(broker, name, len(should)) == should


def test_old_administration(translated) -> None:
    """Topics and their settings as 0.11 asked for them: CreateTopics 2, DescribeConfigs 0, DeleteTopics 1."""
    settings = {"bootstrap_servers": translated, "request_timeout_ms": PATIENCE_MS}
    with KafkaAdminClient(**settings, api_version=(0, 10, 2)) as oldest:
        made = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "7200000"}}
        assert oldest.create_topics({"old-made": made}, wait_for_metadata=True)["topics"][0]["error_code"] == 0
    with KafkaAdminClient(**settings, api_version=(0, 11)) as old:
        resource = ConfigResource(ConfigResourceType.TOPIC, "old-made")
        (found,) = old.describe_configs([resource], config_filter="all").values()
        configs = found["old-made"]
        assert (configs["retention.ms"]["value"], configs["retention.ms"]["is_default"]) == ("7200000", False)
        assert configs["cleanup.policy"]["is_default"] is True
        assert old.delete_topics(["old-made"])["topics"][0]["error_code"] == 0


def test_an_old_consumer_passes_transaction_markers(translated, broker, topic) -> None:
    """What old formats cannot express is left out; the last thing in the log is a marker, and more comes behind it."""
    name = topic("old-behind-transactions")
    consumer = KafkaConsumer(bootstrap_servers=translated, api_version=(0, 9), auto_offset_reset="earliest")
    consumer.assign([TopicPartition(name, 0)])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions()
    found: list[tuple[int, bytes]] = []
    for number in range(3):
        producer.begin_transaction()
        producer.produce(name, f"{number}", partition=0, headers={"h": b"lost"})
        producer.commit_transaction()
        found += [(r.offset, r.value) for r in kafka_python_client.read(consumer, 1)]
        assert not consumer.poll(timeout_ms=300)  # it asks behind the record, where the marker is
    consumer.close()
    assert found == [(0, b"0"), (2, b"1"), (4, b"2")]


@pytest.mark.slow
def test_a_new_client_at_a_pretended_old_broker(broker, topic) -> None:
    """`pretend` faces the client, translation the broker: today's librdkafka speaks 0.10.2 to Kafka 4.4."""
    name = topic("new-as-if-old")
    versions = VersionsConfig(Profile.of("0.10.2"), translate=True)
    with Proxy(ProxyConfig(upstream=broker.addresses[0], versions=versions)) as proxy:
        assert librdkafka(show(proxy.address), name, ALL, None) == expected(ALL, timestamps=True)


@pytest.mark.slow
def test_both_legs_are_recorded_and_what_has_no_translation_is_refused(broker: Cluster, topic: Makes, tmp_path: Path) -> None:
    name = topic("asked-by-hand")
    partition = {"partition_index": 1, "timestamp": -1, "max_num_offsets": 2}
    where = {"replica_id": -1, "topics": [{"name": name, "partitions": [partition]}]}
    request = encode_request(facts.api_key("ListOffsets"), 0, where, correlation_id=5, client_id="old")
    with RawClient(broker.addresses[0]) as direct, pytest.raises(ConnectionError):  # what translation is for
        direct.frame(request)
    config = ProxyConfig(upstream=broker.addresses[0], versions=TRANSLATE, record=tmp_path / "both")
    with Proxy(config) as proxy, RawClient(proxy.address) as client:
        answer = decode_response(client.frame(request), api_key=facts.api_key("ListOffsets"), api_version=0)
        refusal = client.ask("ControlledShutdown", 1, {"broker_id": 9})
    assert answer.header["correlation_id"] == 5 and answer["topics[0].partitions[0].error_code"] == 0
    assert answer["topics[0].partitions[0].old_style_offsets"] == [0]
    assert refusal["error_code"] == facts.error_code("UNSUPPORTED_VERSION")
    with open_capture(tmp_path / "both") as capture:
        seen = {(e.api, e.api_version, e.undecoded) for e in capture.exchanges()}
    assert seen == {("ListOffsets", 0, None), ("ControlledShutdown", 1, None)}
    (segment,) = (tmp_path / "both").glob("*.pcapng")
    assert b"translated from version 0 to 1" in segment.read_bytes()
