"""Real producers that do the wrong thing, through the proxy to a real broker: what is found in the recording."""

from __future__ import annotations

from pathlib import Path

import pytest
from real.brokers.broker import Cluster, start_cluster
from real.findings.scenarios.producing import SCENARIOS, answered_with_errors, record, tiny_batches
from real.findings.scenarios.scene import create, described, retimed
from real.findings.scenarios.scene import record as record_scene
from traffic.recordings import PRODUCING, findings

pytestmark = pytest.mark.real

EXPECTED: dict[str, dict[str, str]] = {
    "fenced": {"producer-fenced": "high"},
    "fetched": {},
    "acks-0": {"acks-0": "medium"},
    "acks-0-refused": {"acks-0": "high"},
    "too-large": {"produce-too-large": "high"},
    "leader-moves": {"produce-leader-retries": "info"},
    "left-open": {"transaction-left-open": "high", "producer-fenced": "high"},
    "wrong-crc": {"corrupt-batch": "high"},
    "invalid-record": {"produce-refused": "high"},
    "sequence-gap": {"out-of-order-sequence": "high"},
    "acks-1": {"acks-1": "info"},
    "tiny": {},
    "scattered": {},
    "uncompressed": {},
    "skewed": {"partition-skew": "info"},
    "reordered": {"resent-without-idempotence": "low", "produce-leader-retries": "info"},
    "too-few-replicas": {"not-enough-replicas": "low"},
    "timed-out-but-written": {"produce-refused": "medium", "resent-without-idempotence": "low"},
    "not-allowed": {},  # authorization-failed says it
    "unknown-producer-id": {"unknown-producer-id": "medium"},
    "invalid-state": {"transaction-refused": "high"},
    "abandoned": {"transaction-left-open": "medium"},
    "aborts": {"transactions-aborted": "low"},
    "commits": {},
    "sent-again": {"duplicate-sends": "low", "out-of-order-sequence": "medium"},
    "seven-in-flight": {"too-many-in-flight": "low"},
    "wrong-acks": {"produce-refused": "high"},
}
SECONDS = 4
"""No scene takes longer where nothing else is running. Where one did, its times are shortened to so much before the
detectors see them: a broker's refusal is worse the longer it lasts. Two scenes wait until a transaction has timed out."""


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_found(broker: Cluster, tmp_path: Path, name: str) -> None:
    recording = record(name, broker.addresses[0], tmp_path)
    found = findings(recording if name in ("left-open", "abandoned") else retimed(recording, SECONDS), *PRODUCING)
    worst = {f.id: str(f.severity) for f in reversed(found)}
    assert worst == EXPECTED[name], described(found)


@pytest.mark.slow
def test_tiny_batches_for_seconds(broker: Cluster, tmp_path: Path) -> None:
    create(broker.bootstrap, "p-ticks")
    recording = record_scene(broker.addresses[0], lambda b: tiny_batches(b, "p-ticks", 5000), tmp_path)
    found = findings(retimed(recording, 12, longer=True), *PRODUCING)
    assert [f.id for f in found] == ["tiny-batches"], described(found)


@pytest.mark.slow
def test_a_follower_is_really_missing(tmp_path: Path) -> None:
    with start_cluster(2, {"replica.lag.time.max.ms": 1000, "broker.session.timeout.ms": 3000}) as cluster:
        one = {"replica_assignment": [[1, 2]], "config": {"min.insync.replicas": "2"}}
        create(cluster.bootstrap, "p-missing", **one)
        cluster.nodes[1].stop()
        recording = record_scene(
            cluster.addresses[0], lambda b: answered_with_errors(b, "p-missing", 2, timeout_ms=6000), tmp_path
        )
    found = findings(recording, *PRODUCING)
    (missing,) = (f for f in found if f.id == "not-enough-replicas")
    assert missing.severity == "high" and missing.about["partitions"] == ["p-missing-0"], described(found)


def test_every_scenario_is_run() -> None:
    assert {*EXPECTED} == {*SCENARIOS}
