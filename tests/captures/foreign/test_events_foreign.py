"""Everything that happens in captures of others: how connections begin and end, and what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.reading.events import EventReader
from barnabas.decoder.connection.events import Missing, NonKafkaData, Opened
from harness.recordings import metadata_answer, metadata_request
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import wrpcap

from ..event_words import all_of, same_as_read_back, short

CLIENT, BROKER = "10.0.0.1", "10.0.0.2"
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(500)


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


def test_foreign_exchanges_and_ends(tmp_path: Path) -> None:
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, metadata_request(1)[:20])
    wire.send(40001, 0, metadata_request(1)[20:])
    wire.send(40001, 1, metadata_answer(1))
    wire.send(40001, 1, flags="FA")
    wire.send(40001, 0, flags="FA")
    wire.shake(40002)
    wire.send(40002, 0, metadata_request(5))
    wire.send(40002, 1, flags="RA")
    wire.shake(40003)
    wire.send(40003, 0, metadata_request(6))
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
    assert all_of(path)[0] == Opened(1, "10.0.0.1:40001", "10.0.0.2:9092", 1_700_000_000_001_000_000, complete=False)
    assert same_as_read_back(path) == 2


def test_a_reset_that_answers_a_close_is_no_reset(tmp_path: Path) -> None:
    """A client that closes while a response is on its way resets what arrives then."""
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, metadata_request(1))
    wire.send(40001, 0, flags="FA")
    wire.send(40001, 1, metadata_answer(1))
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


def test_refused_on_a_port_with_kafka_traffic(tmp_path: Path) -> None:
    wire = Wire()
    wire.shake(40001, broker=19093)
    wire.send(40001, 0, metadata_request(1), broker=19093)
    wire.send(40001, 1, flags="RA", broker=19093)
    wire.send(40002, 0, flags="S", broker=19093)
    wire.send(40002, 1, flags="RA", broker=19093)
    assert short(all_of(wire.save(tmp_path)))[-2:] == ["2 opened in vain", "2 closed refused by broker"]


def test_no_answer_to_the_syn(tmp_path: Path) -> None:
    wire = Wire()
    wire.send(40001, 0, flags="S")
    for wait in (1, 2, 4):  # sent again, as TCP does
        wire.seconds += wait
        wire._next[40001, 9092][0] -= 1
        wire.send(40001, 0, flags="S")
    wire.shake(40002)
    wire.seconds += 5
    wire.send(40002, 0, metadata_request(1))
    wire.send(40003, 0, flags="S")
    found = all_of(wire.save(tmp_path))
    # the third began too shortly before the end of the capture to be judged
    assert short(found) == ["1 opened", "2 opened in vain", "2 closed unreached by nobody", "1 asked 1"]
    assert isinstance(found[1], Opened)
    assert found[1].client == "10.0.0.1:40001"


def test_no_answer_before_the_capture_ends(tmp_path: Path) -> None:
    wire = Wire()
    wire.send(40001, 0, flags="S")
    wire.seconds += 2
    wire.shake(40002)
    assert short(all_of(wire.save(tmp_path))) == ["1 opened", "2 opened in vain", "2 closed unreached by nobody"]


def test_an_answer_after_all(tmp_path: Path) -> None:
    wire = Wire()
    wire.send(40001, 0, flags="S")
    wire.seconds += 15
    wire._next[40001, 9092][0] -= 1
    wire.shake(40001)
    wire.send(40001, 0, metadata_request(1))
    wire.send(40001, 1, metadata_answer(1))
    assert short(all_of(wire.save(tmp_path))) == [
        "1 opened in vain",
        "1 closed unreached by nobody",
        "2 opened",
        "2 asked 1",
        "2 paired 1",
    ]


def test_one_direction_captured(tmp_path: Path) -> None:
    wire = Wire()
    wire.send(40001, 0, flags="S")
    wire.send(40001, 0, flags="A")
    wire.send(40001, 0, metadata_request(1))
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
    assert isinstance(found[1], NonKafkaData)
    assert protocol in found[1].opaque.reason
    assert found[1].opaque.data == data


def test_a_connection_without_a_word(tmp_path: Path) -> None:
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, flags="FA")
    wire.send(40001, 1, flags="FA")
    assert short(all_of(wire.save(tmp_path))) == ["1 opened", "1 closed fin by client"]


def test_the_beginning_was_not_captured(tmp_path: Path) -> None:
    wire = Wire()
    wire.send(40001, 1, b"the rest of some response")
    wire.send(40001, 0, metadata_request(3))
    wire.send(40001, 1, metadata_answer(3))
    wire.send(40001, 1, flags="RA")
    words = short(all_of(wire.save(tmp_path)))
    assert words == ["1 opened", "1 asked 3", "1 missing 0, unread 25", "1 paired 3", "1 closed rst by broker"]


def test_a_hole(tmp_path: Path) -> None:
    wire = Wire()
    wire.shake(40001)
    for i in range(4):
        frame = metadata_request(i, 150)
        wire.send(40001, 0, frame[:100])
        wire.send(40001, 0, frame[100:])
        wire.send(40001, 1, metadata_answer(i))
    del wire.packets[3 + 3 * 1 + 1]  # the second half of request 1
    found = all_of(wire.save(tmp_path))
    assert [w for w in short(found) if "asked" in w] == ["1 asked 0", "1 asked 2", "1 asked 3"]
    assert [h.size for h in found if isinstance(h, Missing)] == [len(metadata_request(1, 150)) - 100]
    cut = next(h for h in found if isinstance(h, NonKafkaData))
    assert cut.opaque.reason == "cut off by missing bytes"
    assert cut.opaque.time_ns > 1_700_000_000 * 10**9


def test_captures_of_others_in_a_directory(tmp_path: Path) -> None:
    wire = Wire()
    wire.shake(40001)
    wire.send(40001, 0, metadata_request(1))
    wire.send(40001, 1, metadata_answer(1))
    path = wire.save(tmp_path)
    shutil.copy(path, tmp_path / "second.pcap")
    (tmp_path / "third.pcap").write_text("not one")
    once = ["1 opened", "1 asked 1", "1 paired 1"]
    reader = EventReader(tmp_path)
    assert short([*reader.read(), *reader.end()]) == [*once, "1 closed  by nobody", *once]
    assert "third.pcap: not a capture" in str(reader.note)
