"""Round trips of any records, and any bytes at all: `RecordsError` or an answer, nothing else."""

import struct

from barnabas.decoder import records as R
from barnabas.decoder.records import Record
from harness.run.examples import times
from hypothesis import given
from hypothesis import strategies as st

maybe_bytes = st.none() | st.binary(max_size=200)
utf8 = st.text(st.characters(codec="utf-8"), max_size=20)
not_utf8 = st.binary(max_size=10).map(lambda tail: b"\xff" + tail)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)

record_rows = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1),
        int64,
        maybe_bytes,
        maybe_bytes,
        st.lists(st.tuples(utf8 | not_utf8, maybe_bytes), max_size=3).map(tuple),
    ),
    max_size=12,
)


@given(
    rows=record_rows,
    base=st.integers(0, 2**62),
    codec=st.integers(0, 4),
    sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
)
def test_written_records_are_read_back(rows, base, codec, sequence, transactional):
    rows = [Record(base + delta, *rest) for delta, *rest in rows]
    data = R.encode_batch(rows, codec=codec, base_offset=base, base_sequence=sequence, transactional=transactional)
    (batch,) = R.batches(data)
    assert (batch.end, batch.crc_ok, batch.codec, batch.transactional) == (len(data), True, codec, transactional)
    records = list(batch.records())
    assert [r._replace(sequence=None) for r in records] == rows
    if sequence >= 0:
        assert [r.sequence for r in records] == [(sequence + r.offset - base) % 2**31 for r in rows]
    assert R.encode_like(batch, records) == data
    payload = batch.payload()
    ends = [0] + [end for _, end in R.spans(payload, 0, len(payload), len(rows))]
    assert ends[-1] == len(payload)


@given(base=int64, timestamp=int64, delta_ms=int64, offset_delta=int32, horizon=st.booleans(), log_append=st.booleans())
def test_times_and_offsets_stay_int64(base, timestamp, delta_ms, offset_delta, horizon, log_append):
    data = R.encode_batch(
        [Record(base + offset_delta, timestamp + delta_ms, None, None)],
        base_offset=base,
        base_timestamp=timestamp,
        delete_horizon=timestamp if horizon else None,
        max_timestamp=timestamp,
        last_offset_delta=0,
        log_append=log_append,
    )
    (record,) = next(iter(R.batches(data))).records()
    assert (record.offset - base - offset_delta) % 2**64 == 0
    assert (record.timestamp - timestamp - (0 if log_append else delta_ms)) % 2**64 == 0
    assert -(2**63) <= record.offset < 2**63
    assert -(2**63) <= record.timestamp < 2**63


def fault(iterator):
    """Reads to the end; the RecordsError it ended with, or None."""
    try:
        for _ in iterator:
            pass
    except R.RecordsError as error:
        return error
    return None


def read_everything(data):
    """All that can be read is read, and whatever stops it is a RecordsError with a text and a place."""
    entries = []
    error = fault(entries.append(entry) for entry in R.batches(data))
    assert error is None or 0 <= error.offset < len(data)
    end = 0
    for entry in entries:
        assert entry.start == end
        end = entry.end
        error = fault(entry.records(limit=1 << 20))
        assert error is None or (str(error) and (error.offset is None or error.offset >= 0))
        if isinstance(entry, R.Message):
            fault(entry.messages(limit=1 << 20))
        if not isinstance(entry, R.Partial):
            assert entry.crc_ok == (entry.crc == entry.crc_computed)
    assert end <= len(data)
    assert end == len(data) or error_at_end(data, end)


def error_at_end(data, end):
    return isinstance(fault(R.batches(data, end)), R.BadLength | R.UnknownMagic)


@given(st.binary(max_size=300))
def test_any_bytes(data):
    read_everything(data)


@given(
    magic=st.integers(0, 2),
    attributes=st.integers(0, 255),
    body=st.binary(max_size=200),
    count=st.integers(-1, 5) | int32,
)
@times(3)
def test_any_bytes_behind_a_well_formed_head(magic, attributes, body, count):
    if magic == 2:
        head = struct.pack(">iBIhiqqqhii", 1, 2, 0, attributes, count, 5, 6, 7, 8, 9, count)
    else:
        head = struct.pack(">IBB", 0, magic, attributes) + bytes(8 * magic)
    data = struct.pack(">qi", 3, len(head) + len(body)) + head + body
    read_everything(data)


def valid_areas():
    rows = [Record(i, 1000 + i, b"key", b"value" * i, (("h", b"x"),)) for i in range(4)]

    def wrapper(codec, magic):
        inner = b"".join(message(i, magic, 0, b"value %d" % i) for i in range(3))
        return message(2, magic, codec, R.compress(codec, inner))

    def message(offset, magic, codec, value):
        body = struct.pack(">bb", magic, codec) + bytes(8 * magic) + struct.pack(">ii", -1, len(value)) + value
        return struct.pack(">qiI", offset, len(body) + 4, 0) + body

    return [
        *(R.encode_batch(rows, codec=codec) for codec in range(5)),
        R.encode_batch([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\1")], control=True),
        *(wrapper(codec, magic) for codec in range(1, 4) for magic in (0, 1)),
    ]


AREAS = valid_areas()


@given(
    area=st.sampled_from(AREAS),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.none() | st.integers(0, 10_000),
    extra=st.binary(max_size=20),
)
@times(6)
def test_any_change_of_good_bytes(area, flips, cut, extra):
    data = bytearray(area)
    for at, value in flips:
        data[at % len(data)] = value
    if cut is not None:
        del data[cut % len(data) :]
    read_everything(bytes(data) + extra)


@given(codec=st.integers(1, 4), data=st.binary(max_size=400), magic=st.integers(0, 2))
def test_any_bytes_for_the_codecs(codec, data, magic):
    heads = {1: b"\x1f\x8b\x08\0\0\0\0\0\0\xff", 2: b"", 3: bytes.fromhex("04224d18604082"), 4: b"\x28\xb5\x2f\xfd"}
    for input_ in (data, heads[codec] + data):
        try:
            assert len(R.decompress(codec, input_, magic=magic, limit=1 << 20)) <= 1 << 20
        except R.RecordsError:
            pass
