"""Clients of 4.4 that reach another broker than they mean."""

from __future__ import annotations

from typing import Any

from barnabas.decoder.findings import Severity
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations

ASKED = {"client_software_name": "apache-kafka-java", "client_software_version": "4.4.0"}


def hello(conversation: Conversations, error: str = "NONE", **meant: Any) -> None:
    answer = {"error_code": facts.error_code(error), "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 5}]}
    conversation.ask(conversation.open(), "ApiVersions", 5, ASKED | meant, answer)


def test_a_client_that_reached_another_broker() -> None:
    conversation = Conversations(broker="kafka-2:9092")
    brokers = [{"node_id": 2, "host": "kafka-2", "port": 9092}]
    metadata = {"brokers": brokers, "cluster_id": "prod", "topics": []}
    conversation.ask(conversation.open(), "Metadata", 12, {"topics": []}, metadata)
    for _ in range(2):
        hello(conversation, "REBOOTSTRAP_REQUIRED", cluster_id="staging", node_id=7)
    (found,) = conversation.findings()
    assert (found.id, found.severity, found.count) == ("misrouted-client", Severity.HIGH, 2)
    assert found.seen.startswith(
        "client 'shop' (apache-kafka-java 4.4.0) at 10.0.0.5 wanted broker 7 of cluster 'staging', reached "
    )
    assert "broker 2 (kafka-2:9092) of cluster 'prod'" in found.seen and "2 times" in found.seen
    assert (found.about["cluster_id"], found.about["node_id"]) == ("staging", 7)


def test_clients_that_reach_whom_they_mean_have_no_finding() -> None:
    conversation = Conversations(broker="kafka-2:9092")
    hello(conversation)
    hello(conversation, cluster_id="prod", node_id=2)
    assert conversation.findings() == []
