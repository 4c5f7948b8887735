"""Current clients on old brokers, through the proxy with translation: what works, and what is refused with a clear error."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.plugins.versions.profile import Profile
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from kafka import KafkaProducer
from matrix.brokers import SETTINGS
from matrix.pair import tried
from matrix.stages import reached
from real.brokers.broker import REPOSITORY
from real.brokers.old_broker import WITH_GROUPS, OldBroker, start_old
from real.clients.confluent_client import create_topic, read, send
from real.clients.translated_clients import expected, java, kafka_python, librdkafka

TRANSLATE = VersionsConfig(translate=True)
ALL = ("none", "gzip", "snappy", "lz4")


@pytest.fixture(scope="module")
def translated(old_broker: OldBroker) -> Iterator[str]:
    """A translating proxy in front of 0.10.2."""
    with Proxy(ProxyConfig(upstream=old_broker.address, versions=TRANSLATE)) as proxy:
        yield show(proxy.address)


@pytest.fixture(scope="module")
def topic(translated: str) -> Callable[[str], str]:
    """Makes a topic of two partitions: CreateTopics is translated, too."""
    return lambda name: create_topic(translated, name, 2, 1)


def test_java_4(translated, topic) -> None:
    """It needs brokers of 2.1 or newer: Produce 3, Fetch 4. Idempotence cannot be had."""
    name = topic("new-java")
    assert java(translated, name, ALL, "4.4.0", "false") == expected(ALL, timestamps=True)


def test_librdkafka(translated, topic) -> None:
    name = topic("new-librdkafka")
    assert librdkafka(translated, name, (*ALL, "zstd"), None) == expected((*ALL, "zstd"), timestamps=True)


def test_kafka_python(translated, topic) -> None:
    name = topic("new-kafka-python")
    assert kafka_python(translated, name, ALL, None) == expected(ALL, timestamps=True)


def test_a_client_that_infers_a_release(translated, old_broker: OldBroker, topic) -> None:
    """kafka-python's own settings ask for idempotence from 0.11 on, which it infers from Metadata 4: never worse than directly."""
    name = topic("inferred")
    for number, bootstrap in enumerate((old_broker.bootstrap, translated)):
        producer = KafkaProducer(bootstrap_servers=bootstrap)
        assert producer.send(name, b"default", partition=0).get(PATIENCE).offset == number
        producer.close()


@pytest.mark.slow
def test_a_newer_release_is_pretended(old_broker: OldBroker, topic: Callable[[str], str], tmp_path: Path) -> None:
    """With `pretend` clients see what 2.3 has, as far as it can be bridged to 0.10.2."""
    name = topic("newer-face")
    versions = VersionsConfig(Profile.of("2.3"), translate=True)
    with Proxy(ProxyConfig(upstream=old_broker.address, versions=versions, record=tmp_path / "face")) as proxy:
        assert librdkafka(show(proxy.address), name, ("lz4",), None) == expected(("lz4",), timestamps=True)
    with open_capture(tmp_path / "face") as capture:
        seen = {(e.api, e.api_version) for e in capture.exchanges()}
    assert {("Produce", 7), ("Fetch", 11), ("JoinGroup", 5), ("ListOffsets", 5)} <= seen


@pytest.mark.slow
def test_idempotence_is_refused(translated, topic) -> None:
    """The client is not made to believe in what the broker cannot do."""
    name = topic("new-and-idempotent")
    producer = Producer({"bootstrap.servers": translated, "enable.idempotence": True, "log_level": 0})
    producer.produce(name, b"never")
    with pytest.raises(KafkaException, match="Idempotent producer not supported"):
        producer.flush(PATIENCE)


@pytest.mark.slow
def test_current_clients_of_the_oldest_broker(oldest_broker: OldBroker) -> None:
    """0.8.2 has neither ApiVersions nor groups: produce and fetch work, JoinGroup is no API of it."""
    with Proxy(ProxyConfig(upstream=oldest_broker.address, versions=TRANSLATE)) as proxy:
        bootstrap = show(proxy.address)
        # without any topic such a broker names no brokers either: a client of its time makes one
        first = KafkaProducer(bootstrap_servers=oldest_broker.bootstrap, api_version=(0, 8, 2))
        assert first.send("translated", b"zero").get(PATIENCE).offset == 0
        first.close()
        python = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
        with pytest.raises(AssertionError, match="Headers not supported"):  # told by the client itself, as directly
            python.send("translated", b"one", headers=[("refused", b"h")])
        assert python.send("translated", b"one").get(PATIENCE).offset == 1
        python.close()
        send(bootstrap, "translated", [b"two"])
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0})
        consumer.assign([TopicPartition("translated", 0, 0)])
        values = [message.value() for message in read(consumer, 3)]
        consumer.close()
    assert values == [b"zero", b"one", b"two"]


@pytest.fixture(scope="module")
def of_the_matrix() -> Iterator[OldBroker]:
    """0.9. Of its own: the topics that the matrix asks for have two partitions each."""
    with start_old(WITH_GROUPS, config=SETTINGS) as old:
        yield old


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kcat", "aiokafka"])
def test_the_first_connection_to_a_broker_that_cannot_say_its_versions(of_the_matrix: OldBroker, client: str) -> None:
    """0.9 never answers ApiVersions. These clients give up with their only connection: it waits, and loses nothing."""
    if client == "kcat" and shutil.which("kcat") is None:
        pytest.skip("no kcat on the PATH")
    address = of_the_matrix.address
    with Proxy(ProxyConfig(upstream=address, versions=TRANSLATE)) as proxy:
        program = [sys.executable, str(REPOSITORY / "tests" / "matrix" / "programs" / client / "program.py")]
        outcomes = tried(program, address, proxy.address)
    assert reached("group", outcomes["group"]), outcomes
    # 0.9 has neither transactions nor CreateTopics: both are refused, and neither is waited for in vain
    assert all("imed out" not in outcomes[stage]["text"] for stage in ("transactions", "admin") if stage in outcomes), outcomes
