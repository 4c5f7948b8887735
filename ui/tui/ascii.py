"""``--ascii``: everything on the screen in ASCII, whatever drew it: frames, scroll bars, graphs, and texts."""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_LIKE = {"…": "~", "·": ".", "→": ">", "─": "-", "│": "|", "▔": "-", "▁": "_", "•": "*", "━": "=", "▸": ">", "▾": "v"}


@lru_cache(4096)
def ascii_text(text: str) -> str:
    """The same number of cells, in ASCII: corners are ``+``, blocks ``#``, dots of graphs ``:``, other letters ``?``."""
    return text if text.isascii() else "".join(_letter(letter) for letter in text)


def _letter(letter: str) -> str:
    if letter.isascii():
        return letter
    code = ord(letter)
    if letter in _LIKE:
        return _LIKE[letter]
    if 0x2500 <= code < 0x2580:
        return "+"
    if 0x2580 <= code < 0x25A0:
        return "#"
    if 0x2800 <= code < 0x2900:
        dots = (code - 0x2800).bit_count()
        return " .::||##"[min(dots, 7)]
    return "?" * cell_len(letter)


class AsciiFilter(LineFilter):
    """The last thing that sees a line before the terminal does."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(ascii_text(s.text), s.style, s.control) for s in segments]
