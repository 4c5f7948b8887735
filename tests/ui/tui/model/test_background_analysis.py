"""The story read by a process of its own is the story."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from barnabas.captures import Capture
from barnabas.ui.tui.model import background_analysis
from barnabas.ui.tui.model.analysis import CaptureAnalysis
from barnabas.ui.tui.model.background_analysis import BackgroundAnalysis
from harness.waiting import until


@pytest.fixture
def far(story: Capture) -> Iterator[BackgroundAnalysis]:
    made = BackgroundAnalysis(story)
    yield made
    made.stop()


def read_on(story: CaptureAnalysis) -> None:
    def all_read() -> bool:
        story.step(0.05)
        return not story.unread

    until(all_read, "it is never read to its end")


def test_it_is_the_same_story(story: Capture, far: BackgroundAnalysis) -> None:
    near = CaptureAnalysis(story)
    read_on(near)
    read_on(far)
    assert far.read == near.read > 10 and far.progress == near.progress == 1.0 and not far.fault
    assert [str(f) for f in far.findings()] == [str(f) for f in near.findings()]
    assert len(far.findings()) > 0 and far.severities() == near.severities()
    assert far.links.keys() == near.links.keys() and far.traffic.now_ns == near.traffic.now_ns
    groups, expected = far.groups().all(), near.groups().all()
    assert [(g.id, g.state, len(g.rebalances)) for g in groups] == [
        (g.id, g.state, len(g.rebalances)) for g in expected
    ]
    assert groups and [far.groups().polled_ns(m) for m in groups[0].members.values()] == [
        near.groups().polled_ns(m) for m in expected[0].members.values()
    ]


def test_without_the_process_it_is_read_here(story: Capture, far: BackgroundAnalysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_analysis.sys, "executable", "/nowhere/python")
    near = CaptureAnalysis(story)
    read_on(near)
    read_on(far)
    assert far.read == near.read


def test_the_process_ends_when_it_is_no_longer_wanted(far: BackgroundAnalysis) -> None:
    far.step(0.01)
    assert far._process is not None
    pid = far._process.pid
    far.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
