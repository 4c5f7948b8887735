"""The compatibility report on real traffic: who breaks on which release, and whether they really do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import FindingSeen, show
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness import commands
from harness.proxies import Proxy
from harness.testbed import next_event
from harness.waiting import PATIENCE
from real.brokers.broker import Cluster
from real.brokers.old_broker import OldBroker
from real.clients import java_programs
from real.clients.confluent_client import create_topic, flush, send


def compat(against: str, *captures: Path) -> dict[str, Any]:
    done = commands.run("compat", *captures, "--against", against, "--json", "--fail-on", "breaks")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (found["worst"] == "breaks"), done.stderr
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {client["client_id"]: client["verdict"] for client in found["clients"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api_version", "version", "negotiation", "verdict"),
    # set to 0.9, kafka-python asks for nothing; set to 0.10, it asks, and takes no more than 0.10 had
    [((0, 9), 1, "never", "breaks"), pytest.param((0, 10, 2), 2, "asks", "may break", marks=pytest.mark.slow)],
)
def test_a_client_that_is_configured_for_an_old_release(
    broker: Cluster, old_broker: OldBroker, tmp_path: Path, api_version: Any, version: int, negotiation: str, verdict: str
) -> None:
    topic = f"set-to-{version}"

    def producer(proxy: Proxy) -> kafka.KafkaProducer:
        """Without retries it reports a connection that the broker closes, as soon as that happens."""
        return kafka.KafkaProducer(bootstrap_servers=show(proxy.address), api_version=api_version, retries=0)

    def judged(against: str, recording: str) -> dict[str, Any]:
        (client,) = compat(against, tmp_path / recording)["clients"]
        assert client["software"] == "probably kafka-python" and client["negotiation"] == negotiation
        return client

    with Proxy(ProxyConfig(upstream=old_broker.address, record=tmp_path / "before")) as proxy:
        of_old = producer(proxy)
        of_old.send(topic, b"one").get(PATIENCE)
        of_old.close(PATIENCE)
    # what the old broker's traffic predicts ...
    client = judged("4.4", "before")
    assert client["verdict"] == verdict
    (reason,) = [r for r in client["reasons"] if r["api"] == "Produce"]
    assert (reason["version"], reason["dropped_in"], reason["kip"]) == (version, "4.0", "KIP-896")
    assert sum(client["old_formats"].values()) == 1
    assert client["remedies"][0].startswith("upgrade kafka-python to 2.0.2")
    assert any("api_version" in note for note in client["notes"])
    assert judged("3.9", "before")["verdict"] == "works"

    # ... is what happens; and there, where more is on offer, the verdict is sure
    create_topic(broker.bootstrap, topic)
    with Proxy(ProxyConfig(upstream=broker.addresses[0], record=tmp_path / "after")) as proxy:
        of_new = producer(proxy)
        with pytest.raises(kafka.errors.KafkaConnectionError):
            of_new.send(topic, b"one").get(PATIENCE)
        of_new.close(PATIENCE)
    after = judged("4.4", "after")
    (reason,) = [r for r in after["reasons"] if r["api"] == "Produce"]
    assert (after["verdict"], reason["version"]) == ("breaks", version) and reason["refused"] >= (negotiation == "asks")


def test_current_clients_work_on_both(broker: Cluster, old_broker: OldBroker, tmp_path: Path) -> None:
    recordings = []
    for address, name in ((broker.addresses[0], "new"), (old_broker.address, "old")):
        recordings.append(tmp_path / name)
        with Proxy(ProxyConfig(upstream=address, record=recordings[-1])) as proxy:
            if name == "new":
                admin = AdminClient({"bootstrap.servers": show(proxy.address), "client.id": f"admin-{name}"})
                admin.create_topics([NewTopic("healthy", 1, 1)])["healthy"].result(PATIENCE)
            send(show(proxy.address), "healthy", [b"one"], **{"client.id": f"librdkafka-{name}"})
            python = kafka.KafkaProducer(bootstrap_servers=show(proxy.address), client_id=f"python-{name}")
            python.send("healthy", b"two").get(PATIENCE)
            python.close()
    for against in ("4.0", "4.4", "0.10.2"):
        found = verdicts(compat(against, *recordings))
        assert {"librdkafka-new", "python-new", "librdkafka-old", "python-old", "admin-new"} == set(found)
        # kafka-python is idempotent where the broker lets it: traffic does not show whether it does without
        unsure = {"python-new"} if against == "0.10.2" else set()
        assert {name for name, verdict in found.items() if verdict != "works"} == unsure


@pytest.mark.slow
def test_librdkafka_that_is_configured_for_the_brokers_release(broker: Cluster, tmp_path: Path) -> None:
    """broker.version.fallback alone decides then; what it still sends on Kafka 4.4 is refused."""
    create_topic(broker.bootstrap, "fallback")
    failed: list[object] = []
    with Proxy(ProxyConfig(upstream=broker.addresses[0], record=tmp_path / "fallback", findings=True)) as proxy:
        settings = {"api.version.request": False, "broker.version.fallback": "0.9.0", "log_level": 0}
        producer = Producer({"bootstrap.servers": show(proxy.address), **settings})
        producer.produce("fallback", b"one", on_delivery=lambda error, _: failed.append(error))
        next_event(proxy, FindingSeen, lambda found: found.finding == "closed-on-version" and "Produce" in found.seen)
        producer.purge()
        flush(producer)
    assert failed and failed[0] is not None
    found = compat("4.4", tmp_path / "fallback")
    (client,) = found["clients"]
    assert client["software"] == "probably librdkafka" and client["negotiation"] == "never"
    produce = [r for r in client["reasons"] if r["api"] == "Produce"]
    assert produce and produce[0]["kip"] == "KIP-896" and produce[0]["version"] < 3
    assert client["remedies"][0].startswith("upgrade librdkafka to 1.8.2")
    assert any("api.version.request=true" in note for note in client["notes"])


@pytest.mark.slow
def test_java_4_needs_brokers_of_2_1(broker: Cluster, old_broker: OldBroker, tmp_path: Path) -> None:
    def send(address: tuple[str, int], recording: Path) -> str:
        with Proxy(ProxyConfig(upstream=address, record=recording)) as proxy:
            jars = java_programs.broker_jars()
            return java_programs.run("OneRecord", jars, show(proxy.address), "java").strip()

    create_topic(broker.bootstrap, "java")
    assert send(broker.addresses[0], tmp_path / "new") == "sent"
    for against, verdict in (("4.4", "works"), ("2.1", "works"), ("2.0", "breaks"), ("0.10.2", "breaks")):
        (client,) = compat(against, tmp_path / "new")["clients"]
        assert client["software"].startswith("the Java client 4.") and client["verdict"] == verdict, against
    assert "needs brokers of 2.1 or newer" in client["reasons"][0]["text"]
    assert client["remedies"][0].startswith("use brokers of 2.1 or newer")
    # and so it is
    assert send(old_broker.address, tmp_path / "old").startswith("UnsupportedVersionException")
