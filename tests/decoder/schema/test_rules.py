"""The rules that no definition file holds, each with bytes written by hand from the protocol's descriptions."""

from __future__ import annotations

import gzip
import struct
import uuid
import zlib

import pytest
from barnabas import decoder
from barnabas.decoder import ExchangeDone, Opaque, records
from harness.wire import with_size


def h(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


# 1. Header versions


def test_rule_1_request_headers():
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


def test_rule_1_response_headers():
    assert decoder.decode_response(h("00000009 00000000 0000"), api_key=12, api_version=3)["error_code"] == 0
    assert decoder.decode_response(h("00000009 00 00000000 0019 00"), api_key=12, api_version=4)["error_code"] == 25
    # ApiVersions answers have header 0 at every version, flexible or not
    flexible = decoder.decode_response(h("00000009 0000 02 0003 0000 000d 00 00000000 00"), api_key=18, api_version=3)
    assert flexible["api_keys"] == [{"api_key": 3, "min_version": 0, "max_version": 13}]


# 2. ApiVersions answered in version 0


def test_rule_2_the_answer_to_an_unknown_version_is_version_0():
    message = decoder.decode_response(h("00000001 0023 00000001 0012 0000 0003"), api_key=18, api_version=4)
    assert message.api_version == 0 and message["api_keys[0].max_version"] == 3


# 3. SASL


def test_rule_3_tokens_without_headers_after_handshake_0_and_gssapi_without_any():
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


def test_rule_3_version_1_wraps_tokens_and_they_may_come_again():
    conn = decoder.Connection()
    for round_ in range(2):  # the second time is a re-authentication
        conn.receive_from_client(with_size(h("0011 0001") + struct.pack(">i", round_ * 2) + h("ffff 0005") + b"PLAIN"))
        conn.receive_from_broker(with_size(struct.pack(">i", round_ * 2) + h("0000 00000001 0005") + b"PLAIN"))
        asked = h("0024 0000") + struct.pack(">i", round_ * 2 + 1) + h("ffff 00000003") + b"a\x00b"
        assert conn.receive_from_client(with_size(asked))[0].exchange.api == "SaslAuthenticate"
        done = conn.receive_from_broker(with_size(struct.pack(">i", round_ * 2 + 1) + h("0000 ffff 00000000")))
        assert done[0].exchange.state == "paired" and done[0].exchange.undecoded is None


# 4. acks=0


def test_rule_4_no_response_to_acks_0_and_order_otherwise():
    conn = decoder.Connection()
    events = conn.receive_from_client(with_size(h("0000 0002 00000007 ffff 0000 000003e8 00000000")))
    assert isinstance(events[1], ExchangeDone) and events[1].exchange.state == "no_response"


# 5. Partial batches


def test_rule_5_a_batch_cut_at_any_byte():
    whole = records.encode_batch([records.Record(0, 1, None, b"v")])
    for cut in range(1, len(whole)):
        *first, last = records.batches(whole + whole[:cut])
        assert [type(e).__name__ for e in first] == ["Batch"] and isinstance(last, records.Partial)


# 6. Message sets


def message(magic: int, attributes: int, value: bytes, timestamp: int = 0) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">I", zlib.crc32(body)) + body


def entry(offset: int, content: bytes) -> bytes:
    return struct.pack(">qi", offset, len(content)) + content


def test_rule_6_wrappers_and_their_offsets():
    absolute = entry(5, message(0, 0, b"a")) + entry(6, message(0, 0, b"b"))
    (wrapper,) = records.batches(entry(6, message(0, 1, gzip.compress(absolute))))
    assert wrapper.crc_ok and [(r.offset, r.value) for r in wrapper.records()] == [(5, b"a"), (6, b"b")]
    relative = entry(0, message(1, 0, b"a", 9)) + entry(1, message(1, 0, b"b", 9))
    (wrapper,) = records.batches(entry(41, message(1, 1, gzip.compress(relative), 9)))
    assert [(r.offset, r.timestamp) for r in wrapper.records()] == [(40, 9), (41, 9)]


def test_rule_6_crcs_of_magic_2_start_at_the_attributes():
    batch = bytearray(records.encode_batch([records.Record(0, 1, None, b"v")]))
    (before,) = records.batches(bytes(batch))
    batch[12:16] = h("00000009")  # the leader epoch lies in front of what is summed
    (after,) = records.batches(bytes(batch))
    assert before.crc_ok and after.crc_ok and after.partition_leader_epoch == 9
    batch[22] ^= 1
    assert not next(iter(records.batches(bytes(batch)))).crc_ok


# 7. Codec framings


def test_rule_7_snappy_raw_and_in_xerial_frames():
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(b"hello " * 50))
    xerial = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(raw)) + raw
    assert records.decompress(2, raw) == records.decompress(2, xerial) == b"hello " * 50


# 8. Embedded payloads


def test_rule_8_a_subscription_says_its_own_version():
    fields = decoder.embedded.subscription(h("0001 00000001 0006") + b"orders" + h("ffffffff 00000000"))
    assert fields["topics"] == ["orders"]


# 9. Null, tags, ids


def test_rule_9_null_structs_are_led_by_one_byte():
    # ConsumerGroupHeartbeat v0 response: throttle, error, message, member id, epoch, interval, assignment
    start = h("00000000 0000 00 02 6d 00000001 00001388")
    none = decoder.decode_body("response", 68, 0, start + h("ff 00"))
    assert none["assignment"] is None and none.encode() == start + h("ff 00")
    empty = decoder.decode_body("response", 68, 0, start + h("01 01 00 00"))
    assert empty["assignment"] == {"topic_partitions": []}
    with pytest.raises(decoder.BadLength, match="nullable struct"):
        decoder.decode_body("response", 68, 0, start + h("05 00"))


def test_rule_9_tags_compact_nulls_and_the_zero_uuid():
    body = h("02") + bytes(16) + h("00 00") + h("00 00 00")
    found = decoder.decode_body("request", 3, 12, body)
    assert found["topics[0].name"] is None and found["topics[0].topic_id"] == uuid.UUID(int=0)
    assert decoder.encode_body("request", 3, 12, {"topics": None, "allow_auto_topic_creation": False}) == h(
        "00 00 00 00"
    )


def test_rule_2_holds_for_versions_that_nobody_knows():
    message = decoder.decode_response(h("00000001 0023 00000001 0012 0000 0004"), api_key=18, api_version=99)
    assert message.api_version == 0 and message["api_keys[0].max_version"] == 4
    with pytest.raises(decoder.UnknownVersion):
        decoder.decode_response(h("00000001 0000 00000000"), api_key=18, api_version=99)
