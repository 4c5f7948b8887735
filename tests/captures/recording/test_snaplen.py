"""Recordings with a snap length: of each frame only the beginning is kept, and every reader reports it."""

from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.captures.reading.indexing import reindex
from barnabas.captures.reading.verify import verify
from barnabas.captures.recording.index import paths
from barnabas.captures.replay.policy import Policy
from barnabas.captures.serving.recorded_exchanges import RecordedExchanges
from barnabas.captures.transform.write import Writer
from barnabas.decoder.codec.truncated_frame import cut_fault
from barnabas.decoder.wire.frame import Direction
from harness.wire import with_size
from traffic.random_traffic import MixedTraffic

NOW = 1_795_223_022_000_000_000
SNAPLEN = 512


def produce(number: int, size: int, acks: int = -1) -> bytes:
    partition = {"index": 3, "records": b"r" * size}
    fields = {"acks": acks, "timeout_ms": 5, "topic_data": [{"name": "orders", "partition_data": [partition]}]}
    return decoder.encode_request(0, 7, fields, correlation_id=number, client_id="stock-1")


def fetched(number: int, size: int, error: int = 0) -> bytes:
    partitions = [
        {"partition_index": i, "error_code": error if i == 1 else 0, "records": b"r" * (size * i)} for i in range(3)
    ]
    return decoder.encode_response(
        1, 11, {"responses": [{"topic": "orders", "partitions": partitions}]}, correlation_id=number
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same traffic, cut and whole."""
    place = tmp_path_factory.mktemp("snaplen")
    for name, snaplen in (("cut", SNAPLEN), ("whole", None)):
        recorder = Recorder(place / name, snaplen=snaplen, segment_bytes=300_000)
        MixedTraffic(31, 1200, 0.01, large=0.1).run(recorder)
        recorder.close()
    return place / "cut", place / "whole"


def test_rows_are_those_of_the_whole_recording(both: tuple[Path, Path]) -> None:
    with open_capture(both[0]) as cut, open_capture(both[1]) as whole:
        assert cut.note is None and cut.verify() == []
        whole_rows = {(row.connection, row.correlation_id, row.time_ns): row for row in whole.rows()}
        count = 0
        for row in cut.rows():
            other = whole_rows.pop((row.connection, row.correlation_id, row.time_ns))
            for name in (
                "api_key",
                "api_version",
                "client_id",
                "request_size",
                "response_size",
                "latency_ns",
                "state",
                "client",
            ):
                assert getattr(row, name) == getattr(other, name), (name, row, other)
            longest = max(row.request_size or 0, row.response_size or 0)
            assert row.cut == (longest > SNAPLEN)
            assert row.error == other.error or (row.cut and row.error == 0)
            count += row.cut
            exchange, full = cut.exchange(row), whole.exchange(other)
            for side in ("request", "response"):
                kept, all_of_it = getattr(exchange, side), getattr(full, side)
                assert kept == (None if all_of_it is None else all_of_it[:SNAPLEN])
                assert getattr(exchange, f"{side}_size") == getattr(full, f"{side}_size")
            assert (exchange.cut is not None) == row.cut
            assert (exchange.undecoded is not None) == row.undecoded
            assert exchange.error == row.error or row.state == "pending"
        assert count > 30 and not whole_rows


def test_an_index_made_anew_is_the_same(both: tuple[Path, Path], tmp_path: Path) -> None:
    for found in both[0].iterdir():
        (tmp_path / found.name).write_bytes(found.read_bytes())
    for segment in sorted(tmp_path.glob("*.pcapng")):
        assert verify(segment).state == "fine"
        before = [path.read_bytes() for path in paths(segment)]
        paths(segment)[0].unlink()
        reindex.rebuild(segment)
        assert [path.read_bytes() for path in paths(segment)] == before


def test_events_of_a_cut_recording_can_be_written_again(both: tuple[Path, Path], tmp_path: Path) -> None:
    writer = Writer(tmp_path / "again")
    with open_capture(both[0]) as capture:
        rows = sum(1 for _ in capture.rows())
        for event in capture.events():
            writer.write(event)
        writer.close()
        with open_capture(tmp_path / "again") as again:
            assert again.note is None and len(again.rows()) == rows
            by_key = {(row.connection, row.correlation_id, row.time_ns): row for row in again.rows()}
            for row in capture.rows():
                other = by_key[row.connection, row.correlation_id, row.time_ns]
                assert (row.request_size, row.response_size, row.error, row.cut) == (
                    other.request_size,
                    other.response_size,
                    other.error,
                    other.cut,
                )


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """APIs that tshark knows, some frames far larger than an IP packet, over IPv4 and IPv6."""
    recorder = Recorder(tmp_path, snaplen=SNAPLEN)
    for conn, host in ((1, "10.0.0.1"), (2, "fd00::1")):
        recorder.opened(conn, NOW, (host, 40000 + conn), ("10.0.0.9" if conn == 1 else "fd00::9", 9092))
        for number, size in enumerate((10, 1000, 64_000, 65_400, 65_500, 300_000)):
            recorder.data(conn, 0, NOW + number, with_size(produce(2 * number, size)))
            answer = decoder.encode_response(0, 7, {"responses": []}, correlation_id=2 * number)
            recorder.data(conn, 1, NOW + number, with_size(answer))
            asked = decoder.encode_request(1, 11, {}, correlation_id=2 * number + 1, client_id="stock-1")
            recorder.data(conn, 0, NOW + number, with_size(asked))
            recorder.data(conn, 1, NOW + number, with_size(fetched(2 * number + 1, size, 6)))
        recorder.closed(conn, NOW + 100)
    recorder.close()
    return next(tmp_path.glob("*.pcapng"))


def test_tshark_sees_cut_packets_of_an_undisturbed_conversation(plain: Path, tshark, complaints) -> None:
    assert complaints(plain) == []
    seen = tshark(
        plain, "kafka", "-T", "fields", "-e", "tcp.stream", "-e", "tcp.len", "-e", "tcp.nxtseq", "-e", "frame.cap_len"
    )
    assert len(seen) == 2 * 6 * 4
    sizes = [len(with_size(produce(2 * n, size))) for n, size in enumerate((10, 1000, 64_000, 65_400, 65_500, 300_000))]
    lengths = [int(line.split("\t")[1]) for line in seen]
    assert set(sizes) <= set(lengths)
    assert max(int(line.split("\t")[3]) for line in seen) < SNAPLEN + 100
    names = tshark(plain, "kafka.correlation_id == 10", "-T", "fields", "-e", "kafka.api_key", "-e", "kafka.client_id")
    assert "0\tstock-1" in names


def test_cut_frames_report_their_kept_and_whole_size(plain: Path) -> None:
    with open_capture(plain) as capture:
        rows = [row for row in capture.rows() if row.connection == 1]
        asked = capture.exchange(next(row for row in rows if row.correlation_id == 10))
        assert asked.cut == f"request: cut at 512 of {len(produce(10, 300_000))} bytes"
        assert asked.request_message is None and asked.undecoded is None
        assert asked.to_dict()["cut"] == asked.cut
        fault = cut_fault(Direction.REQUEST, asked.request or b"", 0, 7, asked.request_cut)
        assert fault.path == "topic_data[0].partition_data[0].records"
        assert fault.partial["acks"] == -1 and fault.partial["topic_data"][0]["name"] == "orders"
        assert str(fault).startswith("Produce v7: cut at 512 of ")
        # The second partition's error stands in front of the bytes that are missing, or behind them.
        errors = {row.correlation_id: row.error for row in rows if row.api == "Fetch"}
        assert errors == {1: 6, 3: 6, 5: 6, 7: 6, 9: 6, 11: 6}
    with pytest.raises(ValueError, match="128 to 131072"):
        Recorder(plain.parent, snaplen=64)


@pytest.mark.parametrize("step", [1, 3, 700, 10**6])
def test_skipped_bytes_give_the_same_rows_as_cut_bytes(tmp_path: Path, step: int) -> None:
    """A frame of which the rest never came: the same file as one that was cut, wherever chunks end."""
    frames = [[], []]
    for number in range(40):
        frames[0].append(with_size(produce(number, 900 * (number % 5))))
        frames[1].append(with_size(decoder.encode_response(0, 7, {"responses": []}, correlation_id=number)))
    made = []
    for name in ("cut", "skipped"):
        recorder = Recorder(tmp_path / name, snaplen=SNAPLEN)
        recorder.opened(1, NOW, ("10.0.0.1", 40000), ("10.0.0.9", 9092))
        for request, response in zip(*frames, strict=True):
            whole = request if name == "cut" else request[: SNAPLEN + 4]
            for at in range(0, len(whole), step):
                recorder.data(1, 0, NOW, whole[at : at + step])
            rest = len(request) - len(whole)
            for part in filter(None, (rest // 3, rest - rest // 3)):
                recorder.skipped(1, 0, NOW, part)
            recorder.data(1, 1, NOW + 5, response)
        recorder.closed(1, NOW + 9)
        recorder.close()
        path = next((tmp_path / name).glob("*.pcapng"))
        with open_capture(path) as capture:
            assert [row.request_size for row in capture.rows()] == [len(frame) - 4 for frame in frames[0]]
            made.append([row._replace(segment=0) for row in capture.rows()])
            assert sum(row.cut for row in capture.rows()) == 32
    assert made[0] == made[1]


def test_an_unanswered_request_is_known_by_the_acks_that_were_kept(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, snaplen=SNAPLEN)
    recorder.opened(1, NOW, ("10.0.0.1", 40000), ("10.0.0.9", 9092))
    for number in range(30):
        recorder.data(1, 0, NOW, with_size(produce(number, 5000, acks=0 if number % 2 else 1)))
        if not number % 2:
            answer = decoder.encode_response(0, 7, {"responses": []}, correlation_id=number)
            recorder.data(1, 1, NOW, with_size(answer))
    recorder.close()
    with open_capture(tmp_path) as capture:
        assert [row.state for row in capture.rows()] == ["paired", "no_response"] * 15


def test_replay_and_serve_report_cut_exchanges_that_they_leave_out(plain: Path) -> None:
    with open_capture(plain) as capture:
        exchanges = list(capture.exchanges())
    cut = [exchange for exchange in exchanges if exchange.cut]
    assert len(cut) == 2 * 10
    assert RecordedExchanges(exchanges).cut == len(cut) and len(RecordedExchanges(exchanges).all) == len(exchanges) - len(cut)
    reasons = {Policy().why_not(exchange) for exchange in cut if exchange.request_cut}
    assert all(reason and reason.startswith("only its start was recorded (request: cut at 512 of ") for reason in reasons)
