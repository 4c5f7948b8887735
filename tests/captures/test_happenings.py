"""Everything that happens in a capture: our own recordings over several segments, and captures of others."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.happenings import Happenings
from barnabas.captures.pcapng import NotACapture
from barnabas.decoder import Direction, ExchangeDone, RequestSeen, encode_request, encode_response
from barnabas.decoder.happening import Closed, Happening, Missing, Opened, Stray
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import wrpcap

NOW = 1_795_223_022_000_000_000
CLIENT, BROKER = "10.0.0.1", "10.0.0.2"
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(500)


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def all_of(path: Path, **options: Any) -> list[Happening]:
    with open_capture(path, **options) as capture:
        return list(capture.happenings())


def short(found: list[Happening]) -> list[str]:
    """Each happening in few words."""
    words = []
    for one in found:
        if isinstance(one, (RequestSeen, ExchangeDone)):
            name = "asked" if isinstance(one, RequestSeen) else str(one.exchange.state)
            words.append(f"{one.exchange.connection} {name} {one.exchange.correlation_id}")
        elif isinstance(one, Opened):
            words.append(f"{one.connection} opened" + ("" if one.established else " in vain"))
        elif isinstance(one, Closed):
            words.append(f"{one.connection} closed {one.how} by {one.by or 'nobody'}")
        elif isinstance(one, Stray):
            words.append(f"{one.connection} stray {one.opaque.reason}")
        else:
            words.append(f"{one.connection} missing {one.size}")
    return words


# our own


def same_as_read_back(path: Path) -> int:
    """Every exchange that is done must be the one that the capture gives; returns their number."""
    done = {
        (h.exchange.connection, h.exchange.correlation_id, h.exchange.request_time_ns): h.exchange
        for h in all_of(path)
        if isinstance(h, ExchangeDone)
    }
    count = 0
    with open_capture(path) as capture:
        for exchange in capture.exchanges():
            if exchange.state == "pending":
                continue
            told = done[exchange.connection, exchange.correlation_id, exchange.request_time_ns]
            for name in ("request", "response", "state", "request_time_ns", "response_time_ns", "client", "broker"):
                assert getattr(told, name) == getattr(exchange, name), name
            marks = dict(told.marks)
            if marks.get("carried"):  # a segment does not repeat the broker leg's frames of an earlier one
                for name in {"broker_response", "broker_response_notes"} & (marks.keys() - exchange.marks.keys()):
                    del marks[name]
            assert marks == exchange.marks
            count += 1
    assert count == len(done)
    return count


def test_one_connection(tmp_path: Path, request_frame, response_frame) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(7, NOW, client=("10.0.0.1", 50001), broker=("kafka", 9092))
    recorder.data(7, 0, NOW + 1, request_frame(1) + request_frame(2))
    recorder.data(7, 1, NOW + 2, response_frame(1))
    recorder.closed(7, NOW + 3, "rst", "broker")
    recorder.close()
    found = all_of(tmp_path)
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
def test_who_ended_it(tmp_path: Path, how: str, by: str, tshark, complaints) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001), broker=("10.0.0.9", 9092))
    recorder.closed(1, NOW + 1, how, by)
    recorder.close()
    assert all_of(tmp_path)[-1] == Closed(1, NOW + 1, how, by)
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
    assert all_of(tmp_path) == [
        Opened(1, "10.0.0.1:50001", "10.0.0.9:9092", NOW, established=False),
        Closed(1, NOW + 1, failed, by),
    ]


def several_packets(number: int) -> bytes:
    """A request too large for one packet; written, it makes the next segment begin."""
    topics = [{"name": str(i) + "x" * 500} for i in range(150)]
    return sized(encode_request(3, 1, {"topics": topics}, correlation_id=number, client_id="stock-1"))


def rotated(directory: Path, request_frame, response_frame, count: int = 600) -> Recorder:
    """Three connections, up to four requests in flight on each, changed legs and notes, over some 10 segments."""
    recorder = Recorder(directory, segment_bytes=40_000)
    for conn in range(3):
        recorder.opened(conn, NOW + conn, client=("10.0.0.1", 50000 + conn), broker=("kafka", 9092))
    for i in range(count):
        time_ns = NOW + 1_000_000 * (i + 1)
        recorder.data(i % 3, 0, time_ns, several_packets(i) if i % 100 == 1 else request_frame(i))
        if i >= 12:
            j = i - 12
            if j % 5 == 0:
                recorder.broker_leg(j % 3, 1, time_ns, response_frame(j, 9), "addresses")
            if j % 7 == 0:
                recorder.note(j % 3, j, "rule 'late'")
            recorder.data(j % 3, 1, time_ns + 500, response_frame(j, 3000))
    return recorder


def test_rotated_segments_are_one_story(tmp_path: Path, request_frame, response_frame) -> None:
    recorder = rotated(tmp_path, request_frame, response_frame)
    recorder.closed(2, NOW + 10**12, "fin", "client")
    recorder.close()
    assert len(list(tmp_path.glob("*.pcapng"))) > 8
    found = all_of(tmp_path)
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


def test_the_same_exchange_object_is_seen_and_done(tmp_path: Path, request_frame, response_frame) -> None:
    rotated(tmp_path, request_frame, response_frame).close()
    asked: dict[int, Any] = {}
    carried = 0
    for happening in all_of(tmp_path):
        if isinstance(happening, RequestSeen):
            asked[happening.exchange.correlation_id] = happening.exchange
        elif isinstance(happening, ExchangeDone):
            assert asked[happening.exchange.correlation_id] is happening.exchange
            carried += bool(happening.exchange.marks.get("carried"))
    assert carried > 20


def test_topics_are_shared(tmp_path: Path, request_frame, response_frame) -> None:
    rotated(tmp_path, request_frame, response_frame).close()
    assert len({id(h.exchange.topics) for h in all_of(tmp_path) if isinstance(h, RequestSeen)}) == 1


def test_every_segment_alone(tmp_path: Path, request_frame, response_frame) -> None:
    rotated(tmp_path, request_frame, response_frame).close()
    assert sum(same_as_read_back(path) for path in tmp_path.glob("*.pcapng")) == 588


def test_a_connection_that_ends_where_it_did_not_speak(tmp_path: Path, request_frame, response_frame) -> None:
    recorder = rotated(tmp_path, request_frame, response_frame, 0)
    for i in range(600):
        recorder.data(0, 0, NOW + i, request_frame(i))
        recorder.data(0, 1, NOW + i, response_frame(i))
    recorder.closed(1, NOW + 10**9, "fin", "broker")
    recorder.close()
    assert len(list(tmp_path.glob("*.pcapng"))) > 3
    words = short(all_of(tmp_path))
    assert words[-1] == "1 closed fin by broker"
    assert words.count("1 opened") == 1


def test_a_missing_segment_breaks_the_story(tmp_path: Path, request_frame, response_frame) -> None:
    rotated(tmp_path, request_frame, response_frame).close()
    segments = sorted(tmp_path.glob("*.pcapng"))
    segments[4].unlink()
    words = short(all_of(tmp_path))
    # what waited when the hole began is not said to be unanswered
    assert not [w for w in words if "no_response" in w]
    assert [w for w in words if "closed" in w] == [f"{conn} closed  by nobody" for conn in range(3)]
    at = words.index("0 closed  by nobody")
    assert sorted(w for w in words[at:] if "opened" in w) == [f"{conn} opened" for conn in range(3)]


def test_two_recordings_in_one_directory(tmp_path: Path, request_frame, response_frame) -> None:
    for _ in range(2):
        recorder = Recorder(tmp_path)
        recorder.data(1, 0, NOW, request_frame(1))
        recorder.data(1, 1, NOW + 5, response_frame(1))
        recorder.close()
    once = ["1 opened", "1 asked 1", "1 paired 1"]
    assert short(all_of(tmp_path)) == [*once, "1 closed  by nobody", *once]


def test_lost_bytes_and_bytes_that_are_no_frames(tmp_path: Path, request_frame, response_frame) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001))
    recorder.data(1, 0, NOW + 1, request_frame(1))
    recorder.lost(1, 0, 777)
    recorder.data(1, 0, NOW + 2, request_frame(2))
    recorder.data(1, 1, NOW + 3, response_frame(1) + response_frame(2))
    recorder.opened(2, NOW + 4, client=("10.0.0.1", 50002))
    recorder.data(2, 0, NOW + 5, TLS_HELLO)
    recorder.close()
    found = all_of(tmp_path)
    assert short(found)[:5] == ["1 opened", "1 asked 1", "1 missing 777", "1 asked 2", "1 paired 1"]
    (missing,) = (h for h in found if isinstance(h, Missing))
    assert missing == Missing(1, Direction.REQUEST, 777, NOW + 2)
    (stray,) = (h for h in found if isinstance(h, Stray))
    assert (stray.connection, stray.opaque.direction, stray.opaque.framed) == (2, Direction.REQUEST, False)
    assert stray.opaque.data == TLS_HELLO[:8] + b"*" * (len(TLS_HELLO) - 8)
    assert "TLS" in stray.opaque.reason


def test_sasl_tokens_come_as_they_were_framed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001))
    recorder.data(1, 0, NOW + 1, sized(encode_request(17, 0, {"mechanism": "PLAIN"}, correlation_id=1)))
    recorder.data(1, 1, NOW + 2, sized(encode_response(17, 0, {"mechanisms": ["PLAIN"]}, correlation_id=1)))
    recorder.data(1, 0, NOW + 3, sized(b"\0someone\0secret"))
    recorder.data(1, 1, NOW + 4, sized(b""))
    recorder.data(1, 0, NOW + 5, sized(encode_request(3, 1, {"topics": []}, correlation_id=2)))
    recorder.close()
    found = all_of(tmp_path)
    assert short(found) == [
        "1 opened", "1 asked 1", "1 paired 1", "1 stray SASL token", "1 stray SASL token", "1 asked 2",
    ]  # fmt: skip
    tokens = [h.opaque for h in found if isinstance(h, Stray)]
    assert all(token.framed for token in tokens)
    assert [len(token.data) for token in tokens] == [15, 0]
    assert b"secret" not in tokens[0].data


def test_a_live_recording_goes_on_where_it_was_left(tmp_path: Path, request_frame, response_frame) -> None:
    recorder = Recorder(tmp_path, segment_bytes=20_000, flush_seconds=0)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001))
    recorder.flush()
    told = Happenings(tmp_path)
    words = short(list(told.read()))
    assert words == ["1 opened"]
    for i in range(300):
        recorder.data(1, 0, NOW + i, request_frame(i))
        if i >= 3:
            recorder.data(1, 1, NOW + i, response_frame(i - 3))
        if i % 7 == 0:
            words += short(list(told.read()))
            assert words[-1] == (f"1 paired {i - 3}" if i >= 3 else f"1 asked {i}")
    recorder.close()
    words += short(list(told.read()))
    words += short(list(told.end()))
    assert words == short(all_of(tmp_path))
    assert len(words) == 1 + 300 + 297
    assert told.note is None
    assert told.bytes_read == told.bytes_known == sum(p.stat().st_size for p in tmp_path.glob("*.pcapng"))


def test_a_killed_recorder(tmp_path: Path, request_frame, response_frame) -> None:
    recorder = rotated(tmp_path / "rec", request_frame, response_frame)
    recorder.flush()
    shutil.copytree(tmp_path / "rec", tmp_path / "copy")
    recorder.close()
    (part,) = (tmp_path / "copy").glob("*.part")
    part.write_bytes(part.read_bytes()[:-50])
    told = Happenings(tmp_path / "copy")
    words = short([*told.read(), *told.end()])
    assert len([w for w in words if "asked" in w]) == 600
    assert "ends in the middle of a block" in str(told.note)
    assert not [w for w in words if "closed" in w or "no_response" in w]


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(NotACapture, match=r"no \.pcapng"):
        Happenings(tmp_path)
    (tmp_path / "x.pcap").write_text("something else")
    with pytest.raises(NotACapture, match="not a capture"):
        Happenings(tmp_path / "x.pcap")
    with pytest.raises(NotACapture, match="not a capture"):
        Happenings(tmp_path)
    with pytest.raises(FileNotFoundError):
        Happenings(tmp_path / "nothing.pcap")


# of others


class Wire:
    """TCP conversations made by scapy, on one clock."""

    def __init__(self) -> None:
        self.packets: list[Packet] = []
        self.seconds = 0.0
        self._next: dict[tuple[int, int], list[int]] = {}

    def send(self, port: int, side: int, data: bytes = b"", flags: str = "PA", broker: int = 9092) -> None:
        numbers = self._next.setdefault((port, broker), [1000, 5000])
        ends = (CLIENT, BROKER) if side == 0 else (BROKER, CLIENT)
        ports = (port, broker) if side == 0 else (broker, port)
        tcp = TCP(sport=ports[0], dport=ports[1], seq=numbers[side], ack=numbers[1 - side], flags=flags)
        packet = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02") / IP(src=ends[0], dst=ends[1]) / tcp / data
        self.seconds += 0.001
        packet.time = 1_700_000_000 + self.seconds
        self.packets.append(packet)
        numbers[side] += len(data) + ("S" in flags or "F" in flags)

    def shake(self, port: int, broker: int = 9092) -> None:
        for side, flags in ((0, "S"), (1, "SA"), (0, "A")):
            self.send(port, side, flags=flags, broker=broker)

    def save(self, tmp_path: Path) -> Path:
        path = tmp_path / "foreign.pcap"
        wrpcap(str(path), self.packets)
        return path


def test_foreign_exchanges_and_ends(tmp_path: Path, request_frame, response_frame) -> None:
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, request_frame(1)[:20])
    wire.send(40001, 0, request_frame(1)[20:])
    wire.send(40001, 1, response_frame(1))
    wire.send(40001, 1, flags="FA")
    wire.send(40001, 0, flags="FA")
    wire.shake(40002)
    wire.send(40002, 0, request_frame(5))
    wire.send(40002, 1, flags="RA")
    wire.shake(40003)
    wire.send(40003, 0, request_frame(6))
    path = wire.save(tmp_path)
    assert short(all_of(path)) == [
        "1 opened",
        "1 asked 1",
        "1 paired 1",
        "1 closed fin by broker",
        "2 opened",
        "2 asked 5",
        "2 no_response 5",
        "2 closed rst by broker",
        "3 opened",
        "3 asked 6",
    ]
    assert all_of(path)[0] == Opened(1, "10.0.0.1:40001", "10.0.0.2:9092", 1_700_000_000_001_000_000)
    assert same_as_read_back(path) == 2


def test_a_reset_that_answers_a_close_is_no_reset(tmp_path: Path, request_frame, response_frame) -> None:
    """A client that closes while a response is on its way resets what arrives then."""
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, request_frame(1))
    wire.send(40001, 0, flags="FA")
    wire.send(40001, 1, response_frame(1))
    wire.send(40001, 0, flags="R")
    assert short(all_of(wire.save(tmp_path)))[-2:] == ["1 paired 1", "1 closed fin by client"]


def test_refused(tmp_path: Path) -> None:
    wire = Wire()
    for port in (40001, 40002):
        wire.send(port, 0, flags="S")
        wire.send(port, 1, flags="RA")
    wire.send(40003, 0, flags="S", broker=443)
    wire.send(40003, 1, flags="RA", broker=443)
    path = wire.save(tmp_path)
    assert short(all_of(path)) == [
        "1 opened in vain",
        "1 closed refused by broker",
        "2 opened in vain",
        "2 closed refused by broker",
    ]
    with open_capture(path) as capture:
        assert len(capture.rows()) == 0
        assert capture.note is None


def test_refused_on_a_port_where_kafka_was_spoken(tmp_path: Path, request_frame) -> None:
    wire = Wire()
    wire.shake(40001, broker=19093)
    wire.send(40001, 0, request_frame(1), broker=19093)
    wire.send(40001, 1, flags="RA", broker=19093)
    wire.send(40002, 0, flags="S", broker=19093)
    wire.send(40002, 1, flags="RA", broker=19093)
    assert short(all_of(wire.save(tmp_path)))[-2:] == ["2 opened in vain", "2 closed refused by broker"]


def test_no_answer_to_the_syn(tmp_path: Path, request_frame) -> None:
    wire = Wire()
    wire.send(40001, 0, flags="S")
    for wait in (1, 2, 4):  # sent again, as TCP does
        wire.seconds += wait
        wire._next[40001, 9092][0] -= 1
        wire.send(40001, 0, flags="S")
    wire.shake(40002)
    wire.seconds += 5
    wire.send(40002, 0, request_frame(1))
    wire.send(40003, 0, flags="S")
    found = all_of(wire.save(tmp_path))
    # the third is too young at the end of the capture to say anything about it
    assert short(found) == ["1 opened", "2 opened in vain", "2 closed unreached by nobody", "1 asked 1"]
    assert isinstance(found[1], Opened)
    assert found[1].client == "10.0.0.1:40001"


def test_no_answer_before_the_capture_ends(tmp_path: Path, request_frame) -> None:
    wire = Wire()
    wire.send(40001, 0, flags="S")
    wire.seconds += 2
    wire.shake(40002)
    assert short(all_of(wire.save(tmp_path))) == ["1 opened", "2 opened in vain", "2 closed unreached by nobody"]


def test_an_answer_after_all(tmp_path: Path, request_frame, response_frame) -> None:
    wire = Wire()
    wire.send(40001, 0, flags="S")
    wire.seconds += 15
    wire._next[40001, 9092][0] -= 1
    wire.shake(40001)
    wire.send(40001, 0, request_frame(1))
    wire.send(40001, 1, response_frame(1))
    assert short(all_of(wire.save(tmp_path))) == [
        "1 opened in vain",
        "1 closed unreached by nobody",
        "2 opened",
        "2 asked 1",
        "2 paired 1",
    ]


def test_one_direction_captured(tmp_path: Path, request_frame) -> None:
    wire = Wire()
    wire.send(40001, 0, flags="S")
    wire.send(40001, 0, flags="A")
    wire.send(40001, 0, request_frame(1))
    assert short(all_of(wire.save(tmp_path))) == ["1 opened", "1 asked 1"]


@pytest.mark.parametrize(
    ("data", "protocol"),
    [(TLS_HELLO, "TLS"), (b"GET / HTTP/1.1\r\nhost: kafka\r\n\r\n", "HTTP")],
)
def test_other_protocols_on_a_kafka_port(tmp_path: Path, data: bytes, protocol: str) -> None:
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, data)
    wire.send(40001, 1, flags="FA")
    wire.send(40001, 0, flags="FA")
    found = all_of(wire.save(tmp_path))
    assert [w.split()[1] for w in short(found)] == ["opened", "stray", "closed"]
    assert isinstance(found[1], Stray)
    assert protocol in found[1].opaque.reason
    assert found[1].opaque.data == data


def test_a_connection_without_a_word(tmp_path: Path) -> None:
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, flags="FA")
    wire.send(40001, 1, flags="FA")
    assert short(all_of(wire.save(tmp_path))) == ["1 opened", "1 closed fin by client"]


def test_the_beginning_was_not_captured(tmp_path: Path, request_frame, response_frame) -> None:
    wire = Wire()
    wire.send(40001, 1, b"the rest of some response")
    wire.send(40001, 0, request_frame(3))
    wire.send(40001, 1, response_frame(3))
    wire.send(40001, 1, flags="RA")
    words = short(all_of(wire.save(tmp_path)))
    assert words == ["1 opened", "1 asked 3", "1 missing 25", "1 paired 3", "1 closed rst by broker"]


def test_a_hole(tmp_path: Path, request_frame, response_frame) -> None:
    wire = Wire()
    wire.shake(40001)
    for i in range(4):
        frame = request_frame(i, 150)
        wire.send(40001, 0, frame[:100])
        wire.send(40001, 0, frame[100:])
        wire.send(40001, 1, response_frame(i))
    del wire.packets[3 + 3 * 1 + 1]  # the second half of request 1
    found = all_of(wire.save(tmp_path))
    assert [w for w in short(found) if "asked" in w] == ["1 asked 0", "1 asked 2", "1 asked 3"]
    assert [h.size for h in found if isinstance(h, Missing)] == [len(request_frame(1, 150)) - 100]
    cut = next(h for h in found if isinstance(h, Stray))
    assert cut.opaque.reason == "cut off by missing bytes"
    assert cut.opaque.time_ns > 1_700_000_000 * 10**9


def test_captures_of_others_in_a_directory(tmp_path: Path, request_frame, response_frame) -> None:
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, request_frame(1))
    wire.send(40001, 1, response_frame(1))
    path = wire.save(tmp_path)
    shutil.copy(path, tmp_path / "second.pcap")
    (tmp_path / "third.pcap").write_text("not one")
    once = ["1 opened", "1 asked 1", "1 paired 1"]
    told = Happenings(tmp_path)
    assert short([*told.read(), *told.end()]) == [*once, "1 closed  by nobody", *once]
    assert "third.pcap: not a capture" in str(told.note)
