"""Detectors of offset commits on recorded groups."""

from __future__ import annotations

import itertools

import pytest
from barnabas.decoder import Exchange, ExchangeDone, RequestSeen
from traffic.edited_exchanges import copied, edited, exchange_of, position, refused
from traffic.recordings import GROUPS, findings, one, recording, summary

COMMIT_ERROR = "topics[0].partitions[0].error_code"


def test_a_commit_per_record() -> None:
    found = one("groups-commit-per-record", "commit-per-record")
    assert found.about["commits"] == 39 and "39 commits of orders-" in found.seen and found.count == 39
    assert found.severity == "low"
    # one record a second is a slow topic
    assert findings(edited(recording("groups-commit-per-record"), stretch=2000), "commit-per-record") == []


def test_a_commit_per_batch_is_right() -> None:
    assert findings("groups-commit-per-batch", "commit-per-record", "commit-backwards") == []


def test_a_commit_that_goes_backwards() -> None:
    found = one("groups-backwards", "commit-backwards")
    assert "commits offset 4 of orders-" in found.seen and found.about["back"] == 4 and found.severity == "low"
    tool = one("groups-reset-by-tool", "commit-backwards")
    assert tool.severity == "info" and "client 'admin'" in tool.seen and "client 'billing-1'" in tool.seen


def test_a_refused_commit_does_not_count_as_the_last_one() -> None:
    happened = edited(recording("groups-backwards"), refused("NOT_COORDINATOR", COMMIT_ERROR), "OffsetCommit")
    assert findings(happened, "commit-backwards", "commit-failed") == []


def test_what_is_refused_and_why() -> None:
    found = {f.about["error"]: f for f in findings("groups-commit-refused", "commit-failed")}
    assert found.keys() == {"UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_METADATA_TOO_LARGE"}
    assert "offset.metadata.max.bytes" in found["OFFSET_METADATA_TOO_LARGE"].remedy
    assert found["UNKNOWN_TOPIC_OR_PARTITION"].about["partition"] == 7


@pytest.mark.parametrize(("times", "expected"), [(2, set()), (3, {("commit-failed", "low")})])
def test_a_commit_that_meets_a_rebalance_is_normal_and_many_are_not(times: int, expected: set[tuple[str, str]]) -> None:
    # recorded commits, the first ones answered REBALANCE_IN_PROGRESS
    number = itertools.count()
    first = refused("REBALANCE_IN_PROGRESS", COMMIT_ERROR, lambda _: next(number) < times)
    happened = edited(recording("groups-commit-per-batch"), first, "OffsetCommit")
    assert summary(findings(happened, "commit-failed")) == expected


def test_a_commit_of_the_last_generation() -> None:
    (found,) = findings("groups-late-commit", *GROUPS)
    assert found.id == "stale-commit" and "generation 1, the group is at generation 2" in found.seen
    assert "ILLEGAL_GENERATION" in found.seen and "client 'slow-worker'" in found.seen


def test_a_commit_of_a_member_that_was_put_out() -> None:
    # The commits of a member go on after its LeaveGroup, refused as a coordinator does.
    happened = recording("groups-commit-per-batch")
    leave, done = (position(happened, kind, "LeaveGroup") for kind in (RequestSeen, ExchangeDone))
    commits = [n for n, h in enumerate(happened[:leave]) if (e := exchange_of(h)) and e.api == "OffsetCommit"][-2:]
    last = exchange_of(happened[commits[0]])
    assert last is not None
    error = refused("UNKNOWN_MEMBER_ID", COMMIT_ERROR)

    def refuse(e: Exchange) -> Exchange:
        return copied(error(e), answered_after=1) if e.correlation_id == last.correlation_id else e

    moved = [*happened[: commits[0]], *happened[leave : done + 1], *(happened[n] for n in commits)]
    assert summary(findings(edited(moved, refuse, "OffsetCommit"), "stale-commit", "commit-failed")) == {
        ("stale-commit", "medium")
    }


def test_an_outsider_is_named_with_the_members() -> None:
    (found,) = findings("groups-outsider-commits", "outsider-commit", "commit-failed")
    assert found.id == "outsider-commit" and "client 'offset-tool'" in found.seen and "client 'billing-1'" in found.seen
