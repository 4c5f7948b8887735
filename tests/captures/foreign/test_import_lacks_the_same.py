"""An import lacks the same bytes as its capture: the recording notes them, and the findings are the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder import encode_response
from barnabas.decoder.connection.events import Closed, Missing, Opened
from harness import commands
from harness.run.slices import thin
from harness.wire import with_size
from traffic.packets import NOW, Packet, as_pcap, pcap_file, spoiled

from ..event_words import findings_of, import_captures, read_events
from .test_not_in_the_capture import ACK, PUSH, SECOND, Wire, exchanges

ANSWER = with_size(encode_response(3, 1, {"brokers": [], "controller_id": 1, "topics": []}, correlation_id=4))


def one_direction(side: int, handshake: bool, closed: bool) -> list[Packet]:
    wire = exchanges(4, 20 * SECOND)
    if closed:
        wire.close()
    found = wire.of(side)
    return found if handshake else found[2 - side :]


def without_an_answer(closed: bool, behind: int = 0) -> list[Packet]:
    """One answer was not captured, though it came; requests behind it are answered."""
    wire = exchanges(3)
    wire.exchange(4)
    lost = wire.of(1)[-1]
    for number in range(5, 5 + behind):
        wire.exchange(number)
    wire.time_ns += 40 * SECOND
    if closed:
        wire.close()
    return [p for p in wire.packets if p is not lost]


def begun_late() -> list[Packet]:
    wire = Wire()
    for _ in range(3):
        wire.send(1, ANSWER, ACK | PUSH)
        wire.send(0)
    for number in range(1, 4):
        wire.exchange(number)
    return wire.packets


def spliced(port: int) -> list[Packet]:
    first = exchanges(2)
    first.exchange(3, answered=False)
    other = Wire(port)
    other.time_ns = NOW + 246 * 24 * 3600 * SECOND
    other.handshake()
    other.exchange(1)
    return first.packets + other.packets


def unanswered(end: str) -> list[Packet]:
    wire = exchanges(2)
    wire.exchange(3, answered=False)
    if end == "more":
        for number in range(4, 8):
            wire.exchange(number, answered=False)
            wire.time_ns += 10 * SECOND
    wire.time_ns += 40 * SECOND
    if end == "closed":
        wire.close()
    return wire.packets


def torn(how: str, seed: int) -> list[Packet]:
    wires = []
    for number in range(4):
        wire = Wire(40000 + number)
        wire.time_ns += number * SECOND
        wire.handshake()
        for each in range(1, 9):
            wire.exchange(each, answered=each != 5)
            wire.time_ns += 9 * SECOND
        if number % 2:
            wire.close()
        wires += wire.packets
    return spoiled(sorted(wires), random.Random(seed), how)


CAPTURES: dict[str, Callable[[], list[Packet]]] = {
    **{
        f"only {'clients' if side == 0 else 'brokers'}, {'from the handshake' if handshake else 'later'}, {'closed' if closed else 'open'}": (
            lambda side=side, handshake=handshake, closed=closed: one_direction(side, handshake, closed)  # type: ignore[misc]
        )
        for side in (0, 1)
        for handshake in (True, False)
        for closed in (True, False)
    },
    "an answer lost, closed": lambda: without_an_answer(True),
    "an answer lost, open": lambda: without_an_answer(False),
    "an answer lost, more behind": lambda: without_an_answer(True, 3),
    "begun late": begun_late,
    "spliced, the same port": lambda: spliced(40000),
    "spliced, another port": lambda: spliced(40001),
    "unanswered, closed": lambda: unanswered("closed"),
    "unanswered, open": lambda: unanswered("open"),
    "unanswered, more behind": lambda: unanswered("more"),
    "whole": lambda: exchanges(5, 100 * SECOND).packets,
    **{f"{how}, {seed}": lambda how=how, seed=seed: torn(how, seed) for how in ("lost", "late", "reordered") for seed in range(5)},  # type: ignore[misc]
}


def imported(path: Path, out: Path) -> Path:
    import_captures(out, path)
    return out


def findings(path: Path) -> list[str]:
    return [f"{found.id} {found.severity} {found.seen}" for found in findings_of(path)]


@pytest.mark.parametrize("name", thin(CAPTURES, 12))
def test_an_import_has_the_findings_of_its_capture(name: str, tmp_path: Path) -> None:
    path = pcap_file(tmp_path, CAPTURES[name]())
    assert findings(imported(path, tmp_path / "out")) == findings(path)


@pytest.mark.parametrize("name", ["only clients, later, open", "an answer lost, closed", "begun late", "an answer lost, more behind"])
def test_an_import_reports_what_is_missing(name: str, tmp_path: Path) -> None:
    path = pcap_file(tmp_path, CAPTURES[name]())
    seen = []
    for place in (path, imported(path, tmp_path / "out")):
        found = read_events(place)
        opened = [each.complete for each in found if isinstance(each, Opened)]
        missing = [(each.direction, each.size, each.unread) for each in found if isinstance(each, Missing)]
        seen.append((opened, missing, [(each.how, each.by) for each in found if isinstance(each, Closed)]))
    assert seen[0] == seen[1] and seen[0][1] and not any(seen[0][0])


@pytest.mark.parametrize("again", [False, True], ids=["of the capture", "of its import"])
@pytest.mark.parametrize("name", thin(["only clients, later, closed", "an answer lost, closed", "begun late", "spliced, the same port"], 2))
@pytest.mark.parametrize("command", ["redact", "cut", "merge"])
def test_copies_lack_the_same_bytes(command: str, name: str, again: bool, tmp_path: Path) -> None:
    path, out = tmp_path / "capture.pcap", tmp_path / "made"
    path.write_bytes(as_pcap(CAPTURES[name]()))
    source = imported(path, tmp_path / "in") if again else path
    done = commands.run(command, source, "-o", out)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in findings(out)] == [line.split()[:2] for line in findings(path)]


def test_the_index_of_an_import_can_be_made_anew(tmp_path: Path) -> None:
    path = pcap_file(tmp_path, torn("lost", 1))
    out = imported(path, tmp_path / "out")
    with open_capture(out) as capture:
        rows, lost = list(capture.rows()), capture.lost
    assert rows and lost
    for index in [*out.glob("*.idx"), *out.glob("*.str")]:
        index.unlink()
    with open_capture(out) as capture:
        assert [row._replace(segment=0) for row in capture.rows()] == [row._replace(segment=0) for row in rows]
        assert sorted(capture.lost) == sorted(lost)
