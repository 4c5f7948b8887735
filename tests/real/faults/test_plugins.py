"""The example plugins in front of a real broker: topics by id, deletions by name and by id, own requests."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.plugins import examples
from barnabas.plugins.hooks import parse
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import PluginFault, show
from barnabas.proxy.interception.plugin_host import PluginsConfig
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.proxies import Proxy
from harness.waiting import PATIENCE, until
from harness.wire import read_frame, with_size
from real.brokers.broker import Cluster
from real.clients.confluent_client import create_topic, flush, read

FOLDER = Path(examples.__file__).parent
POLICY_VIOLATION = 44
RECORDS = 60


def ask(sock: socket.socket, key: int, version: int, fields: dict[str, Any], number: int) -> Any:
    frame = decoder.encode_request(key, version, fields, correlation_id=number, client_id="raw")
    sock.sendall(with_size(frame))
    data = read_frame(sock)
    assert int.from_bytes(data[4:8], "big") == number
    return decoder.decode_response(data[4:], api_key=key, api_version=version)


def topics_of(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=PATIENCE).topics)


def test_protected_topics_stay_and_others_go(broker: Cluster, tmp_path: Path) -> None:
    direct = AdminClient({"bootstrap.servers": broker.bootstrap})
    for name in ("guard-orders", "guard-scratch", "guard-more"):
        create_topic(broker.bootstrap, name)
    plugins = PluginsConfig((parse(f"{FOLDER / 'guard.py'}?topics=guard-o*,pay*"),), budget=PATIENCE)
    with Proxy(ProxyConfig(upstream=broker.addresses[0], plugins=plugins, record=tmp_path / "recording")) as proxy:
        through = AdminClient({"bootstrap.servers": show(proxy.address)})
        try:
            through.delete_topics(["guard-orders"])["guard-orders"].result(PATIENCE)
            raise AssertionError("deleted")
        except KafkaException as error:
            assert error.args[0].code() == POLICY_VIOLATION
        through.delete_topics(["guard-scratch"])["guard-scratch"].result(PATIENCE)
        with socket.create_connection(proxy.address, PATIENCE) as sock:
            topics = ask(sock, 3, 12, {"topics": None}, 1)["topics"]
            ids = {topic["name"]: topic["topic_id"] for topic in topics}
            for number, (name, code) in enumerate({"guard-orders": POLICY_VIOLATION, "guard-more": 0}.items(), 2):
                fields = {"topics": [{"name": None, "topic_id": ids[name]}], "timeout_ms": 20_000}
                (answer,) = ask(sock, 20, 6, fields, number)["responses"]
                assert (answer["topic_id"], answer["error_code"]) == (ids[name], code)
    assert not [event for event in proxy.events() if isinstance(event, PluginFault)]
    until(lambda: [name for name in topics_of(direct) if name.startswith("guard-")] == ["guard-orders"])
    with open_capture(tmp_path / "recording") as capture:
        seen = [each for each in capture.exchanges() if each.client_id == "raw"]
    assert [each.api for each in seen] == [
        "Metadata",
        "DeleteTopics",
        "DeleteTopics",
    ]  # the plugin's own are not the client's
    assert all(each.undecoded is None and each.response is not None for each in seen)


@pytest.mark.slow
def test_a_tenant_produces_and_consumes_with_a_group(broker: Cluster) -> None:
    plugins = PluginsConfig((parse(f"{FOLDER / 'tenant.py'}?prefix=blue."),), budget=PATIENCE)
    with Proxy(ProxyConfig(upstream=broker.addresses[0], plugins=plugins)) as proxy:
        through = show(proxy.address)
        admin = AdminClient({"bootstrap.servers": through})
        create_topic(through, "tenant-orders", 2)
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": through, "enable.idempotence": True, "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce(
                "tenant-orders", str(number), on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)
        flush(producer)
        assert failed == []
        consumer = Consumer({"bootstrap.servers": through, "group.id": "tenant", "auto.offset.reset": "earliest"})
        consumer.subscribe(["tenant-orders"])
        found = read(consumer, RECORDS)
        assert {message.topic() for message in found} == {"tenant-orders"}
        values = [message.value().decode() for message in found]
        consumer.commit(asynchronous=False)
        places = [TopicPartition("tenant-orders", partition) for partition in range(2)]
        assert sum(max(place.offset, 0) for place in consumer.committed(places, PATIENCE)) == RECORDS
        consumer.close()
        assert sorted(values, key=int) == [str(number) for number in range(RECORDS)]
        assert topics_of(admin) == {"tenant-orders"}
    assert not [event for event in proxy.events() if isinstance(event, PluginFault)]
    names = topics_of(AdminClient({"bootstrap.servers": broker.bootstrap}))
    assert "blue.tenant-orders" in names and "tenant-orders" not in names
