"""Fetch and Metadata detectors at every version of these APIs: made-up exchanges, because no client speaks them all."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import facts
from barnabas.decoder.findings import Inspector

SECOND = 1_000_000_000
FETCH, METADATA = facts.api(facts.api_key("Fetch")), facts.api(facts.api_key("Metadata"))
VERSIONS = FETCH.versions.every(), METADATA.versions.every()
ID = uuid.UUID(int=0x1234)
ID_TEXT = "AAAAAAAAAAAAAAAAAAASNA"


def _told(
    api: facts.Api, version: int, answers: Callable[[int], dict[str, Any]], asked: dict[str, Any]
) -> list[decoder.Exchange]:
    """Eight exchanges of one connection, one each second."""
    conn = decoder.Connection(1, "10.0.0.5:50000", "10.0.0.1:9092")
    exchanges = []
    for n in range(8):
        request = decoder.encode_request(api.key, version, asked, correlation_id=n, client_id="any")
        response = decoder.encode_response(api.key, version, answers(n), correlation_id=n)
        conn.receive_from_client(struct.pack(">i", len(request)) + request, (1000 + n) * SECOND)
        done = conn.receive_from_broker(struct.pack(">i", len(response)) + response, (1000 + n) * SECOND + 1_000_000)
        exchanges += [event.exchange for event in done]
    return exchanges


def _ids(exchanges: list[decoder.Exchange]) -> dict[str, dict[str, Any]]:
    inspector = Inspector()
    for exchange in exchanges:
        inspector.look(exchange)
    found = inspector.findings()
    assert "detector-failed" not in {f.id for f in found}, [f.seen for f in found]
    return {f.id: f.about for f in found}


def _fetch(version: int, error: int, epoch: int = 4) -> list[decoder.Exchange]:
    topic: dict[str, Any] = {"topic": "orders"} if version < 13 else {"topic_id": ID}
    part: dict[str, Any] = {"partition": 2, "fetch_offset": 70, "partition_max_bytes": 1000}
    asked: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "topics": [topic | {"partitions": [part]}]}
    asked |= {"replica_id": -1} if version < 15 else {}
    answer = {"partition_index": 2, "error_code": error, "high_watermark": 90, "records": b""}
    return _told(FETCH, version, lambda n: {"responses": [topic | {"partitions": [answer]}]}, asked)


@pytest.mark.parametrize("version", VERSIONS[0])
def test_a_fetch_error_of_every_version(version: int) -> None:
    name = "orders" if version < 13 else ID_TEXT
    about = _ids(_fetch(version, 6))["fetch-error-loop"]
    assert (about["topic"], about["partition"], about["api_version"]) == (name, 2, version)
    lost = _ids(_fetch(version, 1))["offset-out-of-range"]
    assert (lost["topic"], lost["offset"]) == (name, 70)
    assert not {"fetch-error-loop", "offset-out-of-range"} & set(_ids(_fetch(version, 0)))


@pytest.mark.parametrize("version", [v for v in VERSIONS[0] if v])
def test_a_followers_fetch_is_no_consumers(version: int) -> None:
    follower: dict[str, Any] = (
        {"replica_id": 3} if version < 15 else {"replica_state": {"replica_id": 3, "replica_epoch": 1}}
    )
    told = [
        decoder.Exchange(
            connection=e.connection,
            client=e.client,
            broker=e.broker,
            api_key=e.api_key,
            api_version=e.api_version,
            correlation_id=e.correlation_id,
            client_id=e.client_id,
            request=e.request_message.replace(follower).encode(),
            request_time_ns=e.request_time_ns,
            response=e.response,
            response_time_ns=e.response_time_ns,
            state=e.state,
        )
        for e in _fetch(version, 6)
        if e.request_message
    ]
    assert "fetch-error-loop" not in _ids(told)


@pytest.mark.parametrize("version", VERSIONS[1])
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
    found = _ids(_told(METADATA, version, lambda n: {"brokers": brokers, "topics": topics}, asked))
    assert found["partition-without-leader"]["partitions"] == ["orders-0"]
    assert found["replicas-out-of-sync"]["partitions"] == ["orders-1"]
    assert found["unknown-topic-loop"]["topic"] == "ordres"
    assert found["invalid-topic-name"]["topic"] == "or/ders"
