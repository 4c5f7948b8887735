"""What a real broker writes into its own topics, read from its log, and what a real group sends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from barnabas import decoder
from barnabas.decoder import embedded, records
from barnabas.decoder.schema import facts
from confluent_kafka import Consumer, Producer
from harness.waiting import PATIENCE, until
from real.brokers.broker import Cluster
from real.clients import confluent_client, java_programs
from real.clients.raw_client import RawClient

pytestmark = pytest.mark.slow

TOPIC = "embedded-payloads"
GROUPS = {"embedded-classic": "classic", "embedded-modern": "consumer"}


@pytest.fixture(scope="module")
def busy(broker: Cluster) -> Iterator[Cluster]:
    """The broker after one classic, one modern and one share group and a transaction; the groups' members stay."""
    confluent_client.create_topic(broker.bootstrap, TOPIC, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "embedded-tx"})
    producer.init_transactions(PATIENCE)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(TOPIC, str(number), str(number))
        confluent_client.flush(producer)
        end(PATIENCE)
    consumers = []
    for group, protocol in GROUPS.items():
        config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**config, "group.protocol": protocol, "enable.auto.commit": False})
        consumer.subscribe([TOPIC])
        confluent_client.read(consumer, 10)
        consumer.commit(asynchronous=False)
        consumers.append(consumer)
    jars = java_programs.broker_jars()
    assert int(java_programs.run("ShareGroup", jars, broker.bootstrap, "embedded-share", TOPIC).split()[-1]) > 0
    yield broker
    for consumer in consumers:
        consumer.close()


def logged(broker: Cluster, topic: str, pattern: str = "*.log") -> list[bytes]:
    """The segments of a topic's partitions, as they stand on the broker's disk."""
    found = []
    for node in broker.nodes:
        found += [path.read_bytes() for path in sorted(node.directory.glob(f"logs/{topic}-*/{pattern}"))]
    return [data for data in found if data]


def payloads_of(broker: Cluster, topic: str, pattern: str = "*.log") -> list[embedded.Payload]:
    """All that `of` finds in the segments, each wrapped into a Fetch response."""
    fetch = facts.api_key("Fetch")
    found: list[embedded.Payload] = []
    for data in logged(broker, topic, pattern):
        fields = {"responses": [{"topic": topic, "partitions": [{"records": data}]}]}
        message = decoder.decode_body("response", fetch, 12, decoder.encode_body("response", fetch, 12, fields))
        found += embedded.of(message)
    return found


def clean(payloads: list[embedded.Payload]) -> Counter[str]:
    """How often each type occurs; nothing may be unreadable or have bytes left over."""
    for payload in payloads:
        assert "unreadable" not in payload.fields, payload
        assert "surplus_bytes" not in str(payload.fields), payload
    return Counter(p.fields.get("type", p.kind) for p in payloads)


def eventually(broker: Cluster, topic: str, wanted: set[str]) -> list[embedded.Payload]:
    """The payloads of a topic's log, as soon as all wanted types are in it."""
    until(lambda: wanted <= set(clean(payloads_of(broker, topic))), lambda: clean(payloads_of(broker, topic)), pause=0.2)
    return payloads_of(broker, topic)


def test_consumer_offsets(busy: Cluster) -> None:
    wanted = {"OffsetCommit", "GroupMetadata", "ConsumerGroupMetadata", "ConsumerGroupMemberMetadata"}
    wanted |= {"ConsumerGroupTargetAssignmentMember", "ConsumerGroupCurrentMemberAssignment", "ShareGroupMetadata"}
    wanted |= {"ShareGroupMemberMetadata", "consumer subscription", "consumer assignment"}
    payloads = eventually(busy, "__consumer_offsets", wanted)
    commits = {
        (p.fields["key"]["group"], p.fields["key"]["topic"])
        for p in payloads
        if p.fields.get("type") == "OffsetCommit" and p.fields["value"] and p.fields["value"]["offset"] > 0
    }
    assert {(group, TOPIC) for group in GROUPS} <= commits
    assert any(p.fields.get("topics") == [TOPIC] for p in payloads if p.kind == "consumer subscription")


def test_transactions(busy: Cluster) -> None:
    payloads = eventually(busy, "__transaction_state", {"TransactionLog"})
    ours = [p.fields for p in payloads if p.fields["key"]["transactional_id"] == "embedded-tx"]
    assert len(ours) >= 6 and all(f["value"]["producer_id"] >= 0 for f in ours)
    assert {"commit", "abort"} <= set(clean(payloads_of(busy, TOPIC)))


def test_share_state(busy: Cluster) -> None:
    payloads = eventually(busy, "__share_group_state", {"ShareSnapshot"})
    assert any(p.fields["key"]["group_id"] == "embedded-share" for p in payloads)


def test_metadata_log_and_snapshots(busy: Cluster) -> None:
    payloads = payloads_of(busy, "__cluster_metadata")
    types = {"TopicRecord", "PartitionRecord", "RegisterBrokerRecord", "FeatureLevelRecord", "leader_change"}
    assert types <= set(clean(payloads))
    names = {p.fields["value"]["name"] for p in payloads if p.fields["type"] == "TopicRecord"}
    assert {TOPIC, "__consumer_offsets"} <= names
    snapshots = set(clean(payloads_of(busy, "__cluster_metadata", "*.checkpoint")))
    assert {"snapshot_header", "kraft_version", "kraft_voters", "snapshot_footer"} <= snapshots


def test_every_record_is_written_back_as_it_was(busy: Cluster) -> None:
    """Decode and encode by definition: the broker's own bytes come out again."""
    count = 0
    for topic in sorted(embedded.INTERNAL):
        definitions = facts.extra(f"embedded/{topic.strip('_')}")
        for data in logged(busy, topic):
            for entry in records.batches(data):
                if isinstance(entry, records.Partial) or (isinstance(entry, records.Batch) and entry.control):
                    continue
                for record in entry.records():
                    found = embedded.of_record(topic, record.key, record.value)
                    assert found is not None
                    if record.key is not None:
                        key = embedded.encode(f"{found['type']}Key", 0, found["key"])
                        assert record.key[2:] == key
                        if record.value is not None:
                            name, version = f"{found['type']}Value", found["value_version"]
                            assert record.value[2:] == embedded.encode(name, version, found["value"])
                    else:
                        assert record.value is not None and found["type"] in definitions
                        body = embedded.encode(found["type"], found["version"], found["value"])
                        assert record.value.endswith(body) and len(record.value) - len(body) <= 4
                    count += 1
    assert count > 100


def test_members_of_a_described_group(busy: Cluster) -> None:
    with RawClient(busy.addresses[0]) as client:
        message = client.ask("DescribeGroups", 5, {"groups": ["embedded-classic"]})
    found = {p.path.rpartition(".")[2]: p for p in embedded.of(message)}
    assert found["member_metadata"].fields["topics"] == [TOPIC]
    (assigned,) = found["member_assignment"].fields["assigned_partitions"]
    assert assigned["topic"] == TOPIC and sorted(assigned["partitions"]) == [0, 1]
