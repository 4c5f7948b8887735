"""Every key on every screen, at 80x24: it is heard there, it does no harm, and a screen without anything says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from barnabas.captures import Capture, open_capture
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.keys import KEYS, Key
from barnabas.ui.tui.views import PLACES
from harness.recordings import RecordingBuilder
from textual.pilot import Pilot
from textual.widgets import Input

from ..support.awaiting import until_true

ENDS = {"app.quit", "app.stop", "view.leave", "detail.back"}


@pytest.fixture
def capture(request: pytest.FixtureRequest, story: Capture, tmp_path: Path) -> Iterator[Capture]:
    if request.param == "story":
        yield story
        return
    with RecordingBuilder(tmp_path / "empty") as recording:
        recording.open()
    with open_capture(tmp_path / "empty") as empty:
        yield empty


class App(BarnabasApp):
    """Remembers which actions keys have led to."""

    done: ClassVar[list[str]] = []

    async def run_action(self, action: Any, *given: Any, **more: Any) -> bool:
        found = await super().run_action(action, *given, **more)
        if found:  # false where a widget had no use for the key, and others were asked
            self.done.append(action)
        return found


@pytest.mark.parametrize(("capture", "live"), [pytest.param("story", False, marks=pytest.mark.slow), ("nothing", True)], indirect=["capture"])
def test_every_key_of_every_view(capture: Capture, live: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def go() -> None:
        app = App(capture, title="story", live=live)
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            await pilot.pause()
            for number, place in enumerate(PLACES, 1):
                app.action_view(number)
                await settled(pilot)
                empty = app.screen.empty_text()  # type: ignore[attr-defined]
                assert not empty or len(empty.split()) > 5, place.name
                for key in KEYS:
                    wanted = key.context == place.module or (key.context in ("list", "view") and not empty)
                    if wanted and key.id not in ENDS:
                        await pressed(pilot, key, app.screen)
                        await back(pilot, number)

    asyncio.run(go())


@pytest.mark.parametrize("pane", ["tree", pytest.param("hex", marks=pytest.mark.slow)])
def test_every_key_of_an_exchange(
    story: Capture, numbers: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pane: str
) -> None:
    monkeypatch.chdir(tmp_path)

    async def go() -> None:
        app = App(story, title="story")
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            await pilot.pause()
            for key in KEYS:
                if key.context not in ("detail", pane) or key.id in ENDS or (pane == "hex" != key.context):
                    continue
                if getattr(app.screen, "context", "") != "detail":
                    await back(pilot, 1)
                    await pilot.press("escape", "g", *["j"] * numbers["not_leader"], "enter")
                screen: Any = app.screen
                assert screen.context == "detail"
                if pane == "hex":
                    screen.add_class("hex")
                    await pilot.pause()
                    screen.bytes.focus()
                else:
                    screen.response.focus()
                await pilot.pause()
                await pressed(pilot, key, screen)

    asyncio.run(go())


async def pressed(pilot: Pilot[None], key: Key, screen: Any) -> None:
    """Each of the keys of one action, from the same screen."""
    for each in key.keys.split(","):
        App.done.clear()
        await pilot.press(each)
        assert pilot.app.is_running
        assert key.action in App.done, f"{each} is dead on {screen}: {key.id} wanted, {App.done} done"
        while len(pilot.app.screen_stack) > 1 and pilot.app.screen is not screen and screen in pilot.app.screen_stack:
            pilot.app.pop_screen()
            await pilot.pause()


async def back(pilot: Pilot[None], number: int) -> None:
    """To a view, from wherever a key has led."""
    app: Any = pilot.app
    for _ in range(6):
        if isinstance(app.focused, Input):
            await pilot.press("escape")
        if len(app.screen_stack) == 1 and getattr(app.screen, "number", 0) == number:
            return
        if len(app.screen_stack) > 1:
            app.pop_screen()
        else:
            app.action_view(number)
        await pilot.pause()
    raise AssertionError(f"no way back from {app.screen}")


async def settled(pilot: Pilot[None]) -> None:
    """The capture has been read, and counted where the view shows counts."""
    app: Any = pilot.app
    await pilot.pause(0.01)
    counted = not getattr(app.current, "needs_statistics", False)
    await until_true(pilot, lambda: not app.session.analysis.unread and (counted or not app.session.statistics.pending))
