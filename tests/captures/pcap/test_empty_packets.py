"""Packets that hold nothing, by the thousand: they change nothing, and each costs a few steps."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.captures.pcap import packets, pcapng
from barnabas.captures.reading.events import EventReader
from barnabas.captures.reading.indexing import scan
from harness.run.steps import assert_linear, steps
from traffic.packets import NOW, as_pcap, as_pcapng

from ..event_words import read_events, short
from ..foreign.test_not_in_the_capture import exchanges

BETWEEN = packets.build(("10.9.9.9", 5), ("10.9.9.8", 6), 5, 5, packets.ACK, b"")
MOST_STEPS = 60
"""Of an empty packet, in lines of Python; one with a header of TCP takes 130, whatever it carries."""


def record(data: bytes) -> bytes:
    return struct.pack("<IIII", NOW // 10**9, 0, len(data), len(data)) + data


def simple(data: bytes) -> bytes:
    length = 16 + len(data) + -len(data) % 4
    return struct.pack("<III", pcapng.SIMPLE_PACKET, length, len(data)) + data + bytes(-len(data) % 4) + struct.pack("<I", length)


def captures() -> dict[str, Callable[[int], bytes]]:
    """A conversation with so many empty packets in its middle, in every form."""
    wire = exchanges(3)
    half = len(wire.packets) // 2
    first, rest = wire.packets[:half], wire.packets[half:]
    empty = wire.packets[-1][1]
    head = len(as_pcap([]))
    ng_head = len(as_pcapng([]))

    def classic(extra: bytes) -> Callable[[int], bytes]:
        return lambda count: as_pcap(first) + extra * count + as_pcap(rest)[head:]

    def ng(extra: bytes) -> Callable[[int], bytes]:
        return lambda count: as_pcapng(first) + extra * count + as_pcapng(rest)[ng_head:]

    return {
        "pcap, no bytes": classic(record(b"")),
        "pcap, empty segments": classic(record(empty)),
        "pcap, empty segments of others": classic(record(BETWEEN)),
        "pcapng, no bytes": ng(pcapng.enhanced_packet(0, NOW, b"")),
        "pcapng, empty segments": ng(pcapng.enhanced_packet(0, NOW, empty)),
        "pcapng, simple blocks": ng(simple(b"")),
        "pcapng, custom blocks": ng(struct.pack("<III", pcapng.CUSTOM_NO_COPY, 12, 12)),
    }


@pytest.mark.parametrize("form", captures())
def test_empty_packets_change_nothing_and_cost_little(form: str, tmp_path: Path) -> None:
    path, sound = tmp_path / "a.pcap", tmp_path / "sound.pcap"
    make = captures()[form]
    sound.write_bytes(make(0))
    expected = short(read_events(sound))
    assert sum("paired" in line for line in expected) == 3

    def reading(count: int, read: Callable[[Path], object]) -> Callable[[], object]:
        def run() -> object:
            path.write_bytes(make(count))
            return read(path)

        return run

    def rows(path: Path) -> None:
        with open_capture(path) as capture:
            assert len(capture.rows()) == 3

    def story(path: Path) -> None:
        reader = EventReader(path)
        assert short([*reader.read(), *reader.end()]) == expected

    for read in (rows, story):
        assert_linear(lambda count, read=read: reading(count, read), 150)  # type: ignore[misc]
        if "segments" not in form:
            assert steps(reading(300, read)) - steps(reading(150, read)) <= 150 * MOST_STEPS


@pytest.mark.parametrize("form", ["pcap, no bytes", "pcap, empty segments", "pcapng, no bytes", "pcapng, empty segments", "pcapng, simple blocks"])
def test_the_accelerator_takes_them_all(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if scan.native is None:
        pytest.skip("there is no accelerator")
    careful: list[Any] = []
    real = scan.Scanner._careful
    monkeypatch.setattr(scan.Scanner, "_careful", lambda self, *place: (careful.append(place), real(self, *place))[1])
    counts = []
    for count in (0, 700):
        careful.clear()
        path = tmp_path / f"{count}.pcap"
        path.write_bytes(captures()[form](count))
        with open_capture(path) as capture:
            assert len(capture.rows()) == 3
        counts.append(len(careful))
    assert counts[0] == counts[1]
