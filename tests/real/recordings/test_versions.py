"""Which versions real brokers of three ages offer, and what current clients make of the old ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka
import pytest
from barnabas.decoder.reference import releases
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from confluent_kafka import Consumer
from harness import commands
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from real.brokers.broker import Cluster
from real.brokers.old_broker import OldBroker
from real.clients.confluent_client import read, send


def as_json(*arguments: object) -> dict[str, Any]:
    done = commands.run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def recorded(address: tuple[str, int], directory: Path) -> Iterator[str]:
    """A recording proxy in front of a broker; its bootstrap address."""
    with Proxy(ProxyConfig(upstream=address, record=directory)) as proxy:
        yield show(proxy.address)


def client(found: dict[str, Any], client_id: str) -> dict[str, Any]:
    return next(c for c in found["clients"] if c["client_id"] == client_id)


def versions(client: dict[str, Any]) -> dict[str, list[int]]:
    return {api["api"]: [int(version) for version in api["versions"]] for api in client["apis"]}


def test_the_real_broker_offers_what_its_table_says(broker: Cluster) -> None:
    found = as_json("versions", broker.bootstrap)
    (one,) = found["brokers"]
    assert one["releases"] == ["4.4"] and one["exact"] and one["node_id"] == 1 and not found["problems"]
    offered = {int(key): tuple(ends) for key, ends in one["offered"].items()}
    assert offered == releases.release("4.4").offered


def test_the_old_broker_offers_what_its_table_says(old_broker: OldBroker) -> None:
    (one,) = as_json("versions", old_broker.bootstrap)["brokers"]
    assert one["releases"] == ["0.10.2"] and one["exact"]
    assert {int(key): tuple(ends) for key, ends in one["offered"].items()} == releases.release("0.10.2").offered


@pytest.mark.slow
def test_the_oldest_broker_has_no_api_versions(oldest_broker: OldBroker) -> None:
    done = commands.run("versions", oldest_broker.bootstrap)
    assert done.returncode == 2 and "is a Kafka broker older than 0.10.0" in done.stderr


def test_current_clients_of_an_old_broker(old_broker: OldBroker, tmp_path: Path) -> None:
    with recorded(old_broker.address, tmp_path / "old") as bootstrap:
        send(bootstrap, "seen", [b"one"], **{"client.id": "new-librdkafka"})
        python = kafka.KafkaProducer(bootstrap_servers=bootstrap, client_id="new-kafka-python")
        assert python.send("seen", b"two").get(PATIENCE).offset == 1
        python.close()
        group = {"client.id": "new-reader", "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": bootstrap} | group)
        consumer.subscribe(["seen"])
        values = [message.value() for message in read(consumer, 2)]
        consumer.close()
    assert values == [b"one", b"two"]

    found = as_json("versions", tmp_path / "old")
    assert [(b["releases"], b["exact"]) for b in found["brokers"]] == [(["0.10.2"], True)]
    rdkafka, python_seen, reader = (client(found, f"new-{name}") for name in ("librdkafka", "kafka-python", "reader"))
    assert rdkafka["software"].startswith("librdkafka ") and python_seen["software"].startswith("kafka-python ")
    for one in (rdkafka, python_seen):
        assert one["negotiation"] == "asks" and one["old_formats"] == {"1": 1}
        produce = next(api for api in one["apis"] if api["api"] == "Produce")
        assert produce["versions"] == {"2": 1} and produce["offered"] == [[0, 2]] and produce["limit"] == "broker"
        # asked with the version that carries its name, refused, asked again with v0 (KIP-511)
        asked = next(api for api in one["apis"] if api["api"] == "ApiVersions")
        assert "0" in asked["versions"] and sum(asked["refused"].values()) >= 1
    assert versions(reader)["Fetch"] == [3] and versions(reader)["JoinGroup"] == [1]


@pytest.mark.slow
def test_current_clients_of_the_oldest_broker(oldest_broker: OldBroker, tmp_path: Path) -> None:
    with recorded(oldest_broker.address, tmp_path / "oldest") as bootstrap:
        python = kafka.KafkaProducer(bootstrap_servers=bootstrap, client_id="set-to-0.8", api_version=(0, 8, 2))
        assert python.send("seen", b"one").get(PATIENCE).offset == 0
        python.close()
    (oldest,) = as_json("versions", tmp_path / "oldest")["clients"]
    assert oldest["negotiation"] == "never" and oldest["old_formats"] == {"0": 1} and oldest["software_name"] is None
    assert versions(oldest) == {"Produce": [0], "Metadata": [0]}
