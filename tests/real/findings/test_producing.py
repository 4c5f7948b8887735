"""Real producers that do the wrong thing, through the proxy to a real broker: what is found in the recording."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.findings import Finding, Inspector
from barnabas.decoder.findings.batches import DETECTORS as BATCHES
from barnabas.decoder.findings.idempotence import DETECTORS as IDEMPOTENCE
from barnabas.decoder.findings.producing import DETECTORS as PRODUCING
from barnabas.proxy import ProxyConfig
from confluent_kafka.admin import AdminClient, NewTopic
from harness.proxies import Proxy
from real.broker import Cluster, start_cluster
from real.findings.scenarios_producing import SECONDS, answered_with_errors, record, tiny_batches

pytestmark = pytest.mark.real
AREA = [d.id for d in (*PRODUCING, *BATCHES, *IDEMPOTENCE)]

EXPECTED = {
    "fetched": {},
    "acks-0": {"acks-0": "medium"},
    "acks-0-refused": {"acks-0": "high"},
    "fenced": {"producer-fenced": "high"},
    "too-large": {"produce-too-large": "high"},
    "leader-moves": {"produce-leader-retries": "info"},
    "left-open": {"transaction-left-open": "high", "producer-fenced": "high"},
    "wrong-crc": {"corrupt-batch": "high"},
}
THE_REST = {
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


def look(recording: Path) -> list[Finding]:
    """What the detectors of this area find in it, the worst first."""
    inspector = Inspector(AREA)
    with open_capture(recording) as capture:
        for happening in capture.happenings():
            inspector.feed(happening)
    return inspector.findings()


def found(broker: Cluster, folder: Path, name: str) -> dict[str, str]:
    """By id, the severity of what a scenario gives; the worst where there are several."""
    return {f.id: str(f.severity) for f in reversed(look(record(name, broker.addresses[0], folder)))}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_found(broker: Cluster, tmp_path: Path, name: str) -> None:
    assert found(broker, tmp_path, name) == EXPECTED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", THE_REST)
def test_what_else_is_found(broker: Cluster, tmp_path: Path, name: str) -> None:
    assert found(broker, tmp_path, name) == THE_REST[name]


@pytest.mark.slow
def test_tiny_batches_for_seconds(broker: Cluster, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("p-ticks", 1, 1)])["p-ticks"].result(SECONDS)
    with Proxy(ProxyConfig(upstream=broker.addresses[0], record=tmp_path / "recording")) as proxy:
        host, port = proxy.address
        tiny_batches(f"{host}:{port}", "p-ticks", 30_000)
    assert [f.id for f in look(tmp_path / "recording")] == ["tiny-batches"]


@pytest.mark.slow
def test_a_follower_is_really_missing(tmp_path: Path) -> None:
    with start_cluster(2, {"replica.lag.time.max.ms": 1000, "broker.session.timeout.ms": 3000}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        new = NewTopic("p-missing", 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
        admin.create_topics([new])["p-missing"].result(SECONDS)
        cluster.nodes[1].stop()
        with Proxy(ProxyConfig(upstream=cluster.addresses[0], record=tmp_path / "recording")) as proxy:
            host, port = proxy.address
            answered_with_errors(f"{host}:{port}", "p-missing", 2)
    (finding,) = [f for f in look(tmp_path / "recording") if f.id == "not-enough-replicas"]
    assert finding.severity == "high" and finding.about["partitions"] == ["p-missing-0"]
