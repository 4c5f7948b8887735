"""Keys are pressed thousands of times, and Textual's pilot waits for two fiftieths of a second at least behind each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import textual._wait
import textual.screen
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot


@pytest.fixture(scope="session", autouse=True)
def finer_steps() -> Iterator[None]:
    """The pilot looks more often whether all that a key has set off is done, by the same measure (a twentieth of the time
    that passed was used), and the screen is painted between two of its looks, as it is with Textual's own figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textual._wait, "SLEEP_GRANULARITY", 1 / 100)
        patch.setattr(textual._wait, "SLEEP_IDLE", 1 / 100 / 20)
        patch.setattr(textual.screen, "UPDATE_PERIOD", 1 / 120)
        yield


@pytest.fixture(scope="session", autouse=True)
def each_key_is_handled_before_the_next() -> Iterator[None]:
    """The pilot judges by the time the process used, which a busy machine makes small: a key could come before the dialog
    that the key before it opens. The screen is painted when the last one has been handled."""

    async def press(pilot: Pilot[Any], *keys: str) -> None:
        for key in keys:
            await press_one(pilot, key)
        await pilot.pause()

    press_one = Pilot.press
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pilot, "press", press)
        yield


@pytest.fixture(scope="session", autouse=True)
def styles_parsed_once() -> Iterator[None]:
    """The rules of Textual's widgets are the same in every app of one theme: the next test does not parse them again."""
    parse = Stylesheet._parse_rules
    of_themes: dict[frozenset[tuple[str, str]], dict[Any, Any]] = {}

    def parse_rules(sheet: Any, *given: Any, **named: Any) -> Any:
        if getattr(sheet, "parsed_with", None) is not sheet._variables:
            sheet.parsed_with = sheet._variables
            sheet.parsed = of_themes.setdefault(frozenset(sheet._variables.items()), {})
        key = given, tuple(named.items())
        if key not in sheet.parsed:
            sheet.parsed[key] = parse(sheet, *given, **named)
        return sheet.parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_rules)
        yield
