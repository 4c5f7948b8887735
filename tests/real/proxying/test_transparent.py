"""Real clients and brokers on one machine, and `barnabas transparent` between them: nobody's settings change."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.relay.addressing.transparent import EVERYWHERE, TransparentConfig
from harness.peers.namespaces import Namespaces, inside, missing, run_in
from harness.run.slices import only
from real.brokers.broker import Cluster, start_cluster
from real.clients.workloads import WORKLOADS, expected

pytestmark = pytest.mark.needs(why_not=missing)


@pytest.fixture(scope="module")
def machine() -> Iterator[tuple[str, Cluster]]:
    """A namespace with nothing but its loopback, and two brokers of its own in it: no process outside reaches them."""
    spaces = Namespaces()
    try:
        space = spaces.one()
        cluster = inside(space, lambda: start_cluster(2))
        try:
            yield space, cluster
        finally:
            cluster.stop()
    finally:
        spaces.close()


@pytest.mark.parametrize(
    ("mode", "workload"),
    only(
        itertools.product(("redirect", "tproxy"), ("kafka-python admin", "confluent-kafka produce_and_consume")),
        ("redirect", "kafka-python admin"),
    ),
)
def test_clients_notice_nothing(machine: tuple[str, Cluster], tmp_path: Path, mode: str, workload: str) -> None:
    space, cluster = machine
    command = [sys.executable, "-P", "-m", "barnabas", "transparent"]
    ports = [part for _, port in cluster.addresses for part in ("--port", str(port))]
    run_in(space, *command, "up", "--mode", mode, *ports, "--yes")
    try:
        config = ProxyConfig(EVERYWHERE, ("::", 19092), transparent=TransparentConfig(mode), record=tmp_path)
        proxy = inside(space, lambda: Proxy(config).start())
        try:
            found = inside(space, lambda: WORKLOADS[workload](cluster.bootstrap, f"{mode}-{workload.split()[0]}"))
        finally:
            proxy.stop()
    finally:
        run_in(space, *command, "down")
    assert found == expected(workload)
    assert [event.text for event in proxy.events() if event.warning] == []
    with open_capture(tmp_path) as capture:
        assert not capture.lost
        exchanges = list(capture.exchanges())
    assert [exchange.undecoded for exchange in exchanges if exchange.undecoded] == []
    # all of it came here, under the brokers' own addresses, and in the responses those stand unchanged
    brokers = {f"{host}:{port}" for host, port in cluster.addresses}
    assert {exchange.broker for exchange in exchanges} == brokers
    for exchange in exchanges:
        if exchange.api == "Metadata" and exchange.response_message is not None:
            named = exchange.response_message.to_dict()["brokers"]
            assert {f"{broker['host']}:{broker['port']}" for broker in named} <= brokers
