"""The gate between traffic and terminal."""

from __future__ import annotations

import unicodedata

import pytest
from barnabas.ui.safe import fit, visible
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-1", "orders-1"),
        ("größe 温度 😀", "größe 温度 😀"),
        ("[bold red]x[/]", "[bold red]x[/]"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\x7fb\x00c", r"a\x7fb\x00c"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u202egpj\u2069", r"\u202egpj\u2069"),
        ("\u200b\u2028\ufeff", r"\u200b\u2028\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(alphabet=st.characters(), max_size=40))
def test_nothing_but_printable_characters_comes_out(text: str) -> None:
    out = visible(text)
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for c in out)
    assert visible(out) == out


@given(st.text(max_size=20), st.integers(1, 12), st.booleans())
def test_fit_fills_the_width_exactly(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(visible(text), width, right)) == width
