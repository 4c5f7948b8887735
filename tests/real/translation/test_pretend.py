"""Clients in front of a pretended old release behave as in front of a real one: the APIs and versions that they choose are the same.

The pretended release stands on Kafka 4.4, which does not serve most of those versions any more: `translate` bridges them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.plugins.versions.emulated_release import offers, read
from barnabas.plugins.versions.features import of_release
from barnabas.plugins.versions.profile import Profile
from barnabas.proxy import ProxyConfig
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from confluent_kafka import Consumer
from harness.proxies import Proxy
from harness.run.slices import only
from harness.waiting import PATIENCE, PATIENCE_MS
from real.brokers.broker import Cluster
from real.brokers.old_broker import OldBroker
from real.clients import confluent_client
from real.clients.confluent_client import create_topic, send
from real.clients.raw_client import RawClient

API_VERSIONS = 18
Client = Callable[[str, str], bytes]


def librdkafka(bootstrap: str, topic: str) -> bytes:
    send(bootstrap, topic, [b"one"])
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    (message,) = confluent_client.read(consumer, 1)
    consumer.commit(message, asynchronous=False)
    consumer.close()
    return message.value()  # type: ignore[no-any-return]


def kafka_python(bootstrap: str, topic: str) -> bytes:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
    producer.send(topic, b"one").get(PATIENCE)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_MS
    )
    value: bytes = next(consumer).value
    consumer.commit()
    consumer.close()
    return value


def aiokafka(bootstrap: str, topic: str) -> bytes:
    async def work() -> bytes:
        # its producer sends batches of format 2 to brokers of 0.10.2 as well, and they refuse them
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
        async with consumer:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE)
            await consumer.commit()
        return message.value or b""

    return asyncio.run(work())


def chosen(recording: Path) -> set[tuple[str, int]]:
    """Every API and version that clients used and brokers understood."""
    return {(each.api, each.api_version) for each in open_capture(recording).exchanges() if each.response is not None}


CLIENTS = [librdkafka, kafka_python, aiokafka]


def pretending(release: str) -> VersionsConfig:
    return VersionsConfig(Profile.of(release), translate=True)


@contextmanager
def proxied(address: tuple[str, int], **options: Any) -> Iterator[tuple[str, int]]:
    with Proxy(ProxyConfig(upstream=address, **options)) as proxy:
        yield proxy.address


@pytest.mark.parametrize("client", only(CLIENTS, kafka_python))
def test_a_client_chooses_as_in_front_of_the_real_release(
    client: Client, broker: Cluster, old_broker: OldBroker, tmp_path: Path
) -> None:
    topic = f"pretended-{client.__name__}"
    create_topic(broker.bootstrap, topic)
    for bootstrap in (broker.bootstrap, old_broker.bootstrap):
        send(bootstrap, topic, [b"before"])
    found = []
    for address, versions in ((old_broker.address, None), (broker.addresses[0], pretending("0.10.2"))):
        with proxied(address, record=tmp_path / str(len(found)), versions=versions) as (host, port):
            assert client(f"{host}:{port}", topic) == b"before"
        found.append(chosen(tmp_path / str(len(found))))
    real, pretended = found
    assert pretended == real
    assert ("Fetch", 3) in real and (("Produce", 2) in real) is (client is not aiokafka)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "release"), [((0, 8, 2), "0.8.2"), ((0, 9), "0.9.0.1")])
def test_a_client_that_does_not_ask(
    version: tuple[int, ...], release: str, broker: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic, groups = f"never-asks-{release}", version >= (0, 9)
    real: OldBroker = request.getfixturevalue("broker_with_groups" if groups else "oldest_broker")
    create_topic(broker.bootstrap, topic)
    found = []
    for address, versions in ((real.address, None), (broker.addresses[0], pretending(release))):
        with proxied(address, record=tmp_path / str(len(found)), versions=versions) as (host, port):
            producer = kafka.KafkaProducer(bootstrap_servers=f"{host}:{port}", api_version=version)
            assert producer.send(topic, b"one").get(PATIENCE).offset == 0
            producer.close()
            consumer = kafka.KafkaConsumer(
                *([topic] if groups else []), bootstrap_servers=f"{host}:{port}", api_version=version,
                consumer_timeout_ms=PATIENCE_MS, auto_offset_reset="earliest", group_id=topic if groups else None,
                session_timeout_ms=10_000, max_poll_interval_ms=10_000,
            )  # fmt: skip
            if not groups:
                consumer.assign([kafka.TopicPartition(topic, 0)])
            assert next(consumer).value == b"one"
            if groups:
                consumer.commit()
            consumer.close()
        found.append(chosen(tmp_path / str(len(found))))
    one = {("Produce", 1), ("Fetch", 1), ("JoinGroup", 0), ("SyncGroup", 0), ("OffsetCommit", 2), ("LeaveGroup", 0)}
    assert found[0] == found[1] >= (one if groups else {("Produce", 0), ("Fetch", 0), ("Metadata", 0)})


def outcome(address: tuple[str, int], frame: bytes) -> bytes:
    """What a broker does with a request: the response, or how it ends."""
    with RawClient(address) as client:
        try:
            return client.frame(frame)
        except ConnectionError:
            return b"closed"


REFUSED = [
    ("ApiVersions", 0), ("ApiVersions", 1), ("ApiVersions", 3), ("JoinGroup", 5), ("Metadata", 9), ("Produce", 9),
    ("Fetch", 12), ("InitProducerId", 0), ("DescribeCluster", 0), ("OffsetCommit", 8), ("SaslHandshake", 1),
]  # fmt: skip


@pytest.mark.parametrize("fixture", [pytest.param("oldest_broker", marks=pytest.mark.slow), "old_broker"])
def test_unknown_requests_end_as_in_the_real_release(
    fixture: str, broker: Cluster, request: pytest.FixtureRequest
) -> None:
    old: OldBroker = request.getfixturevalue(fixture)
    release = old.release.rpartition(".")[0]
    with proxied(broker.addresses[0], versions=pretending(release)) as address:
        for name, version in REFUSED:
            frame = decoder.encode_request(facts.api_key(name), version, {}, correlation_id=5, client_id="t")
            real, pretended = outcome(old.address, frame), outcome(address, frame)
            if (name, version) == ("ApiVersions", 0) and real != b"closed":
                ends = offers(real, 0) or {}
                assert offers(pretended, 0) == {key: ends[key] for key in ends if key in (offers(pretended, 0) or {})}
            else:
                assert pretended == real, (name, version)


def test_the_newest_release_is_unchanged(broker: Cluster) -> None:
    asked = {"client_software_name": "t", "client_software_version": "1"}
    frame = decoder.encode_request(API_VERSIONS, 4, asked, correlation_id=5, client_id="t")
    real = read(outcome(broker.addresses[0], frame), 4).to_dict()
    ends = {each["api_key"]: (each["min_version"], each["max_version"]) for each in real["api_keys"]}
    (match,) = releases.release_of(ends)
    with proxied(broker.addresses[0], versions=VersionsConfig(Profile.of(match.name))) as address:
        pretended = read(outcome(address, frame), 4).to_dict()
    growing = "finalized_features_epoch"
    assert pretended.pop(growing) >= real.pop(growing)
    assert pretended == real
    features = {each["name"]: (each["min_version"], each["max_version"]) for each in real["supported_features"]}
    assert features == of_release(releases.release(match.name)).supported
