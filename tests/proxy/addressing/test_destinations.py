"""Where a proxy connects to for clients, which brokers get listeners, and that names are looked up beside the traffic."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.proxy.control import ControlConfig
from barnabas.proxy.events import (
    BrokerFound,
    BrokerGone,
    BrokerIsProxy,
    Event,
    ListenerFailed,
    RelayFault,
    UpstreamFailed,
)
from barnabas.proxy.processes import worker_shared_state
from barnabas.proxy.processes.worker_shared_state import SharedState
from barnabas.proxy.relay.addressing import resolver
from barnabas.proxy.relay.addressing.address_map import AddressMap
from barnabas.proxy.relay.addressing.destinations import ITSELF, Allowed, Destinations
from barnabas.proxy.relay.limits import Limits
from barnabas.proxy.relay.loop import Relay
from harness import scripted, wire
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until

METADATA = wire.with_size(decoder.encode_request(3, 8, {"topics": None}, correlation_id=1))
Brokers = list[tuple[int, str, int]]


def naming(testbed: Testbed, brokers: Callable[[], Brokers]) -> tuple[str, int]:
    """The address of a broker whose Metadata responses name these."""
    address: tuple[str, int] = testbed.broker(scripted.naming(brokers)).address
    return address


def metadata_addresses(client: socket.socket) -> list[tuple[str, int]]:
    """The addresses in the response to a Metadata request."""
    answer = decoder.decode_response(wire.ask(client, METADATA)[4:], api_key=3, api_version=8).to_dict()
    return [(broker["host"], broker["port"]) for broker in answer["brokers"]]


# -- own addresses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "asked", "what"),
    [
        ("127.0.0.1", "127.0.0.1", "x"),
        ("127.0.0.1", "0.0.0.0", "x"),
        ("127.0.0.1", "::ffff:127.0.0.1", "x"),
        ("127.0.0.1", "::ffff:0.0.0.0", "x"),
        ("127.0.0.1", "127.0.0.2", ""),
        ("127.0.0.1", "10.0.0.1", ""),
        ("::1", "::", "x"),
        ("::1", "::1", "x"),
        ("::1", "127.0.0.1", ""),
        ("0.0.0.0", "127.0.0.9", "x"),
        ("0.0.0.0", "192.0.2.1", ""),
    ],
)
def test_what_a_connect_would_reach(bound: str, asked: str, what: str) -> None:
    found = Destinations([(bound, 99, "x")])
    assert found.own(asked, 99) == what
    assert found.own(asked, 98) == ""


SPELLINGS = ["127.0.0.1", "0.0.0.0", "127.1", "2130706433", "0x7f.1", "::ffff:127.0.0.1", "LOCALHOST", "localhost", "::ffff:0:0"]


@pytest.mark.parametrize("host", SPELLINGS)
def test_the_control_api_is_reached_by_no_spelling(testbed: Testbed, tmp_path: Path, host: str) -> None:
    port: list[int] = []
    upstream = naming(testbed, lambda: [(1, host, port[0])])
    proxy = testbed.proxy(upstream, control=ControlConfig(directory=tmp_path))
    assert proxy.control is not None
    port.append(int(proxy.control.access.url.rpartition(":")[2]))
    ((given, at),) = metadata_addresses(testbed.client(proxy.address))
    if (given, at) != (host, port[0]):
        # A listener: what is connected there goes nowhere.
        client = testbed.client((given, at))
        client.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert wire.exactly(client, 100) == b""
        assert "the control API" in next_event(proxy, UpstreamFailed).reason
    else:
        assert "the control API" in next_event(proxy, ListenerFailed).reason


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_broker_that_advertises_the_proxy_keeps_its_address(testbed: Testbed, host: str) -> None:
    own: list[int] = []
    proxy = testbed.proxy(naming(testbed, lambda: [(1, host, own[0])]))
    own.append(proxy.address[1])
    client = testbed.client(proxy.address)
    for _ in range(5):
        assert [port for _, port in metadata_addresses(client)] == [own[0]]
    assert next_event(proxy, BrokerIsProxy).node == 1
    proxy.stop()
    assert not [event for event in proxy.events() if isinstance(event, BrokerFound)]


# -- where to ------------------------------------------------------------------------------------------------------


def test_networks_and_ports() -> None:
    def refuses(address: str, port: int, *allowed: str) -> bool:
        return bool(Destinations([], allowed).refusal(address, port))

    assert not refuses("192.0.2.1", 22)
    assert not refuses("10.1.2.3", 9092, "10.0.0.0/8")
    assert not refuses("::ffff:10.1.2.3", 9092, "10.0.0.0/8")
    assert refuses("11.1.2.3", 9092, "10.0.0.0/8")
    assert refuses("10.1.2.3", 9095, "10.0.0.0/8:9092-9094") and not refuses("10.1.2.3", 9094, "10.0.0.0/8:9092-9094")
    assert refuses("10.1.2.3", 9093, "10.1.2.3:9092") and not refuses("10.1.2.3", 9092, "10.1.2.3:9092")
    assert not refuses("fd00::1", 9092, "[fd00::/8]:9092") and refuses("fd00::1", 9093, "[fd00::/8]:9092")
    assert not refuses("fd00::1", 1, "10.0.0.0/8", "fd00::/8")


@pytest.mark.parametrize("text", ["", "kafka", "10.0.0.0/33", "10.0.0.1:x", "10.0.0.1:5-2", "10.0.0.1:0", "[fd00::/8", "[fd00::1]9092"])
def test_what_is_no_network(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Allowed.parse(text)
    with pytest.raises(ValueError, match=r"\w"):
        Limits(upstream_allow=(text,))


def test_no_tunnel_to_where_it_is_not_allowed(testbed: Testbed) -> None:
    """A rogue broker names the address of something else: no byte goes there."""
    reached = threading.Event()
    other = testbed.broker(lambda sock: reached.set())
    upstream = naming(testbed, lambda: [(1, *other.address), (2, "localhost", other.address[1])])
    proxy = testbed.proxy(upstream, limits=Limits(upstream_allow=("10.0.0.0/8",)))
    literal, name = metadata_addresses(testbed.client(proxy.address))
    assert literal == other.address  # no listener, and the address stays
    refused = next_event(proxy, ListenerFailed)
    assert (refused.broker, "--upstream-allow" in refused.reason) == (other.address, True)
    client = testbed.client(name)
    assert wire.exactly(client, 1) == b""
    assert "--upstream-allow" in next_event(proxy, UpstreamFailed).reason
    assert not reached.is_set()


# -- how many ------------------------------------------------------------------------------------------------------


def test_25_000_brokers_take_as_many_files_as_are_allowed_and_clients_are_served(testbed: Testbed) -> None:
    many: Brokers = [(number, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 9092) for number in range(25_000)]
    proxy = testbed.proxy(naming(testbed, lambda: many), limits=Limits(max_brokers=50))
    client = testbed.client(proxy.address)
    for _ in range(2):
        given = metadata_addresses(client)
        assert len([host for host, _ in given if host == "127.0.0.1"]) == 50
    refused = next_event(proxy, ListenerFailed)
    assert refused.brokers == 24_950 and "--max-brokers" in refused.reason
    files = len(os.listdir(f"/proc/{proxy._children['relay'].pid}/fd"))
    assert files < 200
    other = testbed.client(proxy.address)
    assert wire.ask(other, wire.request(18, 0, 3)) == wire.response(3, bytes(6))
    proxy.stop()
    rest = list(proxy.events())
    assert not [event for event in rest if isinstance(event, (RelayFault, ListenerFailed))]


def test_half_of_the_files_stay_for_connections() -> None:
    from barnabas.proxy.relay.guard import LimitGuard

    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    relay: Any = None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, files[1]))
        assert LimitGuard(relay, Limits()).most_brokers() == 128
        assert LimitGuard(relay, Limits(max_brokers=5)).most_brokers() == 5
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


class Mapped:
    """An address map with a clock of its own, and what it does."""

    def __init__(self, **options: Any) -> None:
        self.now = 1000.0
        self.events: list[Event] = []
        self.sockets: list[socket.socket] = []
        self.shared_state: SharedState | None = options.get("shared_state")
        self.standing: Set[tuple[tuple[str, int], int]] = set()
        """The listeners that were not to be closed."""
        self.map = AddressMap(
            ("127.0.0.1", 1), ("10.0.0.9", 9092), fixed=False, same_host=lambda *_: False,
            opened=lambda sock, broker: self.sockets.append(sock), emit=self.events.append, retain=self.retain,
            clock=lambda: self.now, **options,
        )  # fmt: skip

    def retain(self, standing: Set[tuple[tuple[str, int], int]]) -> None:
        self.standing = standing

    def gone(self) -> list[tuple[str, int]]:
        """The brokers whose listeners have been closed, in order."""
        return [event.broker for event in self.events if isinstance(event, BrokerGone)]


@pytest.fixture
def mapped() -> Iterator[Callable[..., Mapped]]:
    """``mapped(**options)``; its sockets are closed behind the test."""
    maps: list[Mapped] = []

    def make(**options: Any) -> Mapped:
        maps.append(Mapped(**options))
        return maps[-1]

    yield make
    for each in maps:
        for sock in each.sockets:
            sock.close()


def test_brokers_that_are_refused_again_and_again_are_one_event(mapped: Callable[..., Mapped]) -> None:
    """However slowly the responses are worked off; a broker counts once, and other news is an event."""
    made = mapped(most=2)
    brokers = [(number, (f"10.0.0.{number}", 9092)) for number in range(6)]

    def seen() -> list[tuple[tuple[str, int], int]]:
        return [(event.broker, event.brokers) for event in made.events if isinstance(event, ListenerFailed)]

    for _ in range(3):
        made.map.open_in_order(brokers)
        made.now += 11
        for node, broker in brokers:
            made.map.stands_for(broker, node, "h")
            made.now += 11
            made.map.report_refused()
    assert seen() == [(brokers[2][1], 4)]
    made.map.open_in_order(brokers[:4])
    assert seen()[1:] == [(brokers[2][1], 2)]
    made.map.open_in_order(brokers)
    made.map.open_in_order(brokers[:5])
    made.now += 11
    made.map.report_refused()
    assert seen()[2:] == [(brokers[2][1], 4)]


def test_a_listener_ends_when_its_broker_is_not_named_any_more(mapped: Callable[..., Mapped]) -> None:
    made = mapped(most=2, expiry=900.0)
    brokers = made.map
    one, two, three = (("10.0.0.1", 9092), ("10.0.0.2", 9092), ("10.0.0.3", 9092))
    brokers.open_in_order([(1, one), (2, two), (3, three)])
    assert brokers.stands_for(three, 3, "h") is None
    made.now += 500
    brokers.open_in_order([(1, one)])
    made.now += 500
    brokers.expire(used=())
    assert made.gone() == [two]
    assert [found.broker for found in brokers.found] == [one] and made.standing == {(one, brokers.port_for(one, 1))}
    brokers.open_in_order([(3, three)])
    assert brokers.stands_for(three, 3, "h") is not None
    made.now += 5000
    brokers.expire(used={one, three})
    assert made.gone() == [two]


def test_what_has_expired_is_not_opened_by_the_next_relay(mapped: Callable[..., Mapped]) -> None:
    shared_state = SharedState.create(1, 0)
    try:
        made = mapped(shared_state=shared_state, expiry=50.0)
        brokers = made.map
        one, two = ("10.0.0.1", 9092), ("10.0.0.2", 9092)
        brokers.open_in_order([(1, one), (2, two)])
        made.now += 100
        brokers.open_in_order([(1, one)])
        brokers.expire(used=())
        fd = os.dup(shared_state.fd)
        fresh = SharedState(fd, 0)
        again = mapped(shared_state=fresh).map
        again.reopen()
        assert [found.broker for found in again.found] == []  # the port of the first is still taken, by the map before
        assert two not in again._ports
        fresh.close()
    finally:
        shared_state.close()


@pytest.fixture
def workers(mapped: Callable[..., Mapped]) -> Iterator[tuple[Mapped, Mapped]]:
    """The address maps of two workers; their listeners expire after 900 s."""
    shared_state = SharedState.create(2, 0)
    states = [SharedState(os.dup(shared_state.fd), worker) for worker in range(2)]
    for each in states:
        each.begin(each.worker)
    yield mapped(shared_state=states[0], expiry=900.0), mapped(shared_state=states[1], expiry=900.0)
    for each in (shared_state, *states):
        each.close()


def later(seconds: float, *maps: Mapped) -> None:
    for each in maps:
        each.now += seconds


def test_a_listener_ends_when_its_broker_is_named_to_no_worker(workers: tuple[Mapped, Mapped]) -> None:
    one, other = workers
    named, used, idle = ("10.0.0.1", 9092), ("10.0.0.2", 9092), ("10.0.0.3", 9092)
    one.map.open_in_order([(1, named), (2, used), (3, idle)])
    later(500, one, other)
    other.map.open_in_order([(1, named)])
    other.map.expire(used={used})
    later(500, one, other)
    other.map.expire(used=())
    assert not other.gone()  # the first may have connections that it has not recorded yet
    one.map.expire(used=())
    assert one.gone() == [idle]
    other.map.expire(used=())
    assert not other.gone() and {broker for broker, _ in other.standing} == {named, used}
    assert one.standing == other.standing and len(one.map.found) == len(other.map.found) == 2
    later(400, one, other)
    one.map.expire(used=())
    other.map.expire(used=())
    assert other.gone() == [named, used]
    one.map.expire(used=())
    assert one.gone() == [idle] and not one.standing


def test_a_worker_that_is_gone_uses_nothing(workers: tuple[Mapped, Mapped]) -> None:
    one, other = workers
    broker = ("10.0.0.1", 9092)
    one.map.open_in_order([(1, broker)])
    other.map.expire(used={broker})
    later(5000, one, other)
    one.map.expire(used=())
    assert not one.gone()
    assert one.shared_state is not None
    one.shared_state.end(1)
    one.map.expire(used=())
    assert one.gone() == [broker]


def test_what_another_worker_has_closed_is_opened_anew(workers: tuple[Mapped, Mapped]) -> None:
    one, other = workers
    broker = ("10.0.0.1", 9092)
    before = one.map.port_for(broker, 1)
    assert other.map.port_for(broker, 1) == before
    later(900, one, other)
    other.map.expire(used=())
    one.map.expire(used=())
    assert one.gone() == [broker]
    assert other.map.port_for(broker, 1) not in (None, before)
    assert one.map.port_for(broker, 1) == other.map.port_for(broker, 1)


def test_workers_agree_whatever_comes_and_goes(workers: tuple[Mapped, Mapped], monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of what they have learned begins anew when it is full."""
    monkeypatch.setattr(worker_shared_state, "LOG_BYTES", 400)
    one, other = workers
    stays = ("10.0.0.1", 9092)
    for number in range(60):
        opens, closes = (one, other) if number % 3 else (other, one)
        opens.map.open_in_order([(1, stays), (number, (f"10.1.0.{number}", 9092))])
        later(900, one, other)
        opens.map.expire(used={stays})
        closes.map.expire(used=())
        opens.map.expire(used=())
        assert closes.gone()[-1] == (f"10.1.0.{number}", 9092)
        assert [found.broker for found in closes.map.found] == [found.broker for found in opens.map.found] == [stays]
    assert len(one.gone()) == 20 and len(other.gone()) == 40
    fresh = SharedState(os.dup(one.shared_state.fd), 0) if one.shared_state is not None else None
    again = Mapped(shared_state=fresh)
    again.map.catch_up()
    assert again.map.found == one.map.found
    assert fresh is not None
    fresh.close()


def test_a_listener_that_has_expired_is_closed(testbed: Testbed) -> None:
    named: Brokers = [(1, "10.0.0.1", 9092)]
    proxy = testbed.proxy(naming(testbed, lambda: list(named)), limits=Limits(broker_expiry=0.2))
    client = testbed.client(proxy.address)
    (own,) = metadata_addresses(client)
    assert own[0] == "127.0.0.1"
    named.clear()
    assert next_event(proxy, BrokerGone).address == own
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(own, timeout=PATIENCE)
    named.append((2, "10.0.0.2", 9092))
    assert metadata_addresses(client)[0][0] == "127.0.0.1"


# -- names ---------------------------------------------------------------------------------------------------------


class SlowNames:
    """A name service that does not answer until it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.asked: list[str] = []
        monkeypatch.setattr(resolver, "look_up", self._look_up)

    def _look_up(self, host: str, port: int) -> Any:
        self.asked.append(host)
        self.go.wait(PATIENCE)
        return [(socket.AF_INET, ("127.0.0.1", port))] if host == "same" else OSError("no such name")


def test_names_are_looked_up_once_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowNames(monkeypatch)
    found = resolver.Resolver()
    answers: list[Any] = []
    for number in range(20):
        found.resolve(f"n{number % 10}", 9092, answers.append)
    assert found.known("n1", 9092) is None
    until(lambda: len(slow.asked) == resolver.THREADS)  # not one after the other
    slow.go.set()

    def all_there() -> bool:
        found.deliver()
        return len(answers) == 20

    until(all_there)
    assert sorted(slow.asked) == sorted(f"n{number}" for number in range(10))


def test_nothing_on_the_relays_thread_asks_the_name_service() -> None:
    """`look_up` is the only way to it, and only the resolver's threads call it."""
    import ast
    import inspect
    from pathlib import Path

    import barnabas.proxy as package

    asking = {"getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo", "getfqdn", "create_connection"}
    allowed = {"resolver.py": "look_up", "address_map.py": "listen"}
    other_processes = {"control", "feed", "metrics", "replay", "serve"}
    folder = Path(inspect.getfile(package)).parent
    for path in sorted(folder.rglob("*.py")):
        if path.relative_to(folder).parts[0] in other_processes:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name != allowed.get(path.name):
                named = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
                assert not named & asking or (path.name in ("resolver.py",) and function.name == "_work"), (path.name, function.name)
    assert Relay.__module__ == "barnabas.proxy.relay.loop"


def test_20_names_on_a_slow_resolver_cost_other_connections_nothing(testbed: Testbed) -> None:
    """Names below .invalid, each of which a resolver may take long for: another connection's requests go on meanwhile, and the
    response comes with addresses of the proxy whatever the resolver answers."""
    port: list[int] = []
    upstream = naming(testbed, lambda: [(number, f"broker-{number}.invalid", port[0]) for number in range(20)])
    port.append(upstream[1])
    proxy = testbed.proxy(upstream)
    client, other = testbed.client(proxy.address), testbed.client(proxy.address)
    client.sendall(METADATA)
    for number in range(50):
        assert wire.ask(other, wire.request(18, 0, number)) == wire.response(number, bytes(6))
    answer = decoder.decode_response(wire.read_frame(client)[4:], api_key=3, api_version=8).to_dict()
    assert {broker["host"] for broker in answer["brokers"]} == {"127.0.0.1"}
    assert len({broker["port"] for broker in answer["brokers"]}) == 20
    assert ITSELF
