"""Frames held for a decision: edited, answered, dropped, let go; nothing else waits, and nothing waits for ever."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.proxy.control import ControlError
from barnabas.proxy.events import InterceptReleased, ProcessFailed, ProcessStarted
from harness import wire
from harness.testbed import Testbed, next_event


def frames_of(seen: list[bytes]) -> Any:
    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            seen.append(frame)
            sock.sendall(wire.response(int.from_bytes(frame[8:12], "big"), bytes(2)))

    return script


def silent(client: socket.socket, seconds: float = 0.3) -> bool:
    """Whether nothing comes."""
    client.settimeout(seconds)
    try:
        return client.recv(1, socket.MSG_PEEK) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(20)


def test_a_request_waits_alone_and_goes_on_edited(
    make_desk: Any, testbed: Testbed, beat: Any, tmp_path: Path
) -> None:
    seen: list[bytes] = []
    desk = make_desk(frames_of(seen), record=tmp_path / "rec")
    made = desk.call("POST", "/v1/intercepts", {"filter": "api == Heartbeat and group == held"})[1]
    assert (made["request"], made["response"]) == (True, False)
    client, other = testbed.client(desk.proxy.address), testbed.client(desk.proxy.address)
    client.sendall(beat(1, "held") + beat(2) + beat(3)[:7])
    (held,) = desk.control.held(wait=20)
    other.sendall(beat(1))
    assert wire.read_frame(other)  # nobody else waits
    assert silent(client) and len(seen) == 1
    listed = desk.call("GET", "/v1/held")[1]["held"]
    assert [each["id"] for each in listed] == [held["id"]] and "body" not in listed[0]
    one = desk.call("GET", f"/v1/held/{held['id']}")[1]
    assert (one["body"], one["frame"], one["hidden"]) == (held["body"], beat(1, "held")[4:].hex(), [])
    assert desk.control.held_frame(held["id"])["frame"] == one["frame"] and "frame" not in listed[0]
    assert held["body"] == {"group_id": "held", "generation_id": 3, "member_id": "m"}
    status, said = desk.call("POST", f"/v1/held/{held['id']}/resume", {"edits": {"generation": 1}})
    assert status == 422 and "generation_id" in said["message"]  # what is possible; and it waits on
    edit = {"edits": {"generation_id": 9}, "body": {"member_id": "longer than before"}}
    assert desk.call("POST", f"/v1/held/{held['id']}/resume", edit)[1]["done"] == "edited"
    client.sendall(beat(3)[7:])
    assert [wire.read_frame(client)[4:8] for _ in range(3)] == [n.to_bytes(4, "big") for n in (1, 2, 3)]
    first = next(frame for frame in seen if b"held" in frame)
    message = decoder.decode_request(first[4:])
    assert message.to_dict() == {"group_id": "held", "generation_id": 9, "member_id": "longer than before"}
    assert desk.call("POST", f"/v1/held/{held['id']}/resume")[0] == 404
    desk.proxy.stop()
    with open_capture(tmp_path / "rec") as capture:
        (exchange,) = [each for each in capture.exchanges() if each.marks.get("changed")]
        assert exchange.request == beat(1, "held")[4:]  # what the client sent
        assert exchange.marks["broker_request"] == [first[4:]]  # what the broker got


def test_a_response_waits_and_goes_on_edited(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk()
    desk.control.intercept("api == Heartbeat and group == held and err == 0", response=True)
    client = testbed.client(desk.proxy.address)
    client.sendall(beat(1) + beat(2, "held") + beat(3))
    assert wire.read_frame(client)[4:8] == (1).to_bytes(4, "big")
    (held,) = desk.control.held(wait=20)
    assert (held["side"], held["correlation_id"], held["body"]) == ("response", 2, {"error_code": 0})
    assert silent(client)
    desk.control.resume(held["id"], {"error_code": 27})
    assert wire.read_frame(client) == wire.response(2, (27).to_bytes(2, "big"))
    assert wire.read_frame(client) == wire.response(3, bytes(2))


@pytest.mark.parametrize("side", ["request", "response"])
def test_an_error_instead(make_desk: Any, testbed: Testbed, beat: Any, side: str) -> None:
    seen: list[bytes] = []
    desk = make_desk(frames_of(seen))
    desk.control.intercept("group == held", **{side: True})
    client = testbed.client(desk.proxy.address)
    client.sendall(beat(1) + beat(2, "held") + beat(3))
    (held,) = desk.control.held(wait=20)
    for wrong in ({}, {"error": "NO_SUCH"}, {"close": "now"}, {"close": "fin", "error": "NONE"}):
        assert desk.call("POST", f"/v1/held/{held['id']}/drop", wrong)[0] == 422
    done = desk.call("POST", f"/v1/held/{held['id']}/drop", {"error": "REBALANCE_IN_PROGRESS"})[1]
    assert done["done"] == "answered"
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    assert wire.read_frame(client) == wire.response(2, (27).to_bytes(2, "big"))
    assert wire.read_frame(client) == wire.response(3, bytes(2))
    assert len(seen) == (2 if side == "request" else 3)


@pytest.mark.parametrize("side", ["request", "response"])
def test_nothing_instead(
    make_desk: Any, testbed: Testbed, beat: Any, tmp_path: Path, side: str
) -> None:
    seen: list[bytes] = []
    desk = make_desk(frames_of(seen), record=tmp_path / "rec")
    desk.control.intercept("group == held", **{side: True})
    client = testbed.client(desk.proxy.address)
    client.sendall(beat(1) + beat(2, "held") + beat(3))
    (held,) = desk.control.held(wait=20)
    assert desk.call("POST", f"/v1/held/{held['id']}/drop", {"silent": False})[0] == 422
    assert desk.call("POST", f"/v1/held/{held['id']}/drop", {"silent": True})[1]["done"] == "dropped"
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    assert wire.read_frame(client) == wire.response(3, bytes(2))  # 2 is never answered
    assert len(seen) == (2 if side == "request" else 3)
    desk.proxy.stop()
    with open_capture(tmp_path / "rec") as capture:
        (dropped,) = [each for each in capture.exchanges() if each.request == beat(2, "held")[4:]]
        assert dropped.response is None
        notes = [*dropped.marks.get("notes", ()), *dropped.marks.get("broker_response_notes", ())]
        assert any("dropped by hand" in str(note) for note in notes)


def test_more_time_and_less(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk()
    desk.control.intercept("api == Heartbeat", timeout=300.0, times=1)
    client = testbed.client(desk.proxy.address)
    client.sendall(beat(1))
    (held,) = desk.control.held(wait=20)
    longer = desk.call("POST", f"/v1/held/{held['id']}/extend", {"timeout": 900})[1]
    assert 600 < longer["remaining"] <= 900
    desk.call("POST", f"/v1/held/{held['id']}/extend", {"timeout": 0.1})
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    assert desk.call("POST", f"/v1/held/{held['id']}/extend")[0] == 404


def test_the_connection_instead(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk()
    desk.control.intercept("api == Heartbeat")
    for how in ("fin", "rst"):
        client = testbed.client(desk.proxy.address)
        client.sendall(beat(1))
        (held,) = desk.control.held(wait=20)
        desk.control.drop(held["id"], close=how)
        if how == "fin":
            assert client.recv(1) == b""
        else:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    assert desk.control.intercepts()[0]["held"] == 0


def test_a_forgotten_frame_goes_on(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk()
    desk.control.intercept("api == Heartbeat", timeout=1.0, times=1)
    client = testbed.client(desk.proxy.address)
    begun = time.monotonic()
    client.sendall(beat(1))
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    assert time.monotonic() - begun > 0.9
    released = next_event(desk.proxy, InterceptReleased)
    assert released.how == "timeout"
    assert desk.control.held() == []
    client.sendall(beat(2))  # `times` is used up
    assert wire.read_frame(client) == wire.response(2, bytes(2))


def test_only_so_many_wait(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk()
    number = desk.control.intercept("api == Heartbeat", most=2)["id"]
    clients = [testbed.client(desk.proxy.address) for _ in range(4)]
    for client in clients:
        client.sendall(beat(1))
    passed = [client for client in clients if not silent(client, 1.0)]
    assert len(passed) == 2
    (intercept,) = desk.control.intercepts()
    assert (intercept["held"], intercept["passed"]) == (2, 2)
    desk.control.remove_intercept(number)
    for client in clients:
        assert wire.read_frame(client)
    assert desk.call("DELETE", f"/v1/intercepts/{number}")[0] == 404


def test_the_death_of_the_control_server_frees_everything(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk()
    desk.control.add_rule({"name": "r", "match": "api == Produce", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}})
    desk.control.intercept("group == held", request=True)
    desk.control.intercept("group == back", response=True)
    first, second, third = (testbed.client(desk.proxy.address) for _ in range(3))
    first.sendall(beat(1, "held"))
    second.sendall(beat(1, "back"))
    until = time.monotonic() + 60
    while len(desk.control.held()) < 2:
        assert time.monotonic() < until, "two held frames are not known"
        time.sleep(0.02)
    os.kill(desk.proxy._children["control"].pid, signal.SIGKILL)
    assert wire.read_frame(first) == wire.response(1, bytes(2))
    assert wire.read_frame(second) == wire.response(1, bytes(2))
    failed = next_event(desk.proxy, ProcessFailed)
    assert failed.process == "control" and "traffic goes on" in failed.text
    for number in range(2, 20):
        third.sendall(beat(number, "held"))
        assert wire.read_frame(third) == wire.response(number, bytes(2))
    next_event(desk.proxy, ProcessStarted, lambda event: event.process == "control")
    assert desk.control.held() == [] and [rule["name"] for rule in desk.control.rules()] == ["r"]


def test_a_hung_control_server_costs_nobody_anything(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk()
    desk.control.intercept("group == held", request=True, timeout=2.0)
    client, other = testbed.client(desk.proxy.address), testbed.client(desk.proxy.address)
    pid = desk.proxy._children["control"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        client.sendall(beat(1, "held"))
        for number in range(1, 200):
            other.sendall(beat(number))
            assert wire.read_frame(other)
        assert wire.read_frame(client) == wire.response(1, bytes(2))  # the time was up
    finally:
        os.kill(pid, signal.SIGCONT)
    assert desk.control.held() == []


def test_a_stopping_proxy_holds_nothing_back(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk(drain_seconds=5.0)
    desk.control.intercept("api == Heartbeat")
    client = testbed.client(desk.proxy.address)
    client.sendall(beat(1))
    desk.control.held(wait=20)
    stopping = threading.Thread(target=desk.proxy.stop)
    stopping.start()
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    stopping.join(60)
    assert not stopping.is_alive()


def test_a_client_that_goes_away_meanwhile(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    seen: list[bytes] = []
    desk = make_desk(frames_of(seen))
    desk.control.intercept("api == Heartbeat")
    client = testbed.client(desk.proxy.address)
    client.sendall(beat(1))
    (held,) = desk.control.held(wait=20)
    client.close()
    desk.control.resume(held["id"])
    end = time.monotonic() + 60
    while desk.control.connections() and time.monotonic() < end:
        time.sleep(0.02)
    assert desk.control.connections() == [] and len(seen) == 1


def test_what_cannot_be_held_is_refused(make_desk: Any) -> None:
    desk = make_desk()
    status, said = desk.call("POST", "/v1/intercepts", {"filter": "err != 0", "request": True})
    assert status == 422 and "not known before the response" in said["message"]
    for wrong in (
        {},
        {"filter": ""},
        {"filter": "api =="},
        {"filter": "api == Fetch", "request": False},
        {"filter": "api == Fetch", "request": 1},
        {"filter": "api == Fetch", "timeout": 0},
        {"filter": "api == Fetch", "timeout": 1e9},
        {"filter": "api == Fetch", "most": 0},
        {"filter": "api == Fetch", "often": 1},
    ):
        assert desk.call("POST", "/v1/intercepts", wrong)[0] == 422, wrong
    assert desk.call("POST", "/v1/intercepts", b"[]")[0] == 400
    assert desk.control.intercepts() == []


def test_rules_see_what_was_edited(make_desk: Any, testbed: Testbed) -> None:
    desk = make_desk()
    desk.control.add_rule(
        {"name": "r", "match": "api == Produce and topic == b", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}
    )
    desk.control.intercept("api == Produce")
    fields = {
        "acks": -1,
        "timeout_ms": 9,
        "topic_data": [{"name": "a", "partition_data": [{"index": 0, "records": b""}]}],
    }
    client = testbed.client(desk.proxy.address)
    client.sendall(wire.with_size(decoder.encode_request(0, 7, fields, correlation_id=5)))
    (held,) = desk.control.held(wait=20)
    desk.control.resume(held["id"], {"topic_data[0].name": "b"})
    answer = decoder.decode_response(wire.read_frame(client)[4:], api_key=0, api_version=7)
    assert answer["responses[0].partition_responses[0].error_code"] == 6
    assert desk.control.wait_for_hits("r") == 1


def test_hundreds_of_held_requests_keep_their_order(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    """Every request and every response of a pipeline is held and resumed, one after the other."""
    desk = make_desk()
    desk.control.intercept("group == both", request=True, response=True)
    client = testbed.client(desk.proxy.address)
    client.sendall(b"".join(beat(number, "both") for number in range(1, 61)))
    stop = threading.Event()

    def resume() -> None:
        while not stop.is_set():
            for held in desk.control.held(wait=0.2):
                desk.control.resume(held["id"])

    thread = threading.Thread(target=resume)
    thread.start()
    try:
        assert [int.from_bytes(wire.read_frame(client)[4:8], "big") for _ in range(60)] == list(range(1, 61))
    finally:
        stop.set()
        thread.join()


def test_what_has_a_lease_ends_unless_it_is_renewed(make_desk: Any, testbed: Testbed, beat: Any) -> None:
    desk = make_desk()
    made = desk.control.intercept("group == held", timeout=3000, lease=3)
    client = testbed.client(desk.proxy.address)
    client.sendall(beat(1, "held"))
    desk.control.held(wait=20)
    assert desk.call("POST", f"/v1/intercepts/{made['id']}/renew")[1] == {"id": made["id"], "lease": 3}
    client.settimeout(60)
    assert wire.read_frame(client)  # nobody renewed it, so it goes on
    assert desk.control.intercepts() == []
    with pytest.raises(ControlError) as gone:
        desk.control.renew_intercept(made["id"])
    assert gone.value.status == 404
    other = desk.control.intercept("group == held", lease=3000)
    desk.control.remove_intercept(other["id"])
    assert desk.call("POST", f"/v1/intercepts/{other['id']}/renew")[0] == 404
    assert desk.call("POST", "/v1/intercepts", {"filter": "api == Heartbeat", "lease": 0})[0] == 422
