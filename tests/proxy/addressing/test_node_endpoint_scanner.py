"""Node endpoints at the end of bulk responses: found at every cut, never given to a client, nothing else touched."""

from __future__ import annotations

import random
import socket
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.proxy.relay.addressing.node_endpoint_scanner import (
    NodeEndpointScanner,
    PlainNodeEndpointScanner,
    ends_clean,
    neutralize_endpoints,
)
from barnabas.proxy.relay.interception.frame_editor import ENDPOINT_LIMIT, broker_addresses, names_brokers, produce_acks
from harness import wire
from harness.run.examples import times
from harness.testbed import Testbed
from harness.wire import with_size
from hypothesis import given
from hypothesis import strategies as st

TOPIC_ID = "00000000-0000-4000-8000-000000000001"
BULK = [
    (facts.api_key(name), version)
    for name in ("Produce", "Fetch", "ShareFetch", "ShareAcknowledge")
    for version in range(41)
    if names_brokers(facts.api_key(name), version)
]


def body(key: int, version: int, records: bytes, throttle: int = 0, topics: int = 1) -> dict[str, Any]:
    name = facts.api_name(key)
    fields: dict[str, Any] = {}
    topic: dict[str, Any] = {"topic_id": TOPIC_ID}
    if name == "Produce":
        named = {"name": "orders"} if version < 13 else topic
        parts = [{"index": 0, "error_code": 6, "base_offset": 7, "log_append_time_ms": 1, "log_start_offset": 3}]
        fields = {"responses": [{**named, "partition_responses": parts} for _ in range(topics)]}
    elif name == "Fetch":
        parts = [{"partition_index": 1, "error_code": 0, "high_watermark": 9, "records": records}]
        fields = {"responses": [{**topic, "partitions": parts} for _ in range(topics)]}
    elif name == "ShareFetch":
        acquired = [{"first_offset": 1, "last_offset": 2, "delivery_count": 1}]
        parts = [{"partition_index": 1, "records": records, "acquired_records": acquired}]
        fields = {"responses": [{**topic, "partitions": parts} for _ in range(topics)]}
    else:
        fields = {"responses": [{**topic, "partitions": [{"partition_index": 1}]} for _ in range(topics)]}
    return fields | {"throttle_time_ms": throttle}


def response(key: int, version: int, endpoints: list[dict[str, Any]], records: bytes = b"r" * 50, **more: int) -> bytes:
    fields = body(key, version, records, **more) | {"node_endpoints": endpoints}
    return decoder.encode_response(key, version, fields, correlation_id=5)


def two(rack: str | None = None) -> list[dict[str, Any]]:
    return [{"node_id": n, "host": f"kafka-{n}.example", "port": 9092 + n, "rack": rack} for n in (1, 2)]


@pytest.mark.parametrize(("key", "version"), BULK)
@pytest.mark.parametrize("rack", [None, "", "rack-a"])
def test_the_endpoints_are_found_wherever_the_frame_is_cut(key: int, version: int, rack: str | None) -> None:
    frame = response(key, version, two(rack), topics=2)
    places = set()
    for cut in range(len(frame)):
        tail = NodeEndpointScanner(key, version)
        place = tail.feed(frame[:cut])
        if place < 0:
            place = cut + tail.feed(frame[cut:])
        places.add(place)
    (place,) = places
    changed = neutralize_endpoints(frame[place:], tail.tagged)
    assert changed is not None
    message = decoder.decode_response(frame[:place] + changed, api_key=key, api_version=version)
    seen = list(broker_addresses(message))
    if tail.tagged:
        assert seen == []  # under a tag that nobody knows
    else:
        assert all(set(host) == {"-"} and port == 0 for _, _, host, port in seen)
        nodes = {e["node_id"] for e in message.to_dict()["node_endpoints"]}
        assert len(nodes) == 2 and not nodes & {1, 2}
    # and nothing else is touched
    before = decoder.decode_response(frame, api_key=key, api_version=version).to_dict()
    after = message.to_dict()
    assert {k: v for k, v in after.items() if k in before and k != "node_endpoints"} == {
        k: v for k, v in before.items() if k != "node_endpoints"
    }


@pytest.mark.parametrize(("key", "version"), BULK)
def test_a_response_without_endpoints_stays_as_it_is(key: int, version: int) -> None:
    frame = response(key, version, [])
    tail = NodeEndpointScanner(key, version)
    place = tail.feed(frame)
    assert place > 0 and neutralize_endpoints(frame[place:], tail.tagged) is None


@times(4)
@given(
    st.sampled_from(BULK),
    st.binary(max_size=40),
    st.lists(
        st.fixed_dictionaries(
            {
                "node_id": st.integers(0, 2**31 - 1),
                "host": st.text("abc.-0", min_size=1, max_size=12),
                "port": st.integers(1, 65535) | st.sampled_from([256, 512, 9216]),
                "rack": st.none() | st.text("ab\u00e9", max_size=8),
            }
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([0, 1, 256, 65536]),
    st.integers(0, 2),
)
def test_no_frame_with_endpoints_is_taken_for_clean(
    which: tuple[int, int], records: bytes, endpoints: list[dict[str, Any]], throttle: int, topics: int
) -> None:
    key, version = which
    frame = response(key, version, endpoints, records, throttle=throttle, topics=topics)
    whole = with_size(frame)
    assert not ends_clean(key, memoryview(whole), len(whole), len(frame))


def test_what_brokers_send_all_day_is_seen_to_be_clean() -> None:
    fetch, produce = facts.api_key("Fetch"), facts.api_key("Produce")
    for key, frame in (
        (produce, response(produce, 11, [])),
        (produce, response(produce, 13, [], topics=3)),
        (fetch, response(fetch, 17, [], b"records that end in text")),
        (fetch, response(fetch, 17, [], topics=0)),
    ):
        whole = with_size(frame)
        assert ends_clean(key, memoryview(whole), len(whole), len(frame))


@times(3)
@given(
    st.binary(max_size=300) | st.lists(st.integers(0, 4), max_size=90).map(bytes),
    st.sampled_from(BULK),
    st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=12),
    st.booleans(),
)
def test_the_accelerator_follows_any_bytes_alike(
    data: bytes, which: tuple[int, int], parts: list[tuple[int, bool]], sound: bool
) -> None:
    if sound:
        data = response(*which, two("r") if data[:1] < b"\x02" else [], data, topics=len(data) % 3)
    walks = NodeEndpointScanner(*which), PlainNodeEndpointScanner(*which)
    for size, skips in [*parts, (len(data), False)]:
        if skips and all(walk.skipping for walk in walks):
            size = min(size, *(walk.skipping - 1 for walk in walks), len(data))
            for walk in walks:
                walk.skip(size)
        else:
            places = {walk.feed(data[:size]) for walk in walks}
            assert len(places) == 1
            if places != {-1}:
                return
        data = data[size:]


@times(3)
@given(st.binary(max_size=300), st.sampled_from(BULK), st.integers(0, 300))
def test_any_bytes_may_come(data: bytes, which: tuple[int, int], cut: int) -> None:
    tail = NodeEndpointScanner(*which)
    place = tail.feed(data[:cut])
    if place < 0:
        place = tail.feed(data[cut:])
    if place >= 0:
        try:
            changed = neutralize_endpoints(data[place:], tail.tagged)
        except ValueError:
            return
        assert changed is None or len(changed) == len(data) - place


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks_are_read_from_the_head_of_a_produce(version: int, acks: int) -> None:
    for client_id in (None, "", "c" * 40):
        for transactional_id in (None, "t" * 30) if version >= 3 else (None,):
            fields: dict[str, Any] = {"acks": acks, "timeout_ms": 1}
            if transactional_id:
                fields["transactional_id"] = transactional_id
            frame = decoder.encode_request(0, version, fields, correlation_id=9, client_id=client_id)
            whole = with_size(frame)
            assert produce_acks(whole, 0, len(whole)) == acks
            assert produce_acks(b"\xff" * 3 + whole, 3, 3 + 16) in (None, acks)


@pytest.mark.parametrize("size", [100, ENDPOINT_LIMIT - 200, ENDPOINT_LIMIT + 1, 300_000, 2_000_000])
@pytest.mark.parametrize("key", [facts.api_key("Fetch"), facts.api_key("ShareFetch")])
def test_no_client_is_given_a_brokers_own_address(testbed: Testbed, key: int, size: int) -> None:
    version = facts.api(key).versions.high if key == facts.api_key("Fetch") else 1
    endpoints = [{"node_id": 3, "host": "10.9.8.7", "port": 9093, "rack": "r"}]
    made = {n: response(key, version, endpoints if n % 2 else [], bytes([65 + n]) * size) for n in range(4)}
    made = {n: n.to_bytes(4, "big") + frame[4:] for n, frame in made.items()}

    def script(sock: socket.socket) -> None:
        rng = random.Random(size)
        while frame := wire.read_frame(sock):
            data = wire.with_size(made[int.from_bytes(frame[8:12], "big")])
            at = 0
            while at < len(data):
                step = rng.choice((1, 3, 700, 70_000)) if size < 1000 or at > len(data) - 300 else 70_000
                sock.sendall(data[at : at + step])
                at += step

    proxy = testbed.proxy(testbed.broker(script).address)
    client = testbed.client(proxy.address)
    for number, sent in made.items():
        got = wire.ask(client, wire.request(key, version, number))
        message = decoder.decode_response(got[4:], api_key=key, api_version=version)
        assert message.plan and len(message.frame) <= len(sent) + 40
        addresses = list(broker_addresses(message))
        assert not [a for a in addresses if a[2] == "10.9.8.7"]
        if not number % 2:
            assert got[4:] == sent
        elif len(sent) <= ENDPOINT_LIMIT:
            assert [(node, host) for _, node, host, _ in addresses] == [(3, "127.0.0.1")]  # rewritten
        else:
            assert len(got) == len(sent) + 4  # the size was promised already
    # the connection is in order afterwards
    client.sendall(b"".join(wire.request(key, version, n) for n in (0, 2, 0)))
    assert [wire.read_frame(client)[4:8] for _ in range(3)] == [n.to_bytes(4, "big") for n in (0, 2, 0)]
