"""Byte vectors of other projects, where they lie beside the checkout (they are not part of it)."""

import json
import re
from pathlib import Path

import pytest
from barnabas.decoder import records as R
from barnabas.decoder.records.record import BatchBase, scan
from barnabas.decoder.records.varint import int64, read_uvarint, read_varint, write_uvarint, write_varint

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "reference" / "vectors"
KINDS = {"record_batch", "message", "record", "records_damaged", "uvarint", "varint", "varlong"}


def rows():
    for path in sorted(FOLDER.glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            row = json.loads(line)
            if row.get("kind") in KINDS:
                yield pytest.param(row, id=f"{path.stem}-{number}-{row['kind']}")


ROWS = list(rows())
pytestmark = pytest.mark.skipif(not ROWS, reason=f"no byte vectors in {FOLDER}")


def of(*kinds):
    return [row for row in ROWS if row.values[0]["kind"] in kinds]


@pytest.mark.parametrize("row", of("record_batch", "message"))
def test_batches_and_messages(row):
    data = bytes.fromhex(row["hex"])
    (entry,) = R.batches(data)
    assert (entry.start, entry.end) == (0, len(data))
    assert entry.crc_ok == ("does not match" not in row["note"])
    records = list(entry.records())
    if quoted := re.search(r'(?:record|value) "([^"]*)"', row["note"]):
        assert [record.value for record in records][:1] == [quoted[1].encode()] or records[0].headers
    if row["kind"] == "record_batch" and "control" not in row["note"]:
        assert R.encode_like(entry, records) == data
    if "control" in row["note"]:
        assert [record.control.name for record in records] == ["abort"]


@pytest.mark.parametrize("row", of("records_damaged"))
def test_damaged_areas(row):
    data = bytes.fromhex(row["hex"])
    if "corrupt" in row["note"]:
        with pytest.raises(R.BadLength):
            list(R.batches(data))
    else:
        (partial,) = R.batches(data)
        assert (type(partial), partial.missing) == (R.Partial, None)


@pytest.mark.parametrize("row", of("record"))
def test_records(row):
    data = bytes.fromhex(row["hex"])
    if data[0] >> 1 != len(data) - 1:  # one of the vectors announces 20 bytes and has 23: Kafka refuses it too
        with pytest.raises(R.BadLength):
            list(scan(data, 0, len(data), 1, BatchBase(0, 0)))
        return
    (record,) = scan(data, 0, len(data), 1, BatchBase(0, 0))
    key = re.search(r'key "([^"]*)"', row["note"])
    value = re.search(r'value "([^"]*)"', row["note"])
    assert record.key == (key[1].encode() if key else None)
    assert record.value == (value[1].encode() if value else b"")
    assert record.headers == ()


@pytest.mark.parametrize("row", of("uvarint", "varint", "varlong"))
def test_numbers(row):
    data = bytes.fromhex(row["hex"])
    expected = int(re.match(r"= (-?\d+)", row["note"])[1])
    out = bytearray()
    if row["kind"] == "uvarint":
        assert read_uvarint(data, 0) == (expected, len(data))
        write_uvarint(out, expected)
    else:
        assert read_varint(data, 0, 64 if row["kind"] == "varlong" else 32) == (expected, len(data))
        write_varint(out, expected)
    assert out == data
    assert int64(expected) == expected


@pytest.mark.skipif(not (FOLDER / "kafkajs_bodies.jsonl").exists(), reason="no kafkajs bodies")
def test_an_answer_with_magic_1_and_2_in_one_area():
    name = "fetch/fixtures/v4_response_mixed_formats"
    lines = (FOLDER / "kafkajs_bodies.jsonl").read_text().splitlines()
    body = next(bytes.fromhex(row["hex"]) for row in map(json.loads, lines) if name in row["src"])
    # throttle, one topic, one partition: the area is the last field, behind its own length
    start = next(at for at in range(30, 200) if int.from_bytes(body[at : at + 4], "big") == len(body) - at - 4)
    entries = list(R.batches(body, start + 4))
    whole = [entry for entry in entries if not isinstance(entry, R.Partial)]
    assert {entry.magic for entry in whole} == {1, 2}
    assert all(entry.crc_ok for entry in whole)
    offsets = [record.offset for entry in whole for record in entry.records()]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
