"""The index of a batch gives the same records as `Batch.records`, whatever the header."""

import struct

import pytest
from barnabas.decoder import records as R
from barnabas.decoder.records import Record

MARKER = Record(5, 1, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 42))
BATCHES = {
    "plain": R.encode_batch([Record(i, 1000 + i, b"k%d" % i, b"v", (("h", None),)) for i in range(5)]),
    "sequence": R.encode_batch([Record(i, 1, None, b"") for i in range(3)], producer_id=7, base_sequence=2**31 - 2),
    "control": R.encode_batch([MARKER], control=True, transactional=True, producer_id=9, producer_epoch=2),
    "far offsets": R.encode_batch([Record(2**63 - 1, 2**63 - 1, None, None), Record(2**63 - 1, -(2**63), None, b"")]),
    "log append": R.encode_batch([Record(i, i, b"", None) for i in range(3)], log_append=True, max_timestamp=77),
    **{
        f"codec {codec}": R.encode_batch([Record(i, i, b"k", b"v" * i) for i in range(40)], codec=codec)
        for codec in range(1, 5)
    },
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_index_agrees_with_the_walk(name):
    (batch,) = R.batches(BATCHES[name])
    index = R.RecordIndex(batch)
    walked = list(batch.records())
    assert [index[i] for i in range(len(index))] == walked == list(index)
    assert index[-1] == walked[-1] and index[1:3] == walked[1:3]
    with pytest.raises(IndexError):
        index[len(walked)]
    before = 0 if batch.codec else 61
    ends = [index.span(i) for i in range(len(index))]
    assert [start for start, _ in ends] == [before, *(end for _, end in ends[:-1])]
    assert ends[-1][1] == before + len(batch.payload())


def test_the_index_reads_control_records():
    (batch,) = R.batches(BATCHES["control"])
    record = R.RecordIndex(batch)[0]
    assert (record.control.name, record.control.coordinator_epoch) == ("commit", 42)
    assert (batch.transactional, batch.producer_id, batch.producer_epoch) == (True, 9, 2)


@pytest.mark.parametrize(
    ("key", "value", "is_one"), [(b"k", None, True), (b"", None, True), (None, None, False), (b"k", b"", False)]
)
def test_tombstones(key, value, is_one):
    for data in (
        R.encode_batch([Record(0, 1, key, value)]),
        R.encode_messages([Record(0, 1, key, value)]),
        R.encode_messages([Record(0, 1, key, value)], magic=0, codec=1),
    ):
        (entry,) = R.batches(data)
        (record,) = entry.records()
        assert (record.key, record.value, record.tombstone) == (key, value, is_one)


def test_a_marker_without_value_is_no_tombstone():
    (batch,) = R.batches(R.encode_batch([MARKER._replace(value=None)], control=True))
    assert not next(batch.records()).tombstone


def test_raw_snappy_in_a_batch():
    rows = [Record(i, 1, None, b"x" * i) for i in range(9)]
    plain = R.encode_batch(rows)
    packed = R.compress(2, plain[61:], xerial=False)
    head = bytearray(plain[:61])
    struct.pack_into(">i", head, 8, 61 - 12 + len(packed))
    struct.pack_into(">h", head, 21, 2)
    (batch,) = R.batches(bytes(head) + packed)
    assert batch.codec_name == "snappy" and not batch.crc_ok  # the CRC is still the plain one's
    assert list(batch.records()) == rows


@pytest.mark.parametrize("announced", [-1, -(2**31), 1, 6, 2**31 - 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_wrong_count_is_an_error(announced, codec):
    """By the index as by the walk: a batch of 5 records that announces more, fewer, or less than none."""
    data = bytearray(R.encode_batch([Record(i, 1000 + i, b"k", b"v") for i in range(5)], codec=codec))
    struct.pack_into(">i", data, 57, announced)
    (batch,) = R.batches(bytes(data))
    for read in (R.RecordIndex, lambda batch: list(batch.records())):
        with pytest.raises(R.RecordsError):
            read(batch)
