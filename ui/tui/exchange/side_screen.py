"""The frame of screens beside the views: a headline, their body, a line about the cursor, and the key bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from ..application import AppScreen
from ..keys import bar_words
from ..widgets.styled import Bar, KeyBar


class SideScreen(AppScreen[None]):
    """A subclass gives its `context` and `contexts`, its `body`, and what to do when it is mounted (`begin`)."""

    DEFAULT_CSS = """
    SideScreen { layout: vertical; }
    SideScreen LineList, SideScreen FieldTree { height: 1fr; }
    """
    bar_contexts: ClassVar[tuple[str, ...]] = ()
    """Contexts whose keys the key bar shows, if not `context` alone."""

    def __init__(self) -> None:
        super().__init__()
        self.headline, self.about, self.key_bar = Bar(id="headline"), Bar(id="about"), KeyBar()

    def body(self) -> Iterable[Widget]:
        """The widgets between the headline and the line about the cursor."""
        return ()

    def begin(self) -> None:
        """The screen is mounted."""

    def compose(self) -> ComposeResult:
        yield self.headline
        yield from self.body()
        yield self.about
        yield self.key_bar

    def on_mount(self) -> None:
        self.key_bar.keys(*bar_words(self.bar_contexts or (self.context,), self.barnabas.settings.keys), ("?", "help"))
        self.begin()
