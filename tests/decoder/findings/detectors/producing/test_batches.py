"""Batches that cost too much or are damaged: recordings of real clients, repeated or with other bytes."""

from __future__ import annotations

import random

import pytest
from barnabas.decoder import Exchange, encode_request, encode_response
from barnabas.decoder.findings.engine.finding import Severity
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from traffic.edited_exchanges import (
    PRODUCE_RECORDS,
    answered,
    copied,
    edited,
    exchange_of,
    only,
    produce_refused,
    repeated,
)
from traffic.recordings import findings, one, recording

TINY, PLAIN, SKEW, CORRUPT = "tiny-batches", "uncompressed-batches", "partition-skew", "corrupt-batch"


def test_tiny_batches() -> None:
    finding = one(repeated(recording("producing-tiny"), times=40, seconds=8), TINY)  # 2,400 requests, 300 a second
    assert finding.severity is Severity.LOW and "linger.ms" in finding.remedy
    about = finding.about
    assert 290 <= about["batches_per_second"] <= 310 and about["records_per_batch"] == 1
    assert about["bytes_per_batch"] < 200 and about["topics"] == ["p-tiny"] and not about["scattered"]


def test_very_many_tiny_batches_cost_much() -> None:
    finding = one(repeated(recording("producing-tiny"), times=200, seconds=5.5), TINY)
    assert finding.severity is Severity.MEDIUM


def test_tiny_batches_at_a_low_rate_or_for_a_moment_are_well() -> None:
    assert findings(repeated(recording("producing-tiny"), times=20, seconds=8), TINY) == []  # 150 a second
    assert (
        findings(repeated(recording("producing-tiny"), times=20, seconds=4), TINY) == []
    )  # 300 a second, but not for long
    assert findings(repeated(recording("producing-uncompressed"), times=1200, seconds=6), TINY) == []  # not tiny


def test_records_without_key_for_all_partitions() -> None:
    finding = one(
        repeated(recording("producing-scattered"), times=60, seconds=10), TINY
    )  # 60 requests a second, of 6 batches
    assert finding.about["scattered"] and finding.about["batches_per_request"] == 6
    assert "sticky" in finding.remedy and "without a key for 6 partitions" in finding.seen


def test_records_with_keys_are_not_scattered_by_a_partitioner() -> None:
    batch = encode_batch([Record(0, 1, b"key", b"drop", ())])
    keyed = {PRODUCE_RECORDS.replace("partition_data[0]", f"partition_data[{n}]"): batch for n in range(6)}
    sent = repeated(recording("producing-scattered"), times=60, seconds=10, edit=lambda e: copied(e, request=keyed))
    finding = one(sent, TINY)
    assert not finding.about["scattered"] and "sticky" not in finding.remedy


def test_uncompressed_batches() -> None:
    finding = one(repeated(recording("producing-uncompressed"), times=1200, seconds=12), PLAIN)
    assert finding.severity is Severity.LOW
    about = finding.about
    assert about["bytes_per_second"] > 1_000_000 and about["zstd_ratio"] > 5 and about["topic"] == "p-uncompressed"
    assert "with zstd" in finding.seen and "compression.type" in finding.remedy


def test_few_uncompressed_bytes_are_well() -> None:
    assert findings(repeated(recording("producing-uncompressed"), times=400, seconds=12), PLAIN) == []
    assert findings(repeated(recording("producing-uncompressed"), times=800, seconds=8), PLAIN) == []  # not for long
    assert findings(repeated(recording("producing-tiny"), times=600, seconds=12), PLAIN) == []


@pytest.mark.parametrize("case", ["random bytes", "zstd already"])
def test_data_that_do_not_get_smaller_are_well(case: str) -> None:
    noise = random.Random(7).randbytes(22_000)
    batch = (
        encode_batch([Record(0, 1, None, noise, ())])
        if case == "random bytes"
        else encode_batch([Record(0, 1, None, noise + bytes(90_000), ())], codec=4)
    )
    sent = repeated(
        recording("producing-uncompressed"), 1200, 12, lambda e: copied(e, request={PRODUCE_RECORDS: batch})
    )
    assert findings(sent, PLAIN) == []


def test_even_spread_and_single_partitions_are_no_skew() -> None:
    assert findings(repeated(recording("producing-scattered"), times=40, seconds=10), SKEW) == []  # even
    assert (
        findings(repeated(recording("producing-tiny"), times=40, seconds=10), SKEW) == []
    )  # there is just one partition


def test_a_batch_that_is_damaged_behind_this_point() -> None:
    finding = one(edited(recording("producing-acks-1"), produce_refused("CORRUPT_MESSAGE")), CORRUPT)
    assert finding.about["crc_ok"] is True and "its CRC is right here" in finding.seen


def test_a_batch_of_a_format_that_its_request_does_not_carry() -> None:
    """As aiokafka 0.14 sends it to a broker before 0.11: Produce v2 with format 2."""

    def as_version_2(e: Exchange) -> Exchange:
        assert e.request_message is not None and e.response_message is not None
        asked, given = e.request_message.to_dict(), e.response_message.to_dict()
        del asked["transactional_id"]
        for partition in given["responses"][0]["partition_responses"]:
            partition["error_code"] = facts.error_code("CORRUPT_MESSAGE")
            for newer in partition.keys() - {"index", "error_code", "base_offset", "log_append_time_ms"}:
                del partition[newer]
        return copied(
            e,
            api_version=2,
            request=encode_request(0, 2, asked, correlation_id=e.correlation_id, client_id="a"),
            response=encode_response(0, 2, given, correlation_id=e.correlation_id),
        )

    finding = one(edited(recording("producing-acks-1"), as_version_2, "Produce"), CORRUPT)
    assert "format 2, but Produce v2 carries only formats 0 and 1" in finding.seen and "KIP-98" in finding.why


def damaged(e: Exchange) -> Exchange:
    return copied(e, response=(e.response or b"").replace(b"letter 3", b"better 3"))


def test_a_fetched_batch_that_is_damaged() -> None:
    assert findings("producing-fetched", CORRUPT) == []
    finding = one(edited(recording("producing-fetched"), damaged, "Fetch"), CORRUPT)
    assert finding.severity is Severity.HIGH and finding.about["topic"] == "p-fetched"
    assert "at offset 3" in finding.seen and finding.about["api"] == "Fetch"


@pytest.mark.parametrize(("number", "count"), [(1, 1), (3, 1), (4, 0), (15, 0), (16, 1), (32, 1)])
def test_one_fetch_of_sixteen_and_the_first_of_one_size_are_checked(number: int, count: int) -> None:
    fetches = [h for h in recording("producing-fetched") if (e := exchange_of(h)) is not None and e.api == "Fetch"]
    full = only(fetches, lambda e: b"letter 0" in (e.response or b""))
    happened = [h for n in range(40) for h in edited(full, damaged if n == number else None)]
    assert len(happened) == 80 and len(findings(happened, CORRUPT)) == count


def test_an_unreadable_batch_is_passed_over() -> None:
    place = "responses[0].partitions[0].records"
    torn = answered(lambda body: {place: bytes(16) + b"\x09" + bytes(120)} if body["responses"] else {})
    assert findings(edited(recording("producing-fetched"), torn, "Fetch"), CORRUPT) == []
