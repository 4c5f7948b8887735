"""Tables out of segments, judged by the exchanges that `Capture` reads back from the frames."""

from __future__ import annotations

import builtins
import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy  # noqa: F401  whole before a test hides it: it cannot be loaded a second time
import pyarrow  # noqa: F401
import pytest
from barnabas import decoder
from barnabas.captures import Recorder, open_capture, tables
from barnabas.captures.tables.output import parquet as writing
from barnabas.decoder.schema import facts
from harness.recordings import RecordingBuilder, metadata_answer, metadata_request
from harness.wire import with_size
from pyarrow import parquet

SECOND = 1_000_000_000


@pytest.fixture
def traffic(tmp_path: Path) -> Callable[..., Path]:
    """`traffic(name, exchanges=..., segment_bytes=...)`: a recording of two connections with whatever can happen."""

    def make(name: str = "recording", exchanges: int = 60, segment_bytes: int = 64 << 20) -> Path:
        directory = tmp_path / name
        recorder = Recorder(directory, segment_bytes=segment_bytes)
        for conn in (1, 2):
            recorder.opened(conn, SECOND, ("127.0.0.1", 50000 + conn), ("127.0.0.1", 9091 + conn))
        time_ns = 2 * SECOND
        for number in range(exchanges):
            conn = 1 + number % 2
            time_ns += 1_000_000
            recorder.data(conn, 0, time_ns, metadata_request(number, client_id=f"stock-{conn}"))
            if number == 7:
                recorder.broker_leg(conn, 0, time_ns, metadata_request(number, client_id="other"))
            if number >= 4:  # four are in flight at any time, so every segment hands some over to the next
                error = 3 if number % 10 == 0 else 0
                recorder.data(1 + number % 2, 1, time_ns + 500 * number, metadata_answer(number - 4, error=error))
        frame = decoder.encode_request(12, 0, {}, correlation_id=9000, client_id=None)
        recorder.data(1, 0, time_ns, with_size(frame))
        recorder.data(2, 0, time_ns, b"\x00\x00\x00\x0e" + b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x02hi\x7f\xff")
        recorder.data(2, 1, time_ns + 5, metadata_answer(777_777))
        recorder.close()
        return directory

    return make


def rows(path: Path, columns: list[str] | None = None, batch_rows: int = 65536) -> list[dict[str, Any]]:
    return [row for batch in tables.exchanges(path, columns, batch_rows) for row in batch.to_pylist()]


def every(directory: Path) -> list[dict[str, Any]]:
    return [row for segment in tables.find_segments(directory).segments for row in rows(segment.path)]


def expected(directory: Path) -> list[dict[str, Any]]:
    """The row from the frames; `number` and `capture_id` come from the index only."""
    found = []
    with open_capture(directory) as capture:
        for exchange in capture.exchanges():
            row = exchange.to_dict(bodies=False)
            found.append(
                {
                    "segment": exchange.marks.segment.removesuffix(".part"),
                    "time_ns": row["time_ns"],
                    "connection": row["connection"],
                    "error_code": exchange.error,
                    "undecoded": row["undecoded"] is not None,
                    "changed": exchange.marks.changed,
                    **{
                        key: row[key]
                        for key in tables.EXCHANGES
                        if key in row and key not in ("undecoded", "changed", "time_ns", *OF_OTHERS)
                    },
                }
            )
    return found


OF_OTHERS = ("broker_id", "cluster_id")
"""Columns that other exchanges of the recording give."""


def ordered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = sorted(set(tables.EXCHANGES) - {"capture_id", "number", *OF_OTHERS})
    return sorted(({key: row[key] for key in keys} for row in found), key=lambda row: [str(row[key]) for key in keys])


def test_rows_of_one_segment_match_its_frames(traffic: Callable[..., Path]) -> None:
    directory = traffic()
    found = every(directory)
    assert ordered(found) == ordered(expected(directory))
    # The traffic held one of each, so the comparison above was about something.
    assert {row["state"] for row in found} == {"paired", "pending", "orphan"}
    assert any(row["changed"] for row in found) and any(row["undecoded"] for row in found)
    assert {row["error"] for row in found} == {None, "UNKNOWN_TOPIC_OR_PARTITION"}
    assert {row["client_id"] for row in found} >= {"stock-1", "stock-2", None}
    assert [row["number"] for row in found] == list(range(len(found)))


def test_columns_have_the_documented_types(traffic: Callable[..., Path]) -> None:
    batch = next(iter(tables.exchanges(tables.find_segments(traffic()).segments[0].path)))
    assert {field.name: str(field.type) for field in batch.schema} == tables.EXCHANGES


def test_every_column_is_documented(repository: Path) -> None:
    documented: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in (repository / "docs" / "tables.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
            documented[section] = []
        elif line.startswith("| [exchange columns]"):
            documented[section] += documented["Exchange columns"]
        elif line.startswith("| `") and len(cells := line.split("|")) > 3:
            documented[section] += [(name.strip(" `"), cells[2].strip()) for name in cells[1].split(",")]
    assert {name: columns for name, columns in documented.items() if columns and name != "Exchange columns"} == {
        table.name: [(c.name, c.type + "?" * c.null + " *" * c.extra) for c in table.columns]
        for table in tables.DESCRIBED.values()
    }


@pytest.mark.parametrize("name", tables.DESCRIBED)
def test_a_table_of_segments_and_of_the_whole_capture(traffic: Callable[..., Path], name: str) -> None:
    directory = traffic(exchanges=200, segment_bytes=8000)
    table = tables.described(name)
    with open_capture(directory) as capture:
        whole = [
            {column.name: row[column.name] for column in table.chosen()}
            for row in tables.Rows(capture, tables.Options(table, table.chosen()))
        ]
    of_segments = [
        row
        for segment in tables.find_segments(directory).segments
        for batch in tables.batches(name, segment.path)
        for row in batch.to_pylist()
    ]
    assert {f.name: str(f.type) for f in tables.schema(name)} == {c.name: c.arrow for c in table.chosen()}
    if name in ("exchanges", "frames", "errors"):  # each counts in one segment; nothing twice, nothing lost
        assert sorted(map(repr, whole)) == sorted(map(repr, of_segments)) and len(whole) >= 10
    elif name == "connections":
        assert len(whole) == 2 and sum(row["exchanges"] for row in whole) == 203
    elif name == "versions":
        assert sum(row["exchanges"] for row in whole) == 202  # the orphan has no version
        added: dict[Any, int] = {}
        for row in of_segments:
            key = row["client_id"], row["api_key"], row["api_version"]
            added[key] = added.get(key, 0) + row["exchanges"]
        assert added == {(row["client_id"], row["api_key"], row["api_version"]): row["exchanges"] for row in whole}
    elif name == "happenings":
        assert [row["happening"] for row in whole].count("done") >= 197
    assert len(of_segments) >= len(whole) or name == "findings"


def test_exchanges_over_a_segments_border_count_once(traffic: Callable[..., Path]) -> None:
    directory = traffic(exchanges=400, segment_bytes=8000)
    segments = tables.find_segments(directory).segments
    assert [segment.number for segment in segments] == list(range(len(segments))) and len(segments) > 3
    found = every(directory)
    assert ordered(found) == ordered(expected(directory))
    asked = [row["correlation_id"] for row in found if row["state"] == "paired"]
    assert sorted(asked) == list(range(396))


def test_the_index_is_not_needed(traffic: Callable[..., Path]) -> None:
    directory = traffic(exchanges=200, segment_bytes=8000)
    before = every(directory)
    for path in (*directory.glob("*.index"), *directory.glob("*.strings")):
        path.unlink()
    assert every(directory) == before


def test_columns_and_batches(traffic: Callable[..., Path]) -> None:
    path = tables.find_segments(traffic()).segments[0].path
    whole = rows(path)
    some = list(tables.exchanges(path, ["latency_ns", "api"], batch_rows=10))
    assert [batch.num_rows for batch in some] == [10] * (len(whole) // 10) + [len(whole) % 10]
    assert [row for batch in some for row in batch.to_pylist()] == [
        {"latency_ns": row["latency_ns"], "api": row["api"]} for row in whole
    ]
    assert list(some[0].schema.names) == ["latency_ns", "api"]


def test_unknown_columns_and_tables(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"table exchanges has no column 'apis'; it has: capture_id, segment"):
        tables.exchanges(tmp_path / "any.pcapng", ["apis"])
    with pytest.raises(ValueError, match=r"there is no table 'packets'; the tables are: exchanges"):
        tables.chosen("packets")


@pytest.mark.parametrize("cut", [0, 3, 50, 200, 3000, -1])
def test_a_torn_segment_gives_its_good_part(traffic: Callable[..., Path], cut: int) -> None:
    directory = traffic()
    path = tables.find_segments(directory).segments[0].path
    whole = rows(path)
    path.write_bytes(path.read_bytes()[:cut])
    found = rows(path)
    assert len(found) <= len(whole)
    assert (len(found) > 5) == (cut in (3000, -1))
    paired = [row for row in found if row["state"] == "paired"]
    assert paired == whole[: len(paired)]
    assert (len(paired) > 50) == (cut == -1)


def test_damage_anywhere_never_raises(traffic: Callable[..., Path]) -> None:
    directory = traffic()
    path = tables.find_segments(directory).segments[0].path
    whole = len(rows(path))
    counts = []
    for victim in (path, path.with_suffix(".index"), path.with_suffix(".strings")):
        good = victim.read_bytes()
        for at in range(0, len(good), max(len(good) // 40, 1)):
            victim.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
            counts.append(len(rows(path)))
        victim.write_bytes(good)
    assert max(counts) == whole == len(rows(path))


def test_a_killed_recorders_segment_counts_as_closed(traffic: Callable[..., Path]) -> None:
    directory = traffic()
    path = tables.find_segments(directory).segments[0].path
    before = rows(path)
    left = path.rename(path.with_name(path.name + ".part"))
    found = tables.find_segments(directory)
    assert ([segment.path for segment in found.segments], found.live) == ([left], 0)
    assert rows(left) == before
    with open(left, "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        found = tables.find_segments(directory)
        assert (found.segments, found.live, [(s.number, s.path) for s in found.writing.values()]) == ([], 1, [(0, path)])


def test_files_that_are_no_recordings_are_left_out(traffic: Callable[..., Path], tmp_path: Path) -> None:
    directory = traffic()
    path = tables.find_segments(directory).segments[0].path
    (directory / "copies").mkdir()
    shutil.copy(path, directory / "copies" / "again.pcapng")
    (directory / "empty.pcapng").touch()
    (directory / "note.txt").write_text("not looked at")
    found = tables.find_segments(directory)
    empty, segment = sorted(found.segments, key=lambda each: each.size)
    assert (empty.path.name, empty.foreign, segment.foreign) == ("empty.pcapng", True, False)
    assert [line.split(": ", 1)[1] for line in found.left_out] == [f"the same segment as {path}"]
    (row,) = [row for batch in tables.batches("segments", empty.path) for row in batch.to_pylist()]
    assert (row["status"], row["detail"].split(": ")[1]) == ("unreadable", "the file is empty, not a capture")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        tables.find_segments(tmp_path / "absent")


@pytest.mark.parametrize("library", ["pyarrow", "numpy"])
def test_a_missing_library_is_named_with_the_remedy(
    traffic: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    path = tables.find_segments(traffic()).segments[0].path
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == library:
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(tables.MissingLibrary, match=rf"need {library}: run pip install '.\[report\]'"):
        list(tables.exchanges(path))


def test_error_and_api_names_are_the_decoders(traffic: Callable[..., Path]) -> None:
    for row in every(traffic()):
        assert row["api"] == ("" if row["state"] == "orphan" else facts.api_name(row["api_key"]))
        assert row["error"] == (facts.error_name(row["error_code"]) if row["error_code"] else None)


def test_throttles_of_a_segment_are_those_of_the_capture(tmp_path: Path) -> None:
    recording = RecordingBuilder(tmp_path / "recording")
    ends = [(("127.0.0.1", 50001), ("127.0.0.1", 9092)), (("::1", 50002), ("::1", 9092))]
    for connection, (client, broker) in enumerate(ends):
        recording.open(connection, client=client, broker=broker)
    number = 0
    for api, version in (
        ("Heartbeat", 1),
        ("Heartbeat", 4),
        ("Heartbeat", 0),
        ("Metadata", 12),
        ("Produce", 9),
        ("Produce", 3),
    ):
        for throttle in (0, 0, 700, 0, 1 << 24):
            body = {} if (api, version) == ("Heartbeat", 0) else {"throttle_time_ms": throttle}
            recording.exchange(api, version, {"acks": 1} if api == "Produce" else {}, body, connection=number % 2)
            number += 1
    recording.close()
    table = tables.described("throttles")
    (segment,) = tables.find_segments(tmp_path / "recording").segments
    found = [row for batch in tables.batches("throttles", segment.path) for row in batch.to_pylist()]
    with open_capture(tmp_path / "recording") as capture:
        whole = list(tables.Rows(capture, tables.Options(table, table.chosen())))
    assert sorted(map(repr, found)) == sorted(map(repr, whole))
    assert [row["throttle_ms"] for row in found] == [700, 1 << 24] * 5


def test_a_malformed_response_has_no_throttle_time(tmp_path: Path) -> None:
    """A fault injected into ApiVersions of the demonstration once counted as 1,179 s of throttling."""
    answer = decoder.encode_response(18, 3, {"api_keys": [{"api_key": key, "max_version": 9} for key in range(20)]}, correlation_id=1)
    malformed = answer[:6] + answer[12:]
    read = decoder.Exchange(api_key=18, api_version=3, response=malformed).response_message
    assert read is not None and read.trailing and read["throttle_time_ms"] > 0
    with RecordingBuilder(tmp_path / "recording") as recording:
        recording.exchange("ApiVersions", 3, {}, malformed)
    (segment,) = tables.find_segments(tmp_path / "recording").segments
    assert [row for batch in tables.batches("throttles", segment.path) for row in batch.to_pylist()] == []


def test_versions_from_the_index_are_those_from_events(tmp_path: Path) -> None:
    """Counted by NumPy in the index, and by what happened on the connections, packet by packet."""
    offers = [{"api_key": key, "min_version": 0, "max_version": 4 + key} for key in (3, 12, 18)]
    with RecordingBuilder(tmp_path / "recording") as recording:
        for number in range(60):
            key, version = ((18, 3), (12, 4), (3, 12), (12, 3))[number % 4 if number > 3 else number % 2 * 2]
            named = {"client_software_name": f"lib-{number % 2}", "client_software_version": "1.2"} if key == 18 else {}
            response = {"api_keys": offers} if key == 18 else {"error_code": 25 * (number % 5 == 0)} if key == 12 else {}
            client_id = None if number % 3 == 2 else "a"
            recording.exchange(key, version, named, response, connection=number % 3, client_id=client_id)
    table = tables.described("versions")
    (segment,) = tables.find_segments(tmp_path / "recording").segments
    found = [row for batch in tables.batches("versions", segment.path) for row in batch.to_pylist()]
    with open_capture(tmp_path / "recording") as capture:
        whole = list(tables.Rows(capture, tables.Options(table, table.chosen())))
    assert found == whole and {row["software_name"] for row in found} >= {"lib-0"}
    assert any(row["errors"] for row in found) and any(row["offered_max"] == 16 for row in found)


@pytest.mark.parametrize("name", [name for name in tables.DESCRIBED if "time" in tables.TABLES[name]])
def test_times_as_timestamps(traffic: Callable[..., Path], name: str) -> None:
    """The column `time`, which only those get who name it, is `time_ns` in the form of Arrow's and Python's own times."""
    table, directory = tables.described(name), traffic()
    assert "time" not in [column.name for column in table.chosen()]
    columns = table.chosen(["time_ns", "time"])
    found = [row for segment in tables.find_segments(directory).segments
             for batch in tables.batches(name, segment.path, ["time_ns", "time"]) for row in batch.to_pylist()]  # fmt: skip
    with open_capture(directory) as capture:
        whole = [{key: row[key] for key in ("time_ns", "time")} for row in tables.Rows(capture, tables.Options(table, columns))]
    assert sorted((row["time_ns"], row["time"]) for row in found) == sorted((row["time_ns"], row["time"]) for row in whole)
    assert all(int(row["time"].timestamp() * 10**6) in (row["time_ns"] // 1000 + n for n in (-1, 0, 1)) for row in found)
    assert all(row["time"].utcoffset().total_seconds() == 0 and row["time"].microsecond == row["time_ns"] // 1000 % 10**6 for row in found)
    assert found or name in ("records", "groups", "throttles", "batches")


def test_a_table_in_parquet(traffic: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers as differences, in row groups of whole batches, and for other readers the same rows."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr(writing, "_GROUP_ROWS", 20)
    directory = traffic()
    expected = every(directory)
    writer = writing.ParquetFile(tmp_path, tables.described("exchanges"), "one")
    (segment,) = tables.find_segments(directory).segments
    sizes = [batch.num_rows for batch in tables.exchanges(segment.path, None, 8)]
    for batch in tables.exchanges(segment.path, None, 8):
        writer.add(batch)
    writer.close()
    writer.put(path := tmp_path / "exchanges.parquet")
    found = parquet.ParquetFile(path).metadata
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [24] * (len(expected) // 24) + [len(expected) % 24]
    assert max(sizes) == 8
    columns = {column.path_in_schema: column.encodings for column in map(found.row_group(0).column, range(found.num_columns))}
    assert "DELTA_BINARY_PACKED" in columns["time_ns"] and "RLE_DICTIONARY" in columns["client_id"]
    assert parquet.read_table(path).to_pylist() == expected
    counted = duckdb.sql(f"SELECT count(*), sum(time_ns), count(DISTINCT api) FROM '{path}'").fetchall()
    assert counted == [(len(expected), sum(row["time_ns"] for row in expected), len({row["api"] for row in expected}))]


def test_records_of_aborted_transactions_are_marked() -> None:
    from barnabas.captures.tables.body_tables import batch_rows, record_rows
    from barnabas.decoder import Exchange, State
    from barnabas.decoder.records import Record, encode_batch

    def batch(offset: int, producer: int, control: bytes = b"") -> bytes:
        record = Record(offset, 1, control or b"key", b"\0\0\0\0\0\0" if control else b"value")
        return encode_batch([record], transactional=True, control=bool(control), producer_id=producer, producer_epoch=0, base_sequence=0)

    area = batch(0, 7) + batch(1, 8) + batch(2, 7, b"\0\0\0\0") + batch(3, 8, b"\0\0\0\1") + batch(4, 7)
    for version, marked in ((11, [0]), (3, [])):  # version 3 does not list aborted transactions
        partition: dict[str, Any] = {"partition_index": 0, "records": area}
        if marked:
            partition["aborted_transactions"] = [{"producer_id": 7, "first_offset": 0}]
        body = {"responses": [{"topic": "orders", "partitions": [partition]}]}
        exchange = Exchange(
            api_key=1, api_version=version, request=decoder.encode_request(1, version, {}, correlation_id=1),
            response=decoder.encode_response(1, version, body, correlation_id=1), state=State.PAIRED,
        )  # fmt: skip
        rows = list(record_rows(exchange, frozenset()))
        assert [row["offset"] for row in rows if row["aborted"]] == marked
        assert len(rows) == 5
        assert [row["base_offset"] for row in batch_rows(exchange) if row["aborted"]] == marked
