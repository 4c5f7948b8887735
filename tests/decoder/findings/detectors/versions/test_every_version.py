"""Fetch and Metadata detectors at every version of these APIs: made-up exchanges, because no client speaks them all."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from barnabas.decoder import Exchange
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations
from traffic.edited_exchanges import copied
from traffic.recordings import findings

FETCH, METADATA = (facts.api(facts.api_key(name)).versions.every() for name in ("Fetch", "Metadata"))
ID = uuid.UUID(int=0x1234)
ID_TEXT = "AAAAAAAAAAAAAAAAAAASNA"


def eight(api: str, version: int, asked: dict[str, Any], answer: dict[str, Any]) -> list[Exchange]:
    """The same exchange eight times on one connection, one each second."""
    conversation = Conversations()
    connection = conversation.open()
    for _ in range(8):
        conversation.ask(connection, api, version, asked, answer)
        conversation.wait(1)
    return conversation.exchanges


def abouts(exchanges: Iterable[Exchange]) -> dict[str, dict[str, Any]]:
    """What each finding is about, by its id."""
    found = findings(exchanges)
    assert "detector-failed" not in {f.id for f in found}, [f.seen for f in found]
    return {f.id: f.about for f in found}


def fetches(version: int, error: int) -> list[Exchange]:
    """Fetches of partition 2 at offset 70 that are answered with an error."""
    topic: dict[str, Any] = {"topic": "orders"} if version < 13 else {"topic_id": ID}
    part: dict[str, Any] = {"partition": 2, "fetch_offset": 70, "partition_max_bytes": 1000}
    asked: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "topics": [topic | {"partitions": [part]}]}
    asked |= {"replica_id": -1} if version < 15 else {}
    answer = {"partition_index": 2, "error_code": error, "high_watermark": 90, "records": b""}
    return eight("Fetch", version, asked, {"responses": [topic | {"partitions": [answer]}]})


@pytest.mark.parametrize("version", FETCH)
def test_a_fetch_error_of_every_version(version: int) -> None:
    name = "orders" if version < 13 else ID_TEXT
    about = abouts(fetches(version, 6))["fetch-error-loop"]
    assert (about["topic"], about["partition"], about["api_version"]) == (name, 2, version)
    lost = abouts(fetches(version, 1))["offset-out-of-range"]
    assert (lost["topic"], lost["offset"]) == (name, 70)
    assert not {"fetch-error-loop", "offset-out-of-range"} & set(abouts(fetches(version, 0)))


@pytest.mark.parametrize("version", [v for v in FETCH if v])
def test_a_followers_fetch_is_no_consumers(version: int) -> None:
    follower: dict[str, Any] = (
        {"replica_id": 3} if version < 15 else {"replica_state": {"replica_id": 3, "replica_epoch": 1}}
    )
    assert "fetch-error-loop" not in abouts(copied(e, request=follower) for e in fetches(version, 6))


@pytest.mark.parametrize("version", METADATA)
def test_metadata_of_every_version(version: int) -> None:
    brokers = [{"node_id": 1, "host": "10.0.0.1", "port": 9092}]
    dead = {"error_code": 5, "partition_index": 0, "leader_id": -1, "replica_nodes": [2], "isr_nodes": []}
    thin = {"error_code": 0, "partition_index": 1, "leader_id": 1, "replica_nodes": [1, 2], "isr_nodes": [1]}
    topics = [
        {"error_code": 0, "name": "orders", "partitions": [dead, thin]},
        {"error_code": 3, "name": "ordres", "partitions": []},
        {"error_code": 17, "name": "or/ders", "partitions": []},
    ]
    asked = {"topics": [{"name": name} for name in ("orders", "ordres", "or/ders")]}
    found = abouts(eight("Metadata", version, asked, {"brokers": brokers, "topics": topics}))
    assert found["partition-without-leader"]["partitions"] == ["orders-0"]
    assert found["replicas-out-of-sync"]["partitions"] == ["orders-1"]
    assert found["unknown-topic-loop"]["topic"] == "ordres"
    assert found["invalid-topic-name"]["topic"] == "or/ders"
