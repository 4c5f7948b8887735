"""Which conversations of foreign captures are Kafka, where nobody named the port: known by their content, not by chance."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.pcap import packets
from barnabas.captures.pcap.pcapng import CaptureReader
from barnabas.decoder import ExchangeDone, State, encode_request, encode_response
from harness.wire import with_size
from traffic.packets import NOW, Packet, as_pcap, one_connection, pcap_file

from ..event_words import findings_of, read_events

FOUND = Path(__file__).parents[2] / "decoder/findings/captures"
MEBIBYTE = 1 << 20


def u16(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}H", *numbers)


def u32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


# --- messages of other protocols: (port, [(side, bytes), ...]); side 0 is the client ---------------------------------


def smpp() -> list[tuple[int, bytes]]:
    """SMPP 3.4: command_length (counts itself), command_id, command_status, sequence_number."""

    def pdu(command: int, sequence: int, body: bytes = b"", status: int = 0) -> bytes:
        return u32(16 + len(body), command, status, sequence) + body

    submit = b"\0\1\1447700900000\0\1\1447700900001\0\0\0\0\0\0\1\0\0\0\5hello"
    messages = [
        (0, pdu(2, 1, b"smppclient\0password\0\0\x34\0\0\0")),  # bind_transmitter
        (1, pdu(0x80000002, 1, b"SMSC\0")),
        (0, pdu(9, 2, b"esme\0secret\0VMA\0\x34\1\1\0")),  # bind_transceiver
        (1, pdu(0x80000009, 2, b"SMSC\0")),
    ]
    for number in range(3, 20):
        messages += [(0, pdu(4, number, submit)), (1, pdu(0x80000004, number, b"id%d\0" % number))]
        messages += [(1, pdu(5, number, submit)), (0, pdu(0x80000005, number, b"\0"))]  # deliver_sm
        messages += [(0, pdu(0x15, number)), (1, pdu(0x80000015, number))]  # enquire_link
    return messages


def dns() -> list[tuple[int, bytes]]:
    """DNS over TCP (RFC 7766): a length of two bytes and the message; some stacks send the length alone."""
    messages = []
    name = b"\3www\7example\3com\0"
    for number in range(60):
        query = u16(number * 7 & 0xFFFF, 0x0100, 1, 0, 0, number % 2) + name + u16(1, 1)
        answer = u16(number * 7 & 0xFFFF, 0x8180, 1, 1, 0, 0) + name + u16(1, 1) + b"\xc0\x0c" + u16(1, 1, 0, 60, 4) + b"abcd"
        cut = 2 if number % 3 == 0 else 0
        messages += [(0, u16(len(query))[:cut]), (0, (u16(len(query)) + query)[cut:])] if cut else [(0, u16(len(query)) + query)]
        messages += [(1, u16(len(answer))), (1, answer)] if cut else [(1, u16(len(answer)) + answer)]
    zone = b"".join(u16(40) + u16(number, 0x8400, 0, 1, 0, 0) + bytes(28) for number in range(200))
    return [*messages, (1, zone)]


def ceph() -> list[tuple[int, bytes]]:
    """Ceph's messenger 1: a banner and addresses, then tags; 7 is a message with a header in little endian, 8 its
    acknowledgement, 14 and 15 keep-alives."""
    header = struct.pack("<QQHHHIIIHQ", 1, 0, 15, 127, 1, 20, 0, 0, 0, 0)
    messages = [(1, b"ceph v027" + bytes(272)), (0, b"ceph v027" + bytes(136) + struct.pack("<QIIIIBB", 7, 8, 0, 1, 0, 0, 1))]
    for number in range(1, 30):
        messages += [(0, b"\7" + struct.pack("<Q", number) + header + bytes(60 * number))]
        messages += [(1, b"\x08" + struct.pack("<Q", number)), (0, b"\x0e" + bytes(8)), (1, b"\x0f" + bytes(8))]
        messages += [(1, b"\7\1" + bytes(300 * number)), (0, b"\7\1" + bytes(300 * number))]
    return messages


def postgresql() -> list[tuple[int, bytes]]:
    """PostgreSQL 3: a startup message without a type, then a type, a length that counts itself, a body."""

    def message(kind: bytes, body: bytes = b"") -> bytes:
        return kind + u32(4 + len(body)) + body

    messages = [
        (0, u32(8, 80877103)),
        (1, b"N"),
        (0, u32(41, 196608) + b"user\0barnabas\0database\0orders\0\0\0"),
        (1, message(b"R", u32(0)) + message(b"Z", b"I")),
    ]
    for number in range(30):
        messages += [(0, message(b"Q", b"select %d\0" % number))]
        row = message(b"T", u16(1) + b"n\0" + bytes(18)) + message(b"D", u16(1) + u32(2) + b"42")
        messages += [(1, row + message(b"C", b"SELECT 1\0") + message(b"Z", b"I"))]
    return messages


def redis() -> list[tuple[int, bytes]]:
    return [(0, b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n"), (1, b"$5\r\nhello\r\n"), (0, b"PING\r\n"), (1, b"+PONG\r\n")] * 20


def http2() -> list[tuple[int, bytes]]:
    """HTTP/2: a preface, then frames of a length of three bytes, a type, flags and a stream."""
    frames = [b"\0\0\x12\4\0\0\0\0\0" + bytes(18), b"\0\0\4\x08\0\0\0\0\0\0\0\xff\xff", b"\0\0\x08\6\0\0\0\0\0" + bytes(8)]
    data = b"\0\1\0\0\0\0\0\0\1" + bytes(256)
    return [(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames[0]), (1, frames[0]), *[(n % 2, f) for f in (*frames, data) for n in range(9)]]


def tls() -> list[tuple[int, bytes]]:
    chance = random.Random(3)
    hello = b"\x16\3\1\2\0\1\0\1\xfc\3\3" + chance.randbytes(505)
    return [(0, hello), (1, b"\x16\3\3\0\x7a\2" + chance.randbytes(121))] + [
        (n % 2, b"\x17\3\3\0\x40" + chance.randbytes(64)) for n in range(40)
    ]


def zookeeper() -> list[tuple[int, bytes]]:
    """ZooKeeper's jute: a length, an xid, a type, a path: very like Kafka's."""
    messages = [(0, with_size(u32(0) + bytes(16) + u32(30000) + bytes(8) + u32(16) + bytes(16) + b"\0"))]
    messages += [(1, with_size(u32(0, 30000) + bytes(8) + u32(16) + bytes(16) + b"\0"))]
    for xid in range(1, 30):
        messages += [(0, with_size(u32(xid, 4, 11) + b"/brokers/ids" + b"\1")), (1, with_size(u32(xid) + bytes(8) + u32(0, 5) + b"hello"))]
        messages += [(0, with_size(u32(0xFFFFFFFE, 11))), (1, with_size(u32(0xFFFFFFFE) + bytes(12)))]
    return messages


def mqtt() -> list[tuple[int, bytes]]:
    return [(0, b"\x10\x10\0\4MQTT\4\2\0\x3c\0\4test"), (1, b"\x20\2\0\0")] + [
        (0, b"\x32\x0b\0\3a/b\0\1true"), (1, b"\x40\2\0\1"), (0, b"\xc0\0"), (1, b"\xd0\0")
    ] * 10  # fmt: skip


def cassandra() -> list[tuple[int, bytes]]:
    """CQL 4: version, flags, a stream of two bytes, an opcode, a length of four."""
    messages = []
    for stream in range(30):
        query = u32(8) + b"select 1" + u16(1) + b"\0"
        messages += [(0, b"\4\0" + u16(stream) + b"\7" + u32(len(query)) + query), (1, b"\x84\0" + u16(stream) + b"\x08" + u32(4, 1))]
    return messages


def zeros() -> list[tuple[int, bytes]]:
    return [(n % 2, bytes(size)) for n, size in enumerate([1, 4, 18, 24, 100, 1460, 64, 8, 12, 2048] * 4)]


def zeros_in_frames() -> list[tuple[int, bytes]]:
    """Lengths of four bytes, and nothing but zeros: each of 20 bytes decodes as a Produce v0 with acks=0 and no topics."""
    return [(n % 2, with_size(bytes(size))) for n, size in enumerate([20, 6, 20, 20, 10, 24, 18, 100, 20, 8] * 10)]


def echoed_lengths() -> list[tuple[int, bytes]]:
    """An echo service with length-prefixed messages. Much of what its client sends is valid Kafka by itself."""
    messages = []
    for number in range(40):
        message = with_size(u16(18, 0) + u32(number) + u16(0xFFFF)) if number % 2 else with_size(u32(number) + bytes(16))
        messages += [(0, message), (1, message)]
    return messages


def random_bytes() -> list[tuple[int, bytes]]:
    chance = random.Random(7)
    return [(n % 2, chance.randbytes(chance.randrange(1, 1448))) for n in range(200)]


def random_frames() -> list[tuple[int, bytes]]:
    """Lengths that are right, small numbers where Kafka has its API, version and lengths, and random bytes behind."""
    chance = random.Random(8)
    messages = []
    for number in range(400):
        head = u16(chance.randrange(80), chance.randrange(4)) + u32(number) + u16(chance.choice([0, 0, 2, 5, 0xFFFF]))
        messages += [(0, with_size(head + chance.randbytes(chance.randrange(60)))), (1, with_size(u32(number) + chance.randbytes(20)))]
    return messages


OTHERS = {
    "smpp": (2775, smpp), "dns": (53, dns), "ceph": (6789, ceph), "postgresql": (5432, postgresql), "redis": (6379, redis),
    "http2": (8080, http2), "tls": (443, tls), "zookeeper": (2181, zookeeper), "mqtt": (1883, mqtt),
    "cassandra": (9042, cassandra), "zeros": (7777, zeros), "zeros-in-frames": (7778, zeros_in_frames),
    "echo": (7, echoed_lengths), "random": (19092, random_bytes), "random-frames": (19093, random_frames),
}  # fmt: skip


def swapped(found: list[Packet]) -> list[Packet]:
    """Only what one side sends, the server's."""
    return [packet for packet in found if packet[1][6:12] != found[0][1][6:12]]


def variants(port: int, messages: list[tuple[int, bytes]]) -> dict[str, list[Packet]]:
    whole = one_connection(*messages, port=port)
    return {
        "whole": whole,
        "no handshake": whole[2:],
        "from the middle": whole[len(whole) // 2 :],
        "client only": [p for p in whole if p[1][6:12] == whole[0][1][6:12]],
        "server only": swapped(whole),
    }


@pytest.mark.parametrize("name", OTHERS)
def test_another_protocol_on_any_port_is_not_kafka(name: str, tmp_path: Path) -> None:
    port, make = OTHERS[name]
    for variant, found in variants(port, make()).items():
        if (name, variant) == ("echo", "client only"):
            continue  # only the answers show it
        path = tmp_path / f"{variant}.pcap"
        path.write_bytes(as_pcap(found))
        assert read_events(path) == findings_of(path) == [], variant
        with open_capture(path) as capture:
            assert len(capture.rows()) == 0, variant
            assert "1 TCP conversation is not Kafka" in (capture.note or ""), variant


def test_a_port_named_by_the_user_is_kafka(tmp_path: Path) -> None:
    path = pcap_file(tmp_path, one_connection(*smpp(), port=2775))
    assert read_events(path, ports=(2775,))


# --- what is Kafka stays Kafka ------------------------------------------------------------------------------------


def client_leg(path: Path) -> list[Packet]:
    """The packets between the clients and the proxy of a recording: as a capture of somebody else would have them. The
    brokers' ports are those that the system gave out, which nobody names."""
    with path.open("rb") as file:
        return [(p.time_ns, p.data) for p in CaptureReader(file, str(path)).packets() if p.interface == 0]


def exchanges(path: Path, ports: tuple[int, ...] = (9092,)) -> Counter[tuple[object, ...]]:
    return Counter(
        (h.exchange.client, h.exchange.api_key, h.exchange.correlation_id, h.exchange.request, h.exchange.response)
        for h in read_events(path, ports=ports)
        if isinstance(h, ExchangeDone)
    )


def ports_of(found: list[Packet]) -> tuple[int, ...]:
    """The brokers' ports: those that answered a handshake."""
    parsed = [packets.parse(1, data, len(data)) for _, data in found]
    return tuple({packets.endpoint(s.source)[1] for s in parsed if s is not None and s.flags & 0x12 == 0x12})


def paired(found: Counter[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted((one for one in found.elements() if one[3] is not None and one[4] is not None), key=repr)


REAL = sorted(path.stem for path in FOUND.glob("*.pcapng"))
EVERY_DAY = [name for name in REAL if name.startswith(("security", "versions"))]


@pytest.mark.parametrize("name", [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.slow) for name in REAL])
def test_kafka_on_any_port_is_found_as_if_the_port_were_named(name: str, tmp_path: Path) -> None:
    found = client_leg(FOUND / f"{name}.pcapng")
    path = pcap_file(tmp_path, found)
    named = exchanges(path, ports_of(found))
    unnamed = exchanges(path)
    assert unnamed <= named
    assert paired(unnamed) == paired(named)
    with open_capture(path) as capture:
        read = [row for row in capture.rows() if row.state == State.PAIRED]
    assert len(read) == len(paired(named))


MIDDLE = ["versions-two-brokers", "versions-plain-consumer", "groups-rolling", "fetching-falls-behind"]


@pytest.mark.parametrize("name", MIDDLE)
@pytest.mark.parametrize("part", ["second half", "requests only"])
def test_kafka_cut_in_the_middle_or_in_one_direction_is_found(name: str, part: str, tmp_path: Path) -> None:
    found = client_leg(FOUND / f"{name}.pcapng")
    ports = ports_of(found)
    if part == "second half":
        found = found[len(found) // 2 :]
    else:
        found = [p for p in found if (s := packets.parse(1, p[1], len(p[1]))) and packets.endpoint(s.target)[1] in ports]
    path = pcap_file(tmp_path, found)
    named, unnamed = exchanges(path, ports), exchanges(path)
    assert unnamed <= named
    asked = {one[:4] for one in named if one[3] is not None}
    assert {one[:4] for one in unnamed if one[3] is not None} == asked
    assert paired(unnamed) == paired(named)


def metadata(correlation_id: int, client_id: str | None) -> bytes:
    return with_size(encode_request(3, 1, {"topics": []}, correlation_id=correlation_id, client_id=client_id))


def answer(correlation_id: int) -> bytes:
    body = {"brokers": [], "controller_id": 1, "topics": []}
    return with_size(encode_response(3, 1, body, correlation_id=correlation_id))


@pytest.mark.parametrize("client_id", [None, "", "app"])
def test_one_exchange_that_pairs_is_enough(client_id: str | None, tmp_path: Path) -> None:
    path = pcap_file(tmp_path, one_connection((0, metadata(1, client_id)), (1, answer(1)), port=19092))
    assert len(paired(exchanges(path))) == 1


def test_requests_alone_are_enough_when_several_decode(tmp_path: Path) -> None:
    path = pcap_file(tmp_path, one_connection(*[(0, metadata(n, None)) for n in range(1, 6)], port=19092))
    assert sum(h.exchange.correlation_id > 0 for h in read_events(path, ports=(19092,)) if hasattr(h, "exchange")) == 5
    assert len([h for h in read_events(path) if hasattr(h, "exchange")]) == 5


def test_a_large_request_without_client_id_is_kafka_when_it_is_answered(tmp_path: Path) -> None:
    """It comes in many packets, and some are out of order; nothing of it is lost."""
    body = {"topics": [{"name": "t" * 200} for _ in range(MEBIBYTE // 200)]}
    large = with_size(encode_request(3, 1, body, correlation_id=7, client_id=None))
    parts = [(0, large[at : at + 1400]) for at in range(0, len(large), 1400)]
    found = one_connection(*parts, (1, answer(7)), port=19092)
    found[10], found[11] = found[11], found[10]
    path = pcap_file(tmp_path, found)
    assert [one[3] for one in paired(exchanges(path))] == [large[4:]]


def test_kafka_is_found_behind_another_protocol_s_address_when_a_later_connection_shows_it(tmp_path: Path) -> None:
    """A broker that is known by one connection is known for all that follow."""
    first = one_connection((0, metadata(1, "app")), (1, answer(1)), port=19092)
    second = [(NOW + 10**9 + n, packets.build(("10.0.0.1", 40001), ("10.0.0.2", 19092), n, 0, flags, data))
              for n, (flags, data) in enumerate([(2, b""), (0x18, b"GET / HTTP/1.1\r\n\r\n")])]  # fmt: skip
    path = pcap_file(tmp_path, first + second)
    assert {h.connection for h in read_events(path) if hasattr(h, "connection")} == {1, 2}
