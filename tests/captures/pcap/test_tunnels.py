"""Kafka inside of other packets: overlays, labels, sessions; made by scapy, and tshark sees the same conversation."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet
from scapy.utils import PcapWriter
from traffic.packets import traffic

OUTER = Ether(dst="02:00:00:00:00:09", src="02:00:00:00:00:08")
PACKETS = 60
NODES = IP(src="192.168.0.1", dst="192.168.0.2")

WRAPPED: dict[str, Callable[[Packet], Packet]] = {
    "vxlan": lambda p: OUTER / NODES / UDP(sport=50000, dport=4789) / VXLAN(vni=7) / p,
    "vxlan of flannel": lambda p: OUTER / NODES / UDP(sport=50000, dport=8472) / VXLAN(vni=1, flags=8) / p,
    "geneve": lambda p: OUTER / NODES / UDP(sport=50000, dport=6081) / GENEVE(proto=0x6558) / p,
    "ip in ip": lambda p: OUTER / NODES / p[IP],
    "gre": lambda p: OUTER / NODES / GRE(proto=0x0800) / p[IP],
    "gre with a key": lambda p: OUTER / NODES / GRE(proto=0x0800, key_present=1, key=5) / p[IP],
    "bridged gre": lambda p: OUTER / NODES / GRE(proto=0x6558) / p,
    "ip in ipv6": lambda p: OUTER / IPv6(src="fd00::1", dst="fd00::2", nh=4) / p[IP],
    "mpls": lambda p: OUTER / MPLS(label=16, s=0, ttl=9) / MPLS(label=17, s=1, ttl=9) / p[IP],
    "pppoe": lambda p: OUTER / PPPoE(sessionid=3) / PPP(proto=0x21) / p[IP],
    "vlan in vxlan in vlan": lambda p: (
        OUTER / Dot1Q(vlan=9) / NODES / UDP(sport=50000, dport=4789) / VXLAN(vni=7) / tagged(p)
    ),
}


def tagged(packet: Packet) -> Packet:
    return Ether(dst=packet.dst, src=packet.src) / Dot1Q(vlan=4) / packet[IP]


def rows_of(path: Path) -> list[tuple[int, int, str, int, int]]:
    with open_capture(path) as capture:
        assert capture.note is None
        return [(r.connection, r.correlation_id, str(r.state), r.request_size, r.response_size) for r in capture.rows()]


def save(path: Path, wrap: Callable[[Packet], Packet]) -> None:
    with PcapWriter(str(path), linktype=1) as out:
        for time_ns, data in traffic(7)[:PACKETS]:
            packet = wrap(Ether(data))
            packet.time = time_ns / 1e9
            out.write(packet)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, int, str, int, int]]:
    """The conversation without anything around its packets."""
    path = tmp_path_factory.mktemp("plain") / "plain.pcap"
    save(path, lambda p: p)
    expected = rows_of(path)
    assert len(expected) > 5
    return expected


@pytest.mark.parametrize("name", WRAPPED)
def test_the_same_conversation(tmp_path: Path, plain: list[tuple[int, int, str, int, int]], name: str) -> None:
    wrapped = tmp_path / "wrapped.pcap"
    save(wrapped, WRAPPED[name])
    assert rows_of(wrapped) == plain


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("name", ["vxlan", "mpls", "bridged gre"])
def test_tshark_finds_it_in_the_same_packets(tmp_path: Path, name: str) -> None:
    path = tmp_path / "wrapped.pcap"
    save(path, WRAPPED[name])
    done = subprocess.run(
        ["tshark", "-n", "-r", str(path), "-Y", "tcp.port==9092", "-T", "fields", "-e", "frame.number"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.split()) == PACKETS


def test_link_types_nobody_reads_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "radio.pcap"
    with PcapWriter(str(path), linktype=127) as out:
        for _, data in traffic(7)[:20]:
            out.write(data)
    with open_capture(path) as capture:
        assert not len(capture.rows())
        assert "20 packets have link type 127, which is not supported" in str(capture.note)
