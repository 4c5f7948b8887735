"""Every action of a rule through the relay: what the two peers and the recording see of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.plugins.actions.fault_plan import FaultPlan
from barnabas.plugins.hooks import parse
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy import Proxy
from barnabas.proxy.events import ConnectionClosed, RuleHit
from barnabas.proxy.relay.interception.plugin_host import PluginsConfig
from barnabas.proxy.relay.interception.rules import fault_executor
from barnabas.proxy.ring import polling
from harness import scripted, wire
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE

HEARTBEAT, METADATA, PRODUCE, FIND_COORDINATOR = 12, 3, 0, 10
MS = 1_000_000


def heartbeat(number: int, group: str = "g") -> bytes:
    fields = {"group_id": group, "generation_id": 1, "member_id": "m"}
    return wire.with_size(decoder.encode_request(HEARTBEAT, 1, fields, correlation_id=number, client_id="c"))


def beaten(number: int, error: int = 0) -> bytes:
    fields = {"throttle_time_ms": 0, "error_code": error}
    return wire.with_size(decoder.encode_response(HEARTBEAT, 1, fields, correlation_id=number))


class Coordinator:
    """Answers heartbeats; `received`: correlation ids and when they came; `raw`: everything that came."""

    def __init__(self, testbed: Testbed, error: int = 0) -> None:
        self.received: list[tuple[int, float]] = []
        self.raw = bytearray()
        self.ended: list[str] = []
        self.changed = threading.Condition()
        self._error = error
        self.address = testbed.broker(self._run).address

    def _run(self, sock: socket.socket) -> None:
        try:
            while frame := wire.read_frame(sock):
                self.raw += frame
                if len(frame) < 12 or len(frame) - 4 < int.from_bytes(frame[:4], "big"):
                    break
                number = int.from_bytes(frame[8:12], "big")
                with self.changed:
                    self.received.append((number, time.monotonic()))
                    self.changed.notify_all()
                sock.sendall(beaten(number, self._error))
            how = "fin"
        except ConnectionResetError:
            how = "rst"
        with self.changed:
            self.ended.append(how)
            self.changed.notify_all()

    def numbers(self) -> list[int]:
        return [number for number, _ in self.received]

    def wait_for_end(self) -> str:
        with self.changed:
            assert self.changed.wait_for(lambda: self.ended, PATIENCE)
            return self.ended[0]


Faulty = Callable[..., tuple[Coordinator, Proxy, socket.socket]]


@pytest.fixture
def faulty(testbed: Testbed) -> Faulty:
    """A proxy with one rule in front of a coordinator: ``faulty(do, match=..., when=...)``."""

    def start(
        do: Any, match: str = "api == Heartbeat", when: Any = None, error: int = 0, **options: Any
    ) -> tuple[Coordinator, Proxy, socket.socket]:
        broker = Coordinator(testbed, error)
        rule = Rule.of(match, do, name="r", when=when)
        proxy = testbed.proxy(broker.address, rules=[rule], **options)
        return broker, proxy, testbed.client(proxy.address)

    return start


@pytest.mark.parametrize("side", ["request", "response"])
def test_delay_keeps_the_order_and_stops_nothing_else(faulty: Faulty, testbed: Testbed, side: str) -> None:
    broker, proxy, client = faulty({"delay": "300ms", "of": side}, when={"after": 1, "times": 1})
    other = testbed.client(proxy.address)
    begun = time.monotonic()
    client.sendall(b"".join(heartbeat(number) for number in range(6)))
    got = [wire.read_frame(client)]
    assert wire.ask(other, heartbeat(77)) == beaten(77)  # whatever waits, others go on
    got += [wire.read_frame(client) for _ in range(5)]
    waited = time.monotonic() - begun
    assert got == [beaten(number) for number in range(6)]
    assert waited >= 0.3
    assert side == "response" or dict(broker.received)[1] - begun >= 0.3


def test_an_answer_made_here_waits_in_its_place(faulty: Faulty) -> None:
    broker, _, client = faulty([{"error": "REBALANCE_IN_PROGRESS"}, {"delay": "200ms"}], when={"after": 1, "times": 2})
    client.sendall(b"".join(heartbeat(number) for number in range(6)))
    got = [wire.read_frame(client) for _ in range(6)]
    assert got == [beaten(number, 27 if number in (1, 2) else 0) for number in range(6)]
    assert broker.numbers() == [0, 3, 4, 5]


def test_drop_a_response(faulty: Faulty, tmp_path: Path) -> None:
    broker, proxy, client = faulty({"drop": "response"}, when={"after": 1, "times": 1}, record=tmp_path / "r")
    client.sendall(b"".join(heartbeat(number) for number in range(4)))
    assert [wire.read_frame(client) for _ in range(3)] == [beaten(number) for number in (0, 2, 3)]
    assert broker.numbers() == [0, 1, 2, 3]
    client.close()
    proxy.stop()
    with open_capture(tmp_path / "r") as capture:
        states = {exchange.correlation_id: str(exchange.state) for exchange in capture.exchanges()}
    assert states == {0: "paired", 1: "no_response", 2: "paired", 3: "paired"}


def test_drop_a_request(faulty: Faulty) -> None:
    broker, _, client = faulty({"drop": "request"}, when={"after": 1, "times": 1})
    client.sendall(b"".join(heartbeat(number) for number in range(4)))
    assert [wire.read_frame(client) for _ in range(3)] == [beaten(number) for number in (0, 2, 3)]
    assert broker.numbers() == [0, 2, 3]


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize(
    ("at", "received", "bytes_"),
    [("before-request", [0], 0), ("mid-request", [0], 0), ("before-response", [0, 1], 0), ("mid-response", [0, 1], 7),
     ("after-response", [0, 1], 14)],
)  # fmt: skip
def test_disconnect(faulty: Faulty, at: str, how: str, received: list[int], bytes_: int) -> None:
    broker, proxy, client = faulty({"disconnect": at, "how": how}, when={"after": 1})
    assert wire.ask(client, heartbeat(0)) == beaten(0)
    client.sendall(heartbeat(1))
    got = b""
    try:
        while part := client.recv(1000):
            got += part
        end = "fin"
    except ConnectionResetError:
        end = "rst"
    if how == "fin":  # a reset may overtake what was sent before
        assert got == beaten(1)[:bytes_]
    assert end == how
    assert broker.wait_for_end() in ("fin", "rst")
    assert broker.numbers() == received
    if at == "mid-request" and how == "fin":
        assert bytes(broker.raw[len(heartbeat(0)) :]) == heartbeat(1)[: len(heartbeat(1)) // 2]
    assert next_event(proxy, ConnectionClosed).how == how


def test_a_rule_about_the_response(faulty: Faulty) -> None:
    """The error is known when the broker has answered."""
    _, proxy, client = faulty({"error": "NONE", "broker": "executed"}, match="api == Heartbeat and err == 27", error=27)
    assert wire.ask(client, heartbeat(0)) == beaten(0, 0)
    assert next_event(proxy, RuleHit).hits == 1


def test_throttle_is_in_the_response_and_mutes(faulty: Faulty) -> None:
    broker, _, client = faulty({"throttle": "300ms"}, when={"times": 1})
    begun = time.monotonic()
    answer = decoder.decode_response(wire.ask(client, heartbeat(0))[4:], api_key=HEARTBEAT, api_version=1)
    assert answer["throttle_time_ms"] == 300
    assert wire.ask(client, heartbeat(1)) == beaten(1)
    assert dict(broker.received)[1] - begun >= 0.3


def test_edit_request_and_response(faulty: Faulty, tmp_path: Path) -> None:
    broker, proxy, client = faulty(
        [{"edit": {"group_id": "other"}, "in": "request"}, {"edit": {"error_code": 22}}], record=tmp_path / "r"
    )
    assert wire.ask(client, heartbeat(5)) == beaten(5, 22)
    assert bytes(broker.raw) == heartbeat(5, "other")
    client.close()
    proxy.stop()
    with open_capture(tmp_path / "r") as capture:
        (exchange,) = capture.exchanges()
    assert exchange.request_message is not None and exchange.request_message["group_id"] == "g"  # as the client sent it
    assert exchange.error == 22
    assert exchange.marks.changed


def test_respond_without_a_broker(faulty: Faulty) -> None:
    broker, _, client = faulty({"respond": {"error_code": 25, "throttle_time_ms": 7}})
    answer = decoder.decode_response(wire.ask(client, heartbeat(5))[4:], api_key=HEARTBEAT, api_version=1)
    assert answer.to_dict() == {"throttle_time_ms": 7, "error_code": 25}
    assert broker.numbers() == []


def test_blackhole_for_a_time_loses_nothing(faulty: Faulty) -> None:
    _, _, client = faulty({"blackhole": "300ms"}, when={"after": 1, "times": 1})
    begun = time.monotonic()
    client.sendall(b"".join(heartbeat(number) for number in range(4)))
    assert [wire.read_frame(client) for _ in range(4)] == [beaten(number) for number in range(4)]
    assert time.monotonic() - begun >= 0.3


def test_blackhole_for_ever(faulty: Faulty, testbed: Testbed) -> None:
    broker, proxy, client = faulty({"blackhole": "forever"}, when={"after": 1, "times": 1})
    assert wire.ask(client, heartbeat(0)) == beaten(0)
    client.sendall(b"".join(heartbeat(number) for number in range(1, 4)))
    other = testbed.client(proxy.address)
    assert wire.ask(other, heartbeat(77)) == beaten(77)
    assert broker.numbers() == [0, 77] and not wire.readable(client)
    client.close()  # the client gives up: nothing stays behind
    assert next_event(proxy, ConnectionClosed)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [("length", "size"), ("truncate", "short"), ("correlation", "correlation"), ("bits", "bits")],
)
def test_corrupt_frames(faulty: Faulty, kind: str, wrong: str) -> None:
    _, _, client = faulty({"corrupt": kind})
    client.sendall(heartbeat(9))
    whole = beaten(9)
    got = wire.exactly(client, 4 + 5 if kind == "truncate" else len(whole))
    size, number = int.from_bytes(got[:4], "big"), int.from_bytes(got[4:8], "big")
    assert (size != len(whole) - 4) is (wrong == "size")
    assert (number != 9) is (wrong == "correlation")
    assert got != whole


def test_bandwidth(faulty: Faulty) -> None:
    """As many bytes as the rate gives: what is held to it takes so long."""
    _, _, client = faulty({"bandwidth": "500B"}, when={"times": 1})
    begun = time.monotonic()
    client.sendall(b"".join(heartbeat(number) for number in range(20)))
    got = [wire.read_frame(client) for _ in range(20)]
    assert got == [beaten(number) for number in range(20)]
    assert time.monotonic() - begun >= (20 * len(got[0]) - 100) / 500


def test_software_is_known_from_api_versions(testbed: Testbed) -> None:
    """The software that a client names when it connects decides about its later requests."""
    broker = Coordinator(testbed)
    rule = Rule.of("api == Heartbeat and software == testing", error="NOT_COORDINATOR")
    proxy = testbed.proxy(broker.address, rules=[rule])
    for name, error in (("testing", 16), ("other", 0)):
        client = testbed.client(proxy.address)
        fields = {"client_software_name": name, "client_software_version": "1"}
        wire.ask(client, wire.with_size(decoder.encode_request(18, 3, fields, correlation_id=1, client_id="c")))
        assert wire.ask(client, heartbeat(2)) == beaten(2, error)


def test_what_the_decision_took_is_part_of_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stood still or was set back makes no delay longer, and none is less than nothing."""
    monkeypatch.setattr(fault_executor, "now_ns", lambda: 1_000 * MS)
    for since, left in ((1_000, 20), (997, 17), (1_001, 20), (900, 0)):
        faults = FaultPlan("slow", 1, response_delay=20 * MS)
        fault_executor.subtract_elapsed(faults, since * MS)
        assert faults.response_delay == left * MS


def test_the_wait_for_a_timer_ends_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what Linux may be late; from there on the loop asks without waiting, until it has come."""
    asked: list[float] = []
    monkeypatch.setattr(polling.select, "select", lambda *given: asked.append(given[3]))
    with polling.select.epoll() as poll:
        assert [polling.rest(poll, seconds) for seconds in (0.2, 0.02, polling.LEAD, 0.0)] == [0.0] * 4
    assert len(asked) == 2
    assert all(
        0.9 * due < wait + wait / 1000 < due - polling.LEAD for due, wait in zip((0.2, 0.02), asked, strict=True)
    ), asked


@pytest.mark.parametrize("way", ["rule", "plugin"])
def test_a_refused_metadata_request_gets_the_brokers(testbed: Testbed, tmp_path: Path, way: str) -> None:
    """Of the Metadata response before it, by the proxy's own addresses: a client without brokers never asks again."""

    brokers = [(node, "127.0.0.1", 9000 + node) for node in (1, 2)]
    answer = scripted.each(lambda _, number: wire.metadata_response(number, brokers, 9))
    options: dict[str, Any] = {}
    if way == "rule":
        options["rules"] = [Rule.of('api == Metadata and topic == "t"', error="LEADER_NOT_AVAILABLE")]
    else:
        path = tmp_path / "p.py"
        path.write_text(
            'class P:\n    apis = {"Metadata"}\n    def request(self, message, ctx):\n        if message["topics"]:\n'
            '            ctx.respond(error="LEADER_NOT_AVAILABLE")\n'
        )
        options["plugins"] = PluginsConfig((parse(str(path)),), budget=PATIENCE)
    proxy = testbed.proxy(testbed.broker(answer).address, **options)
    client = testbed.client(proxy.address)
    got = []
    for number, topics in enumerate([[], [{"name": "t"}]]):
        request = decoder.encode_request(METADATA, 9, {"topics": topics}, correlation_id=number)
        client.sendall(wire.with_size(request))
        got.append(decoder.decode_response(wire.read_frame(client)[4:], api_key=METADATA, api_version=9).to_dict())
    assert [topic["error_code"] for topic in got[1]["topics"]] == [5]
    assert [broker["node_id"] for broker in got[0]["brokers"]] == [1, 2]
    assert got[1]["brokers"] == got[0]["brokers"]
