"""Java's newer kinds of clients through the proxy: no detector calls anything wrong, and no answer is called impossible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.findings import Inspector, Severity
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import show
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import PATIENCE
from real.brokers.broker import REPOSITORY, Cluster, start_cluster
from real.clients import java_programs

STREAMS = REPOSITORY / ".cache" / "definitions" / "kafka-streams-4.4.0.jar"
COUNTS = "{a=3, b=2, c=1}"
SHARED = {"share.coordinator.state.topic.replication.factor": 1, "share.coordinator.state.topic.min.isr": 1}


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    """With the state of share groups and transactions on one broker."""
    with start_cluster(config=SHARED) as cluster:
        yield cluster


class Kind(NamedTuple):
    """A program with its arguments, what it must print last, and APIs that the recording must have."""

    program: str
    group: str
    topics: list[str]
    protocol: str
    printed: str
    apis: set[str]


KINDS = {
    "share": Kind("ShareGroup", "sharing", ["shared"], "", "", {"ShareAcknowledge", "ShareFetch", "ShareGroupHeartbeat"}),
    "consumer-kip-848": Kind("PollInterval", "reading", ["read"], "consumer", "reading", {"ConsumerGroupHeartbeat", "Fetch"}),
    "streams-classic": Kind("Streaming", "counting", ["words", "counts"], "classic", COUNTS, {"JoinGroup", "TxnOffsetCommit"}),
    "streams-kip-1071": Kind("Streaming", "counting-new", ["words-new", "counts-new"], "streams", COUNTS, {"StreamsGroupHeartbeat"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_wrong(name: str, broker: Cluster, tmp_path: Path) -> None:
    kind = KINDS[name]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 2) for topic in kind.topics]).values():
        made.result(PATIENCE)
    if kind.program == "PollInterval":
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(2):
            producer.produce(*kind.topics, b"record")
        assert producer.flush(PATIENCE) == 0
    arguments = [kind.group, *kind.topics, *filter(None, [kind.protocol]), tmp_path / "state"]
    jars = [*java_programs.broker_jars(), STREAMS]
    with Proxy(ProxyConfig(upstream=broker.addresses[0], record=tmp_path / "recording")) as proxy:
        printed = java_programs.run(kind.program, jars, show(proxy.address), *arguments).splitlines()[-1]
    assert printed == kind.printed if kind.printed else int(printed) > 0
    inspector = Inspector()
    with open_capture(tmp_path / "recording") as capture:
        assert {exchange.api for exchange in capture.exchanges()} >= kind.apis
        for event in capture.events():
            inspector.feed(event)
    assert [f"{f.id}: {f.seen}" for f in inspector.findings() if f.severity is not Severity.INFO] == []
