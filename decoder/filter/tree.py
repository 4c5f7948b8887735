"""What a filter means: fields looked up, values typed. The one tree that every back end reads.

Immutable. A `Test` is true of an exchange if any of the field's values passes (a single-valued field has one or none);
`negated` is the opposite of that. Within `Pairs`, tests are about one topic-partition at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .literals import Clock, Endpoint
from .patterns import Pattern

if TYPE_CHECKING:
    from .fields import Field
    from .paths import Path


class Op(StrEnum):
    """How a value is tested."""

    TRUE = "is there"
    """the field alone: a flag is true, an error is not 0, anything else has a value that is not empty"""
    EQUAL = "=="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    MATCHES = "~"
    CONTAINS = "contains"
    STARTS = "startswith"
    ENDS = "endswith"
    IN = "in"


ORDER = frozenset({Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL})
ON_TEXT = frozenset({Op.MATCHES, Op.CONTAINS, Op.STARTS, Op.ENDS})

Scalar = int | float | str | bool | bytes | Clock | Endpoint
"""Whole numbers stand for everything that is counted: times and durations in ns, sizes in bytes, api keys, codes."""


@dataclass(frozen=True, slots=True)
class Span:
    """From `low` to `high`, both within."""

    low: int | float | Clock
    high: int | float | Clock


@dataclass(frozen=True, slots=True)
class FieldValue:
    """The value is that of another field."""

    field: Field


Value = Scalar | Pattern | FieldValue | tuple[Scalar | Span, ...] | None


@dataclass(frozen=True, slots=True)
class Test:
    """`field` is of the catalogue or a path into a body. `value` is a tuple for IN, None for TRUE."""

    field: Field | Path
    op: Op
    value: Value
    negated: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Every:
    """``all(...)``: there are values, and every one passes `test` (which is not negated outside, but per value)."""

    test: Test
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Some:
    """``any(... != v)``: some value fails `test`. (``any`` of a test that is not negated is that test.)"""

    test: Test
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Search:
    """`text` occurs, in any case of letters, in a name or value of what was decoded."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Pairs:
    """There is one topic-partition of which `term` is true; in `term` are only And, Or and Test."""

    term: Node
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


Node = Test | Every | Some | Search | Pairs | Not | And | Or
