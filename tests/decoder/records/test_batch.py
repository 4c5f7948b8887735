"""Batches of magic 2 against bytes written out by hand, whole, cut and hostile."""

import struct

import crc32c
import pytest
from barnabas.decoder import records as R
from barnabas.decoder.records import Record

PRODUCE_TIME = 1_700_000_000_000


def by_hand(body: bytes, *, count: int, attributes: int = 0, base: int = 100, length: int | None = None) -> bytes:
    """A batch put together with struct alone: producer 7, epoch 3, sequence 2**31 - 2, leader epoch 5."""
    tail = struct.pack(">hiqqqhii", attributes, count - 1, PRODUCE_TIME, PRODUCE_TIME + 9, 7, 3, 2**31 - 2, count)
    tail += body
    length = 9 + len(tail) if length is None else length
    return struct.pack(">qiibI", base, length, 5, 2, crc32c.crc32c(tail)) + tail


# length 15: attributes, time +5, offset +1, key "k1", value null, two headers: "h" = "v" and ff = null
TWO_HEADERS = bytes.fromhex("1e 00 0a 02 04 6b31 01 04 02 68 02 76 02 ff 01")
PLAIN = bytes.fromhex("10 00 00 00 01 04 6869 00")


def only(data: bytes):
    (entry,) = R.batches(data)
    return entry


def test_header_fields():
    batch = only(by_hand(PLAIN, count=1))
    assert (batch.base_offset, batch.partition_leader_epoch, batch.magic) == (100, 5, 2)
    assert batch.batch_length == len(batch.data) - 12
    assert (batch.attributes, batch.last_offset_delta, batch.last_offset) == (0, 0, 100)
    assert (batch.base_timestamp, batch.max_timestamp) == (PRODUCE_TIME, PRODUCE_TIME + 9)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 2**31 - 2)
    assert batch.record_count == 1
    assert (batch.start, batch.end) == (0, len(batch.data))
    assert batch.crc_ok


@pytest.mark.parametrize(
    ("bits", "codec", "timestamp_type", "transactional", "control", "horizon"),
    [
        (0x00, "none", "create", False, False, None),
        (0x01, "gzip", "create", False, False, None),
        (0x0A, "snappy", "log_append", False, False, None),
        (0x13, "lz4", "create", True, False, None),
        (0x34, "zstd", "create", True, True, None),
        (0x40, "none", "create", False, False, PRODUCE_TIME),
        (0x07, "unknown(7)", "create", False, False, None),
    ],
)
def test_attribute_bits(bits, codec, timestamp_type, transactional, control, horizon):
    batch = only(by_hand(b"", count=0, attributes=bits))
    assert batch.codec_name == codec
    assert batch.timestamp_type == timestamp_type
    assert (batch.transactional, batch.control, batch.delete_horizon) == (transactional, control, horizon)


def test_records_of_bytes_written_by_hand():
    first, second = only(by_hand(PLAIN + TWO_HEADERS, count=2)).records()
    assert first == Record(100, PRODUCE_TIME, None, b"hi", (), 2**31 - 2)
    headers = (("h", b"v"), (b"\xff", None))
    assert second == Record(101, PRODUCE_TIME + 5, b"k1", None, headers, 2**31 - 1)


def test_sequence_numbers_start_again_at_zero():
    third = PLAIN.replace(b"\x00\x00\x00\x01", b"\x00\x00\x04\x01")  # offset delta 2
    assert next(only(by_hand(third, count=1)).records()).sequence == 0


def test_log_append_time_is_the_time_of_all_records():
    batch = only(by_hand(PLAIN + TWO_HEADERS, count=2, attributes=0x08))
    assert [record.timestamp for record in batch.records()] == [PRODUCE_TIME + 9] * 2


def test_a_wrong_crc_does_not_prevent_reading():
    data = bytearray(by_hand(PLAIN, count=1))
    data[-2] ^= 1
    batch = only(bytes(data))
    assert not batch.crc_ok
    assert batch.crc_computed == crc32c.crc32c(bytes(data[21:]))
    assert next(batch.records()).value == b"hh"


CONTROL_TYPES = (
    "abort", "commit", "leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters", "unknown(7)"
)  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), list(enumerate(CONTROL_TYPES)))
def test_types_of_control_records(kind, name):
    key = struct.pack(">hh", 0, kind)
    data = R.encode_batch([Record(5, 1, key, struct.pack(">hi", 0, 42))], control=True)
    (record,) = only(data).records()
    assert record.control.name == name
    assert record.control.coordinator_epoch == (42 if kind < 2 else None)


def test_a_control_record_without_a_type_is_an_error():
    data = R.encode_batch([Record(5, 1, b"\0\0\0", b"")], control=True)
    with pytest.raises(R.BadLength, match="control record has 3 bytes"):
        list(only(data).records())


def test_a_last_batch_cut_at_any_byte_is_partial():
    whole = by_hand(PLAIN, count=1)
    data = whole + by_hand(PLAIN + TWO_HEADERS, count=2, base=200)
    for cut in range(len(whole) + 1, len(data)):
        first, partial = R.batches(data[:cut])
        assert first.end == len(whole)
        have = cut - len(whole)
        assert (partial.start, partial.end) == (len(whole), cut)
        assert partial.base_offset == (200 if have >= 8 else None)
        assert partial.missing == (len(data) - cut if have >= 12 else None)
        assert partial.magic == (2 if have > 16 else None)
        assert list(partial.records()) == []


def test_positions_count_from_the_start_of_the_data():
    whole = by_hand(PLAIN, count=1)
    data = b"header" + whole + b"trailer"
    (batch,) = R.batches(data, 6, 6 + len(whole))
    assert (batch.start, batch.end, batch.crc_ok) == (6, 6 + len(whole), True)
    assert [record.value for record in batch.records()] == [b"hi"]


def test_an_empty_area_holds_nothing():
    assert list(R.batches(b"")) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_impossible_batch_lengths(length):
    with pytest.raises(R.BadLength, match=f"{length} bytes") as caught:
        list(R.batches(by_hand(PLAIN, count=1, length=length)))
    assert caught.value.offset == 8


def test_a_batch_length_beyond_the_area_is_a_partial():
    assert only(by_hand(PLAIN, count=1, length=2**31 - 1)).missing == 2**31 - 1 + 12 - len(by_hand(PLAIN, count=1))


@pytest.mark.parametrize("magic", [3, 0x7F, 0xFF])
def test_unknown_magic(magic):
    data = bytearray(by_hand(PLAIN, count=1))
    data[16] = magic
    with pytest.raises(R.UnknownMagic) as caught:
        list(R.batches(bytes(data)))
    assert caught.value.offset == 16


def test_batches_before_a_damaged_one_are_read():
    good = by_hand(PLAIN, count=1)
    walk = R.batches(good + by_hand(PLAIN, count=1, length=3))
    assert next(walk).base_offset == 100
    with pytest.raises(R.BadLength):
        next(walk)


HOSTILE = {
    "no such count": (PLAIN, 2**31 - 1, R.Truncated, "2147483647 records declared, 1 found"),
    "negative count": (PLAIN, -1, R.BadLength, "-1 records"),
    "bytes left over": (PLAIN + TWO_HEADERS, 1, R.BadLength, "16 bytes left over"),
    "negative record": (b"\x01" + PLAIN[1:], 1, R.BadLength, "a record of -1 bytes"),
    "record too long": (b"\x14" + PLAIN[1:], 1, R.Truncated, "a record of 10 bytes, only 8 left"),
    "record too short": (b"\x0e" + PLAIN[1:], 1, R.BadLength, "fields take 8"),
    "tiny record": (b"\x02\x00", 1, R.BadLength, "is too short"),
    "length of 6 bytes": (b"\xff" * 5 + b"\x01", 1, R.BadLength, "varint is longer than 5"),
    "time of 11 bytes": (b"\x28\x00" + b"\x80" * 10 + b"\x00" * 9, 1, R.BadLength, "varint is longer than 10"),
    "key of 2 GiB": (b"\x14\x00\x00\x00\xfe\xff\xff\xff\x0f\0\0", 1, R.BadLength, "a key of 2147483647 bytes"),
    "key of -2": (b"\x10\x00\x00\x00\x03\x04hi\x00", 1, R.BadLength, "a key of -2 bytes"),
    "value over its end": (b"\x10\x00\x00\x00\x01\x08hi\x00", 1, R.BadLength, "a value of 4 bytes, only 3 left"),
    "2^31 headers": (b"\x16\x00\x00\x00\x01\x00\xfe\xff\xff\xff\x0f\0", 1, R.BadLength, "2147483647 record headers"),
    "negative headers": (b"\x0c\x00\x00\x00\x01\x01\x01", 1, R.BadLength, "-1 record headers"),
    "null header key": (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, R.BadLength, "header key is null"),
    "cut in a varint": (b"\x80", 1, R.Truncated, "varint is cut off"),
    "nothing there": (b"", 1, R.Truncated, "1 record declared, 0 found"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_records_raise_errors(name):
    body, count, error, text = HOSTILE[name]
    batch = only(by_hand(body, count=count if count == 1 else 1))
    batch.record_count = count
    with pytest.raises(error, match=text) as caught:
        list(batch.records())
    assert type(caught.value) is error
    assert 57 <= caught.value.offset <= batch.end
    assert str(caught.value).startswith("record batch at byte 0: ")


def test_good_records_come_before_the_error():
    records = only(by_hand(PLAIN + b"\x01" + PLAIN[1:], count=2)).records()
    assert next(records).value == b"hi"
    with pytest.raises(R.BadLength) as caught:
        next(records)
    assert caught.value.offset == 61 + len(PLAIN)


def test_offsets_in_compressed_records_are_marked():
    good = only(R.encode_batch([Record(0, 1, None, b"hi")], codec=1))
    good.record_count = 2
    with pytest.raises(R.Truncated, match="of the decompressed records") as caught:
        list(good.records())
    assert caught.value.decompressed


def test_times_and_offsets_wrap_as_int64():
    data = R.encode_batch([Record(2**63 - 1, 2**63 - 1, None, b""), Record(2**63 - 1, -(2**63), None, b"")])
    batch = only(data)
    assert [(r.offset, r.timestamp) for r in batch.records()] == [(2**63 - 1, 2**63 - 1), (2**63 - 1, -(2**63))]
    batch.base_timestamp, batch.base_offset = 5, 2**63 - 1
    assert all(-(2**63) <= r.timestamp < 2**63 for r in batch.records())


def test_spans_cover_the_records_exactly():
    data = by_hand(PLAIN + TWO_HEADERS, count=2)
    assert list(R.spans(data, 61, len(data), 2)) == [(61, 70), (70, 86)]
    with pytest.raises(R.Truncated):
        list(R.spans(data, 61, len(data), 3))
    with pytest.raises(R.Truncated):
        list(R.spans(data, 61, len(data) - 1, 2))


def test_given_header_values_are_written_as_they_are():
    data = R.encode_batch([Record(0, 1, None, b"x")], crc=1, record_count=9, last_offset_delta=-4, max_timestamp=3)
    batch = only(data)
    assert (batch.crc, batch.crc_ok) == (1, False)
    assert (batch.record_count, batch.last_offset_delta, batch.max_timestamp) == (9, -4, 3)


def test_values_that_do_not_fit_are_refused():
    with pytest.raises(R.RecordsError, match="cannot be written"):
        R.encode_batch([], producer_epoch=1 << 20)
    with pytest.raises(R.CodecError, match=r"unknown\(6\)"):
        R.encode_batch([], codec=6)


@pytest.mark.parametrize("codec", range(5))
def test_encode_like(codec):
    data = R.encode_batch(
        [Record(40 + i, 1000 + i, b"k", b"v%d" % i) for i in range(3)],
        codec=codec,
        partition_leader_epoch=8,
        transactional=True,
        producer_id=12,
        producer_epoch=1,
        base_sequence=40,
    )
    batch = only(data)
    assert R.encode_like(batch, batch.records()) == data
    edited = only(R.encode_like(batch, [r._replace(value=b"new") for r in batch.records()][:2]))
    assert [(r.offset, r.value, r.sequence) for r in edited.records()] == [(40, b"new", 40), (41, b"new", 41)]
    assert (edited.last_offset, edited.record_count, edited.crc_ok) == (42, 2, True)
    assert (edited.attributes, edited.producer_id, edited.partition_leader_epoch) == (batch.attributes, 12, 8)
