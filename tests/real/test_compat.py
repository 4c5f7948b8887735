"""The compatibility report on real traffic: who breaks on which release, and whether they really do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
import pytest
from barnabas.proxy import ProxyConfig
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness import commands
from harness.proxies import Proxy
from real.broker import JVM, Cluster, jar_directory
from real.old_broker import OldBroker


def compat(against: str, *captures: Path) -> dict[str, Any]:
    done = commands.run("compat", *captures, "--against", against, "--json", "--fail-on", "breaks")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (found["worst"] == "breaks"), done.stderr
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {client["client_id"]: client["verdict"] for client in found["clients"]}


@pytest.mark.parametrize(
    ("told", "version", "negotiation", "foretold"),
    # told 0.9, kafka-python asks for nothing; told 0.10, it asks, and takes no more than 0.10 had
    [((0, 9), 1, "never", "breaks"), ((0, 10, 2), 2, "asks", "may break")],
)
def test_a_client_that_was_told_an_old_release(
    broker: Cluster,
    old_broker: OldBroker,
    tmp_path: Path,
    told: tuple[int, ...],
    version: int,
    negotiation: str,
    foretold: str,
) -> None:
    topic = f"told-{version}"

    def produce(address: tuple[str, int], recording: Path) -> None:
        with Proxy(ProxyConfig(upstream=address, record=recording)) as proxy:
            host, port = proxy.address
            producer = kafka.KafkaProducer(
                bootstrap_servers=f"{host}:{port}", api_version=told, max_block_ms=3000, delivery_timeout_ms=2000,
                request_timeout_ms=1500, retries=1,
            )  # fmt: skip
            try:
                producer.send(topic, b"one").get(6)
            finally:
                producer.close(1)

    def judged(against: str, recording: str) -> dict[str, Any]:
        (client,) = compat(against, tmp_path / recording)["clients"]
        assert client["software"] == "probably kafka-python" and client["negotiation"] == negotiation
        return client

    produce(old_broker.address, tmp_path / "before")
    # what the old broker's traffic foretells ...
    client = judged("4.3", "before")
    assert client["verdict"] == foretold
    (reason,) = [r for r in client["reasons"] if r["api"] == "Produce"]
    assert (reason["version"], reason["dropped_in"], reason["kip"]) == (version, "4.0", "KIP-896")
    assert sum(client["old_formats"].values()) == 1
    assert client["remedies"][0].startswith("upgrade kafka-python to 2.0.2")
    assert any("api_version" in note for note in client["notes"])
    assert judged("3.9", "before")["verdict"] == "works"

    # ... is what happens; and there, where more is on offer, the verdict is sure
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    with pytest.raises(kafka.errors.KafkaError):
        produce(broker.addresses[0], tmp_path / "after")
    after = judged("4.3", "after")
    (reason,) = [r for r in after["reasons"] if r["api"] == "Produce"]
    assert (
        after["verdict"] == "breaks" and reason["version"] == version and reason["refused"] >= (negotiation == "asks")
    )


def test_current_clients_work_on_both(broker: Cluster, old_broker: OldBroker, tmp_path: Path) -> None:
    recordings = []
    for address, name in ((broker.addresses[0], "new"), (old_broker.address, "old")):
        recordings.append(tmp_path / name)
        with Proxy(ProxyConfig(upstream=address, record=recordings[-1])) as proxy:
            host, port = proxy.address
            if name == "new":
                admin = AdminClient({"bootstrap.servers": f"{host}:{port}", "client.id": f"admin-{name}"})
                admin.create_topics([NewTopic("healthy", 1, 1)])["healthy"].result(20)
            producer = Producer({"bootstrap.servers": f"{host}:{port}", "client.id": f"librdkafka-{name}"})
            producer.produce("healthy", b"one")
            assert producer.flush(20) == 0
            python = kafka.KafkaProducer(bootstrap_servers=f"{host}:{port}", client_id=f"python-{name}")
            python.send("healthy", b"two").get(20)
            python.close()
    for against in ("4.0", "4.3", "0.10.2"):
        found = verdicts(compat(against, *recordings))
        assert {"librdkafka-new", "python-new", "librdkafka-old", "python-old", "admin-new"} == set(found)
        # kafka-python is idempotent where the broker lets it: whether it does without, traffic does not tell
        unsure = {"python-new"} if against == "0.10.2" else set()
        assert {name for name, verdict in found.items() if verdict != "works"} == unsure


def test_librdkafka_that_was_told_the_brokers_release(broker: Cluster, tmp_path: Path) -> None:
    """broker.version.fallback alone decides then; what it still sends on Kafka 4.3 is refused."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("fallback", 1, 1)])["fallback"].result(20)
    failed: list[object] = []
    with Proxy(ProxyConfig(upstream=broker.addresses[0], record=tmp_path / "told")) as proxy:
        host, port = proxy.address
        producer = Producer(
            {
                "bootstrap.servers": f"{host}:{port}", "api.version.request": False, "broker.version.fallback": "0.9.0",
                "message.timeout.ms": 2500, "log_level": 0,
            }
        )  # fmt: skip
        producer.produce("fallback", b"one", on_delivery=lambda error, _: failed.append(error))
        producer.flush(10)
    assert failed and failed[0] is not None
    found = compat("4.3", tmp_path / "told")
    (client,) = found["clients"]
    assert client["software"] == "probably librdkafka" and client["negotiation"] == "never"
    produce = [r for r in client["reasons"] if r["api"] == "Produce"]
    assert produce and produce[0]["kip"] == "KIP-896" and produce[0]["version"] < 3
    assert client["remedies"][0].startswith("upgrade librdkafka to 1.8.2")
    assert any("api.version.request=true" in note for note in client["notes"])


def test_java_4_needs_brokers_of_2_1(broker: Cluster, old_broker: OldBroker, tmp_path: Path) -> None:
    def send(address: tuple[str, int], recording: Path) -> str:
        with Proxy(ProxyConfig(upstream=address, record=recording)) as proxy:
            host, port = proxy.address
            program = str(Path(__file__).parent / "java" / "OneRecord.java")
            command = [*JVM, "-cp", f"{jar_directory()}/*", program, f"{host}:{port}", "java"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("java", 1, 1)])["java"].result(20)
    assert send(broker.addresses[0], tmp_path / "new") == "sent"
    for against, verdict in (("4.3", "works"), ("2.1", "works"), ("2.0", "breaks"), ("0.10.2", "breaks")):
        (client,) = compat(against, tmp_path / "new")["clients"]
        assert client["software"].startswith("the Java client 4.") and client["verdict"] == verdict, against
    assert "needs brokers of 2.1 or newer" in client["reasons"][0]["text"]
    assert client["remedies"][0].startswith("use brokers of 2.1 or newer")
    # and so it is
    assert send(old_broker.address, tmp_path / "old").startswith("UnsupportedVersionException")
