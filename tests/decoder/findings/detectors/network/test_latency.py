"""Latency and quota detectors on recordings; late answers are recorded ones with their times changed."""

from __future__ import annotations

from barnabas.decoder import Exchange, RequestSeen
from barnabas.decoder.connection.events import Closed, Opened
from barnabas.decoder.connection.exchange import State
from barnabas.decoder.findings import Finding, Severity
from traffic.conversations import Conversations
from traffic.edited_exchanges import SECOND, copied, later
from traffic.recordings import exchanges, findings, one


def _waiting(recorded: Exchange, seconds: float) -> list[Finding]:
    """`recorded` gets no response while other things happen for so many seconds."""
    asked = RequestSeen(copied(recorded, state=State.PENDING, response=None, response_time_ns=None))
    return findings(later([asked], seconds), "unanswered-request")


def test_a_request_that_still_waits() -> None:
    asked = exchanges("fetching-steady-asker", "ListOffsets")[0]
    assert _waiting(asked, 20) == []
    (found,) = _waiting(asked, 45)
    assert "got no answer for 45.0 s, so far" in found.seen
    (poll,) = exchanges("fetching-commits-behind-fetch", "Fetch")[:1]
    long = copied(poll, request={"max_wait_ms": 60_000})
    assert _waiting(long, 50) == []
    assert len(_waiting(long, 70)) == 1


def test_a_metadata_request_behind_a_fetch_is_worth_knowing_at_most() -> None:
    for name in ("short-wait", "behind-a-transaction", "throttled-consumer", "falls-behind"):
        assert all(f.severity is Severity.INFO for f in findings(f"fetching-{name}", "head-of-line-blocking"))


def _late(every: int, seconds: float) -> list[Exchange]:
    recorded = exchanges("fetching-steady-asker", "ListOffsets")
    first = recorded[0].request_time_ns or 0
    late = [copied(e, after=n, answered_after=seconds if n % every == 0 else 0) for n, e in enumerate(recorded * 2)]
    for n, e in enumerate(late):  # one each half second
        took = (e.response_time_ns or 0) - (e.request_time_ns or 0)
        e.request_time_ns = first + n * SECOND // 2
        e.response_time_ns = e.request_time_ns + took
    return late


def test_some_answers_far_over_the_usual() -> None:
    found = one(_late(12, 0.4), "slow-answers")
    assert found.severity is Severity.LOW and 6 <= found.count <= 12
    assert "for ListOffsets" in found.seen and found.about["worst_ms"] >= 400 and found.about["median_ms"] < 40
    worse = one(_late(12, 1.5), "slow-answers")
    assert worse.severity is Severity.MEDIUM


def test_pauses_that_are_few_or_short_are_none() -> None:
    assert findings(_late(60, 0.4), "slow-answers") == []
    assert findings(_late(12, 0.15), "slow-answers") == []
    assert findings(exchanges("fetching-steady-asker"), "slow-answers") == []


def test_an_api_that_is_slow_as_a_rule() -> None:
    found = one(_late(1, 0.35), "slow-answers")
    assert found.severity is Severity.LOW and "usually takes" in found.seen and found.about["usual"]
    assert findings(_late(1, 0.2), "slow-answers") == []


def _two_brokers(slow: float) -> list[Finding]:
    recorded = exchanges("fetching-steady-asker", "ListOffsets")
    (metadata,) = exchanges("fetching-lists-topics-seldom", "Metadata")[:1]
    broker = metadata.response_message["brokers"][0]
    both = [broker | {"node_id": n, "host": "127.0.0.1", "port": 40000 + n} for n in (1, 2)]
    known = copied(metadata, response={"brokers": both}, broker="127.0.0.1:40001")
    quick = [copied(e, broker="127.0.0.1:40001", connection=501) for e in recorded]
    late = [copied(e, broker="127.0.0.1:40002", connection=502, answered_after=slow) for e in recorded]
    return findings([known, *quick, *late], "slow-broker")


def test_a_broker_slower_than_the_other() -> None:
    (found,) = _two_brokers(0.08)
    assert found.severity is Severity.LOW and "broker 2 (127.0.0.1:40002)" in found.seen
    assert found.about["broker"] == "127.0.0.1:40002" and found.about["api"] == "ListOffsets"
    assert _two_brokers(0.004) == []


def test_a_throttled_producer_comes_first() -> None:
    found = findings("fetching-throttled-producer")[0]
    assert (found.id, found.severity) == ("throttled-by-quota", Severity.MEDIUM)
    assert "client 'loader'" in found.seen and "Produce responses carried throttle_time_ms" in found.seen
    assert found.about["quota"] == "producer_byte_rate" and found.about["throttled_ms"] > 1000
    assert "--entity-name loader --add-config producer_byte_rate" in found.remedy


def test_a_throttled_consumer_comes_first() -> None:
    found = findings("fetching-throttled-consumer")[0]
    assert (found.id, found.severity) == ("throttled-by-quota", Severity.MEDIUM)
    assert "client 'reader'" in found.seen and found.about["quota"] == "consumer_byte_rate"


def test_a_quota_that_is_touched_costs_little() -> None:
    recorded = exchanges("fetching-quota-not-reached", "Produce")
    found = one([copied(e, response={"throttle_time_ms": 40}) for e in recorded], "throttled-by-quota")
    assert found.severity is Severity.LOW and found.about["worst_ms"] == 40


def test_the_quota_of_topic_changes() -> None:
    recorded = exchanges("fetching-topic-made-late", "CreateTopics")[0]
    refused = copied(recorded, response={"topics[0].error_code": 89, "throttle_time_ms": 3000})
    found = one([refused], "throttled-by-quota")
    assert found.about["quota"] == "controller_mutation_rate" and "THROTTLING_QUOTA_EXCEEDED" in found.seen


def test_the_end_of_a_capture_is_no_missing_answer() -> None:
    recorded = exchanges("fetching-no-answer", "Metadata")[0]
    asked = recorded.request_time_ns or 0
    happened = [
        Opened(recorded.connection, recorded.client, recorded.broker, asked),
        RequestSeen(copied(recorded, state=State.PENDING)),
        Closed(recorded.connection, asked + SECOND),
    ]
    assert findings(happened, "unanswered-request") == []


def test_what_a_quota_keeps_waiting_is_not_unanswered() -> None:
    recorded = exchanges("fetching-throttled-producer", "Produce")
    throttled = next(e for e in recorded if e.response_message and e.response_message["throttle_time_ms"] > 5000)
    late = copied(throttled, after=1, state=State.NO_RESPONSE, response_time_ns=None, response=None, connection=5)

    def ended_after(seconds: float, *before: Exchange) -> list[Finding]:
        ended = Closed(5, (late.request_time_ns or 0) + int(seconds * SECOND), "fin", "client")
        return findings([*(copied(e, connection=5) for e in (*before, late)), ended], "unanswered-request")

    assert ended_after(4, throttled) == []
    assert len(ended_after(4)) == 1
    assert len(ended_after(30, throttled)) == 1


def unanswered(*first: str) -> Finding:
    """These APIs were answered; then a connection's ApiVersions is not, and the client gives up after 10 s."""
    made = Conversations("unanswered-request")
    for api in first:
        made.ask(made.open(), api, 0, {}, {})
    made.wait(1)
    silent = made.open()
    made.ask(silent, "ApiVersions", 3, {"client_software_name": "librdkafka", "client_software_version": "2.16.0"}, None)
    made.wait(10)
    made.close(silent)
    (found,) = made.findings()
    return found


def test_a_broker_that_never_answers_anything_may_be_kafka_0_9() -> None:
    found = unanswered()
    assert "this broker answered no request at all" in found.seen
    assert "Kafka 0.9" in found.why and "api.version.request=false" in found.remedy


def test_a_broker_that_answered_others_is_not_kafka_0_9() -> None:
    found = unanswered("ApiVersions", "Metadata")
    assert "no request at all" not in found.seen and "Kafka 0.9" not in found.why + found.remedy
