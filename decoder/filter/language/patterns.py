"""Regular expressions that take bounded time.

Python's engine backtracks, which takes exponential time for some patterns on hostile text. Patterns that could are refused.
Each open repeat (``*``, ``+``, ``{2,}``) multiplies the time by the length of the text, and so does a search that does not begin
with ``^`` or ``.*``: the more of them a pattern has, the fewer characters of a value it sees. No search takes more than about
`WORK` steps. When traffic waits for the result, all searches together have a deadline too (`within`).
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...errors import DecoderError

MAX_PATTERN = 1000
WORK = 1 << 24
"""Steps that one search may take: tens of milliseconds."""
MOST_SEEN, LEAST_SEEN = 1 << 16, 16
"""How many characters of a value a pattern sees; a pattern that could see fewer than the least is refused."""
MOST_REPEATS = 4
_MOST_WAYS = 10_000
_OPEN = 64  # a repeat with more choices than this counts as open

# The parser of `re`. It is private; its trees have had the same form since Python 2.
_parser: Any = importlib.import_module("re._parser")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class PatternTimeout(Exception):
    """The searches of one decision have taken too long."""


class _Deadline:
    at = 0.0
    clock: Callable[[], float] | None = None
    """The clock; None: searches have no deadline."""


@contextmanager
def within(seconds: float, clock: Callable[[], float]) -> Iterator[None]:
    """Searches in this block raise `PatternTimeout` after `seconds` altogether, plus the last one's. For one thread."""
    before = _Deadline.at, _Deadline.clock
    _Deadline.at, _Deadline.clock = clock() + seconds, clock
    try:
        yield
    finally:
        _Deadline.at, _Deadline.clock = before


class PatternError(DecoderError):
    """A pattern that is no regular expression, or could take too long."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern. `search` sees the first `seen` characters of a text."""

    text: str
    seen: int = field(compare=False)
    lines: bool = field(default=False, compare=False)
    """It begins with ``.*``, so that every match begins at the start of a line."""
    whole: int = field(default=0, compare=False)
    """The longest text for `matches`."""

    def search(self, text: str) -> bool:
        """Whether it matches anywhere. Upper and lower case differ unless it begins with ``(?i)``."""
        _check_deadline()
        compiled, seen = _compiled(self.text), self.seen
        if not self.lines:
            return compiled.search(text, 0, seen) is not None
        at = 0
        while compiled.match(text, at, seen) is None:
            at = text.find("\n", at, seen) + 1
            if not at:
                return False
        return True

    def matches(self, text: str) -> bool:
        """Whether it matches all of a text; False for one longer than `whole`."""
        _check_deadline()
        return len(text) <= self.whole and _compiled(self.text).fullmatch(text) is not None


def _check_deadline() -> None:
    if _Deadline.clock is not None and _Deadline.clock() > _Deadline.at:
        raise PatternTimeout("the regular expressions of the rules take too long on this message")


@lru_cache(256)
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text)


def pattern(text: str) -> Pattern:
    """The pattern of a text. Raises `PatternError`."""
    if len(text) > MAX_PATTERN:
        raise PatternError(f"a regular expression may have at most {MAX_PATTERN} characters, but this one has {len(text)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # for signs whose meaning may change
            parsed = _parser.parse(text)
            _compiled(text)
    except re.error as error:
        raise PatternError(f"not a regular expression: {error}") from None
    except Warning as warning:
        raise PatternError(f"an ambiguous regular expression: {warning}; put \\ in front") from None
    except (OverflowError, RecursionError, ValueError) as error:
        raise PatternError(f"not a usable regular expression: {error}") from None
    cost = _Cost()
    cost.add(parsed, repeated=False)
    if cost.repeats > MOST_REPEATS:
        raise PatternError(f"more than {MOST_REPEATS} open repeats (*, +) in a regular expression take too long")
    if cost.ways > _MOST_WAYS:
        raise PatternError("a regular expression with so many alternatives and optional parts takes too long")
    head: tuple[Any, Any] = parsed[0] if len(parsed) else (None, ())
    first, what = head
    lines = str(first) in _REPEATS[:2] and what[:1] == (0,) and what[1] >= _OPEN and str(what[2][0][0]) == "ANY" and len(what[2]) == 1
    begins = str(first) == "AT" and "AT_BEGINNING" in str(what) and not parsed.state.flags & re.MULTILINE
    seen = _most(cost.ways, cost.repeats + (0 if begins or lines else 1))
    if seen < LEAST_SEEN:
        raise PatternError("a regular expression with so many repeats, alternatives and optional parts takes too long")
    return Pattern(text, seen, lines, _most(cost.ways, cost.repeats))


def _most(ways: int, power: int) -> int:
    """The length whose power, times `ways`, is `WORK`."""
    return min(int((WORK / ways) ** (1 / max(power, 1)) + 1e-6), MOST_SEEN)


class _Cost:
    """Counts the choices that matching can backtrack over."""

    def __init__(self) -> None:
        self.repeats = 0
        self.ways = 1

    def add(self, parsed: Any, repeated: bool) -> None:
        """Add a part. `repeated`: it is inside an open repeat."""
        for operation, argument in parsed:
            name = str(operation)
            if name in _REPEATS:
                low, high, inner = argument
                self.repeat(int(low), int(high), inner, repeated)
            elif name == "BRANCH":
                if repeated:
                    raise PatternError(
                        "alternatives of several letters within a repeat, such as (ab|a.)*, can take forever"
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
                raise PatternError("conditions on groups are not supported in a filter")
            elif name == "GROUPREF":
                raise PatternError("references to groups are not supported in a filter")

    def repeat(self, low: int, high: int, inner: Any, repeated: bool) -> None:
        choices = high - low + 1
        fixed = choices == 1
        least, most = inner.getwidth()
        if not fixed and repeated:
            raise PatternError("a repeat within a repeat, such as (a+)+, can take forever")
        if (not fixed and choices > 2 and least != most) or (fixed and high > 1 and least != most):
            raise PatternError("a repeat of something without a fixed length, such as (a?b)*, can take forever")
        if choices > _OPEN:
            self.repeats += 1
        else:
            self.times(choices)
        self.add(inner, repeated or high > 1)

    def times(self, choices: int) -> None:
        self.ways = min(self.ways * choices, _MOST_WAYS + 1)
