"""Forwarded requests inside of Envelope, and pushed metrics that Kafka's own classes wrote."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder import BadLength, BadUtf8, DecodeError, Truncated, embedded, records
from barnabas.decoder.embedded import telemetry
from barnabas.decoder.schema import facts

CANARY = "c4nary-S3CRET"


def test_envelope(body):
    key = facts.api_key("IncrementalAlterConfigs")
    configs = [{"name": "ssl.keystore.password", "value": CANARY}, {"name": "retention.ms", "value": "5"}]
    inner = decoder.encode_request(key, 1, {"resources": [{"configs": configs}]}, correlation_id=9, client_id="admin")
    principal = b"\0\0" + embedded.encode(
        "DefaultPrincipalData", 0, {"type": "User", "name": "alice", "token_authenticated": True}
    )
    fields = {"request_data": inner, "request_principal": principal, "client_host_address": bytes((127, 0, 0, 1))}
    request = body("request", "Envelope", 0, fields)
    asked, who, where = embedded.of(request)
    assert (asked.path, asked.fields["api"]) == ("request_data", "IncrementalAlterConfigs")
    assert asked.fields["header"]["client_id"] == "admin"
    assert CANARY not in str(asked) and asked.fields["body"]["resources"][0]["configs"][1]["value"] == "5"
    assert who.fields == {"version": 0, "type": "User", "name": "alice", "token_authenticated": True}
    assert where.fields == {"address": "127.0.0.1"}
    reply = decoder.encode_response(key, 1, {"throttle_time_ms": 7}, correlation_id=9)
    response = body("response", "Envelope", 0, {"response_data": reply})
    (payload,) = embedded.of(response, request)
    assert payload.fields["body"]["throttle_time_ms"] == 7
    assert list(embedded.of(response)) == []  # without the request its kind is unknown
    (cut,) = embedded.of(body("response", "Envelope", 0, {"response_data": reply[:-3]}), request)
    assert "unreadable" in cut.fields


def test_damaged_envelopes(body):
    fields = {"request_data": b"\0\x21", "request_principal": b"\0\x07", "client_host_address": b"123"}
    found = list(embedded.of(body("request", "Envelope", 0, fields)))
    assert [(p.path, "unreadable" in p.fields) for p in found] == [("request_data", True), ("request_principal", True)]
    version = embedded.of(body("request", "Envelope", 0, {"request_data": bytes.fromhex("0003 7fff 00000001 ffff")}))
    assert "not known" in next(version).fields["unreadable"]


def test_metrics_in_every_compression(body, telemetry_payloads):
    assert sorted(telemetry_payloads) == [0, 1, 2, 3, 4]
    plain = embedded.metrics(telemetry_payloads[0])
    for compression, data in telemetry_payloads.items():
        request = body("request", "PushTelemetry", 0, {"metrics": data, "compression_type": compression})
        (payload,) = embedded.of(request)
        assert (payload.path, payload.kind, payload.fields) == ("metrics", "OTLP metrics", plain)


def test_fields_of_metrics(telemetry_payloads):
    (resource,) = embedded.metrics(telemetry_payloads[0])["resource_metrics"]
    assert resource["resource"]["attributes"] == {"list": ["x", -7], "map": {"pi": 3.5}, "raw": b"\0\xff"}
    (scope,) = resource["scope_metrics"]
    assert scope["scope"] == {"name": "org.apache.kafka", "version": "4.3.1", "attributes": {"kept": True}}
    gauge, sum_, histogram, exponential, summary = scope["metrics"]
    assert (gauge["name"], gauge["unit"]) == ("org.apache.kafka.consumer.poll.idle.ratio.avg", "1")
    assert gauge["gauge"]["data_points"] == [
        {
            "start_time_unix_nano": 1700000000000000000,
            "time_unix_nano": 1700000000123456789,
            "as_double": 0.25,
            "attributes": {"client_rack": "rack-a"},
        }
    ]
    (point,) = sum_["sum"]["data_points"]
    assert sum_["sum"]["is_monotonic"] is True and (point["as_int"], point["flags"]) == (-5, 1)
    assert point["exemplars"] == [{"as_double": 1.5, "span_id": b"\1\2"}]
    (point,) = histogram["histogram"]["data_points"]
    assert (point["bucket_counts"], point["explicit_bounds"], point["max"]) == ([1, 2], [2.5], 3.0)
    (point,) = exponential["exponential_histogram"]["data_points"]
    assert point["scale"] == -3 and point["positive"] == {"offset": -2, "bucket_counts": [300, 0]}
    (point,) = summary["summary"]["data_points"]
    assert point["quantile_values"] == [{"quantile": 0.99, "value": 6.0}]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x0a", Truncated),  # a field without its length
        (b"\x0a\x05\x0a", Truncated),  # a length over the end
        (b"\x0a" + b"\xff" * 10, BadLength),  # a varint without end
        (b"\x00\x00", BadLength),  # field number 0
        (b"\x0b", BadLength),  # a group
        (b"\x08\x01", BadLength),  # a number where a message belongs
        (bytes.fromhex("0a 03 1a 01 ff"), BadUtf8),  # schema_url
        (bytes.fromhex("0a 08 12 06 12 04 2a 02 10 01") + b"\x0d", Truncated),
    ],
)
def test_damaged_metrics(data, kind):
    with pytest.raises(kind):
        embedded.metrics(data)


def test_unknown_fields_are_ignored(telemetry_payloads):
    extra = bytes.fromhex("78 01  7d 00000000  79 0000000000000000  7a 02 6162")
    assert embedded.metrics(extra + telemetry_payloads[0]) == embedded.metrics(telemetry_payloads[0])


def wrapped(data: bytes, tags: bytes) -> bytes:
    for tag in tags:
        size = bytearray()
        n = len(data)
        while n > 0x7F:
            size.append(n & 0x7F | 0x80)
            n >>= 7
        data = bytes((tag,)) + bytes(size) + bytes((n,)) + data
    return data


def test_bounds_of_metrics():
    deep = b""
    for _ in range(40):  # a list in a list in a list ...
        deep = wrapped(deep, b"\x0a\x2a")
    with pytest.raises(BadLength, match="nested"):
        embedded.metrics(wrapped(deep, b"\x12\x0a\x0a\x0a"))
    with pytest.raises(BadLength, match="more than"):
        embedded.metrics(b"\x0a\x00" * (telemetry.MAX_FIELDS + 1))
    with pytest.raises(BadLength, match="decompressed"):
        embedded.metrics(records.compress(1, bytes(telemetry.LIMIT + 1)), 1)
    with pytest.raises(BadLength, match="at most"):
        embedded.metrics(bytes(telemetry.LIMIT + 1))
    for compression in (1, 2, 3, 4, 5, -1, 99):
        with pytest.raises(DecodeError):
            embedded.metrics(b"no such thing", compression)
