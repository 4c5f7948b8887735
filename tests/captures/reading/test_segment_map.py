"""The connections of a segment, or of a capture of another tool, are the same by its index as by its packets."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder
from barnabas.captures.reading.capture import Capture
from barnabas.captures.reading.context import Context, Origin
from barnabas.captures.reading.events import EventReader
from barnabas.captures.reading.indexing.reindex import rebuild
from barnabas.captures.reading.segment_map import IndexMismatch
from barnabas.captures.tables import find_segments
from barnabas.captures.tables.connections import connection_rows, connections_of_index
from harness.recordings import RecordingBuilder, as_pcap
from harness.run.slices import only, thin
from traffic.packets import as_pcapng, pcap_file, traffic
from traffic.random_traffic import MixedTraffic

pytest.importorskip("numpy")
HERE = Origin("here", "", Context())
ALL = sorted(path for path in Path(__file__).parents[2].rglob("*.pcapng") if path.is_file())


def events_of(path: Path) -> Iterator[Any]:
    """The events from the packets, one by one, because what is known of a connection grows."""
    events = EventReader(path)
    yield from events.read()
    yield from events.end()


def by_index(path: Path) -> list[dict[str, Any]] | None:
    with Capture(path) as capture:
        try:
            return list(connections_of_index(capture, HERE, list(range(capture.segments[0].index.count))))
        except IndexMismatch:
            return None


@pytest.fixture(scope="module", params=only((None, 200), 200))
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Segments of traffic in which much is odd; with requests carried over their borders, and cut with a snap length."""
    place = tmp_path_factory.mktemp("odd")
    for seed, odd in ((2, 0.05), (3, 0.2)):
        recorder = Recorder(place / str(seed), segment_bytes=200_000, snaplen=request.param)
        MixedTraffic(seed, 1500, odd=odd, large=0.02).run(recorder)
        recorder.close()
    return [segment.path for segment in find_segments(place).segments]


def compare(path: Path) -> bool:
    """Whether the index was enough to give the connections; they must be those from the packets."""
    connections = by_index(path)
    if connections is not None:
        assert connections == list(connection_rows(events_of(path), HERE)), path
    return connections is not None


def test_connections_of_odd_traffic(recorded: list[Path]) -> None:
    # Others: frames behind a connection's end.
    assert sum(map(compare, recorded)) > len(recorded) / 2


@pytest.mark.slow
@pytest.mark.parametrize("part", thin(range(4), 1))
def test_every_segment_of_the_tests(tmp_path: Path, part: int) -> None:
    by_index = []
    for number, path in enumerate(ALL[part::4]):
        copy = tmp_path / f"{number}.pcapng"
        shutil.copy(path, copy)
        try:
            rebuild(copy)
        except ValueError:  # another tool's, or damaged on purpose
            continue
        by_index.append(compare(copy))
    assert sum(by_index) > 10


# captures of other tools


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", ["as sent", "reordered", "doubled", "lost", "late"])
def test_connections_of_another_tool_s_capture(tmp_path: Path, how: str, seed: int) -> None:
    """Where bytes are missing, or are no frames, the packets are read."""
    found = compare(pcap_file(tmp_path, traffic(seed, how)))
    assert found == (how not in ("lost", "late"))


def test_connections_that_end_and_others(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "recording")
    MixedTraffic(5, 300, large=0).run(recorder)
    recorder.close()
    compare(as_pcap(tmp_path / "recording", tmp_path / "odd.pcap"))
    with RecordingBuilder(tmp_path / "plain") as recording:
        for number in range(300):
            connection = number % 7
            recording.exchange("ApiVersions", 3, {"client_software_name": "app", "client_software_version": "1"}, {}, connection=connection)
            recording.exchange("Heartbeat", 4, {}, {"error_code": 25 * (number % 5 == 0)}, connection=connection, client_id=None)
            if number % 20 == 19:
                recording.request("Metadata", 12, {}, connection=connection)
                recording.close_connection(connection, "rst" if number % 40 == 19 else "fin", "broker")
    path = as_pcap(tmp_path / "plain", tmp_path / "plain.pcap")
    assert compare(path) and len(by_index(path) or ()) == 21


def test_captures_with_wrong_bytes(tmp_path: Path) -> None:
    chance, path, whole = random.Random(6), tmp_path / "made.pcapng", as_pcapng(traffic(4))
    for _ in range(25):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 12)):
            data[chance.randrange(200, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(300, len(data))])
        compare(path)


def test_a_damaged_segment_is_read_by_its_packets(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    MixedTraffic(4, 300).run(recorder)
    recorder.close()
    path = next(tmp_path.glob("*.pcapng"))
    data = bytearray(path.read_bytes())
    data[random.Random(4).randrange(len(data) // 2)] ^= 0x55
    path.write_bytes(data)
    assert by_index(path) is None
