"""The two faults that librdkafka's mock brokers show, from the bytes that they send; and silence on right answers."""

from __future__ import annotations

from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.findings.detectors.network.malformed import (
    ForbiddenNull,
    MalformedApiVersionsFallback,
    SurplusBytes,
)
from traffic.conversations import Conversations
from traffic.recordings import findings

FALLBACK = bytes.fromhex("00000001 0023 01 00120000 00 02 00000000")
"""What librdkafka 2.16's mock answers to ApiVersions v3 and v4."""


def malformed(*exchanges: Exchange) -> list[Finding]:
    """The findings of the detectors of malformed messages; others may report these bytes, too."""
    return findings(exchanges, *(kind.id for kind in (MalformedApiVersionsFallback, SurplusBytes, ForbiddenNull)))


def exchange(api: str, version: int, response: bytes, **fields: object) -> Exchange:
    conversation = Conversations()
    conversation.ask(conversation.open(), api, version, fields, response)
    return conversation.exchanges[0]


def test_an_api_versions_fallback_in_no_known_form() -> None:
    found = malformed(
        exchange("ApiVersions", 3, FALLBACK), exchange("ApiVersions", 3, FALLBACK), exchange("ApiVersions", 4, FALLBACK)
    )
    assert [(f.id, f.severity, f.count) for f in found] == [
        ("malformed-api-versions-fallback", Severity.HIGH, 2),
        ("malformed-api-versions-fallback", Severity.HIGH, 1),
    ]
    assert "ApiVersions v3" in found[0].seen and "10.0.0.1:9092" in found[0].seen and len(found[0].exchanges) == 2


def test_an_unreadable_refusal_is_no_quota() -> None:
    # read as version 3, the stray bytes of the mock's refusal would be a throttle time of 20 minutes
    assert "throttled-by-quota" not in {f.id for f in findings([exchange("ApiVersions", 3, FALLBACK)] * 5)}


def test_a_right_fallback_is_no_finding() -> None:
    offered = [{"api_key": 18, "min_version": 0, "max_version": 3}]
    right = decoder.encode_response(18, 0, {"error_code": 35, "api_keys": offered})
    empty = decoder.encode_response(18, 3, {})
    assert malformed(exchange("ApiVersions", 4, right), exchange("ApiVersions", 3, empty)) == []


def test_surplus_bytes_are_reported_once_per_message() -> None:
    longer = decoder.encode_response(3, 12, {}, correlation_id=1) + b"\x00"
    found = malformed(*[exchange("Metadata", 12, longer)] * 7)
    assert [(f.id, f.count) for f in found] == [("surplus-bytes", 7)]
    assert found[0].seen.startswith("Metadata v12 response of broker 10.0.0.1:9092 has 1 extra byte after its end")
    assert len(found[0].exchanges) == 5


def test_a_null_assignment_as_the_mock_sends_it_while_rebalancing() -> None:
    mock = bytes.fromhex("00000001 00000000 001b ffffffff")
    found = malformed(exchange("SyncGroup", 3, mock, group_id="g"))
    assert [(f.id, f.count) for f in found] == [("forbidden-null", 1)]
    assert found[0].seen == "SyncGroup v3 response of broker 10.0.0.1:9092 has a null in assignment"
    right = decoder.encode_response(14, 3, {"error_code": 27})
    assert malformed(exchange("SyncGroup", 3, right)) == []
