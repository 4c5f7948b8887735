"""The table of keys: no two actions hear the same key, users change them in a file, and every action is there."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Capture
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.dialogs.help import HelpScreen
from barnabas.ui.tui.exchange.comparison import ComparisonScreen
from barnabas.ui.tui.exchange.conversation import ConversationScreen
from barnabas.ui.tui.exchange.detail import DetailScreen
from barnabas.ui.tui.exchange.exchange_list import ExchangeList
from barnabas.ui.tui.exchange.resend import ResendScreen
from barnabas.ui.tui.exchange.value_screen import ValueScreen
from barnabas.ui.tui.keys import KEYS, KeyConflict, bar_words, keymap
from barnabas.ui.tui.model.settings import BadSettings, parse_settings, read_settings
from barnabas.ui.tui.views import PLACES
from barnabas.ui.tui.widgets.field_tree import FieldTree
from barnabas.ui.tui.widgets.hex_view import HexView
from barnabas.ui.tui.widgets.styled import KeyBar
from textual import events
from textual.pilot import Pilot

from ..support.awaiting import text_of as text
from ..support.awaiting import until_true
from ..support.driving import drive, exchanges, on_screen


def owner(context: str) -> Any:
    fixed = {
        "app": BarnabasApp, "list": ExchangeList, "detail": DetailScreen, "tree": FieldTree, "hex": HexView,
        "dialogue": ConversationScreen, "compare": ComparisonScreen, "resend": ResendScreen, "value": ValueScreen,
    }  # fmt: skip
    if context in fixed:
        return fixed[context]
    if context == "view":
        return import_module("barnabas.ui.tui.views.view").View
    place = next(p for p in PLACES if p.module == context)
    return getattr(import_module(f"barnabas.ui.tui.views.{context}"), place.cls)


def test_every_key_has_an_action_that_exists_and_no_two_share_one() -> None:
    assert keymap({}) == {}
    for key in KEYS:
        assert hasattr(owner(key.context), f"action_{key.action.partition('(')[0]}"), key.id
        assert key.words


MEANINGS = {
    "y": "copy the value under the cursor",
    "Y": "copy, choosing what",
    "s": "only exchanges of",
    "S": "as a dialogue",
    "x": "export",
    "b": "bytes: ",
    "c": "columns",
}


@pytest.mark.parametrize("letter", MEANINGS)
def test_a_letter_means_the_same_on_every_screen(letter: str) -> None:
    found = [key for key in KEYS if letter in key.keys.split(",") and key.context != "compare"]
    assert found and all(MEANINGS[letter] in key.words for key in found), found


def test_h_goes_to_the_left() -> None:
    assert {key.keys for key in KEYS if "h" in key.keys.split(",")} == {"left,h"}


@pytest.mark.parametrize("context", [*(place.module for place in PLACES), "detail", "dialogue"])
def test_a_key_bar_fits_into_120_columns(context: str) -> None:
    contexts = {"detail": ("detail",), "dialogue": ("dialogue", "list")}.get(context, (context, "list", "app"))
    bar, words = KeyBar(), bar_words(contexts, {})
    bar.keys(*words, *([("?", "help")] if "app" not in contexts else []))
    assert sum(len(key) + len(word) + 3 for key, word in bar._pairs) <= 120


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"exchanges.follow": "E"}, "E is the key of both exchanges.follow and exchanges.errors"),
        ({"exchanges.filter": "Q"}, "is the key of both"),
        ({"exchanges.fly": "x"}, "there is no action 'exchanges.fly'"),
        ({"exchanges.follow": " "}, "has no key"),
    ],
)
def test_conflicts_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(KeyConflict, match=message):
        keymap(given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("theme = 'pink'", "no theme 'pink'"),
        ("them = 'dark'", "'them' is not a setting"),
        ("columns = ['Nr']", "no column 'Nr'"),
        ("[filters]\na = 'api == Prodce'", "did you mean Produce"),
        ("[[colours]]\nfilter = 'err'\nrole = 'loud'", "no role 'loud'"),
        ("[keys]\n'exchanges.follow' = 'E'", "is the key of both"),
        ("theme = ", "Invalid value"),
    ],
)
def test_bad_settings_name_what_to_change(text: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        parse_settings(text)


def test_a_file_of_settings(tmp_path: Path) -> None:
    path = tmp_path / "ui.toml"
    path.write_text('theme = "light"\n[keys]\n"exchanges.filter" = "/ f9"\n[[colours]]\nfilter = "err"\nrole = "lit"\n')
    found = read_settings(path)
    assert (found.theme, found.keys, found.colours) == ("light", {"exchanges.filter": "slash,f9"}, (("err", "lit"),))
    assert read_settings() == parse_settings("")
    with pytest.raises(BadSettings, match="no such file"):
        read_settings(tmp_path / "none.toml")


@on_screen(size=(100, 44), settings=parse_settings("[keys]\n'exchanges.errors' = 'f9'"))
async def test_a_key_of_the_user_works_and_is_in_the_help(pilot: Pilot[None]) -> None:
    await pilot.press("E")
    assert not exchanges(pilot).errors_only
    await pilot.press("f9")
    assert exchanges(pilot).errors_only
    await pilot.press("question_mark")
    assert isinstance(pilot.app.screen, HelpScreen) and "f9 " in text(pilot)


@pytest.mark.slow
@on_screen(size=(100, 44))
async def test_the_palette_does_what_keys_do(pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+p", *"errors", "space", *"only", "enter")
    await until_true(pilot, lambda: exchanges(pilot).errors_only)
    await pilot.press("colon", *"go", "space", "7", "enter")
    screen = exchanges(pilot)
    await until_true(pilot, lambda: screen.view.number(screen.list.cursor) == 6)
    await pilot.press("colon", *"theme", "space", *"light", "enter")
    assert pilot.app.theme == "barnabas-light"
    await pilot.press("colon", *"filter", "space", *"nonsense", "space", "x", "enter")
    assert "filter: " in text(pilot)
    await pilot.press("escape", "colon", *"filter", "space", *"err", "enter")
    await until_true(pilot, lambda: exchanges(pilot).wanted == "err" and len(exchanges(pilot).view) == 4)


def test_marks_and_comments_are_kept_beside_the_capture(story: Capture) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("j", "m", "j", "j", "semicolon", *"odd", "enter")
        assert "* odd" in text(pilot) and "2 marked" in text(pilot)
        await pilot.press("g", "apostrophe")
        assert exchanges(pilot).list.cursor == 1
        await pilot.press("m", "apostrophe", "m")
        assert "marked" not in text(pilot)

    drive(story, steps, (100, 44))
    assert story.path.joinpath("marks.json").read_text() == "{}"


@on_screen(size=(100, 44))
async def test_highlighting_hides_nothing(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    await pilot.press("H", *"err", "enter", "n")
    assert len(screen.view) == 11 and screen.list.source.tint_of(screen.list.current) == "lit"
    first = screen.list.cursor
    await pilot.press("n", "N")
    assert screen.list.cursor == first


def test_a_screen_that_opened_without_the_focus_hears_keys_when_it_comes(story: Capture) -> None:
    """A terminal that reports its focus, left while the capture was being opened."""

    async def go() -> None:
        app = BarnabasApp(story, title="story")
        async with app.run_test() as pilot:
            app.post_message(events.AppBlur())
            await pilot.pause()
            await pilot.press("2", "1", "3")
            app.post_message(events.AppBlur())
            await pilot.pause()
            app.action_view(1)
            await pilot.pause()
            screen = exchanges(pilot)
            screen.set_focus(None)
            app.post_message(events.AppFocus())
            await pilot.press("j", "j")
            assert screen.list.cursor == 2

    asyncio.run(go())
