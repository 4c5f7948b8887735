"""What a filter says, as it was written: the tree that the parser makes. Immutable; nodes know their place.

Names are not looked up yet and values have no type: `tree` has the nodes that mean something, `check` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A name, a value or a text. `unit` is a unit that stood apart from its number, as in ``50 ms``."""

    text: str
    quoted: bool
    start: int
    end: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Range:
    """``low..high``, both ends within."""

    low: Word
    high: Word

    @property
    def start(self) -> int:
        return self.low.start

    @property
    def end(self) -> int:
        return self.high.end


@dataclass(frozen=True, slots=True)
class Several:
    """``{a, b, 1..3}``"""

    items: tuple[Word | Range, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field alone (`operator` is ``""``) or compared. Operators: ``== < <= > >= ~ contains startswith endswith in``;
    `negated` for ``!=``, ``!~`` and ``not in``."""

    field: Word
    operator: str
    negated: bool
    value: Word | Range | Several | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Quantified:
    """``any(...)`` or ``all(...)`` around one comparison."""

    every: bool
    comparison: Comparison
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Text:
    """A text alone: search for it everywhere."""

    word: Word
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Not:
    term: Node
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Node, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Node, ...]
    start: int
    end: int


Node = Comparison | Quantified | Text | Not | And | Or
