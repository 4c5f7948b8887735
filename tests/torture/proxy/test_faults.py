"""Real clients and real brokers under faults: no acknowledged record is lost, the proxy stays, no connection hangs."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import ConnectionClosed, Event
from real.broker import Cluster, Node, free_ports, start_cluster
from torture.proxy.clients import Consumption, Production, check, make_topic
from torture.proxy.peers import Broker, connect, descriptors, echo, pid_of, read_frame, reset
from torture.proxy.test_correlation import heartbeat
from torture.proxy.unruly import Unruly


def shown(proxy: Proxy) -> str:
    host, port = proxy.address
    return f"{host}:{port}"


def taken(proxy: Proxy) -> list[Event]:
    """The events so far."""
    found = []
    while (event := proxy.next_event(0)) is not None:
        found.append(event)
    return found


def unfaulted(events: list[Event]) -> None:
    kinds = Counter(type(event).__name__ for event in events)
    assert not kinds["ProcessFailed"] and not kinds["RelayFault"], [e.text for e in events if e.warning][:5]


@pytest.fixture(scope="module")
def broken_way() -> Iterator[tuple[Cluster, Unruly]]:
    """One broker that is reached by an unruly way only: that is the address it tells clients."""
    (port,) = free_ports(1)
    cluster = start_cluster(1, {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    way = Unruly(port, cluster.addresses[0])
    yield cluster, way
    way.close()
    cluster.stop()


@pytest.mark.real
@pytest.mark.xdist_group("real")
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_broken_way_to_the_broker(broken_way: tuple[Cluster, Unruly], idempotent: bool, scale: float) -> None:
    cluster, way = broken_way
    topic = f"broken-{idempotent}"
    make_topic(cluster.bootstrap.replace(str(cluster.addresses[0][1]), str(way.port)), topic)
    chance = random.Random(idempotent)
    before = way.faults
    with Proxy(ProxyConfig(upstream=("127.0.0.1", way.port), probe=False, findings=True)) as proxy:
        relay = proxy._children["relay"].pid
        production = Production(shown(proxy), topic, idempotent)
        consumption = Consumption(shown(proxy), topic)
        production.start()
        consumption.start()
        deadline = time.monotonic() + 4 * scale
        while time.monotonic() < deadline or way.faults - before < 120 * scale:
            fault = chance.choice(
                ("near", "near", "far", "far", "half", "one", "one", "refuse", "silent", "bytes", "bursts")
            )
            if fault == "refuse":
                way.refuse(chance.choice((0.05, 0.3)))
            elif fault in ("silent", "bytes", "bursts"):
                way.be(fault, 0.2)
            elif fault == "one":
                way.break_all(chance.choice(("near", "far")), 1)
            else:
                way.break_all(fault)
            time.sleep(chance.choice((0.0, 0.02, 0.1)))
            assert time.monotonic() < deadline + 40
        production.stop()
        consumption.until(production.acknowledged)
        consumption.stop()
        check(production, consumption, idempotent)
        assert proxy._children["relay"].pid == relay and proxy._children["relay"].poll() is None
        time.sleep(0.5)
        events = taken(proxy)
        unfaulted(events)
        kinds = Counter(type(event).__name__ for event in events)
        assert kinds["ConnectionOpened"] == kinds["ConnectionClosed"] or kinds["Suppressed"], (
            "connections that do not end"
        )
    assert len(production.acknowledged) > 200
    print(
        f"{way.faults - before} faults, {len(production.acknowledged)} acknowledged, {kinds['ConnectionOpened']} connections"
    )


def test_ends_at_any_point() -> None:
    """Scripted connections end in the middle of anything, by either side; nothing is left of them."""
    chance = random.Random(4)

    def script(sock: socket.socket) -> None:
        fate = chance.random()
        if fate < 0.4:
            echo(sock)
            return
        for _ in range(chance.randrange(4)):
            frame = read_frame(sock)
            sock.sendall((len(frame) + 4).to_bytes(4, "big") + frame[8:12] + frame)
        sock.sendall(b"\0\0\x10\0"[: chance.randrange(5)])
        if fate < 0.8:
            reset(sock)

    with Broker(script) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False)) as proxy:
        connect(proxy.address).close()
        while not isinstance(proxy.next_event(20), ConnectionClosed):
            pass
        relay = pid_of(proxy, "relay")
        base = descriptors(relay)
        for round_ in range(120):
            sock = connect(proxy.address)
            frame = heartbeat(round_).request
            try:
                for _ in range(chance.randrange(4)):
                    sock.sendall(frame)
                sock.sendall(frame[: chance.randrange(len(frame))])
                if chance.random() < 0.3:
                    sock.shutdown(socket.SHUT_WR)
                    sock.settimeout(5)
                    while sock.recv(4096):
                        pass
            except OSError:
                pass
            reset(sock) if chance.random() < 0.5 else sock.close()
        deadline = time.monotonic() + 15
        while descriptors(relay) > base and time.monotonic() < deadline:
            time.sleep(0.05)
        assert descriptors(relay) <= base, "connections that do not end"
        events = taken(proxy)
        unfaulted(events)
        assert sum(isinstance(event, ConnectionClosed) for event in events) > 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with start_cluster(nodes=3) as cluster:
        yield cluster


@pytest.mark.real
@pytest.mark.xdist_group("real")
@pytest.mark.parametrize(
    ("how", "rounds"),
    [
        pytest.param("kill", (1,), id="one killed"),
        pytest.param("kill", (1, 2, 1, 2), id="two killed in turn, twice", marks=pytest.mark.slow),
        pytest.param("stop", (1, 2), id="two stopped in turn", marks=pytest.mark.slow),
    ],
)
def test_brokers_restart_one_after_the_other(cluster: Cluster, how: str, rounds: tuple[int, ...]) -> None:
    """Leaders move, connections break, addresses come back; the outcome is that without a proxy, beside it."""
    topics = {name: f"roll-{name}-{how}-{len(rounds)}" for name in ("direct", "through")}
    for topic in topics.values():
        make_topic(cluster.bootstrap, topic, 3, 3)
    with Proxy(ProxyConfig(upstream=cluster.addresses[0], probe=False)) as proxy:
        bootstraps = {"direct": cluster.bootstrap, "through": shown(proxy)}
        running = {}
        for name, bootstrap in bootstraps.items():
            topic = topics[name]
            running[name] = Production(bootstrap, topic, name == "through", 0.002), Consumption(bootstrap, topic)
            for thread in running[name]:
                thread.start()
        time.sleep(1)
        # the first node is the controller: without it no leader can move
        for place in rounds:
            node = cluster.nodes[place]
            end(node, how)
            time.sleep(1.0)
            node.start()
            node.wait_until_ready(time.monotonic() + 60)
            time.sleep(1.5)
        for name, (production, consumption) in running.items():
            production.stop(90)
            consumption.until(production.acknowledged, 60)
            consumption.stop()
            check(production, consumption, name == "through")
            assert len(production.acknowledged) > 300, name
            assert not production.failures, name
        unfaulted(taken(proxy))
        for name, (production, _) in running.items():
            print(f"{name}: {len(production.acknowledged)} of {len(production.sent)} acknowledged")


def end(node: Node, how: str) -> None:
    """End a broker's JVM but keep its data."""
    assert node.process is not None
    children = Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children").read_text()
    (jvm,) = map(int, children.split())
    os.kill(jvm, signal.SIGKILL if how == "kill" else signal.SIGTERM)
    node.process.wait(30)
