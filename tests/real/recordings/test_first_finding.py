"""The one command: a recording of a client in trouble, and the right finding comes first, with who, what, and what
to do. Real clients, real brokers of three ages, the whole way through the proxy and `barnabas findings`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import FindingSeen, show
from confluent_kafka import Producer
from harness import commands
from harness.proxies import Proxy
from harness.testbed import next_event
from real.brokers.broker import Cluster
from real.brokers.old_broker import OldBroker
from real.clients import java_programs
from real.clients.confluent_client import flush
from real.findings.scenarios import fetching, groups, producing, versions

C = TypeVar("C")


def findings(recording: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and findings of the command."""
    done = commands.run("findings", "--json", *options, recording)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)["findings"]


@contextmanager
def seen(address: tuple[str, int], folder: Path, id: str, run: Callable[[str], C]) -> Iterator[C]:
    """What `run` gives, such as a client, as soon as the proxy between has reported this finding."""
    with Proxy(ProxyConfig(upstream=address, record=folder, findings=True)) as proxy:
        client = run(show(proxy.address))
        next_event(proxy, FindingSeen, lambda found: found.finding == id)
        yield client


def first_of(folder: Path) -> dict[str, Any]:
    """What comes first of a recording; the command fails a build with it."""
    status, found = findings(folder, "--fail-on", "medium")
    assert status == 1 and found
    return found[0]


def first(address: tuple[str, int], folder: Path, run: Callable[[str], object]) -> dict[str, Any]:
    """What comes first after `run` went through the proxy."""
    with Proxy(ProxyConfig(upstream=address, record=folder)) as proxy:
        run(show(proxy.address))
    return first_of(folder)


def test_an_old_client_at_kafka_4(broker: Cluster, tmp_path: Path) -> None:
    versions.create(broker.bootstrap, "first-old")
    found = first(broker.addresses[0], tmp_path, lambda b: versions.old_kafka_python(b, "first-old"))
    assert found["id"] == "closed-on-version" and found["severity"] == "high"
    assert "Produce v2" in found["seen"] and "client 'shop'" in found["seen"] and "KIP-896" in found["why"]
    assert "api_version" in found["remedy"] and found["exchanges"][0]["api"] == "Produce"


@pytest.mark.slow
def test_an_old_librdkafka_at_kafka_4(broker: Cluster, tmp_path: Path) -> None:
    versions.create(broker.bootstrap, "first-old-rd")
    found = first(broker.addresses[0], tmp_path, lambda b: versions.old_librdkafka(b, "first-old-rd"))
    assert found["id"] == "closed-on-version" and "broker.version.fallback" in found["remedy"]


@pytest.mark.slow
def test_a_current_client_at_the_oldest_broker(oldest_broker: OldBroker, tmp_path: Path) -> None:
    def produce(bootstrap: str) -> Producer:
        producer = Producer({"bootstrap.servers": bootstrap, "client.id": "new", "log_level": 0})
        producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error))
        return producer

    failed: list[object] = []
    with seen(oldest_broker.address, tmp_path, "closed-on-first-request", produce) as producer:
        producer.purge()
        flush(producer)
    assert failed and failed[0] is not None  # nothing gets through
    found = first_of(tmp_path)
    assert found["id"] == "closed-on-first-request" and "ApiVersions v3" in found["seen"]
    assert "client 'new'" in found["seen"] and "KIP-35" in found["why"]
    assert f"barnabas versions {oldest_broker.bootstrap}" in found["remedy"]


@pytest.mark.slow
def test_a_current_java_client_at_an_old_broker(old_broker: OldBroker, tmp_path: Path) -> None:
    def produce(bootstrap: str) -> None:
        output = java_programs.run("OneRecord", java_programs.broker_jars(), bootstrap, "t")
        assert output.startswith("UnsupportedVersionException")

    found = first(old_broker.address, tmp_path, produce)
    assert found["id"] == "client-gives-up" and "apache-kafka-java" in found["seen"] and "is 0.10.2" in found["seen"]


@pytest.mark.slow  # it sleeps
def test_a_consumer_that_sleeps_past_max_poll(broker: Cluster, tmp_path: Path) -> None:
    found = first(broker.addresses[0], tmp_path, groups.SCENARIOS["poll-librdkafka"])
    assert found["id"] == "poll-interval-exceeded"
    assert "max.poll.interval.ms" in found["seen"] and "billing" in found["seen"]
    assert "max.poll.records" in found["remedy"] and found["about"]["group"]


def test_a_producer_that_asks_for_no_answer(broker: Cluster, tmp_path: Path) -> None:
    versions.create(broker.bootstrap, "first-acks-0")
    found = first(broker.addresses[0], tmp_path, lambda b: producing.acks_0(b, "first-acks-0"))
    assert found["id"] == "acks-0" and "Produce v" in found["seen"] and "acks=all" in found["remedy"]


@pytest.mark.slow  # these wait out their quotas
@pytest.mark.parametrize(("name", "api"), [("throttled_consumer", "Fetch"), ("throttled_producer", "Produce")])
def test_a_client_throttled_by_quota(broker: Cluster, tmp_path: Path, name: str, api: str) -> None:
    topic = f"first-{name.replace('_', '-')}"
    versions.create(broker.bootstrap, topic)
    found = first(broker.addresses[0], tmp_path, lambda b: getattr(fetching, name)(b, topic))
    assert found["id"] == "throttled-by-quota" and found["about"]["api"] == api
    assert "byte_rate" in found["why"] and "kafka-configs.sh" in found["remedy"]
