"""Groups that go wrong at a real broker, seen through the proxy: each scene must give its findings and no other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.findings import Finding, Inspector
from barnabas.decoder.findings.commits import DETECTORS as COMMITS
from barnabas.decoder.findings.membership import DETECTORS as MEMBERSHIP
from barnabas.decoder.findings.rebalances import DETECTORS as REBALANCES
from barnabas.proxy import ProxyConfig
from harness.proxies import Proxy
from real.broker import Cluster
from real.findings.scenarios_groups import SCENARIOS

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

AREA = [d.id for d in (*REBALANCES, *MEMBERSHIP, *COMMITS)]
QUICK = {
    "killed": {"closed-without-leaving"},
    "same-instance": {"fenced-instance"},
    "short-lived": {"rebalance-storm"},
    "commit-per-record": {"commit-per-record"},
    "unsubscribed": set(),
    "rolling": set(),
}
LONG = {
    "storm": {"rebalance-storm"},
    "poll-librdkafka": {"poll-interval-exceeded"},
    "poll-kafka-python": {"poll-interval-exceeded"},
    "poll-aiokafka": {"poll-interval-exceeded"},
    "poll-new-protocol": {"poll-interval-exceeded"},
    "poll-java": {"poll-interval-exceeded"},
    "poll-java-new-protocol": {"poll-interval-exceeded"},
    "same-instance-new-protocol": {"fenced-instance"},
    "killed-new-protocol": {"closed-without-leaving"},
    "static-member-closes": set(),
    "stopped": {"missed-heartbeats"},
    "held-up": {"held-up-join"},
    "two-assignors": {"inconsistent-group-protocol"},
    "session-too-short": {"group-refused"},
    "outsider-commits": {"outsider-commit"},
    "skewed": {"assignment-skew"},
    "too-many-members": {"idle-members"},
    "commit-per-batch": set(),
    "backwards": {"commit-backwards"},
    "reset-by-tool": {"commit-backwards"},
    "commit-refused": {"commit-failed"},
    "unknown-member": {"unknown-member"},
    "late-commit": {"stale-commit"},
    "slow-leader": {"slow-rebalance"},
}


def seen(broker: Cluster, folder: Path, name: str) -> list[Finding]:
    """Run a scenario behind a proxy of its own; what the recording shows."""
    with Proxy(ProxyConfig(upstream=broker.addresses[0], record=folder)) as proxy:
        SCENARIOS[name]("{}:{}".format(*proxy.address))
    inspector = Inspector(AREA)
    with open_capture(folder) as capture:
        for happening in capture.happenings():
            inspector.feed(happening)
    return inspector.findings()


@pytest.fixture(scope="module")
def quick(broker: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[list[Finding]]]]:
    """All quick scenes side by side."""
    folder = tmp_path_factory.mktemp("groups")
    with ThreadPoolExecutor(len(QUICK)) as pool:
        yield {name: pool.submit(seen, broker, folder / name, name) for name in QUICK}


@pytest.mark.parametrize("name", QUICK)
def test_quick_scenes(quick: dict[str, Future[list[Finding]]], name: str) -> None:
    found = quick[name].result()
    assert {f.id for f in found} == QUICK[name], [f.seen for f in found]


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_long_scenes(broker: Cluster, tmp_path: Path, name: str) -> None:
    found = seen(broker, tmp_path / name, name)
    assert {f.id for f in found} == LONG[name], [f.seen for f in found]


def test_every_scenario_is_run() -> None:
    assert {*QUICK, *LONG} == {*SCENARIOS}
