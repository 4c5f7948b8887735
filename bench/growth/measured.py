"""What the parts of this benchmark have in common: their rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One size: what it is called, and per name the cost of one unit with what it is in."""

    size: str
    costs: dict[str, tuple[float, str]]
