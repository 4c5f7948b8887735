"""Clients and brokers whose versions do not fit: recordings of real ones, as they are and edited.

The recordings were made by tests/real/findings/scenarios/versions.py against Kafka 4.3.1, where named against 3.9.1
and with librdkafka 2.10.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.connection.events import Closed, Opened
from barnabas.decoder.connection.exchange import BrokerLeg, State
from barnabas.decoder.findings import Severity
from traffic.edited_exchanges import (
    SECOND,
    Edit,
    changed,
    copied,
    edited,
    exchange_of,
    offering,
    only,
    unfollowed,
    without,
)
from traffic.recordings import VERSIONS, findings, names, one, recording

ALL = {
    "answer-ignored": {"api-versions-ignored": 3},
    "answers-swapped": {"odd-correlation-ids": 4},
    "api-versions-given-up": {"api-versions-fallback": 3},
    "api-versions-of-the-future": {"api-versions-fallback": 4},
    "group-described": {"unsupported-version": 1},
    "group-protocol-off": {"unsupported-version": 3},
    "gzip-librdkafka": {},
    "gzip-librdkafka-2.10": {"compression-off": 6},
    "ids-in-flight": {"odd-correlation-ids": 4},
    "leaving-and-coming": {"classic-group-protocol": 4, "static-membership-unused": 3},
    "lost-sequence": {"producer-id-not-renewed": 14, "client-far-behind": 18},
    "never-asks": {"no-api-versions": 12},
    "old-kafka-python": {"closed-on-version": 3},
    "old-kafka-python-round": {
        "removed-in-kafka-4": [24, 7],
        "old-record-format": [24, 6],
        "client-far-behind": 8,
    },
    "old-librdkafka": {"closed-on-version": 5, "no-api-versions": 7},
    "plain-consumer": {"topic-ids-unused": 55, "rack-unaware-fetch": 55},
    "plain-producer": {"idempotence-unused": 60},
    "several-clients-on-one-connection": {"client-identity-changes": 8},
    "topic-recreated": {"old-topic-id": 14, "topic-recreated": 1},
    "two-brokers": {"version-of-another-broker": 2, "mixed-broker-versions": 1},
    "wrong-leader": {"metadata-ignored": 8},
}


def test_every_recording_and_every_detector_is_here() -> None:
    assert [f"versions-{name}" for name in sorted(ALL)] == names("versions")
    assert {id for found in ALL.values() for id in found} == set(VERSIONS)


@pytest.mark.parametrize("name", ALL)
def test_each_recording_shows_what_it_was_made_for_and_nothing_else(name: str) -> None:
    found: dict[str, list[int]] = {}
    for finding in findings(f"versions-{name}", *VERSIONS):
        found.setdefault(finding.id, []).append(finding.count)
    assert found == {id: counts if isinstance(counts, list) else [counts] for id, counts in ALL[name].items()}


# --- refused, closed, ignored --------------------------------------------------------------------------------


def test_the_broker_closes_the_connection_on_an_old_produce() -> None:
    finding = one("versions-old-kafka-python", "closed-on-version")
    assert finding.severity is Severity.HIGH
    assert "client 'shop' at 127.0.0.1" in finding.seen and "3 times instead of answering Produce v2" in finding.seen
    assert "it supports v3 to v13" in finding.seen  # although ApiVersions says 0 to 13 (KAFKA-18659)
    assert "ApiVersions lists v0 to v13" in finding.why
    assert "KIP-896" in finding.why and "EOF" in finding.why and "older" in finding.why
    assert "api_version" in finding.remedy and "broker.version.fallback" in finding.remedy
    about = finding.about
    assert (about["api"], about["asked"], about["offered"], about["ahead"]) == ("Produce", 2, (3, 13), "broker")
    assert finding.last_ns and finding.first_ns and finding.last_ns > finding.first_ns


def test_nobody_asked_and_the_version_is_in_no_current_release() -> None:
    finding = one("versions-old-librdkafka", "closed-on-version")
    assert "Produce v1" in finding.seen and "no current release" in finding.seen
    assert "KAFKA-18659" not in finding.why
    assert finding.about["offered"] is None and "never seen" in finding.why


def test_another_connection_has_learned_what_the_broker_offers() -> None:
    asking = only(recording("versions-old-kafka-python"), lambda e: e.connection == 1)
    asking = edited([h for h in asking if exchange_of(h)], lambda e: copied(e, connection=1000, broker="broker:9092"))
    others = edited(recording("versions-old-librdkafka"), lambda e: copied(e, broker="broker:9092"))
    finding = one([*asking, *changed(others, Opened, broker="broker:9092")], "closed-on-version")
    assert "Produce v1" in finding.seen and finding.about["offered"] == (3, 13)


@pytest.mark.parametrize("close", [{"by": "client"}, {"how": ""}])
def test_a_client_that_hangs_up_or_a_capture_that_ends_is_no_refusal(close: dict[str, str]) -> None:
    assert findings(changed(recording("versions-old-kafka-python"), Closed, **close), "closed-on-version") == []


def test_a_connection_that_ends_much_later_was_not_closed_for_its_version() -> None:
    late = [
        changed([h], Closed, time_ns=h.time_ns + 30 * SECOND)[0] if isinstance(h, Closed) else h
        for h in recording("versions-old-kafka-python")
    ]
    assert findings(late, "closed-on-version") == []
    assert one(changed(late, Closed, by="broker"), "closed-on-version").count == 3  # somebody saw who it was


def test_a_version_in_range_that_gets_no_answer_is_another_matter() -> None:
    served = offering(recording("versions-old-kafka-python"), Produce=(0, 13), Fetch=(0, 17))
    assert findings(served, "closed-on-version", "api-versions-ignored") == []


def test_a_client_ignores_the_answer_it_got() -> None:
    finding = one("versions-answer-ignored", "api-versions-ignored")
    assert finding.severity is Severity.HIGH and finding.about["outcome"] == "closed"
    assert "Fetch v3" in finding.seen and "v4 to v18" in finding.seen and "raw-client 1.0" in finding.seen
    # on these connections it got no offer that it could ignore
    silent = without(unfollowed(recording("versions-answer-ignored")), lambda e: e.api == "ApiVersions")
    assert [f.id for f in findings(silent, *VERSIONS)] == ["closed-on-version"]
    assert findings(offering(recording("versions-answer-ignored"), Fetch=(3, 18)), *VERSIONS) == []


def test_a_version_that_is_not_offered_and_answered_all_the_same() -> None:
    finding = one(offering(recording("versions-wrong-leader"), Produce=(3, 8)), "api-versions-ignored")
    assert finding.severity is Severity.LOW and "still answered" in finding.seen


@pytest.mark.parametrize(
    ("offered", "ahead"), [((1, 1), "upgrade the client"), ((0, 0), "upgrade the broker to 4.0 or newer")]
)
def test_who_is_ahead_when_a_version_is_refused(offered: tuple[int, int], ahead: str) -> None:
    # the recorded refusals, as if the broker had offered one version less on either side
    happened = offering(recording("versions-group-protocol-off"), ConsumerGroupHeartbeat=offered)
    if offered == (0, 0):
        happened = edited(happened, lambda e: copied(e, api_version=1), "ConsumerGroupHeartbeat")
    finding = one(happened, "api-versions-ignored")
    assert finding.about["outcome"] == "refused" and ahead in finding.remedy


# --- ApiVersions ---------------------------------------------------------------------------------------------


def test_a_refusal_in_no_known_form_is_reported_once() -> None:
    mock = bytes.fromhex("00000001 0023 01 00120000 00 02 00000000")  # what librdkafka's mock answers
    happened = edited(recording("versions-api-versions-given-up"), lambda e: copied(e, response=mock))
    found = findings(happened, "malformed-api-versions-fallback", *VERSIONS)
    assert [f.id for f in found] == ["malformed-api-versions-fallback"]


def test_many_refusals_cost_something() -> None:
    def late(e: Exchange) -> Exchange:
        return copied(e, response_time_ns=(e.request_time_ns or 0) + SECOND // 3) if e.api_version == 99 else e

    slow = edited(recording("versions-api-versions-of-the-future"), late)
    assert one(slow, "api-versions-fallback").severity is Severity.LOW


def test_a_client_that_may_have_asked_before_the_capture_began() -> None:
    in_the_middle = edited(recording("versions-never-asks"), lambda e: copied(e, correlation_id=e.correlation_id + 500))
    assert findings(in_the_middle, "no-api-versions") == []
    unopened = [h for h in recording("versions-never-asks") if not isinstance(h, Opened)]
    assert findings(unopened, "no-api-versions") == []


def test_a_few_answers_prove_nothing_about_what_a_client_never_does() -> None:
    assert findings(recording("versions-never-asks")[:9], "no-api-versions") == []
    assert one(recording("versions-never-asks")[:11], "no-api-versions").count == 5


# --- old -----------------------------------------------------------------------------------------------------


def test_versions_that_stop_working_with_kafka_4() -> None:
    shop, desk = findings("versions-old-kafka-python-round", "removed-in-kafka-4")  # Kafka 3.9.1
    assert shop.severity is desk.severity is Severity.MEDIUM
    assert shop.about["versions"] == [["Produce", 2]] and desk.about["versions"] == [["Fetch", 2], ["ListOffsets", 0]]
    assert "KIP-896" in shop.why and "v0 to v11" in shop.why and "2.1" in shop.remedy


def test_a_broker_that_has_nothing_newer_is_not_the_clients_fault() -> None:
    old = offering(recording("versions-old-kafka-python-round"), Produce=(0, 2), Fetch=(0, 2), ListOffsets=(0, 0))
    assert [f.severity for f in findings(old, "removed-in-kafka-4")] == [Severity.INFO] * 2
    assert findings(old, "old-record-format") == []  # it stores what it is sent


NEWER = {"Produce": 3, "Fetch": 4, "ListOffsets": 1}


def marked(mark: str, value: Callable[[Exchange], Any]) -> Edit:
    """A proxy has noted something on the exchange."""

    def edit(exchange: Exchange) -> Exchange:
        made = copied(exchange)
        setattr(made.marks, mark, value(exchange))
        return made

    return edit


def test_what_a_proxy_translates_the_broker_never_sees() -> None:
    """The other leg of an exchange shows at which version the broker was asked."""
    happened = recording("versions-old-kafka-python-round")
    for api, version in NEWER.items():
        frame = marked("broker_request", lambda e, v=version: BrokerLeg(with_version(e.request, v)))
        happened = edited(happened, lambda e, frame=frame: frame(e) if e.request is not None else e, api)
    assert findings(happened, "removed-in-kafka-4") == findings(happened, "old-record-format") == []


def with_version(request: bytes, version: int) -> bytes:
    return request[:2] + version.to_bytes(2, "big") + request[4:]


def test_an_old_broker_gives_what_it_stores_to_a_new_client_that_is_translated_for() -> None:
    def translated(e: Exchange) -> Exchange:
        if e.request_message is None or e.response_message is None:
            return e
        asked, given = e.request_message.to_dict(), e.response_message.to_dict()
        made = copied(
            e,
            api_version=4,
            request=decoder.encode_request(1, 4, asked, correlation_id=e.correlation_id, client_id=e.client_id),
            response=decoder.encode_response(1, 4, given, correlation_id=e.correlation_id),
        )
        return marked("broker_request", lambda _: BrokerLeg(e.request))(made)

    happened = edited(recording("versions-old-kafka-python-round"), translated, "Fetch")
    assert [f.about["api"] for f in findings(happened, "old-record-format")] == ["Produce"]


def test_a_refusal_names_what_a_proxy_noted_on_it() -> None:
    plain = findings("versions-group-described", "unsupported-version")[0]
    note = "the broker has no such thing"
    happened = edited(recording("versions-group-described"), marked("notes", lambda _: [note]), plain.about["api"])
    noted = findings(happened, "unsupported-version")[0]
    assert noted.seen == plain.seen and note in noted.why and note not in plain.why


def test_records_of_an_old_format_are_converted() -> None:
    sent, read = findings("versions-old-kafka-python-round", "old-record-format")
    assert "sent records of magic 1 in 24 Produce v2 requests" in sent.seen and sent.about["bytes"] > 2000
    assert "was sent records of magic 1 in 6 Fetch v2 responses" in read.seen and read.severity is Severity.LOW
    few = only(recording("versions-old-kafka-python-round"), lambda e: e.correlation_id <= 5)
    assert findings(few, "old-record-format") == []


def test_a_client_far_behind_its_broker() -> None:
    finding = one("versions-old-kafka-python-round", "client-far-behind")
    assert finding.severity is Severity.INFO
    assert finding.about["level"] == "0.10.0" and finding.about["broker_level"] == "3.9"
    # what a broker of 1.0 offers of these: six releases are not reached
    near = offering(
        recording("versions-old-kafka-python-round"), Produce=(0, 5), Fetch=(0, 6), ListOffsets=(0, 2), Metadata=(0, 5)
    )
    assert findings(near, "client-far-behind") == []


def test_a_fixed_librdkafka_and_a_broker_with_produce_0_are_fine() -> None:
    assert findings("versions-gzip-librdkafka", "compression-off") == []  # librdkafka 2.16 compresses there
    assert findings(offering(recording("versions-gzip-librdkafka-2.10"), Produce=(0, 12)), "compression-off") == []


# --- brokers that differ -------------------------------------------------------------------------------------


def test_a_version_that_only_another_broker_offers() -> None:
    finding = one("versions-two-brokers", "version-of-another-broker")
    assert finding.severity is Severity.HIGH and "broker 2 (" in finding.seen and "Fetch v17" in finding.seen
    assert finding.about["offered"] == (4, 16) and finding.about["other_broker"] != finding.about["broker"]
    alone = without(recording("versions-two-brokers"), lambda e: e.connection in (1, 2))
    assert [f.id for f in findings(alone, *VERSIONS)] == ["api-versions-ignored"]  # no other broker is known then


def test_brokers_of_one_cluster_that_offer_different_versions() -> None:
    finding = one("versions-two-brokers", "mixed-broker-versions")
    assert finding.severity is Severity.INFO and finding.about["apis"] == {"Fetch": [(4, 18), (4, 16)]}
    assert findings(offering(recording("versions-two-brokers"), Fetch=(4, 18)), "mixed-broker-versions") == []


def test_a_broker_that_offers_something_else_after_a_while() -> None:
    happened = recording("versions-answer-ignored")
    assert {e.connection for h in happened if (e := exchange_of(h)) is not None} == {1, 2, 3}
    before, after = without(happened, lambda e: e.connection == 3), only(happened, lambda e: e.connection == 3)
    finding = one([*before, *offering(after, Metadata=(0, 12))], "mixed-broker-versions")
    assert "changed the versions it offers" in finding.seen and finding.about["apis"] == {"Metadata": [(0, 13), (0, 12)]}


def test_requests_without_answers_prove_nothing() -> None:
    def unanswered(e: Exchange) -> Exchange:
        return (
            copied(e, state=State.NO_RESPONSE, response=None, response_time_ns=None) if e.state is State.PAIRED else e
        )

    for name in ALL:
        happened = changed(edited(unfollowed(recording(f"versions-{name}")), unanswered), Closed, by="client")
        found = {f.id for f in findings(happened, *VERSIONS) if f.severity is not Severity.INFO}
        assert found <= {"odd-correlation-ids", "client-identity-changes"}, name  # requests alone show these
