"""Text from the wire made safe for a terminal. Everything that is shown passes through here.

A topic, a client id or an error message can hold anything, also sequences that would move the cursor, set the
clipboard (OSC 52) or turn the reading direction around. Whatever is not printable is shown as the escape that
Python would write for it (``\\x1b``, ``\\u202e``), which is plain ASCII.
"""

from __future__ import annotations

import os
from typing import TextIO

from rich.cells import cell_len, set_cell_size


def visible(text: str) -> str:
    """`text` without control, format, surrogate and unassigned characters or odd spaces; each becomes its escape.

    ``str.isprintable`` is false for exactly these: C0, DEL, C1, bidi controls, zero-width and line separators,
    lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def visible_lines(text: str) -> list[str]:
    """Its lines, each `visible`."""
    return [visible(line) for line in text.splitlines()]


def has_colours(stream: TextIO) -> bool:
    """Whether to print colours there: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def fit(text: str, width: int, right: bool = False) -> str:
    """`text` (already `visible`) in exactly `width` terminal cells: padded, or cut with an ellipsis."""
    size = len(text) if text.isascii() else cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    return " " * (width - size) + text if right else text + " " * (width - size)
