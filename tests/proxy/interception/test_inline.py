"""Held frames: addresses are rewritten, rules answer in the right place, everything else stays as it is."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import BrokerFound, NotKafka, RuleHit, Undecoded
from barnabas.proxy.relay.interception.frame_editor import produce_acks
from harness import scripted, wire
from harness.testbed import Script, Testbed, next_event
from harness.waiting import PATIENCE
from traffic.error_rules import error_rule

NOT_LEADER = 6


def produce(correlation_id: int, acks: int = -1, version: int = 7, topics: tuple[str, ...] = ("t",)) -> bytes:
    fields = {
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [{"name": name, "partition_data": [{"index": 0, "records": b"r" * 50}]} for name in topics],
    }
    return wire.with_size(decoder.encode_request(0, version, fields, correlation_id=correlation_id, client_id="t"))


def error_of(frame: bytes, version: int = 7) -> int:
    message = decoder.decode_response(frame[4:], api_key=0, api_version=version)
    code: int = message["responses[0].partition_responses[0].error_code"]
    return code


def rule(**fields: Any) -> Rule:
    return error_rule(**({"name": "r", "api_key": 0, "error_code": NOT_LEADER} | fields))


def metadata_broker(nodes: list[tuple[int, str, int]], version: int = 8) -> Script:
    return scripted.each(
        lambda frame, number: wire.metadata_response(number, nodes, version) if frame[4:6] == b"\0\x03" else wire.response(number, frame)
    )


def brokers_of(frame: bytes, version: int = 8) -> list[tuple[int, str, int]]:
    message = decoder.decode_response(frame[4:], api_key=3, api_version=version)
    return [(b["node_id"], b["host"], b["port"]) for b in message.to_dict()["brokers"]]


def test_every_broker_gets_its_own_listener(testbed: Testbed) -> None:
    second, third = (testbed.broker(scripted.answering(name)) for name in (b"second", b"third"))
    nodes = [(3, *third.address), (2, "localhost", second.address[1]), (9, "", -1)]
    first = testbed.broker(lambda sock: metadata_broker(nodes)(sock))
    nodes.append((1, "localhost", first.address[1]))
    proxy = testbed.proxy(first.address)
    client = testbed.client(proxy.address)
    client.sendall(wire.request(3, 8, 77))
    found = {node: (host, port) for node, host, port in brokers_of(wire.read_frame(client))}
    assert found[1] == proxy.address
    assert found[9] == ("", -1)
    ports = {port for _, port in (found[1], found[2], found[3])}
    assert len(ports) == 3 and not ports & {second.address[1], third.address[1], first.address[1]}
    for node, name in ((2, b"second"), (3, b"third")):
        assert found[node][0] == "127.0.0.1"
        own = testbed.client(found[node])
        assert wire.ask(own, wire.request(18, 0, 5)) == wire.response(5, name)
    events = [next_event(proxy, BrokerFound) for _ in range(2)]
    assert {(event.node, event.address) for event in events} == {(2, found[2]), (3, found[3])}
    client.sendall(wire.request(3, 8, 78))
    assert {node: (host, port) for node, host, port in brokers_of(wire.read_frame(client))} == found


def free_run(count: int) -> int:
    """The first of `count` free ports in a row, below those that the system gives out by itself."""
    while True:
        start = random.randrange(12_000, 30_000)
        try:
            for port in range(start, start + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return start


def test_fixed_ports_follow_the_bootstrap_port(testbed: Testbed) -> None:
    start = free_run(5)
    nodes = [(node, "10.9.8.7", 9000 + node) for node in (3, 2, 1)]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", start + 2))
        taken.listen()
        broker = testbed.broker(metadata_broker(nodes))
        proxy = testbed.proxy(broker.address, listen=("127.0.0.1", start))
        client = testbed.client(proxy.address)
        assert brokers_of(wire.ask(client, wire.request(3, 8, 1))) == [
            (3, "127.0.0.1", start + 4),
            (2, "127.0.0.1", start + 3),
            (1, "127.0.0.1", start + 1),
        ]


def test_listening_everywhere_names_the_address_that_was_used(testbed: Testbed) -> None:
    broker = testbed.broker(metadata_broker([(1, "10.9.8.7", 9092)]))
    proxy = testbed.proxy(broker.address, listen=("0.0.0.0", 0))
    client = testbed.client(("127.0.0.2", proxy.address[1]))
    ((_, host, _),) = brokers_of(wire.ask(client, wire.request(3, 8, 1)))
    assert host == "127.0.0.2"


@pytest.mark.parametrize("version", range(14))
def test_addresses_in_metadata_at_every_version(testbed: Testbed, version: int) -> None:
    fields: dict[str, Any] = {"brokers": [{"node_id": 1, "host": "10.9.8.7", "port": 9092}]}
    frame = decoder.encode_response(3, version, fields, correlation_id=4)
    proxy = testbed.proxy(testbed.broker(answering(frame)).address)
    client = testbed.client(proxy.address)
    got = wire.ask(client, wire.request(3, version, 4))
    ((_, host, port),) = brokers_of(got, version)
    assert (host, port) != ("10.9.8.7", 9092)
    back = decoder.decode_response(got[4:], api_key=3, api_version=version)
    assert back.replace({"brokers[0].host": "10.9.8.7", "brokers[0].port": 9092}).encode() == frame


@pytest.mark.parametrize(
    ("api", "version", "fields", "path"),
    [
        ("FindCoordinator", 0, {"node_id": 1, "host": "10.9.8.7", "port": 9092}, ""),
        ("FindCoordinator", 3, {"node_id": 1, "host": "10.9.8.7", "port": 9092}, ""),
        (
            "FindCoordinator",
            5,
            {"coordinators": [{"key": "g", "node_id": 1, "host": "10.9.8.7", "port": 9092}]},
            "coordinators[0].",
        ),
        ("Produce", 10, {"node_endpoints": [{"node_id": 1, "host": "10.9.8.7", "port": 9092}]}, "node_endpoints[0]."),
        ("Fetch", 16, {"node_endpoints": [{"node_id": 1, "host": "10.9.8.7", "port": 9092}]}, "node_endpoints[0]."),
        ("ShareFetch", 1, {"node_endpoints": [{"node_id": 1, "host": "10.9.8.7", "port": 9092}]}, "node_endpoints[0]."),
        ("DescribeCluster", 1, {"brokers": [{"broker_id": 1, "host": "10.9.8.7", "port": 9092}]}, "brokers[0]."),
    ],
)
def test_addresses_in_other_responses(
    testbed: Testbed, api: str, version: int, fields: dict[str, Any], path: str
) -> None:
    key = decoder.facts.api_key(api)
    frame = decoder.encode_response(key, version, fields, correlation_id=4)
    proxy = testbed.proxy(testbed.broker(answering(frame)).address)
    client = testbed.client(proxy.address)
    client.sendall(wire.request(key, version, 4))
    message = decoder.decode_response(wire.read_frame(client)[4:], api_key=key, api_version=version)
    assert message[path + "host"] == "127.0.0.1"
    assert message[path + "port"] == next_event(proxy, BrokerFound).address[1]


def answering(frame: bytes) -> Script:
    """A broker that gives one answer to everything, byte by byte at first."""

    def script(sock: socket.socket) -> None:
        while wire.read_frame(sock):
            data = wire.with_size(frame)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(12):
                sock.sendall(data[at : at + 1])
            sock.sendall(data[12:])

    return script


def test_what_cannot_be_decoded_passes_and_is_reported(testbed: Testbed) -> None:
    damaged = (4).to_bytes(4, "big") + os.urandom(3) + b"\x7f" * 40
    proxy = testbed.proxy(testbed.broker(answering(damaged)).address)
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(3, 8, 4)) == wire.with_size(damaged)
    event = next_event(proxy, Undecoded)
    assert (event.api_key, event.api_version) == (3, 8)


def test_a_damaged_response_with_the_same_id_does_not_hide_the_real_one(testbed: Testbed) -> None:
    """A client may use an id twice; the broker's address must not slip through because of it."""

    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        wire.read_frame(sock)
        sock.sendall(wire.response(4, b"fetch") + wire.metadata_response(4, [(1, "10.9.8.7", 9092)]))

    proxy = testbed.proxy(testbed.broker(script).address)
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(1, 4, 4) + wire.request(3, 8, 4)) == wire.response(4, b"fetch")
    ((_, host, _),) = brokers_of(wire.read_frame(client))
    assert host == "127.0.0.1"


def test_a_response_too_large_to_hold_passes(testbed: Testbed) -> None:
    big = wire.response(4, bytes(65 << 20))

    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        sock.sendall(big)

    proxy = testbed.proxy(testbed.broker(script).address)
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(3, 8, 4)) == big
    assert "larger than" in next_event(proxy, Undecoded).text


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("rules", [[], [rule(topic="other")]], ids=["without rules", "with a rule"])
def test_a_large_answer_that_can_have_no_node_endpoints_passes_as_it_is(
    testbed: Testbed, rules: list[Rule], version: int
) -> None:
    """No broker answers ApiVersions so; whoever does is not helped by a reset."""
    bodies = [random.Random(seed).randbytes(40_000) for seed in range(8)] + [bytes(1 << 20)]
    answers = [wire.response(number, body) for number, body in enumerate(bodies)]

    def script(sock: socket.socket) -> None:
        for answer in answers:
            wire.read_frame(sock)
            sock.sendall(answer)

    proxy = testbed.proxy(testbed.broker(script).address, rules=rules)
    client = testbed.client(proxy.address)
    for number, answer in enumerate(answers):
        assert wire.ask(client, wire.request(18, version, number, b"\0" * (version == 3))) == answer


@pytest.mark.parametrize("rules", [[], [rule(topic="other")]], ids=["without rules", "with a rule"])
def test_large_fetches_pass_between_small_ones(testbed: Testbed, rules: list[Rule]) -> None:
    """A large response goes the fast way again, and the small one behind it is still read."""
    small = wire.with_size(
        decoder.encode_response(
            1, 16, {"node_endpoints": [{"node_id": 1, "host": "10.9.8.7", "port": 9092}]}, correlation_id=2
        )
    )

    def script(sock: socket.socket) -> None:
        for _ in range(2):
            wire.read_frame(sock)
        sock.sendall(large + small)

    proxy = testbed.proxy(testbed.broker(script).address, rules=rules)
    for size in (256 * 1024 - 3, 5_000_000, 262_144 + 65_536):
        large = wire.response(1, os.urandom(size))
        client = testbed.client(proxy.address)
        assert wire.ask(client, wire.request(1, 16, 1) + wire.request(1, 16, 2)) == large
        message = decoder.decode_response(wire.read_frame(client)[4:], api_key=1, api_version=16)
        assert message["node_endpoints[0].host"] == "127.0.0.1"


def test_acks_0_leaves_nothing_behind() -> None:
    for client_id in (None, "", "client" * 10):
        for transactional_id in (None, "", "t" * 40):
            for acks in (-1, 0, 1):
                frame = decoder.encode_request(
                    0, 11, {"acks": acks, "transactional_id": transactional_id}, client_id=client_id
                )
                data = (len(frame)).to_bytes(4, "big") + frame
                assert produce_acks(data, 0, len(data)) == acks
                assert produce_acks(b"xyz" + data, 3, 3 + len(data)) == acks
                assert produce_acks(data, 0, 13) is None


# --- rules ---------------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_the_requests(testbed: Testbed) -> None:
    """The answers made here wait for the slow response before them and overtake nothing."""
    forwarded: list[int] = []
    answered_here = threading.Event()

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            number = int.from_bytes(frame[8:12], "big")
            forwarded.append(number)
            if number == 1:
                answered_here.wait(PATIENCE)
            answer = wire.response(number, b"from the broker" * 1000)
            sock.sendall(answer[:100])
            sock.sendall(answer[100:])

    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule(times=2)])
    client = testbed.client(proxy.address)
    client.sendall(
        wire.request(18, 0, 1) + produce(2) + wire.request(3, 30, 3) + produce(4) + produce(5) + wire.request(18, 0, 6)
    )
    hits = [next_event(proxy, RuleHit) for _ in range(2)]
    answered_here.set()
    frames = [wire.read_frame(client) for _ in range(6)]
    assert [int.from_bytes(frame[4:8], "big") for frame in frames] == [1, 2, 3, 4, 5, 6]
    assert error_of(frames[1]) == error_of(frames[3]) == NOT_LEADER
    assert forwarded == [1, 3, 5, 6]
    assert [(hit.correlation_id, hit.hits) for hit in hits] == [(2, 1), (4, 2)]


def test_answers_split_anywhere(testbed: Testbed) -> None:
    broker = testbed.broker(metadata_broker([]))
    proxy = testbed.proxy(broker.address, rules=[rule()])
    asked = wire.request(18, 0, 1) + produce(2) + wire.request(18, 0, 3)
    other = testbed.client(proxy.address)
    for cut in range(0, len(asked), 3):
        client = testbed.client(proxy.address)
        client.sendall(asked[:cut])
        assert wire.ask(other, wire.request(18, 0, cut))  # the relay has looked at the first part by then
        client.sendall(asked[cut:])
        frames = [wire.read_frame(client) for _ in range(3)]
        assert frames[0] == wire.response(1, wire.request(18, 0, 1))
        assert error_of(frames[1]) == NOT_LEADER
        assert frames[2] == wire.response(3, wire.request(18, 0, 3))
        client.close()


def test_a_thousand_pipelined_answers(testbed: Testbed) -> None:
    broker = testbed.broker(metadata_broker([]))
    proxy = testbed.proxy(broker.address, rules=[rule(topic="bad")])
    client = testbed.client(proxy.address)
    asked = [produce(number, topics=("bad" if number % 3 else "good",)) for number in range(1000)]
    client.sendall(b"".join(asked))
    for number, frame in enumerate(asked):
        got = wire.read_frame(client)
        assert got[4:8] == number.to_bytes(4, "big")
        if number % 3:
            assert error_of(got) == NOT_LEADER
        else:
            assert got == wire.response(number, frame)


def test_acks_0_is_never_answered(testbed: Testbed) -> None:
    seen: list[bytes] = []

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            seen.append(frame)
            if frame[4:6] != b"\0\0":
                sock.sendall(wire.response(int.from_bytes(frame[8:12], "big")))

    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule()])
    client = testbed.client(proxy.address)
    silent = [produce(number, acks=0) for number in (1, 2, 3)]
    client.sendall(silent[0] + silent[1] + produce(8) + silent[2] + wire.request(18, 0, 9))
    assert error_of(wire.read_frame(client)) == NOT_LEADER
    assert wire.read_frame(client) == wire.response(9)
    assert seen == [*silent, wire.request(18, 0, 9)]


def test_executed_replaces_the_result(testbed: Testbed) -> None:
    fields = {
        "responses": [
            {"name": name, "partition_responses": [{"index": 0, "base_offset": 41}, {"index": 1, "base_offset": 42}]}
            for name in ("a", "b")
        ]
    }

    broker = testbed.broker(scripted.each(lambda _, number: wire.with_size(decoder.encode_response(0, 7, fields, correlation_id=number))))
    proxy = testbed.proxy(broker.address, rules=[rule(topic="b", partition=1, forward=True)])
    client = testbed.client(proxy.address)
    asked = produce(5)
    client.sendall(asked)
    untouched = wire.with_size(decoder.encode_response(0, 7, fields, correlation_id=5))
    assert wire.read_frame(client) == untouched  # topic t is not meant
    wanted = {
        "acks": -1,
        "timeout_ms": 1,
        "topic_data": [{"name": "b", "partition_data": [{"index": 1, "records": None}]}],
    }
    client.sendall(wire.with_size(decoder.encode_request(0, 7, wanted, correlation_id=6)))
    message = decoder.decode_response(wire.read_frame(client)[4:], api_key=0, api_version=7)
    assert [path for path, _ in message.errors()] == ["responses[1].partition_responses[1].error_code"]
    assert message["responses[1].partition_responses[1].base_offset"] == -1
    assert message["responses[0].partition_responses[1].base_offset"] == 42


def test_a_request_that_cannot_be_decoded_passes(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(scripted.answering(None)).address, rules=[rule()])
    client = testbed.client(proxy.address)
    for number, asked in enumerate((wire.request(0, 7, 0, b"\x7f" * 30), wire.request(0, 39, 1, b"newer"))):
        assert wire.ask(client, asked) == wire.response(number, asked)
        assert next_event(proxy, Undecoded).api_key == 0


def test_the_end_of_the_requests_waits_for_no_answer(testbed: Testbed) -> None:
    ended = threading.Event()

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            ended.wait(PATIENCE)
            sock.sendall(wire.response(int.from_bytes(frame[8:12], "big")))

    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule()])
    client = testbed.client(proxy.address)
    client.sendall(wire.request(18, 0, 1) + produce(2))
    client.shutdown(socket.SHUT_WR)
    ended.set()
    assert wire.read_frame(client) == wire.response(1)
    assert error_of(wire.read_frame(client)) == NOT_LEADER
    assert client.recv(1) == b""


def test_a_foreign_protocol_under_rules_passes(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(scripted.echo).address, rules=[rule()])
    client = testbed.client(proxy.address)
    for text in (b"GET / HTTP/1.1\r\n\r\n", b"more"):
        client.sendall(text)
        assert wire.exactly(client, len(text)) == text
    assert "HTTP" in next_event(proxy, NotKafka).text


def test_what_the_observer_sees_of_answers(testbed: Testbed, tmp_path: Path) -> None:
    """A recording holds the request that was not forwarded, the answer, and which rule gave it."""
    broker = testbed.broker(metadata_broker([(1, "10.9.8.7", 9092)]))
    proxy = testbed.proxy(broker.address, rules=[rule(name="leader moved")], record=tmp_path)
    client = testbed.client(proxy.address)
    assert error_of(wire.ask(client, produce(1) + wire.request(3, 8, 2))) == NOT_LEADER
    assert wire.read_frame(client)
    client.close()
    proxy.stop()
    (segment,) = tmp_path.glob("*.pcapng")
    content = segment.read_bytes()
    assert b"leader moved" in content
    assert b"10.9.8.7" in content  # the broker leg, as it was before the addresses were changed


def test_events_survive_the_way_between_processes() -> None:
    from barnabas.proxy import events

    event = BrokerFound(1, ("h", 2), ("::1", 3))
    assert events.decode(events.encode(event)) == event
    assert "[::1]:3" in event.text
    assert json.loads(events.encode(event))["event"] == "BrokerFound"
