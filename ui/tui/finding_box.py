"""One of many names: type a part of it, Enter takes the one under the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .choosing import Choosing
from .columns import Cell
from .safe import fit, visible


class Name(NamedTuple):
    """A name, and what it means."""

    name: str
    words: str = ""


class Find(Choosing[str | None]):
    """The name that was taken, or None."""

    DEFAULT_CSS = """
    Find { align: center middle; }
    Find Vertical { width: 90%; max-width: 110; height: auto; background: $panel; border: round $primary; }
    Find Input, Find Input:focus { border: none; height: 1; background: $panel; }
    """

    def __init__(self, question: str, names: Sequence[Name]):
        super().__init__(visible(question), "a part of the name", "Enter: this one  Esc: back")
        self.names = names
        self._found: list[Name] = list(names)

    def fitting(self, text: str) -> list[list[Cell]]:
        wanted = text.lower().replace(" ", "_")
        named = [each for each in self.names if wanted in each.name.lower()]
        self._found = named or [each for each in self.names if text.lower() in each.words.lower()]
        wide = max((len(each.name) for each in self.names), default=0) + 2
        return [[(fit(visible(each.name), wide), "name"), (visible(each.words), "muted")] for each in self._found]

    def take(self, position: int) -> None:
        if position < len(self._found):
            self.dismiss(self._found[position].name)
