"""Captures that begin in the middle, missing bytes, topic ids, unknown versions."""

from __future__ import annotations

import random
import struct
import uuid

import pytest
from barnabas import decoder
from barnabas.decoder import Direction, ExchangeDone, Opaque, RequestSeen, Topics
from harness.wire import with_size


def conversation(count: int, seed: int = 1) -> tuple[list[bytes], list[bytes]]:
    """Requests and their responses, of mixed APIs, with payload that looks like anything."""
    rng = random.Random(seed)
    asked, answered = [], []
    for number in range(count):
        kind = rng.randrange(4)
        if kind == 0:
            batch = rng.randbytes(rng.randrange(3000))
            topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
            key, version, fields, answer = 0, 9, {"acks": -1, "topic_data": topics}, {}
        elif kind == 1:
            key, version, fields, answer = 3, 12, {"topics": [{"name": "orders"}]}, {"cluster_id": "c" * 40}
        elif kind == 2:
            records = rng.randbytes(rng.randrange(3000))
            answer = {"responses": [{"topic": "orders", "partitions": [{"records": records}]}]}
            key, version, fields = 1, 12, {"topics": []}
        else:
            key, version, fields, answer = 12, 4, {"group_id": "g"}, {}
        asked.append(with_size(decoder.encode_request(key, version, fields, correlation_id=number, client_id="client-1")))
        answered.append(with_size(decoder.encode_response(key, version, answer, correlation_id=number)))
    return asked, answered


def test_a_capture_that_begins_anywhere_in_the_requests():
    rng = random.Random(2)
    asked, answered = conversation(30)
    stream = b"".join(asked)
    starts = [sum(map(len, asked[:i])) for i in range(len(asked))]
    for cut in [*rng.sample(range(len(stream) // 2), 120), *starts[:5]]:
        conn = decoder.Connection(mid_stream=True)
        events = []
        for at in range(cut, len(stream), 700):
            events += conn.receive_from_client(stream[at : at + 700])
        first = next(i for i, start in enumerate(starts) if start >= cut)
        seen = [e.exchange.correlation_id for e in events if isinstance(e, RequestSeen)]
        assert seen == list(range(first, 30)), cut
        skipped = b"".join(e.data for e in events if isinstance(e, Opaque))
        assert skipped == stream[cut : starts[first]]
        done = [e for part in answered[first:] for e in conn.receive_from_broker(part)]
        # the responses are searched for by the ids that are awaited
        assert [e.exchange.correlation_id for e in done if isinstance(e, ExchangeDone)] == list(range(first, 30))


def test_responses_are_found_by_pending_correlation_ids():
    rng = random.Random(3)
    asked, answered = conversation(20, seed=4)
    stream = b"".join(answered)
    starts = [sum(map(len, answered[:i])) for i in range(20)]
    for cut in rng.sample(range(len(stream) // 2), 60):
        conn = decoder.Connection()
        conn.receive_from_client(b"".join(asked))
        conn.lost(Direction.RESPONSE, at_frame=False)
        events = [e for at in range(cut, len(stream), 500) for e in conn.receive_from_broker(stream[at : at + 500])]
        first = next(i for i, start in enumerate(starts) if start >= cut)
        paired = [
            e.exchange.correlation_id for e in events if isinstance(e, ExchangeDone) and e.exchange.state == "paired"
        ]
        missing = [
            e.exchange.correlation_id
            for e in events
            if isinstance(e, ExchangeDone) and e.exchange.state == "no_response"
        ]
        assert paired == list(range(first, 20)) and missing == list(range(first))


def test_a_repeated_response_is_an_orphan():
    asked, answered = conversation(3)
    conn = decoder.Connection()
    conn.receive_from_client(b"".join(asked))
    events = conn.receive_from_broker(answered[0] + answered[0] + answered[1] + answered[2])
    assert [str(e.exchange.state) for e in events] == ["paired", "orphan", "paired", "paired"]


def test_noise_is_no_frame_and_memory_stays_bounded():
    conn = decoder.Connection(mid_stream=True)
    rng = random.Random(5)
    given = 0
    for _ in range(40):
        for event in conn.receive_from_client(bytes(b | 0x80 for b in rng.randbytes(50_000))):
            given += len(event.data)
    assert given >= 40 * 50_000 - (1 << 17)


def test_topic_ids_get_the_names_of_metadata():
    topic = uuid.UUID(int=77)
    topics = Topics()
    one, other = decoder.Connection(topics=topics), decoder.Connection(topics=topics)
    one.receive_from_client(with_size(decoder.encode_request(3, 12, {}, correlation_id=1)))
    known = {"topics": [{"name": "orders", "topic_id": topic}, {"name": None, "topic_id": uuid.UUID(int=1)}]}
    one.receive_from_broker(with_size(decoder.encode_response(3, 12, known, correlation_id=1)))
    assert topics.name(topic.bytes) == "orders" and len(topics) == 1
    fetch = {"topics": [{"topic_id": topic, "partitions": []}, {"topic_id": uuid.UUID(int=9), "partitions": []}]}
    seen = other.receive_from_client(with_size(decoder.encode_request(1, 13, fetch, correlation_id=2)))
    shown = seen[0].exchange.to_dict()["request"]["topics"]
    assert shown[0]["_topic_name"] == "orders" and "_topic_name" not in shown[1]


def test_an_unknown_version_is_decoded_as_a_guess():
    frame = bytearray(decoder.encode_request(3, 13, {"topics": [{"name": "orders"}]}, correlation_id=5, client_id="c"))
    frame[2:4] = struct.pack(">h", 14)
    conn = decoder.Connection()
    exchange = conn.receive_from_client(with_size(bytes(frame)))[0].exchange
    found = exchange.to_dict()
    assert "version 14 is not known" in found["undecoded"] and found["request"] is None and found["client_id"] == "c"
    assert found["guess"]["api_version"] == 13 and found["guess"]["request"]["topics"][0]["name"] == "orders"
    unknown = conn.receive_from_client(with_size(struct.pack(">hhih", 999, 0, 6, -1)))[0].exchange.to_dict()
    assert "guess" not in unknown and "api key 999" in unknown["undecoded"] and unknown["correlation_id"] == 6


@pytest.mark.parametrize("client", ["", "a", "x" * 200, None])
def test_headers_are_read_as_by_their_plan(client):
    for key in decoder.facts.api_keys():
        for version in decoder.facts.api(key).versions.every():
            frame = decoder.encode_request(key, version, {}, correlation_id=-7, client_id=client)
            header, _ = decoder.decode_request_header(frame)
            assert header.get("client_id") == (None if (key, version) == (7, 0) else client)
            assert decoder.peek_request(frame) == (key, version, -7)
    with pytest.raises(decoder.Truncated):
        decoder.peek_request(b"\x00\x03")
