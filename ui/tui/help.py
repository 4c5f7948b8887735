"""The help screen: every key of the screen it was called from."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from .palette import Palette

Keys = tuple[tuple[str, str], ...]

LIST_KEYS: Keys = (
    ("up down  k j", "one row up, down"),
    ("PgUp PgDn", "one page"),
    ("g  G", "first row, last row"),
    ("Enter", "open the exchange: request and response, field by field"),
    ("F", "follow: stay on the newest row"),
    ("E", "errors only: error codes, undecoded frames, responses to nothing"),
    ("/", "search in API, client, broker and result; Enter keeps it, Esc clears it"),
    ("q", "quit (a live view asks for Q)"),
    ("Q", "quit"),
)
DETAIL_KEYS: Keys = (
    ("Tab", "next pane: request, response, bytes"),
    ("up down  k j", "one field up, down"),
    ("PgUp PgDn  g G", "one page; first, last"),
    ("Enter  Space", "fold or unfold the field"),
    ("left right", "fold or go out, unfold or go in"),
    ("!", "go to the next error code in the response"),
    ("h", "bytes: the frame as hexadecimal, the field under the cursor marked"),
    ("v", "show or hide keys, values and headers of records"),
    ("[  ]", "the exchange before, after"),
    ("Esc  q", "back to the list"),
    ("Q", "quit"),
)


class HelpScreen(ModalScreen[None]):
    """Any of its keys closes it."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        width: auto; max-width: 96%; height: auto; max-height: 90%; padding: 1 2; background: $panel;
        border: round $primary;
    }
    HelpScreen Static { width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close", show=False)]

    def __init__(self, palette: Palette, title: str, keys: Keys):
        super().__init__()
        self.palette, self.title, self.keys = palette, title, keys

    def compose(self) -> ComposeResult:
        text = Text()
        for key, what in self.keys:
            text.append(f"{key:<16}", self.palette.key)
            text.append(f"{what}\n")
        text.append("\nGlyphs: ", self.palette.muted)
        text.append("! ", self.palette.error)
        text.append("error code  ", self.palette.muted)
        text.append("? ", self.palette.undecoded)
        text.append("not understood  ", self.palette.muted)
        text.append(". ", self.palette.waiting)
        text.append("waiting  - none came\n", self.palette.muted)
        text.append("\nEsc closes this.", self.palette.muted)
        box = VerticalScroll(Static(text))
        box.border_title = self.title
        yield box
