"""Groups that go wrong at a real broker, seen through the proxy: each scene must give its findings and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from real.brokers.broker import Cluster
from real.findings.scenarios.groups import SCENARIOS
from real.findings.scenarios.scene import described, record, retimed
from traffic.recordings import GROUPS, findings

pytestmark = pytest.mark.real

EVERYDAY = {"same-instance": {"fenced-instance"}}
OTHERS = {
    "killed": {"closed-without-leaving"},
    "short-lived": {"rebalance-storm"},
    "commit-per-record": {"commit-per-record"},
    "unsubscribed": set(),
    "rolling": set(),
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
SECONDS = {"short-lived": 60, "storm": 60, "commit-per-record": 5}
"""Scenes whose findings count by the second, and how long each takes at most where nothing else is running: where one took
longer, its times are shortened to so much before the detectors see them."""


@pytest.mark.parametrize("name", [*EVERYDAY, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_a_scene_has_its_findings_and_no_other(broker: Cluster, tmp_path: Path, name: str) -> None:
    recording = record(broker.addresses[0], SCENARIOS[name], tmp_path)
    found = findings(retimed(recording, SECONDS[name]) if name in SECONDS else recording, *GROUPS)
    assert {f.id for f in found} == (EVERYDAY | OTHERS)[name], described(found)


def test_every_scene_is_run() -> None:
    assert {*EVERYDAY, *OTHERS} == {*SCENARIOS}
