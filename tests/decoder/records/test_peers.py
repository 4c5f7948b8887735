"""Against the record builders and parsers of aiokafka and kafka-python, both directions."""

import pytest
from barnabas.decoder import records as R
from barnabas.decoder.records import Record
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

aio = pytest.importorskip("aiokafka.record.default_records")
aio_legacy = pytest.importorskip("aiokafka.record.legacy_records")
aio_memory = pytest.importorskip("aiokafka.record.memory_records")

BUILDERS = {"aiokafka": aio.DefaultRecordBatchBuilder, "kafka-python": DefaultRecordBatchBuilder}
CODECS = {"aiokafka": range(5), "kafka-python": range(2)}  # kafka-python has gzip only without more packages
LEGACY = {"aiokafka": aio_legacy.LegacyRecordBatchBuilder, "kafka-python": LegacyRecordBatchBuilder}

TIME = 1_690_000_000_000
ROWS = [
    (TIME + 17 * i, None if i % 3 == 0 else b"key-%d" % i, None if i % 7 == 0 else b"v" * (i * 3), i % 5)
    for i in range(300)
]


def headers(count):
    return [(f"h{n}é", None if n == 2 else b"x" * n) for n in range(count)]


def as_tuples(records):
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]


EXPECTED = [(i, time, key, value, headers(n)) for i, (time, key, value, n) in enumerate(ROWS)]


@pytest.mark.parametrize(("peer", "codec"), [(peer, codec) for peer in BUILDERS for codec in CODECS[peer]])
def test_reads_what_they_build(peer, codec):
    builder = BUILDERS[peer](
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=1234,
        producer_epoch=5,
        base_sequence=6,
        batch_size=1 << 20,
    )
    for offset, (time, key, value, count) in enumerate(ROWS):
        assert builder.append(offset, time, key, value, headers(count)) is not None
    (batch,) = R.batches(bytes(builder.build()))
    assert batch.crc_ok
    assert (batch.codec, batch.transactional, batch.control) == (codec, True, False)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1234, 5, 6)
    assert (batch.record_count, batch.last_offset_delta) == (300, 299)
    assert (batch.base_timestamp, batch.max_timestamp) == (TIME, ROWS[-1][0])
    records = list(batch.records())
    assert as_tuples(records) == EXPECTED
    assert [r.sequence for r in records] == list(range(6, 306))


@pytest.mark.parametrize(("peer", "codec"), [(peer, codec) for peer in BUILDERS for codec in CODECS[peer]])
def test_other_libraries_read_our_bytes(peer, codec):
    rows = [Record(50 + i, time, key, value, tuple(headers(n))) for i, (time, key, value, n) in enumerate(ROWS)]
    data = R.encode_batch(rows, codec=codec, producer_id=9, producer_epoch=1, base_sequence=3)
    batch = (aio.DefaultRecordBatch if peer == "aiokafka" else DefaultRecordBatch)(data)
    assert batch.validate_crc()
    assert (batch.base_offset, batch.last_offset_delta, batch.compression_type) == (50, 299, codec)
    assert (batch.first_timestamp, batch.max_timestamp) == (TIME, ROWS[-1][0])
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 1, 3)
    assert as_tuples(batch) == as_tuples(rows)


@pytest.mark.parametrize("peer", BUILDERS)
def test_uncompressed_batches_are_the_same_bytes(peer):
    builder = BUILDERS[peer](2, 0, 0, -1, -1, -1, 1 << 20)
    rows = []
    for offset, (time, key, value, count) in enumerate(ROWS):
        builder.append(offset, time, key, value, headers(count))
        rows.append(Record(offset, time, key, value, tuple(headers(count))))
    theirs = bytes(builder.build())
    (batch,) = R.batches(theirs)
    assert R.encode_batch(rows, partition_leader_epoch=batch.partition_leader_epoch) == theirs


@pytest.mark.parametrize(
    ("peer", "magic", "codec"),
    [
        (peer, magic, codec)
        for peer, codecs in (("aiokafka", range(4)), ("kafka-python", range(2)))
        for magic in (0, 1)
        for codec in codecs
        if (magic, codec) != (0, 3)  # they do not write lz4 in magic 0
    ],
)
def test_reads_their_message_sets(peer, magic, codec):
    builder = LEGACY[peer](magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset, (time, key, value, _) in enumerate(ROWS):
        assert builder.append(offset, timestamp=time, key=key, value=value) is not None
    data = bytes(builder.build())
    entries = list(R.batches(data))
    assert len(entries) == (1 if codec else 300)
    assert all(entry.crc_ok and entry.magic == magic and entry.codec == codec for entry in entries)
    records = [record for entry in entries for record in entry.records()]
    assert as_tuples(records) == [
        (offset, time if magic else None, key, value, []) for offset, time, key, value, _ in EXPECTED
    ]


def test_they_walk_a_mixed_area_the_same_way():
    legacy = LegacyRecordBatchBuilder(magic=1, compression_type=1, batch_size=1 << 20)
    for offset in range(3):
        legacy.append(offset, timestamp=TIME, key=b"k", value=b"v")
    area = bytes(legacy.build()) + R.encode_batch([Record(3, TIME, b"k", b"v")]) + b"\0" * 9
    ours = [record.offset for entry in R.batches(area) for record in entry.records()]
    # The compiled walker of aiokafka 0.14 loses its way where the magic changes; its Python twin does not.
    for walker in (MemoryRecords(area), aio_memory._MemoryRecordsPy(area)):
        theirs = []
        while walker.has_next():
            theirs += [record.offset for record in walker.next_batch()]
        assert theirs == ours == [0, 1, 2, 3]
