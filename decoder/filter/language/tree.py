"""The two trees of a filter: its syntax (`SyntaxNode`, from the parser), and its meaning (`Node`, from `check`), with fields and
typed values. Back ends read `Node`. Both share `Not`, `And` and `Or`.

Nodes are immutable and know their place in the text. A `Test` is true of an exchange if any of the field's values passes;
`negated` is the opposite of that. Within `SameTopicPartition`, tests are about one topic-partition at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar, Union

from .literals import Endpoint, TimeOfDay
from .patterns import Pattern

if TYPE_CHECKING:
    from .fields import Field
    from .paths import Path


Term = TypeVar("Term")


@dataclass(frozen=True, slots=True)
class Not(Generic[Term]):
    term: Term
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class And(Generic[Term]):
    terms: tuple[Term, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Or(Generic[Term]):
    terms: tuple[Term, ...]
    start: int
    end: int


# --- syntax -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Word:
    """A name, a value or a text. `unit`: of a number with a space before its unit, as in ``50 ms``."""

    text: str
    quoted: bool
    start: int
    end: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Range:
    """``low..high``, both included."""

    low: Word
    high: Word

    @property
    def start(self) -> int:
        return self.low.start

    @property
    def end(self) -> int:
        return self.high.end


@dataclass(frozen=True, slots=True)
class ValueSet:
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
    value: Word | Range | ValueSet | None
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
    """A text alone, which is searched for everywhere."""

    word: Word
    start: int
    end: int


SyntaxNode = Union[Comparison, Quantified, Text, "Not[SyntaxNode]", "And[SyntaxNode]", "Or[SyntaxNode]"]


# --- meaning ------------------------------------------------------------------------------------------------


class Op(StrEnum):
    """How a value is tested."""

    TRUE = "is there"
    """The field alone: a flag is true, an error is not 0, anything else has a value that is not empty."""
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

Scalar = int | float | str | bool | bytes | TimeOfDay | Endpoint
"""Times and durations are whole ns, sizes bytes, APIs, errors and codecs their numbers."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """From `low` to `high`, both included."""

    low: int | float | TimeOfDay
    high: int | float | TimeOfDay


@dataclass(frozen=True, slots=True)
class FieldValue:
    """The value of another field."""

    field: Field


Value = Scalar | Pattern | FieldValue | tuple[Scalar | ValueRange, ...] | None


@dataclass(frozen=True, slots=True)
class Test:
    """A test of one field. `value` is a tuple for IN, None for TRUE."""

    field: Field | Path
    op: Op
    value: Value
    negated: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Every:
    """``all(...)``: there are values, and every one passes `test`, which is negated per value."""

    test: Test
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Some:
    """``any(... != v)``: some value fails `test`. (``any`` of a test that is not negated is the test.)"""

    test: Test
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Search:
    """`text` occurs in a name or value of what was decoded, in any case of letters."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SameTopicPartition:
    """`term`, which consists of And, Or and Test, is true of one topic-partition."""

    term: Node
    start: int
    end: int


Node = Union[Test, Every, Some, Search, SameTopicPartition, "Not[Node]", "And[Node]", "Or[Node]"]
