"""Transparent mode, with real interfaces and rules in network namespaces: client, router with the proxy, broker.

Every day: a router with each mode and each IP version once, a machine that is its own router, the command, and what it
reports without rights. The other combinations are slow: each starts a proxy of fresh interpreters in a namespace."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.decoder import State
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import ClientRefused, ConnectionOpened, TlsFailed, UpstreamFailed
from barnabas.proxy.relay.addressing import netfilter
from barnabas.proxy.relay.addressing.netfilter import Interceptor
from barnabas.proxy.relay.addressing.transparent import EVERYWHERE, TransparentConfig
from barnabas.proxy.relay.negotiation.security import TlsConfig
from harness import commands, wire
from harness.peers.certificates import client_context, make, server_context
from harness.peers.namespaces import Namespaces, connect, inside, missing, run_in
from harness.run.lines import line
from harness.testbed import next_event
from harness.waiting import PATIENCE

pytestmark = pytest.mark.needs(why_not=missing)

V4, V6 = "10.77.2.2", "fd77:2::2"
# A user without rights, but for reading the interpreter's files wherever they are.
NOBODY = [
    "setpriv", "--reuid", "nobody", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search",
]  # fmt: skip


class Lab:
    """Namespaces, and what runs in them until the test ends."""

    def __init__(self) -> None:
        self.spaces = Namespaces()
        self.peers: list[tuple[Any, ...]] = []
        """Address and port of whoever connected to a broker."""
        self._closing: list[Callable[[], object]] = []

    def broker(self, space: str, host: str, port: int = 9092, tls: ssl.SSLContext | None = None) -> None:
        """Answers every frame with its own bytes behind the correlation id, and notes who connects."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = inside(space, lambda: socket.create_server((host, port), family=family))
        self._closing.append(server.close)

        def serve(sock: socket.socket) -> None:
            with sock:
                try:
                    talk = sock if tls is None else tls.wrap_socket(sock, server_side=True)
                except OSError:
                    return
                while frame := wire.read_frame(talk):
                    talk.sendall(wire.response(int.from_bytes(frame[8:12], "big"), frame))
                talk.close()

        def accept() -> None:
            while True:
                try:
                    sock, peer = server.accept()
                except OSError:
                    return
                self.peers.append(peer[:2])
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def proxy(self, space: str, mode: str, host: str = "::", keep_source: bool = False, **options: Any) -> Proxy:
        config = ProxyConfig(
            EVERYWHERE, (host, 19092), transparent=TransparentConfig(mode, keep_source), drain_seconds=0.5, **options
        )
        proxy = inside(space, lambda: Proxy(config).start())
        self._closing.append(proxy.stop)
        return proxy

    def intercept(self, space: str, mode: str = "redirect", ports: tuple[int, ...] = (9092,)) -> None:
        """Set the rules that ``barnabas transparent up`` sets."""
        inside(space, lambda: netfilter.up(Interceptor(ports, 19092, mode)))

    def exchange(self, space: str, address: tuple[str, int]) -> tuple[str, int]:
        """One request and its response from a namespace; the client's own address."""
        with connect(space, address) as client:
            sent = wire.request(18, 0, 5, b"x" * 100)
            assert wire.ask(client, sent) == wire.response(5, sent)
            assert client.getpeername()[:2] == address  # for the client nothing is different
            return client.getsockname()[:2]

    def close(self) -> None:
        for close in reversed(self._closing):
            close()
        self.spaces.close()


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.close()


def barnabas(space: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """``barnabas transparent ...`` in a namespace."""
    return run_in(space, sys.executable, "-P", "-m", "barnabas", "transparent", *arguments, check=check, stdin=subprocess.DEVNULL)


def rules(space: str) -> str:
    return run_in(space, "nft", "list", "ruleset").stdout + run_in(space, "ip", "rule").stdout


@pytest.mark.parametrize(
    ("mode", "host"),
    [
        ("redirect", V4),
        ("tproxy", V6),
        pytest.param("redirect", V6, marks=pytest.mark.slow),
        pytest.param("tproxy", V4, marks=pytest.mark.slow),
    ],
)
def test_a_router_takes_connections_to_brokers(lab: Lab, tmp_path: Path, mode: str, host: str) -> None:
    client, router, broker = lab.spaces.three()
    lab.broker(broker, host)
    lab.broker(broker, host, 9095)
    lab.intercept(router, mode, (9092, 9095))
    proxy = lab.proxy(router, mode, record=tmp_path)
    addresses = [lab.exchange(client, (host, port)) for port in (9092, 9095)]
    opened = [next_event(proxy, ConnectionOpened) for _ in range(2)]
    assert [tuple(event.client) for event in opened] == addresses
    assert [tuple(event.broker) for event in opened] == [(host, 9092), (host, 9095)]
    # the broker sees the router, whose address the client's was exchanged for
    assert {peer[0] for peer in lab.peers} == {"fd77:2::1" if ":" in host else "10.77.2.1"}
    proxy.stop()
    with open_capture(tmp_path) as capture:
        found = [(exchange.client, exchange.broker) for exchange in capture.exchanges()]
    shown = f"[{host}]" if ":" in host else host
    assert [broker for _, broker in found] == [f"{shown}:9092", f"{shown}:9095"]
    assert [client.rpartition(":")[2] for client, _ in found] == [str(port) for _, port in addresses]


@pytest.mark.slow
@pytest.mark.parametrize("host", [V4, V6])
def test_the_source_address_of_clients_is_kept(lab: Lab, host: str) -> None:
    client, router, broker = lab.spaces.three()
    lab.broker(broker, host)
    lab.intercept(router, "tproxy")
    lab.proxy(router, "tproxy", keep_source=True)
    for _ in range(3):
        assert lab.exchange(client, (host, 9092))[0] == ("fd77:1::2" if ":" in host else "10.77.1.2")
    assert {peer[0] for peer in lab.peers} == {"fd77:1::2" if ":" in host else "10.77.1.2"}


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "host"), [("redirect", V4), ("tproxy", V6)])
def test_tls_with_clients_and_brokers(lab: Lab, tmp_path: Path, mode: str, host: str) -> None:
    """The client is shown a certificate for whom it asked for, by name or by address, and the broker's has to be for
    the same one: it is verified as the client would have done."""
    client, router, broker = lab.spaces.three()
    ca = make(tmp_path, "ca", ca=True)
    for port, name in ((9092, "kafka.example"), (9095, host)):
        lab.broker(broker, host, port, server_context(make(tmp_path, f"broker-{port}", (name,), ca)))
    lab.intercept(router, mode, (9092, 9095))
    tls = TlsConfig(ca=tmp_path / "proxy", broker_ca=ca.path)
    proxy = lab.proxy(router, mode, tls=tls, record=tmp_path / "recording")
    trusting = client_context(tmp_path / "proxy" / "ca.pem")

    def exchange(port: int, name: str) -> None:
        with trusting.wrap_socket(connect(client, (host, port)), server_hostname=name) as sock:
            sent = wire.request(18, 0, 5, b"x" * 100)
            assert wire.ask(sock, sent) == wire.response(5, sent)

    exchange(9092, "kafka.example")
    exchange(9095, host)
    opened = [next_event(proxy, ConnectionOpened) for _ in range(2)]
    assert [tuple(event.broker) for event in opened] == [(host, 9092), (host, 9095)]
    for port, name in ((9092, host), (9092, "other.example"), (9095, "kafka.example")):
        with pytest.raises((OSError, AssertionError)):
            exchange(port, name)
        failed = next_event(proxy, TlsFailed)
        assert failed.side == "broker" and "the broker's certificate is for " in failed.reason
    proxy.stop()
    with open_capture(tmp_path / "recording") as capture:
        exchanges = list(capture.exchanges())
    # requests in vain are reported and recorded, too
    assert [exchange.state for exchange in exchanges] == [State.PAIRED] * 2 + [State.NO_RESPONSE] * 3


def test_names_of_other_brokers_do_not_go_with_it(tmp_path: Path) -> None:
    """A suffix would have to change the addresses that transparent mode leaves alone."""
    words = ["--transparent", "redirect", "--tls-ca", str(tmp_path / "ca"), "--sni-suffix", "kafka.example"]
    done = commands.run("proxy", *words)
    assert done.returncode == 2
    assert "--sni-suffix" in done.stderr and "--transparent" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("mode", "host"),
    [
        ("tproxy", "127.0.0.1"),
        pytest.param("tproxy", "::1", marks=pytest.mark.slow),
        pytest.param("redirect", "127.0.0.1", marks=pytest.mark.slow),
        pytest.param("redirect", "::1", marks=pytest.mark.slow),
    ],
)
def test_connections_made_on_the_same_machine(lab: Lab, mode: str, host: str) -> None:
    space = lab.spaces.one()
    lab.broker(space, host)
    lab.intercept(space, mode)
    proxy = lab.proxy(space, mode)
    lab.exchange(space, (host, 9092))
    assert tuple(next_event(proxy, ConnectionOpened).broker) == (host, 9092)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["redirect", "tproxy"])
def test_connections_from_the_router_itself(lab: Lab, mode: str) -> None:
    _, router, broker = lab.spaces.three()
    lab.broker(broker, V4)
    lab.intercept(router, mode)
    proxy = lab.proxy(router, mode, host="0.0.0.0")
    lab.exchange(router, (V4, 9092))
    assert tuple(next_event(proxy, ConnectionOpened).broker) == (V4, 9092)


@pytest.mark.slow
def test_a_proxy_without_rights_and_its_user_excluded(lab: Lab) -> None:
    """Its connections carry no mark then: without --exclude-uid they come back, which is seen and refused."""
    space = lab.spaces.one()
    lab.broker(space, "127.0.0.1")
    program = (
        "from barnabas.proxy import Proxy, ProxyConfig\n"
        "from barnabas.proxy.relay.addressing.transparent import EVERYWHERE, TransparentConfig\n"
        "with Proxy(ProxyConfig(EVERYWHERE, ('127.0.0.1', 19092), transparent=TransparentConfig('redirect'))) as proxy:\n"
        "    for event in proxy.events():\n"
        "        print(type(event).__name__, event.text, flush=True)\n"
    )
    process = inside(
        space,
        lambda: subprocess.Popen(
            [*NOBODY, sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, text=True, cwd="/"
        ),
    )
    try:
        assert process.stdout is not None
        assert line(process, "where it listens").startswith("Listening")
        barnabas(space, "up", "--yes", "--port", "9092", "--family", "ip")
        with connect(space, ("127.0.0.1", 9092)) as client:
            client.sendall(wire.request(18, 0, 1))
            try:
                assert client.recv(1) == b""
            except ConnectionResetError:
                pass
        while not (refused := line(process, "the refusal")).startswith("ClientRefused"):
            pass
        assert "came back to it" in refused and "--exclude-uid" in refused
        barnabas(space, "down")
        barnabas(space, "up", "--yes", "--port", "9092", "--family", "ip", "--exclude-uid", "nobody")
        lab.exchange(space, ("127.0.0.1", 9092))
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["redirect", "tproxy"])
def test_connections_to_the_proxy_itself_are_refused(lab: Lab, mode: str) -> None:
    client, router, _broker = lab.spaces.three()
    lab.intercept(router, mode)
    proxy = lab.proxy(router, mode)
    for space, host in ((client, "10.77.1.1"), (router, "127.0.0.1"), (client, "fd77:1::1")):
        with connect(space, (host, 19092)) as sock:
            assert sock.recv(1) == b""
        refused = next_event(proxy, ClientRefused)
        assert "connected to the proxy itself" in refused.text and "barnabas transparent up" in refused.text


@pytest.mark.slow
def test_without_rules_nothing_comes_and_nothing_breaks(lab: Lab) -> None:
    client, router, broker = lab.spaces.three()
    lab.broker(broker, V4)
    lab.proxy(router, "redirect")
    lab.exchange(client, (V4, 9092))
    assert lab.peers[0][0] == "10.77.1.2"


@pytest.mark.slow
def test_a_broker_that_is_down(lab: Lab) -> None:
    client, router, _broker = lab.spaces.three()
    lab.intercept(router)
    proxy = lab.proxy(router, "redirect")
    with connect(client, (V4, 9092)) as sock:
        assert sock.recv(1) == b""
    assert tuple(next_event(proxy, UpstreamFailed).broker) == (V4, 9092)


@pytest.mark.slow
def test_responses_keep_the_brokers_addresses(lab: Lab) -> None:
    """Metadata names the brokers themselves, also while rules stand."""
    from traffic.error_rules import error_rule

    space = lab.spaces.one()
    answer = wire.metadata_response(7, [(1, "broker-1.example", 9092), (2, "10.1.2.3", 9093)])
    server = inside(space, lambda: socket.create_server(("127.0.0.1", 9092)))

    def serve() -> None:
        for _ in range(2):
            sock, _ = server.accept()
            with sock:
                wire.read_frame(sock)
                sock.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    lab.intercept(space)
    for rules in (
        [],
        [error_rule("slow", api_key=3, error_code=3, after=100), error_rule("p", api_key=0, error_code=6)],
    ):
        proxy = lab.proxy(space, "redirect", rules=rules)
        with connect(space, ("127.0.0.1", 9092)) as client:
            assert wire.ask(client, wire.request(3, 8, 7, b"\xff\xff\xff\xff\x00\x00\x00")) == answer
        proxy.stop()
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["redirect", "tproxy"])
def test_up_and_down_leave_everything_else_alone(lab: Lab, mode: str) -> None:
    space = lab.spaces.one()
    run_in(space, "nft", "add table inet of_others; add chain inet of_others input")
    run_in(space, "ip", "rule", "add", "fwmark", "0x1", "lookup", "100")
    before = rules(space)
    dry = barnabas(space, "up", "--mode", mode, "--port", "9093", "--dry-run").stdout
    assert rules(space) == before
    asked = barnabas(space, "up", "--mode", mode, "--port", "9093", check=False)
    assert asked.returncode == 2 and asked.stdout == "" and "--yes" in asked.stderr and rules(space) == before
    output = barnabas(space, "up", "--mode", mode, "--port", "9093", "--yes").stdout
    assert output == dry and "barnabas_transparent" in output
    standing = rules(space)
    assert "9093" in standing and "of_others" in standing
    again = barnabas(space, "up", "--mode", mode, "--port", "9093", "--yes", check=False)
    assert again.returncode == 2 and "already" in again.stderr and rules(space) == standing
    removed = barnabas(space, "down").stdout
    assert "nft delete table inet barnabas_transparent" in removed
    assert rules(space) == before
    assert run_in(space, "ip", "-6", "rule").stdout.count("27494") == 0
    nothing = barnabas(space, "down", check=False)
    assert nothing.returncode == 2 and "nothing to remove" in nothing.stderr


def test_rules_that_cannot_all_be_set_are_not_set_at_all(lab: Lab) -> None:
    """The routing table is taken by somebody else's route."""
    space = lab.spaces.one()
    run_in(space, "ip", "route", "add", "local", "default", "dev", "lo", "table", "27494")
    failed = barnabas(space, "up", "--mode", "tproxy", "--port", "9092", "--yes", check=False)
    assert failed.returncode == 2 and "failed" in failed.stderr
    assert "barnabas_transparent" not in rules(space) and "0x6b66" not in rules(space)


def test_without_root_the_way_out_is_named(lab: Lab, tmp_path: Path) -> None:
    space = lab.spaces.one()
    done = run_in(
        space, *NOBODY, sys.executable, "-P", "-m", "barnabas",
        "transparent", "up", "--port", "9093", check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 2
    assert "sudo" in done.stderr and "transparent up --port 9093" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_command(lab: Lab) -> None:
    """`barnabas transparent up`, `barnabas proxy --transparent` until SIGTERM, and `barnabas transparent down`."""
    space = lab.spaces.one()
    before = rules(space)
    lab.broker(space, "127.0.0.1")
    barnabas(space, "up", "--port", "9092", "--yes")
    process = inside(
        space,
        lambda: subprocess.Popen(
            [sys.executable, "-P", "-m", "barnabas", "proxy", "--transparent", "redirect"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ),
    )
    try:
        assert process.stdout is not None
        assert "brokers' own addresses" in line(process, "where it listens")
        lab.exchange(space, ("127.0.0.1", 9092))
        while "to 127.0.0.1:9092" not in line(process, "the connection"):
            pass
    finally:
        process.terminate()
        out = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0, out
    barnabas(space, "down")
    assert rules(space) == before
