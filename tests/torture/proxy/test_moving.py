"""What the accelerator moves from socket to socket is what the halves in Python would have: the same bytes, the same chunks
in the ring, the same state behind every segment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.relay.connections.half_connection import MOVES, HalfConnection
from barnabas.proxy.ring.reader import RingRecord
from barnabas.proxy.ring.ring import Kind
from harness.run.slices import only, thin
from torture.proxy.peers.stepped_relay import BROKER, cut
from torture.proxy.peers.traffic import ADDRESSED, TrafficGenerator, naming
from torture.proxy.peers.wired_relay import WiredRelay, WiredSession
from torture.proxy.test_correlation import RULES, heartbeat
from torture.proxy.test_cuts import FETCH, PRODUCE, bulk, check_passed, run, schedule

pytestmark = pytest.mark.skipif(not MOVES, reason="the accelerator is not built")

EXCHANGES = {
    "produce": bulk(PRODUCE, 11, 40, False, None),
    "fetch": bulk(FETCH, 16, 40, False, None),
    "fetch-endpoints": bulk(FETCH, 17, 40, True, "r1"),
    "metadata": naming(3, 12, 5),
}


LATE = Rule.of("api in {Produce, Fetch, Heartbeat, SyncGroup} and err == DUPLICATE_RESOURCE", drop="response")
"""It reads the response to every one of these."""
ASKING = {"none": RULES["none"], "elsewhere": RULES["elsewhere"], "idle": RULES["idle"], "late": [LATE]}


@pytest.fixture
def relays() -> Iterator[Any]:
    made: list[WiredRelay] = []

    def give(*arguments: Any, **options: Any) -> WiredRelay:
        made.append(WiredRelay(*arguments, **options))
        return made[-1]

    yield give
    for relay in made:
        relay.tidy()
        relay.shut()


@pytest.mark.parametrize(("rules", "lossless"), thin([("late", False), ("none", False), ("none", True)], 1))
@pytest.mark.parametrize("name", thin(EXCHANGES, 1))
def test_every_split_position(relays: Any, name: str, rules: str, lossless: bool) -> None:
    relay = relays(ASKING[rules], lossless)
    exchanges = [heartbeat(1), EXCHANGES[name], heartbeat(9)]
    asked = b"".join(e.request for e in exchanges)
    answer = b"".join(e.response or b"" for e in exchanges)
    for at in range(1, len(asked)):
        run(relay, exchanges, [asked[:at], asked[at:]], [answer])
        relay.tidy()
    for at in range(1, len(answer)):
        run(relay, exchanges, [asked], [answer[:at], answer[at:]])
        relay.tidy()


def state(session: WiredSession) -> list[Any]:
    connection = session.connection
    return [
        *((half.left, half.position, half.last_id, half.last_head, half._part, half._carry, half.eof, half.opaque, half.hold and b"".join(half.hold))
          for half in (connection.request, connection.response)),
        [entry if isinstance(entry, int) else entry.correlation for entry in connection.in_flight],
        connection.in_flight.kept() and connection.in_flight.kept()[0],
        *(getattr(connection.in_flight, name) for name in ("doubtful", "objects", "out_of_order", "unsure")),
        connection.answer_bytes, connection.neutralized, connection.closed,
    ]  # fmt: skip


def in_ring(relay: WiredRelay) -> list[Any]:
    """The records of the ring without numbers of connections and times."""
    kinds = Kind.DATA, Kind.NOTE, Kind.BROKER_LEG, Kind.CLOSED
    return [
        (r.kind, r.direction, bytes(r.data), r.first_frame)
        for r in relay.read()
        if isinstance(r, RingRecord) and r.kind in kinds
    ]


def joined(ring: list[Any]) -> list[Any]:
    """The bytes of each direction, and all else in its order."""
    streams = [b"".join(data for kind, way, data, _ in ring if kind == Kind.DATA and way == side) for side in (0, 1)]
    return [streams, [each for each in ring if each[0] != Kind.DATA]]


@pytest.mark.parametrize("rules", only(ASKING, "none", "late"))
@pytest.mark.parametrize("kind", only(("small", "mixed", "whole"), "mixed"))
def test_the_same_as_in_python(relays: Any, kind: str, rules: str) -> None:
    """Segment by segment, with large frames and brokers' addresses between."""
    two = relays(ASKING[rules]), relays(ASKING[rules], moves=False)
    plain = relays(ASKING[rules], scans=False)
    for seed in range(3):
        generator = TrafficGenerator(seed)
        size = 10_000 if kind == "small" else 300_000
        exchanges = generator.conversation(40, first=generator.chance.randrange(1 << 32), most=size)
        for place in range(0, 40, 9):
            exchanges[place] = naming(*generator.chance.choice(ADDRESSED), exchanges[place].correlation)
        exchanges += [bulk(PRODUCE, 11, size, False, None), bulk(FETCH, 16, size, seed == 1, "r1"), heartbeat(9)]
        streams = b"".join(e.request for e in exchanges), b"".join(e.response or b"" for e in exchanges)
        sessions = [relay.session() for relay in (*two, plain)]
        parts = [cut(stream, generator.sizes(kind)) for stream in streams]
        while any(parts):
            # Requests first, more or less; a part of their answers may come too early, as strays do.
            side = 0 if parts[0] and (not parts[1] or generator.chance.random() < 0.8) else 1
            part = parts[side].pop(0)
            for session in sessions:
                (session.from_broker if side else session.from_client)(part)
            assert state(sessions[0]) == state(sessions[1])
        for session in sessions:
            session.finish()
        assert [bytes(s.broker.got) for s in sessions] == [streams[0]] * 3
        assert sessions[0].client.got == sessions[1].client.got == sessions[2].client.got
        ring = [in_ring(relay) for relay in (*two, plain)]
        assert ring[0] == ring[1] and len(ring[0]) > 20
        assert joined(ring[0]) == joined(ring[2])  # frame by frame the pieces are others
        for relay in (*two, plain):
            relay.tidy()


@pytest.mark.parametrize("rules", ["none", "elsewhere", "late"])
def test_the_accelerator_moves_the_bytes(relays: Any, rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above would compare Python with itself. What no rule is about is not even shown to Python."""
    relay = relays(ASKING[rules])
    session = relay.session()
    for number in range(3):
        session.from_client(heartbeat(number).request)
        session.from_broker(heartbeat(number).response)
    monkeypatch.setattr(HalfConnection, "filter_frames", None)
    halves = session.connection.request, session.connection.response
    for half, end, other, data in (
        (halves[0], session.client, session.broker, heartbeat(4).request + heartbeat(5).request),
        (halves[1], session.broker, session.client, heartbeat(4).response + heartbeat(5).response),
    ):
        for part in (data, data[:-3], data[-3:]):
            end.far.send(part)
            half.readable = True
            assert relay.mover.pump(half) is False and not half.readable
        assert other.far.recv(1000).endswith(data + data)
    large = bulk(FETCH, 16, 300_000, False, None)
    before = len(session.client.got)
    session.from_client(large.request)
    for at in range(0, len(large.response), 50_000):
        session.from_broker(large.response[at : at + 50_000])
    assert bytes(session.client.got[before:]).endswith(large.response)
    assert not session.connection.in_flight


@pytest.mark.parametrize("rules", ["none", "late"])
@pytest.mark.parametrize("seed", thin(range(4), 1))
def test_followed_responses(relays: Any, rules: str, seed: int) -> None:
    """Several in one segment, or one in several; with and without endpoints; some not larger than what is held."""
    two = relays(ASKING[rules]), relays(ASKING[rules], moves=False)
    generator = TrafficGenerator(seed)
    chance = generator.chance
    made = []
    for _ in range(40):
        version, size = chance.choice((16, 17)), chance.choice((40, 16_300, 17_000, 90_000))
        made.append(bulk(FETCH, version, size, chance.random() < 0.4, chance.choice((None, "r"))))
    streams = b"".join(e.request for e in made), b"".join(e.response or b"" for e in made)
    sessions = [relay.session() for relay in two]
    for session in sessions:
        session.from_client(heartbeat(1).request)
        session.from_broker(heartbeat(1).response)
        session.from_client(streams[0])
    at = 0
    while at < len(streams[1]):
        size = chance.choice((1, 5, 300, 16_384, 70_000, 200_000))
        for session in sessions:
            session.from_broker(streams[1][at : at + size])
        assert state(sessions[0]) == state(sessions[1])
        at += size
    for session in sessions:
        session.finish()
    got = bytes(sessions[0].client.got)
    assert got == sessions[1].client.got
    for exchange in [heartbeat(1), *made]:
        size, got = int.from_bytes(got[:4], "big"), got[4:]
        if exchange.api_key == FETCH:
            answer = decoder.decode_response(got[:size], api_key=FETCH, api_version=exchange.api_version).to_dict()
            assert BROKER[0] not in [each["host"] for each in answer.get("node_endpoints", ())]
        got = got[size:]
    assert not got
    ring = [in_ring(relay) for relay in two]
    assert ring[0] == ring[1]
    noted = any(kind == Kind.NOTE and b"node endpoints" in data for kind, _, data, _ in ring[0])
    assert noted or rules != "none"  # with a rule about errors those with leaders are held


@pytest.mark.parametrize("rules", ["none", "idle", "late"])
def test_slow_peers(relays: Any, rules: str) -> None:
    """Sinks that take a part, or nothing for a while."""
    relay = relays(ASKING[rules])
    for seed in range(2):
        generator = TrafficGenerator(seed)
        exchanges = generator.conversation(40, most=200_000)
        session = relay.session()
        schedule(session, exchanges, generator, "mixed")
        check_passed(session, exchanges)
        relay.tidy()


def test_other_protocols(relays: Any) -> None:
    two = relays(), relays(moves=False)
    for seed in range(10):
        generator = TrafficGenerator(seed)
        good = generator.conversation(3)
        frames = b"".join(e.request for e in good), b"".join(e.response or b"" for e in good)
        streams = [side + b"\xff" * 9 + generator.chance.randbytes(200) for side in frames]
        sessions = [relay.session() for relay in two]
        for side in (0, 1):
            for part in cut(streams[side], generator.sizes("small")):
                for session in sessions:
                    (session.from_broker if side else session.from_client)(part)
                assert state(sessions[0]) == state(sessions[1])
        for session in sessions:
            session.finish()
            assert [bytes(session.broker.got), bytes(session.client.got)] == streams
        assert in_ring(two[0]) == in_ring(two[1])


def test_a_closed_client(relays: Any) -> None:
    """A sink that cannot be written to ends the connection, with what came from it before."""
    for moves in (True, False):
        relay = relays(moves=moves)
        session = relay.session()
        session.from_client(heartbeat(1).request)
        session.client.far.close()
        session.from_broker(heartbeat(1).response)
        assert session.connection.closed
        assert [r[1] for r in in_ring(relay) if r[0] == Kind.DATA] == [0, 1]


HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "chosen"),
    [("test_strays.py", "mixed or given_up"), ("test_cuts.py", "anywhere"), ("test_correlation.py", "test_correlation_ids")],
)
def test_without_the_accelerator(module: str, chosen: str) -> None:
    program = (
        "import sys, pytest; from barnabas.proxy.relay.connections.correlation import Queue, PlainQueue; assert Queue is PlainQueue;"
        "sys.exit(pytest.main(['-q', '-n', '0', '-p', 'no:cacheprovider', '-m', '', *sys.argv[1:]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(HERE / module), "-k", chosen],
        env=os.environ | {"BARNABAS_PURE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "skipped" not in done.stdout
