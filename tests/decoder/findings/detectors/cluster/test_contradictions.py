"""Clients and brokers that contradict earlier messages: recordings of real brokers, as they are and edited."""

from __future__ import annotations

import re

import pytest
from barnabas.decoder import Direction, Exchange, ExchangeDone, RequestSeen
from barnabas.decoder.connection.events import Closed, ConnectionEvent, Missing, Opened
from barnabas.decoder.connection.exchange import State
from barnabas.decoder.findings import Severity
from traffic.conversations import Conversations
from traffic.edited_exchanges import answered, copied, edited, exchange_of, without
from traffic.recordings import findings, one, recording


def quicker(events: list[ConnectionEvent], by: float, *apis: str) -> list[ConnectionEvent]:
    """The same with the requests of APIs `by` times as fast, one after the other."""
    for api in apis:
        asked = [e.request_time_ns or 0 for h in events if (e := exchange_of(h)) is not None and e.api == api]

        def sooner(e: Exchange, first: int = asked[0]) -> Exchange:
            return copied(e, request_time_ns=first + int(((e.request_time_ns or 0) - first) / by))

        events = edited(events, sooner, api)
    return events


# --- leaders and ids -----------------------------------------------------------------------------------------


def test_a_client_that_does_not_follow_the_leader() -> None:
    finding = one("versions-wrong-leader", "metadata-ignored")  # three brokers
    assert finding.severity is Severity.MEDIUM and finding.about["error"] == "NOT_LEADER_OR_FOLLOWER"
    assert (finding.about["topic"], finding.about["partition"], finding.count) == ("wrong-leader", 0, 8)
    assert f"broker {finding.about['leader']} as leader" in finding.seen


def test_requests_on_their_way_when_the_leader_moved_are_no_contradiction() -> None:
    assert findings(quicker(recording("versions-wrong-leader"), 4, "Produce"), "metadata-ignored") == []
    unknowing = without(recording("versions-wrong-leader"), lambda e: e.api == "Metadata")
    assert findings(unknowing, "metadata-ignored") == []
    # Metadata that names the very broker that refuses: it is the broker that is behind
    went_to = re.search(r" to broker (\d+) ", one("versions-wrong-leader", "metadata-ignored").seen)
    assert went_to is not None
    itself = answered({"topics[0].partitions[0].leader_id": int(went_to[1])})
    assert findings(edited(recording("versions-wrong-leader"), itself, "Metadata"), "metadata-ignored") == []


def test_a_topic_made_anew() -> None:
    finding = one("versions-topic-recreated", "topic-recreated")
    assert finding.severity is Severity.INFO and finding.about["topic"] == "topic-recreated"
    assert finding.about["old_id"] != finding.about["new_id"] and finding.about["new_id"] in finding.seen


def test_a_client_that_keeps_the_old_topic_id() -> None:
    finding = one("versions-topic-recreated", "old-topic-id")
    assert finding.severity is Severity.HIGH and finding.about["recreated"] is True and finding.count == 14
    assert finding.about["error"] == "UNKNOWN_TOPIC_ID" and finding.about["topic"] == "topic-recreated"
    new = one("versions-topic-recreated", "topic-recreated")
    assert (finding.about["topic_id"], finding.about["new_id"]) == (new.about["old_id"], new.about["new_id"])


def test_a_client_that_needs_a_moment_to_learn_the_new_id() -> None:
    happened = recording("versions-topic-recreated")
    failing = list(dict.fromkeys(id(e) for h in happened if (e := exchange_of(h)) is not None and e.error == 100))
    assert len(failing) == 14
    few = without(happened, lambda e: id(e) in failing[4:])
    assert findings(few, "old-topic-id") == []
    soon = quicker(recording("versions-topic-recreated"), 9, "Fetch", "Produce")
    assert findings(soon, "old-topic-id") == []


def test_a_topic_that_is_being_made_again_is_asked_for_meanwhile() -> None:
    # librdkafka does so every 150 ms while its topic is not there
    gone = without(recording("versions-topic-recreated"), lambda e: e.api == "Metadata" and e.correlation_id > 3)
    nameless = [h for h in gone if not isinstance(h, Closed)]
    assert findings(nameless, "old-topic-id") == []
    finding = one(quicker(nameless, 0.2, "Fetch", "Produce"), "old-topic-id")
    assert finding.severity is Severity.MEDIUM and finding.about["recreated"] is False


def test_the_name_of_an_old_topic_id_may_not_be_known() -> None:
    unknown = without(recording("versions-topic-recreated"), lambda e: e.api == "Metadata")
    unknown = edited(unknown, lambda e: copied(e, topics=None))
    finding = one(quicker(unknown, 0.2, "Fetch", "Produce"), "old-topic-id")
    assert finding.about["topic"] == finding.about["topic_id"] and finding.about["recreated"] is False


def test_a_producer_that_gets_a_new_id_or_fails_for_a_moment() -> None:
    happened = recording("versions-lost-sequence")
    assert findings(quicker(happened, 5, "Produce"), "producer-id-not-renewed") == []
    given = [h for h in happened if (e := exchange_of(h)) is not None and e.api == "InitProducerId" and not e.error]
    produced = [n for n, h in enumerate(happened) if (e := exchange_of(h)) is not None and e.api == "Produce"]
    middle = produced[16]
    assert findings([*happened[:middle], *given, *happened[middle:]], "producer-id-not-renewed") == []
    assert findings(happened[:middle], "producer-id-not-renewed") == []


# --- one connection ------------------------------------------------------------------------------------------


def test_where_bytes_are_missing_nothing_is_known() -> None:
    opened, *after = recording("versions-answers-swapped")
    assert isinstance(opened, Opened)
    torn = [opened, Missing(opened.connection, Direction.REQUEST, 40, opened.time_ns), *after]
    assert findings(torn, "odd-correlation-ids") == []


def test_answers_to_requests_from_before_the_capture() -> None:
    first = recording("versions-answers-swapped")
    orphan = next(h for h in first if (e := exchange_of(h)) is not None and e.state is State.ORPHAN)
    assert findings([first[0], orphan, *first[1:3]], "odd-correlation-ids") == []
    finding = one([*first[:3], orphan], "odd-correlation-ids")  # after an answer it cannot be one of those
    assert finding.about["kind"] == "no request"


def test_acks_0_gets_no_answer_and_that_is_right() -> None:
    conversation = Conversations("odd-correlation-ids")
    connection = conversation.open()
    for _ in range(3):
        conversation.ask(connection, "Produce", 9, {"acks": 0, "timeout_ms": 1, "topic_data": []}, None)
        conversation.ask(connection, "ApiVersions", 0, {}, {})
    conversation.close(connection)
    assert conversation.findings() == [] and len(conversation.exchanges) == 6


def test_a_correlation_id_twice_at_a_time() -> None:
    finding = one("versions-ids-in-flight", "odd-correlation-ids")
    assert finding.severity is Severity.LOW and finding.about["correlation_id"] == 7
    one_by_one: list[ConnectionEvent] = []
    for h in recording("versions-ids-in-flight"):
        if not isinstance(h, RequestSeen):
            one_by_one += [RequestSeen(h.exchange), h] if isinstance(h, ExchangeDone) else [h]
    assert findings(one_by_one, "odd-correlation-ids") == []


@pytest.mark.parametrize("names", [["first"] * 10, [None, *["first"] * 9], ["", None] * 5])
def test_a_client_may_find_its_name_once(names: list[str | None]) -> None:
    happened = without(recording("versions-several-clients-on-one-connection"), lambda e: e.correlation_id == 2)
    named = edited(happened, lambda e: copied(e, client_id=names[e.correlation_id - 1]))
    assert findings(named, "client-identity-changes") == []
