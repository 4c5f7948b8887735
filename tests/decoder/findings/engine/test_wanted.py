"""Detectors that want only some exchanges (`Detector.wanted`) find what they find in all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder
from barnabas.captures.reading.events import EventReader
from barnabas.decoder import Exchange
from barnabas.decoder.findings import ClientConnection, Inspector
from barnabas.decoder.findings.inspector import Callback
from harness.run.slices import thin
from traffic.random_traffic import MixedTraffic

from tests.traffic.fleets.idle import PlainTraffic

ALL = sorted((Path(__file__).parents[1] / "captures").rglob("*.pcapng"))


class Indiscriminate(Inspector):
    """Tells every detector of an API and version of all exchanges."""

    spared = 0

    def _concerned(self, conn: ClientConnection, exchange: Exchange) -> tuple[Callback, ...]:
        every = self._route(exchange).failed
        self.spared += len(every) - len(super()._concerned(conn, exchange))
        return every


def found(inspector: Inspector, path: Path) -> list[dict[str, Any]]:
    events = EventReader(path)
    for part in (events.read, events.end):
        for event in part():
            inspector.feed(event)
    findings = [finding.to_dict() for finding in inspector.findings()]
    assert "detector-failed" not in {finding["id"] for finding in findings}
    return findings


def compare(path: Path) -> tuple[set[str], int]:
    """What is found, and how many calls were not made."""
    every = Indiscriminate()
    findings = found(every, path)
    assert found(Inspector(), path) == findings, path
    return {finding["id"] for finding in findings}, every.spared


def test_a_fleet_at_rest(tmp_path: Path) -> None:
    PlainTraffic(tmp_path).run(2500)
    ids, spared = compare(tmp_path)
    assert {"unknown-member", "slow-answers"} <= ids
    assert spared > 10 * 2500


@pytest.mark.parametrize("odd", [0.02, 0.2])
def test_odd_traffic(tmp_path: Path, odd: float) -> None:
    recorder = Recorder(tmp_path, segment_bytes=200_000)
    MixedTraffic(3, 1500, odd=odd, large=0.02).run(recorder)
    recorder.close()
    assert compare(tmp_path)[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", thin(range(4), 1))
def test_every_recording(part: int) -> None:
    for path in ALL[part::4]:
        compare(path)


def test_a_fault_while_an_exchange_is_judged_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PlainTraffic(tmp_path).run(200)
    findings = found(Inspector(), tmp_path)

    def fails(exchange: Exchange) -> bool:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Exchange, "succeeded", property(fails))
    assert found(Inspector(), tmp_path) == findings
