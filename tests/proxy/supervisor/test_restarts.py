"""Every process of a proxy that dies is replaced; a proxy that cannot keep a relay ends with an error."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.events import (
    BrokerFound,
    ConnectionClosed,
    ConnectionOpened,
    Counts,
    ProcessFailed,
    ProcessStarted,
    ProxyFailed,
)
from barnabas.proxy.metrics.settings import MeterConfig
from barnabas.proxy.processes import children
from harness import scripted, wire
from harness.run.lines import line
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until

answering = scripted.answering(bytes(6))


def ask(testbed: Testbed, proxy: Any, number: int = 1) -> bytes:
    """An answer on a new connection."""
    client = testbed.client(proxy.address)
    answer: bytes = wire.ask_or_end(client, wire.request(18, 0, number))
    client.close()
    return answer


def kill(proxy: Any, name: str) -> ProcessFailed:
    os.kill(proxy._children[name].pid, signal.SIGKILL)
    return next_event(proxy, ProcessFailed, lambda event: event.process == name)


def back(proxy: Any, name: str) -> ProcessStarted:
    return next_event(proxy, ProcessStarted, lambda event: event.process == name)


def test_clients_are_served_again_after_the_only_relay_has_died(testbed: Testbed, tmp_path: Path) -> None:
    proxy = testbed.proxy(testbed.broker(answering).address, record=tmp_path)
    held = testbed.client(proxy.address)
    assert wire.ask(held, wire.request(18, 0, 1))
    first = next_event(proxy, ConnectionOpened).connection
    failed = kill(proxy, "relay")
    assert (failed.code, failed.again) == (-signal.SIGKILL, 0.0)
    assert ask(testbed, proxy, 2) == wire.response(2, bytes(6))
    back(proxy, "relay")
    assert next_event(proxy, ConnectionOpened).connection > first
    next_event(proxy, ConnectionClosed)
    proxy.stop()
    assert not proxy.failed
    with open_capture(tmp_path) as capture:
        assert [exchange.correlation_id for exchange in capture.exchanges()] == [1, 2]


def test_brokers_keep_their_ports_when_the_relay_is_replaced(testbed: Testbed) -> None:
    behind = testbed.broker(answering)
    proxy = testbed.proxy(testbed.broker(scripted.naming(lambda: [(7, *behind.address)])).address)

    def metadata() -> tuple[str, int]:
        client = testbed.client(proxy.address)
        client.sendall(wire.with_size(decoder.encode_request(3, 8, {"topics": None}, correlation_id=1)))
        answer = decoder.decode_response(wire.read_frame(client)[4:], api_key=3, api_version=8)
        return answer["brokers[0].host"], answer["brokers[0].port"]

    own = metadata()
    assert next_event(proxy, BrokerFound).address == own
    kill(proxy, "relay")
    back(proxy, "relay")
    client = testbed.client(own)
    assert wire.ask(client, wire.request(18, 0, 5)) == wire.response(5, bytes(6))
    assert metadata() == own


@pytest.mark.parametrize("lossless", [False, True])
def test_what_comes_after_the_observers_death_is_recorded(testbed: Testbed, tmp_path: Path, lossless: bool) -> None:
    proxy = testbed.proxy(testbed.broker(answering).address, record=tmp_path, lossless=lossless)
    standing = testbed.client(proxy.address)
    assert wire.ask(standing, wire.request(18, 0, 1))
    kill(proxy, "observer")
    back(proxy, "observer")
    assert ask(testbed, proxy, 2)
    for number in range(3, 1000):  # a connection that stood before is known again once the relay has named it
        assert wire.ask(standing, wire.request(18, 0, number))
        if next_event(proxy, Counts).exchanges >= 2:
            break
    proxy.stop()
    with open_capture(tmp_path) as capture:
        seen = [(exchange.connection, exchange.correlation_id) for exchange in capture.exchanges()]
    assert (2, 2) in seen and {connection for connection, _ in seen} == {1, 2}


def test_a_lossless_relay_waits_for_the_observer_that_took_the_place_of_another(testbed: Testbed, tmp_path: Path) -> None:
    """Many times the ring passes; nothing of it is lost."""
    size, count = 60_000, 300
    proxy = testbed.proxy(testbed.broker(answering).address, record=tmp_path, lossless=True, ring_bytes=1 << 20)
    kill(proxy, "observer")
    back(proxy, "observer")
    client = testbed.client(proxy.address)
    for number in range(count):
        assert wire.ask(client, wire.request(18, 0, number, bytes(size)))
    client.close()
    next_event(proxy, ConnectionClosed)
    proxy.stop()
    with open_capture(tmp_path) as capture:
        assert not capture.lost
        assert [exchange.correlation_id for exchange in capture.exchanges()] == list(range(count))


def test_inspector_and_meter_come_back(testbed: Testbed, tmp_path: Path) -> None:
    meter = MeterConfig(metrics=("127.0.0.1", 0))
    proxy = testbed.proxy(testbed.broker(answering).address, findings=True, meter=meter)
    assert proxy.meter is not None and proxy.meter.metrics is not None
    for name in ("inspector", "meter"):
        kill(proxy, name)
        back(proxy, name)
    assert ask(testbed, proxy)
    with socket.create_connection(proxy.meter.metrics, timeout=PATIENCE) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")


def test_the_control_api_comes_back_and_knows_all_processes(testbed: Testbed, tmp_path: Path) -> None:
    proxy = testbed.proxy(testbed.broker(answering).address, control=ControlConfig(directory=tmp_path))
    assert proxy.control is not None
    control = Control(proxy.control.access.url, proxy.control.access.token)
    kill(proxy, "control")
    back(proxy, "control")
    until(lambda: healthy(proxy, "/healthz")[0] == 200)
    control.add_rule({"name": "r", "match": "api == Produce", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}})
    assert ask(testbed, proxy, 4)
    page = until(lambda: control.exchange_page("", since=0, limit=10, wait=1)["exchanges"])
    assert [each["correlation_id"] for each in page] == [4]


def test_rules_of_the_control_api_outlive_the_relay(testbed: Testbed, tmp_path: Path) -> None:
    proxy = testbed.proxy(testbed.broker(answering).address, control=ControlConfig(directory=tmp_path))
    assert proxy.control is not None
    control = Control(proxy.control.access.url, proxy.control.access.token)
    control.add_rule({"name": "added", "match": "api == Produce", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}})
    kill(proxy, "relay")
    back(proxy, "relay")
    until(lambda: healthy(proxy, "/healthz")[0] == 200)
    assert until(lambda: [rule["name"] for rule in control.rules()]) == ["added"]


def healthy(proxy: Any, path: str) -> tuple[int, bytes]:
    """What a probe without a token gets; (0, b"") while nobody answers."""
    host, _, port = proxy.control.access.url.removeprefix("http://").partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
            sock.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
            answer = wire.exactly(sock, 1 << 16)
    except OSError:
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


def test_health_shows_whether_clients_are_served_and_all_runs(testbed: Testbed, tmp_path: Path) -> None:
    proxy = testbed.proxy(testbed.broker(answering).address, control=ControlConfig(directory=tmp_path))
    assert until(lambda: healthy(proxy, "/healthz"))[0] == 200
    assert healthy(proxy, "/healthz/live")[0] == 200
    for _ in range(3):  # from the second death on, another one comes after a while
        failed = kill(proxy, "inspector")
        if failed.again:
            _, body = until(lambda: (seen := healthy(proxy, "/healthz"))[0] == 503 and seen)
            assert b'"inspector"' in body
            assert healthy(proxy, "/healthz/live")[0] == 200
        back(proxy, "inspector")
    until(lambda: healthy(proxy, "/healthz")[0] == 200)


def test_a_proxy_that_cannot_keep_its_relay_ends_with_an_error(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "FIRST_SECONDS", 0.01)
    proxy = testbed.proxy(testbed.broker(answering).address)
    for _ in range(children.MOST):
        kill(proxy, "relay")
        back(proxy, "relay")
    assert kill(proxy, "relay").again is None
    assert next_event(proxy, ProxyFailed).reason == proxy.failed != ""
    assert list(proxy.events()) is not None  # it ends: the proxy has stopped
    with pytest.raises(OSError):
        socket.create_connection(proxy.address, timeout=PATIENCE).close()


@pytest.mark.slow
def test_the_command_ends_with_status_1_then(testbed: Testbed) -> None:
    broker = testbed.broker(answering).address
    command = [sys.executable, "-P", "-m", "barnabas", "proxy", "--broker", f"{broker[0]}:{broker[1]}", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert '"Listening"' in line(process, "that it listens")
        for _ in range(children.MOST + 1):
            relay = until(lambda: relay_of(process.pid))
            os.kill(relay, signal.SIGKILL)
            until(lambda gone=relay: relay_of(process.pid) != gone)
        assert process.wait(PATIENCE) == 1
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def relay_of(parent: int) -> int:
    """The pid of a command's relay, 0 if there is none."""
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                if b"barnabas.proxy.relay.loop" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                    return int(child)
        except OSError:
            pass  # it has just ended
    return 0


def test_the_delay_doubles_while_ends_follow_each_other() -> None:
    now = [0.0]
    ends = children.Restarts(lambda: now[0])
    assert [ends.ended("a") for _ in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert not ends.too_often("a")
    assert ends.ended("b") == 0.0
    assert ends.ended("a") == 8.0 and ends.too_often("a")
    assert [ends.ended("a") for _ in range(3)] == [16.0, 30.0, 30.0]
    now[0] = children.WITHIN_SECONDS + 1
    assert not ends.too_often("a")
    assert ends.ended("a") == 0.0
