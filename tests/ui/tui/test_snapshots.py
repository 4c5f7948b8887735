"""Whole screens as they were looked at and found right, letter by letter and colour by colour: `snapshots/`.

For each size there are the letters (``80x24.txt``) and, for a theme with colours and the one without, where which style
stands (``80x24.dark.styles``: a legend, then for each screen its lines as runs of styles, lines alike in one).

``BARNABAS_SNAPSHOTS=write`` writes them anew; look at the difference before it is kept.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Capture
from barnabas.ui.tui.app import BarnabasApp
from harness.run.slices import thin
from rich.style import Style
from textual.pilot import Pilot
from textual.widgets import Input

FOLDER = Path(__file__).with_name("snapshots")
WRITE = os.environ.get("BARNABAS_SNAPSHOTS") == "write"
THEMES = ("dark", "mono")
SCREENS = (
    ("exchanges", ["1"]),
    ("filter", ["slash", *"api", "space", "equals_sign"]),
    ("columns", ["escape", "c"]),
    ("prompt", ["escape", "colon", *"sort"]),
    ("connections", ["escape", "2"]),
    ("clients", ["v"]),
    ("groups", ["3"]),
    ("versions", ["4"]),
    ("problems", ["5"]),
    ("latency", ["6"]),
    ("rules", ["7"]),
    ("log", ["8"]),
    ("help", ["question_mark"]),
    ("exchange", ["escape", "1", "j", "j", "enter", "b"]),
    ("bytes", ["tab", "tab", "G"]),
    ("related", ["r"]),
    ("why", ["escape", "w"]),
)
Runs = list[tuple[str, int]]
"""One line: styles and over how many cells each goes."""


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "size",
    [pytest.param((80, 24), marks=pytest.mark.slow), (120, 40), pytest.param((160, 48), marks=pytest.mark.slow)],
    ids=["80x24", "120x40", "160x48"],
)
def test_screens_are_as_they_were_looked_at(story: Capture, size: tuple[int, int]) -> None:
    letters: dict[str, list[str]] = {}
    styles: dict[str, dict[str, list[Runs]]] = {theme: {} for theme in THEMES}

    async def go() -> None:
        app = BarnabasApp(story, title="story")
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            while app.session.analysis.unread:
                app.session.analysis.step(1.0)
            app.session.statistics.step(10.0)
            assert app.current is not None
            app.current.update_view()  # the application has not seen what was read here
            for name, keys in SCREENS:
                await pilot.press(*keys)
                await _settled(pilot)
                for theme in THEMES:
                    app.use_theme(theme)
                    await pilot.pause()
                    strips = app.screen._compositor.render_strips(app.size)
                    styles[theme][name] = [_runs(strip) for strip in strips]
                letters[name] = [strip.text.rstrip() for strip in strips]

    asyncio.run(go())
    name = f"{size[0]}x{size[1]}"
    text = "".join(f"== {screen}\n" + "".join(f"{line}\n" for line in lines) for screen, lines in letters.items())
    path = FOLDER / f"{name}.txt"
    if WRITE:
        path.write_text(text, "utf-8")
    difference = unified_diff(path.read_text("utf-8").split("\n"), text.split("\n"), "kept", "now", lineterm="", n=1)
    assert not (found := "\n".join(difference)), f"{path.name} (BARNABAS_SNAPSHOTS=write keeps it as it is now)\n{found}"
    for theme in THEMES:
        path = FOLDER / f"{name}.{theme}.styles"
        if WRITE:
            path.write_text(_written(styles[theme]), "utf-8")
        changes = list(_changes(_read(path.read_text("utf-8"), size[1]), styles[theme]))
        assert not changes, "\n".join([path.name, *changes[:40]])


async def _settled(pilot: Pilot[None]) -> None:
    """What is worked out in slices is there, and no cursor blinks."""
    screen: Any = pilot.app.screen
    for _ in range(100):
        await pilot.pause()
        screen = pilot.app.screen
        clients = getattr(screen, "clients", None)
        if clients is None or not clients.pending:
            break
    if hasattr(screen, "look"):
        screen.update_view()
    for line in screen.query(Input):
        line.cursor_blink = False
    await pilot.pause()


def _runs(strip: Any) -> Runs:
    found: Runs = []
    for segment in strip:
        style = _style_text(segment.style) if segment.style else ""
        if found and found[-1][0] == style:
            found[-1] = style, found[-1][1] + segment.cell_length
        elif segment.cell_length:
            found.append((style, segment.cell_length))
    return found


def _style_text(style: Style) -> str:
    """What can be seen of a style."""
    words = [name for name in ("bold", "dim", "italic", "underline", "reverse", "strike") if getattr(style, name)]
    words += [style.color.name] if style.color and not style.color.is_default else []
    words += [f"on {style.bgcolor.name}"] if style.bgcolor and not style.bgcolor.is_default else []
    return " ".join(words)


def _written(screens: dict[str, list[Runs]]) -> str:
    names: dict[str, str] = {}
    body = []
    for screen, lines in screens.items():
        body.append(f"== {screen}")
        first = 0
        for number, runs in enumerate(lines):
            if number + 1 < len(lines) and lines[number + 1] == runs:
                continue
            row = "".join(f"{names.setdefault(style, _name(len(names)))}{count}" for style, count in runs)
            body.append(f"{first}-{number} {row}")
            first = number + 1
    legend = [f"{name} {style}".rstrip() for style, name in names.items()]
    return "\n".join([*legend, *body]) + "\n"


def _name(number: int) -> str:
    return chr(97 + number) if number < 26 else _name(number // 26 - 1) + chr(97 + number % 26)


def _read(text: str, height: int) -> dict[str, list[Runs]]:
    legend, _, rest = text.partition("== ")
    style = {line.partition(" ")[0]: line.partition(" ")[2] for line in legend.splitlines()}
    found: dict[str, list[Runs]] = {}
    for part in rest.split("== "):
        screen, *lines = part.splitlines()
        found[screen] = [[] for _ in range(height)]
        for line in lines:
            where, _, row = line.partition(" ")
            first, last = map(int, where.split("-"))
            runs: Runs = []
            name = count = ""
            for letter in row + "a":
                if letter.isdigit():
                    count += letter
                elif count:
                    runs.append((style[name], int(count)))
                    name, count = letter, ""
                else:
                    name += letter
            found[screen][first : last + 1] = [runs] * (last - first + 1)
    return found


def _changes(kept: dict[str, list[Runs]], now: dict[str, list[Runs]]) -> Iterator[str]:
    """In words, where styles differ: the first place of each line."""
    if list(kept) != list(now):
        yield f"screens: {list(kept)} kept, {list(now)} now"
        return
    for screen, lines in now.items():
        for number, (was, runs) in enumerate(zip(kept[screen], lines, strict=True)):
            before, after = ([style for style, count in each for _ in range(count)] for each in (was, runs))
            at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
            if at is not None:
                yield f"{screen}, line {number}, column {at}: {before[at] or 'plain'!r} kept, {after[at] or 'plain'!r} now"


def test_a_changed_style_is_reported_with_its_place() -> None:
    lines = [[("bold red on #000000", 3), ("", 7)], [("", 10)], [("", 10)], [("dim", 10)]]
    text = _written({"one": lines, "two": lines})
    assert _read(text, 4) == {"one": lines, "two": lines}
    other = [*lines[:3], [("dim", 4), ("bold", 6)]]
    assert list(_changes(_read(text, 4), {"one": lines, "two": other})) == ["two, line 3, column 4: 'dim' kept, 'bold' now"]


@pytest.mark.parametrize("keys", thin([["colon"], ["semicolon"], ["H"], ["slash"], ["enter", "slash"]], 2))
def test_what_is_typed_can_be_seen(story: Capture, keys: list[str]) -> None:
    async def go() -> None:
        app = BarnabasApp(story, title="story")
        async with app.run_test() as pilot:
            await pilot.press(*keys, *"xyzzy")
            shown = [strip.text for strip in app.screen._compositor.render_strips(app.size)]
            line = app.screen.query_one(Input)
            assert line.value == "xyzzy" and any("xyzzy" in each and "nothing" not in each for each in shown), shown

    asyncio.run(go())
