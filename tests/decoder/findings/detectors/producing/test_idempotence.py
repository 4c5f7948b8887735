"""Producer ids, sequences and transactions that do not fit: recordings of real clients, as they are and edited."""

from __future__ import annotations

import itertools
import struct

import pytest
from barnabas.decoder import Exchange, RequestSeen
from barnabas.decoder.connection.events import Closed, ConnectionEvent
from barnabas.decoder.findings.engine.finding import Severity
from traffic.edited_exchanges import (
    PRODUCE_RECORDS,
    SECOND,
    changed,
    copied,
    edited,
    exchange_of,
    failed,
    later,
    only,
    produce_refused,
    refused,
    time_of,
)
from traffic.recordings import findings, one, recording

ORDER, TWICE, FLYING = "out-of-order-sequence", "duplicate-sends", "too-many-in-flight"
FENCED, UNKNOWN = "producer-fenced", "unknown-producer-id"
OPEN, CONCURRENT, STATE, ABORTS = (
    "transaction-left-open",
    "concurrent-transactions",
    "transaction-refused",
    "transactions-aborted",
)
ADD_ERROR = "results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code"
out_of_order = produce_refused("OUT_OF_ORDER_SEQUENCE_NUMBER")


def test_batches_behind_a_failed_one_are_sent_again() -> None:
    finding = one(
        later(edited(recording("producing-leader-moves"), produce_refused("OUT_OF_ORDER_SEQUENCE_NUMBER", failed)), 20),
        ORDER,
    )
    assert finding.severity is Severity.INFO and finding.about["recovered"] == 1
    assert "no sequence was skipped" in finding.seen


def test_a_batch_that_is_not_taken_any_more() -> None:
    failing = only(recording("producing-leader-moves"), lambda e: e.api != "Produce" or failed(e))
    failing = edited(failing, produce_refused("OUT_OF_ORDER_SEQUENCE_NUMBER"))
    assert one(failing, ORDER).severity is Severity.MEDIUM
    assert one(later(failing, 20), ORDER).severity is Severity.HIGH


def with_header(exchange: Exchange, layout: str, place: int, *values: int) -> Exchange:
    """Other numbers in the header of a Produce request's first batch."""
    assert exchange.request_message is not None
    records = bytearray(exchange.request_message[PRODUCE_RECORDS])
    struct.pack_into(layout, records, place, *values)
    return copied(exchange, request={PRODUCE_RECORDS: bytes(records)})


def test_a_client_that_goes_on_with_a_new_epoch() -> None:
    refusals = 0

    def bumped(e: Exchange) -> Exchange:
        nonlocal refusals
        if failed(e):
            refusals += 1
            return out_of_order(e)
        return with_header(e, ">hi", 51, 1, 0) if refusals else e  # producer epoch 1, sequence 0

    finding = one(later(edited(recording("producing-leader-moves"), bumped, "Produce"), 20), ORDER)
    assert finding.severity is Severity.LOW and finding.about["bumped"] == 1


def test_sequences_wrap_around() -> None:
    def high(e: Exchange) -> Exchange:
        assert e.request_message is not None
        (sequence,) = struct.unpack_from(">i", e.request_message[PRODUCE_RECORDS], 53)
        e = with_header(e, ">i", 53, (sequence + 2**31 - 3) % 2**31)
        return out_of_order(e) if sequence == 5 else e

    finding = one(edited(recording("producing-leader-moves"), high, "Produce"), ORDER)
    assert finding.about["expected"] is None  # nothing was left out


def test_sent_again_on_another_connection_is_no_fault() -> None:
    number = itertools.count()
    moved = edited(
        recording("producing-sent-again"), lambda e: copied(e, connection=e.connection + 10 * next(number)), "Produce"
    )
    assert findings(moved, TWICE) == []
    assert findings("producing-leader-moves", TWICE) == []


def test_the_broker_says_that_it_is_a_duplicate() -> None:
    finding = one(
        edited(recording("producing-leader-moves"), produce_refused("DUPLICATE_SEQUENCE_NUMBER", failed)), TWICE
    )
    assert finding.count == 3 and finding.about["error"] == "DUPLICATE_SEQUENCE_NUMBER"


def test_more_in_flight_than_brokers_remember() -> None:
    finding = one("producing-seven-in-flight", FLYING)
    assert finding.severity is Severity.LOW and finding.about["in_flight"] == 7
    sent = [h.exchange.correlation_id for h in recording("producing-seven-in-flight") if isinstance(h, RequestSeen)]
    assert findings(only(recording("producing-seven-in-flight"), lambda e: e.correlation_id < sent[-1]), FLYING) != []
    five = only(recording("producing-seven-in-flight"), lambda e: e.correlation_id < sent[-2])
    assert findings(five, FLYING) == [] and findings("producing-leader-moves", FLYING) == []


def test_two_producers_with_one_transactional_id() -> None:
    finding = one("producing-fenced", FENCED)
    assert finding.severity is Severity.HIGH and finding.about["transactional_id"] == "booking-p-fenced"
    assert "client 'booker-1'" in finding.seen and "client 'booker-2'" in finding.seen
    assert "with epoch 1, this one has epoch 0" in finding.seen and len(finding.about["fenced_by"]) == 1
    assert findings("producing-commits", FENCED) == []


def test_two_producers_with_one_client_id_too() -> None:
    same = edited(recording("producing-fenced"), lambda e: copied(e, client_id="booker"))
    assert "two instances" in one(same, FENCED).seen


def test_fenced_by_nobody_who_was_seen() -> None:
    alone = only(recording("producing-fenced"), lambda e: e.client_id != "booker-2")
    finding = one(alone, FENCED)
    assert "no other producer was seen" in finding.seen and finding.about["fenced_by"] == []


@pytest.mark.parametrize("error", ["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"])
def test_fenced_in_produce(error: str) -> None:
    finding = one(edited(recording("producing-unknown-producer-id"), produce_refused(error, failed)), FENCED)
    assert finding.about["api"] == "Produce" and finding.about["error"] == error
    assert finding.about["producer_id"] >= 0 and finding.about["producer_epoch"] == 0


def test_a_producer_id_is_forgotten() -> None:
    finding = one("producing-unknown-producer-id", UNKNOWN)
    assert finding.severity is Severity.MEDIUM and finding.about["topic"] == "p-unknown-producer-id"
    mapped = edited(recording("producing-unknown-producer-id"), produce_refused("INVALID_PRODUCER_ID_MAPPING", failed))
    assert one(mapped, UNKNOWN).severity is Severity.HIGH
    assert findings("producing-leader-moves", UNKNOWN) == []


def test_a_transaction_that_nobody_ends() -> None:
    endless = only(recording("producing-left-open"), lambda e: e.api != "EndTxn")
    endless = [h for h in endless if not isinstance(h, Closed)]
    assert findings(endless, OPEN) == []
    finding = one(later(endless, 30), OPEN)
    assert finding.severity is Severity.HIGH and finding.count == 1 and finding.about["longest_ns"] > 30 * SECOND


def test_without_its_beginning_nothing_is_known_of_a_timeout() -> None:
    middle = only(recording("producing-left-open"), lambda e: e.api != "InitProducerId")
    assert findings(middle, OPEN) == []
    assert one(edited(middle, stretch=1000), OPEN).about["timeout_ms"] is None  # longer than any broker allows


@pytest.mark.parametrize("begun_by", ["AddPartitionsToTxn", "Produce"])
def test_a_transaction_begins_with_either(begun_by: str) -> None:
    # Since KIP-890 clients no longer send AddPartitionsToTxn: the first batch begins it.
    other = {"AddPartitionsToTxn": "Produce", "Produce": "AddPartitionsToTxn"}[begun_by]
    assert one(only(recording("producing-left-open"), lambda e: e.api != other), OPEN).about["api"] == begun_by
    assert findings(only(recording("producing-left-open"), lambda e: e.api not in (begun_by, other)), OPEN) == []


def test_what_fails_does_not_begin_a_transaction() -> None:
    added = only(recording("producing-left-open"), lambda e: e.api != "Produce")
    assert findings(edited(added, refused("CONCURRENT_TRANSACTIONS", ADD_ERROR), "AddPartitionsToTxn"), OPEN) == []


def test_an_end_that_is_tried_again_is_no_end() -> None:
    happened = edited(recording("producing-left-open"), refused("CONCURRENT_TRANSACTIONS"), "EndTxn")
    happened = [h for h in happened if not isinstance(h, Closed)]
    assert one(later(happened, 30), OPEN).about["longest_ns"] > 30 * SECOND


def test_transactions_that_end_are_well() -> None:
    assert findings(later(recording("producing-commits"), 3600), OPEN, CONCURRENT, STATE, ABORTS) == []


@pytest.mark.parametrize(("how", "by"), [("", ""), ("fin", "broker"), ("rst", "")])
def test_connections_that_the_client_did_not_close(how: str, by: str) -> None:
    # the capture ends, the broker restarts, or the proxy stops
    assert findings(changed(recording("producing-abandoned"), Closed, how=how, by=by), OPEN) == []


@pytest.mark.parametrize(("seconds", "severity"), [(2, Severity.LOW), (20, Severity.MEDIUM)])
def test_a_producer_that_comes_back(seconds: int, severity: Severity) -> None:
    happened = recording("producing-abandoned")
    ended = max(h.time_ns for h in happened if isinstance(h, Closed))
    begun = [h for h in happened if (e := exchange_of(h)) and e.api == "InitProducerId" and not failed(e)]
    after = (ended - time_of(begun[0])) / SECOND + seconds
    back = edited(begun, lambda e: copied(e, connection=e.connection + 20), after=after)
    assert one([*happened, *back], OPEN).severity is severity


def test_waiting_for_the_transaction_before() -> None:
    happened = recording("producing-commits")
    begun = [h for h in happened if (e := exchange_of(h)) and e.api == "AddPartitionsToTxn" and not failed(e)][:2]
    concurrent = refused("CONCURRENT_TRANSACTIONS", ADD_ERROR)

    def tries(count: int, every: float) -> list[ConnectionEvent]:
        return [h for n in range(count) for h in edited(begun, concurrent, after=n * every)]

    assert findings(tries(20, 0.1), CONCURRENT) == []
    finding = one(tries(12, 1), CONCURRENT)
    assert finding.severity is Severity.MEDIUM and finding.about["longest_ns"] == 11 * SECOND
    assert one(tries(12, 4), CONCURRENT).severity is Severity.HIGH
    assert findings("producing-aborts", CONCURRENT) == []  # a few milliseconds, several times


@pytest.mark.parametrize(
    ("error", "severity"), [("INVALID_TXN_STATE", Severity.HIGH), ("TRANSACTION_ABORTABLE", Severity.MEDIUM)]
)
def test_a_request_that_does_not_fit_the_transaction(error: str, severity: Severity) -> None:
    finding = one(edited(recording("producing-invalid-state"), produce_refused(error, failed)), STATE)
    assert finding.severity is severity and finding.about["error"] == error


def test_a_transaction_timeout_that_is_too_long() -> None:
    too_long = edited(recording("producing-left-open"), refused("INVALID_TRANSACTION_TIMEOUT"), "InitProducerId")
    finding = one(too_long, STATE)
    assert finding.about["transactional_id"] == "deed-p-left-open" and "transaction.max.timeout.ms" in finding.why


def test_many_aborts() -> None:
    finding = one("producing-aborts", ABORTS)
    assert finding.severity is Severity.LOW and finding.about["aborted"] == 12 == finding.about["transactions"]
    ends = [h for h in recording("producing-aborts") if (e := exchange_of(h)) and e.api == "EndTxn"]
    assert findings(ends[:18], ABORTS) == []  # nine are no pattern yet
    assert findings(edited(ends, refused("INVALID_TXN_STATE")), ABORTS) == []  # nothing was aborted
    five = [h for n in range(5) for h in edited(ends, after=n)]
    assert one(five, ABORTS).severity is Severity.MEDIUM
