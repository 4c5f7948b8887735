"""Real clients, three real brokers, and everything that can go wrong between them: no acknowledged record is lost, an
idempotent producer's come once, the proxy stays, and no connection is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.decoder import Exchange, ExchangeDone, State
from barnabas.decoder.connection.events import Missing
from barnabas.decoder.connection.exchange import Marks
from barnabas.decoder.findings import Inspector
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import show
from harness.waiting import until
from real.brokers.broker import free_ports
from real.brokers.wireshark import tshark
from torture.proxy.peers import duplicates
from torture.proxy.peers.clients import Consumption, Production, check, make_topic, start, stop
from torture.proxy.peers.faulty_cluster import NODES, FaultyCluster, plan, three_brokers
from torture.proxy.peers.members import Transactions, member
from torture.proxy.peers.plain_clients import descriptors, taken, unfaulted, warm

pytestmark = [pytest.mark.real]


@pytest.fixture(scope="module")
def faulty() -> Iterator[FaultyCluster]:
    with three_brokers() as faulty:
        yield faulty


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("idempotent", "count"), [(True, 16), (False, 50)])
def test_faults_of_the_network_and_the_brokers(faulty: FaultyCluster, idempotent: bool, count: int, scale: float) -> None:
    """Every kind of `FAULTS`; with BARNABAS_TORTURE=20 200 of them."""
    topic = f"faults-{idempotent}"
    make_topic(faulty.cluster.bootstrap, topic, 3, NODES)
    faulty.settle()
    faulty.done.clear()
    faults = plan(max(count, int(10 * scale)), faulty.chance)
    with Proxy(ProxyConfig(upstream=faulty.address, probe=False, findings=True)) as proxy:
        relay = proxy._children["relay"]
        warm(proxy)
        before = descriptors(relay.pid)
        production, consumption = start(show(proxy.address), topic, idempotent)
        for fault in faults:
            production.goes_on()
            faulty.inject(fault, topic)
        production.goes_on()
        stop(production, consumption)
        check(production, consumption, idempotent)
        assert relay.poll() is None, "the proxy did not stay"
        # the listeners of the two brokers that were found stay
        until(lambda: descriptors(relay.pid) < before + NODES, "connections that do not end")
        unfaulted(taken(proxy))
    print(f"{dict(faulty.done)}, {len(production.acknowledged)} of {len(production.sent)} acknowledged")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_record_that_comes_twice_is_explained(faulty: FaultyCluster, tmp_path: Path, scale: float) -> None:
    """An idempotent producer under error and drop rules: see `peers.duplicates`."""
    make_topic(faulty.cluster.bootstrap, duplicates.TOPIC, 3, NODES)
    faulty.settle()
    options: dict[str, Any] = {"upstream": faulty.cluster.addresses[0], "probe": False, "lossless": True}
    with (
        Proxy(ProxyConfig(rules=duplicates.RULES, record=tmp_path / "produced", **options)) as proxy,
        Proxy(ProxyConfig(record=tmp_path / "read", **options)) as plain,
    ):
        production = Production(show(proxy.address), duplicates.TOPIC, True)
        production.start()
        production.goes_on(int(4000 * scale))
        consumption = Consumption(show(plain.address), duplicates.TOPIC)
        consumption.start()
        stop(production, consumption)
    check(production, consumption, False)
    records, requests = duplicates.appended(tmp_path / "read"), duplicates.sent(tmp_path / "produced")
    twice = {number: of for number, of in records.items() if sum(map(len, of.values())) > 1}
    assert twice.keys() == {number for number, times in consumption.read.items() if times > 1}
    reasons = {number: duplicates.why_twice(of, requests) for number, of in twice.items()}
    print(f"{len(production.acknowledged)} acknowledged, {len(twice)} twice: {dict(Counter(reasons.values()))}")
    assert not {number: dict(twice[number]) for number, why in reasons.items() if not why}


FIRST, AGAIN = (duplicates.Identity(0, 7, epoch, 5) for epoch in (0, 1))
DROPPED = ["rule 'appended, response dropped' (hit 1): response dropped"]


@pytest.mark.parametrize(
    ("offsets", "first", "explained"),
    [
        ([{5}, {9}], (None, DROPPED), True),
        ([{5}, {9}], (b"\0\0\0\0", []), False),  # the producer was told, and sent it again
        ([{5}, {9}], (None, []), False),  # nobody kept the answer from it
        ([{5}, {9}], (None, ["rule 'request dropped' (hit 1): request dropped"]), False),  # it cannot have been appended
        ([{5, 9}, {11}], (None, DROPPED), False),  # the broker had to recognise it
    ],
)
def test_which_duplicates_are_explained(
    offsets: list[set[int]], first: tuple[bytes | None, list[str]], explained: bool
) -> None:
    response, notes = first
    exchange = Exchange(
        connection=1, api_key=0, api_version=9, correlation_id=1, client_id="p", request=b"", request_time_ns=1, response=response,
        response_time_ns=2, state=State.PAIRED if response else State.NO_RESPONSE, marks=Marks(notes=notes),
    )  # fmt: skip
    assert bool(duplicates.why_twice(dict(zip((FIRST, AGAIN), offsets, strict=True)), {FIRST: [exchange], AGAIN: []})) == explained


OF_RESTARTS = (
    "Disconnected", "Connect to ", "Connection setup timed out", "timed out", "load in progress", "not found in cache",
)  # fmt: skip
"""What librdkafka logs of a broker that restarts. The last: a response names a leader that Metadata does not list yet."""

BOOTSTRAP_PURGED = "bootstrap: Local: Broker handle destroyed without termination: retrying"
"""What librdkafka may log at its start, on a busy machine, with and without a proxy: it asks for a producer id after 500 ms
and drops the handle of a bootstrap address that is no broker's own when Metadata comes, also if that was asked."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_all_brokers_restart_one_after_the_other(faulty: FaultyCluster, how: str) -> None:
    """As in an upgrade. Clients beside the proxy do the same at the same time: the outcome is that of theirs.
    None bootstraps at an address that Metadata names."""
    topics = {name: f"roll-{name}-{how}" for name in ("direct", "through")}
    for topic in topics.values():
        make_topic(faulty.cluster.bootstrap, topic, 3, NODES)
    with Proxy(ProxyConfig(upstream=faulty.cluster.addresses[0], probe=False)) as proxy:
        warm(proxy)
        bootstraps = {"direct": f"localhost:{faulty.cluster.addresses[0][1]}", "through": show(proxy.address)}
        settings = {"log_level": 6, "broker.address.family": "v4"}
        running = {name: start(bootstrap, topics[name], **settings) for name, bootstrap in bootstraps.items()}
        for production, _ in running.values():
            production.goes_on()
            kinds = production.complaints.kinds
            for kind in [kind for kind in kinds if BOOTSTRAP_PURGED in kind]:
                del kinds[kind]
        for node in faulty.cluster.nodes:
            for production, _ in running.values():
                production.goes_on(200)
            faulty.restart(node, signal.Signals[how])
            faulty.settle()
        for production, _ in running.values():
            production.goes_on(200)
        for production, consumption in running.values():
            stop(production, consumption)
            check(production, consumption, True)
            assert production.acknowledged == production.sent == consumption.read.keys()
        unfaulted(taken(proxy))
    for at in (0, 1):
        direct, through = (running[name][at].complaints.kinds for name in ("direct", "through"))
        print(direct, through, sep="\n")
        # which of these come is chance, also without a proxy
        strange = [kind for kind in through.keys() - direct.keys() if not any(each in kind for each in OF_RESTARTS)]
        assert not strange, "the clients log what those without a proxy do not"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_real_brokers_break_no_invariant(faulty: FaultyCluster, how: str, tmp_path: Path, scale: float) -> None:
    """Brokers that die and restart, leaders that move, groups that rebalance: no answer is one that Apache Kafka never gives."""
    topic = f"invariants-{how}"
    make_topic(faulty.cluster.bootstrap, topic, 6, NODES)
    faulty.settle()
    # A request that the recording lost makes what follows look as if the broker had made it up.
    with Proxy(ProxyConfig(upstream=faulty.address, probe=False, record=tmp_path, lossless=True)) as proxy:
        warm(proxy)
        bootstrap = show(proxy.address)
        production, consumption = start(bootstrap, topic)
        transactions = Transactions(bootstrap, topic)
        staying = {protocol: member(bootstrap, topic, protocol) for protocol in ("classic", "consumer", "python")}
        for turn in range(int(NODES * max(1.0, scale / 5))):
            production.goes_on(200)
            coming = [member(bootstrap, topic, protocol) for protocol in staying]
            faulty.move_leader(topic)
            faulty.restart(faulty.cluster.nodes[turn % NODES], signal.Signals[how])
            faulty.settle()
            before, ended = {protocol: each.read for protocol, each in staying.items()}, transactions.done
            for each in coming:
                each.stop()
            for protocol, each in staying.items():
                until(lambda each=each, was=before[protocol]: each.read > was, f"the {protocol} member reads nothing")
            until(lambda ended=ended: transactions.done > ended, "no transaction ends")
        for thread in (transactions, *staying.values()):
            thread.stop()
        production.stop()
        consumption.stop()
        unfaulted(taken(proxy))
    inspector = Inspector(["impossible-answer"])
    apis: Counter[str] = Counter()
    lost = 0
    with open_capture(tmp_path) as capture:
        for event in capture.events():
            if isinstance(event, ExchangeDone):
                apis[event.exchange.api] += 1
            elif isinstance(event, Missing):
                lost += event.size
            inspector.feed(event)
    found = [f"{each.seen} ({each.count})" for each in inspector.findings()]
    print(f"{apis}, {transactions.done} transactions, {lost} bytes lost")
    assert {"Produce", "Fetch", "JoinGroup", "ConsumerGroupHeartbeat", "OffsetCommit", "EndTxn"} <= apis.keys()
    assert not found, (found, f"{lost} bytes lost")


class Command:
    """`barnabas proxy` in a session of its own, recording."""

    def __init__(self, broker: tuple[str, int], listen: tuple[str, int], folder: Path) -> None:
        self.folder = folder
        words = [sys.executable, "-m", "barnabas", "proxy", "--broker", show(broker)]
        words += ["--listen", show(listen), "--record", str(folder), "--json"]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert self.process.stdout is not None
        self.first = json.loads(self.process.stdout.readline())
        # nobody reads on; a full pipe would hold up the supervisor, not the traffic

    def recorded(self) -> int:
        """Exchanges that a reader finds by now."""
        if not list(self.folder.glob("*.part")):
            return 0
        with open_capture(self.folder) as capture:
            return len(capture.rows())

    def kill(self) -> None:
        """All its processes at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_proxy_is_killed_while_a_producer_sends(faulty: FaultyCluster, tmp_path: Path, scale: float) -> None:
    """And started again on the same port: the same clients go on, nothing that was acknowledged is lost, nothing comes
    twice, and what had reached a recording can be read, here and by tshark."""
    topic = "killed"
    make_topic(faulty.cluster.bootstrap, topic, 3, NODES)
    faulty.settle()
    address = "127.0.0.1", free_ports(1)[0]
    production, through = start(show(address), topic)
    seen = []
    for round_ in range(max(2, int(scale))):
        command = Command(faulty.cluster.addresses[0], address, tmp_path / str(round_))
        try:
            production.goes_on(50)
            until(lambda command=command: command.recorded() > 20, "nothing is recorded")  # type: ignore[misc]
            seen.append(command.recorded())
        finally:
            command.kill()
    last = Command(faulty.cluster.addresses[0], address, tmp_path / "last")
    try:
        production.goes_on(50)
        direct = Consumption(faulty.cluster.bootstrap, topic)
        direct.start()
        stop(production, through, direct)
        for consumption in (through, direct):
            check(production, consumption, True)
    finally:
        last.kill()
    for round_, count in enumerate(seen):
        folder = tmp_path / str(round_)
        with open_capture(folder) as capture:
            exchanges = list(capture.exchanges())
            assert len(exchanges) >= count
            assert [e.undecoded for e in exchanges if e.undecoded] == []
        for segment in folder.glob("*.pcapng*"):
            assert malformed(segment) == []


def malformed(segment: Path) -> list[str]:
    """What tshark finds wrong, but for the torn end. It would guess at the protocol of ports that it does not know."""
    opening = tshark(segment, "-Y", "tcp.flags.syn==1 && tcp.flags.ack==0", "-T", "fields", "-e", "tcp.dstport", torn=True)
    assert opening
    plain = [part for port in sorted(set(opening)) for part in ("-d", f"tcp.port=={port},data")]
    return tshark(segment, *plain, "-Y", "_ws.malformed || tcp.analysis.flags", torn=True)
