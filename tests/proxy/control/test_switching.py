"""Rules that change while requests are in flight: every answer is right and in its place."""

from __future__ import annotations

import random
import select
import socket
import threading
import time

import pytest
from barnabas import decoder
from barnabas.proxy.events import Undecoded
from harness import wire
from harness.peers.control_api import StartControlApi, heartbeat
from harness.testbed import Testbed
from harness.waiting import PATIENCE, until

NOT_LEADER = 6
RULE = {"name": "r", "match": "api == Produce and topic == broken", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}


def produce(number: int, topic: str, size: int = 20, acks: int = -1, version: int = 7) -> bytes:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": b"r" * size}]}]
    fields = {"acks": acks, "timeout_ms": 1000, "topic_data": topics}
    return wire.with_size(decoder.encode_request(0, version, fields, correlation_id=number, client_id="client"))


def error_code(frame: bytes) -> int:
    """The error code in a Produce v7 response."""
    code: int = decoder.decode_response(frame[4:], api_key=0, api_version=7)["responses[0].partition_responses[0].error_code"]
    return code


def broker(sock: socket.socket) -> None:
    """Answers in order: Produce with offset 77, and anything else with zeros; acks=0 not at all.

    Sometimes it first waits until more requests are there, so that several are in flight.
    """
    made = random.Random(3)
    while frame := wire.read_frame(sock):
        number = int.from_bytes(frame[8:12], "big")
        if made.random() < 0.3:
            select.select([sock], [], [], 0.001)
        if frame[4:6] == b"\0\0":
            version = int.from_bytes(frame[6:8], "big")
            message = decoder.decode_request(frame[4:])
            if message["acks"] == 0:
                continue
            topic = message["topic_data[0].name"]
            fields = {"responses": [{"name": topic, "partition_responses": [{"index": 0, "base_offset": 77}]}]}
            sock.sendall(wire.with_size(decoder.encode_response(0, version, fields, correlation_id=number)))
        else:
            sock.sendall(wire.response(number, bytes(2)))


@pytest.mark.parametrize(
    ("version", "count"), [(7, 200), *(pytest.param(version, 1500, marks=pytest.mark.slow) for version in (7, 10))]
)
def test_rules_change_under_pipelined_load(start_api: StartControlApi, testbed: Testbed, version: int, count: int) -> None:
    """Three connections pipeline; the rule is switched on and off all the time. Order and contents always hold."""
    api = start_api(broker)
    api.control.add_rule(RULE)
    api.control.enable_rule("r", False)
    failures: list[str] = []
    hits = [0]

    def client(seed: int) -> None:
        made = random.Random(seed)
        sock = testbed.client(api.proxy.address)
        expected: list[tuple[int, str]] = []
        gate = threading.Semaphore(20)

        def write() -> None:
            pieces = bytearray()
            for number in range(1, count + 1):
                kind = made.choice(("broken", "fine", "beat"))
                expected.append((number, kind))
                gate.acquire()
                pieces += (
                    heartbeat(number) if kind == "beat" else produce(number, kind, made.randrange(300), version=version)
                )
                cut = made.randrange(len(pieces) + 1) if made.random() < 0.3 else len(pieces)
                sock.sendall(pieces[:cut])
                del pieces[:cut]
                if pieces and made.random() < 0.5:
                    time.sleep(0.001)
                    sock.sendall(pieces)
                    pieces.clear()
                if number == count:
                    sock.sendall(pieces)

        threading.Thread(target=write, daemon=True).start()
        for at in range(count):
            frame = wire.read_frame(sock)
            gate.release()
            if not frame:
                failures.append(f"{seed}: ended at {at}")
                return
            number, kind = expected[at]
            if int.from_bytes(frame[4:8], "big") != number:
                failures.append(f"{seed}: {number} was due, {int.from_bytes(frame[4:8], 'big')} came")
                return
            if kind == "beat":
                if frame[8:] != bytes(2):
                    failures.append(f"{seed}: {number}: not a heartbeat's answer")
                continue
            answer = decoder.decode_response(frame[4:], api_key=0, api_version=version)
            (topic,) = answer.to_dict()["responses"]
            code = topic["partition_responses"][0]["error_code"]
            if topic["name"] != kind or (code and kind == "fine") or code not in (0, NOT_LEADER):
                failures.append(f"{seed}: {number}: {topic}")
            hits[0] += code == NOT_LEADER

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    enabled = False
    while any(thread.is_alive() for thread in threads) and not failures:
        enabled = not enabled
        api.control.enable_rule("r", enabled)
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    api.control.enable_rule("r", True)  # on a busy machine all of them may have come while it was off
    hits[0] += error_code(wire.ask(testbed.client(api.proxy.address), produce(1, "broken"))) == NOT_LEADER
    assert hits[0] == api.control.rules()[0]["hits"] > 0
    api.proxy.stop()
    assert not [event for event in api.proxy.events() if isinstance(event, Undecoded)]


def test_an_answer_waits_for_earlier_requests_that_were_not_tracked(start_api: StartControlApi, testbed: Testbed) -> None:
    """Two requests of an API that nobody watches are in flight when the first rule comes."""
    go = threading.Event()

    def script(sock: socket.socket) -> None:
        frames = [wire.read_frame(sock) for _ in range(2)]
        go.wait(PATIENCE)
        for frame in frames:
            sock.sendall(wire.response(int.from_bytes(frame[8:12], "big"), bytes(2)))
        wire.read_frame(sock)  # until the proxy closes

    api = start_api(script)
    client = testbed.client(api.proxy.address)
    client.sendall(heartbeat(1))
    client.sendall(heartbeat(2))
    until(lambda: len(api.control.pending()) == 2, api.control.pending)
    api.control.add_rule(RULE)
    client.sendall(produce(3, "broken"))
    assert api.control.wait_for_hits("r") == 1
    assert select.select([client], [], [], 0)[0] == []  # the rule has answered, but it is not its turn
    go.set()
    numbers = [int.from_bytes(wire.read_frame(client)[4:8], "big") for _ in range(3)]
    assert numbers == [1, 2, 3]


def test_a_new_rule_applies_to_an_idle_connection_at_once(start_api: StartControlApi, testbed: Testbed) -> None:
    api = start_api(broker)
    client = testbed.client(api.proxy.address)
    assert b"broken" in wire.ask(client, produce(1, "broken"))
    api.control.add_rule(RULE)
    assert error_code(wire.ask(client, produce(2, "broken"))) == NOT_LEADER
    api.control.remove_rule("r")
    assert error_code(wire.ask(client, produce(3, "broken"))) == 0


def test_rules_leave_a_connection_alone_after_acks_0_until_a_response(start_api: StartControlApi, testbed: Testbed) -> None:
    """Nothing shows when such a request is done, so rules wait for a response."""
    api = start_api(broker)
    client = testbed.client(api.proxy.address)
    requests = [*(produce(number, "broken", acks=0) for number in range(1, 6)), heartbeat(6)]
    sent = sum(map(len, requests))
    for each in requests:
        client.sendall(each)
    assert wire.read_frame(client)[4:8] == (6).to_bytes(4, "big")
    client.sendall(produce(7, "broken", acks=0))
    sent += len(produce(7, "broken", acks=0))
    # the rule must not see these
    until(lambda: api.control.connections()[0]["request_bytes"] == sent, api.control.connections)
    api.control.add_rule(RULE)
    assert error_code(wire.ask(client, produce(8, "broken"))) == 0
    assert error_code(wire.ask(client, produce(9, "broken"))) == NOT_LEADER


def test_waiting_for_hits(start_api: StartControlApi, testbed: Testbed) -> None:
    api = start_api(broker)
    api.control.add_rule(RULE)
    client = testbed.client(api.proxy.address)

    def send() -> None:
        for number in range(1, 4):
            client.sendall(produce(number, "broken"))

    timer = threading.Timer(0.1, send)  # while wait_for_hits waits, or before: it is the same to it
    timer.start()
    assert api.control.wait_for_hits("r", 3, timeout=PATIENCE) == 3
    timer.join()
    assert api.control.wait_for_hits("r", 2, timeout=0.1) == 3
    with pytest.raises(TimeoutError, match=r"3 of 4 hits after 0\.2 s"):
        api.control.wait_for_hits("r", 4, timeout=0.2)
    status, answer = api.call("POST", "/v1/rules/r/wait?hits=9&timeout=0.1")
    assert (status, answer) == (200, {"name": "r", "hits": 3, "reached": False})
    api.control.put_rule("r", RULE)
    assert api.control.rules()[0]["hits"] == 0


def test_counts_survive_changes_of_other_rules(start_api: StartControlApi, testbed: Testbed) -> None:
    api = start_api(broker)
    api.control.add_rule(RULE | {"when": {"after": 1, "times": 1}})
    client = testbed.client(api.proxy.address)
    codes = []
    for number in range(1, 5):
        api.control.put_rule(f"other {number}", RULE | {"match": "api == Produce and topic == none"})
        codes.append(error_code(wire.ask(client, produce(number, "broken"))))
        api.control.enable_rule("r", False)
        api.control.enable_rule("r", True)
    assert codes == [0, NOT_LEADER, 0, 0]
    mine = [rule for rule in api.control.rules() if rule["name"] == "r"]
    assert (mine[0]["matched"], mine[0]["hits"]) == (2, 1)
    api.control.replace_rules([RULE | {"when": {"after": 1, "times": 1}}])
    assert (api.control.rules()[0]["matched"], api.control.rules()[0]["hits"]) == (2, 1)
