"""Message sets as old producers send them, up to one batch of magic 2: values, offsets, times, codecs, and what is
refused."""

import struct
import zlib

import pytest
from aiokafka.record.memory_records import _MemoryRecordsPy as AioRecords
from barnabas.decoder import records as R
from barnabas.decoder.records import Record
from barnabas.decoder.schema import facts
from barnabas.plugins.translation.message_format import ConversionError, up
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaRecords

TIME = 1_690_000_000_000
ROWS = [
    Record(i, TIME + 17 * i, None if i % 3 == 0 else b"key-%d" % i, None if i % 7 == 0 else b"v" * (i * 30))
    for i in range(60)
]


def expected(rows, magic):
    """What comes out: offsets from 0, no times where the format has none."""
    return [(i, row.timestamp if magic else -1, row.key, row.value) for i, row in enumerate(rows)]


def one_batch(data):
    (batch,) = R.batches(data)
    assert isinstance(batch, R.Batch) and batch.crc_ok
    return batch


def rows_of(data):
    return [tuple(record[:4]) for record in one_batch(data).records()]


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
def test_every_codec(magic, codec):
    data = up(R.encode_messages(ROWS, magic=magic, codec=codec))
    batch = one_batch(data)
    assert rows_of(data) == expected(ROWS, magic)
    assert (batch.codec, batch.record_count, batch.base_offset, batch.last_offset_delta) == (codec, 60, 0, 59)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.attributes & ~7) == (-1, -1, -1, 0)
    assert batch.max_timestamp == (ROWS[-1].timestamp if magic else -1)


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("area", [AioRecords, KafkaRecords], ids=["aiokafka", "kafka-python"])
def test_others_read_the_batch(area, codec):
    walk = area(up(R.encode_messages(ROWS, magic=1, codec=codec)))
    batch = walk.next_batch()
    assert batch.validate_crc() and not walk.has_next()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in batch] == expected(ROWS, 1)


def test_several_messages_and_wrappers_become_one_batch():
    """Only one batch is allowed per partition from Produce v3 on; the codec is the last wrapper's, as LogValidator has
    it."""
    data = (
        R.encode_messages(ROWS[:5], magic=1)
        + R.encode_messages(ROWS[5:9], magic=1, codec=1)
        + R.encode_messages(ROWS[9:10], magic=0)
        + R.encode_messages(ROWS[10:20], magic=1, codec=2)
        + R.encode_messages(ROWS[20:22], magic=1)
    )
    made = up(data)
    want = expected(ROWS[:22], 1)
    want[9] = (9, -1, *want[9][2:])
    assert rows_of(made) == want
    assert one_batch(made).codec == 2


@pytest.mark.parametrize("how", [{"wrapper_offset": 0}, {"relative": False}, {"wrapper_offset": -1}])
@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_of_producers_count_for_nothing(magic, how):
    rows = [row._replace(offset=0) for row in ROWS[:9]]
    for given_rows in (rows, ROWS[:9], [row._replace(offset=100 + 3 * row.offset) for row in ROWS[:9]]):
        data = up(R.encode_messages(given_rows, magic=magic, codec=1, **how))
        assert rows_of(data) == expected(ROWS[:9], magic)


@pytest.mark.parametrize("codec", [0, 1])
def test_log_append_time(codec):
    """A producer may not set log-append time; the batch has create time, and the time that the message has."""
    data = R.encode_messages(ROWS[:3], magic=1, codec=codec, log_append=True, timestamp=TIME)
    made = up(data)
    assert one_batch(made).timestamp_type == "create"
    assert [row[1] for row in rows_of(made)] == [TIME] * 3


def test_what_is_not_whole():
    data = R.encode_messages(ROWS[:3], magic=1)
    assert up(b"") == b""
    assert up(data[:20]) == b""
    assert rows_of(up(data[:-1])) == expected(ROWS[:2], 1)


def test_nothing_to_do():
    batch = R.encode_batch(ROWS)
    assert up(batch) is batch


def wrapper(inner, *, magic=1, codec=1, attributes=None, level_magic=None):
    value = R.compress(codec, inner, magic=magic)
    body = struct.pack(">bb", magic, codec if attributes is None else attributes)
    body += struct.pack(">q", TIME) if magic else b""
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def flipped(data, at):
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


PLAIN = R.encode_messages(ROWS[:3], magic=1)
SECOND = len(R.encode_messages(ROWS[:1], magic=1))


@pytest.mark.parametrize(
    ("data", "error", "text", "offset"),
    [
        (flipped(PLAIN, SECOND + 40), "CORRUPT_MESSAGE", f"message at byte {SECOND}: the CRC is wrong", SECOND),
        (flipped(R.encode_messages(ROWS, codec=1), 60), "CORRUPT_MESSAGE", "message at byte 0: the CRC is wrong", 0),
        (wrapper(flipped(PLAIN, SECOND + 40)), "CORRUPT_MESSAGE", "message at byte 0: the CRC is wrong", SECOND),
        (wrapper(PLAIN[:-1]), "CORRUPT_MESSAGE", "last inner message is cut off", None),
        (wrapper(R.encode_messages(ROWS[:2], magic=0)), "INVALID_RECORD", "magic 0 inside one of magic 1", 16),
        (wrapper(wrapper(PLAIN)), "CORRUPT_MESSAGE", "compressed twice", None),
        (wrapper(PLAIN, attributes=4), "CORRUPT_MESSAGE", "zstd does not exist in magic 1", None),
        (wrapper(PLAIN, attributes=2), "CORRUPT_MESSAGE", "snappy", None),
        (PLAIN + R.encode_batch(ROWS), "INVALID_RECORD", "magic 2", len(PLAIN) + 16),
        (PLAIN[:16] + b"\x07" + PLAIN[17:], "CORRUPT_MESSAGE", "magic 7 is unknown", 16),
    ],
    ids=["crc", "wrapper crc", "inner crc", "cut", "magics", "twice", "zstd", "codec", "batch", "unknown"],
)  # fmt: skip
def test_what_is_refused(data, error, text, offset):
    with pytest.raises(ConversionError, match=text) as raised:
        up(data)
    assert raised.value.error == error and facts.error_code(error) != 0
    assert offset is None or raised.value.offset == offset


def test_what_unfolds_to_very_much_is_refused():
    with pytest.raises(ConversionError, match="more than") as raised:
        up(wrapper(R.encode_messages([Record(0, 0, None, bytes(30 << 20))])))
    assert raised.value.error == "MESSAGE_TOO_LARGE"


def test_the_limit_is_for_all_wrappers_together():
    one = R.encode_messages([Record(0, 0, None, bytes(1 << 20))], codec=1)
    assert len(rows_of(up(one * 3, limit=4 << 20))) == 3
    with pytest.raises(ConversionError, match="more than"):
        up(one * 5, limit=4 << 20)


rows_of_any_kind = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.integers(-1, 2**62),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=40),
    ),
    min_size=1,
    max_size=8,
).map(lambda rows: [Record(*row) for row in rows])


@given(parts=st.lists(st.tuples(rows_of_any_kind, st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=3))
def test_any_records(parts):
    data = b"".join(R.encode_messages(rows, magic=magic, codec=codec) for rows, magic, codec in parts)
    want = [(row.timestamp if magic else -1, row.key, row.value) for rows, magic, _ in parts for row in rows]
    assert rows_of(up(data)) == [(i, *row) for i, row in enumerate(want)]


@given(data=st.binary(max_size=200), at=st.integers(0, 300), codec=st.integers(0, 3))
def test_damage_raises_conversion_error_alone(data, at, codec):
    whole = R.encode_messages(ROWS[:4], magic=1, codec=codec)
    for damaged in (data, whole[:at] + data + whole[at + len(data) :]):
        try:
            up(damaged)
        except ConversionError as error:
            assert error.text
