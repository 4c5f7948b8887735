"""The analysis by a process of its own is the same as the one here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.ui.tui.model import background_analysis
from barnabas.ui.tui.model.analysis import Analysis, CaptureAnalysis
from barnabas.ui.tui.model.background_analysis import BackgroundAnalysis
from harness import wire
from harness.waiting import until

LONG_AGO = 1_000_000_000_000_000_000


@pytest.fixture
def far(story: Capture) -> Iterator[BackgroundAnalysis]:
    made = BackgroundAnalysis(story)
    yield made
    made.stop()


def read_on(analysis: Analysis) -> None:
    def all_read() -> bool:
        analysis.step(0.05)
        return not analysis.unread

    until(all_read, "it is never read to its end")


def test_it_is_the_same_analysis(story: Capture, far: BackgroundAnalysis) -> None:
    local = CaptureAnalysis.of(story)
    read_on(local)
    read_on(far)
    near, there = local.result, far.result
    assert there.read == near.read > 10 and there.progress == near.progress == 1.0 and not there.fault
    assert [str(f) for f in there.findings] == [str(f) for f in near.findings]
    assert len(there.findings) > 0 and (there.high, there.medium) == (near.high, near.medium)
    assert there.connections.keys() == near.connections.keys() and there.traffic.now_ns == near.traffic.now_ns
    groups, expected = there.groups.all(), near.groups.all()
    assert [(g.id, g.state, len(g.rebalances)) for g in groups] == [
        (g.id, g.state, len(g.rebalances)) for g in expected
    ]
    assert groups and [there.groups.polled_ns(m) for m in groups[0].members.values()] == [
        near.groups.polled_ns(m) for m in expected[0].members.values()
    ]


def test_what_one_side_has_ended_in_a_recording_that_is_still_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, flush_seconds=0)
    for number in (1, 2, 3):
        recorder.opened(number, LONG_AGO, ("10.0.0.1", 50000 + number), ("10.0.0.9", 9092))
        recorder.data(number, 0, LONG_AGO + 1, wire.request(18, 0, 1))
        recorder.ended(number, 1, LONG_AGO + 2)
    recorder.flush()
    with open_capture(tmp_path) as capture:
        analysis = CaptureAnalysis.of(capture)
        read_on(analysis)
        assert capture.live and [finding.id for finding in analysis.result.findings] == ["closed-on-first-request"]
        assert {conn.by for conn in analysis.result.connections.values()} == {"broker"}
    recorder.close()


def test_without_the_process_it_is_read_here(story: Capture, far: BackgroundAnalysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_analysis.sys, "executable", "/nowhere/python")
    near = CaptureAnalysis.of(story)
    read_on(near)
    read_on(far)
    assert far.result.read == near.result.read


def test_the_process_ends_when_it_is_no_longer_wanted(far: BackgroundAnalysis) -> None:
    far.step(0.01)
    assert far._process is not None
    pid = far._process.pid
    far.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
