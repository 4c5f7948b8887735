"""What pages are made of, for the macros of `parts.html`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

_WORST = ("breaks", "high", "may", "medium", "low", "info", "noise", "works")
_NAMED = 6
_LISTED = 3
LONG = 18
"""Characters of text that may be broken into lines."""


class Line(NamedTuple):
    """A line of an overview. `kind`: a severity or the first word of a verdict; `link`: the anchor of more about it."""

    kind: str
    text: str
    link: str = ""


class Card(NamedTuple):
    """A finding or a verdict: its severity or verdict, what it is, how often; facts by name, of which empty ones are left out. It is folded
    unless `opened`."""

    kind: str
    name: str
    title: str
    often: str
    facts: Sequence[tuple[str, Sequence[str]]]
    opened: bool = False

    @property
    def style(self) -> str:
        """The class of the style: the first word of the verdict."""
        return self.kind.split()[0]


class Cell(NamedTuple):
    """Text, and its class in the style: number, time, text (long), or a severity. `more`: what is folded below the text."""

    text: str
    kind: str = ""
    more: Sequence[str] = ()

    @classmethod
    def of(cls, text: str) -> Cell:
        """Text, which is broken into lines if it is long."""
        return cls(text, "text" if len(text) > LONG else "")

    @classmethod
    def listed(cls, items: Sequence[str]) -> Cell:
        """The first items; the others are folded."""
        shown = items if len(items) <= _LISTED + 1 else items[:_LISTED]  # a single one takes the room of "and 1 more"
        return cls.of(", ".join(shown))._replace(more=items[len(shown) :])


class Table(NamedTuple):
    """Headings and rows. `summary`: what a folded table says of itself; "" for one that stands open."""

    heads: list[Cell]
    rows: list[list[Cell]]
    summary: str = ""


class Section(NamedTuple):
    """A part of a page: its heading, notes and lines; cards, then charts, then tables."""

    title: str = ""
    notes: Sequence[str] = ()
    overview: Sequence[Line] = ()
    cards: Sequence[Card] = ()
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()


def worst_first(lines: Iterable[Line]) -> list[Line]:
    """The lines of an overview in their order."""
    return sorted(lines, key=lambda line: _WORST.index(line.kind))


def names(ids: Iterable[str | None], most: int = _NAMED) -> str:
    """``orders-1, orders-2 and 5 more``."""
    every = sorted({"(no client id)" if each is None else each for each in ids})
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest} more" if rest > 0 else "")
