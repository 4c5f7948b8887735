"""Captures of others: reordered, incomplete, on other ports, among other traffic; and three of kafka-go's."""

import random
from collections import Counter
from pathlib import Path

import pytest
from barnabas.captures import NotACapture, open_capture
from barnabas.decoder import RequestSeen
from harness.peers.pcap import BROKER, CLIENT, TcpConversations
from harness.recordings import metadata_answer, metadata_request
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

VECTORS = Path(__file__).parents[4] / "shared" / "reference" / "vectors"


def connected() -> TcpConversations:
    wire = TcpConversations()
    wire.handshake()
    return wire


@pytest.fixture
def wire() -> TcpConversations:
    """Ten exchanges over packets that respect no frame boundary."""
    wire = connected()
    wire.stream(0, b"".join(metadata_request(i, 150) for i in range(10)))
    wire.stream(1, b"".join(metadata_answer(i, 30) for i in range(10)))
    wire.close()
    return wire


def save(tmp_path: Path, packets: list[Packet]) -> Path:
    path = tmp_path / "foreign.pcap"
    wrpcap(str(path), packets)
    return path


def answers(path: Path, **options) -> list[tuple[int, str]]:
    with open_capture(path, **options) as capture:
        assert len(list(capture.exchanges())) == len(capture.rows())
        for row in capture.rows():
            exchange = capture.exchange(row)
            assert exchange.undecoded is None
            assert row.request_size == exchange.request_size
            assert row.response_size == exchange.response_size
        return [(row.correlation_id, str(row.state)) for row in capture.rows()]


ALL = [(i, "paired") for i in range(10)]


def test_in_order(tmp_path: Path, wire: TcpConversations) -> None:
    path = save(tmp_path, wire.packets)
    assert answers(path) == ALL
    with open_capture(path) as capture:
        assert capture.note is None
        row = capture.rows()[3]
        assert (row.client, row.broker, row.connection) == (f"{CLIENT}:40001", f"{BROKER}:9092", 1)
        exchange = capture.exchange(row)
        assert exchange.request == metadata_request(3, 150)[4:]
        assert exchange.response == metadata_answer(3, 30)[4:]
        assert 1_700_000_000 * 10**9 < row.time_ns < 1_700_000_001 * 10**9
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("seed", range(8))
def test_out_of_order_and_sent_again(tmp_path: Path, wire: TcpConversations, seed: int) -> None:
    chance = random.Random(seed)
    packets = list(wire.packets)
    for _ in range(20):
        i = chance.randrange(3, len(packets) - 4)
        packets[i], packets[i + 1] = packets[i + 1], packets[i]
        packets.insert(chance.randrange(i, len(packets) - 3), packets[i])
    assert answers(save(tmp_path, packets)) == ALL


def test_sent_again_in_other_pieces(tmp_path: Path) -> None:
    wire = connected()
    data = b"".join(metadata_request(i, 150) for i in range(10))
    wire.send(0, data[:500])
    wire.step_back(0, 200)
    wire.send(0, data[300:900])
    wire.step_back(0, 601)
    wire.send(0, data[299:])
    wire.stream(1, b"".join(metadata_answer(i, 30) for i in range(10)), 33)
    assert answers(save(tmp_path, wire.packets)) == ALL


def test_everything_twice_as_on_loopback(tmp_path: Path, wire: TcpConversations) -> None:
    assert answers(save(tmp_path, [p for packet in wire.packets for p in (packet, packet)])) == ALL


def test_a_hole_costs_the_frames_around_it(tmp_path: Path) -> None:
    wire = connected()
    for i in range(10):
        wire.stream(0, metadata_request(i, 250))
        wire.stream(1, metadata_answer(i, 30))
    missing = next(i for i, p in enumerate(wire.packets) if b"topic-4" in bytes(p) and p[TCP].dport == 9092)
    del wire.packets[missing]
    path = save(tmp_path, wire.packets)
    with open_capture(path) as capture:
        found = {(r.correlation_id, r.state) for r in capture.rows()}
        assert {(i, "paired") for i in range(10) if i != 4} <= found
        assert (4, "orphan") in found
        assert len(capture.rows()) == 10
        assert "bytes of Kafka connections are not in the capture" in str(capture.note)
        assert len(capture.lost) == 1


def test_snaplen(tmp_path: Path) -> None:
    wire = connected()
    for i in range(6):
        wire.send(0, metadata_request(i, 400 if i == 2 else 0))
        wire.send(1, metadata_answer(i))
    path = save(tmp_path, wire.packets)
    whole = path.read_bytes()
    cut, at = whole[:24], 24
    while at < len(whole):
        size = int.from_bytes(whole[at + 8 : at + 12], "little")
        kept = min(size, 300)
        cut += whole[at : at + 8] + kept.to_bytes(4, "little") + whole[at + 12 : at + 16 + kept]
        at += 16 + size
    path.write_bytes(cut)
    with open_capture(path) as capture:
        found = [(row.correlation_id, row.state, row.cut) for row in capture.rows()]
        assert found == [(i, "paired", i == 2) for i in range(6)]  # the cut request has its row: its head is there
        exchanges = list(capture.exchanges())
        assert [exchange.response for exchange in exchanges] == [metadata_answer(i)[4:] for i in range(6)]
        assert "cut" in exchanges[2].marks.notes[0]
        read = [h.exchange.correlation_id for h in capture.events() if isinstance(h, RequestSeen)]
        assert read == [0, 1, 2, 3, 4, 5]  # what was kept of the cut one tells its API, version and client


@pytest.mark.parametrize("start", range(0, 30, 3))
def test_a_capture_that_begins_late(tmp_path: Path, start: int) -> None:
    wire = connected()
    for i in range(10):
        wire.stream(0, metadata_request(i, 120))
        wire.stream(1, metadata_answer(i, 20))
    found = answers(save(tmp_path, wire.packets[start:]))
    paired = [number for number, state in found if state == "paired"]
    assert paired == list(range(10 - len(paired), 10))
    assert len(paired) >= 10 - (start + 4) // 4


def test_kafka_on_another_port_is_found_by_its_messages(tmp_path: Path) -> None:
    wire, other = TcpConversations(), TcpConversations()
    wire.handshake(broker=19093)
    wire.send(0, metadata_request(1), broker=19093)
    wire.send(1, metadata_answer(1), broker=19093)
    other.handshake(555, 25)
    other.send(1, b"220 mail.example ESMTP\r\n", port=555, broker=25)
    other.send(0, b"EHLO client.example\r\n", port=555, broker=25)
    udp = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02") / IP(src=CLIENT, dst=BROKER) / UDP() / Raw(b"x" * 40)
    path = save(tmp_path, [*wire.packets, *other.packets, udp])
    assert answers(path) == [(1, "paired")]
    with open_capture(path) as capture:
        assert "1 TCP conversation is not Kafka" in str(capture.note)
    late = save(tmp_path, wire.packets[3:])
    assert answers(late) == [(1, "paired")]
    assert answers(late, ports=(19093,)) == [(1, "paired")]


def test_a_port_used_again(tmp_path: Path) -> None:
    packets = []
    for i in range(3):
        wire = TcpConversations()
        wire.step_back(0, -100_000 * i)
        wire.send(0, b"", "S")
        wire.send(1, b"", "SA")
        wire.send(0, metadata_request(i))
        wire.send(1, metadata_answer(i))
        if i != 1:
            wire.close()
        packets += wire.packets
    path = save(tmp_path, packets)
    assert answers(path) == [(i, "paired") for i in range(3)]
    with open_capture(path) as capture:
        assert [r.connection for r in capture.rows()] == [1, 2, 3]


def test_reset_and_end_of_capture(tmp_path: Path) -> None:
    wire = connected()
    wire.handshake(40002)
    wire.send(0, metadata_request(1))
    wire.send(1, b"", "RA")
    wire.send(0, metadata_request(2), port=40002)
    path = save(tmp_path, wire.packets)
    assert answers(path) == [(1, "no_response"), (2, "pending")]


def test_garbage_never_raises(tmp_path: Path, wire: TcpConversations) -> None:
    chance = random.Random(3)
    path = save(tmp_path, wire.packets)
    whole = path.read_bytes()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 30)):
            data[chance.randrange(24, len(data))] = chance.randrange(256)
        path.write_bytes(data)
        with open_capture(path) as capture:
            for exchange in capture.exchanges():
                assert exchange.to_dict()["state"]


def test_a_directory(tmp_path: Path, wire: TcpConversations) -> None:
    with pytest.raises(NotACapture, match=r"no \.pcapng"):
        open_capture(tmp_path)
    save(tmp_path, wire.packets).rename(tmp_path / "b.pcap")
    save(tmp_path, wire.packets).rename(tmp_path / "a.pcap")
    (tmp_path / "c.pcapng").write_text("not one")
    (tmp_path / "notes.txt").write_text("ignored")
    with open_capture(tmp_path) as capture:
        assert [s.path.name for s in capture.segments] == ["a.pcap", "b.pcap"]
        assert len(capture.rows()) == 20
        assert capture.exchange(13).correlation_id == 3
        assert "c.pcapng: not a capture" in str(capture.note)


@pytest.mark.skipif(not VECTORS.is_dir(), reason="the byte vectors of other projects are not part of the repository")
@pytest.mark.parametrize(("name", "fetches"), [("v1-v1", 5), ("v2-v2", 3), ("v2c-v2c", 3)])
def test_kafka_go(name: str, fetches: int) -> None:
    with open_capture(VECTORS / f"kafka-go__{name}.pcapng") as capture:
        rows = capture.rows()
        assert Counter((r.api, r.api_version) for r in rows) == {
            ("ApiVersions", 2): 3,
            ("Metadata", 7): 1,
            ("FindCoordinator", 2): 1,
            ("JoinGroup", 4): 2,
            ("SyncGroup", 2): 1,
            ("OffsetFetch", 5): 1,
            ("ListOffsets", 5): 1,
            ("Fetch", 10): fetches,
            ("OffsetCommit", 6): 1,
            ("LeaveGroup", 2): 1,
        }
        assert {r.state for r in rows} == {"paired"}
        assert {r.connection for r in rows} == {1, 2, 3}
        assert not any(r.undecoded or r.surplus for r in rows)
        assert capture.note is None
        assert all(e.request_message and e.response_message for e in capture.exchanges())
