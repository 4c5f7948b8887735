"""Detectors of offset commits on recorded groups."""

from __future__ import annotations

import pytest
from barnabas.decoder import Exchange, facts
from retold.groups import answered, copied, edited, findings, stretched, summary, told


def test_a_commit_per_record() -> None:
    (found,) = findings(told("commit-per-record"), "commit-per-record")
    assert found.about["commits"] == 39 and "39 commits of orders-" in found.seen and found.count == 39
    assert found.severity == "low"
    # one record a second is a slow topic
    assert findings(stretched(told("commit-per-record"), 2000), "commit-per-record") == []


def test_a_commit_per_batch_is_right() -> None:
    assert findings(told("commit-per-batch"), "commit-per-record", "commit-backwards") == []


def test_a_commit_that_goes_backwards() -> None:
    (found,) = findings(told("backwards"), "commit-backwards")
    assert "commits offset 4 of orders-" in found.seen and found.about["back"] == 4 and found.severity == "low"
    (tool,) = findings(told("reset-by-tool"), "commit-backwards")
    assert tool.severity == "info" and "client 'admin'" in tool.seen and "client 'billing-1'" in tool.seen


def test_a_refused_commit_does_not_count_as_the_last_one() -> None:
    def refused(exchange: Exchange) -> Exchange:
        if exchange.api != "OffsetCommit":
            return exchange
        return answered(exchange, {"topics[0].partitions[0].error_code": facts.error_code("NOT_COORDINATOR")})

    assert findings(edited(told("backwards"), refused), "commit-backwards", "commit-failed") == []


def test_what_is_refused_and_why() -> None:
    found = {f.about["error"]: f for f in findings(told("commit-refused"), "commit-failed")}
    assert found.keys() == {"UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_METADATA_TOO_LARGE"}
    assert "offset.metadata.max.bytes" in found["OFFSET_METADATA_TOO_LARGE"].remedy
    assert found["UNKNOWN_TOPIC_OR_PARTITION"].about["partition"] == 7


@pytest.mark.parametrize(("times", "expected"), [(2, set()), (3, {("commit-failed", "low")})])
def test_a_commit_that_meets_a_rebalance_is_normal_and_many_are_not(times: int, expected: set[tuple[str, str]]) -> None:
    # recorded commits, the first ones answered REBALANCE_IN_PROGRESS
    left = [times]

    def refused(exchange: Exchange) -> Exchange:
        if exchange.api != "OffsetCommit" or not left[0]:
            return exchange
        left[0] -= 1
        return answered(exchange, {"topics[0].partitions[0].error_code": facts.error_code("REBALANCE_IN_PROGRESS")})

    assert summary(findings(edited(told("commit-per-batch"), refused), "commit-failed")) == expected


def test_a_commit_of_the_last_generation() -> None:
    (found,) = findings(told("late-commit"))
    assert found.id == "stale-commit" and "generation 1, the group is at generation 2" in found.seen
    assert "ILLEGAL_GENERATION" in found.seen and "client 'slow-worker'" in found.seen


def test_a_commit_of_a_member_that_was_put_out() -> None:
    # The commits of a member go on after its LeaveGroup, refused as a coordinator does.
    happenings = list(told("commit-per-batch"))
    leave = next(
        i for i, h in enumerate(happenings) if getattr(getattr(h, "exchange", None), "api", "") == "LeaveGroup"
    )
    done = next(i for i, h in enumerate(happenings[leave:], leave) if type(h).__name__ == "ExchangeDone")
    last = [
        i
        for i, h in enumerate(happenings[:leave])
        if getattr(getattr(h, "exchange", None), "api", "") == "OffsetCommit"
    ][-2:]
    moved = [*happenings[: last[0]], *happenings[leave : done + 1], *(happenings[i] for i in last)]

    def refused(exchange: Exchange) -> Exchange:
        commits = [happenings[i] for i in last]
        if exchange is not getattr(commits[0], "exchange", None):
            return exchange
        edits = {"topics[0].partitions[0].error_code": facts.error_code("UNKNOWN_MEMBER_ID")}
        return copied(answered(exchange, edits), response_time_ns=(exchange.response_time_ns or 0) + 10**9)

    assert summary(findings(edited(moved, refused), "stale-commit", "commit-failed")) == {("stale-commit", "medium")}


def test_an_outsider_is_named_with_the_members() -> None:
    (found,) = findings(told("outsider-commits"), "outsider-commit", "commit-failed")
    assert found.id == "outsider-commit" and "client 'offset-tool'" in found.seen and "client 'billing-1'" in found.seen
