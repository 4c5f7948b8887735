"""The frames that the decoder is measured on: one of each kind that matters, made by our own encoder."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from barnabas import decoder


class Case(NamedTuple):
    """One body: its kind, API and version, and the bytes (no header)."""

    name: str
    kind: str
    key: int
    version: int
    body: bytes


def metadata(version: int, topics: int, partitions: int, irregular: bool = False) -> bytes:
    """A cluster of 3 brokers; `irregular`: replica counts and name lengths that never repeat in a row."""
    rng = random.Random(5)
    fields: dict[str, Any] = {
        "brokers": [{"node_id": i, "host": f"broker-{i}.example", "port": 9092} for i in range(3)],
        "cluster_id": "Xw3p9AbcQ0KmZ7",
        "controller_id": 1,
        "topics": [
            {
                "name": f"topic-{t:04d}" + ("x" * rng.randrange(20) if irregular else ""),
                "partitions": [
                    {
                        "partition_index": p,
                        "leader_id": p % 3,
                        "replica_nodes": list(range(rng.randrange(1, 4) if irregular else 3)),
                        "isr_nodes": list(range(rng.randrange(1, 4) if irregular else 3)),
                    }
                    for p in range(partitions)
                ],
            }
            for t in range(topics)
        ],
    }
    return decoder.encode_body("response", 3, version, fields)


def cases() -> list[Case]:
    """All measured bodies."""
    e = decoder.encode_body
    keys = [{"api_key": k, "min_version": 0, "max_version": k % 9} for k in range(60)]
    features = [{"name": "metadata.version", "min_version": 1, "max_version": 25}]
    batch = decoder.records.encode_batch(
        [decoder.records.Record(i, 1_700_000_000_000 + i, b"key", b"v" * 100) for i in range(10)]
    )
    members = [
        {"member_id": f"consumer-{i:03d}-0a1b2c3d", "group_instance_id": None, "metadata": b"m" * 40} for i in range(20)
    ]
    produce = {
        "acks": -1,
        "timeout_ms": 30000,
        "topic_data": [
            {"name": "orders", "partition_data": [{"index": p, "records": batch} for p in range(4)]} for _ in range(2)
        ],
    }
    fetch = {
        "session_id": 7,
        "responses": [
            {
                "topic": "orders",
                "partitions": [
                    {"partition_index": p, "high_watermark": 100, "last_stable_offset": 100, "records": batch}
                    for p in range(8)
                ],
            }
        ],
    }
    commit = {
        "group_id": "billing",
        "generation_id_or_member_epoch": 3,
        "member_id": "consumer-1",
        "topics": [
            {"name": "orders", "partitions": [{"partition_index": p, "committed_offset": p * 7} for p in range(12)]}
        ],
    }
    heartbeat = {"group_id": "billing", "generation_id": 3, "member_id": "consumer-1-0a1b2c3d"}
    return [
        Case("Metadata v12, 100 x 10", "response", 3, 12, metadata(12, 100, 10)),
        Case("Metadata v5, 100 x 10", "response", 3, 5, metadata(5, 100, 10)),
        Case("Metadata v12, irregular", "response", 3, 12, metadata(12, 100, 10, irregular=True)),
        Case(
            "ApiVersions v3, 3 tags",
            "response",
            18,
            3,
            e("response", 18, 3, {"api_keys": keys, "supported_features": features, "finalized_features_epoch": 9}),
        ),
        Case("ApiVersions v3", "response", 18, 3, e("response", 18, 3, {"api_keys": keys})),
        Case("Heartbeat v4 request", "request", 12, 4, e("request", 12, 4, heartbeat)),
        Case("Heartbeat v4 response", "response", 12, 4, e("response", 12, 4, {})),
        Case("JoinGroup v7, 20 members", "response", 11, 7, e("response", 11, 7, {"members": members, "leader": "a"})),
        Case("OffsetCommit v8 request", "request", 8, 8, e("request", 8, 8, commit)),
        Case("Produce v9 request", "request", 0, 9, e("request", 0, 9, produce)),
        Case(
            "Produce v9 response",
            "response",
            0,
            9,
            e(
                "response",
                0,
                9,
                {
                    "responses": [
                        {"name": "orders", "partition_responses": [{"index": p, "base_offset": 5} for p in range(4)]}
                    ]
                },
            ),
        ),
        Case(
            "Fetch v12 request",
            "request",
            1,
            12,
            e(
                "request",
                1,
                12,
                {
                    "topics": [
                        {"topic": "orders", "partitions": [{"partition": p, "fetch_offset": 5} for p in range(8)]}
                    ]
                },
            ),
        ),
        Case("Fetch v12 response", "response", 1, 12, e("response", 1, 12, fetch)),
    ]
