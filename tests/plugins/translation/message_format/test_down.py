"""Batches as brokers serve them, down to message sets for old consumers: offsets, times, codecs, and what is left out."""

import pytest
from aiokafka.record.memory_records import _MemoryRecordsPy as AioRecords
from barnabas.decoder import records as R
from barnabas.decoder.records import Record
from barnabas.plugins.translation.message_format import ConversionCounts, ConversionError, down, up
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaRecords

TIME = 1_690_000_000_000
ROWS = [  # with gaps, as compaction leaves them
    Record(1000 + i + i // 5, TIME + 17 * i, None if i % 3 == 0 else b"key-%d" % i, None if i % 7 == 0 else b"v" * i)
    for i in range(40)
]


def rows_of(data):
    return [tuple(record[:4]) for entry in R.batches(data) for record in entry.records()]


def expected(rows, magic):
    return [(row.offset, row.timestamp if magic else None, row.key, row.value) for row in rows]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("magic", [0, 1])
def test_every_codec(magic, codec):
    counts = ConversionCounts()
    data = down(R.encode_batch(ROWS, codec=codec), magic=magic, counts=counts)
    entries = list(R.batches(data))
    assert {(e.magic, e.codec, e.crc_ok) for e in entries} == {(magic, 1 if codec == 4 else codec, True)}
    assert len(entries) == (1 if codec else len(ROWS))
    assert rows_of(data) == expected(ROWS, magic)
    assert counts == ConversionCounts(times_lost=0 if magic else 40)


@pytest.mark.parametrize("area", [AioRecords, KafkaRecords], ids=["aiokafka", "kafka-python"])
@pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)],  # they read lz4 in magic 0 by other rules
)
def test_old_consumers_read_it(area, magic, codec):
    walk, found = area(down(R.encode_batch(ROWS, codec=codec), magic=magic)), []
    while walk.has_next():
        entry = walk.next_batch()
        assert entry.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in entry]
    assert found == expected(ROWS, magic)


def test_wrapper_offsets():
    """Relative to the first in magic 1, with the last one's on the wrapper; absolute in magic 0 (KIP-31)."""
    batch = R.encode_batch([ROWS[0], ROWS[4], ROWS[5]], codec=1)
    for magic, inner in ((1, [0, 4, 6]), (0, [1000, 1004, 1006])):
        (entry,) = R.batches(down(batch, magic=magic))
        assert (entry.offset, [m.offset for m in entry.messages()]) == (1006, inner)


@pytest.mark.parametrize("codec", [0, 1])
def test_log_append_time(codec):
    batch = R.encode_batch(ROWS[:3], codec=codec, log_append=True, max_timestamp=TIME + 999)
    data = down(batch, magic=1)
    assert {(e.timestamp_type, e.timestamp) for e in R.batches(data)} == {("log_append", TIME + 999)}
    assert [row[1] for row in rows_of(data)] == [TIME + 999] * 3
    walk = KafkaRecords(data)
    while walk.has_next():
        assert {(r.timestamp, r.timestamp_type) for r in walk.next_batch()} == {(TIME + 999, 1)}
    assert [row[1] for row in rows_of(down(batch, magic=0))] == [None] * 3


def test_transactions_and_headers():
    """Markers are dropped, what was aborted stays (old consumers read uncommitted), headers are counted."""
    rows = [row._replace(headers=(("a", b"1"), ("b", None))) for row in ROWS[:2]]
    marker = Record(1002, TIME, b"\0\0\0\0", b"\0\0\0\0\0\0")
    data = (
        R.encode_batch(rows, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
        + R.encode_batch([marker], transactional=True, control=True, producer_id=7, producer_epoch=0)
        + R.encode_batch(ROWS[4:6])
    )
    counts = ConversionCounts()
    assert rows_of(down(data, magic=1, counts=counts)) == expected(ROWS[:2] + ROWS[4:6], 1)
    assert counts == ConversionCounts(headers_lost=4)
    assert down(R.encode_batch([marker], control=True), magic=0) == b""


def test_batches_that_compaction_emptied():
    empty = R.encode_batch([], base_offset=990, last_offset_delta=9, record_count=0)
    for codec in (0, 1):
        assert rows_of(down(empty + R.encode_batch(ROWS, codec=codec) + empty, magic=1)) == expected(ROWS, 1)
    assert down(empty, magic=1) == down(b"", magic=1) == b""


def test_delete_horizon():
    batch = R.encode_batch(ROWS, delete_horizon=TIME + 10**9)
    assert rows_of(down(batch, magic=1)) == expected(ROWS, 1)


def test_the_asked_offset():
    """Plain messages before it are dropped, a wrapper comes whole."""
    for codec in (0, 1, 4):
        data = R.encode_batch(ROWS[:20], codec=codec) + R.encode_batch(ROWS[20:], codec=codec)
        rows = ROWS if codec else ROWS[7:]
        assert rows_of(down(data, magic=1, first_offset=ROWS[7].offset)) == expected(rows, 1)
    assert rows_of(down(R.encode_batch(ROWS), magic=1, first_offset=5)) == expected(ROWS, 1)
    assert down(R.encode_batch(ROWS), magic=1, first_offset=5000) == b""


def test_the_last_batch_may_be_cut():
    first, second = R.encode_batch(ROWS[:20]), R.encode_batch(ROWS[20:])
    for cut in (1, 30, 61, len(second) - 1):
        assert rows_of(down(first + second[:cut], magic=1)) == expected(ROWS[:20], 1)
    assert down(first[:-1], magic=1) == b""


def test_what_is_old_enough_stays():
    old = R.encode_messages(ROWS[:5], magic=0, codec=1) + R.encode_messages(ROWS[5:9], magic=1)
    data = old + R.encode_batch(ROWS[9:])
    made = down(data, magic=1)
    assert made.startswith(old) and len(rows_of(made)) == 40


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("log_append", [False, True])
def test_from_1_to_0(codec, log_append):
    data = R.encode_messages(ROWS, magic=1, codec=codec, log_append=log_append, timestamp=5 if log_append else None)
    made = down(data, magic=0)
    assert {(e.magic, e.codec, e.crc_ok) for e in R.batches(made)} == {(0, codec, True)}
    assert rows_of(made) == expected(ROWS, 0)
    want = ROWS[3:] if not codec else ROWS
    assert rows_of(down(data, magic=0, first_offset=ROWS[3].offset)) == expected(want, 0)


def flipped(data, at):
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (flipped(R.encode_batch(ROWS), 200), "CORRUPT_MESSAGE", "record batch at byte 0: the CRC is wrong"),
        (flipped(R.encode_batch(ROWS), 16), "CORRUPT_MESSAGE", "magic 3 is unknown"),
        (R.encode_batch(ROWS, record_count=41), "CORRUPT_MESSAGE", "41 records declared"),
        (R.encode_batch([Record(0, 0, None, bytes(30 << 20))], codec=4), "MESSAGE_TOO_LARGE", "more than"),
    ],
    ids=["crc", "magic", "count", "bomb"],
)
def test_what_is_refused(data, error, text):
    with pytest.raises(ConversionError, match=text) as raised:
        down(data, magic=1)
    assert raised.value.error == error
    # Batches before it are given; the next fetch begins at the damaged one and reports it.
    assert rows_of(down(R.encode_batch(ROWS[:3]) + data, magic=1)) == expected(ROWS[:3], 1)


rows_of_any_kind = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1),
        st.integers(-1, 2**62),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=40),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row[0],
).map(lambda rows: [Record(*row) for row in sorted(rows, key=lambda row: row[0])])


@given(
    batches=st.lists(st.tuples(rows_of_any_kind, st.integers(0, 4)), min_size=1, max_size=3), magic=st.integers(0, 1)
)
def test_any_records_there_and_back(batches, magic):
    rows = [row for part, _ in batches for row in part]
    counts = ConversionCounts()
    data = down(b"".join(R.encode_batch(part, codec=codec) for part, codec in batches), magic=magic, counts=counts)
    assert rows_of(data) == expected(rows, magic)
    assert counts.headers_lost == sum(len(row.headers) for row in rows)
    (batch,) = R.batches(up(data))
    back = [(i, row.timestamp if magic else -1, row.key, row.value) for i, row in enumerate(rows)]
    assert [tuple(r[:4]) for r in batch.records()] == back


@given(data=st.binary(max_size=200), at=st.integers(0, 300), codec=st.integers(0, 4))
def test_damage_raises_conversion_error_alone(data, at, codec):
    whole = R.encode_batch(ROWS[:4], codec=codec)
    for damaged in (data, whole[:at] + data + whole[at + len(data) :]):
        try:
            down(damaged, magic=0, first_offset=1001)
        except ConversionError as error:
            assert error.text
