"""Several relay workers behave as one proxy: same ports, one recording, one control API; and one may die."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pytest
from barnabas import captures, decoder
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy import Proxy, ProxyError
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.events import (
    BrokerFound,
    BrokerGone,
    Capped,
    ConnectionClosed,
    ConnectionOpened,
    ConnectionsFull,
    Counts,
    Event,
    InterceptHeld,
    ListenerFailed,
    PortPassedOver,
    RuleHit,
    RulesKept,
    RulesReplaced,
    WorkerEnded,
    WorkerStarted,
)
from barnabas.proxy.processes.worker_shared_state import LOG_BYTES, SharedState
from barnabas.proxy.relay.addressing.transparent import Interception, NotIntercepted, TransparentConfig
from barnabas.proxy.relay.io.acceptor import Acceptor
from barnabas.proxy.relay.limits import Limits
from barnabas.proxy.relay.negotiation.security import TlsConfig
from barnabas.proxy.ring import merged_rings
from barnabas.proxy.ring.merged_rings import MergedRings, resume
from barnabas.proxy.ring.reader import RingReader
from barnabas.proxy.ring.ring import NONE, Kind, Ring, RingWriter
from barnabas.proxy.supervisor.worker_pool import EventDeduplicator
from harness import scripted, wire
from harness.scripted import Broker
from harness.testbed import Testbed
from harness.waiting import PATIENCE, attempts, until
from traffic.error_rules import error_rule

HEARTBEAT = 12
NOT_COORDINATOR = 16
MESSAGE_TOO_LARGE = 10


E = TypeVar("E", bound=Event)


@pytest.fixture
def answering(testbed: Testbed) -> Broker:
    """A broker that answers everything."""
    return testbed.broker(scripted.answering(bytes(6)))


def ask(client: socket.socket, number: int, key: int = 18, version: int = 0) -> bytes:
    return wire.ask_or_end(client, wire.request(key, version, number))


def next_events(proxy: Proxy, kind: type[E], count: int, into: list[Event] | None = None) -> list[E]:
    """The next `count` events of a kind; `into`: where those before them go."""
    found: list[E] = []
    for left in attempts(pause=0):
        if len(found) == count:
            break
        event = proxy.next_event(left)
        if isinstance(event, kind):
            found.append(event)
        elif event is not None and into is not None:
            into.append(event)
    assert len(found) == count
    return found


def wait_for_workers(proxy: Proxy, workers: int) -> None:
    """They come up one after the other."""
    shared_state = proxy._pool and proxy._pool.shared_state
    assert shared_state is not None
    until(lambda: all(shared_state.alive(worker) for worker in range(workers)))


def all_there(testbed: Testbed, proxy: Proxy, workers: int) -> list[socket.socket]:
    """A connection with every worker."""
    wait_for_workers(proxy, workers)
    clients: list[socket.socket] = []
    seen: set[int] = set()
    while len(seen) < workers and len(clients) < 20:
        clients.append(testbed.client(proxy.address))
        assert ask(clients[-1], 1)
        seen.add(next_events(proxy, ConnectionOpened, 1)[0].connection % workers)
    assert len(seen) == workers
    return clients


def test_connections_spread_evenly_and_counts_add_up(testbed: Testbed, answering: Broker) -> None:
    proxy = testbed.proxy(answering.address, workers=3)
    clients = all_there(testbed, proxy, 3)
    for client in clients:
        client.close()
    next_events(proxy, ConnectionClosed, len(clients))
    before, clients, taken = len(clients), [], Counter[int]()
    begun = time.monotonic()
    while min(taken[worker] for worker in range(3)) < 6:
        clients.append(testbed.client(proxy.address))
        for number in range(5):
            assert ask(clients[-1], number)
        taken[next_events(proxy, ConnectionOpened, 1)[0].connection % 3] += 1
        # a worker that does not come within a second loses its turn, and has the next one three clients later
        assert len(clients) <= 18 + 3 * (time.monotonic() - begun), taken
    for client in clients:
        client.close()
    proxy.stop()
    assert {name: child.returncode for name, child in proxy._children.items()} == dict.fromkeys(proxy._children, 0)
    last = [event for event in proxy.events() if isinstance(event, Counts)][-1]
    exchanges = before + 5 * len(clients)
    assert (last.opened, last.connections, last.exchanges) == (before + len(clients), 0, exchanges)
    assert (last.request_bytes, last.response_bytes, last.lost_bytes) == (exchanges * 15, exchanges * 14, 0)


def test_a_recording_of_several_workers_is_one(testbed: Testbed, answering: Broker, tmp_path: Path) -> None:
    proxy = testbed.proxy(answering.address, workers=2, record=tmp_path / "r", lossless=True)
    clients = all_there(testbed, proxy, 2)
    clients += [testbed.client(proxy.address) for _ in range(4)]
    for number in range(40):
        for client in clients:
            client.sendall(wire.request(18, 0, number))
        for client in clients:
            assert wire.read_frame(client)
    for client in clients:
        client.close()
    proxy.stop()
    capture = captures.open_capture(tmp_path / "r")
    exchanges = list(capture.exchanges())
    assert not capture.verify() and not capture.lost
    assert {exchange.connection % 2 for exchange in exchanges} == {0, 1}
    assert len({exchange.connection for exchange in exchanges}) == len(clients)
    assert all(exchange.state.name == "PAIRED" and exchange.undecoded is None for exchange in exchanges)
    times = [exchange.request_time_ns for exchange in exchanges]
    assert times == sorted(times)


def test_a_broker_that_appears_is_known_to_all_workers(testbed: Testbed, answering: Broker) -> None:
    proxy = testbed.proxy(testbed.broker(scripted.naming(lambda: [(1, *answering.address)])).address, workers=2)
    clients = [testbed.client(proxy.address) for _ in range(4)]
    answers = {ask(client, 7, key=3, version=8) for client in clients}
    assert len(answers) == 1, "every worker gives the same port"
    found = next_events(proxy, BrokerFound, 1)[0]
    assert found.broker == answering.address
    behind = [testbed.client(found.address) for _ in range(6)]
    for client in behind:
        assert ask(client, 3)
    proxy.stop()
    rest = list(proxy.events())
    assert not [event for event in rest if isinstance(event, BrokerFound) or event.warning]


def refused(address: tuple[str, int]) -> bool:
    """Whether nobody listens there."""
    try:
        socket.create_connection(address, timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # closed while this was connecting
        return False
    return False


def test_a_listener_that_no_worker_needs_is_closed_by_all(testbed: Testbed, answering: Broker) -> None:
    """One whose broker a worker has connections to stays."""
    idle = ("10.0.0.2", 9092)

    metadata = scripted.naming(lambda: [(1, *answering.address), (2, *idle)])

    def addresses() -> list[tuple[str, int]]:
        answer = decoder.decode_response(ask(client, 7, key=3, version=8)[4:], api_key=3, api_version=8).to_dict()
        return [(broker["host"], broker["port"]) for broker in answer["brokers"]]

    def connected() -> tuple[socket.socket, tuple[str, int]] | None:
        own = addresses()[0]
        try:
            sock = testbed.client(own)
            return (sock, own) if ask(sock, 1) else None
        except OSError:  # it has expired in between
            return None

    def until_gone(address: tuple[str, int]) -> None:
        while next_events(proxy, BrokerGone, 1)[0].address != address:
            pass

    proxy = testbed.proxy(testbed.broker(metadata).address, workers=2, limits=Limits(broker_expiry=0.2))
    wait_for_workers(proxy, 2)
    crew = proxy._pool
    assert crew is not None
    client = testbed.client(proxy.address)
    user, used = until(connected)
    stays, goes = addresses()
    assert stays == used
    until_gone(goes)
    until(lambda: refused(goes))
    assert [broker for _, broker in crew._listeners] == [answering.address]
    users = [user, *(testbed.client(used) for _ in range(3))]
    assert all(ask(each, 2) for each in users)
    for each in users:
        each.close()
    until_gone(used)
    until(lambda: refused(used))
    assert not crew._listeners
    until(connected)


def test_brokers_by_name_are_known_to_all_workers(testbed: Testbed, answering: Broker, tmp_path: Path) -> None:
    metadata = scripted.naming(lambda: [(2, *answering.address)])
    tls = TlsConfig(ca=tmp_path / "ca", sni_suffix="kafka.example")
    proxy = testbed.proxy(testbed.broker(metadata).address, workers=2, tls=tls)
    wait_for_workers(proxy, 2)
    context = ssl.create_default_context(cafile=tmp_path / "ca" / "ca.pem")

    def connect(name: str) -> ssl.SSLSocket:
        return context.wrap_socket(testbed.client(proxy.address), server_hostname=name)

    assert b"broker-2.kafka.example" in ask(connect("kafka.example"), 1, key=3, version=8)
    clients = [connect("broker-2.kafka.example") for _ in range(6)]
    assert {ask(client, 5) for client in clients} == {wire.response(5, bytes(6))}
    opened = next_events(proxy, ConnectionOpened, 7)
    assert [event.broker for event in opened[1:]] == [answering.address] * 6
    assert len({event.connection % 2 for event in opened}) == 2


def test_one_worker_dies_and_the_others_go_on(testbed: Testbed, answering: Broker, tmp_path: Path) -> None:
    proxy = testbed.proxy(answering.address, workers=2, record=tmp_path / "r")
    clients = all_there(testbed, proxy, 2)
    os.kill(proxy._children["relay-1"].pid, signal.SIGKILL)
    ended = next_events(proxy, WorkerEnded, 1)[0]
    assert (ended.worker, ended.code, ended.again) == (1, -signal.SIGKILL, True)
    alive = 0
    for client in clients:
        try:
            alive += bool(ask(client, 2))
        except OSError:
            pass
    assert 0 < alive < len(clients)
    for number in range(4):
        assert ask(testbed.client(proxy.address), number)
    next_events(proxy, WorkerStarted, 1)
    fresh = all_there(testbed, proxy, 2)
    for client in (*clients, *fresh):
        client.close()
    proxy.stop()
    events = list(proxy.events())
    last = [event for event in events if isinstance(event, Counts)][-1:]
    assert last, f"no counts at the end: {events}, {[(name, child.returncode) for name, child in proxy._children.items()]}"
    (counts,) = last
    assert counts.connections == 0
    capture = captures.open_capture(tmp_path / "r")
    assert not capture.verify()
    numbers = [event.connection for event in capture.events() if type(event).__name__ == "Opened"]
    assert len(numbers) == len(set(numbers)) == counts.opened


def test_rules_and_connections_over_the_control_api(testbed: Testbed, answering: Broker, tmp_path: Path) -> None:
    rule = error_rule("from file", HEARTBEAT, NOT_COORDINATOR)
    proxy = testbed.proxy(
        answering.address,
        workers=2,
        rules=[rule],
        reloadable=True,
        control=ControlConfig(directory=tmp_path),
    )
    clients = all_there(testbed, proxy, 2)
    control = Control(proxy.control.access.url, proxy.control.access.token)
    assert {"relay-1", "relay-2"} <= set(control.status()["processes"])
    assert [each["name"] for each in control.rules()] == ["from file"]
    body = (0).to_bytes(2, "big") + bytes(4) + (0).to_bytes(2, "big")
    for number, client in enumerate(clients):
        assert wire.ask(client, wire.request(HEARTBEAT, 0, number, body))[-2:] == NOT_COORDINATOR.to_bytes(2, "big")
    assert control.rules()[0]["hits"] == len(clients)
    assert sorted(event.hits for event in next_events(proxy, RuleHit, len(clients))) == [*range(1, len(clients) + 1)]
    assert control.wait_for_hits("from file", len(clients), timeout=PATIENCE) == len(clients)
    assert control.brokers()[0]["broker"] == list(answering.address) and control.status()["rules"] == 1
    control.add_rule({"name": "added", "match": "api == Produce", "do": {"error": "MESSAGE_TOO_LARGE"}})
    assert [each["origin"] for each in control.rules()] == ["file", "api"]
    proxy.replace_rules([rule, error_rule("new", 10, 15)])
    assert next_events(proxy, RulesReplaced, 1)[0].rules == ("from file", "new", "added")
    assert [(each["name"], each["hits"]) for each in control.rules()] == [
        ("from file", len(clients)),
        ("new", 0),
        ("added", 0),
    ]
    numbers = [each["connection"] for each in control.connections()]
    assert {number % 2 for number in numbers} == {0, 1}
    for number in numbers:
        control.close_connection(number)
    for client in clients:
        assert client.recv(1) == b""


def test_an_intercepts_limit_is_that_of_all_workers(
    testbed: Testbed, answering: Broker, tmp_path: Path
) -> None:
    proxy = testbed.proxy(answering.address, workers=2, control=ControlConfig(directory=tmp_path))
    clients = all_there(testbed, proxy, 2)
    control = Control(proxy.control.access.url, proxy.control.access.token)
    control.intercept("api == Heartbeat", timeout=PATIENCE, times=2)
    for client in clients[-2:]:
        client.sendall(wire.request(HEARTBEAT, 0, 5))
    next_events(proxy, InterceptHeld, 2)
    held = control.held(wait=PATIENCE)
    assert {frame["id"] % 2 for frame in held} == {0, 1} and {frame["connection"] % 2 for frame in held} == {0, 1}
    for frame in held:
        control.resume(frame["id"])
    for client in clients[-2:]:
        assert wire.read_frame(client)
        assert ask(client, 6, key=HEARTBEAT)
    assert control.held() == []
    assert [(each["times_left"], each["held"]) for each in control.intercepts()] == [(0, 0)]


def test_a_new_worker_gets_what_the_others_know(
    testbed: Testbed, answering: Broker, tmp_path: Path
) -> None:
    proxy = testbed.proxy(answering.address, workers=2, reloadable=True, control=ControlConfig(directory=tmp_path))
    all_there(testbed, proxy, 2)
    control = Control(proxy.control.access.url, proxy.control.access.token)
    control.add_rule({"name": "added", "match": "api == Produce", "do": {"error": "MESSAGE_TOO_LARGE"}})
    soon = datetime.now(ZoneInfo("Pacific/Honolulu")) + timedelta(hours=1)
    control.intercept(f"api == Heartbeat and time < {soon:%FT%T}", zone="Pacific/Honolulu", timeout=PATIENCE)
    os.kill(proxy._children["relay-2"].pid, signal.SIGKILL)
    next_events(proxy, WorkerStarted, 1)
    clients = all_there(testbed, proxy, 2)
    sent = {
        "acks": 1,
        "timeout_ms": 9,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"r"}]}],
    }
    produce = wire.with_size(decoder.encode_request(0, 7, sent, correlation_id=1, client_id="c"))
    for _ in attempts():  # it is events when it has begun
        codes = set()
        for client in clients:
            answer = wire.ask(client, produce)[4:]
            short = len(answer) == 10  # the broker's own
            found = () if short else decoder.decode_response(answer, api_key=0, api_version=7).errors()
            codes.add(next((code for _, code in found), 0))
        if codes == {MESSAGE_TOO_LARGE}:
            break
    assert codes == {MESSAGE_TOO_LARGE}
    status = control.status()
    assert status["processes"]["relay-2"] == {"pid": proxy._children["relay-2"].pid, "alive": True}
    assert control.rules()[0]["hits"] >= len(clients)
    for client in clients:
        client.sendall(wire.request(HEARTBEAT, 0, 5))
    until(lambda: len(control.held()) == len(clients))


def test_counts_are_exact_over_all_workers(testbed: Testbed, answering: Broker, tmp_path: Path) -> None:
    """`after`, `times` and `every` mean the matches of all workers, also when one of them begins anew."""
    rule = Rule.of("api == Heartbeat", error="NOT_COORDINATOR", name="r", when={"after": 3, "every": 2, "times": 4})
    control = ControlConfig(directory=tmp_path)
    proxy = testbed.proxy(answering.address, workers=2, rules=[rule], reloadable=True, control=control)
    clients = all_there(testbed, proxy, 2)
    body = (0).to_bytes(2, "big") + bytes(4) + (0).to_bytes(2, "big")

    def beat(client: socket.socket, number: int) -> int:
        return int.from_bytes(wire.ask(client, wire.request(HEARTBEAT, 0, number, body))[-2:], "big")

    found = [beat(clients[number % len(clients)], number) for number in range(16)]
    assert [number for number, code in enumerate(found) if code == NOT_COORDINATOR] == [3, 5, 7, 9]
    steering = Control(proxy.control.access.url, proxy.control.access.token)
    (listed,) = steering.rules()
    assert (listed["matched"], listed["hits"]) == (10, 4)
    assert [hit["hit"] for hit in steering.hits("r")] == [1, 2, 3, 4]
    # Changed, it counts from 0, at all workers; the same again, it goes on.
    again = {"match": "api == Heartbeat", "do": {"error": "NOT_COORDINATOR"}, "when": {"times": 3}}
    steering.put_rule("r", again)
    assert [beat(clients[number % len(clients)], number) for number in range(6)].count(NOT_COORDINATOR) == 3
    steering.replace_rules([again | {"name": "r"}])
    assert beat(clients[0], 9) != NOT_COORDINATOR and steering.rules()[0]["hits"] == 3
    assert steering.wait_for_hits("r", 3, timeout=PATIENCE) == 3
    steering.put_rule("r", again)
    assert beat(clients[-1], 10) == NOT_COORDINATOR


def test_the_files_rules_do_not_take_the_names_of_others(testbed: Testbed, tmp_path: Path) -> None:
    proxy = testbed.proxy(("127.0.0.1", 9), rules=[], reloadable=True, control=ControlConfig(directory=tmp_path))
    control = Control(proxy.control.access.url, proxy.control.access.token)
    control.add_rule({"name": "mine", "match": "api == Produce", "do": {"error": "MESSAGE_TOO_LARGE"}})
    proxy.replace_rules([error_rule("mine", HEARTBEAT, NOT_COORDINATOR)])
    assert "control API" in next_events(proxy, RulesKept, 1)[0].text
    assert [each["name"] for each in control.rules()] == ["mine"]


def test_a_limit_of_connections_is_that_of_all_workers(testbed: Testbed, answering: Broker) -> None:
    proxy = testbed.proxy(answering.address, workers=2, limits=Limits(max_connections=3))
    clients = [testbed.client(proxy.address) for _ in range(3)]
    for client in clients:
        assert ask(client, 1)
    waits = testbed.client(proxy.address)
    waits.sendall(wire.request(18, 0, 9))
    events: list[Event] = []
    next_events(proxy, ConnectionsFull, 1, events)
    next_events(proxy, ConnectionOpened, 3 - len([event for event in events if isinstance(event, ConnectionOpened)]))
    assert proxy._pool is not None and proxy._pool.shared_state is not None and proxy._pool.shared_state.all_standing() == 3
    clients[0].close()
    assert wire.read_frame(waits)


def test_the_control_apis_port_is_no_brokers(testbed: Testbed, tmp_path: Path) -> None:
    """Neither the port of a broker's listener, nor the address of one."""
    control: list[int] = []

    broker = testbed.broker(scripted.naming(lambda: [(1, "127.0.0.1", control[0]), (2, "127.0.0.1", 9)]))
    for _ in range(20):  # two ports next to one another
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = ControlConfig(("127.0.0.1", port + 1), directory=tmp_path)
        try:
            proxy = testbed.proxy(broker.address, listen=("127.0.0.1", port), control=config)
            break
        except ProxyError:
            continue
    control.append(port + 1)
    ask(testbed.client(proxy.address), 1, key=3, version=8)
    events: list[Event] = []
    found = next_events(proxy, BrokerFound, 1, events)[0]
    passed = [event for event in events if isinstance(event, PortPassedOver)]
    assert (passed[0].broker, passed[0].whose) == (("127.0.0.1", 9), "the control API")
    assert not any(event.whose for event in passed[1:])  # somebody else on this machine may have the next one
    assert [event.port for event in passed] == list(range(port + 1, found.address[1]))
    failed = [event for event in events if isinstance(event, ListenerFailed)] or next_events(proxy, ListenerFailed, 1)
    assert [event.broker for event in failed] == [("127.0.0.1", port + 1)]  # reported once for all brokers of the response


def test_a_number_of_workers_that_makes_no_sense(testbed: Testbed) -> None:
    for count in (0, 1000):
        with pytest.raises(ProxyError, match="must have 1 to"):
            testbed.proxy(("127.0.0.1", 9), workers=count)


# -- the parts -------------------------------------------------------------------------------------------------


class Rings:
    """Two rings and their one reader."""

    def __init__(self) -> None:
        self.rings = [Ring.create(4 << 20, 64) for _ in range(2)]
        self.bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(3)]
        for ring in self.rings:
            ring.admit(0, lossless=False)
        self.writers = [RingWriter(ring, {0: self.bells[0]}) for ring in self.rings]
        readers = [
            RingReader(ring, 0, self.bells[0], room) for ring, room in zip(self.rings, self.bells[1:], strict=True)
        ]
        self.reader = MergedRings(readers, self.bells[0])

    def write(self, ring: int, connection: int, time_ns: int, kind: Kind = Kind.OPENED, data: bytes = b"{}") -> None:
        self.writers[ring].write(kind, connection, 0, time_ns, data, NONE)

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        for _ in attempts(pause=0):
            found += self.reader.read()
            if len(found) >= count:
                break
            self.reader.wait(0.01)
        return found

    def close(self) -> None:
        for fd in self.bells:
            os.close(fd)


@pytest.fixture
def rings() -> Iterator[Rings]:
    made = Rings()
    yield made
    made.close()


def test_rings_are_read_in_the_order_of_their_times(rings: Rings) -> None:
    for at, ring in ((10, 0), (20, 1), (30, 1), (40, 0), (50, 1)):
        rings.write(ring, at, at)
    assert [record.connection for record in rings.read(5)] == [10, 20, 30, 40, 50]


def test_a_new_record_waits_for_an_earlier_one_of_another_ring(rings: Rings, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10**18
    monkeypatch.setattr(merged_rings, "now_ns", lambda: now)
    rings.write(0, 1, now)
    assert list(rings.reader.read()) == []
    rings.write(1, 2, now - 1000)
    now += merged_rings.HOLD_NS
    assert [record.connection for record in rings.read(2)] == [2, 1]


def test_the_stream_ends_with_the_last_ring(rings: Rings) -> None:
    rings.write(0, 0, 1, Kind.STOP, b"")
    rings.write(1, 2, 2)
    rings.write(1, 0, 3, Kind.STOP, b"")
    assert [record.kind for record in rings.read(2)] == [Kind.OPENED, Kind.STOP]


def test_connections_end_with_their_worker(rings: Rings) -> None:
    rings.write(0, 1, 1)
    rings.write(1, 2, 2)
    rings.writers[0].take(Kind.DATA, 1, 0, 3, 100, 0, 0)
    again = RingWriter(rings.rings[0], {})
    resume(again)
    assert again.total == 100
    again.write(Kind.GONE, 0, 0, 4, b"")
    events = rings.read(4)
    assert [(record.kind, record.connection) for record in events] == [
        (Kind.OPENED, 1),
        (Kind.OPENED, 2),
        (Kind.DATA, 1),
        (Kind.CLOSED, 1),
    ]
    assert rings.reader.lost_bytes == 0


def test_the_lock_goes_with_its_holder() -> None:
    shared_state = SharedState.create(2, 5000)
    program = (
        "import sys, os, signal\n"
        "from barnabas.proxy.processes.worker_shared_state import SharedState\n"
        "shared_state = SharedState(int(sys.argv[1]), 1)\n"
        "with shared_state.locked() as shared:\n"
        "    shared_state.next_port = 6000\n"
        "    print(shared, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(shared_state.fd)],
        pass_fds=[shared_state.fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stdout.readline() == "True\n"
        with shared_state.locked() as shared:
            assert not shared, "somebody else has it, and is not waited for for long"
        process.kill()
        process.wait()
    with shared_state.locked() as shared:
        assert shared and shared_state.next_port == 6000
    shared_state.close()


class Meanwhile:
    """The words of a shared_state, of which one changes right behind the first look at it."""

    def __init__(self, words: Any, change: Callable[[], object]) -> None:
        self._words, self._change = words, [change]

    def __getitem__(self, word: int) -> int:
        found: int = self._words[word]
        if self._change:
            self._change.pop()()
        return found


def test_the_log_is_rewritten_while_it_is_read() -> None:
    shared_state = SharedState.create(2, 0)
    writer, reader = (SharedState(os.dup(shared_state.fd), worker) for worker in range(2))
    rows = 0
    while writer.append([rows, "b" * 200, 9092, 5]):
        rows += 1
    assert len(reader.new_entries()) == rows
    assert writer.rewrite([[7, "c", 9092, 5]]) and writer.append([8, "d", 9092, 6])
    assert reader.new_entries() == [[7, "c", 9092, 5], [8, "d", 9092, 6]] and reader.new_entries() == writer.new_entries() == []
    assert not writer.rewrite([[0, "b" * 200, 9092, 5]] * (LOG_BYTES // 200)) and reader.new_entries() == []
    assert writer.append([9, "e", 9092, 7])

    def twice() -> None:
        writer.rewrite([[1, "once", 9092, 8]])
        writer.rewrite([[2, "twice", 9092, 9], [3, "twice", 9093, 10]])

    reader._words = Meanwhile(reader._words, twice)  # type: ignore[assignment]
    assert reader.new_entries() == [[2, "twice", 9092, 9], [3, "twice", 9093, 10]]
    reader._words = reader._words._words  # type: ignore[attr-defined]
    assert reader.new_entries() == []
    for each in (shared_state, writer, reader):
        each.close()


def test_who_is_less_busy() -> None:
    states = [SharedState.create(3, 0)]
    states = [SharedState(os.dup(states[0].fd), worker) for worker in range(3)]
    assert [shared_state.begin(shared_state.worker) for shared_state in states[:2]] == [0, 0]
    assert states[0].gathering()
    assert states[2].begin(2) == 0
    assert not states[0].gathering()
    assert states[0].less_busy() is None
    states[0].accepted(1, 1)
    assert states[0].less_busy() == 1 and states[1].less_busy() is None
    states[1].end(1)
    assert states[0].less_busy() == 2
    assert states[0].all_standing() == 1
    states[0].append([1, "b", 9092, 5])
    assert states[2].new_entries() == [[1, "b", 9092, 5]] and states[2].new_entries() == [] and states[0].new_entries() == []
    states[0].claim(40000, 7)
    assert states[1].claimed(40000, 7) and not states[1].claimed(40000, 9)


class Accepting:
    """As much of a relay as the acceptor needs: nothing is in the way of another client."""

    def __init__(self) -> None:
        self.draining = False
        self.connections: dict[int, object] = {}
        self.limits = Limits()
        self.sockets = self.guard = self.destinations = self

    def listen_for(self, *given: object) -> None: ...
    def listens(self, *given: object) -> None: ...
    def short_of_files(self, listener: socket.socket) -> bool:
        return False


def test_a_client_that_its_worker_does_not_come_for_is_taken_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before a whole second in which nobody took a client: the ticks of the two are a second apart."""
    shared_state = SharedState.create(2, 0)
    mine, other = (SharedState(os.dup(shared_state.fd), worker) for worker in range(2))
    other.begin(1)
    taken: list[socket.socket] = []
    monkeypatch.setattr(Acceptor, "_begin", lambda self, client, peer, broker: taken.append(client))
    relay: Any = Accepting()
    bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        listener.setblocking(False)
        acceptor = Acceptor(relay, mine, bells)
        acceptor.add(listener, ("broker", 9092))
        mine.accepted(1, 1)  # it has a connection, the other one has none
        os.eventfd_read(bells[1])
        client.connect(listener.getsockname())
        acceptor.called(0)
        assert os.eventfd_read(bells[1]) == 1  # the other one is events
        acceptor.tick()  # the next tick may come at once
        other.accepted(1, 0)
        acceptor.tick()
        acceptor.tick()
        assert not taken  # the other one has taken a client since: it is there
        acceptor.tick()
        assert len(taken) == 1
        taken[0].close()
    for bell in bells:
        os.close(bell)
    for each in (shared_state, mine, other):
        each.close()


class Intercepted:
    """A client's socket that the kernel has led here from a broker's address."""

    def getsockname(self) -> tuple[str, int]:
        return ("10.0.0.1", 9092)


def test_an_own_connection_is_known_where_it_comes_in_again() -> None:
    """Transparent mode: the worker that is given the connection of another one does not pass it on."""
    shared_state = SharedState.create(2, 0)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as own:
        one, other = (
            Interception(TransparentConfig("tproxy"), listener, SharedState(os.dup(shared_state.fd), worker)) for worker in range(2)
        )
        own.bind(("127.0.0.1", 0))
        here = own.getsockname()
        one.connecting(own, ("10.0.0.1", 9092))
        client: Any = Intercepted()
        with pytest.raises(NotIntercepted, match="came back"):
            other.destination(client, here)
        assert other.destination(client, ("127.0.0.1", here[1] ^ 1)) == ("10.0.0.1", 9092)
        one.forget(own.fileno())
        assert other.destination(client, here) == ("10.0.0.1", 9092)


def test_the_events_of_all_workers_are_those_of_one_relay() -> None:
    events = EventDeduplicator()
    replaced = RulesReplaced(("r",))
    assert [events.merged(worker, replaced) for worker in (1, 0, 1, 0)] == [replaced, None, replaced, None]
    capped = Capped(3, 20, 13)
    assert [events.merged(worker, capped) for worker in (0, 1, 2)] == [capped, None, None]
