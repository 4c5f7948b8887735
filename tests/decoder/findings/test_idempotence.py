"""Producer ids, sequences and transactions that do not fit: recorded from real clients, and told a little otherwise."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from barnabas.decoder import Exchange, RequestSeen
from barnabas.decoder.findings.finding import Severity
from barnabas.decoder.happening import Closed
from retold.producing import (
    ERROR,
    RECORDS,
    SECOND,
    again,
    answer,
    ask,
    findings,
    later,
    one,
    only,
    records,
    refused,
    respond,
    told,
)

ORDER, TWICE, FLYING = "out-of-order-sequence", "duplicate-sends", "too-many-in-flight"
FENCED, UNKNOWN = "producer-fenced", "unknown-producer-id"
OPEN, CONCURRENT, STATE, ABORTS = (
    "transaction-left-open",
    "concurrent-transactions",
    "transaction-refused",
    "transactions-aborted",
)


def test_a_sequence_is_left_out() -> None:
    finding = one(told("sequence-gap"), ORDER)
    assert finding.severity is Severity.HIGH and finding.count == 2
    assert (finding.about["sequence"], finding.about["expected"]) == (7, 4)
    assert "sequence 7 came where 4 was due" in finding.seen and finding.about["client_id"] == "counter-1"


def test_batches_behind_a_failed_one_are_sent_again() -> None:
    finding = one(later(again(told("leader-moves"), edit=answer("OUT_OF_ORDER_SEQUENCE_NUMBER", refused)), 20), ORDER)
    assert finding.severity is Severity.INFO and finding.about["recovered"] == 1
    assert "no sequence was left out" in finding.seen


def test_a_batch_that_is_not_taken_any_more() -> None:
    failing = only(told("leader-moves"), lambda e: e.api != "Produce" or refused(e))
    failing = again(failing, edit=answer("OUT_OF_ORDER_SEQUENCE_NUMBER"))
    assert one(failing, ORDER).severity is Severity.MEDIUM
    assert one(later(failing, 20), ORDER).severity is Severity.HIGH


def test_a_client_that_goes_on_with_a_new_epoch() -> None:
    seen = [0]

    def bumped(exchange: Exchange) -> None:
        if exchange.api != "Produce":
            return
        if refused(exchange):
            seen[0] += 1
            respond(exchange, {ERROR: 45})
        elif seen[0]:
            data = records(exchange)
            struct.pack_into(">hi", data, 51, 1, 0)  # producer epoch 1, sequence 0
            ask(exchange, {RECORDS: bytes(data)})

    finding = one(later(again(told("leader-moves"), edit=bumped), 20), ORDER)
    assert finding.severity is Severity.LOW and finding.about["bumped"] == 1


def test_sequences_wrap_around() -> None:
    def high(exchange: Exchange) -> None:
        if exchange.api == "Produce":
            data = records(exchange)
            sequence = struct.unpack_from(">i", data, 53)[0]
            struct.pack_into(">i", data, 53, (sequence + 2**31 - 3) % 2**31)
            ask(exchange, {RECORDS: bytes(data)})
            if sequence == 5:
                respond(exchange, {ERROR: 45})

    happenings = again(told("leader-moves"), edit=high)
    finding = one(happenings, ORDER)
    assert finding.about["expected"] is None  # nothing was left out


def test_sent_again_although_acknowledged() -> None:
    finding = one(told("sent-again"), TWICE)
    assert finding.severity is Severity.LOW and finding.count == 2
    assert "acknowledged on the same connection" in finding.seen


def test_sent_again_on_another_connection_is_no_fault() -> None:
    first: dict[int, int] = {}

    def elsewhere(exchange: Exchange) -> None:
        if exchange.api == "Produce":
            exchange.connection += 10 * first.setdefault(id(exchange), len(first))

    assert findings(again(told("sent-again"), edit=elsewhere), TWICE) == []
    assert findings(told("leader-moves"), TWICE) == []


def test_the_broker_says_that_it_is_a_duplicate() -> None:
    finding = one(again(told("leader-moves"), edit=answer("DUPLICATE_SEQUENCE_NUMBER", refused)), TWICE)
    assert finding.count == 3 and finding.about["error"] == "DUPLICATE_SEQUENCE_NUMBER"


def test_more_in_flight_than_brokers_remember() -> None:
    finding = one(told("seven-in-flight"), FLYING)
    assert finding.severity is Severity.LOW and finding.about["in_flight"] == 7
    sent = [h.exchange.correlation_id for h in told("seven-in-flight") if isinstance(h, RequestSeen)]
    assert findings(only(told("seven-in-flight"), lambda e: e.correlation_id < sent[-1]), FLYING) != []
    five = only(told("seven-in-flight"), lambda e: e.correlation_id < sent[-2])
    assert findings(five, FLYING) == [] and findings(told("leader-moves"), FLYING) == []


def test_two_producers_with_one_transactional_id() -> None:
    finding = one(told("fenced"), FENCED)
    assert finding.severity is Severity.HIGH and finding.about["transactional_id"] == "booking-p-fenced"
    assert "client 'booker-1'" in finding.seen and "client 'booker-2'" in finding.seen
    assert "with epoch 1, this one has epoch 0" in finding.seen and len(finding.about["fenced_by"]) == 1
    assert findings(told("commits"), FENCED) == []


def test_two_producers_with_one_client_id_too() -> None:
    def same(exchange: Exchange) -> None:
        exchange.client_id = "booker"

    assert "two instances" in one(again(told("fenced"), edit=same), FENCED).seen


def test_fenced_by_nobody_who_was_seen() -> None:
    alone = only(told("fenced"), lambda e: e.client_id != "booker-2")
    finding = one(alone, FENCED)
    assert "no other producer was seen" in finding.seen and finding.about["fenced_by"] == []


@pytest.mark.parametrize("error", ["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"])
def test_fenced_in_produce(error: str) -> None:
    finding = one(again(told("unknown-producer-id"), edit=answer(error, refused)), FENCED)
    assert finding.about["api"] == "Produce" and finding.about["error"] == error
    assert finding.about["producer_id"] >= 0 and finding.about["producer_epoch"] == 0


def test_a_producer_id_is_forgotten() -> None:
    finding = one(told("unknown-producer-id"), UNKNOWN)
    assert finding.severity is Severity.MEDIUM and finding.about["topic"] == "p-unknown-producer-id"
    mapped = again(told("unknown-producer-id"), edit=answer("INVALID_PRODUCER_ID_MAPPING", refused))
    assert one(mapped, UNKNOWN).severity is Severity.HIGH
    assert findings(told("leader-moves"), UNKNOWN) == []


def test_a_transaction_outlives_its_timeout() -> None:
    finding = one(told("left-open"), OPEN)
    assert finding.severity is Severity.HIGH and finding.about["transactional_id"] == "deed-p-left-open"
    assert finding.about["timeout_ms"] == 1000 and 2 * SECOND <= finding.about["longest_ns"] < 4 * SECOND
    assert "transaction.timeout.ms" in finding.remedy


def test_a_transaction_that_nobody_ends() -> None:
    endless = only(told("left-open"), lambda e: e.api != "EndTxn")
    endless = [h for h in endless if not isinstance(h, Closed)]
    assert findings(endless, OPEN) == []
    finding = one(later(endless, 30), OPEN)
    assert finding.severity is Severity.HIGH and finding.count == 1 and finding.about["longest_ns"] > 30 * SECOND


def test_without_its_beginning_nothing_is_known_of_a_timeout() -> None:
    middle = only(told("left-open"), lambda e: e.api != "InitProducerId")
    assert findings(middle, OPEN) == []
    assert one(again(middle, stretch=1000), OPEN).about["timeout_ms"] is None  # longer than any broker allows


@pytest.mark.parametrize("begun_by", ["AddPartitionsToTxn", "Produce"])
def test_a_transaction_begins_with_either(begun_by: str) -> None:
    # Since KIP-890 clients no longer send AddPartitionsToTxn: the first batch begins it.
    other = {"AddPartitionsToTxn": "Produce", "Produce": "AddPartitionsToTxn"}[begun_by]
    assert one(only(told("left-open"), lambda e: e.api != other), OPEN).about["api"] == begun_by
    assert findings(only(told("left-open"), lambda e: e.api not in (begun_by, other)), OPEN) == []


def test_what_fails_does_not_begin_a_transaction() -> None:
    def failed(exchange: Exchange) -> None:
        if exchange.api == "AddPartitionsToTxn":
            respond(exchange, {"results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code": 51})

    assert findings(again(only(told("left-open"), lambda e: e.api != "Produce"), edit=failed), OPEN) == []


def test_an_end_that_is_tried_again_is_no_end() -> None:
    def concurrent(exchange: Exchange) -> None:
        if exchange.api == "EndTxn":
            respond(exchange, {"error_code": 51})

    happenings = [h for h in again(told("left-open"), edit=concurrent) if not isinstance(h, Closed)]
    assert one(later(happenings, 30), OPEN).about["longest_ns"] > 30 * SECOND


def test_transactions_that_end_are_well() -> None:
    assert findings(later(told("commits"), 3600), OPEN, CONCURRENT, STATE, ABORTS) == []


def test_a_producer_goes_away_inside_a_transaction() -> None:
    finding = one(told("abandoned"), OPEN)
    assert finding.severity is Severity.MEDIUM and "closed all of its connections" in finding.seen
    assert finding.about["transactional_id"] == "will-p-abandoned" and finding.about["timeout_ms"] == 60_000


@pytest.mark.parametrize(("how", "by"), [("", ""), ("fin", "broker"), ("rst", "")])
def test_connections_that_the_client_did_not_close(how: str, by: str) -> None:
    # the capture ends, the broker restarts, or the proxy stops
    happenings = [h if not isinstance(h, Closed) else replace(h, how=how, by=by) for h in told("abandoned")]
    assert findings(happenings, OPEN) == []


@pytest.mark.parametrize(("seconds", "severity"), [(2, Severity.LOW), (20, Severity.MEDIUM)])
def test_a_producer_that_comes_back(seconds: int, severity: Severity) -> None:
    def elsewhere(exchange: Exchange) -> None:
        exchange.connection += 20

    happenings = told("abandoned")
    ended = max(h.time_ns for h in happenings if isinstance(h, Closed))
    begun = only(happenings, lambda e: e.api == "InitProducerId" and not refused(e))
    back = [h for h in begun if not isinstance(h, Closed) and hasattr(h, "exchange")]
    start = back[0].exchange.request_time_ns  # type: ignore[union-attr]
    assert start is not None
    back = again(back, by_ns=ended - start + seconds * SECOND, edit=elsewhere)
    assert one([*happenings, *back], OPEN).severity is severity


def test_waiting_for_the_transaction_before() -> None:
    def concurrent(exchange: Exchange) -> None:
        respond(exchange, {"results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code": 51})

    begun = only(told("commits"), lambda e: e.api == "AddPartitionsToTxn" and not refused(e))
    begun = [h for h in begun if hasattr(h, "exchange")][:2]

    def tries(count: int, every: float) -> list[object]:
        return [h for n in range(count) for h in again(begun, by_ns=int(n * every * SECOND), edit=concurrent)]

    assert findings(tries(20, 0.1), CONCURRENT) == []  # type: ignore[arg-type]
    finding = one(tries(12, 1), CONCURRENT)  # type: ignore[arg-type]
    assert finding.severity is Severity.MEDIUM and finding.about["longest_ns"] == 11 * SECOND
    assert one(tries(12, 4), CONCURRENT).severity is Severity.HIGH  # type: ignore[arg-type]
    assert findings(told("aborts"), CONCURRENT) == []  # a few milliseconds, several times


@pytest.mark.parametrize(
    ("error", "severity"), [("INVALID_TXN_STATE", Severity.HIGH), ("TRANSACTION_ABORTABLE", Severity.MEDIUM)]
)
def test_a_request_that_does_not_fit_the_transaction(error: str, severity: Severity) -> None:
    finding = one(again(told("invalid-state"), edit=answer(error, refused)), STATE)
    assert finding.severity is severity and finding.about["error"] == error


def test_a_transaction_timeout_that_is_too_long() -> None:
    def too_long(exchange: Exchange) -> None:
        if exchange.api == "InitProducerId":
            respond(exchange, {"error_code": 50})

    finding = one(again(told("left-open"), edit=too_long), STATE)
    assert finding.about["transactional_id"] == "deed-p-left-open" and "transaction.max.timeout.ms" in finding.why


def test_many_aborts() -> None:
    finding = one(told("aborts"), ABORTS)
    assert finding.severity is Severity.LOW and finding.about["aborted"] == 12 == finding.about["transactions"]
    ends = [h for h in told("aborts") if hasattr(h, "exchange") and h.exchange.api == "EndTxn"]
    assert findings(ends[:18], ABORTS) == []  # nine are no pattern yet

    def failed(exchange: Exchange) -> None:
        respond(exchange, {"error_code": 48})

    assert findings(again(ends, edit=failed), ABORTS) == []  # nothing was aborted
    five = [h for n in range(5) for h in again(ends, by_ns=n * SECOND)]
    assert one(five, ABORTS).severity is Severity.MEDIUM
