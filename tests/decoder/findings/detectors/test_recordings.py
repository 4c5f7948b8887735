"""What the recordings of real clients show (tests/real/findings/scenarios), by area, and what they do not. The other tests of
these detectors edit the same recordings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from traffic.conversations import SECOND
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
SHOWN = {
    "fetching": [
        Shown("deleted-before-read", "offset-out-of-range", "medium", 1,
              seen=("offset 3 of f-deleted-before-read-0",
                    "begins at 15: 12 records deleted before being read; it continued at offset 15"),
              why=("auto.offset.reset",), remedy=("retention.ms",),
              about={"error": "OFFSET_OUT_OF_RANGE", "log_start": 15}),
        Shown("out-of-range-loop", "offset-out-of-range", "high", 8, seen=("offset 5000", "the log ends at 3"),
              about={"partition": 0, "high_watermark": 3}),
        Shown("behind-a-transaction", "read-committed-stalled", "medium",
              seen=("at offset 0 of f-behind-a-transaction-0",
                    "4 records after it wait for an open transaction",
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
        Shown("diverging-log", "log-truncated", "medium", seen=("truncated by 5 records",),
              about={"offset": 9, "end_offset": 4, "epoch": 0}),
        Shown("client-per-record", "connection-churn", "medium", 13,
              seen=("creates a new client for every record or two", "client 'throwaway'"), remedy=("one producer",),
              about={"pattern": "a client per record", "api": "Produce"}),
        Shown("short-connections", "connection-churn", "low", 31, seen=("client 'probe'",),
              about={"pattern": "short connections"}),
        Shown("never-used", "unused-connections", "info", 7, seen=("opened 7 connections",)),
        Shown("request-too-large", "closed-without-answer", "high", 3,
              seen=("on OffsetCommit v7 (10073 bytes) instead of answering", "none was ever answered"),
              why=("socket.request.max.bytes",), about={"idle": False}),
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
    ],
    "producing": [
        Shown("acks-0", "acks-0", "medium", 5, seen=("client 'meter-1' (confluent-kafka-python", "acks=0"),
              about={"client_id": "meter-1", "topics": ["p-acks-0"]}),
        Shown("wrong-acks", "produce-refused", "high", seen=("INVALID_REQUIRED_ACKS",),
              about={"error": "INVALID_REQUIRED_ACKS", "partitions": ["p-wrong-acks-0"]}),
        Shown("invalid-record", "produce-refused", "high", seen=("INVALID_RECORD", "Compacted topic"),
              about={"error": "INVALID_RECORD", "partitions": ["p-invalid-record-0"]}),
        Shown("timed-out-but-written", "produce-refused", "medium", seen=("REQUEST_TIMED_OUT",),
              about={"error": "REQUEST_TIMED_OUT", "partitions": ["p-timed-out-but-written-0"]}),
        Shown("leader-moves", "produce-leader-retries", "info", 3,
              about={"error": "NOT_LEADER_OR_FOLLOWER", "partitions": ["p-leader-moves-0"], "metadata_asked": 3, "recovered": 1},
              between={"longest_ns": (1, SECOND - 1)}),
        Shown("reordered", "resent-without-idempotence", "low", why=("max.in.flight.requests.per.connection",),
              about={"effect": "order"}),
        Shown("timed-out-but-written", "resent-without-idempotence", "low", about={"effect": "twice"}),
        Shown("sequence-gap", "out-of-order-sequence", "high", 2, seen=("sequence 7 arrived, but 4 was expected",),
              about={"sequence": 7, "expected": 4, "client_id": "counter-1"}),
        Shown("sent-again", "duplicate-sends", "low", 2, seen=("acknowledged on the same connection",)),
        Shown("left-open", "transaction-left-open", "high", remedy=("transaction.timeout.ms",),
              about={"transactional_id": "deed-p-left-open", "timeout_ms": 1000},
              between={"longest_ns": (2 * SECOND, 4 * SECOND - 1)}),
        Shown("abandoned", "transaction-left-open", "medium", seen=("closed all of its connections",),
              about={"transactional_id": "will-p-abandoned", "timeout_ms": 60_000}),
        Shown("skewed", "partition-skew", "info", about={"partitions": 6, "topic": "p-skewed"}, between={"share": (0.801, 1)}),
        Shown("wrong-crc", "corrupt-batch", "high", 1, seen=("0x00003039", "sent damaged"), about={"crc_ok": False}),
    ],
    "versions": [
        Shown("group-protocol-off", "unsupported-version", "high", 3, why=("KIP-848",), remedy=("group.coordinator.rebalance.protocols",),
              about={"offered": (0, 1)}),
        Shown("group-described", "unsupported-version", "info"),  # a probe of an admin client, by Kafka 3.9.1
        Shown("api-versions-of-the-future", "api-versions-fallback", "info",
              seen=("ApiVersions v99", "it offers v0 to v4", "ms"), why=("KIP-511",), about={"went_on": True},
              between={"cost_ms": (0.001, 1e9)}),
        Shown("api-versions-given-up", "api-versions-fallback", "high", about={"went_on": False}),
        Shown("never-asks", "no-api-versions", "info", why=("KIP-35",), about={"used": {"Metadata": 12}}),
        Shown("gzip-librdkafka-2.10", "compression-off", "low", seen=("rdkafka-2.10.1",), why=("KAFKA-18659",), remedy=("2.11.1",),
              about={"offered": (3, 12)}, between={"uncompressed_bytes": (4097, 1e9)}),
        Shown("lost-sequence", "producer-id-not-renewed", "high", 14, why=("KIP-360",),
              about={"error": "OUT_OF_ORDER_SEQUENCE_NUMBER", "producer_epoch": 0}, between={"producer_id": (0, 1e18)}),
        Shown("answers-swapped", "odd-correlation-ids", "high", 4, about={"kind": "out of order"}),
        Shown("several-clients-on-one-connection", "client-identity-changes", "low", why=("KIP-13",),
              about={"names": ["'first'", "'second'", "one 1.0", "two 1.0"]}),
        Shown("plain-producer", "idempotence-unused", "info", 60, seen=("acks=all",), why=("KIP-98",),
              remedy=("enable.idempotence=true",)),
        Shown("leaving-and-coming", "static-membership-unused", "info", 3, why=("KIP-345",), remedy=("group.instance.id",),
              about={"group": "leaving-and-coming"}),
    ],
    "groups": [
        Shown("storm", "rebalance-storm", "medium", 13,
              seen=("13 generations", "client 'job'", "its first member joined (13)"),
              about={"causes": {"its first member joined": 13}}),
        Shown("held-up", "held-up-join", "high",
              seen=("client 'billing-busy'", "still sends heartbeats", "continued without it"),
              about={"rebalance_timeout_ms": 11_000}, between={"waited_ms": (10_001, 12_499)}),
        Shown("killed", "closed-without-leaving", "medium", seen=("client 'billing-doomed'", "(1 partition)"),
              between={"cost_ms": (5_001, 6_999)}),
        Shown("two-assignors", "inconsistent-group-protocol", "high",
              seen=("It has cooperative-sticky", "client 'old-release'"), about={"assignors": ["cooperative-sticky"]}),
        Shown("same-instance", "fenced-instance", "high",
              seen=("client 'host-1'", "client 'host-2'", "'billing-a'", "FENCED_INSTANCE_ID"), about={"instance_id": "billing-a"}),
        Shown("same-instance-new-protocol", "fenced-instance", "high", seen=("UNRELEASED_INSTANCE_ID", "kept out of")),
        Shown("poll-java", "poll-interval-exceeded", "medium", 1,
              seen=("with the reason 'consumer poll timeout has expired.'",)),
    ],
}
WITH_SESSIONS = ["falls-behind", "behind-a-transaction-with-a-session", "empty-loop", "throttled-consumer"]
QUIET = {
    "fetching": {
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
    },
    "producing": {
        "acks-0": ["acks-1", "commits"],
        "resent-without-idempotence": ["leader-moves", "too-few-replicas", "acks-1"],  # idempotent, not written, never sent again
    },
}
# fmt: on


@pytest.mark.parametrize(
    ("area", "shown"),
    [pytest.param(area, row, id=f"{area}-{row.recording}-{row.detector}") for area in SHOWN for row in SHOWN[area]],
)
def test_what_a_recording_shows(area: str, shown: Shown) -> None:
    found = one(f"{area}-{shown.recording}", shown.detector)
    assert found.severity == shown.severity and found.first_ns is not None
    assert shown.count in (None, found.count) and found.count >= shown.at_least
    for part, texts in ((found.seen, shown.seen), (found.why, shown.why), (found.remedy, shown.remedy)):
        for text in texts:
            assert text in part
    assert {name: found.about[name] for name in shown.about} == shown.about
    assert all(low <= found.about[name] <= high for name, (low, high) in shown.between.items()), found.about


@pytest.mark.parametrize(
    ("detector", "recording"), [(id_, f"{area}-{name}") for area in QUIET for id_, names in QUIET[area].items() for name in names]
)
def test_what_a_recording_does_not_show(detector: str, recording: str) -> None:
    assert findings(recording, detector) == []
