"""The connections of a segment are the same by its index as by its packets."""

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
from barnabas.captures.reading.reindex import rebuild
from barnabas.captures.reading.segment_map import IndexMismatch, SegmentMap
from barnabas.captures.tables import find_segments
from barnabas.captures.tables.connections import connection_rows, connections_of_index
from harness.run.slices import only, thin
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
            segment = SegmentMap(capture.segments[0])
            return list(connections_of_index(segment, capture, HERE, list(range(len(segment.records)))))
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


def test_a_damaged_segment_is_read_by_its_packets(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    MixedTraffic(4, 300).run(recorder)
    recorder.close()
    path = next(tmp_path.glob("*.pcapng"))
    data = bytearray(path.read_bytes())
    data[random.Random(4).randrange(len(data) // 2)] ^= 0x55
    path.write_bytes(data)
    assert by_index(path) is None
