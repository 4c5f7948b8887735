"""Brokers that are kept down through the control API: as brokers that do not run, as clients see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.proxy.control import Control, ControlConfig, ControlError
from barnabas.proxy.events import Address, BrokersDown, UpstreamFailed
from harness.proxies import Proxy
from harness.testbed import Testbed, next_event
from harness.waiting import until

from .cluster import Cluster, ask


def controlled(testbed: Testbed, tmp_path: Path, upstream: Address, **options: object) -> tuple[Proxy, Control]:
    proxy = testbed.proxy(upstream, control=ControlConfig(directory=tmp_path), **options)
    assert proxy.control is not None
    return proxy, Control(proxy.control.access.url, proxy.control.access.token)


@pytest.mark.parametrize(("workers", "host"), [(1, "127.0.0.1"), (2, "localhost")])
def test_connections_end_and_new_ones_do_until_it_is_back(testbed: Testbed, tmp_path: Path, workers: int, host: str) -> None:
    cluster = Cluster(testbed, 2, host)
    proxy, control = controlled(testbed, tmp_path, cluster.addresses[0], more_upstreams=(cluster.addresses[1],), workers=workers)
    first = ask(testbed.client(proxy.address))
    assert first is not None
    there = {n: ("127.0.0.1", first[1][n]) for n in (0, 1)}
    standing = {n: testbed.client(there[n]) for n in (0, 1)}
    for n, client in standing.items():
        answer = ask(client)
        assert answer is not None and answer[0] == n
    assert [each["down"] for each in control.brokers() if each["node"] >= 0] == [False, False]
    control.keep_down([cluster.addresses[1]])
    assert next_event(proxy, BrokersDown).brokers == (f"{host}:{cluster.addresses[1][1]}",)
    assert {each["node"]: each["down"] for each in control.brokers() if each["node"] >= 0} == {0: False, 1: True}
    assert standing[1].recv(1) == b"" and ask(testbed.client(there[1])) is None
    assert next_event(proxy, UpstreamFailed, lambda event: tuple(event.broker) == cluster.addresses[1]).instead is None
    until(lambda: cluster.left[1] == 1, "the broker's own connection stands")
    assert ask(standing[0]) is not None  # nothing is wrong with the others
    # The bootstrap listener leads to those that are up, whichever was the first.
    control.keep_down([cluster.addresses[0]])
    found = ask(testbed.client(proxy.address))
    assert standing[0].recv(1) == b"" and found is not None and found[0] == 1
    control.keep_down([])
    for n in (0, 1):
        answer = ask(testbed.client(there[n]))
        assert answer is not None and answer[0] == n


def test_a_listener_that_stands_for_a_broker_leads_to_no_other(testbed: Testbed, tmp_path: Path) -> None:
    """With one bootstrap broker, clients are given its listener as that broker's address: they must not find another there."""
    cluster = Cluster(testbed, 2)
    proxy, control = controlled(testbed, tmp_path, cluster.addresses[0])
    first = ask(testbed.client(proxy.address))
    assert first is not None and first[0] == 0 and first[1][0] == proxy.address[1]
    control.keep_down([cluster.addresses[0]])
    assert ask(testbed.client(proxy.address)) is None


def test_what_is_no_list_of_addresses_is_refused(testbed: Testbed, tmp_path: Path) -> None:
    _, control = controlled(testbed, tmp_path, testbed.closed_port())
    for brokers in (None, "127.0.0.1:1", [["127.0.0.1"]], [["", 1]], [["a", 0]], [["a", "1"]], [[1, 1]], [["a", True]]):
        with pytest.raises(ControlError, match="brokers must be a list of up to 1000 addresses"):
            control._call("PUT", "/v1/brokers/down", body={"brokers": brokers})
