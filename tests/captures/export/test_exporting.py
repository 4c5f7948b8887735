"""Exports, read back by readers that others wrote: the csv module, json, pyarrow; records by kafka-python."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Capture, open_capture, tables
from barnabas.captures.export import Format, OutputExists, dump, program, stable, write, written
from barnabas.captures.export.text import cell
from barnabas.decoder import records
from barnabas.decoder.schema import facts
from harness.recordings import RecordingBuilder, metadata_answer, produce
from kafka.record import MemoryRecords
from pyarrow import parquet

EVIL = [
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "=cmd|' /C calc'!A0", "＝1", "＠x", "a\nb", "a\r\nb",
    'say "hi"', '"', ",", ";=1", "a,b", "'=1", "\x1b]52;c;AA\x07", "\x1b[2J", "\x00", "\x7f", "\x9b31m", "\u202eabc",
    "\u2066=1", "\u200b=1", "\ufeff=1", "\ud800", "\U0001f600", "ünïcödé", "", " ", "NULL", "1e5", "0x10", "%0A=1",
    "=HYPERLINK(\"http://x\",\"y\")", "+cmd", "--x", "@@", "=", "-", "\\x1b", "\u2028=1", "\u0085=1", "a\tb", "; =1",
    "=\n=1", "\v=1",
]  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    """A recording whose client ids, topics and error messages are `EVIL`."""
    directory = tmp_path_factory.mktemp("evil") / "recording"
    with RecordingBuilder(directory) as recording:
        for number, text in enumerate(EVIL):
            text = text.encode("utf-8", "replace").decode()  # the wire takes no lone surrogates
            asked = {"topics": [{"name": text, "num_partitions": 1}]}
            response = {"topics": [{"name": text, "error_code": 36, "error_message": text}]}
            recording.exchange("CreateTopics", 5, asked, response, client_id=text, correlation_id=number)
    with open_capture(directory) as capture:
        yield capture


def exported(
    capture: Capture, name: str, form: Format, columns: list[str] | None = None, values: bool = False
) -> bytes:
    table = tables.described(name)
    options = tables.Options(table, table.chosen(columns), values)
    out = io.BytesIO()
    count = write(out, form, tables.Rows(capture, options), options.columns)
    assert count == len(list(tables.Rows(capture, options)))
    return out.getvalue()


def test_no_cell_of_a_csv_is_a_formula_or_breaks_its_line(evil: Capture) -> None:
    data = exported(evil, "errors", Format.CSV, ["topic", "client_id", "error_message", "error_code"])
    assert data.count(b"\r\n") == data.count(b"\n") == data.count(b"\r") == len(EVIL) + 1
    head, *rows = csv.reader(io.StringIO(data.decode(), newline=""), strict=True)
    assert head == ["topic", "client_id", "error_message", "error_code"] and len(rows) == len(EVIL)
    for row in rows:
        assert len(row) == 4 and row[3] == "36"
        for text in row[:3]:
            assert text.isprintable() and not text.lstrip().startswith(FORMULA), text
    for text in (";=1", "a;=1", "a=1 "):  # other separators than commas: the quotes hold it together
        assert cell(text).startswith('"')
    assert cell("plain") == "plain" and cell("-") == '"\'-"' and cell('"') == '""""'


def test_json_lines_hold_the_exchanges(evil: Capture) -> None:
    data = exported(evil, "errors", Format.JSONL).decode()
    assert data.replace("\n", "").isprintable() and data.count("\n") == len(EVIL)
    rows = [json.loads(line) for line in data.splitlines()]
    assert [row["topic"] for row in rows] == [text.encode("utf-8", "replace").decode() for text in EVIL]
    assert {row["error"] for row in rows} == {facts.error_name(36)}


def test_parquet_has_the_types_and_the_texts(evil: Capture) -> None:
    table = parquet.read_table(io.BytesIO(exported(evil, "errors", Format.PARQUET)))
    chosen = tables.described("errors").chosen()
    assert {field.name: str(field.type) for field in table.schema} == {column.name: column.arrow for column in chosen}
    assert table.column("topic").to_pylist() == [text.encode("utf-8", "replace").decode() for text in EVIL]


@pytest.mark.parametrize("name", tables.DESCRIBED)
def test_the_three_formats_have_the_same_rows(evil: Capture, name: str) -> None:
    lines = [json.loads(line) for line in exported(evil, name, Format.JSONL).splitlines()]
    cells = list(csv.reader(io.StringIO(exported(evil, name, Format.CSV).decode(), newline="")))
    table = parquet.read_table(io.BytesIO(exported(evil, name, Format.PARQUET)))
    assert len(lines) == len(cells) - 1 == table.num_rows
    assert (table.num_rows > 0) == (name not in ("batches", "records", "groups", "throttles"))
    if not lines:
        return
    assert list(lines[0]) == cells[0] == table.column_names
    for column in tables.described(name).chosen():
        if column.type != "json":
            assert [line[column.name] for line in lines] == table.column(column.name).to_pylist()


def test_errors_are_those_of_the_decoder_with_what_is_around_them(tmp_path: Path) -> None:
    partitions = [{"partition_index": i, "error_code": code} for i, code in enumerate((0, 5, 9))]
    topics = [
        {"name": "a", "error_code": 0, "partitions": partitions},
        {"name": "b", "error_code": 3, "partitions": []},
    ]
    answers = {
        (3, 9): {"topics": topics},
        (12, 4): {"error_code": 27},
        (32, 1): {
            "results": [
                {"error_code": 35, "error_message": "no", "resource_type": 2, "resource_name": "c", "configs": []}
            ]
        },
    }
    with RecordingBuilder(tmp_path / "r") as recording:
        for (key, version), body in answers.items():
            recording.exchange(key, version, {"group_id": "g"} if key == 12 else {}, body)
    with open_capture(tmp_path / "r") as capture:
        rows = [json.loads(line) for line in exported(capture, "errors", Format.JSONL).splitlines()]
        expected = [
            (exchange.api, path, code)
            for exchange in capture.exchanges()
            for path, code in exchange.response_message.errors()
        ]
    assert sorted((row["api"], row["path"], row["error_code"]) for row in rows) == sorted(expected)
    about = {
        row["path"] + str(row["error_code"]): (row["topic"], row["partition"], row["group_id"], row["resource"])
        for row in rows
    }
    assert about == {
        "topics[0].partitions[1].error_code5": ("a", 1, None, None),
        "topics[0].partitions[2].error_code9": ("a", 2, None, None),
        "topics[1].error_code3": ("b", None, None, None),
        "error_code27": (None, None, "g", None),
        "results[0].error_code35": (None, None, None, "c"),
    }
    assert [row["error_message"] for row in rows if row["resource"]] == ["no"]


@pytest.fixture
def produced(tmp_path: Path) -> Path:
    """Produced batches of every codec, and an old message set."""
    rows = [
        records.Record(
            i,
            1_700_000_000_000 + i,
            None if i == 2 else b"k%d" % i,
            b"\xff\x00" if i == 1 else b"v" * i,
            (("h", b"1"),) * i,
        )
        for i in range(4)
    ]
    areas = [(9, records.encode_batch(rows, codec=codec)) for codec in range(5)]
    areas.append((2, records.encode_messages(rows, magic=1, codec=1)))
    with RecordingBuilder(tmp_path / "produced") as recording:
        for number, (version, data) in enumerate(areas):
            recording.request("Produce", version, produce("t", data, partition=number, acks=0))
    return tmp_path / "produced"


def test_records_are_those_that_kafka_python_reads(produced: Path) -> None:
    expected = []
    with open_capture(produced) as capture:
        for exchange in capture.exchanges():
            partition = exchange.request_message["topic_data[0].partition_data[0].index"]
            data = exchange.request_message["topic_data[0].partition_data[0].records"]
            area = MemoryRecords(data)
            while area.has_next():
                batch = area.next_batch()
                expected += [(partition, r.offset, r.timestamp, r.key, r.value, len(r.headers)) for r in batch]
        wanted = ["partition", "offset", "timestamp_ms", "key_raw", "value_raw", "header_count", "value", "key_bytes"]
        table = parquet.read_table(io.BytesIO(exported(capture, "records", Format.PARQUET, wanted, values=True)))
        found = table.to_pylist()
        with pytest.raises(ValueError, match="shown only when values are requested"):
            exported(capture, "records", Format.CSV, ["value"])
        hidden = exported(capture, "records", Format.CSV) + exported(capture, "exchanges", Format.JSONL, ["request"])
        batches = [json.loads(line) for line in exported(capture, "batches", Format.JSONL).splitlines()]
    names = wanted[:6]
    assert [tuple(row[name] for name in names) for row in found] == expected and len(found) == 24
    assert [row["value"] for row in found[:4]] == ["", '{"hex":"ff00"}', "vv", "vvv"]
    assert [row["key_bytes"] for row in found[:4]] == [2, 2, None, 2]
    assert b"vvv" not in hidden and b"ff00" not in hidden
    assert [row["codec"] for row in batches] == ["none", "gzip", "snappy", "lz4", "zstd", "gzip"]
    assert [row["record_count"] for row in batches] == [4, 4, 4, 4, 4, None] and all(row["crc_ok"] for row in batches)


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, evil: Capture) -> None:
    path = tmp_path / "out.csv"
    path.write_text("before")
    table = tables.described("exchanges")
    options = tables.Options(table, table.chosen())

    def stopped() -> Iterator[dict[str, Any]]:
        for number, row in enumerate(tables.Rows(evil, options)):
            if number == 5:
                raise KeyboardInterrupt
            yield row

    for form in Format:
        with pytest.raises(KeyboardInterrupt), written(path, force=True) as file:
            write(file, form, stopped(), options.columns)
        assert path.read_text() == "before" and os.listdir(tmp_path) == ["out.csv"]
        with pytest.raises(KeyboardInterrupt), written(tmp_path / "new.csv") as file:
            write(file, form, stopped(), options.columns)
        assert os.listdir(tmp_path) == ["out.csv"]


@pytest.mark.parametrize("there", ["file", "link", "dangling"])
def test_an_existing_file_is_replaced_only_with_force_and_never_through_a_link(tmp_path: Path, there: str) -> None:
    path, elsewhere = tmp_path / "out.csv", tmp_path / "elsewhere"
    elsewhere.write_text("theirs")
    if there == "file":
        path.write_text("before")
    else:
        path.symlink_to(elsewhere if there == "link" else tmp_path / "nowhere")
    with pytest.raises(OutputExists), written(path):
        raise AssertionError("it is not begun")
    with written(path, force=True) as file:
        file.write(b"after")
    assert path.read_text() == "after" and not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600
    assert elsewhere.read_text() == "theirs" and sorted(os.listdir(tmp_path)) == ["elsewhere", "out.csv"]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"

    def write_both() -> None:
        with written(path) as file:
            file.write(b"ours")
            path.write_text("theirs")

    with pytest.raises(OutputExists):
        write_both()
    assert path.read_text() == "theirs" and os.listdir(tmp_path) == ["out.csv"]


def test_programs_hold_traffic_as_literals_only(evil: Capture) -> None:
    for number in range(len(EVIL)):
        exchange = evil.exchange(number)
        text = program(exchange)
        assert text.isascii() and text.replace("\n", "").isprintable()
        tree = ast.parse(text)
        names = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert names <= {"exactly", "ask", "len", "print", "present", "int", "SystemExit"}
        expected = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        assert ast.literal_eval(expected["FIELDS"])["topics"][0]["name"] == exchange.request_message["topics[0].name"]
        assert all(line.isprintable() for line in dump(exchange))


def test_a_program_encodes_the_request_that_was_recorded(produced: Path) -> None:
    with open_capture(produced) as capture:
        for number, exchange in enumerate(capture.exchanges()):
            space: dict[str, Any] = {"__name__": "exported"}
            exec(program(exchange, values=True), space)
            ids = {"client_id": exchange.client_id, "correlation_id": exchange.correlation_id}
            frame = decoder.encode_request(space["API_KEY"], space["API_VERSION"], space["FIELDS"], **ids)
            if number in (0, 5):  # compressed bytes may be others, what they hold is not
                assert frame == exchange.request
            assert "v" * 3 in repr(space["FIELDS"]) or number
            hidden = program(exchange)
            assert ("vvv" not in hidden and "Record(1, 1700000000001, b'**', b'**'" in hidden) or number == 5
            shown = "\n".join(dump(exchange))
            assert "vvv" not in shown and "topic_data[0].partition_data[0].records" in shown


def test_a_dump_is_what_xxd_would_read_back(evil: Capture) -> None:
    exchange = evil.exchange(4)
    lines = list(dump(exchange))
    cut = lines.index("")
    for part, frame in ((lines[1:cut], exchange.request), (lines[cut + 2 :], exchange.response)):
        assert bytes.fromhex("".join(line[10:58] for line in part)) == frame
        assert [int(line[:8], 16) for line in part] == list(range(0, len(frame or b""), 16))
    assert any("topics[0].name" in line for line in lines)


def test_stable_fields_name_items_and_leave_out_volatile_ones() -> None:
    message = decoder.decode_response(metadata_answer(7, error=3)[4:], api_key=3, api_version=1)
    assert stable(message) == {
        "topics[topic-7].error_code": 3,
        "topics[topic-7].name": "topic-7",
        "topics[topic-7].is_internal": False,
        **{f"topics[topic-7].partitions[{i}].error_code": 0 for i in range(3)},
        **{f"topics[topic-7].partitions[{i}].partition_index": i for i in range(3)},
    }
