"""What the recordings of clients that fetch, ask and connect show (tests/real/findings/scenarios/fetching.py), and what
they do not. The other tests of these detectors edit the same recordings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from traffic.recordings import findings, one


class Shown(NamedTuple):
    """The only finding of a detector: how often, or at least how often; texts that are in what was seen, why it matters
    and the remedy; what it is about, exactly or from one number to another."""

    recording: str
    detector: str
    severity: str
    count: int | None = None
    at_least: int = 1
    seen: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    about: Mapping[str, Any] = MappingProxyType({})
    between: Mapping[str, tuple[float, float]] = MappingProxyType({})


# fmt: off
SHOWN = [
    Shown("deleted-before-read", "offset-out-of-range", "medium", 1,
          seen=("offset 3 of f-deleted-before-read-0",
                "begins at 15: 12 records deleted before being read; it went on at 15"),
          why=("auto.offset.reset",), remedy=("retention.ms",),
          about={"error": "OFFSET_OUT_OF_RANGE", "log_start": 15}),
    Shown("out-of-range-loop", "offset-out-of-range", "high", 8, seen=("offset 5000", "the log ends at 3"),
          about={"partition": 0, "high_watermark": 3}),
    Shown("behind-a-transaction", "read-committed-stalled", "medium",
          seen=("stands at offset 0 of f-behind-a-transaction-0",
                "4 records behind it wait for an open transaction",
                "transactional.id 'booking-f-behind-a-transaction' of client 'booker'"),
          remedy=("transaction.timeout.ms",),
          about={"transactional_id": "booking-f-behind-a-transaction", "high_watermark": 4}),
    Shown("behind-a-transaction-with-a-session", "read-committed-stalled", "low",
          seen=("client 'auditor' (kafka-python",)),
    Shown("wrong-epoch", "fetch-error-loop", "high", 8, seen=("UNKNOWN_LEADER_EPOCH, 8 times",),
          remedy=("controller",), about={"error": "UNKNOWN_LEADER_EPOCH"}),
    Shown("empty-loop", "empty-fetch-loop", "low", at_least=60,
          seen=("client 'impatient'", "max_wait_ms=25, min_bytes=1"), remedy=("fetch.max.wait.ms", "fetch.min.bytes"),
          about={"max_wait_ms": 25, "topic": "f-empty-loop", "api_version": 16}, between={"per_second": (20, 40)}),
    Shown("falls-behind", "consumer-lag-growing", "low",
          seen=("client 'archiver' (kafka-python", "f-falls-behind-0"), about={"partitions": [0]},
          between={"lag": (5000, 1e9), "lag_per_second": (200, 900)}),
    Shown("small-limit", "batch-over-fetch-limit", "low", 8, seen=("at most 100 B per partition of f-small-limit",),
          remedy=("max.partition.fetch.bytes",), about={"batch_bytes": 770}),
    Shown("diverging-log", "log-truncated", "medium", seen=("cut by 5 records",),
          about={"offset": 9, "end_offset": 4, "epoch": 0}),
    Shown("client-per-record", "connection-churn", "medium", 13,
          seen=("makes a new client for every record or two", "client 'throwaway'"), remedy=("one producer",),
          about={"pattern": "a client per record", "api": "Produce"}),
    Shown("short-connections", "connection-churn", "low", 31, seen=("client 'probe'",),
          about={"pattern": "short connections"}),
    Shown("never-used", "unused-connections", "info", 7, seen=("opened 7 connections",)),
    Shown("request-too-large", "closed-without-answer", "medium", 3,
          seen=("left 1 request (OffsetCommit) without an answer",), about={"idle": False}),
    Shown("idle-connection", "closed-without-answer", "info", seen=("nothing was lost",), about={"idle": True}),
    Shown("no-answer", "unanswered-request", "high", 1,
          seen=("Metadata v5 of client 'patient'", "until the client ended the connection"),
          between={"waited_ms": (3900, 8000)}),
    Shown("commits-behind-fetch", "head-of-line-blocking", "low", 7,
          seen=("OffsetCommit of client 'one-lane'", "behind a Fetch"),
          about={"api": "OffsetCommit", "behind": "Fetch"}, between={"worst_ms": (350, 1e9)}),
    Shown("lists-topics", "metadata-storm", "low", at_least=25, seen=("client 'curious'",),
          remedy=("metadata.max.age.ms",), between={"per_second": (4, 6)}),
    Shown("unknown-topic", "unknown-topic-loop", "medium", at_least=5,
          seen=("'f-unknown-topic-mistyped'", "client 'typo' (kafka-python"),
          about={"error": "UNKNOWN_TOPIC_OR_PARTITION"}),
    Shown("illegal-name", "invalid-topic-name", "high", seen=("'orders, payments'", "' ' ','"),
          about={"topic": "orders, payments"}),
    Shown("made-by-asking", "topic-auto-created", "info", seen=("'f-made-by-asking-by-itself' (3 partitions)",)),
    Shown("node-stops", "partition-without-leader", "high", at_least=2, seen=("LEADER_NOT_AVAILABLE",),
          about={"partitions": ["f-node-stops-one-0"]}),
    Shown("unknown-session", "fetch-session-refused", "low", 6, seen=("client 'amnesiac'",),
          remedy=("max.incremental.fetch.session.cache.slots",), about={"error": "FETCH_SESSION_ID_NOT_FOUND"}),
    Shown("session-each-time", "fetch-session-churn", "low", 8, seen=("began a new fetch session",),
          remedy=("session_epoch",), about={"slots_full": False}),
    Shown("no-slot-left", "fetch-session-churn", "low", seen=("no slot is left",),
          remedy=("max.incremental.fetch.session.cache.slots",), about={"slots_full": True}),
]
WITH_SESSIONS = ["falls-behind", "behind-a-transaction-with-a-session", "empty-loop", "throttled-consumer"]
QUIET = {
    "empty-fetch-loop": ["short-wait", "deleted-before-read", "behind-a-transaction", "lists-topics"],
    "consumer-lag-growing": ["catches-up"],
    "read-committed-stalled": ["short-transaction"],
    "fetch-error-loop": ["error-that-passes"],
    "log-truncated": ["deleted-before-read"],
    "connection-churn": ["client-per-batch-job", "throttled-producer"],
    "unused-connections": ["short-connections"],
    "closed-without-answer": ["no-answer", "closes-in-a-long-poll", "short-connections", "client-per-record"],
    "undecodable-frame": ["lists-topics-seldom"],
    "unanswered-request": ["closes-in-a-long-poll", "never-used"],
    "throttled-by-quota": ["quota-not-reached"],
    "metadata-storm": ["lists-topics-seldom", "unknown-topic", "client-per-record", "topic-made-late", "node-stops"],
    "unknown-topic-loop": ["topic-made-late"],
    "invalid-topic-name": ["unknown-topic"],
    "topic-auto-created": ["topic-made-late"],  # somebody created it on purpose
    "replicas-out-of-sync": ["lists-topics"],
    "fetch-session-refused": WITH_SESSIONS,
    "fetch-session-churn": WITH_SESSIONS,
    "full-fetches": WITH_SESSIONS,
}
# fmt: on


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: f"{shown.recording}-{shown.detector}")
def test_what_a_recording_shows(shown: Shown) -> None:
    found = one(f"fetching-{shown.recording}", shown.detector)
    assert found.severity == shown.severity and found.first_ns is not None
    assert shown.count in (None, found.count) and found.count >= shown.at_least
    for part, texts in ((found.seen, shown.seen), (found.why, shown.why), (found.remedy, shown.remedy)):
        for text in texts:
            assert text in part
    assert {name: found.about[name] for name in shown.about} == shown.about
    assert all(low <= found.about[name] <= high for name, (low, high) in shown.between.items()), found.about


@pytest.mark.parametrize(("detector", "name"), [(detector, name) for detector in QUIET for name in QUIET[detector]])
def test_what_a_recording_does_not_show(detector: str, name: str) -> None:
    assert findings(f"fetching-{name}", detector) == []
