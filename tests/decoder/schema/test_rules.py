"""Rules of the protocol that no definition has, with bytes written by hand. Those of record batches are in tests/decoder/records."""

from __future__ import annotations

import struct
import uuid

import pytest
from barnabas import decoder
from barnabas.decoder import ExchangeDone, Opaque
from harness.wire import with_size


def h(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


# --- Header versions


def test_request_headers():
    # header 0: ControlledShutdown v0 alone has no client id
    shutdown = decoder.decode_request(h("0007 0000 00000005 00000002"))
    assert shutdown.header == {"request_api_key": 7, "request_api_version": 0, "correlation_id": 5}
    assert shutdown.to_dict() == {"broker_id": 2}
    # header 1: a nullable client id of two length bytes
    assert decoder.decode_request(h("0012 0000 00000001 ffff")).header["client_id"] is None
    assert decoder.decode_request(h("0012 0000 00000001 0001 63")).header["client_id"] == "c"
    # header 2: the same, and tagged fields behind it; here one unknown tag 5 of 2 bytes
    tagged = h("0003 000c 00000001 0001 63 01 05 02 abcd  01 01 00 00")
    message = decoder.decode_request(tagged)
    assert message.header["client_id"] == "c" and message.header["_unknown_tagged_fields"] == {5: h("abcd")}
    assert message["topics"] == [] and message.encode() == tagged


def test_response_headers():
    assert decoder.decode_response(h("00000009 00000000 0000"), api_key=12, api_version=3)["error_code"] == 0
    assert decoder.decode_response(h("00000009 00 00000000 0019 00"), api_key=12, api_version=4)["error_code"] == 25
    # ApiVersions answers have header 0 at every version, flexible or not
    flexible = decoder.decode_response(h("00000009 0000 02 0003 0000 000d 00 00000000 00"), api_key=18, api_version=3)
    assert flexible["api_keys"] == [{"api_key": 3, "min_version": 0, "max_version": 13}]


# --- ApiVersions answered in version 0


def test_an_unknown_version_is_answered_in_version_0():
    message = decoder.decode_response(h("00000001 0023 00000001 0012 0000 0003"), api_key=18, api_version=4)
    assert message.api_version == 0 and message["api_keys[0].max_version"] == 3


# --- SASL


def test_raw_tokens_follow_handshake_0_or_begin_a_connection():
    conn = decoder.Connection()
    conn.receive_from_client(with_size(h("0011 0000 00000001 ffff 0005") + b"PLAIN"))
    conn.receive_from_broker(with_size(h("00000001 0000 00000001 0005") + b"PLAIN"))
    tokens = conn.receive_from_client(with_size(b"\x00user\x00pass")) + conn.receive_from_broker(with_size(b""))
    assert [type(e) for e in tokens] == [Opaque, Opaque] and b"pass" not in tokens[0].data
    after = conn.receive_from_client(with_size(h("0012 0000 00000002 ffff")))
    assert after[0].exchange.api == "ApiVersions"

    old = decoder.Connection()
    first = old.receive_from_client(with_size(h("60 82 0102 06 09 2a864886f712010202") + bytes(20)))
    assert [e.reason for e in first] == ["SASL token"]
    assert [e.reason for e in old.receive_from_broker(with_size(b"\x60answer"))] == ["SASL token"]
    assert old.receive_from_client(with_size(h("0003 0000 00000001 ffff 00000000")))[0].exchange.api == "Metadata"


def test_version_1_wraps_tokens_and_allows_reauthentication():
    conn = decoder.Connection()
    for round_ in range(2):  # the second time is a re-authentication
        conn.receive_from_client(with_size(h("0011 0001") + struct.pack(">i", round_ * 2) + h("ffff 0005") + b"PLAIN"))
        conn.receive_from_broker(with_size(struct.pack(">i", round_ * 2) + h("0000 00000001 0005") + b"PLAIN"))
        asked = h("0024 0000") + struct.pack(">i", round_ * 2 + 1) + h("ffff 00000003") + b"a\x00b"
        assert conn.receive_from_client(with_size(asked))[0].exchange.api == "SaslAuthenticate"
        done = conn.receive_from_broker(with_size(struct.pack(">i", round_ * 2 + 1) + h("0000 ffff 00000000")))
        assert done[0].exchange.state == "paired" and done[0].exchange.undecoded is None


# --- acks=0


def test_no_response_to_acks_0():
    conn = decoder.Connection()
    events = conn.receive_from_client(with_size(h("0000 0002 00000007 ffff 0000 000003e8 00000000")))
    assert isinstance(events[1], ExchangeDone) and events[1].exchange.state == "no_response"


# --- Embedded payloads


def test_a_subscription_begins_with_its_version():
    fields = decoder.embedded.subscription(h("0001 00000001 0006") + b"orders" + h("ffffffff 00000000"))
    assert fields["topics"] == ["orders"]


# --- Null, tags, ids


def test_nullable_structs_begin_with_one_byte():
    # ConsumerGroupHeartbeat v0 response: throttle, error, message, member id, epoch, interval, assignment
    start = h("00000000 0000 00 02 6d 00000001 00001388")
    none = decoder.decode_body("response", 68, 0, start + h("ff 00"))
    assert none["assignment"] is None and none.encode() == start + h("ff 00")
    empty = decoder.decode_body("response", 68, 0, start + h("01 01 00 00"))
    assert empty["assignment"] == {"topic_partitions": []}
    with pytest.raises(decoder.BadLength, match="nullable struct"):
        decoder.decode_body("response", 68, 0, start + h("05 00"))


def test_tags_compact_nulls_and_the_zero_uuid():
    body = h("02") + bytes(16) + h("00 00") + h("00 00 00")
    found = decoder.decode_body("request", 3, 12, body)
    assert found["topics[0].name"] is None and found["topics[0].topic_id"] == uuid.UUID(int=0)
    assert decoder.encode_body("request", 3, 12, {"topics": None, "allow_auto_topic_creation": False}) == h(
        "00 00 00 00"
    )


def test_holds_for_unknown_versions():
    message = decoder.decode_response(h("00000001 0023 00000001 0012 0000 0004"), api_key=18, api_version=99)
    assert message.api_version == 0 and message["api_keys[0].max_version"] == 4
    with pytest.raises(decoder.UnknownVersion):
        decoder.decode_response(h("00000001 0000 00000000"), api_key=18, api_version=99)
