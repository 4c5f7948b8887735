"""A wire that loses and repeats packets, below TCP: what comes out is what went in, and real clients lose no record.

nftables drop every thirtieth packet on a loopback of the test's own, and send every fiftieth twice; what TCP then sends again
comes late and out of order. Resets are spared: nobody sends one again, and the other side would wait for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import show
from harness.peers.namespaces import Namespaces, inside, missing, run_in
from real.brokers.broker import start_cluster
from torture.proxy import volume
from torture.proxy.peers.clients import Consumption, Production, check, make_topic, start, stop
from torture.proxy.peers.plain_clients import taken, unfaulted

pytestmark = [pytest.mark.slow, pytest.mark.needs(why_not=missing), pytest.mark.timeout(900)]

RULES = """
table ip lossy {
    chain out {
        type filter hook output priority 0;
        tcp flags & rst != rst numgen random mod 30 == 0 counter drop
        tcp flags & rst != rst numgen random mod 50 == 0 counter dup to 127.0.0.1 device lo
    }
}
"""


@pytest.fixture
def space() -> Iterator[str]:
    """A namespace whose loopback carries packets of Ethernet's size, one by one."""
    spaces = Namespaces()
    try:
        name = spaces.one()
        run_in(name, "ip", "link", "set", "lo", "mtu", "1500", "gso_max_segs", "1")
        yield name
    finally:
        spaces.close()


def harm(space: str) -> None:
    """From now on."""
    run_in(space, "nft", "-f", "-", input=RULES)


def harmed(space: str) -> list[int]:
    """How many packets were lost, and how many came twice."""
    listed = run_in(space, "nft", "list", "table", "ip", "lossy").stdout
    return [int(number) for number in re.findall(r"counter packets (\d+)", listed)]


def test_bytes_are_the_same(space: str, tmp_path: Path, scale: float) -> None:
    harm(space)
    found = inside(space, lambda: volume.run(volume.Volume(5), 0.05 * scale, print, record=tmp_path))
    lost, twice = harmed(space)
    assert lost > 100 and twice > 100
    print(f"{found.moved / 1e6:.0f} MB on {found.connections} connections, {lost} packets lost, {twice} repeated")


def test_no_record_is_lost(space: str, tmp_path: Path, scale: float) -> None:
    def run() -> tuple[Production, Consumption]:
        with start_cluster() as cluster:
            make_topic(cluster.bootstrap, "lossy")
            harm(space)
            with Proxy(ProxyConfig(upstream=cluster.addresses[0], probe=False, record=tmp_path)) as proxy:
                production, consumption = start(show(proxy.address), "lossy")
                for _ in range(int(30 * scale)):
                    production.goes_on(100)
                stop(production, consumption)
                unfaulted(taken(proxy))
            return production, consumption

    production, consumption = inside(space, run)
    check(production, consumption, True)
    lost, twice = harmed(space)
    assert lost > 100 and twice > 10
    with open_capture(tmp_path) as capture:
        assert not [each for each in capture.exchanges() if each.undecoded]
    print(f"{len(production.acknowledged)} records, {lost} packets lost, {twice} repeated")
