"""Colours and text attributes by role, for the lines that widgets draw themselves.

Three palettes: dark and light, with hues that people with any colour vision can tell apart (after Okabe and Ito, moved to
a contrast of at least 4.5:1), and mono, which has attributes only and is used under NO_COLOR. No meaning rests on
colour alone: every state has its glyph and word in the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich.style import Style
from textual.theme import Theme

BACKGROUND = "#11151a"
TEXT = "#d7dde4"
PANEL = "#1b222b"
CURSOR = "#2a4059"
MUTED = "#a3afbc"
SKY = "#7cc4f0"
ORANGE = "#f0a04b"
VERMILION = "#ff8f66"
YELLOW = "#f0e442"
GREEN = "#5fd0a8"
PINK = "#e59fc4"


Role = Literal[
    "", "muted", "title", "label", "ok", "error", "waiting", "undecoded", "name", "number", "string", "masked", "cursor",
    "cursor_away", "cell", "span", "key", "warning", "lit", "marked",
]  # fmt: skip
"""A field of `Palette`; "" is plain text."""
Cell = tuple[str, Role]
"""A text, which must be `safe.visible`, and the role that it is drawn in."""


@dataclass(frozen=True, slots=True)
class Palette:
    """One rich style per role. ``cursor`` and ``cursor_away`` (the pane has no focus) go on top of the others."""

    muted: Style
    title: Style
    label: Style
    ok: Style
    error: Style
    waiting: Style
    undecoded: Style
    name: Style
    number: Style
    string: Style
    masked: Style
    cursor: Style
    cursor_away: Style
    cell: Style
    span: Style
    key: Style
    warning: Style
    lit: Style
    marked: Style

    def of(self, role: Role) -> Style:
        """The style of a role."""
        style: Style = getattr(self, role) if role else Style()
        return style


DARK = Palette(
    muted=Style(color=MUTED),
    title=Style(color=SKY, bold=True),
    label=Style(color=BACKGROUND, bgcolor=SKY, bold=True),
    ok=Style(color=GREEN),
    error=Style(color=VERMILION, bold=True),
    waiting=Style(color=SKY),
    undecoded=Style(color=YELLOW, bold=True),
    name=Style(color=SKY),
    number=Style(color=ORANGE),
    string=Style(color=GREEN),
    masked=Style(color=MUTED, italic=True),
    cursor=Style(bgcolor=CURSOR),
    cursor_away=Style(bgcolor="#222c38"),
    cell=Style(underline=True, bold=True),
    span=Style(color=BACKGROUND, bgcolor=YELLOW),
    key=Style(color=YELLOW, bold=True),
    warning=Style(color=BACKGROUND, bgcolor=ORANGE, bold=True),
    lit=Style(bgcolor="#3f3610"),
    marked=Style(color=PINK, bold=True),
)

_PLAIN, _BOLD, _REVERSE = Style(), Style(bold=True), Style(reverse=True)

LIGHT = Palette(
    muted=Style(color="#5b6570"),
    title=Style(bold=True),
    label=Style(color="#ffffff", bgcolor="#0b5c94", bold=True),
    ok=Style(color="#0b6b4c"),
    error=Style(color="#a83200", bold=True),
    waiting=Style(color="#0b5c94"),
    undecoded=Style(color="#7a5c00", bold=True),
    name=Style(color="#0b5c94"),
    number=Style(color="#8a4500"),
    string=Style(color="#0b6b4c"),
    masked=Style(color="#5b6570", italic=True),
    cursor=Style(bgcolor="#cfe3f5"),
    cursor_away=Style(bgcolor="#e6ecf2"),
    cell=Style(underline=True, bold=True),
    span=Style(color="#000000", bgcolor="#f3d36b"),
    key=Style(color="#7a5c00", bold=True),
    warning=Style(color="#ffffff", bgcolor="#a83200", bold=True),
    lit=Style(bgcolor="#fbeeb8"),
    marked=Style(color="#8a2f6b", bold=True),
)

MONO = Palette(
    muted=_PLAIN,
    title=_BOLD,
    label=Style(reverse=True, bold=True),
    ok=_PLAIN,
    error=_BOLD,
    waiting=_PLAIN,
    undecoded=Style(bold=True, underline=True),
    name=_PLAIN,
    number=_PLAIN,
    string=_PLAIN,
    masked=_PLAIN,
    cursor=_REVERSE,
    cursor_away=Style(underline=True),
    cell=Style(bold=True, underline=True),
    span=_REVERSE,
    key=_BOLD,
    warning=Style(reverse=True, bold=True),
    lit=Style(underline=True),
    marked=_BOLD,
)

DARK_THEME = Theme(
    name="barnabas-dark",
    primary=SKY,
    secondary=ORANGE,
    accent=YELLOW,
    warning=ORANGE,
    error=VERMILION,
    success=GREEN,
    foreground=TEXT,
    background=BACKGROUND,
    surface=BACKGROUND,
    panel=PANEL,
    dark=True,
    variables={"border": MUTED, "border-blurred": "#3a4654", "scrollbar": "#3a4654", "scrollbar-background": PANEL},
)

MONO_THEME = Theme(
    name="barnabas-mono",
    primary="#ffffff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    dark=True,
    luminosity_spread=0.0,
    text_alpha=1.0,
    variables={"border": "#ffffff", "border-blurred": "#ffffff", "scrollbar": "#ffffff"},
)

LIGHT_THEME = Theme(
    name="barnabas-light",
    primary="#0b5c94",
    secondary="#8a4500",
    accent="#7a5c00",
    warning="#8a4500",
    error="#a83200",
    success="#0b6b4c",
    foreground="#1b2127",
    background="#fbfcfd",
    surface="#fbfcfd",
    panel="#e9eef3",
    dark=False,
    variables={
        "border": "#5b6570",
        "border-blurred": "#b9c3cd",
        "scrollbar": "#b9c3cd",
        "scrollbar-background": "#e9eef3",
    },
)

THEMES: dict[str, tuple[Palette, Theme]] = {
    "dark": (DARK, DARK_THEME),
    "light": (LIGHT, LIGHT_THEME),
    "mono": (MONO, MONO_THEME),
}
"""By the name that ``--theme`` takes."""
