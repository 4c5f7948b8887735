"""A rule breaks a real producer's traffic to a real broker: the producer retries through, nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.plugins import rules
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import RuleHit
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.proxies import Proxy
from real.broker import Cluster
from real.workload import Deadline

RECORDS = 60


@pytest.mark.parametrize("broker_does", ["skipped", "executed"])
def test_a_producer_retries_through_not_leader(broker: Cluster, tmp_path: Path, broker_does: str) -> None:
    topic = f"rule-{broker_does}"
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    (tmp_path / "rules.yaml").write_text(
        f"rules:\n  - name: leader moved\n    match: api == Produce and topic == {topic}\n"
        f"    do: {{error: NOT_LEADER_OR_FOLLOWER, broker: {broker_does}}}\n    when: {{after: 2, times: 3}}\n"
    )
    config = ProxyConfig(
        upstream=broker.addresses[0], record=tmp_path / "recording", rules=rules.load(tmp_path / "rules.yaml")
    )
    failed: list[object] = []
    with Proxy(config) as proxy:
        host, port = proxy.address
        # idempotent: a batch that the broker wrote although the client was told otherwise must not be there twice
        producer = Producer({"bootstrap.servers": f"{host}:{port}", "enable.idempotence": True, "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
            # one request for each record, however long the broker takes for the first producer id
            assert producer.flush(30) == 0
        assert failed == []
    hits = [event for event in proxy.events() if isinstance(event, RuleHit)]
    assert [hit.hits for hit in hits] == [1, 2, 3]

    with open_capture(tmp_path / "recording") as capture:
        produced = [e for e in capture.exchanges() if e.api == "Produce"]
    assert [e.to_dict(bodies=False)["error"] for e in produced if e.error] == ["NOT_LEADER_OR_FOLLOWER"] * 3
    assert all(e.undecoded is None for e in produced)

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        values: list[str] = []
        deadline = Deadline(30)
        while len(values) < RECORDS:
            deadline.check(f"{RECORDS} records of {topic}, {len(values)} so far")
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value().decode())
        extra = consumer.poll(1.0)
    finally:
        consumer.close()
    assert values == [str(number) for number in range(RECORDS)] and extra is None
