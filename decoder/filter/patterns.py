"""Regular expressions that cannot run for ever.

Python's engine goes back over what it has matched, and some patterns let it do so without end on a text that a stranger
chose. So a pattern is looked at before it is used: what could take exponential time is refused, and the more open
repeats (``*``, ``+``, ``{2,}``) it has, the shorter is the part of a value that it sees, since each multiplies the time by
the length.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

MAX_PATTERN = 1000
SEEN = (1 << 16, 1 << 14, 1 << 10, 1 << 8, 1 << 7)
"""How many characters of a value a pattern sees, by its number of open repeats; more than these are refused."""
_MOST_WAYS = 10_000
_OPEN = 64  # a repeat with more choices than this counts as open

# The tree that `re` compiles from. Nothing public gives it; its form has been the same since Python 2.
_parser: Any = importlib.import_module("re._parser")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class PatternError(ValueError):
    """A pattern that is none, or one that could take for ever."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as it was written; `search` looks for it in the first `seen` characters of a text."""

    text: str
    seen: int = field(compare=False)

    def search(self, text: str) -> bool:
        """Whether it is found anywhere. Upper and lower case differ; ``(?i)`` in front makes them equal."""
        return _compiled(self.text).search(text, 0, self.seen) is not None


@lru_cache(256)
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text)


def pattern(text: str) -> Pattern:
    """A pattern from its text; PatternError says why not."""
    if len(text) > MAX_PATTERN:
        raise PatternError(f"a regular expression may have {MAX_PATTERN} characters, this one has {len(text)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of signs that may mean something else one day
            parsed = _parser.parse(text)
            _compiled(text)
    except re.error as error:
        raise PatternError(f"no regular expression: {error}") from None
    except Warning as warning:
        raise PatternError(f"a regular expression that is not clear: {warning}; put \\ in front") from None
    except (OverflowError, RecursionError, ValueError) as error:
        raise PatternError(f"no regular expression that can be used: {error}") from None
    cost = _Cost()
    cost.add(parsed, repeated=False)
    if cost.repeats >= len(SEEN):
        raise PatternError(f"more than {len(SEEN) - 1} open repeats (*, +) in a regular expression take too long")
    if cost.ways > _MOST_WAYS:
        raise PatternError("a regular expression with so many alternatives and optional parts takes too long")
    return Pattern(text, SEEN[cost.repeats])


class _Cost:
    """Counts the choices that matching can go back over."""

    def __init__(self) -> None:
        self.repeats = 0
        self.ways = 1

    def add(self, parsed: Any, repeated: bool) -> None:
        """`repeated`: it stands within an open repeat."""
        for operation, argument in parsed:
            name = str(operation)
            if name in _REPEATS:
                low, high, inner = argument
                self.repeat(int(low), int(high), inner, repeated)
            elif name == "BRANCH":
                if repeated:
                    raise PatternError(
                        "alternatives of several letters within a repeat, such as (ab|a.)*, can take for ever"
                    )
                self.times(len(argument[1]))
                for branch in argument[1]:
                    self.add(branch, repeated)
            elif name == "SUBPATTERN":
                self.add(argument[-1], repeated)
            elif name in ("ASSERT", "ASSERT_NOT"):
                self.add(argument[1], repeated)
            elif name == "ATOMIC_GROUP":
                self.add(argument, repeated)
            elif name == "GROUPREF_EXISTS":
                raise PatternError("conditions on groups are not possible in a filter")
            elif name == "GROUPREF":
                raise PatternError("references to groups are not possible in a filter")

    def repeat(self, low: int, high: int, inner: Any, repeated: bool) -> None:
        choices = high - low + 1
        fixed = choices == 1
        least, most = inner.getwidth()
        if not fixed and repeated:
            raise PatternError("a repeat within a repeat, such as (a+)+, can take for ever")
        if (not fixed and choices > 2 and least != most) or (fixed and high > 1 and least != most):
            raise PatternError("a repeat of something of no fixed length, such as (a?b)*, can take for ever")
        if choices > _OPEN:
            self.repeats += 1
        else:
            self.times(choices)
        self.add(inner, repeated or high > 1)

    def times(self, choices: int) -> None:
        self.ways = min(self.ways * choices, _MOST_WAYS + 1)
