"""Rules on fields of responses: every response that one matches is found, the others pass, all in order."""

from __future__ import annotations

import random
import socket
import threading
import time

import pytest
from barnabas import decoder
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import RuleHit, Undecoded
from harness import wire
from harness.testbed import Testbed
from harness.waiting import PATIENCE
from harness.wire import with_size

HEARTBEAT, PRODUCE, FETCH, SHARE_FETCH = (
    facts.api_key(name) for name in ("Heartbeat", "Produce", "Fetch", "ShareFetch")
)
COUNT = 400


@pytest.mark.parametrize(
    ("match", "early"),
    [
        ("api == Heartbeat and err == REBALANCE_IN_PROGRESS and group == a", False),
        ("api == Heartbeat and err == REBALANCE_IN_PROGRESS and group == a", True),
        ("any(resp.error_code == REBALANCE_IN_PROGRESS) and group == a and req.generation_id >= 0", False),
        ("api == Heartbeat and paired and err == 27 and group == a", False),  # each response is judged
    ],
)
def test_pipelined(testbed: Testbed, match: str, early: bool) -> None:
    codes: dict[int, int] = {}
    chance = random.Random(match)

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            number = int.from_bytes(frame[8:12], "big")
            if frame[4:6] == b"\0\0":
                sock.sendall(wire.with_size(decoder.encode_response(PRODUCE, 9, {}, correlation_id=number)))
            else:
                body = decoder.encode_response(HEARTBEAT, 4, {"error_code": codes[number]}, correlation_id=number)
                sock.sendall(wire.with_size(body))

    rules = [Rule.of(match, edit={"throttle_time_ms": 77}, name="late")]
    if early:
        rules.append(Rule.of("api == Heartbeat and group == c", error="UNKNOWN_MEMBER_ID", name="early"))
    proxy = testbed.proxy(testbed.broker(script).address, rules=rules)
    client = testbed.client(proxy.address)
    sent, groups = b"", ""
    for number in range(COUNT):
        codes[number] = chance.choice((0, 0, 0, 0, 0, 27, 25))
        groups += chance.choice("aaaaaaabc")
        if number % 7 == 3:
            groups = groups[:-1] + " "
            frame = decoder.encode_request(PRODUCE, 9, {"acks": -1}, correlation_id=number, client_id="c")
        else:
            fields = {"group_id": groups[-1], "generation_id": number, "member_id": "m" * chance.choice((3, 3, 900))}
            frame = decoder.encode_request(HEARTBEAT, 4, fields, correlation_id=number, client_id="c")
        sent += wire.with_size(frame)
    wire.send_cut(client, sent, chance, (3, 60, 400, 9000))
    got = [wire.read_frame(client) for _ in range(COUNT)]
    assert [int.from_bytes(frame[4:8], "big") for frame in got] == list(range(COUNT))
    beats = {
        n: decoder.decode_response(got[n][4:], api_key=HEARTBEAT, api_version=4)
        for n in range(COUNT)
        if groups[n] != " "
    }
    answered = [n for n in beats if early and groups[n] == "c"]
    assert [n for n in beats if beats[n]["error_code"] == (25 if n in answered else codes[n])] == list(beats)
    changed = [n for n in beats if beats[n]["throttle_time_ms"] == 77]
    assert changed == [n for n in beats if codes[n] == 27 and groups[n] == "a"] and changed
    proxy.stop()
    events = list(proxy.events())
    assert sorted(e.correlation_id for e in events if isinstance(e, RuleHit)) == sorted(changed + answered)
    assert not [e for e in events if isinstance(e, Undecoded)]


def test_latency_and_a_response_that_cannot_be_read(testbed: Testbed) -> None:
    """A late response is found though nothing in it is unusual; one that cannot be read passes and is reported."""

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            number = int.from_bytes(frame[8:12], "big")
            if number == 2:
                sock.sendall(wire.with_size(frame[8:12] + b"\0?"))
                continue
            if number == 1:
                time.sleep(0.3)
            sock.sendall(wire.with_size(decoder.encode_response(HEARTBEAT, 4, {}, correlation_id=number)))

    rule = Rule.of("api == Heartbeat and (latency > 250ms or err)", edit={"throttle_time_ms": 5})
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule])
    client = testbed.client(proxy.address)
    got = []
    for number in range(3):
        client.sendall(wire.with_size(decoder.encode_request(HEARTBEAT, 4, {}, correlation_id=number, client_id="c")))
        got.append(wire.read_frame(client))
    assert got[2][8:] == b"\0?"
    slow = decoder.decode_response(got[1][4:], api_key=HEARTBEAT, api_version=4)
    assert slow["throttle_time_ms"] == 5
    proxy.stop()
    hits = [event.correlation_id for event in proxy.events() if isinstance(event, RuleHit)]
    assert 1 in hits and 2 not in hits


def produce(topics: dict[str, int], number: int, size: int) -> bytes:
    """A Produce with its size: so many partitions of each topic, so many bytes each."""
    batch = bytes(encode_batch([Record(0, 1, None, bytes(size))]))
    data = [
        {"name": t, "partition_data": [{"index": n, "records": batch} for n in range(c)]} for t, c in topics.items()
    ]
    fields = {"acks": -1, "topic_data": data}
    frame = decoder.encode_request(PRODUCE, 9, fields, correlation_id=number, client_id="c")
    return with_size(frame)


def test_a_size_is_known_before_the_end(testbed: Testbed) -> None:
    """It stands in front: a request that is not large enough for a rule passes while its end is still to come."""
    begun = threading.Event()

    def script(sock: socket.socket) -> None:
        while head := wire.exactly(sock, 1000):
            begun.set()
            frame = head + wire.exactly(sock, int.from_bytes(head[:4], "big") + 4 - len(head))
            sock.sendall(
                wire.with_size(decoder.encode_response(PRODUCE, 9, {}, correlation_id=int.from_bytes(frame[8:12], "big")))
            )

    rule = Rule.of("api == Produce and size.req > 300kB", error="MESSAGE_TOO_LARGE")
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule])
    client = testbed.client(proxy.address)
    for number, size in enumerate((200_000, 400_000)):
        begun.clear()
        frame = produce({"a": 1}, number, size)
        client.sendall(frame[:-50_000])
        if not number:
            assert begun.wait(PATIENCE), "it waits for its end"
        client.sendall(frame[-50_000:])
        answer = decoder.decode_response(wire.read_frame(client)[4:], api_key=PRODUCE, api_version=9).to_dict()
        assert bool(answer["responses"]) == bool(number) and begun.is_set() == (not number)


def test_a_large_request_passes_once_it_is_seen_that_no_rule_is_about_it(testbed: Testbed) -> None:
    """Before its end: as soon as its last topic is known. One that a rule is about never reaches the broker."""
    reached: list[bytes] = []
    begun = threading.Event()

    def script(sock: socket.socket) -> None:
        while head := wire.exactly(sock, 1000):
            begun.set()
            frame = head + wire.exactly(sock, int.from_bytes(head[:4], "big") + 4 - len(head))
            reached.append(frame)
            number = int.from_bytes(frame[8:12], "big")
            sock.sendall(wire.with_size(decoder.encode_response(PRODUCE, 9, {}, correlation_id=number)))

    rules = [
        Rule.of("api == Produce and topic == b", error="NOT_LEADER_OR_FOLLOWER"),
        Rule.of("api == Produce and err", delay="1ms"),
    ]
    proxy = testbed.proxy(testbed.broker(script).address, rules=rules)
    client = testbed.client(proxy.address)
    sent = [produce({"a": 1}, 0, 400_000), produce({"a": 2, "c": 2}, 1, 100_000), produce({"a": 2, "b": 1}, 2, 100_000)]
    for number, frame in enumerate(sent):
        begun.clear()
        cut = len(frame) - 50_000
        client.sendall(frame[:cut])
        if number < 2:
            assert begun.wait(PATIENCE), "it waits for its end"
        answer = wire.ask(client, frame[cut:])
        assert int.from_bytes(answer[4:8], "big") == number
        fields = decoder.decode_response(answer[4:], api_key=PRODUCE, api_version=9).to_dict()
        assert bool(fields["responses"]) == (number == 2)
    assert reached == sent[:2]


@pytest.mark.parametrize(("key", "version"), [(FETCH, 16), (SHARE_FETCH, 1)])
def test_a_large_response_passes_once_it_is_seen_to_have_no_error(testbed: Testbed, key: int, version: int) -> None:
    batch = bytes(encode_batch([Record(0, 1, None, bytes(200_000))]))
    answers = []
    for number, code in enumerate((0, 6, 0)):
        parts = [{"partition_index": 0, "records": batch}, {"partition_index": 1, "error_code": code, "records": batch}]
        topic = {"topic_id": "00000000-0000-4000-8000-000000000001", "partitions": parts}
        answers.append(
            wire.with_size(decoder.encode_response(key, version, {"responses": [topic]}, correlation_id=number))
        )
    rest = threading.Event()

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            answer = answers[int.from_bytes(frame[8:12], "big")]
            sock.sendall(answer[:-50_000])
            rest.wait(PATIENCE)
            sock.sendall(answer[-50_000:])

    rule = Rule.of(
        "api in {Fetch, ShareFetch} and partition == 1 and partition.err == NOT_LEADER_OR_FOLLOWER",
        edit={"throttle_time_ms": 77},
    )
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule])
    client = testbed.client(proxy.address)
    for number, answer in enumerate(answers):
        rest.clear()
        client.sendall(wire.with_size(decoder.encode_request(key, version, {}, correlation_id=number, client_id="c")))
        got = b""
        if number != 1:
            got = wire.exactly(client, 250_000)  # before its end
        rest.set()
        got += wire.exactly(client, len(answer) - len(got))
        if number != 1:
            assert got == answer
        else:
            message = decoder.decode_response(got[4:], api_key=key, api_version=version)
            assert message["throttle_time_ms"] == 77
