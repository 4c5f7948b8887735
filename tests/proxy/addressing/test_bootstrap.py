"""Several bootstrap brokers, as Kafka clients have them: the next one is tried when one is down, and then those found since."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.events import Address, BrokerFound, Listening, UpstreamFailed
from barnabas.proxy.relay.addressing.bootstrap import Bootstrap
from barnabas.proxy.relay.limits import Limits
from barnabas.ui.cli.common.address import parse_all
from barnabas.ui.cli.common.failure import Failure
from harness import wire
from harness.testbed import Testbed, next_event

from .cluster import Cluster, ask


def asked(testbed: Testbed, address: Address) -> tuple[int, dict[int, int]]:
    """A client's first question: who answers, and the ports of all brokers."""
    client = testbed.client(address)
    found = ask(client)
    assert found is not None
    client.close()
    return found


def test_the_next_one_is_tried_when_one_is_down(testbed: Testbed, tmp_path: Path) -> None:
    cluster, dead = Cluster(testbed, 2), testbed.closed_port()
    proxy = testbed.proxy(dead, more_upstreams=tuple(cluster.addresses), record=tmp_path)
    listening = next_event(proxy, Listening)
    assert "and 2 others" in listening.text
    assert asked(testbed, proxy.address)[0] == 0
    failed = next_event(proxy, UpstreamFailed)
    assert (tuple(failed.broker), failed.instead) == (dead, cluster.addresses[0]) and "trying 127.0.0.1" in failed.text
    # The one that worked is the first now: nobody waits for the one that is down again.
    assert asked(testbed, proxy.address)[0] == 0
    cluster.brokers[0].close()
    assert asked(testbed, proxy.address)[0] == 1
    proxy.stop()
    failures = [event for event in proxy.events() if isinstance(event, UpstreamFailed)]
    assert [tuple(event.broker) for event in failures] == [cluster.addresses[0]]
    with open_capture(tmp_path) as capture:
        brokers = [row.broker for row in capture.rows()]
    assert brokers == [f"127.0.0.1:{cluster.addresses[node][1]}" for node in (0, 0, 1)]


def test_brokers_that_were_found_are_tried_when_all_of_those_are_down(testbed: Testbed) -> None:
    cluster = Cluster(testbed, 4)
    proxy = testbed.proxy(cluster.addresses[0], more_upstreams=(cluster.addresses[1],))
    _, ports = asked(testbed, proxy.address)
    for broker in cluster.brokers[:2]:
        broker.close()
    assert asked(testbed, proxy.address)[0] == 2
    cluster.brokers[2].close()
    assert asked(testbed, proxy.address)[0] == 3
    # A listener that stands for one broker leads to that one only.
    assert refused(testbed, ("127.0.0.1", ports[2]))
    for broker in cluster.brokers:
        broker.close()
    assert refused(testbed, proxy.address)
    proxy.stop()
    last = [event for event in proxy.events() if isinstance(event, UpstreamFailed)][-1]
    assert last.instead is None and "start the broker" in last.text


def test_the_listener_of_a_single_one_leads_to_that_broker_only(testbed: Testbed) -> None:
    """Clients know it by the node id: another broker would answer what is not for it, for as long as the connection stands."""
    cluster = Cluster(testbed, 2)
    proxy = testbed.proxy(cluster.addresses[0])
    assert asked(testbed, proxy.address)[1][0] == proxy.address[1]
    cluster.brokers[0].close()
    assert refused(testbed, proxy.address)
    proxy.stop()
    (failed,) = [event for event in proxy.events() if isinstance(event, UpstreamFailed)]
    assert failed.instead is None


def refused(testbed: Testbed, address: Address) -> bool:
    """Whether a client's connection ends without an answer."""
    client = testbed.client(address)
    client.sendall(wire.request(18, 0, 1))
    return client.recv(1) == b""


def test_of_several_each_has_a_listener_of_its_own(testbed: Testbed, tmp_path: Path) -> None:
    """The bootstrap listener leads to any of them, so it stands for none; a single one's stands for it."""
    cluster = Cluster(testbed, 2)
    control = ControlConfig(directory=tmp_path)
    proxy = testbed.proxy(cluster.addresses[0], more_upstreams=(cluster.addresses[1],), control=control)
    _, ports = asked(testbed, proxy.address)
    assert len({*ports.values(), proxy.address[1]}) == 3
    for node, port in ports.items():
        assert asked(testbed, ("127.0.0.1", port))[0] == node
    assert {next_event(proxy, BrokerFound).node for _ in range(2)} == {0, 1}
    assert proxy.control is not None
    listed = Control(proxy.control.access.url, proxy.control.access.token).brokers()
    assert len(listed) == 3
    alone = testbed.proxy(cluster.addresses[0])
    assert asked(testbed, alone.address)[1][0] == alone.address[1]


def test_one_that_does_not_answer_in_time_is_left_for_the_next(testbed: Testbed) -> None:
    """As one that refuses."""
    cluster = Cluster(testbed, 1)
    with socket.socket() as full:  # its backlog takes nobody any more
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(full.getsockname())
        limits = Limits(connect_seconds=1.0)
        proxy = testbed.proxy(full.getsockname(), more_upstreams=tuple(cluster.addresses), limits=limits)
        assert asked(testbed, proxy.address)[0] == 0
        assert next_event(proxy, UpstreamFailed).instead is not None
        for sock in waiting:
            sock.close()


def test_the_order() -> None:
    a, b, c, d = ((name, 9092) for name in "abcd")
    learnt = [b, d]
    several = Bootstrap([a, b, c, a], lambda: learnt)
    assert several.given == [a, b, c] and several.first() == a
    assert [several.next([a]), several.next([a, b]), several.next([a, b, c]), several.next([a, b, c, d])] == [b, c, d, None]
    several.worked(c)
    assert [several.first(), several.next([c]), several.next([c, a, b])] == [c, a, d]
    several.worked(d)
    assert several.first() == d and several.next([d]) == a
    alone = Bootstrap([a], lambda: learnt)
    alone.worked(d)
    assert alone.first() == a and alone.next([a]) is None


def test_how_they_are_written() -> None:
    assert parse_all(["a:1,b", " c:3 , a:1", "[::1]:5"], "--broker", port=9092) == [("a", 1), ("b", 9092), ("c", 3), ("::1", 5)]
    for wrong in ("a:1,", ",", "a:1,,b:2", "a:1 b:2"):
        with pytest.raises(Failure, match="--broker"):
            parse_all([wrong], "--broker", port=9092)
