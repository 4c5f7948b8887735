"""Packets against scapy: checksums of what we build, fields of what others build."""

import random

import pytest
from barnabas.captures.native.accelerator import native
from barnabas.captures.pcap import packets, pcapng
from barnabas.captures.pcap.packets import ACK, MAX_PAYLOAD, SYN, build, endpoint, parse
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Dot1Q, Ether, Loopback
from scapy.packet import Raw


@pytest.mark.parametrize("payload", [b"", b"a", b"abc", bytes(1000), b"\xff" * 999, bytes(range(256)) * 200])
@pytest.mark.parametrize("ends", [(("10.0.0.1", 50312), ("127.0.0.1", 9092)), (("::1", 1), ("2001:db8::5", 65535))])
def test_checksums_are_what_scapy_computes(ends, payload: bytes) -> None:
    data = build(*ends, 0xFFFFFFFF, 77, SYN | ACK if not payload else ACK, payload)
    packet = Ether(data)
    network = packet[IP] if IP in packet else packet[IPv6]
    tcp_sum, ip_sum = packet[TCP].chksum, getattr(network, "chksum", None)
    del packet[TCP].chksum
    if IP in packet:
        del packet[IP].chksum
    again = Ether(bytes(packet))
    assert again[TCP].chksum == tcp_sum
    assert getattr(again[IP] if IP in again else again[IPv6], "chksum", None) == ip_sum
    assert (packet[TCP].sport, packet[TCP].dport) == (ends[0][1], ends[1][1])
    assert (packet[TCP].seq, packet[TCP].ack) == (0xFFFFFFFF, 77)
    assert bytes(packet[TCP].payload) == payload


def test_built_packets_are_parsed() -> None:
    for client, broker in [
        (("10.0.0.1", 50312), ("10.0.0.2", 9092)),
        (("::1", 50312), ("10.0.0.2", 9092)),
        (("10.0.0.1", 1), ("kafka-1.example", 9092)),
    ]:
        data = build(client, broker, 5, 6, ACK, b"x" * MAX_PAYLOAD)
        segment = parse(1, data)
        assert segment is not None
        assert (segment.sequence, segment.acknowledged, segment.flags) == (5, 6, ACK)
        assert segment.payload == b"x" * MAX_PAYLOAD == data[segment.start :]
        assert (endpoint(segment.source)[1], endpoint(segment.target)[1]) == (client[1], 9092)
    assert endpoint(parse(1, build(("::1", 1), ("10.0.0.2", 2), 0, 0, ACK, b"")).target) == ("::ffff:10.0.0.2", 2)


TCP_LAYER = TCP(sport=1234, dport=9092, seq=7, ack=8, flags="PA", options=[("NOP", None)] * 4) / Raw(b"abc")
V4, V6 = IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="::1", dst="::2")


@pytest.mark.parametrize(
    ("linktype", "packet"),
    [
        (1, Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / V4 / TCP_LAYER / Raw(b"")),
        (1, Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / Dot1Q(vlan=7) / V4 / TCP_LAYER),
        (1, Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / Dot1Q() / Dot1Q() / V6 / TCP_LAYER),
        (1, Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / V6 / IPv6ExtHdrDestOpt() / TCP_LAYER),
        (101, V4 / TCP_LAYER),
        (101, V6 / TCP_LAYER),
        (228, V4 / TCP_LAYER),
        (229, V6 / TCP_LAYER),
        (12, V4 / TCP_LAYER),
        (113, CookedLinux(proto=0x800) / V4 / TCP_LAYER),
        (276, CookedLinuxV2(proto=0x86DD) / V6 / TCP_LAYER),
        (0, Loopback(type=2) / V4 / TCP_LAYER),
        (108, Raw(b"\0\0\0\x02") / V4 / TCP_LAYER),
    ],
)
def test_link_types(linktype: int, packet) -> None:
    data = bytes(packet)
    segment = parse(linktype, data)
    assert segment is not None
    assert (segment.sequence, segment.acknowledged, segment.payload) == (7, 8, b"abc")
    assert data[segment.start :] == b"abc"
    assert endpoint(segment.source) == ("::1" if IPv6 in packet else "10.0.0.1", 1234)
    assert endpoint(segment.target)[1] == 9092
    for cut in range(segment.start - 4):  # up to the TCP options
        assert parse(linktype, data[:cut]) is None


def test_ethernet_padding_is_no_payload() -> None:
    data = bytes(Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01") / V4 / TCP(sport=1, dport=2, flags="A"))
    segment = parse(1, data + bytes(6))
    assert segment is not None
    assert segment.payload == b""


@pytest.mark.parametrize(
    ("linktype", "packet"),
    [
        (1, Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01") / V4 / UDP() / Raw(b"a" * 50)),
        (1, Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01", type=0x806) / Raw(b"\x45" * 50)),
        (101, IP(src="10.0.0.1", dst="10.0.0.2", flags="MF") / TCP_LAYER),
        (101, IP(src="10.0.0.1", dst="10.0.0.2", frag=5, proto=6) / Raw(b"a" * 50)),
        (147, Raw(b"\x45" * 60)),
    ],
)
def test_packets_that_are_no_tcp_segments(linktype: int, packet) -> None:
    assert parse(linktype, bytes(packet)) is None


@pytest.mark.skipif(native is None, reason="the accelerator is left out in this run")
def test_the_accelerator_makes_the_same_blocks() -> None:
    chance = random.Random(1)
    for i in range(400):
        host = "10.0.0.%d" if i % 2 else "fd00::%d"
        ends = (host % chance.randrange(200), chance.randrange(65536)), (host % chance.randrange(200), 9092)
        if i % 7 == 0:
            ends = ends[0], ("kafka", 9092)
        payload = chance.randbytes(chance.choice([0, 1, 2, 3, 57, 1448, 65_000])) if i % 5 else bytes(i)
        sequence, acknowledged = chance.randrange(1 << 33), chance.randrange(1 << 33)
        flags, side = chance.choice([0x10, 0x18, 0x11, 0x14]), i % 2
        time_ns = chance.randrange(1 << 62)
        packet = packets.build(*ends, sequence, acknowledged, flags, payload, side)
        expected = pcapng.enhanced_packet(i % 3, time_ns, packet, (), 1 + i % 2)
        made = packets.block(*ends, sequence, acknowledged, flags, payload, side, i % 3, time_ns, 1 + i % 2)
        assert made == expected
