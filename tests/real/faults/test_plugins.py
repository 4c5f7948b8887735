"""The example plugins in front of a real broker: topics by id, deletions by name and by id, own requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.plugins import examples
from barnabas.plugins.hooks import parse
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import PluginFault, show
from barnabas.proxy.relay.interception.plugin_host import PluginsConfig
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.proxies import Proxy
from harness.waiting import PATIENCE, until
from real.brokers.broker import Cluster
from real.clients.confluent_client import create_topic, read, send
from real.clients.raw_client import RawClient

FOLDER = Path(examples.__file__).parent
POLICY_VIOLATION = 44
RECORDS = 60


def topics_of(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=PATIENCE).topics)


def test_protected_topics_stay_and_others_go(broker: Cluster, tmp_path: Path) -> None:
    direct = AdminClient({"bootstrap.servers": broker.bootstrap})
    for name in ("guard-orders", "guard-scratch", "guard-more"):
        create_topic(broker.bootstrap, name)
    plugins = PluginsConfig((parse(f"{FOLDER / 'guard.py'}?topics=guard-o*,pay*"),), budget=PATIENCE)
    with Proxy(ProxyConfig(upstream=broker.addresses[0], plugins=plugins, record=tmp_path / "recording")) as proxy:
        through = AdminClient({"bootstrap.servers": show(proxy.address)})
        with pytest.raises(KafkaException) as refused:
            through.delete_topics(["guard-orders"])["guard-orders"].result(PATIENCE)
        assert refused.value.args[0].code() == POLICY_VIOLATION
        through.delete_topics(["guard-scratch"])["guard-scratch"].result(PATIENCE)
        with RawClient(proxy.address) as client:
            ids = {topic["name"]: topic["topic_id"] for topic in client.ask("Metadata", 12, {"topics": None})["topics"]}
            for name, code in {"guard-orders": POLICY_VIOLATION, "guard-more": 0}.items():
                fields = {"topics": [{"name": None, "topic_id": ids[name]}], "timeout_ms": 20_000}
                (answer,) = client.ask("DeleteTopics", 6, fields)["responses"]
                assert (answer["topic_id"], answer["error_code"]) == (ids[name], code)
    assert not [event for event in proxy.events() if isinstance(event, PluginFault)]
    until(lambda: [name for name in topics_of(direct) if name.startswith("guard-")] == ["guard-orders"])
    with open_capture(tmp_path / "recording") as capture:
        seen = [each for each in capture.exchanges() if each.client_id == "raw"]
    # the plugin's own requests are not the client's
    assert [each.api for each in seen] == ["Metadata", "DeleteTopics", "DeleteTopics"]
    assert all(each.undecoded is None and each.response is not None for each in seen)


@pytest.mark.slow
def test_a_tenant_produces_and_consumes_with_a_group(broker: Cluster) -> None:
    plugins = PluginsConfig((parse(f"{FOLDER / 'tenant.py'}?prefix=blue."),), budget=PATIENCE)
    with Proxy(ProxyConfig(upstream=broker.addresses[0], plugins=plugins)) as proxy:
        through = show(proxy.address)
        admin = AdminClient({"bootstrap.servers": through})
        create_topic(through, "tenant-orders", 2)
        send(through, "tenant-orders", map(str, range(RECORDS)), **{"enable.idempotence": True})
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
