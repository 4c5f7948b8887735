"""The frame of the first view, shown while its capture is opened, before anything that reads captures is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from .application import application
from .keys import bar_words
from .views import PLACES
from .widgets.styled import Bar, KeyBar, TabLine

if TYPE_CHECKING:
    from ...captures import Capture


class OpenedCapture(NamedTuple):
    """An open capture, with the arguments of `Session`."""

    capture: Capture
    title: str
    live: bool = False
    status: Callable[[], str] | None = None
    grows: bool = True


class Opening(Screen[None]):
    """Looks like the first view without rows. Keys are queued in `typed` for that view; Q quits."""

    DEFAULT_CSS = """
    Opening { layout: vertical; }
    Opening #rows { height: 1fr; }
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.header, self.key_bar = Bar(id="header"), KeyBar()
        self.header.left = [(" OPEN ", "label"), (f" {title}", "title")]
        self.typed: list[events.Key] = []

    def compose(self) -> ComposeResult:
        yield self.header
        yield TabLine(tuple((p.name, p.short) for p in PLACES), 1)
        yield Static("", id="rows")
        yield Bar(id="about")
        yield self.key_bar

    def on_mount(self) -> None:
        self.key_bar.keys(*bar_words(("exchanges", "list", "app"), application(self.app).settings.keys))

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key in ("Q", "ctrl+q"):
            self.app.exit()
        else:
            self.typed.append(event)
