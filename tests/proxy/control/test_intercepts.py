"""Frames held for a decision: edited, answered, dropped, released; nothing else waits, and nothing waits forever."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.decoder.connection.hit_notes import BY_HAND, causes_in
from barnabas.proxy.control import ControlError
from barnabas.proxy.control.client import Json
from barnabas.proxy.control.leases import Leases
from barnabas.proxy.events import InterceptReleased, ProcessFailed, ProcessStarted
from harness import wire
from harness.peers.control_api import ControlApi, StartControlApi, heartbeat
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until


@pytest.fixture
def api(shared_api: ControlApi) -> ControlApi:
    return shared_api


def hold(api: ControlApi, testbed: Testbed, data: bytes) -> tuple[socket.socket, Json]:
    """A client that has sent these bytes, and the one frame that waits then."""
    client = testbed.client(api.proxy.address)
    client.sendall(data)
    (held,) = api.control.held(wait=PATIENCE)
    return client, held


def readable(*clients: socket.socket) -> list[socket.socket]:
    """Those that have something to read now."""
    return select.select(clients, [], [], 0)[0]


def test_only_the_intercepted_request_waits_and_it_is_sent_edited(start_api: StartControlApi, testbed: Testbed, tmp_path: Path) -> None:
    api = start_api(record=tmp_path / "rec")
    made = api.call("POST", "/v1/intercepts", {"filter": "api == Heartbeat and group == held"})[1]
    assert (made["request"], made["response"]) == (True, False)
    client, other = testbed.client(api.proxy.address), testbed.client(api.proxy.address)
    client.sendall(heartbeat(1, "held") + heartbeat(2) + heartbeat(3)[:7])
    (held,) = api.control.held(wait=PATIENCE)
    assert wire.ask(other, heartbeat(1))  # nobody else waits
    assert not readable(client) and api.received == [heartbeat(1)]
    listed = api.call("GET", "/v1/held")[1]["held"]
    assert [each["id"] for each in listed] == [held["id"]] and "body" not in listed[0]
    one = api.call("GET", f"/v1/held/{held['id']}")[1]
    assert (one["body"], one["frame"], one["hidden"]) == (held["body"], heartbeat(1, "held")[4:].hex(), [])
    assert api.control.held_frame(held["id"])["frame"] == one["frame"] and "frame" not in listed[0]
    assert held["body"] == {"group_id": "held", "generation_id": 3, "member_id": "m"}
    status, answer = api.call("POST", f"/v1/held/{held['id']}/resume", {"edits": {"generation": 1}})
    assert status == 422 and "generation_id" in answer["message"]  # what is possible; and it waits on
    edit = {"edits": {"generation_id": 9}, "body": {"member_id": "longer than before"}}
    assert api.call("POST", f"/v1/held/{held['id']}/resume", edit)[1]["done"] == "edited"
    client.sendall(heartbeat(3)[7:])
    assert [wire.read_frame(client)[4:8] for _ in range(3)] == [n.to_bytes(4, "big") for n in (1, 2, 3)]
    first = next(frame for frame in api.received if b"held" in frame)
    message = decoder.decode_request(first[4:])
    assert message.to_dict() == {"group_id": "held", "generation_id": 9, "member_id": "longer than before"}
    assert api.call("POST", f"/v1/held/{held['id']}/resume")[0] == 404
    api.proxy.stop()
    with open_capture(tmp_path / "rec") as capture:
        (exchange,) = [each for each in capture.exchanges() if each.marks.changed]
        assert exchange.request == heartbeat(1, "held")[4:]  # what the client sent
        assert exchange.marks.broker_request.frame == first[4:]  # what the broker got


def test_an_intercept_reads_times_in_its_zone(api: ControlApi, testbed: Testbed) -> None:
    """In an hour in Honolulu: in UTC that was long ago."""
    text = f"group == held and time < {datetime.now(ZoneInfo('Pacific/Honolulu')) + timedelta(hours=1):%FT%T}"
    other, made = api.control.intercept(text), api.control.intercept(text, zone="Pacific/Honolulu")
    assert [each["zone"] for each in (other, made)] == ["UTC", "Pacific/Honolulu"]
    assert [each["zone"] for each in api.control.intercepts()] == ["UTC", "Pacific/Honolulu"]
    _, held = hold(api, testbed, heartbeat(1, "held"))
    assert held["intercept"] == made["id"]


def test_an_intercepted_response_is_delivered_edited(api: ControlApi, testbed: Testbed) -> None:
    api.control.intercept("api == Heartbeat and group == held and err == 0", response=True)
    client = testbed.client(api.proxy.address)
    client.sendall(heartbeat(1) + heartbeat(2, "held") + heartbeat(3))
    assert wire.read_frame(client)[4:8] == (1).to_bytes(4, "big")
    (held,) = api.control.held(wait=PATIENCE)
    assert (held["side"], held["correlation_id"], held["body"]) == ("response", 2, {"error_code": 0})
    assert not readable(client)
    api.control.resume(held["id"], {"error_code": 27})
    assert wire.read_frame(client) == wire.response(2, (27).to_bytes(2, "big"))
    assert wire.read_frame(client) == wire.response(3, bytes(2))


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_held_frame_is_answered_with_an_error(api: ControlApi, testbed: Testbed, side: str) -> None:
    api.control.intercept("group == held", **{side: True})
    client, held = hold(api, testbed, heartbeat(1) + heartbeat(2, "held") + heartbeat(3))
    for wrong in ({}, {"error": "NO_SUCH"}, {"close": "now"}, {"close": "fin", "error": "NONE"}):
        assert api.call("POST", f"/v1/held/{held['id']}/drop", wrong)[0] == 422
    done = api.call("POST", f"/v1/held/{held['id']}/drop", {"error": "REBALANCE_IN_PROGRESS"})[1]
    assert done["done"] == "answered"
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    assert wire.read_frame(client) == wire.response(2, (27).to_bytes(2, "big"))
    assert wire.read_frame(client) == wire.response(3, bytes(2))
    assert len(api.received) == (2 if side == "request" else 3)


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_held_frame_is_dropped(start_api: StartControlApi, testbed: Testbed, tmp_path: Path, side: str) -> None:
    api = start_api(record=tmp_path / "rec")
    api.control.intercept("group == held", **{side: True})
    client, held = hold(api, testbed, heartbeat(1) + heartbeat(2, "held") + heartbeat(3))
    assert api.call("POST", f"/v1/held/{held['id']}/drop", {"silent": False})[0] == 422
    assert api.call("POST", f"/v1/held/{held['id']}/drop", {"silent": True})[1]["done"] == "dropped"
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    assert wire.read_frame(client) == wire.response(3, bytes(2))  # 2 is never answered
    assert len(api.received) == (2 if side == "request" else 3)
    api.proxy.stop()
    with open_capture(tmp_path / "rec") as capture:
        (dropped,) = [each for each in capture.exchanges() if each.request == heartbeat(2, "held")[4:]]
        assert dropped.response is None
        notes = [note for notes in dropped.marks.every_notes() for note in notes]
        assert any("dropped by hand" in str(note) for note in notes)
        assert causes_in(notes) == [BY_HAND]


def test_the_time_of_a_held_frame_is_extended_and_shortened(api: ControlApi, testbed: Testbed) -> None:
    api.control.intercept("api == Heartbeat", timeout=300.0, times=1)
    client, held = hold(api, testbed, heartbeat(1))
    longer = api.call("POST", f"/v1/held/{held['id']}/extend", {"timeout": 900})[1]
    assert 600 < longer["remaining"] <= 900
    api.call("POST", f"/v1/held/{held['id']}/extend", {"timeout": 0.1})
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    assert api.call("POST", f"/v1/held/{held['id']}/extend")[0] == 404


def test_the_connection_of_a_held_frame_is_closed(api: ControlApi, testbed: Testbed) -> None:
    api.control.intercept("api == Heartbeat")
    for how in ("fin", "rst"):
        client, held = hold(api, testbed, heartbeat(1))
        api.control.drop(held["id"], close=how)
        if how == "fin":
            assert client.recv(1) == b""
        else:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    assert api.control.intercepts()[0]["held"] == 0


def test_a_held_frame_is_released_after_its_timeout(api: ControlApi, testbed: Testbed) -> None:
    api.control.intercept("api == Heartbeat", timeout=0.2, times=1)
    client = testbed.client(api.proxy.address)
    begun = time.monotonic()
    assert wire.ask(client, heartbeat(1)) == wire.response(1, bytes(2))
    assert time.monotonic() - begun >= 0.2
    released = next_event(api.proxy, InterceptReleased)
    assert released.how == "timeout"
    assert api.control.held() == []
    client.sendall(heartbeat(2))  # `times` is used up
    assert wire.read_frame(client) == wire.response(2, bytes(2))


def test_an_intercept_holds_no_more_frames_than_allowed(api: ControlApi, testbed: Testbed) -> None:
    number = api.control.intercept("api == Heartbeat", most=2)["id"]
    clients = [testbed.client(api.proxy.address) for _ in range(4)]
    for client in clients:
        client.sendall(heartbeat(1))
    until(lambda: len(readable(*clients)) == 2)
    (intercept,) = api.control.intercepts()
    assert (intercept["held"], intercept["passed"]) == (2, 2)
    assert len(readable(*clients)) == 2
    api.control.remove_intercept(number)
    for client in clients:
        assert wire.read_frame(client)
    assert api.call("DELETE", f"/v1/intercepts/{number}")[0] == 404


def test_held_frames_are_released_when_the_control_server_dies(start_api: StartControlApi, testbed: Testbed) -> None:
    api = start_api()
    api.control.add_rule({"name": "r", "match": "api == Produce", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}})
    api.control.intercept("group == held", request=True)
    api.control.intercept("group == back", response=True)
    first, second, third = (testbed.client(api.proxy.address) for _ in range(3))
    first.sendall(heartbeat(1, "held"))
    second.sendall(heartbeat(1, "back"))
    until(lambda: len(api.control.held()) == 2)
    os.kill(api.proxy._children["control"].pid, signal.SIGKILL)
    assert wire.read_frame(first) == wire.response(1, bytes(2))
    assert wire.read_frame(second) == wire.response(1, bytes(2))
    failed = next_event(api.proxy, ProcessFailed)
    assert failed.process == "control" and "traffic continues" in failed.text
    for number in range(2, 20):
        assert wire.ask(third, heartbeat(number, "held")) == wire.response(number, bytes(2))
    next_event(api.proxy, ProcessStarted, lambda event: event.process == "control")
    assert api.control.held() == [] and [rule["name"] for rule in api.control.rules()] == ["r"]


def test_traffic_goes_on_while_the_control_server_hangs(start_api: StartControlApi, testbed: Testbed) -> None:
    api = start_api()
    api.control.intercept("group == held", request=True, timeout=0.5)
    client, other = testbed.client(api.proxy.address), testbed.client(api.proxy.address)
    pid = api.proxy._children["control"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        client.sendall(heartbeat(1, "held"))
        for number in range(1, 50):
            wire.ask(other, heartbeat(number))
        assert wire.read_frame(client) == wire.response(1, bytes(2))  # the time was up
    finally:
        os.kill(pid, signal.SIGCONT)
    assert api.control.held() == []


def test_a_stopping_proxy_releases_held_frames(start_api: StartControlApi, testbed: Testbed) -> None:
    api = start_api(drain_seconds=5.0)
    api.control.intercept("api == Heartbeat")
    client = testbed.client(api.proxy.address)
    client.sendall(heartbeat(1))
    api.control.held(wait=PATIENCE)
    stopping = threading.Thread(target=api.proxy.stop)
    stopping.start()
    assert wire.read_frame(client) == wire.response(1, bytes(2))
    stopping.join(PATIENCE)
    assert not stopping.is_alive()


def test_a_held_request_reaches_the_broker_after_its_client_left(api: ControlApi, testbed: Testbed) -> None:
    api.control.intercept("api == Heartbeat")
    client, held = hold(api, testbed, heartbeat(1))
    port = client.getsockname()[1]
    client.close()
    api.control.resume(held["id"])
    mine = f"127.0.0.1:{port}"
    until(lambda: mine not in [each["client"] for each in api.control.connections()], api.control.connections)
    assert api.received == [heartbeat(1)]


def test_impossible_intercepts_are_refused(api: ControlApi) -> None:
    status, answer = api.call("POST", "/v1/intercepts", {"filter": "err != 0", "request": True})
    assert status == 422 and "not known before the response" in answer["message"]
    for wrong in (
        {}, {"filter": ""},
        {"filter": "api =="},
        {"filter": "api == Fetch", "request": False},
        {"filter": "api == Fetch", "request": 1},
        {"filter": "api == Fetch", "timeout": 0},
        {"filter": "api == Fetch", "timeout": 1e9},
        {"filter": "api == Fetch", "most": 0},
        {"filter": "api == Fetch", "often": 1},
    ):
        assert api.call("POST", "/v1/intercepts", wrong)[0] == 422, wrong
    assert api.call("POST", "/v1/intercepts", b"[]")[0] == 400
    assert api.control.intercepts() == []


def test_rules_apply_to_the_edited_request(api: ControlApi, testbed: Testbed) -> None:
    api.control.add_rule(
        {"name": "r", "match": "api == Produce and topic == b", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}
    )
    api.control.intercept("api == Produce")
    fields = {
        "acks": -1,
        "timeout_ms": 9,
        "topic_data": [{"name": "a", "partition_data": [{"index": 0, "records": b""}]}],
    }
    client, held = hold(api, testbed, wire.with_size(decoder.encode_request(0, 7, fields, correlation_id=5)))
    api.control.resume(held["id"], {"topic_data[0].name": "b"})
    answer = decoder.decode_response(wire.read_frame(client)[4:], api_key=0, api_version=7)
    assert answer["responses[0].partition_responses[0].error_code"] == 6
    assert api.control.wait_for_hits("r") == 1


def test_hundreds_of_held_requests_keep_their_order(api: ControlApi, testbed: Testbed) -> None:
    """Every request and every response of a pipeline is held and resumed, one after the other."""
    api.control.intercept("group == both", request=True, response=True)
    client = testbed.client(api.proxy.address)
    client.sendall(b"".join(heartbeat(number, "both") for number in range(1, 61)))
    stop = threading.Event()

    def resume() -> None:
        while not stop.is_set():
            for held in api.control.held(wait=0.2):
                api.control.resume(held["id"])

    thread = threading.Thread(target=resume)
    thread.start()
    try:
        assert [int.from_bytes(wire.read_frame(client)[4:8], "big") for _ in range(60)] == list(range(1, 61))
    finally:
        stop.set()
        thread.join()


def test_an_intercept_ends_with_its_lease(api: ControlApi, testbed: Testbed) -> None:
    made = api.control.intercept("group == held", timeout=3000, lease=1)
    client = testbed.client(api.proxy.address)
    assert wire.ask(client, heartbeat(1, "held")) == wire.response(1, bytes(2))  # nobody renewed it
    assert api.control.intercepts() == []
    with pytest.raises(ControlError) as gone:
        api.control.renew_intercept(made["id"])
    assert gone.value.status == 404


def test_a_lease_can_be_renewed(api: ControlApi) -> None:
    made = api.control.intercept("group == held", lease=3000)
    renew = f"/v1/intercepts/{made['id']}/renew"
    assert api.call("POST", renew)[1] == {"id": made["id"], "lease": 3000}
    api.control.remove_intercept(made["id"])
    assert api.call("POST", renew)[0] == 404
    assert api.call("POST", "/v1/intercepts", {"filter": "api == Heartbeat", "lease": 0})[0] == 422


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock the test sets."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def run_at(self, seconds: float) -> None:
        """Run what is due then, and the tasks that it starts."""
        self.now = seconds
        for _ in range(3):
            self.run_until_complete(asyncio.sleep(0))


def test_a_lease_ends_its_seconds_after_the_last_renewal() -> None:
    loop, ended = Loop(), []

    async def end(number: int) -> None:
        ended.append(number)

    async def begin() -> None:
        for number in (1, 2, 3):
            leases.begin(number, 10.0)

    async def renew() -> None:
        assert leases.renew(2) == 10.0
        leases.forget(3)
        assert leases.renew(3) is None

    leases = Leases(end)
    loop.run_until_complete(begin())
    loop.run_at(9.9)
    assert ended == []
    loop.run_until_complete(renew())
    loop.run_at(10.1)
    assert ended == [1] and leases.renew(1) is None
    loop.run_at(19.8)
    assert ended == [1]
    loop.run_at(20.0)
    assert ended == [1, 2]
    loop.close()
