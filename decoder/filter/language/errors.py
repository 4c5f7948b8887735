"""The errors of filters, with their place and suggestions."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

from ...errors import DecoderError

_MARGIN = 50


class FilterError(DecoderError):
    """A filter is wrong. `message`: what is wrong, and what is possible instead. It is about ``text[start:end]``."""

    def __init__(self, message: str, text: str, start: int, end: int | None = None) -> None:
        super().__init__(message)
        self.message, self.text = message, text
        self.start = max(0, min(start, len(text)))
        self.end = max(self.start, min(self.start + 1 if end is None else end, len(text)))

    def __str__(self) -> str:
        return f"{self.message} (at character {self.start + 1})"

    def pointer(self) -> str:
        """Two lines: the filter, or a window of a long one, and carets below the place of the error."""
        low = max(0, self.start - _MARGIN)
        high = min(len(self.text), max(self.start + _MARGIN, min(self.end, self.start + 2 * _MARGIN)))
        head, tail = "..." if low else "", "..." if high < len(self.text) else ""
        window = "".join(c if c.isprintable() else " " for c in self.text[low:high])
        split = self.start - low
        under = " " * (len(head) + _cells(window[:split]))
        carets = "^" * max(1, _cells(window[split : min(self.end, high) - low]))
        return f"{head}{window}{tail}\n{under}{carets}"


def _cells(text: str) -> int:
    """How many terminal cells a text takes, approximately: wide letters two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def nearest(word: str, known: Iterable[str]) -> str:
    """``", did you mean X?"``, or nothing."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word[:100].lower(), list(by_lower), 1, 0.6)
    return f", did you mean {by_lower[close[0]]}?" if close else ""
