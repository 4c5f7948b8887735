"""Records of every magic and codec with other contents: other decoders read them, sums are right, wrong ones stay wrong."""

from __future__ import annotations

import struct

import crc32c
import pytest
from barnabas.captures.transform.batches import BLANK, rewritten
from barnabas.decoder import records
from barnabas.decoder.records import Record, encode_batch, encode_messages
from kafka.record import MemoryRecords

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS = [
    Record(100 + i, 1_700_000_000_000 + i, None if i == 3 else b"key-%d" % i, None if i == 4 else b"value %d" % i * 40)
    for i in range(6)
]
WITH_HEADERS = [record._replace(headers=(("trace", b"id-%d" % i), ("none", None))) for i, record in enumerate(RECORDS)]


class Upper:
    """Turns every byte over: its own inverse, and never the same."""

    def __init__(self) -> None:
        self.lost = 0

    def record(self, key: bytes | None, value: bytes | None, control: bool) -> tuple[bytes | None, bytes | None]:
        return key and turned(key), value and turned(value)

    def header(self, key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]:
        return key.upper(), value and turned(value)

    def blanked(self, size: int) -> None:
        self.lost += size


def turned(data: bytes) -> bytes:
    return bytes(byte ^ 0x80 for byte in data)


def batch(codec: str) -> bytes:
    return encode_batch(
        WITH_HEADERS, codec=CODECS[codec], producer_id=7, producer_epoch=1, base_sequence=5, partition_leader_epoch=3
    )


def read_by_others(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    out = []
    found = MemoryRecords(data)
    while (entry := found.next_batch()) is not None:
        assert entry.validate_crc()
        out += [(r.offset, r.timestamp, r.key, r.value) for r in entry]
    return out


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_rewritten(codec: str) -> None:
    data, changer = batch(codec), Upper()
    new = rewritten(data, changer)
    expected = [(r.offset, r.timestamp, r.key and turned(r.key), r.value and turned(r.value)) for r in RECORDS]
    assert read_by_others(new) == expected
    (entry,) = records.batches(new)
    assert isinstance(entry, records.Batch)
    assert entry.crc_ok
    assert (entry.producer_id, entry.base_sequence, entry.partition_leader_epoch) == (7, 5, 3)
    assert [r.headers for r in entry.records()] == [
        (("TRACE", turned(b"id-%d" % i)), ("NONE", None)) for i in range(len(RECORDS))
    ]
    assert changer.lost == 0
    if codec == "none":
        assert len(new) == len(data)
        assert new[:17] == data[:17]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_messages_and_their_wrappers(magic: int, codec: str) -> None:
    data, changer = encode_messages(RECORDS, magic=magic, codec=CODECS[codec]), Upper()
    new = rewritten(data, changer)
    found = [record for entry in records.batches(new) for record in entry.records()]
    assert [(r.offset, r.key, r.value) for r in found] == [
        (r.offset, r.key and turned(r.key), r.value and turned(r.value)) for r in RECORDS
    ]
    assert all(isinstance(entry, records.Message) and entry.crc_ok for entry in records.batches(new))
    if (magic, codec) != (0, "lz4"):  # kafka-python does not read the old header checksum
        assert [(offset, key, value) for offset, _, key, value in read_by_others(new)] == [
            (r.offset, r.key, r.value) for r in found
        ]
    assert changer.lost == 0


def test_several_batches_of_different_kinds() -> None:
    data = encode_messages(RECORDS[:1], magic=1) + batch("zstd") + batch("none")
    found = [type(entry).__name__ for entry in records.batches(rewritten(data, Upper()))]
    assert found == ["Message", "Batch", "Batch"]


def test_a_wrong_crc_stays_wrong() -> None:
    data = bytearray(batch("none"))
    struct.pack_into(">I", data, 17, 12345)
    (entry,) = records.batches(rewritten(bytes(data), Upper()))
    assert isinstance(entry, records.Batch)
    assert entry.crc == 12345
    assert not entry.crc_ok


@pytest.mark.parametrize("cut", [1, 30, 61, 62, 100, 200])
def test_an_unfinished_batch_is_blanked(cut: int) -> None:
    data, changer = batch("none") + batch("none"), Upper()
    half = data[: len(data) // 2 + cut]
    new = rewritten(half, changer)
    assert len(new) == len(half)
    assert b"value" not in new
    assert b"key-" not in new
    assert set(new[len(data) // 2 + 61 :]) <= set(BLANK)
    assert changer.lost == cut
    assert isinstance(list(records.batches(new))[1], records.Partial)


def test_what_cannot_be_decompressed_is_blanked() -> None:
    data = bytearray(batch("gzip"))
    data[80:90] = b"\xff" * 10
    changer = Upper()
    new = rewritten(bytes(data), changer)
    assert len(new) == len(data)
    assert set(new[61:]) == set(BLANK)
    assert changer.lost == len(data)


def test_a_batch_whose_sum_is_right_but_not_its_records_keeps_its_header() -> None:
    data = bytearray(batch("none"))
    data[61:70] = b"\xff" * 9
    struct.pack_into(">I", data, 17, crc32c.crc32c(data[21:]))
    new = rewritten(bytes(data), Upper())
    assert new[:17] == data[:17]
    assert set(new[61:]) == set(BLANK)
    (entry,) = records.batches(new)
    assert isinstance(entry, records.Batch)
    assert entry.crc_ok
    assert entry.producer_id == 7


def test_damage_between_records_is_blanked_from_there_on() -> None:
    data = bytearray(batch("none"))
    at = data.index(b"value 2")
    data[at - 3] = 0xFF
    struct.pack_into(">I", data, 17, crc32c.crc32c(data[21:]))
    new = rewritten(bytes(data), Upper())
    assert len(new) == len(data)
    assert b"value" not in new
    assert turned(b"value 1") in new


def test_bytes_that_are_no_records() -> None:
    data = b"password of somebody, in the place of records" * 3
    new = rewritten(data, Upper())
    assert len(new) == len(data)
    assert set(new) - set(BLANK) <= {0, *data[8:12], data[16]}
