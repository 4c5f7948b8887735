"""Everything that happens in our own recordings, over several segments."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder
from barnabas.captures.pcap.pcapng import NotACapture
from barnabas.captures.reading.events import EventReader
from barnabas.decoder import Direction, ExchangeDone, RequestSeen, encode_request, encode_response
from barnabas.decoder.connection.events import Closed, Missing, NonKafkaData, Opened
from harness.recordings import MS, RecordingBuilder, metadata_answer, metadata_request
from harness.run.slices import only
from harness.wire import with_size

from ..event_words import read_events, same_as_read_back, short

NOW = 1_795_223_022_000_000_000
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(500)


def test_one_connection(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(7, NOW, client=("10.0.0.1", 50001), broker=("kafka", 9092))
    recorder.data(7, 0, NOW + 1, metadata_request(1) + metadata_request(2))
    recorder.data(7, 1, NOW + 2, metadata_answer(1))
    recorder.closed(7, NOW + 3, "rst", "broker")
    recorder.close()
    found = read_events(tmp_path)
    assert short(found) == [
        "7 opened",
        "7 asked 1",
        "7 asked 2",
        "7 paired 1",
        "7 no_response 2",
        "7 closed rst by broker",
    ]
    assert found[0] == Opened(7, "10.0.0.1:50001", "kafka:9092", NOW)
    assert found[-1] == Closed(7, NOW + 3, "rst", "broker")


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("by", ["client", "broker", ""])
def test_the_end_of_a_connection_names_who_ended_it(tmp_path: Path, how: str, by: str) -> None:
    ended(tmp_path, how, by)
    assert read_events(tmp_path)[-1] == Closed(1, NOW + 1, how, by)


def ended(directory: Path, how: str, by: str) -> None:
    """Record a connection that is opened and ended."""
    with RecordingBuilder(directory, broker=("10.0.0.9", 9092), start_ns=NOW) as recording:
        recording.open(client=("10.0.0.1", 50001), at=0)
        recording.close_connection(1, how, by, at=1 / MS)


ENDS = list(itertools.product(("client", "broker", ""), ("fin", "rst")))


@pytest.mark.parametrize(("by", "how"), only(ENDS, ("client", "fin"), ("broker", "rst")))
def test_tshark_sees_who_ended_it(tmp_path: Path, how: str, by: str, tshark, complaints) -> None:
    ended(tmp_path, how, by)
    (path,) = tmp_path.glob("*.pcapng")
    flag = "tcp.flags.reset == 1" if how == "rst" else "tcp.flags.fin == 1"
    first = tshark(path, flag, "-T", "fields", "-e", "tcp.srcport")[0]
    assert first == ("9092" if by == "broker" else "50001")
    assert complaints(path) == []


@pytest.mark.parametrize(("failed", "by"), [("refused", "broker"), ("unreached", "")])
def test_a_broker_that_was_not_reached(tmp_path: Path, failed: str, by: str) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001), broker=("10.0.0.9", 9092), failed=failed)
    recorder.closed(1, NOW + 1, "rst", by)
    recorder.close()
    assert read_events(tmp_path) == [
        Opened(1, "10.0.0.1:50001", "10.0.0.9:9092", NOW, established=False),
        Closed(1, NOW + 1, failed, by),
    ]


def several_packets(number: int) -> bytes:
    """A request too large for one packet; written, it makes the next segment begin."""
    topics = [{"name": str(i) + "x" * 500} for i in range(150)]
    return with_size(encode_request(3, 1, {"topics": topics}, correlation_id=number, client_id="stock-1"))


def rotated(directory: Path, count: int = 600) -> Recorder:
    """Three connections, up to four requests in flight on each, changed legs and notes, over some 10 segments."""
    recorder = Recorder(directory, segment_bytes=40_000)
    for conn in range(3):
        recorder.opened(conn, NOW + conn, client=("10.0.0.1", 50000 + conn), broker=("kafka", 9092))
    for i in range(count):
        time_ns = NOW + 1_000_000 * (i + 1)
        recorder.data(i % 3, 0, time_ns, several_packets(i) if i % 100 == 1 else metadata_request(i))
        if i >= 12:
            j = i - 12
            if j % 5 == 0:
                recorder.broker_leg(j % 3, 1, time_ns, metadata_answer(j, 9), "addresses")
            if j % 7 == 0:
                recorder.note(j % 3, j, "rule 'late'")
            recorder.data(j % 3, 1, time_ns + 500, metadata_answer(j, 3000))
    return recorder


def test_events_continue_over_rotated_segments(tmp_path: Path) -> None:
    recorder = rotated(tmp_path)
    recorder.closed(2, NOW + 10**12, "fin", "client")
    recorder.close()
    assert len(list(tmp_path.glob("*.pcapng"))) > 8
    found = read_events(tmp_path)
    words = short(found)
    assert not [word for word, count in Counter(words).items() if count > 1]
    assert [w for w in words if "opened" in w or "closed" in w] == [
        *(f"{conn} opened" for conn in range(3)),
        "2 closed fin by client",
    ]
    assert [h.exchange.correlation_id for h in found if isinstance(h, RequestSeen)] == list(range(600))
    # the four that were in flight on connection 2 got no response; the others still wait
    assert Counter(w.split()[1] for w in words)["paired"] == 588
    assert [w for w in words if "no_response" in w] == [f"2 no_response {i}" for i in (590, 593, 596, 599)]
    stamps = [h.exchange.request_time_ns for h in found if isinstance(h, RequestSeen)]
    assert stamps == sorted(stamps)
    assert same_as_read_back(tmp_path) == 592


def test_the_same_exchange_object_is_seen_and_done(tmp_path: Path) -> None:
    rotated(tmp_path).close()
    asked: dict[int, Any] = {}
    carried = 0
    for event in read_events(tmp_path):
        if isinstance(event, RequestSeen):
            asked[event.exchange.correlation_id] = event.exchange
        elif isinstance(event, ExchangeDone):
            assert asked[event.exchange.correlation_id] is event.exchange
            carried += bool(event.exchange.marks.carried)
    assert carried > 20


def test_topics_are_shared(tmp_path: Path) -> None:
    rotated(tmp_path).close()
    assert len({id(h.exchange.topics) for h in read_events(tmp_path) if isinstance(h, RequestSeen)}) == 1


def test_every_segment_alone(tmp_path: Path) -> None:
    rotated(tmp_path).close()
    assert sum(same_as_read_back(path) for path in tmp_path.glob("*.pcapng")) == 588


def test_a_connection_that_ends_where_it_did_not_speak(tmp_path: Path) -> None:
    recorder = rotated(tmp_path, 0)
    for i in range(600):
        recorder.data(0, 0, NOW + i, metadata_request(i))
        recorder.data(0, 1, NOW + i, metadata_answer(i))
    recorder.closed(1, NOW + 10**9, "fin", "broker")
    recorder.close()
    assert len(list(tmp_path.glob("*.pcapng"))) > 3
    words = short(read_events(tmp_path))
    assert words[-1] == "1 closed fin by broker"
    assert words.count("1 opened") == 1


def test_connections_end_and_reopen_around_a_missing_segment(tmp_path: Path) -> None:
    rotated(tmp_path).close()
    segments = sorted(tmp_path.glob("*.pcapng"))
    segments[4].unlink()
    words = short(read_events(tmp_path))
    # requests that waited when the hole began do not count as unanswered
    assert not [w for w in words if "no_response" in w]
    assert [w for w in words if "closed" in w] == [f"{conn} closed  by nobody" for conn in range(3)]
    at = words.index("0 closed  by nobody")
    assert sorted(w for w in words[at:] if "opened" in w) == [f"{conn} opened" for conn in range(3)]


def test_two_recordings_in_one_directory(tmp_path: Path) -> None:
    for _ in range(2):
        recorder = Recorder(tmp_path)
        recorder.data(1, 0, NOW, metadata_request(1))
        recorder.data(1, 1, NOW + 5, metadata_answer(1))
        recorder.close()
    once = ["1 opened", "1 asked 1", "1 paired 1"]
    assert short(read_events(tmp_path)) == [*once, "1 closed  by nobody", *once]


def test_lost_bytes_and_bytes_that_are_no_frames(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001))
    recorder.data(1, 0, NOW + 1, metadata_request(1))
    recorder.lost(1, 0, 777)
    recorder.data(1, 0, NOW + 2, metadata_request(2))
    recorder.data(1, 1, NOW + 3, metadata_answer(1) + metadata_answer(2))
    recorder.opened(2, NOW + 4, client=("10.0.0.1", 50002))
    recorder.data(2, 0, NOW + 5, TLS_HELLO)
    recorder.close()
    found = read_events(tmp_path)
    assert short(found)[:5] == ["1 opened", "1 asked 1", "1 missing 777", "1 asked 2", "1 paired 1"]
    (missing,) = (h for h in found if isinstance(h, Missing))
    assert missing == Missing(1, Direction.REQUEST, 777, NOW + 2)
    (stray,) = (h for h in found if isinstance(h, NonKafkaData))
    assert (stray.connection, stray.opaque.direction, stray.opaque.framed) == (2, Direction.REQUEST, False)
    assert stray.opaque.data == TLS_HELLO[:8] + b"*" * (len(TLS_HELLO) - 8)
    assert "TLS" in stray.opaque.reason


def test_sasl_tokens_keep_their_framing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001))
    recorder.data(1, 0, NOW + 1, with_size(encode_request(17, 0, {"mechanism": "PLAIN"}, correlation_id=1)))
    recorder.data(1, 1, NOW + 2, with_size(encode_response(17, 0, {"mechanisms": ["PLAIN"]}, correlation_id=1)))
    recorder.data(1, 0, NOW + 3, with_size(b"\0someone\0secret"))
    recorder.data(1, 1, NOW + 4, with_size(b""))
    recorder.data(1, 0, NOW + 5, with_size(encode_request(3, 1, {"topics": []}, correlation_id=2)))
    recorder.close()
    found = read_events(tmp_path)
    assert short(found) == [
        "1 opened", "1 asked 1", "1 paired 1", "1 stray SASL token", "1 stray SASL token", "1 asked 2",
    ]  # fmt: skip
    tokens = [h.opaque for h in found if isinstance(h, NonKafkaData)]
    assert all(token.framed for token in tokens)
    assert [len(token.data) for token in tokens] == [15, 0]
    assert b"secret" not in tokens[0].data


def test_a_live_recording_goes_on_where_it_was_left(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, segment_bytes=20_000, flush_seconds=0)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001))
    recorder.flush()
    reader = EventReader(tmp_path)
    words = short(list(reader.read()))
    assert words == ["1 opened"]
    for i in range(300):
        recorder.data(1, 0, NOW + i, metadata_request(i))
        if i >= 3:
            recorder.data(1, 1, NOW + i, metadata_answer(i - 3))
        if i % 7 == 0:
            words += short(list(reader.read()))
            assert words[-1] == (f"1 paired {i - 3}" if i >= 3 else f"1 asked {i}")
    recorder.close()
    words += short(list(reader.read()))
    words += short(list(reader.end()))
    assert words == short(read_events(tmp_path))
    assert len(words) == 1 + 300 + 297
    assert reader.note is None
    assert reader.bytes_read == reader.bytes_known == sum(p.stat().st_size for p in tmp_path.glob("*.pcapng"))


def test_a_killed_recorder(tmp_path: Path) -> None:
    recorder = rotated(tmp_path / "rec")
    recorder.flush()
    shutil.copytree(tmp_path / "rec", tmp_path / "copy")
    recorder.close()
    (part,) = (tmp_path / "copy").glob("*.part")
    part.write_bytes(part.read_bytes()[:-50])
    reader = EventReader(tmp_path / "copy")
    words = short([*reader.read(), *reader.end()])
    assert len([w for w in words if "asked" in w]) == 600
    assert "ends in the middle of a block" in str(reader.note)
    assert not [w for w in words if "closed" in w or "no_response" in w]


def test_paths_without_a_capture_raise(tmp_path: Path) -> None:
    with pytest.raises(NotACapture, match=r"no \.pcapng"):
        EventReader(tmp_path)
    (tmp_path / "x.pcap").write_text("something else")
    with pytest.raises(NotACapture, match="not a capture"):
        EventReader(tmp_path / "x.pcap")
    with pytest.raises(NotACapture, match="not a capture"):
        EventReader(tmp_path)
    with pytest.raises(FileNotFoundError):
        EventReader(tmp_path / "nothing.pcap")
