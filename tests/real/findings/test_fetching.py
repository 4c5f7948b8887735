"""Clients that fetch, ask and connect in the wrong way, live against a real broker: the finding is there, and first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from barnabas.decoder.findings import Finding, Severity
from real.brokers.broker import Cluster
from real.findings.scenarios.fetching import SCENARIOS, record, started
from real.findings.scenarios.scene import described, retimed
from traffic.recordings import findings

pytestmark = pytest.mark.real

# What each one is about, and how bad that is at least.
EXPECTED = {
    "deleted-before-read": ("offset-out-of-range", Severity.MEDIUM),
    "producer-per-record": ("connection-churn", Severity.MEDIUM),
    "empty-loop": ("empty-fetch-loop", Severity.LOW),
    "out-of-range-loop": ("offset-out-of-range", Severity.HIGH),
    "falls-behind": ("consumer-lag-growing", Severity.LOW),
    "behind-a-transaction": ("read-committed-stalled", Severity.MEDIUM),
    "behind-a-transaction-with-a-session": ("read-committed-stalled", Severity.LOW),
    "wrong-epoch": ("fetch-error-loop", Severity.HIGH),
    "small-limit": ("batch-over-fetch-limit", Severity.LOW),
    "diverging-log": ("log-truncated", Severity.MEDIUM),
    "unknown-session": ("fetch-session-refused", Severity.LOW),
    "session-each-time": ("fetch-session-churn", Severity.LOW),
    "no-slot-left": ("fetch-session-churn", Severity.LOW),
    "lists-topics": ("metadata-storm", Severity.LOW),
    "unknown-topic": ("unknown-topic-loop", Severity.MEDIUM),
    "illegal-name": ("invalid-topic-name", Severity.HIGH),
    "made-by-asking": ("topic-auto-created", Severity.INFO),
    "node-stops": ("partition-without-leader", Severity.HIGH),
    "no-answer": ("unanswered-request", Severity.HIGH),
    "commits-behind-fetch": ("head-of-line-blocking", Severity.LOW),
    "throttled-consumer": ("throttled-by-quota", Severity.MEDIUM),
    "throttled-producer": ("throttled-by-quota", Severity.MEDIUM),
    "client-per-record": ("connection-churn", Severity.MEDIUM),
    "short-connections": ("connection-churn", Severity.LOW),
    "never-used": ("unused-connections", Severity.INFO),
    "many-at-once": ("many-connections", Severity.INFO),
    "idle-connection": ("closed-without-answer", Severity.INFO),
    "request-too-large": ("closed-without-answer", Severity.HIGH),
    "unknown-api": ("undecodable-frame", Severity.INFO),
}
HEALTHY = [
    "short-wait",
    "short-transaction",
    "error-that-passes",
    "lists-topics-seldom",
    "topic-made-late",
    "closes-in-a-long-poll",
    "quota-not-reached",
    "client-per-batch-job",
    "all-partitions-each-time",
    "steady-asker",
]
HERE = {id for id, _ in EXPECTED.values()}


@pytest.fixture(scope="module")
def clusters(broker: Cluster) -> Iterator[dict[str, Cluster]]:
    """The session's broker, and others as they are needed."""
    known = {"plain": broker, "silent": broker}
    with ExitStack() as stack:

        class Started(dict[str, Cluster]):
            def __missing__(self, setting: str) -> Cluster:
                self[setting] = stack.enter_context(started(setting))
                return self[setting]

        yield Started(known)


RETIMED: dict[str, dict[str, Any]] = {
    "empty-loop": {"rate": ("Fetch", 30)},
    "lists-topics": {"rate": ("Metadata", 4.9)},
    "topic-made-late": {"seconds": 2.5},
    "client-per-record": {"seconds": 20},
    "producer-per-record": {"seconds": 20},
    "short-connections": {"seconds": 20},
}
"""Scenes whose findings count by the second: as quick as they are where nothing else is running (see `retimed`)."""


def found_in(name: str, clusters: dict[str, Cluster], folder: Path) -> list[Finding]:
    recording = record(name, clusters[SCENARIOS[name].setting], folder)
    return findings(retimed(recording, **RETIMED[name]) if name in RETIMED else recording)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_what_goes_wrong_is_found(name: str, clusters: dict[str, Cluster], tmp_path: Path) -> None:
    id, severity = EXPECTED[name]
    found = found_in(name, clusters, tmp_path)
    mine = [f for f in found if f.id == id]
    assert mine and mine[0].severity.rank >= severity.rank, described(found)
    if severity.rank >= Severity.MEDIUM.rank:
        assert found[0].severity is mine[0].severity, described(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_near_misses_are_silent(name: str, clusters: dict[str, Cluster], tmp_path: Path) -> None:
    found = found_in(name, clusters, tmp_path)
    assert not [f for f in found if f.id in HERE and f.severity is not Severity.INFO], described(found)


def test_every_scenario_is_judged() -> None:
    assert {*EXPECTED, *HEALTHY, "catches-up"} == set(SCENARIOS)
