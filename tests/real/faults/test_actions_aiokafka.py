"""What aiokafka does about errors that a rule makes: what can be tried again is, anything else is raised."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from barnabas.ui.testing.fixture import Barnabas
from harness.waiting import PATIENCE
from real.brokers.fault_bench import cursor, injected, seen


def aiokafka(bootstrap: str, topic: str) -> str:
    async def work() -> str:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=20) as producer:
            try:
                await producer.send_and_wait(topic, b"one")
            except KafkaError as error:
                return type(error).__name__
            return "sent"

    return asyncio.run(asyncio.wait_for(work(), PATIENCE))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "outcome", "requests"),
    [("NOT_LEADER_OR_FOLLOWER", "sent", 2), ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError", 1)],
)
def test_produce(mock_bench: Barnabas, error: str, outcome: str, requests: int) -> None:
    bench, topic = mock_bench, f"aiokafka-{requests}"
    before = cursor(bench)
    with injected(bench, api="Produce", error=error, topic=topic, times=1):
        assert aiokafka(bench.bootstrap, topic) == outcome
    found = [each["error"] for each in seen(bench, before, "api == Produce")]
    assert found == [error, None][:requests]
