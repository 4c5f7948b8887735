"""Clients and brokers whose versions do not fit: recorded from real ones, and told a little otherwise.

The recordings were made by tests/real/findings/scenarios_versions.py against Kafka 4.3.1, where named against 3.9.1
and with librdkafka 2.10.1.
"""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder import ExchangeDone, RequestSeen
from barnabas.decoder.exchange import State
from barnabas.decoder.findings import Severity
from barnabas.decoder.happening import Closed, Opened
from retold.versions import (
    IDS,
    NAMES,
    SECOND,
    changed,
    exchange_of,
    findings,
    offering,
    one,
    told,
    without,
)

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
    assert sorted(ALL) == NAMES
    assert {id for found in ALL.values() for id in found} == set(IDS)


@pytest.mark.parametrize("name", NAMES)
def test_each_recording_shows_what_it_was_made_for_and_nothing_else(name: str) -> None:
    found: dict[str, list[int]] = {}
    for finding in findings(told(name)):
        found.setdefault(finding.id, []).append(finding.count)
    assert found == {id: counts if isinstance(counts, list) else [counts] for id, counts in ALL[name].items()}


# --- refused, closed, ignored --------------------------------------------------------------------------------


def test_the_broker_closes_the_connection_on_an_old_produce() -> None:
    finding = one(told("old-kafka-python"), "closed-on-version")
    assert finding.severity is Severity.HIGH
    assert "client 'shop' at 127.0.0.1" in finding.seen and "3 times instead of answering Produce v2" in finding.seen
    assert "it serves v3 to v13" in finding.seen  # although ApiVersions says 0 to 13 (KAFKA-18659)
    assert "ApiVersions names v0 to v13" in finding.why
    assert "KIP-896" in finding.why and "EOF" in finding.why and "older" in finding.why
    assert "api_version" in finding.remedy and "broker.version.fallback" in finding.remedy
    about = finding.about
    assert (about["api"], about["asked"], about["offered"], about["ahead"]) == ("Produce", 2, (3, 13), "broker")
    assert finding.last_ns and finding.first_ns and finding.last_ns > finding.first_ns


def test_nobody_asked_and_the_version_is_in_no_current_release() -> None:
    finding = one(told("old-librdkafka"), "closed-on-version")
    assert "Produce v1" in finding.seen and "no current release" in finding.seen
    assert "KAFKA-18659" not in finding.why
    assert finding.about["offered"] is None and "never seen" in finding.why


def test_another_connection_has_learned_what_the_broker_offers() -> None:
    asking = [h for h in told("old-kafka-python") if (e := exchange_of(h)) is not None and e.connection == 1]
    others = changed(told("old-librdkafka"), Opened, broker="broker:9092")
    for e in filter(None, map(exchange_of, [*asking, *others])):
        e.broker = "broker:9092"
    for e in filter(None, map(exchange_of, asking)):
        e.connection = 1000
    finding = one([*asking, *others], "closed-on-version")
    assert "Produce v1" in finding.seen and finding.about["offered"] == (3, 13)


@pytest.mark.parametrize("close", [{"by": "client"}, {"how": ""}])
def test_a_client_that_hangs_up_or_a_capture_that_ends_is_no_refusal(close: dict[str, str]) -> None:
    assert findings(changed(told("old-kafka-python"), Closed, **close), "closed-on-version") == []


def test_a_connection_that_ends_much_later_was_not_closed_for_its_version() -> None:
    late = [
        changed([h], Closed, time_ns=h.time_ns + 30 * SECOND)[0] if isinstance(h, Closed) else h
        for h in told("old-kafka-python")
    ]
    assert findings(late, "closed-on-version") == []
    assert one(changed(late, Closed, by="broker"), "closed-on-version").count == 3  # somebody saw who it was


def test_a_version_in_range_that_gets_no_answer_is_another_matter() -> None:
    served = offering(told("old-kafka-python"), Produce=(0, 13), Fetch=(0, 17))
    assert findings(served, "closed-on-version", "api-versions-ignored") == []


def test_a_client_ignores_the_answer_it_got() -> None:
    finding = one(told("answer-ignored"), "api-versions-ignored")
    assert finding.severity is Severity.HIGH and finding.about["outcome"] == "closed"
    assert "Fetch v3" in finding.seen and "v4 to v18" in finding.seen and "raw-client 1.0" in finding.seen
    # told nothing on these connections, it has ignored nothing
    silent = without(told("answer-ignored"), lambda e: e.api == "ApiVersions")
    assert [f.id for f in findings(silent)] == ["closed-on-version"]
    assert findings(offering(told("answer-ignored"), Fetch=(3, 18))) == []


def test_a_version_that_is_not_offered_and_answered_all_the_same() -> None:
    finding = one(offering(told("wrong-leader"), Produce=(3, 8)), "api-versions-ignored")
    assert finding.severity is Severity.LOW and "answered all the same" in finding.seen


def test_a_feature_that_is_off() -> None:
    finding = one(told("group-protocol-off"), "unsupported-version")
    assert finding.severity is Severity.HIGH and finding.about["offered"] == (0, 1)
    assert "KIP-848" in finding.why and "group.version" in finding.remedy and finding.count == 3


def test_a_probe_of_an_admin_client_is_no_failure() -> None:
    assert one(told("group-described"), "unsupported-version").severity is Severity.INFO  # Kafka 3.9.1


@pytest.mark.parametrize(
    ("offered", "ahead"), [((1, 1), "upgrade the client"), ((0, 0), "upgrade the broker to 4.0 or newer")]
)
def test_who_is_ahead_when_a_version_is_refused(offered: tuple[int, int], ahead: str) -> None:
    # the recorded refusals, as if the broker had offered one version less on either side
    happenings = told("group-protocol-off")
    for h in happenings:
        e = exchange_of(h)
        if e is not None and e.api == "ConsumerGroupHeartbeat" and offered == (0, 0):
            e.api_version = 1
    finding = one(offering(happenings, ConsumerGroupHeartbeat=offered), "api-versions-ignored")
    assert finding.about["outcome"] == "refused" and ahead in finding.remedy


# --- ApiVersions ---------------------------------------------------------------------------------------------


def test_a_newer_client_falls_back_and_pays_a_round_trip() -> None:
    finding = one(told("api-versions-of-the-future"), "api-versions-fallback")
    assert finding.severity is Severity.INFO and finding.about["went_on"] is True
    assert "ApiVersions v99" in finding.seen and "it offers v0 to v4" in finding.seen and "ms" in finding.seen
    assert finding.about["cost_ms"] > 0 and "KIP-511" in finding.why


def test_a_newer_client_that_gives_up() -> None:
    finding = one(told("api-versions-given-up"), "api-versions-fallback")
    assert finding.severity is Severity.HIGH and finding.about["went_on"] is False


def test_a_refusal_in_no_known_form_is_said_once() -> None:
    happenings = told("api-versions-given-up")
    for e in filter(None, map(exchange_of, happenings)):
        e.response = bytes.fromhex("00000001 0023 01 00120000 00 02 00000000")  # what librdkafka's mock answers
    assert [f.id for f in findings(happenings, "malformed-api-versions-fallback", *IDS)] == [
        "malformed-api-versions-fallback"
    ]


def test_many_refusals_cost_something() -> None:
    slow = told("api-versions-of-the-future")
    for h in slow:
        if isinstance(h, ExchangeDone) and h.exchange.api_version == 99:
            h.exchange.response_time_ns = (h.exchange.request_time_ns or 0) + SECOND // 3
    assert one(slow, "api-versions-fallback").severity is Severity.LOW


def test_a_client_that_never_asks() -> None:
    finding = one(told("never-asks"), "no-api-versions")
    assert finding.severity is Severity.INFO and finding.about["used"] == {"Metadata": 12} and "KIP-35" in finding.why


def test_a_client_that_may_have_asked_before_the_capture_began() -> None:
    in_the_middle = told("never-asks")
    for h in in_the_middle:
        if isinstance(h, RequestSeen):
            h.exchange.correlation_id += 500
    assert findings(in_the_middle, "no-api-versions") == []
    unopened = [h for h in told("never-asks") if not isinstance(h, Opened)]
    assert findings(unopened, "no-api-versions") == []


def test_a_few_answers_say_nothing_about_what_a_client_never_does() -> None:
    assert findings(told("never-asks")[:9], "no-api-versions") == []
    assert one(told("never-asks")[:11], "no-api-versions").count == 5


# --- old -----------------------------------------------------------------------------------------------------


def test_versions_that_stop_working_with_kafka_4() -> None:
    shop, desk = findings(told("old-kafka-python-round"), "removed-in-kafka-4")  # Kafka 3.9.1
    assert shop.severity is desk.severity is Severity.MEDIUM
    assert shop.about["versions"] == [["Produce", 2]] and desk.about["versions"] == [["Fetch", 2], ["ListOffsets", 0]]
    assert "KIP-896" in shop.why and "v0 to v11" in shop.why and "2.1" in shop.remedy


def test_a_broker_that_has_nothing_newer_is_not_the_clients_fault() -> None:
    old = offering(told("old-kafka-python-round"), Produce=(0, 2), Fetch=(0, 2), ListOffsets=(0, 0))
    assert [f.severity for f in findings(old, "removed-in-kafka-4")] == [Severity.INFO] * 2
    assert findings(old, "old-record-format") == []  # it stores what it is sent


def test_what_a_proxy_translates_the_broker_never_sees() -> None:
    """The other leg of an exchange says at which version the broker was asked."""
    carried = told("old-kafka-python-round")
    for happening in carried:
        if (e := exchange_of(happening)) is not None and e.request is not None and e.api in NEWER:
            e.marks["broker_request"] = [e.request[:2] + NEWER[e.api].to_bytes(2, "big") + e.request[4:]]
    assert findings(carried, "removed-in-kafka-4") == findings(carried, "old-record-format") == []


def test_an_old_broker_gives_what_it_stores_to_a_new_client_that_is_translated_for() -> None:
    carried = told("old-kafka-python-round")
    for happening in carried:
        e = exchange_of(happening)
        if e is None or e.api != "Fetch" or "broker_request" in e.marks or e.request is None or e.response is None:
            continue
        asked = decoder.decode_request(e.request)
        given = decoder.decode_response(e.response, api_key=1, api_version=e.api_version)
        e.marks["broker_request"], e.api_version = [e.request], 4
        e.request = decoder.encode_request(1, 4, asked.to_dict(), correlation_id=e.correlation_id, client_id=e.client_id)
        e.response = decoder.encode_response(1, 4, given.to_dict(), correlation_id=e.correlation_id)
    assert [f.about["api"] for f in findings(carried, "old-record-format")] == ["Produce"]


NEWER = {"Produce": 3, "Fetch": 4, "ListOffsets": 1}


def test_a_refusal_names_what_a_proxy_noted_on_it() -> None:
    refused = told("group-described")
    plain = findings(refused, "unsupported-version")[0]
    for happening in refused:
        if (e := exchange_of(happening)) is not None and e.api == plain.about["api"]:
            e.marks["notes"] = ["the broker has no such thing"]
    noted = findings(refused, "unsupported-version")[0]
    assert noted.seen == plain.seen
    assert "the broker has no such thing" in noted.why and "the broker has no such thing" not in plain.why


def test_records_of_an_old_format_are_converted() -> None:
    sent, read = findings(told("old-kafka-python-round"), "old-record-format")
    assert "sent records of magic 1 in 24 Produce v2 requests" in sent.seen and sent.about["bytes"] > 2000
    assert "was sent records of magic 1 in 6 Fetch v2 responses" in read.seen and read.severity is Severity.LOW
    few = [h for h in told("old-kafka-python-round") if (e := exchange_of(h)) is None or e.correlation_id <= 5]
    assert findings(few, "old-record-format") == []


def test_a_client_far_behind_its_broker() -> None:
    finding = one(told("old-kafka-python-round"), "client-far-behind")
    assert finding.severity is Severity.INFO
    assert finding.about["level"] == "0.10.0" and finding.about["broker_level"] == "3.9"
    # what a broker of 1.0 offers of these: six releases are not reached
    near = offering(told("old-kafka-python-round"), Produce=(0, 5), Fetch=(0, 6), ListOffsets=(0, 2), Metadata=(0, 5))
    assert findings(near, "client-far-behind") == []


def test_compression_that_is_silently_off() -> None:
    finding = one(told("gzip-librdkafka-2.10"), "compression-off")
    assert finding.severity is Severity.LOW and finding.about["offered"] == (3, 12)
    assert "rdkafka-2.10.1" in finding.seen and finding.about["uncompressed_bytes"] > 4096
    assert "KAFKA-18659" in finding.why and "2.11.1" in finding.remedy


def test_a_fixed_librdkafka_and_a_broker_with_produce_0_are_fine() -> None:
    assert findings(told("gzip-librdkafka"), "compression-off") == []  # librdkafka 2.16 compresses there
    assert findings(offering(told("gzip-librdkafka-2.10"), Produce=(0, 12)), "compression-off") == []


# --- brokers that differ -------------------------------------------------------------------------------------


def test_a_version_that_only_another_broker_offers() -> None:
    finding = one(told("two-brokers"), "version-of-another-broker")
    assert finding.severity is Severity.HIGH and "broker 2 (" in finding.seen and "Fetch v17" in finding.seen
    assert finding.about["offered"] == (4, 16) and finding.about["other_broker"] != finding.about["broker"]
    alone = without(told("two-brokers"), lambda e: e.connection in (1, 2))
    assert [f.id for f in findings(alone)] == ["api-versions-ignored"]  # no other broker is known then


def test_brokers_of_one_cluster_that_offer_different_versions() -> None:
    finding = one(told("two-brokers"), "mixed-broker-versions")
    assert finding.severity is Severity.INFO and finding.about["apis"] == {"Fetch": [(4, 18), (4, 16)]}
    assert findings(offering(told("two-brokers"), Fetch=(4, 18)), "mixed-broker-versions") == []


def test_a_broker_that_offers_something_else_after_a_while() -> None:
    before = told("answer-ignored")
    connection = {e.connection for h in before if (e := exchange_of(h)) is not None}
    assert len(connection) == 3
    later = without(told("answer-ignored"), lambda e: e.connection != 3)
    offering(later, Metadata=(0, 12))
    finding = one([*without(before, lambda e: e.connection == 3), *later], "mixed-broker-versions")
    assert "has changed what it offers" in finding.seen and finding.about["apis"] == {"Metadata": [(0, 13), (0, 12)]}


def test_requests_without_answers_say_nothing() -> None:
    for name in NAMES:
        unanswered = told(name)
        for h in unanswered:
            if isinstance(h, ExchangeDone) and h.exchange.state is State.PAIRED:
                h.exchange.state, h.exchange.response, h.exchange.response_time_ns = State.NO_RESPONSE, None, None
        found = {f.id for f in findings(changed(unanswered, Closed, by="client")) if f.severity is not Severity.INFO}
        assert found <= {"odd-correlation-ids", "client-identity-changes"}, name  # requests alone show these
