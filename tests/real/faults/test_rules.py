"""A rule breaks a real producer's traffic to a real broker: the producer retries through, nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.plugins.rules import rules
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import RuleHit, show
from confluent_kafka import Consumer, TopicPartition
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from real.brokers.broker import Cluster
from real.clients.confluent_client import create_topic, read, send

RECORDS = 60


@pytest.mark.slow
@pytest.mark.parametrize("broker_does", ["executed", pytest.param("skipped", marks=pytest.mark.slow)])
def test_a_producer_retries_through_not_leader(broker: Cluster, tmp_path: Path, broker_does: str) -> None:
    topic = f"rule-{broker_does}"
    create_topic(broker.bootstrap, topic)
    (tmp_path / "rules.yaml").write_text(
        f"rules:\n  - name: leader moved\n    match: api == Produce and topic == {topic}\n"
        f"    do: {{error: NOT_LEADER_OR_FOLLOWER, broker: {broker_does}}}\n    when: {{after: 2, times: 3}}\n"
    )
    config = ProxyConfig(
        upstream=broker.addresses[0], record=tmp_path / "recording", rules=rules.load_rules(tmp_path / "rules.yaml")
    )
    with Proxy(config) as proxy:
        # idempotent: a batch that the broker wrote although the client got an error must not be there twice
        send(show(proxy.address), topic, map(str, range(RECORDS)), **{"enable.idempotence": True})
    hits = [event for event in proxy.events() if isinstance(event, RuleHit)]
    assert [hit.hits for hit in hits] == [1, 2, 3]

    with open_capture(tmp_path / "recording") as capture:
        produced = [e for e in capture.exchanges() if e.api == "Produce"]
    assert [e.to_dict(bodies=False)["error"] for e in produced if e.error] == ["NOT_LEADER_OR_FOLLOWER"] * 3
    assert all(e.undecoded is None for e in produced)

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        values = [message.value().decode() for message in read(consumer, RECORDS)]
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE)
    finally:
        consumer.close()
    assert values == [str(number) for number in range(RECORDS)]
    assert end == RECORDS  # the log holds nothing besides
