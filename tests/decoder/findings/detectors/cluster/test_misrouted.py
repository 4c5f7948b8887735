"""Clients of 4.4 that reach another broker than they mean."""

from __future__ import annotations

from typing import Any

from barnabas import decoder
from barnabas.decoder import Exchange, State
from barnabas.decoder.findings import Severity
from barnabas.decoder.findings.inspector import inspect
from barnabas.decoder.schema import facts

SECOND = 1_000_000_000
ASKED = {"client_software_name": "apache-kafka-java", "client_software_version": "4.4.0"}


def exchange(number: int, api: str, version: int, asked: dict[str, Any], answered: dict[str, Any]) -> Exchange:
    key = facts.api_key(api)
    return Exchange(
        connection=number, client="10.0.0.5:4000", broker="kafka-2:9092", api_key=key, api_version=version,
        correlation_id=number, client_id="shop", state=State.PAIRED, request_time_ns=(number + 1) * SECOND,
        response_time_ns=(number + 1) * SECOND + 1,
        request=decoder.encode_request(key, version, asked, correlation_id=number, client_id="shop"),
        response=decoder.encode_response(key, version, answered, correlation_id=number),
    )  # fmt: skip


def hello(number: int, error: str = "NONE", **meant: Any) -> Exchange:
    return exchange(number, "ApiVersions", 5, ASKED | meant, {"error_code": facts.error_code(error)})


def test_a_client_that_reached_another_broker() -> None:
    brokers = [{"node_id": 2, "host": "kafka-2", "port": 9092}]
    metadata = exchange(9, "Metadata", 12, {"topics": []}, {"brokers": brokers, "cluster_id": "prod", "topics": []})
    refused = [hello(n, "REBOOTSTRAP_REQUIRED", cluster_id="staging", node_id=7) for n in (10, 11)]
    (found,) = inspect([metadata, *refused])
    assert (found.id, found.severity, found.count) == ("misrouted-client", Severity.HIGH, 2)
    assert found.seen.startswith(
        "client 'shop' (apache-kafka-java 4.4.0) at 10.0.0.5 meant broker 7 of cluster 'staging', reached "
    )
    assert "broker 2 (kafka-2:9092) of cluster 'prod'" in found.seen and "2 times" in found.seen
    assert (found.about["cluster_id"], found.about["node_id"]) == ("staging", 7)


def test_clients_that_reach_whom_they_mean_have_no_finding() -> None:
    assert inspect([hello(1), hello(2, cluster_id="prod", node_id=2)]) == []
