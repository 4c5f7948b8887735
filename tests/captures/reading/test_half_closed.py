"""Connections that one side ends long before the other: written when it happens, and known to readers of captures that grow."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.pcap.packets import build
from barnabas.captures.reading.events import EventReader
from barnabas.captures.reading.verify import verify
from barnabas.decoder.connection.events import Closed
from harness.recordings import metadata_answer, metadata_request
from traffic.packets import Packet, as_pcap

from ..event_words import read_events, same_as_read_back, short

SECOND = 1_000_000_000
LONG_AGO, FAR_OFF = 1_000_000_000 * SECOND, 4_000_000_000 * SECOND
SYN, FIN, RST, ACK = 2, 1, 4, 16


def half_closed(path: Path, start: int, side: int) -> Recorder:
    """A recording of a connection with two requests, one of them answered, which one side has ended."""
    recorder = Recorder(path, flush_seconds=0)
    recorder.opened(1, start, client=("10.0.0.1", 50001), broker=("10.0.0.9", 9092))
    recorder.data(1, 0, start + 1, metadata_request(1) + metadata_request(2))
    recorder.data(1, 1, start + 2, metadata_answer(1))
    recorder.ended(1, side, start + 3)
    recorder.flush()
    return recorder


BEGINNING = ["1 opened", "1 asked 1", "1 asked 2", "1 paired 1"]


def test_a_recording_that_is_still_written_shows_the_brokers_end(tmp_path: Path) -> None:
    recorder = half_closed(tmp_path, LONG_AGO, side=1)
    with open_capture(tmp_path) as capture:
        assert [str(exchange.state) for exchange in capture.exchanges()] == ["paired", "no_response"]
    reader = EventReader(tmp_path)
    assert short(list(reader.read())) == [*BEGINNING, "1 no_response 2"]
    assert reader.half_open
    assert short(list(reader.half_closed())) == ["1 closed fin by broker"]
    assert not reader.half_open and list(reader.half_closed()) == []
    recorder.data(1, 0, LONG_AGO + 5, metadata_request(3))  # sent, though nobody will answer
    recorder.closed(1, LONG_AGO + 6, "rst", "broker")
    recorder.close()
    assert short(list(reader.read())) == ["1 asked 3", "1 no_response 3", "1 closed fin by broker"]
    whole = read_events(tmp_path)
    assert short(whole) == [*BEGINNING, "1 no_response 2", "1 asked 3", "1 no_response 3", "1 closed fin by broker"]
    assert whole[-1] == Closed(1, LONG_AGO + 3, "fin", "broker")
    assert same_as_read_back(tmp_path) == 3


def test_the_index_is_the_one_that_the_frames_give(tmp_path: Path) -> None:
    """Also where other connections go on between the two ends."""
    recorder = half_closed(tmp_path, LONG_AGO, side=1)
    recorder.opened(2, LONG_AGO + 4, client=("10.0.0.2", 50002), broker=("10.0.0.9", 9092))
    recorder.data(2, 0, LONG_AGO + 5, metadata_request(1))
    recorder.data(2, 1, LONG_AGO + 6, metadata_answer(1))
    recorder.data(1, 0, LONG_AGO + 7, metadata_request(3))
    recorder.closed(1, LONG_AGO + 8, "fin", "broker")
    recorder.close()
    (path,) = tmp_path.glob("*.pcapng")
    assert verify(path).lines == [f"{path.name}: fine, 4 exchanges"]


def test_after_the_clients_end_answers_may_come(tmp_path: Path) -> None:
    recorder = half_closed(tmp_path, LONG_AGO, side=0)
    reader = EventReader(tmp_path)
    assert short([*reader.read(), *reader.half_closed()]) == [*BEGINNING, "1 closed fin by client"]
    recorder.data(1, 1, LONG_AGO + 5, metadata_answer(2))
    recorder.closed(1, LONG_AGO + 6, "fin", "client")
    recorder.close()
    assert short(list(reader.read())) == ["1 paired 2", "1 closed fin by client"]
    assert short(read_events(tmp_path)) == [*BEGINNING, "1 paired 2", "1 closed fin by client"]
    assert same_as_read_back(tmp_path) == 2


@pytest.mark.parametrize("side", [0, 1])
def test_the_other_end_gets_a_moment_to_follow(tmp_path: Path, side: int) -> None:
    recorder = half_closed(tmp_path, FAR_OFF, side)
    reader = EventReader(tmp_path)
    assert short([*reader.read(), *reader.half_closed()]) == BEGINNING + ["1 no_response 2"] * side
    recorder.close()


def test_a_segment_ends_while_the_client_stays(tmp_path: Path) -> None:
    recorder = half_closed(tmp_path, LONG_AGO, side=1)
    recorder.rotate()
    recorder.closed(1, LONG_AGO + 6, "fin", "broker")
    recorder.close()
    assert len(list(tmp_path.glob("*.pcapng"))) == 2
    assert short(read_events(tmp_path)) == [*BEGINNING, "1 no_response 2", "1 closed fin by broker"]


def test_tshark_reads_both_ends(tmp_path: Path, tshark, complaints) -> None:
    recorder = half_closed(tmp_path, LONG_AGO, side=1)
    recorder.data(1, 0, LONG_AGO + 5, metadata_request(3))
    recorder.closed(1, LONG_AGO + 6, "fin", "broker")
    recorder.close()
    (path,) = tmp_path.glob("*.pcapng")
    assert tshark(path, "tcp.flags.fin == 1", "-T", "fields", "-e", "tcp.srcport") == ["9092", "50001"]
    assert complaints(path) == []


def packets(end: int) -> tuple[list[Packet], list[Packet], list[Packet]]:
    """As other tools capture it: a connection that one side ends, another's packet two seconds later, and the rest."""
    ends = ("10.0.0.1", 50001), ("10.0.0.9", 9092)
    next_ = [1000, 5000]

    def put(at: int, side: int, data: bytes, flags: int = ACK) -> Packet:
        packet = LONG_AGO + at, build(ends[side], ends[1 - side], next_[side], next_[1 - side], flags, data, side)
        next_[side] += len(data) + (flags & 3 != 0)
        return packet

    first = [put(0, 0, b"", SYN), put(1, 1, b"", SYN | ACK), put(2, 0, metadata_request(1)), put(3, 1, metadata_answer(1))]
    first += [put(4, 0, metadata_request(2)), put(5, end, b"", FIN | ACK)]
    other = [(LONG_AGO + 2 * SECOND, build(("10.0.0.2", 50002), ends[1], 1, 0, SYN, b"", 0))]
    last = [put(3 * SECOND, 0, metadata_request(3))] if end else [put(3 * SECOND, 1, metadata_answer(2))]
    return first, other, [*last, put(4 * SECOND, 1 - end, b"", FIN | ACK)]


@pytest.mark.parametrize("end", [0, 1])
def test_a_capture_of_packets_that_grows(tmp_path: Path, end: int) -> None:
    first, other, last = packets(end)
    path = tmp_path / "growing.pcap"
    path.write_bytes(as_pcap(first))
    reader = EventReader(path)
    before = ["1 opened", "1 asked 1", "1 paired 1", "1 asked 2"]
    assert short([*reader.read(), *reader.half_closed()]) == before
    path.write_bytes(as_pcap(first + other))
    by = ("client", "broker")[end]
    ended = [f"1 closed fin by {by}"]
    assert short([*reader.read(), *reader.half_closed()]) == ["1 no_response 2"] * end + ended
    path.write_bytes(as_pcap(first + other + last))
    late = ["1 asked 3", "1 no_response 3"] if end else ["1 paired 2"]
    assert short([*reader.read(), *reader.half_closed()]) == late + ended
    whole = [word for word in short(read_events(path)) if word.startswith("1 ")]
    assert whole == before + (["1 asked 3", "1 no_response 2", "1 no_response 3"] if end else late) + ended


def test_packets_that_stop_coming_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5 * SECOND]
    monkeypatch.setattr("time.monotonic_ns", lambda: now[0])
    path = tmp_path / "quiet.pcap"
    path.write_bytes(as_pcap(packets(1)[0]))
    reader = EventReader(path)
    assert len([*reader.read(), *reader.half_closed()]) == 4
    now[0] += SECOND
    assert short([*reader.read(), *reader.half_closed()]) == ["1 no_response 2", "1 closed fin by broker"]
