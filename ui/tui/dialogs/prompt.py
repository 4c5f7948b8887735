"""The prompt (``:`` and Ctrl-P): every action of a screen by its name, and commands with arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from textual.app import App, ComposeResult
from textual.screen import ModalScreen
from textual.widgets import Input

from ....decoder.filter import FilterError
from ...safe import fit, visible
from ..application import Application, AppScreen, application
from ..keys import KEYS, Key, shown
from ..model.filter_terms import resolve_filter
from ..widgets.palette import THEMES, Cell
from .dialogs import ChoiceBox


class Command(NamedTuple):
    """`takes`: its argument, for people; `run(app, argument)` returns what is wrong with it, or ""."""

    name: str
    takes: str
    meaning: str
    run: Callable[[Application, str], str]


def _filter(app: Application, text: str) -> str:
    try:
        if text:
            resolve_filter(text, app.settings.filters)
    except FilterError as fault:
        return str(fault)
    app.show_exchanges(text) if text else app.clear_filter()
    return ""


def _theme(app: Application, text: str) -> str:
    if text not in THEMES:
        return f"there is no theme {text!r}; there are {', '.join(THEMES)}"
    app.use_theme(text)
    return ""


def _go(app: Application, text: str) -> str:
    count = len(app.session.capture.rows())
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= count:
        return f"a number from 1 to {count}"
    app.show_exchanges("", int(text) - 1)
    return ""


def _edit(app: Application, text: str) -> str:
    if text not in ("on", "off"):
        return "on or off"
    if app.session.control is None:
        return "there is no proxy to change: " + ("--attach newest shows one" if app.session.grows else "this is a recording")
    app.session.allow_edit = text == "on"
    app.session.add_to_log(f"changing traffic is {'allowed' if text == 'on' else 'off'}")
    return ""


COMMANDS: tuple[Command, ...] = (
    Command("filter", "FILTER", "show exchanges that match a filter; without one: all", _filter),
    Command("go", "NUMBER", "go to the exchange with this number", _go),
    Command("theme", "|".join(THEMES), "change the colours", _theme),
    Command("edit", "on|off", "allow, or forbid, to change traffic and rules", _edit),
)
"""What takes an argument; everything else is an action of `KEYS`."""


class Prompt(ModalScreen[None]):
    """Asks for a part of a name, and runs what is chosen."""

    DEFAULT_CSS = """
    Prompt { align: center top; }
    Prompt Vertical { width: 90%; max-width: 100; height: auto; margin-top: 2; background: $panel; border: round $primary; }
    Prompt Input { border: none; height: 1; background: $panel; }
    Prompt Table { height: auto; }
    """

    def __init__(self, below: AppScreen[Any]):
        super().__init__()
        self._below = below
        contexts = ("detail", "tree", "app") if below.context == "detail" else below.key_contexts
        self._actions = [key for key in KEYS if key.context in contexts and key.id not in ("app.prompt", "app.palette")]
        self._found: list[Command | Key] = []

    def compose(self) -> ComposeResult:
        yield ChoiceBox("Do", "part of a name, or: filter err", "Enter: run  Esc: back", self._matching, self._take)

    def _matching(self, text: str) -> list[list[Cell]]:
        word, _, rest = text.strip().partition(" ")
        wanted = text.lower().split()
        self._found = list[Command | Key](
            c for c in COMMANDS if c.name.startswith(word.lower()) and (not rest or c.name == word)
        )
        if not (rest and self._found):
            self._found += [
                key for key in self._actions
                if all(part in f"{key.id.partition('.')[2]} {key.words}".replace("_", " ").lower() for part in wanted)
            ]  # fmt: skip
        rows: list[list[Cell]] = []
        for each in self._found[:200]:
            if isinstance(each, Command):
                rows.append([(fit(f"{each.name} {each.takes}", 34), "name"), (f" {each.meaning}", "muted")])
            else:
                keys = shown(application(self.app).settings.keys.get(each.id, each.keys))
                rows.append([(fit(each.id.partition(".")[2].replace("_", " "), 20), "name"), (fit(keys, 14), "key"),
                             (f" {each.words}", "muted")])  # fmt: skip
        return rows

    def _take(self, position: int) -> None:
        if position >= len(self._found):
            return
        chosen = self._found[position]
        _, _, rest = self.query_one(Input).value.strip().partition(" ")
        if isinstance(chosen, Command):
            fault = chosen.run(application(self.app), rest.strip())
            if fault:
                self.notify(visible(f"{chosen.name}: {fault}"), severity="error", timeout=4)
                return
            self.dismiss()
            return
        self.dismiss()
        self.app.call_later(_act, self.app, self._below, chosen.action)


async def _act(app: App[Any], screen: AppScreen[Any], action: str) -> None:
    """Run an action where its key would have run it: in the widget with the focus, the screen or the application."""
    name = action.partition("(")[0]
    for target in (screen.focused, screen, app):
        if target is not None and hasattr(target, f"action_{name}"):
            await app.run_action(action, target)
            return
