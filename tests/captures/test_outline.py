"""A segment told by its index is the same story as the one in its packets."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder
from barnabas.captures.capture import Capture
from barnabas.captures.foretelling import Foretelling
from barnabas.captures.happenings import Happenings
from barnabas.captures.indexing import rebuild
from barnabas.captures.outline import Outline, Unlike
from barnabas.captures.tables import find_segments
from barnabas.captures.tables.connections import connection_rows, connections_of_index
from barnabas.decoder import Exchange
from barnabas.decoder.findings import Inspector
from harness.slices import only, thin

from tests.retold.mixed_traffic import MixedTraffic
from tests.retold.plain_traffic import PlainTraffic

pytest.importorskip("numpy")
ALL = sorted(path for path in Path(__file__).parents[1].rglob("*.pcapng") if path.is_file())


def told(path: Path) -> Iterator[Any]:
    """As the packets tell it; one by one, because what is known of a connection grows."""
    happenings = Happenings(path)
    yield from happenings.read()
    yield from happenings.end()


def found_by(inspector: Inspector) -> list[dict[str, Any]]:
    found = [finding.to_dict() for finding in inspector.findings()]
    assert "detector-failed" not in {finding["id"] for finding in found}
    return sorted(found, key=lambda one: (one["id"], repr(one["about"]), one["seen"]))


def found(path: Path) -> list[dict[str, Any]]:
    inspector = Inspector()
    for happening in told(path):
        inspector.feed(happening)
    return found_by(inspector)


def found_by_index(path: Path, inspector: Inspector | None = None) -> list[dict[str, Any]] | None:
    inspector = inspector or Inspector()
    with Capture(path) as capture:
        try:
            Foretelling(Outline(capture.segments[0])).tell(inspector)
        except Unlike:
            return None
        return found_by(inspector)


class Counting(Inspector):
    """Counts the exchanges that say the same again."""

    repeated = 0

    def done(self, exchange: Exchange) -> None:
        self.repeated += exchange.repeated
        super().done(exchange)


def by_index(path: Path) -> list[dict[str, Any]] | None:
    with Capture(path) as capture:
        try:
            return list(connections_of_index(Outline(capture.segments[0]), capture, "here"))
        except Unlike:
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


def compare(path: Path) -> tuple[bool, bool]:
    """Whether connections, and findings, could be told by the index; they are what the packets say."""
    connections, findings = by_index(path), found_by_index(path)
    if connections is not None:
        assert connections == list(connection_rows(told(path), "here")), path
    if findings is not None:
        assert findings == found(path), path
    return connections is not None, findings is not None


def test_odd_traffic(recorded: list[Path]) -> None:
    by_index = [compare(path) for path in recorded]
    assert (
        sum(connections for connections, _ in by_index) > len(recorded) / 2
    )  # others: frames behind a connection's end
    assert all(findings for _, findings in by_index)


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
    assert len(by_index) > 15 and all(findings for _, findings in by_index)


@pytest.mark.slow
def test_a_fleet_at_rest(tmp_path: Path) -> None:
    """Most of what clients say, they have said before: it is told to few, and what is found is the same."""
    PlainTraffic(tmp_path).run(2500)
    path = next(tmp_path.glob("*.pcapng"))
    counting = Counting()
    findings = found_by_index(path, counting)
    assert counting.repeated > 1200
    assert {"unknown-member", "slow-answers"} <= {finding["id"] for finding in findings or ()}
    assert compare(path) == (True, True)


def test_a_damaged_segment_is_read_by_its_packets(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    MixedTraffic(4, 300).run(recorder)
    recorder.close()
    path = next(tmp_path.glob("*.pcapng"))
    data = bytearray(path.read_bytes())
    data[random.Random(4).randrange(len(data) // 2)] ^= 0x55
    path.write_bytes(data)
    assert by_index(path) is None and found_by_index(path) is None
