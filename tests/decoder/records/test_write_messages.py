"""Writing magic 0 and 1: read back here and by aiokafka and kafka-python, and against bytes of Kafka 0.8.2.2's classes."""

import struct
import zlib

import pytest
from aiokafka.record.memory_records import _MemoryRecordsPy as AioRecords
from barnabas.decoder import records as R
from barnabas.decoder.records import Record
from barnabas.decoder.records.bounds import old_lz4_header, repair_lz4_header
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaRecords

TIME = 1_690_000_000_000
ROWS = [
    Record(100 + 2 * i, TIME + 17 * i, None if i % 3 == 0 else b"key-%d" % i, None if i % 7 == 0 else b"v" * (i * 3))
    for i in range(60)
]

# What org.apache.kafka.common.record.MemoryRecords of 0.8.2.2 writes for OLD.
OLD = [
    Record(0, None, b"k", b"value value value value"),
    Record(1, None, None, b"two"),
    Record(2, None, b"t", None),
]
OLD_NONE = (
    "0000000000000000000000267b91b6540000000000016b0000001776616c75652076616c75652076616c75652076616c7565"
    "0000000000000001000000116732f40b0000ffffffff0000000374776f"
    "00000000000000020000000f723204a500000000000174ffffffff"
)
OLD_GZIP = (
    "00000000000000020000005be3317d540001ffffffff0000004d1f8b08000000000000ff63608003b5ea89db42c02cc66c20215e"
    "9698539aaa804142553302b160bad1176e0686ff4000e4319794e74325998098bfc8886529446909480500047019f56a000000"
)
OLD_SNAPPY = (
    "000000000000000200000071b15223fc0002ffffffff0000006382534e415050590000000001000000010000004f6a0000190110"
    "267b91b654050f2c016b0000001776616c75652042060005225c000001000000116732f40b0000ffffffff0000000374776f0d1d"
    "4c020000000f723204a500000000000174ffffffff"
)
OLD_LZ4 = (
    "0000000000000002000000708a9e9f450003ffffffff0000006204224d1860401a530000001600010051267b91b6540f00cd016b"
    "0000001776616c7565200600012200f009000001000000116732f40b0000ffffffff0000000374776f1a00f00800000002000000"
    "0f723204a500000000000174ffffffff00000000"
)


def read(data):
    return [record for entry in R.batches(data) for record in entry.records()]


def without_times(rows, magic):
    return [row if magic else row._replace(timestamp=None) for row in rows]


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
def test_written_records_are_read_back(magic, codec):
    data = R.encode_messages(ROWS, magic=magic, codec=codec)
    entries = list(R.batches(data))
    assert len(entries) == (1 if codec else len(ROWS))
    assert all((e.magic, e.codec, e.crc_ok) == (magic, codec, True) for e in entries)
    assert all(inner.crc_ok and inner.magic == magic for e in entries for inner in e.messages())
    assert read(data) == without_times(ROWS, magic)
    assert entries[-1].offset == ROWS[-1].offset
    assert entries[-1].timestamp == (ROWS[-1].timestamp if magic else None)


@pytest.mark.parametrize("area", [AioRecords, KafkaRecords], ids=["aiokafka", "kafka-python"])
@pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)],  # lz4 in magic 0 is compared with Kafka's own below
)
def test_other_libraries_read_our_bytes(area, magic, codec):
    data = R.encode_messages(ROWS, magic=magic, codec=codec)
    walk, found = area(data), []
    while walk.has_next():
        entry = walk.next_batch()
        assert entry.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in entry]
    assert found == [row[:4] for row in without_times(ROWS, magic)]


@pytest.mark.parametrize(("codec", "theirs"), list(enumerate([OLD_NONE, OLD_GZIP, OLD_SNAPPY, OLD_LZ4])))
def test_bytes_of_kafka_0_8(codec, theirs):
    data = bytes.fromhex(theirs)
    assert read(data) == OLD
    assert all(entry.crc_ok for entry in R.batches(data))
    ours = R.encode_messages(OLD, magic=0, codec=codec)
    if codec in (0, 2):  # the others' compressors choose other matches
        assert ours == data
    assert read(ours) == OLD


def test_the_old_lz4_checksum_is_kafka_0_8s():
    (entry,) = R.batches(bytes.fromhex(OLD_LZ4))
    frame = entry.value
    assert old_lz4_header(frame) == frame
    right = repair_lz4_header(frame)
    assert right != frame and right[:6] + right[7:] == frame[:6] + frame[7:]
    with pytest.raises(R.CodecError):
        R.decompress(3, frame, magic=1)
    ours = R.compress(3, b"kafka" * 100, magic=0)
    assert ours != R.compress(3, b"kafka" * 100, magic=1) == repair_lz4_header(ours)
    for short in (b"", frame[:6], b"no lz4 at all"):
        assert old_lz4_header(short) == short


def test_inner_offsets_absolute_and_relative():
    rows = [Record(offset, 5, None, b"") for offset in (10, 11, 14)]

    def inner(**how):
        (entry,) = R.batches(R.encode_messages(rows, codec=1, **how))
        return entry.offset, [m.offset for m in entry.messages()], [r.offset for r in entry.records()]

    assert inner(magic=0) == (14, [10, 11, 14], [10, 11, 14])
    assert inner(magic=1) == (14, [0, 1, 4], [10, 11, 14])
    assert inner(magic=1, wrapper_offset=0) == (0, [0, 1, 4], [0, 1, 4])  # as some producers send it
    assert inner(magic=1, relative=False) == (14, [10, 11, 14], [10, 11, 14])
    assert inner(magic=0, relative=True) == (14, [0, 1, 4], [0, 1, 4])  # a fault: magic 0 knows no relative ones


@pytest.mark.parametrize("codec", [0, 1])
def test_log_append_time(codec):
    rows = [Record(7, 5, None, b"a"), Record(8, 6, None, b"b")]
    data = R.encode_messages(rows, codec=codec, log_append=True, timestamp=99)
    assert {entry.timestamp_type for entry in R.batches(data)} == {"log_append"}
    assert [record.timestamp for record in read(data)] == [99, 99]
    walk = KafkaRecords(data)
    theirs = []
    while walk.has_next():
        theirs += [(r.timestamp, r.timestamp_type) for r in walk.next_batch()]
    assert theirs == [(99, 1), (99, 1)]
    own = R.encode_messages(rows, log_append=True)
    assert [record.timestamp for record in read(own)] == [5, 6]
    old = R.encode_messages(rows, magic=0, codec=codec, log_append=True, timestamp=99)
    assert [entry.timestamp_type for entry in R.batches(old)] == [None] * (1 if codec else 2)


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("log_append", [False, True])
def test_encode_messages_like(magic, codec, log_append):
    rows = ROWS if codec else ROWS[:1]
    data = R.encode_messages(rows, magic=magic, codec=codec, log_append=log_append, timestamp=9 if log_append else None)
    (entry,) = R.batches(data)
    again = list(R.batches(R.encode_messages_like(entry, entry.records())))
    assert [(e.magic, e.codec, e.timestamp_type) for e in again] == [(magic, codec, entry.timestamp_type)]
    assert read(R.encode_messages_like(entry, entry.records())) == read(data)
    if codec:
        fewer = [r._replace(value=b"new") for r in entry.records()][:-5]
        assert read(R.encode_messages_like(entry, fewer)) == fewer


def test_fields_that_old_magics_lack_are_left_out():
    row = Record(3, None, b"k", b"v", (("h", b"x"),), 7)
    assert read(R.encode_messages([row])) == [Record(3, -1, b"k", b"v")]
    assert R.encode_messages([]) == R.encode_messages([], codec=1) == b""


def test_given_header_values_are_written_as_they_are():
    for codec in (0, 1):
        (entry,) = R.batches(R.encode_messages(ROWS[:1], codec=codec, crc=5))
        assert (entry.crc, entry.crc_ok) == (5, False)
        assert [r.key for r in entry.records()] == [ROWS[0].key]


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({"magic": 2}, R.UnknownMagic, "encode_batch"),
        ({"magic": 1, "codec": 4}, R.CodecError, "zstd does not exist in magic 1"),
        ({"magic": 0, "codec": 6}, R.CodecError, r"unknown\(6\)"),
        ({"crc": 1 << 32}, R.RecordsError, "cannot be written"),
        ({"codec": 1, "timestamp": 1 << 63}, R.RecordsError, "cannot be written"),
    ],
)
def test_values_that_do_not_fit_are_refused(how, error, text):
    with pytest.raises(error, match=text):
        R.encode_messages(ROWS[:1], **how)


rows_of_any_kind = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.integers(-1, 2**63 - 1),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=40),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row[0],
).map(lambda rows: [Record(*row) for row in sorted(rows, key=lambda row: row[0])])


@given(rows=rows_of_any_kind, magic=st.integers(0, 1), codec=st.integers(0, 3))
def test_any_records(rows, magic, codec):
    assert read(R.encode_messages(rows, magic=magic, codec=codec)) == without_times(rows, magic)


def test_the_layout_by_hand():
    body = struct.pack(">bbqi", 1, 8, 77, -1) + struct.pack(">i", 2) + b"hi"
    by_hand = struct.pack(">qiI", 9, len(body) + 4, zlib.crc32(body)) + body
    assert R.encode_messages([Record(9, 77, None, b"hi")], log_append=True) == by_hand
