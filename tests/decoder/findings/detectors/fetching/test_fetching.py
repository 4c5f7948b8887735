"""Fetch detectors on recordings of real clients that are edited: other times, errors, offsets."""

from __future__ import annotations

import pytest
from barnabas.decoder.findings import Finding, Severity
from traffic.edited_exchanges import copied, slower
from traffic.recordings import exchanges, findings, one


def test_a_quicker_loop_costs_more() -> None:
    # The same requests ten times as quick, as with max_wait_ms=0.
    recorded = [copied(e, request={"max_wait_ms": 0}) for e in exchanges("fetching-empty-loop", "Fetch")]
    quick = slower(recorded, 0.1)
    longer = [copied(e, after=round * 0.43) for round in range(10) for e in quick]
    found = one(longer, "empty-fetch-loop")
    assert found.severity is Severity.MEDIUM and found.about["per_second"] >= 200


def test_a_lag_that_grows_for_minutes_is_worse() -> None:
    found = one(slower(exchanges("fetching-falls-behind", "Fetch"), 5), "consumer-lag-growing")
    assert found.severity is Severity.MEDIUM


def test_catching_up_and_short_bursts_are_no_lag() -> None:
    recorded = exchanges("fetching-falls-behind", "Fetch")
    first = recorded[0].request_time_ns or 0
    soon = [e for e in recorded if (e.response_time_ns or 0) - first < 14_000_000_000]
    assert len(soon) >= 6
    assert findings(soon, "consumer-lag-growing") == []
    # The same growth within a few seconds: a burst.
    burst = slower(recorded, 0.5)
    assert findings(burst, "consumer-lag-growing") == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (6, "NOT_LEADER_OR_FOLLOWER"), (100, "UNKNOWN_TOPIC_ID"), (56, "KAFKA_STORAGE_ERROR"),
        (74, "FENCED_LEADER_EPOCH"),
    ],
)  # fmt: skip
def test_each_error_has_its_remedy(code: int, name: str) -> None:
    recorded = exchanges("fetching-wrong-epoch", "Fetch")
    other = [copied(e, response={"responses[0].partitions[0].error_code": code}) for e in recorded]
    found = one(other, "fetch-error-loop")
    assert found.about["error"] == name
    first = one(recorded, "fetch-error-loop")
    assert found.remedy != first.remedy


def test_batches_within_the_limit_are_none() -> None:
    recorded = exchanges("fetching-small-limit", "Fetch")
    roomy = [copied(e, request={"topics[0].partitions[0].partition_max_bytes": 770}) for e in recorded if e.response_size]
    assert findings(roomy, "batch-over-fetch-limit") == []
    some = [e for e in recorded if e.response_message and e.response_message["responses[0].partitions[0].records"]][:4]
    assert len(some) == 4 and findings(some, "batch-over-fetch-limit") == []


def test_a_consumer_stuck_before_kip_74() -> None:
    # Brokers of 0.10.0 cut the batch at the limit: the same offset and the same cut batch each time.
    recorded = next(
        e
        for e in exchanges("fetching-small-limit", "Fetch")
        if e.response_message["responses[0].partitions[0].records"]
    )
    records = recorded.response_message["responses[0].partitions[0].records"]
    cut = [copied(recorded, after=n, response={"responses[0].partitions[0].records": records[:100]}) for n in range(4)]
    found = one(cut, "batch-over-fetch-limit")
    assert found.severity is Severity.HIGH and "is stuck at offset 0 of f-small-limit-0" in found.seen
    assert findings(cut[:2], "batch-over-fetch-limit") == []


def _sent_elsewhere(count: int, distance: float) -> list[Finding]:
    recorded = exchanges("fetching-wrong-epoch", "Fetch")[0]
    answer = {"responses[0].partitions[0].preferred_read_replica": 3, "responses[0].partitions[0].error_code": 0}
    return findings([copied(recorded, after=n * distance, response=answer) for n in range(count)], "read-replica-bouncing")


def test_a_read_replica_that_is_not_kept() -> None:
    # A cluster with racks is more than a test needs: the recorded answers name another replica.
    (found,) = _sent_elsewhere(6, 2)
    assert (found.severity, found.count) == (Severity.LOW, 6)
    assert "to broker 3 for f-wrong-epoch-0 6 times in 10.0 s" in found.seen and "KIP-392" in found.why
    assert _sent_elsewhere(6, 300) == []
    assert _sent_elsewhere(4, 1) == []


def test_a_log_that_is_shorter_than_what_was_read() -> None:
    read, asked, diverging = (exchanges("fetching-diverging-log")[n] for n in (-3, -2, -1))
    assert (asked.api, diverging.api) == ("OffsetForLeaderEpoch", "Fetch")
    assert findings([read, asked], "log-truncated") == []
    # Behind what the client has read: the answer of a leader that lacks the records.
    shorter = copied(asked, response={"topics[0].partitions[0].end_offset": 1})
    found = one([read, shorter], "log-truncated")
    assert (found.about["offset"], found.about["end_offset"]) == (2, 1)
    assert found.about["api"] == "OffsetForLeaderEpoch"


def test_an_error_of_many_partitions_is_one_finding() -> None:
    recorded = exchanges("fetching-out-of-range-loop", "Fetch")[1:]
    every = [
        copied(
            e,
            request={"topics[0].partitions[0].partition": n},
            response={"responses[0].partitions[0].partition_index": n},
        )
        for e in recorded
        for n in range(5)
    ]
    found = one(every, "offset-out-of-range")
    assert found.about["partitions"] == [0, 1, 2, 3, 4] and found.count == 40
    assert "was refused 8 times" in found.seen and "so were 4 other partitions of the topic" in found.seen
    wrong = [copied(e, response={"responses[0].partitions[0].error_code": 6}, after=i / 4) for i, e in enumerate(every)]
    loop = one(wrong, "fetch-error-loop")
    assert loop.about["error"] == "NOT_LEADER_OR_FOLLOWER" and "and 1 more" in loop.seen
