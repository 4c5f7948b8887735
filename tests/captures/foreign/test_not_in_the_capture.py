"""What a foreign capture lacks is reported as missing, never as a fault of a client or broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.pcap import packets
from barnabas.decoder import encode_request, encode_response
from barnabas.decoder.connection.events import Missing
from barnabas.decoder.findings import Finding, Inspector
from harness.wire import with_size
from traffic.packets import NOW, Packet, pcap_file

from ..event_words import read_events

CLIENT, BROKER = ("10.0.0.1", 40000), ("10.0.0.2", 9092)
SECOND = 10**9
NOTHING = {"brokers": [{"node_id": 1, "host": BROKER[0], "port": BROKER[1], "rack": None}], "controller_id": 1, "topics": []}
"""A Metadata response without topics."""
SYN, ACK, FIN, PUSH = 2, 0x10, 1, 8


class Wire:
    """One connection's packets, with the sequence and acknowledgement numbers of a real one."""

    def __init__(self, port: int = 40000) -> None:
        self.ends = (("10.0.0.1", port), BROKER)
        self.next = [0xFFFFFF00, 2000]
        self.time_ns = NOW
        self.packets: list[Packet] = []

    def send(self, side: int, data: bytes = b"", flags: int = ACK) -> None:
        self.time_ns += 1_000_000
        source, target = self.ends[side], self.ends[1 - side]
        packet = packets.build(source, target, self.next[side], 0 if flags == SYN else self.next[1 - side], flags, data, side)
        self.packets.append((self.time_ns, packet))
        self.next[side] = (self.next[side] + len(data) + bool(flags & (SYN | FIN))) & 0xFFFFFFFF

    def handshake(self) -> None:
        self.send(0, flags=SYN)
        self.send(1, flags=SYN | ACK)
        self.send(0)

    def exchange(self, number: int, answered: bool = True) -> None:
        request = encode_request(3, 1, {"topics": []}, correlation_id=number, client_id="app")
        answer = encode_response(3, 1, NOTHING, correlation_id=number)
        self.send(0, with_size(request), ACK | PUSH)
        self.send(1)
        if answered:
            self.send(1, with_size(answer), ACK | PUSH)
            self.send(0)

    def close(self) -> None:
        self.send(0, flags=FIN | ACK)
        self.send(1, flags=FIN | ACK)
        self.send(0)

    def of(self, side: int) -> list[Packet]:
        return [p for p in self.packets if p[1][6:12] == packets.build(self.ends[side], self.ends[1 - side], 0, 0, 0, b"", side)[6:12]]


def exchanges(count: int, wait_ns: int = 0) -> Wire:
    wire = Wire()
    wire.handshake()
    for number in range(1, count + 1):
        wire.exchange(number)
        wire.time_ns += wait_ns
    return wire


def findings(tmp_path: Path, found: list[Packet]) -> list[Finding]:
    path = pcap_file(tmp_path, found)
    inspector = Inspector()
    for event in read_events(path):
        inspector.feed(event)
    assert inspector.findings() == inspector.findings(), "asking again changes nothing"
    return inspector.findings()


def named(found: list[Finding]) -> dict[str, Finding]:
    return {finding.id: finding for finding in found}


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("closed", [True, False])
def test_acknowledgements_show_that_answers_came(handshake: bool, closed: bool, tmp_path: Path) -> None:
    wire = exchanges(4, 20 * SECOND)
    if closed:
        wire.close()
    found = wire.of(0) if handshake else wire.of(0)[2:]
    by_id = named(findings(tmp_path, found))
    assert "unanswered-request" not in by_id
    assert str(by_id["not-in-the-capture"].severity) == "info"
    assert "only what clients sent" in by_id["not-in-the-capture"].seen
    assert all(str(finding.severity) != "high" for finding in by_id.values())


def test_one_uncaptured_response_is_missing_and_causes_no_finding(tmp_path: Path) -> None:
    wire = exchanges(3)
    wire.exchange(4)
    wire.time_ns += 40 * SECOND
    wire.close()
    found = [p for p in wire.packets if p is not wire.of(1)[-2]]  # the last answer
    path = pcap_file(tmp_path, found)
    size = len(with_size(encode_response(3, 1, NOTHING, correlation_id=4)))
    assert [(h.direction, h.size) for h in read_events(path) if isinstance(h, Missing)] == [(1, size)]
    assert "unanswered-request" not in named(findings(tmp_path, found))


@pytest.mark.parametrize("handshake", [True, False])
def test_a_capture_of_responses_alone_is_reported(handshake: bool, tmp_path: Path) -> None:
    wire = exchanges(4)
    wire.close()
    by_id = named(findings(tmp_path, wire.of(1) if handshake else wire.of(1)[1:]))
    assert "only what brokers sent" in by_id["not-in-the-capture"].seen
    assert all(str(finding.severity) != "high" for finding in by_id.values())


def test_concatenated_captures_have_no_wait_of_months(tmp_path: Path) -> None:
    first = exchanges(2)
    first.exchange(3, answered=False)
    months = 246 * 24 * 3600 * SECOND
    for port in (40000, 40001):  # the port is used again, or it is not
        other = Wire(port)
        other.time_ns = NOW + months
        other.handshake()
        other.exchange(1)
        by_id = named(findings(tmp_path, first.packets + other.packets))
        assert "unanswered-request" not in by_id
        assert "shows nothing" in by_id["not-in-the-capture"].seen


def test_a_wait_that_the_capture_shows_is_reported(tmp_path: Path) -> None:
    wire = exchanges(2)
    wire.exchange(3, answered=False)
    wire.time_ns += 40 * SECOND
    wire.close()
    by_id = named(findings(tmp_path, wire.packets))
    assert str(by_id["unanswered-request"].severity) == "high"
    assert "not-in-the-capture" not in by_id


def test_a_wait_with_more_requests_behind_it_is_reported(tmp_path: Path) -> None:
    wire = exchanges(2)
    for number in range(3, 8):
        wire.exchange(number, answered=False)
        wire.time_ns += 10 * SECOND
    assert "for 40.0 s" in named(findings(tmp_path, wire.packets))["unanswered-request"].seen


def test_answers_to_requests_before_the_capture_are_not_called_missing(tmp_path: Path) -> None:
    """It begins while answers are under way; not a byte of it is missing."""
    wire = Wire()
    answer = with_size(encode_response(3, 1, NOTHING, correlation_id=0))
    for _ in range(3):
        wire.send(1, answer, ACK | PUSH)
        wire.send(0)
    for number in range(1, 4):
        wire.exchange(number)
    path = pcap_file(tmp_path, wire.packets)
    missing = [(h.size, h.unread) for h in read_events(path) if isinstance(h, Missing)]
    assert missing == [(0, 3 * len(answer))]
    with open_capture(path) as capture:
        assert "not in the capture" not in (capture.note or "")
        assert f"{3 * len(answer)} bytes of Kafka connections belong to frames that began before the capture" in (capture.note or "")
    assert set(named(findings(tmp_path, wire.packets))) <= {"no-api-versions"}


def test_a_whole_capture_has_no_findings(tmp_path: Path) -> None:
    wire = exchanges(5, 100 * SECOND)
    wire.close()
    assert set(named(findings(tmp_path, wire.packets))) <= {"no-api-versions"}


ANSWERS_ONLY = "it contains only what brokers sent"


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("direction", [0, 1])
def test_the_note_names_a_capture_of_responses_alone(direction: int, handshake: bool, tmp_path: Path) -> None:
    wire = exchanges(4)
    wire.close()
    path = pcap_file(tmp_path, wire.of(direction) if handshake else wire.of(direction)[1:])
    with open_capture(path) as capture:
        assert (ANSWERS_ONLY in (capture.note or "")) == (direction == 1)


def test_a_capture_of_both_directions_has_no_note(tmp_path: Path) -> None:
    wire = exchanges(4)
    path = pcap_file(tmp_path, [*wire.packets])
    with open_capture(path) as capture:
        assert capture.rows() and ANSWERS_ONLY not in (capture.note or "")
