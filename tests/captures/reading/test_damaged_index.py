"""An index that was damaged on disk: exchanges may be wrong, but reading them never raises."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest
from barnabas.captures import open_capture, rebuild, tables
from barnabas.captures.pcap import pcapng
from barnabas.captures.reading.verify import verify
from barnabas.captures.recording.index import HEADER, RECORD, Record, paths

RECORDING = Path(__file__).parents[2] / "decoder/findings/captures/versions-two-brokers.pcapng"
EXTREMES = {
    "<q": (-(1 << 63), -5000, -2, 0, 1, 8800, 8823, 1 << 40, 1 << 62, (1 << 63) - 200, (1 << 63) - 1),
    "<I": (0, 1, 1 << 31, (1 << 32) - 1),
    "<h": (-(1 << 15), -1, (1 << 15) - 1),
    "<H": (0, 0xFFFF),
}
FIELDS = dict(zip(Record._fields, ["<q"] * 4 + ["<I"] * 4 + ["<h"] * 3 + ["<H"] + ["<I"] * 2, strict=True))


def read(path: Path) -> None:
    """Everything that the Python API reads from a recording."""
    with open_capture(path) as capture:
        rows = capture.rows()
        for row in rows:
            capture.exchange(row)
        for exchange in capture.exchanges():
            exchange.to_dict()
        list(capture.events())
        capture.verify()
        capture.refresh()
    for table in tables.DESCRIBED:
        list(tables.batches(table, path))
    verify(path)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "a.pcapng"
    shutil.copy(RECORDING, path)
    rebuild(path)
    return path


def changed(path: Path, field: str, value: int, number: int) -> None:
    data = bytearray(path.read_bytes())
    before = Record._fields[: Record._fields.index(field)]
    at = HEADER.size + number * RECORD.size + sum(struct.calcsize(FIELDS[name]) for name in before)
    struct.pack_into(FIELDS[field], data, at, value)
    path.write_bytes(data)


@pytest.mark.parametrize("field", ["request_offset", "response_offset"])
@pytest.mark.parametrize("value", [value for value in EXTREMES["<q"] if value > 8000])
def test_an_offset_beyond_the_file_gives_no_frame(segment: Path, field: str, value: int) -> None:
    index, _ = paths(segment)
    changed(index, field, value, 2)
    with open_capture(segment) as capture:
        exchange = capture.exchange(2)
        assert (exchange.request if field == "request_offset" else exchange.response) is None
        assert any("cannot be read back" in note for note in exchange.marks.notes)
        assert [e.api_key for e in capture.exchanges()] == [r.api_key for r in sorted(capture.rows(), key=lambda r: r.time_ns)]


def test_impossible_values_in_every_index_field_never_raise(segment: Path) -> None:
    index, _ = paths(segment)
    whole = index.read_bytes()
    for field, form in FIELDS.items():
        for value in EXTREMES[form]:
            index.write_bytes(whole)
            changed(index, field, value, 1)
            with open_capture(segment) as capture:
                for row in capture.rows():
                    capture.exchange(row).to_dict()


@pytest.mark.parametrize(
    ("field", "value"), [("request_size", (1 << 32) - 1), ("response_size", 1 << 31), ("response_offset", (1 << 63) - 200)]
)
def test_tables_of_an_index_with_impossible_sizes_and_offsets(segment: Path, field: str, value: int) -> None:
    for number in range(8):
        changed(paths(segment)[0], field, value, number)
    read(segment)


@pytest.mark.parametrize("which", ["index", "strings", "all"])
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 120), marks=pytest.mark.slow)])
def test_a_damaged_recording_read_by_the_python_api_raises_nothing(segment: Path, which: str, seeds: range) -> None:
    files = [segment, *paths(segment)]
    whole = [file.read_bytes() for file in files]
    for seed in seeds:
        chance = random.Random(seed)
        for file, data in zip(files, whole, strict=True):
            out = bytearray(data)
            if which in ("all", file.suffix[1:]):
                damage(out, chance)
            file.write_bytes(out)
        try:
            read(segment)
        except pcapng.NotACapture:
            continue


def damage(data: bytearray, chance: random.Random) -> None:
    """Some bits, and numbers of 8, 4 and 2 bytes that cannot be, where records and entries have theirs."""
    for _ in range(chance.choice([1, 5, 20])):
        form = chance.choice(["<q", "<q", "<I", "<h", "bit"])
        place = chance.randrange(len(data) - 8)
        if form == "bit":
            data[place] ^= 1 << chance.randrange(8)
        else:
            struct.pack_into(form, data, place // struct.calcsize(form) * struct.calcsize(form), chance.choice(EXTREMES[form]))
    if chance.random() < 0.1:
        del data[chance.randrange(len(data)) :]
