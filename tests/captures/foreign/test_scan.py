"""The fast road through foreign captures against the careful one: the same records, whatever the packets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.pcap import packet_windows
from barnabas.captures.pcap.packets import build
from barnabas.captures.pcap.pcapng import CaptureReader
from barnabas.captures.pcap.sources import CaptureSource
from barnabas.captures.reading.indexing import index_builder, reindex
from barnabas.captures.reading.indexing.index_builder import ForeignIndex
from barnabas.captures.recording.index import RECORD, Index, Record
from harness.recordings import metadata_answer, metadata_request
from harness.run.slices import slow
from harness.waiting import PATIENCE
from traffic.packets import LINKS, NOW, Packet, as_pcap, as_pcapng, pcap_file, snapped, traffic

FINDINGS = Path(__file__).parents[2] / "decoder" / "findings" / "captures"


def careful(path: Path) -> tuple[list[tuple[Record, str | None]], list[object]]:
    """Every record as the decoder's connections give it."""
    with open(path, "rb") as file:
        reader = CaptureReader(file)
        builder = reindex.IndexBuilder(None)
        builder.build(reader)
    index = reindex.in_memory(builder)
    return named(index), [index.connections, index.lost, builder.foreign]


def fast(path: Path) -> tuple[list[tuple[Record, str | None]], list[object]]:
    source = CaptureSource(path)
    made = ForeignIndex(source, str(path))
    made.read_all()
    index = made.index
    try:
        return named(index), [index.connections, index.lost, made.scanner.reassembler.foreign]
    finally:
        made.close()
        index.close()
        source.close()


def named(index: Index) -> list[tuple[Record, str | None]]:
    """Records with their client ids: the numbers of strings may differ."""
    records = map(Record._make, RECORD.iter_unpack(index.records(0, index.count)))
    return [(record._replace(client_id=0), index.string(record.client_id)) for record in records]


def same(path: Path) -> int:
    """Both roads give the same; returns how many records."""
    expected, more = careful(path)
    found, found_more = fast(path)
    assert found == expected
    assert found_more == more
    return len(found)


@pytest.mark.parametrize("path", sorted(FINDINGS.glob("*.pcapng")), ids=lambda path: path.stem)
def test_captures_of_every_kind(path: Path) -> None:
    same(path)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["as sent", "reordered", "doubled", "lost", "late"])
def test_generated_traffic(tmp_path: Path, how: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_windows, "WINDOW", 3000)  # frames and packets reach over windows
    found = traffic(seed, how)
    path = pcap_file(tmp_path, found)
    assert same(path) > 40
    ng = tmp_path / "made.pcapng"
    ng.write_bytes(as_pcapng(found))
    assert same(ng) > 40


@pytest.mark.parametrize(("order", "nano"), [(">", True), (">", False), ("<", False)])
def test_both_byte_orders_and_units(tmp_path: Path, order: str, nano: bool) -> None:
    path = tmp_path / "made.pcap"
    path.write_bytes(as_pcap(traffic(1), order, nano))
    assert same(path) > 40


def test_ipv6(tmp_path: Path) -> None:
    path = pcap_file(tmp_path, traffic(2, host="fd00::%x"))
    assert same(path) > 40


@pytest.mark.parametrize("link", LINKS)
def test_link_types(tmp_path: Path, link: int) -> None:
    found = [(t, LINKS[link](data)) for t, data in traffic(3)]
    data = bytearray(as_pcap(found))
    data[20:24] = link.to_bytes(4, "little")
    path = tmp_path / "made.pcap"
    path.write_bytes(data)
    assert same(path) > 40


@pytest.mark.parametrize("tags", [b"\x81\0\0\x05", b"\x88\xa8\0\x05\x81\0\0\x06"])
def test_vlan_tags(tmp_path: Path, tags: bytes) -> None:
    path = pcap_file(tmp_path, [(t, data[:12] + tags + data[12:]) for t, data in traffic(3)])
    assert same(path) > 40


def test_garbage(tmp_path: Path) -> None:
    chance = random.Random(5)
    path = tmp_path / "made.pcapng"
    for make in (as_pcap, as_pcapng):
        whole = make(traffic(4))
        for _ in range(25):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 12)):
                data[chance.randrange(200, len(data))] = chance.randrange(256)
            path.write_bytes(data[: chance.randrange(300, len(data))])
            same(path)


# cut packets


def test_cut_packets_keep_their_rows(tmp_path: Path) -> None:
    client, broker = ("10.0.0.1", 40000), ("10.0.0.2", 9092)
    found, next_ = [], [1000, 2000]
    for i in range(20):
        for side, data in ((0, metadata_request(i, 600)), (1, metadata_answer(i, 900))):
            for start in range(0, len(data), 500):
                part = data[start : start + 500]
                ends = (client, broker) if side == 0 else (broker, client)
                found.append((NOW + len(found) * 1000, build(*ends, next_[side], 0, 0x18, part, side)))
                next_[side] += len(part)
    path = tmp_path / "cut.pcap"
    path.write_bytes(snapped(found, 96))
    with open_capture(path) as capture:
        rows = list(capture.rows())
        assert [(row.correlation_id, row.state, row.cut) for row in rows] == [(i, "paired", True) for i in range(20)]
        assert {row.api for row in rows} == {"Metadata"}
        assert [row.request_size for row in rows] == [len(metadata_request(i, 600)) - 4 for i in range(20)]
        exchange = capture.exchange(rows[3])
        assert exchange.client_id == "stock-1"
        assert exchange.request == metadata_request(3, 600)[4:42]
        assert "cut when it was captured" in exchange.marks.notes[0]
        assert exchange.request_size == rows[3].request_size
        assert (
            exchange.cut
            == f"request: cut at 38 of {rows[3].request_size} bytes; response: cut at 38 of {rows[3].response_size} bytes"
        )
        assert "80 packets were cut" in str(capture.note)
    path.write_bytes(snapped(found, 20))  # not even the TCP header
    with open_capture(path) as capture:
        assert not len(capture.rows())


# files that grow, and reading in the background


def test_a_file_that_grows(tmp_path: Path) -> None:
    found = traffic(6)
    for make in (as_pcap, as_pcapng):
        whole = make(found)
        path = tmp_path / "grows.pcap"
        path.write_bytes(whole[:300])
        with open_capture(path) as capture, open(path, "ab") as file:
            rows = capture.rows()
            seen: dict[int, int] = {}
            for start in range(300, len(whole), 5001):
                file.write(whole[start : start + 5001])
                file.flush()
                before = rows.done
                assert capture.refresh() == rows.done - before
                for row in rows[: rows.done]:  # a row keeps its number, once its exchange is done
                    assert seen.setdefault(row.number, row.correlation_id) == row.correlation_id
            assert capture.refresh() == 0
            grown = sorted((r.connection, r.time_ns, r.correlation_id, r.state, r.error) for r in rows)
            for row in rows:
                exchange = capture.exchange(row)
                assert (exchange.correlation_id, exchange.state) == (row.correlation_id, row.state)
        with open_capture(path) as capture:
            assert grown == sorted(
                (r.connection, r.time_ns, r.correlation_id, r.state, r.error) for r in capture.rows()
            )


@pytest.mark.parametrize("seconds", [PATIENCE, slow(0)])
def test_background_reading_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(packet_windows, "WINDOW", 20_000)
    monkeypatch.setattr(index_builder, "FIRST_SECONDS", seconds)
    path = pcap_file(tmp_path, [p for seed in range(60) for p in traffic(seed)])
    with open_capture(path) as capture:
        expected = list(capture.rows())
    with open_capture(path, background=True) as capture:
        rows = capture.rows()
        if seconds:
            assert 1000 <= len(rows) < len(expected)
            assert capture.live
        while capture.live:
            capture.refresh()
        capture.refresh()
        assert capture.progress == (path.stat().st_size,) * 2
        assert list(rows) == expected
        assert capture.note is None
    with open_capture(path, background=True) as capture:
        if seconds:
            assert capture.exchange(5).correlation_id == expected[5].correlation_id  # closed while it reads: no error


def test_a_capture_of_one_direction_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.captures.reading.indexing import skim

    monkeypatch.setattr(skim, "MOST_WAITING", 50)

    def packets() -> Iterator[Packet]:
        at = 1000
        for i in range(200):
            data = metadata_request(i)
            yield NOW + i, build(("10.0.0.1", 40000), ("10.0.0.2", 9092), at, 0, 0x18, data)
            at += len(data)

    path = pcap_file(tmp_path, list(packets()))
    with open_capture(path) as capture:
        states = [str(row.state) for row in capture.rows()]
        assert states == ["no_response"] * 150 + ["pending"] * 50
