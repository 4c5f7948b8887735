"""Keys, values and headers of records by their paths in a message: read, and changed with all else as it was."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder import EncodeError, Message
from barnabas.decoder.records import Batch, Record, batches, encode_batch, encode_messages

AREA = "topic_data[0].partition_data[0].records"
RECORDS = [Record(0, 5, b"k", b"v"), Record(1, 7, b"card", b"4111", (("a", b"b"), ("a", None))), Record(2, 9, None, None)]


def produce(area: bytes, version: int = 9) -> Message:
    body = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": area}]}]}
    return decoder.decode_request(decoder.encode_request(0, version, body, correlation_id=1))


def kept(message: Message) -> list[tuple[bytes | None, bytes | None, object, int, int | None]]:
    again = decoder.decode_request(message.encode())
    entries = list(batches(again["topic_data[0].partition_data[0].records"]))
    assert all(entry.crc_ok for entry in entries if isinstance(entry, Batch))
    return [(r.key, r.value, r.headers, r.offset, r.timestamp) for entry in entries for r in entry.records()]  # type: ignore[union-attr]


@pytest.mark.parametrize("codec", range(5))
def test_one_record_changes_and_the_others_stay(codec: int) -> None:
    idempotent = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
    message = produce(encode_batch(RECORDS, codec=codec, transactional=True, **idempotent) + encode_batch(RECORDS, codec=codec))
    path = AREA + "[0].records[1]"
    assert (message[path + ".key"], message[path + ".value"], message[path + ".headers"]) == RECORDS[1][2:5]
    changed = message.replace({path + ".value": b"****", path + ".key": None, path + ".headers": {"masked": "yes"}, AREA + "[1].records[2].value": "new"})
    expected = [(r.key, r.value, r.headers, r.offset, r.timestamp) for r in RECORDS * 2]
    expected[1] = (None, b"****", (("masked", b"yes"),), 1, 7)
    expected[5] = (None, b"new", (), 2, 9)
    assert kept(changed) == expected
    first = next(batches(changed["topic_data[0].partition_data[0].records"]))
    assert isinstance(first, Batch)
    assert (first.codec, first.transactional, first.producer_id, first.base_sequence) == (codec, True, 7, 3)
    only = message.replace({AREA + "[1].records[0].value": b"x"})
    size = first.start + len(encode_batch(RECORDS, codec=codec, transactional=True, **idempotent))
    assert only[AREA][:size] == message[AREA][:size]  # the other batch, byte for byte


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (1, 0), (1, 1), (0, 1)])
def test_old_messages(magic: int, codec: int) -> None:
    plain = [record._replace(headers=()) for record in RECORDS]
    message = produce(encode_messages(plain, magic=magic, codec=codec), 2)
    path = AREA + ("[0].records[1]" if codec else "[1].records[0]")
    assert message[path + ".value"] == b"4111"
    assert [value for _, value, *_ in kept(message.replace({path + ".value": b"****"}))] == [b"v", b"****", None]
    with pytest.raises(EncodeError, match="no headers"):
        message.replace({path + ".headers": {}})


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("[0].records[3].value", b"", r"the batch has no record \[3\]"), ("[2].records[0].value", b"", r"records has no item \[2\]"),
        ("[0].value", b"", "a path names the batch, the record"), ("[0].records[0].offset", 1, "a path names the batch, the record"),
        ("[0].records[0].value", 5, "bytes, text or None, not int"), ("[0].records[0].headers", 5, "headers are a mapping"),
        ("[0].records[0].headers", [(1, b"")], "the names of headers are text"), ("[1].records[0].value", b"", "control record"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed(place: str, value: object, says: str) -> None:
    marker = encode_batch([Record(3, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True)
    message = produce(encode_batch(RECORDS) + marker)
    with pytest.raises(EncodeError, match=says):
        message.replace({AREA + place: value})
    if value == b"":
        with pytest.raises((KeyError, decoder.records.RecordsError)):
            message[AREA + place]
