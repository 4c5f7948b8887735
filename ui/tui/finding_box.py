"""One of many names: type a part of it, Enter takes the one under the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from .line_list import LineList, Table
from .safe import fit, visible

MOST = 14


class Name(NamedTuple):
    """A name, and what it means."""

    name: str
    words: str = ""


class Find(ModalScreen[str | None]):
    """The name that was taken, or None."""

    DEFAULT_CSS = """
    Find { align: center middle; }
    Find Vertical { width: 90%; max-width: 110; height: auto; background: $panel; border: round $primary; }
    Find Input, Find Input:focus { border: none; height: 1; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "Back", show=False),
        Binding("up", "move(-1)", "Up", show=False, priority=True),
        Binding("down", "move(1)", "Down", show=False, priority=True),
    ]

    def __init__(self, question: str, names: Sequence[Name]):
        super().__init__()
        self.question, self.names = visible(question), names
        self._found: list[Name] = list(names)
        self._table = Table()

    def compose(self) -> ComposeResult:
        box = Vertical(Input(placeholder="a part of the name"), self._table)
        box.border_title, box.border_subtitle = Text(self.question), "Enter: this one  Esc: back"
        yield box

    def on_mount(self) -> None:
        self._table.can_focus = False
        self._look("")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._look(event.value)

    def _look(self, text: str) -> None:
        wanted = text.lower().replace(" ", "_")
        named = [each for each in self.names if wanted in each.name.lower()]
        self._found = named or [each for each in self.names if text.lower() in each.words.lower()]
        wide = max((len(each.name) for each in self.names), default=0) + 2
        rows = [[(fit(visible(each.name), wide), "name"), (visible(each.words), "muted")] for each in self._found]
        self._table.styles.height = max(1, min(len(rows), MOST))
        self._table.cursor = 0
        self._table.show(rows or [[(f"nothing is called {visible(text)!r}", "error")]])
        self._table.move_to(0)

    def action_move(self, step: int) -> None:
        self._table.move_to(self._table.cursor + step)

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        event.stop()
        self._take()

    @on(Input.Submitted)
    def _take(self) -> None:
        if self._table.cursor < len(self._found):
            self.dismiss(self._found[self._table.cursor].name)

    def action_give_up(self) -> None:
        self.dismiss(None)
