"""Everything that happens in captures of others: how connections begin and end, and what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.captures.reading.events import EventReader
from barnabas.decoder.connection.events import Missing, NonKafkaData, Opened
from harness.peers.pcap import TcpConversations
from harness.recordings import metadata_answer, metadata_request

from ..event_words import read_events, same_as_read_back, short

TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(500)


Step = tuple[Any, ...] | float
"""What `TcpConversations.send` takes, or seconds that pass."""
SHAKE = [(0, b"", "S"), (1, b"", "SA"), (0, b"", "A")]
SHAKE_2 = [(*step, 40002) for step in SHAKE]
SYN, SYN_2, SYN_3 = [(0, b"", "S", port) for port in (40001, 40002, 40003)]


def ask(number: int, *ports: int) -> Step:
    return 0, metadata_request(number), "PA", *ports


def answer(number: int, *ports: int) -> Step:
    return 1, metadata_answer(number), "PA", *ports


CASES: dict[str, tuple[list[Step], str]] = {
    "exchanges and ends": (
        [*SHAKE, (0, metadata_request(1)[:20]), (0, metadata_request(1)[20:]), answer(1), (1, b"", "FA"), (0, b"", "FA"),
         *SHAKE_2, ask(5, 40002), (1, b"", "RA", 40002), *[(*step, 40003) for step in SHAKE], ask(6, 40003)],
        "1 opened; 1 asked 1; 1 paired 1; 1 closed fin by broker; 2 opened; 2 asked 5; 2 no_response 5; 2 closed rst by broker; "
        "3 opened; 3 asked 6",
    ),
    # A client that closes while a response is on its way resets what arrives then.
    "a reset that answers a close is no reset": (
        [*SHAKE, ask(1), (0, b"", "FA"), answer(1), (0, b"", "R")],
        "1 opened; 1 asked 1; 1 paired 1; 1 closed fin by client",
    ),
    "refused on a port with kafka traffic": (
        [(*step, 40001, 19093) for step in SHAKE] + [ask(1, 40001, 19093), (1, b"", "RA", 40001, 19093),
         (0, b"", "S", 40002, 19093), (1, b"", "RA", 40002, 19093)],
        "1 opened; 1 asked 1; 1 no_response 1; 1 closed rst by broker; 2 opened in vain; 2 closed refused by broker",
    ),
    # The SYN of the first is sent again, as TCP does. The third began too shortly before the end of the capture to be judged.
    "no answer to the syn": (
        [SYN, 1.0, SYN, 2.0, SYN, 4.0, SYN, *SHAKE_2, 5.0, ask(1, 40002), SYN_3],
        "1 opened; 2 opened in vain; 2 closed unreached by nobody; 1 asked 1",
    ),
    "no answer before the capture ends": (
        [SYN, 2.0, *SHAKE_2], "1 opened; 2 opened in vain; 2 closed unreached by nobody",
    ),
    "an answer after all": (
        [SYN, 15.0, *SHAKE, ask(1), answer(1)],
        "1 opened in vain; 1 closed unreached by nobody; 2 opened; 2 asked 1; 2 paired 1",
    ),
    "one direction captured": ([SYN, (0, b"", "A"), ask(1)], "1 opened; 1 asked 1"),
    "a connection without data": ([*SHAKE, (0, b"", "FA"), (1, b"", "FA")], "1 opened; 1 closed fin by client"),
    "the beginning was not captured": (
        [(1, b"the rest of some response"), ask(3), answer(3), (1, b"", "RA")],
        "1 opened; 1 asked 3; 1 missing 0, unread 25; 1 paired 3; 1 closed rst by broker",
    ),
}  # fmt: skip


def played(steps: list[Step]) -> TcpConversations:
    wire = TcpConversations()
    for step in steps:
        if isinstance(step, float):
            wire.seconds += step
            wire.step_back(0, 1)  # only a SYN, which is sent again, comes before a wait on this connection
        else:
            wire.send(*step)
    return wire


@pytest.mark.parametrize("name", CASES)
def test_events(name: str, tmp_path: Path) -> None:
    steps, expected = CASES[name]
    assert short(read_events(played(steps).save(tmp_path))) == expected.split("; ")


def test_ends_times_and_exchanges(tmp_path: Path) -> None:
    path = played(CASES["exchanges and ends"][0]).save(tmp_path)
    assert read_events(path)[0] == Opened(1, "10.0.0.1:40001", "10.0.0.2:9092", 1_700_000_000_001_000_000, complete=False)
    assert same_as_read_back(path) == 2
    unreached = read_events(played(CASES["no answer to the syn"][0]).save(tmp_path))[1]
    assert isinstance(unreached, Opened) and unreached.client == "10.0.0.1:40001"


def test_refused(tmp_path: Path) -> None:
    """Without traffic, only a refusal on Kafka's usual port is known as Kafka's."""
    path = played([(0, b"", "S"), (1, b"", "RA"), SYN_2, (1, b"", "RA", 40002), (0, b"", "S", 40003, 443), (1, b"", "RA", 40003, 443)]).save(tmp_path)
    assert short(read_events(path)) == [line for n in (1, 2) for line in (f"{n} opened in vain", f"{n} closed refused by broker")]
    with open_capture(path) as capture:
        assert len(capture.rows()) == 0
        assert capture.note is None


@pytest.mark.parametrize(
    ("data", "protocol"),
    [(TLS_HELLO, "TLS"), (b"GET / HTTP/1.1\r\nhost: kafka\r\n\r\n", "HTTP")],
)
def test_other_protocols_on_a_kafka_port(tmp_path: Path, data: bytes, protocol: str) -> None:
    wire = TcpConversations()
    wire.handshake()
    wire.send(0, data)
    wire.send(1, flags="FA")
    wire.send(0, flags="FA")
    found = read_events(wire.save(tmp_path))
    assert [w.split()[1] for w in short(found)] == ["opened", "stray", "closed"]
    assert isinstance(found[1], NonKafkaData)
    assert protocol in found[1].opaque.reason
    assert found[1].opaque.data == data


def test_a_hole(tmp_path: Path) -> None:
    wire = TcpConversations()
    wire.handshake()
    for i in range(4):
        frame = metadata_request(i, 150)
        wire.send(0, frame[:100])
        wire.send(0, frame[100:])
        wire.send(1, metadata_answer(i))
    del wire.packets[3 + 3 * 1 + 1]  # the second half of request 1
    found = read_events(wire.save(tmp_path))
    assert [w for w in short(found) if "asked" in w] == ["1 asked 0", "1 asked 2", "1 asked 3"]
    assert [h.size for h in found if isinstance(h, Missing)] == [len(metadata_request(1, 150)) - 100]
    cut = next(h for h in found if isinstance(h, NonKafkaData))
    assert cut.opaque.reason == "cut off by missing bytes"
    assert cut.opaque.time_ns > 1_700_000_000 * 10**9


def test_captures_of_others_in_a_directory(tmp_path: Path) -> None:
    wire = TcpConversations()
    wire.handshake()
    wire.send(0, metadata_request(1))
    wire.send(1, metadata_answer(1))
    path = wire.save(tmp_path)
    shutil.copy(path, tmp_path / "second.pcap")
    (tmp_path / "third.pcap").write_text("not one")
    once = ["1 opened", "1 asked 1", "1 paired 1"]
    reader = EventReader(tmp_path)
    assert short([*reader.read(), *reader.end()]) == [*once, "1 closed  by nobody", *once]
    assert "third.pcap: not a capture" in str(reader.note)
