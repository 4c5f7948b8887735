"""The example plugins between a real client and the mock cluster, and installed as an entry point."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.plugins import examples
from barnabas.plugins.hooks import parse
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import PluginFault, PluginSaid, show
from barnabas.proxy.relay.interception.plugin_host import PluginsConfig
from barnabas.ui.testing.cluster import EmbeddedCluster
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.proxies import Proxy
from harness.waiting import PATIENCE, attempts

FOLDER = Path(examples.__file__).parent
RECORDS = 25


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, int]]:
    embedded = EmbeddedCluster(2)
    yield embedded.address
    embedded.stop()


def produce(bootstrap: str, topic: str) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(
            topic, str(number), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    assert failed == []


def consume(bootstrap: str, topic: str, group: str = "") -> list[str]:
    """By assignment, or as a member of a group that commits."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group or "g", "auto.offset.reset": "earliest", "log_level": 0}
    )
    if group:
        consumer.subscribe([topic])
    else:
        consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    for _ in attempts(pause=0):
        if len(found) == RECORDS:
            break
        record = consumer.poll(0.5)
        if record is not None and record.error() is None:
            found.append(record.value().decode())
    if group:
        consumer.commit(asynchronous=False)
        assert consumer.committed([TopicPartition(topic, 0)], PATIENCE)[0].offset == RECORDS
    consumer.close()
    return found


@pytest.mark.slow
def test_a_tenant_has_its_own_topics_and_a_histogram(cluster: tuple[str, int]) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    other = f"other-{uuid.uuid4().hex[:8]}"
    produce(show(cluster), other)
    plugins = [f"{FOLDER / 'latency.py'}?every=0.5", f"{FOLDER / 'tenant.py'}?prefix=blue."]
    config = PluginsConfig(tuple(map(parse, plugins)), budget=PATIENCE)
    with Proxy(ProxyConfig(upstream=cluster, plugins=config)) as proxy:
        through = show(proxy.address)
        produce(through, topic)
        assert consume(through, topic) == list(map(str, range(RECORDS)))
        assert consume(through, topic, group=f"group-{topic}") == list(map(str, range(RECORDS)))
        listed = set(AdminClient({"bootstrap.servers": through}).list_topics(timeout=PATIENCE).topics)
        assert topic in listed and other not in listed and f"blue.{topic}" not in listed
        lines, faults = [], []
        for left in attempts(pause=0):
            if any(line.startswith(f"{topic}: ") for line in lines):
                break
            event = proxy.next_event(left)
            lines += [event.line] if isinstance(event, PluginSaid) else []
            faults += [event] if isinstance(event, PluginFault) else []
        assert faults == []
        assert any(line.startswith(f"{topic}: ") and "99% within" in line for line in lines), lines
    assert consume(show(cluster), f"blue.{topic}") == list(map(str, range(RECORDS)))
    assert topic not in AdminClient({"bootstrap.servers": show(cluster)}).list_topics(timeout=PATIENCE).topics


def test_an_installed_plugin_is_loaded_when_it_is_named_and_only_then(tmp_path: Path) -> None:
    (tmp_path / "shop_plugins.py").write_text("print('imported')\n" + (FOLDER / "latency.py").read_text())
    info = tmp_path / "shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[barnabas.plugins]\nslow = shop_plugins:ProduceLatency\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = f"import sys; sys.path.append({str(tmp_path)!r}); from barnabas.ui.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", program, "plugins", *arguments], capture_output=True, text=True, timeout=PATIENCE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        )  # fmt: skip

    listed = run("list")
    assert "slow: shop_plugins:ProduceLatency (shop)" in listed.stdout and "imported" not in listed.stderr
    found = run("check", "slow?every=3")
    assert found.stdout.startswith("slow: exchange, tick\n    Produce\nok"), found
    wrong = run("check", "slwo")
    assert wrong.returncode == 2 and "did you mean 'slow'" in wrong.stderr
    wrong = run("check", "slow?evry=3")
    assert wrong.returncode == 2 and "did you mean 'every'" in wrong.stderr
