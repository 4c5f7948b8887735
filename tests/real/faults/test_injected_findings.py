"""What a test injects is not held against brokers or clients: real clients, real reactions."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest
from barnabas.ui.testing.fixture import Barnabas
from confluent_kafka import KafkaException, Producer
from harness.run.slices import thin
from real.brokers.fault_bench import cursor
from real.clients.confluent_client import flush

OWN = {"malformed-api-versions-fallback"}
"""What the mock brokers do wrong themselves."""
FAULTS: list[tuple[dict[str, Any], int]] = [
    ({"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}, 3),
    ({"api": "Produce", "error": "REQUEST_TIMED_OUT"}, 3),
    ({"api": "Produce", "error": "TOPIC_AUTHORIZATION_FAILED"}, 1),
    ({"api": "Produce", "error": "NOT_ENOUGH_REPLICAS"}, 3),
    ({"api": "Produce", "disconnect": "before-response"}, 2),
    ({"api": "Metadata", "error": "LEADER_NOT_AVAILABLE"}, 2),
    ({"api": "Produce", "do": {"corrupt": "correlation"}}, 1),
]


@pytest.mark.parametrize(("fault", "times"), thin(FAULTS, 3), ids=lambda value: str(value))
def test_only_injected_errors_are_reported(mock_bench: Barnabas, fault: dict[str, Any], times: int) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": mock_bench.bootstrap, "retry.backoff.ms": 20, "log_level": 0, "client.id": topic})
    with mock_bench.inject(**fault, client=topic, times=times) as injected:
        for _ in range(5):
            with suppress(KafkaException):  # what may not be tried again is raised, also by the next call
                producer.produce(topic, b"x")
            flush(producer)
        assert injected.hits == times
    cursor(mock_bench)
    assert [each for each in mock_bench.findings("medium") if each["id"] not in OWN] == []
    ours = [each for each in mock_bench.findings(injected=True) if each["injected"]]
    assert all(each["rules"] for each in ours)
    if fault.get("error") == "TOPIC_AUTHORIZATION_FAILED":  # a few of the others, tried again, are no finding
        assert injected.name in {rule for each in ours for rule in each["rules"]}


def test_a_client_recovers_from_refused_metadata(mock_bench: Barnabas) -> None:
    """librdkafka gives up the brokers that a response does not list: with none left, nothing is ever sent again.

    About a quarter of its clients asked for topics when that mattered, so there are a dozen.
    """
    for _ in range(12):
        topic = f"t-{uuid.uuid4().hex[:8]}"
        producer = Producer({"bootstrap.servers": mock_bench.bootstrap, "retry.backoff.ms": 20, "log_level": 0, "client.id": topic})
        with mock_bench.inject(api="Metadata", error="LEADER_NOT_AVAILABLE", client=topic, times=2) as injected:
            producer.produce(topic, b"x")
            flush(producer)
            assert injected.hits == 2
