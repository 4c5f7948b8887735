"""A line to type a part of a name into, and below it what fits: the arrows move, Enter takes the row under the cursor."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from .columns import Cell
from .line_list import LineList, Table
from .safe import visible

MOST = 14
"""Rows that are seen at once."""
Result = TypeVar("Result")


class Choosing(ModalScreen[Result]):
    """A subclass says what fits a text (`fitting`), and what is done with the row that was taken (`take`)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "Back", show=False),
        Binding("up", "move(-1)", "Up", show=False, priority=True),
        Binding("down", "move(1)", "Down", show=False, priority=True),
    ]

    def __init__(self, title: str, hint: str, keys: str):
        super().__init__()
        self._heading, self._hint, self._keys = title, hint, keys
        self._table = Table()

    # --- for subclasses ------------------------------------------------------------------------------------

    def fitting(self, text: str) -> list[list[Cell]]:
        """The rows for what was typed."""
        raise NotImplementedError

    def take(self, position: int) -> None:
        """Enter on this row; there may be none."""
        raise NotImplementedError

    # --- the box -------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        box = Vertical(Input(placeholder=self._hint), self._table)
        box.border_title, box.border_subtitle = Text(self._heading), self._keys
        yield box

    def on_mount(self) -> None:
        self._table.can_focus = False
        self._look("")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._look(event.value)

    def _look(self, text: str) -> None:
        rows = self.fitting(text)
        self._table.styles.height = max(1, min(len(rows), MOST))
        self._table.cursor = 0
        self._table.show(rows or [[(f"nothing is called {visible(text)!r}", "error")]])
        self._table.move_to(0)

    def action_move(self, step: int) -> None:
        self._table.move_to(self._table.cursor + step)

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        event.stop()
        self.take(self._table.cursor)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.take(self._table.cursor)

    def action_give_up(self) -> None:
        self.dismiss(None)
