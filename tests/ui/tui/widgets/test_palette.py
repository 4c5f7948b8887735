"""Every role can be read on everything it may stand on, in every theme with colours."""

from __future__ import annotations

from dataclasses import fields

import pytest
from barnabas.ui.tui.widgets.palette import THEMES, Palette
from rich.color import Color

ROLES = [field.name for field in fields(Palette)]
BELOW = ("cursor", "cursor_away", "lit")


def luminance(color: Color | str) -> float:
    of = (Color.parse(color) if isinstance(color, str) else color).get_truecolor()
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in of)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color | str, other: Color | str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_contrast(theme: str) -> None:
    """At least 4.5:1 (WCAG AA) on the background, the bars, the cursor line and highlighted rows."""
    palette, colours = THEMES[theme]
    grounds = [colours.background, colours.panel, *(getattr(palette, name).bgcolor for name in BELOW)]
    for role in ROLES:
        style = getattr(palette, role)
        if role in BELOW:
            continue
        for ground in [style.bgcolor] if style.bgcolor else grounds:
            found = contrast(style.color or colours.foreground, ground)
            assert found >= 4.5, (role, ground, round(found, 2))


def test_mono_has_no_colour_and_marks_the_cursor_and_errors() -> None:
    palette = THEMES["mono"][0]
    assert all(getattr(palette, role).color is None and getattr(palette, role).bgcolor is None for role in ROLES)
    assert palette.cursor.reverse and palette.error.bold and palette.undecoded.underline
