"""The frames that the decoder is measured on: one of each kind that matters, made by our own encoder."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from barnabas import decoder


class Case(NamedTuple):
    """One body: its kind, API and version, and the bytes (no header). `field`: an outer field that all decoders give the same
    name; `use`: an expression with the values of a field of every item of the message `m`, by attribute."""

    name: str
    kind: str
    key: int
    version: int
    body: bytes
    field: str
    use: str


def case(name: str, kind: str, key: int, version: int, fields: dict[str, Any], field: str, use: str) -> Case:
    return Case(name, kind, key, version, decoder.encode_body(kind, key, version, fields), field, use)


def metadata(topics: int, partitions: int, irregular: bool = False) -> dict[str, Any]:
    """A cluster of 3 brokers; `irregular`: replica counts and name lengths that never repeat in a row."""
    rng = random.Random(5)

    def nodes() -> list[int]:
        return list(range(rng.randrange(1, 4) if irregular else 3))

    def partition(p: int) -> dict[str, Any]:
        return {"partition_index": p, "leader_id": p % 3, "replica_nodes": nodes(), "isr_nodes": nodes()}

    names = (f"topic-{t:04d}" + ("x" * rng.randrange(20) if irregular else "") for t in range(topics))
    return {
        "brokers": [{"node_id": i, "host": f"broker-{i}.example", "port": 9092} for i in range(3)],
        "cluster_id": "Xw3p9AbcQ0KmZ7",
        "controller_id": 1,
        "topics": [{"name": name, "partitions": [partition(p) for p in range(partitions)]} for name in names],
    }


def cases() -> list[Case]:
    """All measured bodies."""
    keys = [{"api_key": k, "min_version": 0, "max_version": k % 9} for k in range(60)]
    features = [{"name": "metadata.version", "min_version": 1, "max_version": 25}]
    tagged = {"api_keys": keys, "supported_features": features, "finalized_features_epoch": 9}
    batch = decoder.records.encode_batch(
        [decoder.records.Record(i, 1_700_000_000_000 + i, b"key", b"v" * 100) for i in range(10)]
    )
    members = [
        {"member_id": f"consumer-{i:03d}-0a1b2c3d", "group_instance_id": None, "metadata": b"m" * 40} for i in range(20)
    ]
    written = {"name": "orders", "partition_data": [{"index": p, "records": batch} for p in range(4)]}
    produce = {"acks": -1, "timeout_ms": 30000, "topic_data": [written] * 2}
    produced = {"name": "orders", "partition_responses": [{"index": p, "base_offset": 5} for p in range(4)]}
    asked = {"topic": "orders", "partitions": [{"partition": p, "fetch_offset": 5} for p in range(8)]}
    ends = {"high_watermark": 100, "last_stable_offset": 100, "records": batch}
    fetched = {"topic": "orders", "partitions": [{"partition_index": p, **ends} for p in range(8)]}
    offsets = {"name": "orders", "partitions": [{"partition_index": p, "committed_offset": p * 7} for p in range(12)]}
    commit = {"group_id": "billing", "generation_id_or_member_epoch": 3, "member_id": "consumer-1", "topics": [offsets]}
    heartbeat = {"group_id": "billing", "generation_id": 3, "member_id": "consumer-1-0a1b2c3d"}
    leaders = "[p.leader_id for t in m.topics for p in t.partitions]"
    offered = "[k.max_version for k in m.api_keys]"
    beaten = "m.group_id, m.generation_id, m.member_id, m.group_instance_id"
    stored = "[p.committed_offset for t in m.topics for p in t.partitions]"
    sent = "[p.records for t in m.topic_data for p in t.partition_data]"
    given = "[p.base_offset for t in m.responses for p in t.partition_responses]"
    wanted = "[p.fetch_offset for t in m.topics for p in t.partitions]"
    read = "[p.high_watermark for t in m.responses for p in t.partitions]"
    return [
        case("Metadata v12, 100 x 10", "response", 3, 12, metadata(100, 10), "controller_id", leaders),
        case("Metadata v5, 100 x 10", "response", 3, 5, metadata(100, 10), "controller_id", leaders),
        case("Metadata v12, irregular", "response", 3, 12, metadata(100, 10, irregular=True), "controller_id", leaders),
        case("ApiVersions v3, 3 tags", "response", 18, 3, tagged, "error_code", offered),
        case("ApiVersions v3", "response", 18, 3, {"api_keys": keys}, "error_code", offered),
        case("Heartbeat v4 request", "request", 12, 4, heartbeat, "group_id", beaten),
        case("Heartbeat v4 response", "response", 12, 4, {}, "error_code", "m.error_code"),
        case("JoinGroup v7, 20 members", "response", 11, 7, {"members": members, "leader": "a"}, "leader", "[x.member_id for x in m.members]"),
        case("OffsetCommit v8 request", "request", 8, 8, commit, "group_id", stored),
        case("Produce v9 request", "request", 0, 9, produce, "acks", sent),
        case("Produce v9 response", "response", 0, 9, {"responses": [produced]}, "throttle_time_ms", given),
        case("Fetch v12 request", "request", 1, 12, {"topics": [asked]}, "session_id", wanted),
        case("Fetch v12 response", "response", 1, 12, {"session_id": 7, "responses": [fetched]}, "session_id", read),
    ]
