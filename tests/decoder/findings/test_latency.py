"""Latency and quota detectors on recordings; late answers are recorded ones with their times changed."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.decoder import Exchange
from barnabas.decoder.exchange import State
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.decoder.happening import Closed, Opened
from retold.exchanges import SECOND, again, look, recorded

Replay = Callable[..., list[Finding]]


def test_a_request_without_an_answer(replay: Replay) -> None:
    (found,) = replay("fetching-no-answer", only=["unanswered-request"])
    assert found.severity is Severity.HIGH and found.count == 1
    assert "Metadata v5 of client 'patient'" in found.seen and "until the client ended the connection" in found.seen
    assert 3900 <= found.about["waited_ms"] <= 8000


def test_leaving_in_a_long_poll_is_orderly(replay: Replay) -> None:
    assert replay("fetching-closes-in-a-long-poll", only=["unanswered-request"]) == []
    assert replay("fetching-never-used", only=["unanswered-request"]) == []


def _waiting(told: Exchange, seconds: float) -> list[Finding]:
    """`told` is asked and nothing comes, while other things happen for that long."""
    inspector = Inspector(["unanswered-request"])
    inspector.request(again(told, state=State.PENDING, response=None, response_time_ns=None))
    inspector.feed(Opened(99, "127.0.0.1:1", told.broker, (told.request_time_ns or 0) + int(seconds * SECOND)))
    first = inspector.findings()
    assert [f.count for f in inspector.findings()] == [f.count for f in first]  # asked again, told once
    return first


def test_a_request_that_still_waits() -> None:
    asked = recorded("fetching-steady-asker", "ListOffsets")[0]
    assert _waiting(asked, 20) == []
    (found,) = _waiting(asked, 45)
    assert "got no answer for 45.0 s, so far" in found.seen
    (poll,) = recorded("fetching-commits-behind-fetch", "Fetch")[:1]
    long = again(poll, request={"max_wait_ms": 60_000})
    assert _waiting(long, 50) == []
    assert len(_waiting(long, 70)) == 1


def test_commits_behind_a_fetch(replay: Replay) -> None:
    (found,) = replay("fetching-commits-behind-fetch", only=["head-of-line-blocking"])
    assert (found.severity, found.count) == (Severity.LOW, 7)
    assert (
        found.about["api"] == "OffsetCommit"
        and "OffsetCommit of client 'one-lane'" in found.seen
        and "behind a Fetch" in found.seen
    )
    assert found.about["behind"] == "Fetch" and found.about["worst_ms"] >= 350


def test_a_metadata_request_behind_a_fetch_is_worth_knowing_at_most(replay: Replay) -> None:
    for name in ("short-wait", "behind-a-transaction", "throttled-consumer", "falls-behind"):
        assert all(f.severity is Severity.INFO for f in replay(f"fetching-{name}", only=["head-of-line-blocking"]))


def _late(every: int, seconds: float) -> list[Exchange]:
    told = recorded("fetching-steady-asker", "ListOffsets")
    first = told[0].request_time_ns or 0
    late = [again(e, after=n, answered_after=seconds if n % every == 0 else 0) for n, e in enumerate(told * 2)]
    for n, e in enumerate(late):  # one each half second
        took = (e.response_time_ns or 0) - (e.request_time_ns or 0)
        e.request_time_ns = first + n * SECOND // 2
        e.response_time_ns = e.request_time_ns + took
    return late


def test_some_answers_far_over_the_usual() -> None:
    (found,) = look(_late(12, 0.4), "slow-answers")
    assert found.severity is Severity.LOW and 6 <= found.count <= 12
    assert "for ListOffsets" in found.seen and found.about["worst_ms"] >= 400 and found.about["median_ms"] < 40
    (worse,) = look(_late(12, 1.5), "slow-answers")
    assert worse.severity is Severity.MEDIUM


def test_pauses_that_are_few_or_short_are_none() -> None:
    assert look(_late(60, 0.4), "slow-answers") == []
    assert look(_late(12, 0.15), "slow-answers") == []
    assert look(recorded("fetching-steady-asker"), "slow-answers") == []


def test_an_api_that_is_slow_as_a_rule() -> None:
    (found,) = look(_late(1, 0.35), "slow-answers")
    assert found.severity is Severity.LOW and "as a rule" in found.seen and found.about["usual"]
    assert look(_late(1, 0.2), "slow-answers") == []


def _two_brokers(slow: float) -> list[Finding]:
    told = recorded("fetching-steady-asker", "ListOffsets")
    (metadata,) = recorded("fetching-lists-topics-seldom", "Metadata")[:1]
    broker = metadata.response_message["brokers"][0]
    both = [broker | {"node_id": n, "host": "127.0.0.1", "port": 40000 + n} for n in (1, 2)]
    known = again(metadata, response={"brokers": both}, broker="127.0.0.1:40001")
    quick = [again(e, broker="127.0.0.1:40001", connection=501) for e in told]
    late = [again(e, broker="127.0.0.1:40002", connection=502, answered_after=slow) for e in told]
    return look([known, *quick, *late], "slow-broker")


def test_a_broker_slower_than_the_other() -> None:
    (found,) = _two_brokers(0.08)
    assert found.severity is Severity.LOW and "broker 2 (127.0.0.1:40002)" in found.seen
    assert found.about["broker"] == "127.0.0.1:40002" and found.about["api"] == "ListOffsets"
    assert _two_brokers(0.004) == []


def test_a_throttled_producer_comes_first(replay: Replay) -> None:
    found = replay("fetching-throttled-producer")[0]
    assert (found.id, found.severity) == ("throttled-by-quota", Severity.MEDIUM)
    assert "client 'loader'" in found.seen and "Produce answers said throttle_time_ms" in found.seen
    assert found.about["quota"] == "producer_byte_rate" and found.about["throttled_ms"] > 1000
    assert "--entity-name loader --add-config producer_byte_rate" in found.remedy


def test_a_throttled_consumer_comes_first(replay: Replay) -> None:
    found = replay("fetching-throttled-consumer")[0]
    assert (found.id, found.severity) == ("throttled-by-quota", Severity.MEDIUM)
    assert "client 'reader'" in found.seen and found.about["quota"] == "consumer_byte_rate"


def test_a_quota_with_room_is_none(replay: Replay) -> None:
    assert replay("fetching-quota-not-reached", only=["throttled-by-quota"]) == []


def test_a_quota_that_is_touched_costs_little() -> None:
    told = recorded("fetching-quota-not-reached", "Produce")
    (found,) = look([again(e, response={"throttle_time_ms": 40}) for e in told], "throttled-by-quota")
    assert found.severity is Severity.LOW and found.about["worst_ms"] == 40


def test_the_quota_of_topic_changes() -> None:
    told = recorded("fetching-topic-made-late", "CreateTopics")[0]
    refused = again(told, response={"topics[0].error_code": 89, "throttle_time_ms": 3000})
    (found,) = look([refused], "throttled-by-quota")
    assert found.about["quota"] == "controller_mutation_rate" and "THROTTLING_QUOTA_EXCEEDED" in found.seen


def test_the_end_of_a_capture_is_no_missing_answer() -> None:
    told = recorded("fetching-no-answer", "Metadata")[0]
    inspector = Inspector(["unanswered-request"])
    inspector.feed(Opened(told.connection, told.client, told.broker, told.request_time_ns or 0))
    inspector.request(again(told, state=State.PENDING))
    inspector.feed(Closed(told.connection, (told.request_time_ns or 0) + SECOND))
    assert inspector.findings() == []


def test_what_a_quota_keeps_waiting_is_not_unanswered() -> None:
    told = recorded("fetching-throttled-producer", "Produce")
    throttled = next(e for e in told if e.response_message and e.response_message["throttle_time_ms"] > 5000)
    late = again(throttled, after=1, state=State.NO_RESPONSE, response_time_ns=None, response=None, connection=5)

    def ended_after(seconds: float, *before: Exchange) -> list[Finding]:
        inspector = Inspector(["unanswered-request"])
        for exchange in (*before, late):
            inspector.look(again(exchange, connection=5))
        inspector.feed(Closed(5, (late.request_time_ns or 0) + int(seconds * SECOND), "fin", "client"))
        return inspector.findings()

    assert ended_after(4, throttled) == []
    assert len(ended_after(4)) == 1
    assert len(ended_after(30, throttled)) == 1
