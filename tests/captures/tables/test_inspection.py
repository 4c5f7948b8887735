"""Findings segment by segment, with the detectors' state kept in between, are those of the recording as a whole."""

from __future__ import annotations

import json
import os
import pickle
import zlib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Recorder
from barnabas.captures.reading.events import EventReader
from barnabas.captures.tables.output.inspection import Inspection, StateError
from barnabas.decoder.findings import Inspector
from harness.run.slices import only
from traffic.fleets.rotated import record, steps
from traffic.random_traffic import MixedTraffic


def odd(folder: Path, seed: int) -> Path:
    recorder = Recorder(folder, segment_bytes=20_000)
    MixedTraffic(seed, 1500, large=0.02).run(recorder)
    recorder.close()
    return folder


@pytest.mark.parametrize("seed", [None, *only((1, 2, 3), 1)])
def test_findings_with_the_state_kept_after_each_segment(tmp_path: Path, seed: int | None) -> None:
    folder = record(tmp_path / "recording", steps(1200), 20_000) if seed is None else odd(tmp_path / "recording", seed)
    files = sorted(folder.glob("*.pcapng"))
    whole, reader = Inspector(), EventReader(folder)
    for event in chain(reader.read(), reader.end()):
        whole.feed(event)
    inspection = Inspection()
    for file in files:
        for _ in inspection.read(file):
            pass
        inspection.seen[file.name] = "as it was"
        inspection = Inspection.load(inspection.dump())
    assert len(files) > 5 and list(inspection.seen) == [file.name for file in files]
    assert [each.to_dict() for each in inspection.inspector.findings()] == [each.to_dict() for each in whole.findings()]
    assert whole.findings()


class Harmful:
    """What a pickle can do to those who read it without care."""

    def __init__(self, call: Any, *given: Any) -> None:
        self.call, self.given = call, given

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.given


def state_of(content: Any) -> bytes:
    """A state with another content."""
    made = Inspection().dump()
    head = made[: 4 + int.from_bytes(made[:4], "big")]
    return head + zlib.compress(pickle.dumps(content))


@pytest.mark.parametrize(
    "content",
    [
        Harmful(os.system, "touch harmed"),
        Harmful(eval, "open('harmed', 'w')"),
        Harmful(getattr, Inspector(), "__class__"),
        Harmful(__import__, "os"),
        Harmful(json.loads, "1"),
        Harmful(Recorder, Path("harmed")),
    ],
    ids=lambda each: f"{each.call.__name__}-{each.given[-1]}",
)
def test_a_state_that_somebody_else_wrote_does_nothing(content: Harmful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError):
        Inspection.load(state_of((content, None)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", [b"", b"\0\0\0\2{}", os.urandom(500), Inspection().dump()[:-9]])
def test_a_damaged_state_is_none(data: bytes) -> None:
    with pytest.raises(StateError):
        Inspection.load(data)
