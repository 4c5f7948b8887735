"""The help screen: every key of the screen it was called from."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from ..keys import Words
from ..widgets.palette import DARK, Palette
from .dialogs import Dialog


class HelpScreen(Dialog[None]):
    """Any of its keys closes it."""

    DEFAULT_CSS = """
    HelpScreen > VerticalScroll {
        width: auto; max-width: 96%; height: auto; max-height: 90%; padding: 0 2; background: $panel;
        border: round $primary;
    }
    HelpScreen Static { width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,question_mark,enter", "dismiss", "Close", show=False),
        Binding("j", "down", "Down", show=False),
        Binding("k", "up", "Up", show=False),
    ]

    def __init__(self, title: str, keys: Words):
        super().__init__()
        self.headline, self.keys = title, keys

    def compose(self) -> ComposeResult:
        palette: Palette = getattr(self.app, "palette", DARK)
        text = Text()
        for key, what in self.keys:
            text.append(f"{key:<16}", palette.key)
            text.append(f"{what}\n")
        text.append("\nGlyphs: ", palette.muted)
        text.append("! ", palette.error)
        text.append("error code  ", palette.muted)
        text.append("? ", palette.undecoded)
        text.append("not decoded  ", palette.muted)
        text.append(". ", palette.waiting)
        text.append("waiting for the response  - no response came\n", palette.muted)
        text.append("\nEsc closes this.", palette.muted)
        box = VerticalScroll(Static(text))
        box.border_title = self.headline
        yield box

    def action_down(self) -> None:
        self.query_one(VerticalScroll).scroll_down(animate=False)

    def action_up(self) -> None:
        self.query_one(VerticalScroll).scroll_up(animate=False)
