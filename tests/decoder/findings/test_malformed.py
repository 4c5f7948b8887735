"""The two faults that librdkafka's mock brokers show, from the bytes that they send; and silence on right answers."""

from __future__ import annotations

import struct

from barnabas import decoder
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.decoder.findings.malformed import DETECTORS


def inspect(exchanges: list[decoder.Exchange]) -> list[Finding]:
    """What the detectors of malformed messages say; others may have something to say about these bytes, too."""
    inspector = Inspector(kind.id for kind in DETECTORS)
    for each in exchanges:
        inspector.look(each)
    return inspector.findings()


def exchange(key: int, version: int, response: bytes, **fields: object) -> decoder.Exchange:
    conn = decoder.Connection(1, "127.0.0.1:50000", "127.0.0.1:9092")
    request = decoder.encode_request(key, version, fields, correlation_id=1)
    conn.receive_from_client(struct.pack(">i", len(request)) + request)
    return conn.receive_from_broker(struct.pack(">i", len(response)) + response)[0].exchange


def test_an_api_versions_fallback_in_no_known_form():
    # what librdkafka 2.16's mock answers to version 3 and 4
    body = bytes.fromhex("00000001 0023 01 00120000 00 02 00000000")
    found = inspect([exchange(18, 3, body), exchange(18, 3, body), exchange(18, 4, body)])
    assert [(f.id, f.severity, f.count) for f in found] == [
        ("malformed-api-versions-fallback", Severity.HIGH, 2),
        ("malformed-api-versions-fallback", Severity.HIGH, 1),
    ]
    assert "ApiVersions v3" in found[0].seen and "127.0.0.1:9092" in found[0].seen and len(found[0].exchanges) == 2


def test_an_unreadable_refusal_tells_of_no_quota():
    # read as version 3, the stray bytes of the mock's refusal would be a throttle time of 20 minutes
    body = bytes.fromhex("00000001 0023 01 00120000 00 02 00000000")
    inspector = Inspector()
    for each in [exchange(18, 3, body)] * 5:
        inspector.look(each)
    assert "throttled-by-quota" not in {f.id for f in inspector.findings()}


def test_a_right_fallback_is_no_finding():
    right = decoder.encode_response(
        18, 0, {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 3}]}, correlation_id=1
    )
    assert (
        inspect([exchange(18, 4, right), exchange(18, 3, decoder.encode_response(18, 3, {}, correlation_id=1))]) == []
    )


def test_surplus_bytes_are_told_once_per_message():
    longer = decoder.encode_response(3, 12, {}, correlation_id=1) + b"\x00"
    found = inspect([exchange(3, 12, longer)] * 7)
    assert [(f.id, f.count) for f in found] == [("surplus-bytes", 7)]
    assert found[0].seen.startswith("1 bytes behind the end of a Metadata v12 response from 127.0.0.1:9092")
    assert len(found[0].exchanges) == 5


def test_a_null_assignment_as_the_mock_sends_it_while_rebalancing():
    mock = bytes.fromhex("00000001 00000000 001b ffffffff")
    found = inspect([exchange(14, 3, mock, group_id="g")])
    assert [(f.id, f.count) for f in found] == [("forbidden-null", 1)]
    assert found[0].seen == "assignment is null in a SyncGroup v3 response from 127.0.0.1:9092"
    assert inspect([exchange(14, 3, decoder.encode_response(14, 3, {"error_code": 27}, correlation_id=1))]) == []
