"""Sides that do not keep to what was said: recorded from real brokers, and told a little otherwise."""

from __future__ import annotations

import re
from typing import Any

import pytest
from barnabas.decoder import Direction, Exchange, ExchangeDone, RequestSeen, encode_request, encode_response
from barnabas.decoder.exchange import State
from barnabas.decoder.findings import Severity
from barnabas.decoder.happening import Closed, Happening, Missing, Opened
from retold.versions import SECOND, answered, exchange_of, findings, one, told, without


def quicker(happenings: list[Happening], api: str, by: float) -> list[Happening]:
    """The same with an API's requests `by` times as fast, one after the other."""
    times: dict[int, int] = {}
    first = 0
    for h in happenings:
        e = exchange_of(h)
        if e is not None and e.api == api and id(e) not in times and e.request_time_ns:
            first = first or e.request_time_ns
            times[id(e)] = e.request_time_ns = first + int((e.request_time_ns - first) / by)
    return happenings


# --- leaders and ids -----------------------------------------------------------------------------------------


def test_a_client_that_does_not_follow_the_leader() -> None:
    finding = one(told("wrong-leader"), "metadata-ignored")  # three brokers
    assert finding.severity is Severity.MEDIUM and finding.about["error"] == "NOT_LEADER_OR_FOLLOWER"
    assert (finding.about["topic"], finding.about["partition"], finding.count) == ("wrong-leader", 0, 8)
    assert f"broker {finding.about['leader']} is the leader" in finding.seen


def test_requests_on_their_way_when_the_leader_moved_are_no_contradiction() -> None:
    assert findings(quicker(told("wrong-leader"), "Produce", 4), "metadata-ignored") == []
    unknowing = without(told("wrong-leader"), lambda e: e.api == "Metadata")
    assert findings(unknowing, "metadata-ignored") == []
    # Metadata that names the very broker that refuses: it is the broker that is behind
    went_to = re.search(r" to broker (\d+) ", one(told("wrong-leader"), "metadata-ignored").seen)
    assert went_to is not None
    edit = {"topics[0].partitions[0].leader_id": int(went_to[1])}
    assert findings(answered(told("wrong-leader"), "Metadata", lambda body: edit), "metadata-ignored") == []


def test_a_topic_made_anew() -> None:
    finding = one(told("topic-recreated"), "topic-recreated")
    assert finding.severity is Severity.INFO and finding.about["topic"] == "topic-recreated"
    assert finding.about["old_id"] != finding.about["new_id"] and finding.about["new_id"] in finding.seen


def test_a_client_that_keeps_the_old_topic_id() -> None:
    finding = one(told("topic-recreated"), "old-topic-id")
    assert finding.severity is Severity.HIGH and finding.about["recreated"] is True and finding.count == 14
    assert finding.about["error"] == "UNKNOWN_TOPIC_ID" and finding.about["topic"] == "topic-recreated"
    new = one(told("topic-recreated"), "topic-recreated")
    assert (finding.about["topic_id"], finding.about["new_id"]) == (new.about["old_id"], new.about["new_id"])


def test_a_client_that_needs_a_moment_to_learn_the_new_id() -> None:
    happenings = told("topic-recreated")
    failing = list(dict.fromkeys(id(e) for h in happenings if (e := exchange_of(h)) is not None and e.error == 100))
    assert len(failing) == 14
    few = without(happenings, lambda e: id(e) in failing[4:])
    assert findings(few, "old-topic-id") == []
    soon = quicker(quicker(told("topic-recreated"), "Fetch", 9), "Produce", 9)
    assert findings(soon, "old-topic-id") == []


def test_a_topic_that_is_being_made_again_is_asked_for_meanwhile() -> None:
    # librdkafka does so every 150 ms while its topic is not there
    def nameless(name: str) -> list[Happening]:
        gone = without(told(name), lambda e: e.api == "Metadata" and e.correlation_id > 3)
        return [h for h in gone if not isinstance(h, Closed)]

    assert findings(nameless("topic-recreated"), "old-topic-id") == []
    long = nameless("topic-recreated")
    finding = one(quicker(quicker(long, "Fetch", 0.2), "Produce", 0.2), "old-topic-id")
    assert finding.severity is Severity.MEDIUM and finding.about["recreated"] is False


def test_the_name_of_an_old_topic_id_may_not_be_known() -> None:
    unknown = without(told("topic-recreated"), lambda e: e.api == "Metadata")
    for e in filter(None, map(exchange_of, unknown)):
        e.topics = None
    finding = one(quicker(quicker(unknown, "Fetch", 0.2), "Produce", 0.2), "old-topic-id")
    assert finding.about["topic"] == finding.about["topic_id"] and finding.about["recreated"] is False


def test_a_producer_that_repeats_what_cannot_succeed() -> None:
    finding = one(told("lost-sequence"), "producer-id-not-renewed")
    assert finding.severity is Severity.HIGH and finding.count == 14
    assert finding.about["error"] == "OUT_OF_ORDER_SEQUENCE_NUMBER" and finding.about["producer_epoch"] == 0
    assert "KIP-360" in finding.why and finding.about["producer_id"] >= 0


def test_a_producer_that_gets_a_new_id_or_fails_for_a_moment() -> None:
    assert findings(quicker(told("lost-sequence"), "Produce", 5), "producer-id-not-renewed") == []
    happenings = told("lost-sequence")
    given = [h for h in happenings if (e := exchange_of(h)) is not None and e.api == "InitProducerId" and not e.error]
    produced = [n for n, h in enumerate(happenings) if (e := exchange_of(h)) is not None and e.api == "Produce"]
    middle = produced[16]
    assert findings([*happenings[:middle], *given, *happenings[middle:]], "producer-id-not-renewed") == []
    assert findings(happenings[:middle], "producer-id-not-renewed") == []


# --- one connection ------------------------------------------------------------------------------------------


def test_answers_that_change_places() -> None:
    finding = one(told("answers-swapped"), "odd-correlation-ids")
    assert finding.severity is Severity.HIGH and finding.about["kind"] == "out of order" and finding.count == 4


def test_where_bytes_are_missing_nothing_is_known() -> None:
    happenings = told("answers-swapped")
    opened = next(h for h in happenings if isinstance(h, Opened))
    torn = [opened, Missing(opened.connection, Direction.REQUEST, 40, opened.time_ns), *happenings[1:]]
    assert findings(torn, "odd-correlation-ids") == []


def test_answers_to_requests_from_before_the_capture() -> None:
    first = told("answers-swapped")
    orphan = next(h for h in first if (e := exchange_of(h)) is not None and e.state is State.ORPHAN)
    assert findings([first[0], orphan, *first[1:3]], "odd-correlation-ids") == []
    finding = one([*first[:3], orphan], "odd-correlation-ids")  # after an answer it cannot be one of those
    assert finding.about["kind"] == "no request"


def test_acks_0_gets_no_answer_and_that_is_right() -> None:
    opened = next(h for h in told("answers-swapped") if isinstance(h, Opened))
    fields: dict[str, Any] = {
        "connection": opened.connection, "client": opened.client, "broker": opened.broker, "request_time_ns": SECOND,
        "client_id": "quick",
    }  # fmt: skip
    happenings: list[Happening] = [opened]
    for number in range(1, 4):
        body = {"acks": 0, "timeout_ms": 1, "topic_data": [], "transactional_id": None}
        produce = Exchange(
            api_key=0, api_version=9, correlation_id=number, state=State.NO_RESPONSE,
            request=encode_request(0, 9, body, correlation_id=number, client_id="quick"), **fields,
        )  # fmt: skip
        happenings += [RequestSeen(produce), ExchangeDone(produce)]
        asked = Exchange(
            api_key=18, api_version=0, correlation_id=number + 10, state=State.PAIRED, response_time_ns=2 * SECOND,
            request=encode_request(18, 0, {}, correlation_id=number + 10, client_id="quick"),
            response=encode_response(18, 0, {}, correlation_id=number + 10), **fields,
        )  # fmt: skip
        happenings += [RequestSeen(asked), ExchangeDone(asked)]
    assert findings([*happenings, Closed(opened.connection, 3 * SECOND, "fin")], "odd-correlation-ids") == []


def test_a_correlation_id_twice_at_a_time() -> None:
    finding = one(told("ids-in-flight"), "odd-correlation-ids")
    assert finding.severity is Severity.LOW and finding.about["correlation_id"] == 7
    one_by_one: list[Happening] = []
    for h in told("ids-in-flight"):
        if isinstance(h, ExchangeDone):
            one_by_one += [RequestSeen(h.exchange), h]
        elif not isinstance(h, RequestSeen):
            one_by_one.append(h)
    assert findings(one_by_one, "odd-correlation-ids") == []


def test_several_clients_on_one_connection() -> None:
    finding = one(told("several-clients-on-one-connection"), "client-identity-changes")
    assert finding.about["names"] == ["'first'", "'second'", "one 1.0", "two 1.0"]
    assert "KIP-13" in finding.why


@pytest.mark.parametrize("names", [["first"] * 10, [None, *["first"] * 9], ["", None] * 5])
def test_a_client_may_find_its_name_once(names: list[str | None]) -> None:
    happenings = without(told("several-clients-on-one-connection"), lambda e: e.correlation_id == 2)
    for e in filter(None, map(exchange_of, happenings)):
        e.client_id = names[e.correlation_id - 1]
    assert findings(happenings, "client-identity-changes") == []
