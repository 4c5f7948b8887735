"""Damaged captures on the screen: every view is walked through, nothing ends it, and what is read beside the keys comes to
its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Capture, NotACapture, open_capture
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.model import session
from barnabas.ui.tui.views import PLACES
from harness.run.slices import only
from textual.pilot import Pilot
from traffic.packets import as_pcap, as_pcapng, traffic

from ...cli.recordings.test_damaged_captures import CORPUS, RECORDING, flipped, spliced
from ...cli.recordings.test_damaged_frames import RECORDED, with_spoiled_frames
from ..support.awaiting import until_true

DAMAGED: dict[str, Callable[[], bytes]] = CORPUS | {
    "frames that are not what they should be": lambda: with_spoiled_frames(RECORDED / "two-members.pcapng", 13, 0.8),
    "nulls and lengths in transactions": lambda: with_spoiled_frames(RECORDED / "transactions.pcapng", 5, 0.6),
    **{f"pcap, flipped {seed}": lambda seed=seed: flipped(as_pcap(traffic(seed)), seed) for seed in range(20, 26)},  # type: ignore[misc]
    **{f"pcapng, spliced {seed}": lambda seed=seed: spliced(as_pcapng(traffic(seed)), seed) for seed in range(26, 32)},  # type: ignore[misc]
    **{f"pcap, {how}": lambda how=how: as_pcap(traffic(5, how)) for how in ("lost", "late", "doubled")},  # type: ignore[misc]
    **{f"recording, spliced {seed}": lambda seed=seed: spliced(RECORDING.read_bytes(), seed) for seed in range(4)},  # type: ignore[misc]
}


async def story_read(pilot: Pilot[Any]) -> None:
    """Wait until what views say of the whole capture is all there."""
    app: Any = pilot.app
    await until_true(
        pilot,
        lambda: not app.session.analysis.unread and not app.session.capture.live,
        lambda: f"the story stands still at {app.session.analysis.result.progress:.0%}: {app.session.analysis.result.fault or 'no fault'}",
    )


def walk(capture: Capture) -> None:
    """Walk through all views, and through some exchanges; what ends the application is raised."""
    app = BarnabasApp(capture, title="damaged", live=capture.live or capture.growing)

    async def go() -> None:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await pilot.pause()
            for number in range(len(PLACES), 0, -1):
                await pilot.press(str(number))
                if app.current is not None and app.current.needs_analysis:
                    await story_read(pilot)
                await pilot.press("end", "enter", "escape")
            await pilot.press("1", "home")
            for _ in range(3):
                await pilot.press("enter", "x", "escape", "down", "down")
            assert app.is_running

    asyncio.run(go())


@pytest.mark.parametrize(
    "name", only(DAMAGED, "foreign, some beyond 2^63 ns")
)
@pytest.mark.parametrize("far", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["here", "in a process"])
def test_a_damaged_capture_is_walked_through(name: str, far: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if far:
        monkeypatch.setattr(session, "IN_PROCESS", -1)
    path = tmp_path / "capture.pcapng"
    path.write_bytes(DAMAGED[name]())
    try:
        capture = open_capture(path, background=True)
    except NotACapture:
        return
    with capture:
        walk(capture)


def test_timers_that_go_on_after_the_last_screen_end_nothing(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    path.write_bytes(as_pcapng(traffic(3)))
    with open_capture(path) as capture:
        app = BarnabasApp(capture, title="ends", live=True, status=lambda: "reading")

        async def go() -> None:
            async with app.run_test(size=(120, 40)) as pilot:
                await pilot.pause()
                assert app.current is not None

        asyncio.run(go())
        assert not app.screen_stack
        for tick in (app._refresh, app._describe, app._work):
            tick()


@pytest.mark.parametrize("far", [False, True], ids=["here", "in a process"])
def test_the_story_ends_also_where_the_end_of_a_capture_brings_no_exchange(
    far: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture that is read in the background: what comes last may be no exchange."""
    if far:
        monkeypatch.setattr(session, "IN_PROCESS", -1)
    path = tmp_path / "capture.pcapng"
    path.write_bytes(as_pcapng(traffic(3)))
    reading = [True]
    monkeypatch.setattr(Capture, "live", property(lambda capture: reading[0]))
    with open_capture(path) as capture:
        app = BarnabasApp(capture, title="ends", live=True)

        async def go() -> None:
            async with app.run_test(size=(120, 40)) as pilot:
                await pilot.press("4")
                analysis = app.session.analysis
                await until_true(pilot, lambda: analysis.result.read > 0 and not analysis.unread)
                await until_true(pilot, lambda: not app._working._active.is_set())  # type: ignore[attr-defined]
                reading[0] = False
                await story_read(pilot)
                assert analysis.result.progress == 1.0

        asyncio.run(go())
