"""The application: a capture, live or not, on a terminal.

Widgets never hold a row or a field each: lists and trees are drawn by line, and ask only for what is on the screen.
A later screen (connections, groups, versions ...) takes the same `Capture` and the same `Palette`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from ...captures import Capture
from .exchanges import ExchangesScreen
from .palette import DARK, DARK_THEME, MONO, MONO_THEME
from .plain import plain_lines


class BarnabasApp(App[None]):
    """The exchanges of `capture`. ``title``: what is looked at (addresses, or the file).

    ``live``: pick up what a running recording adds. ``status()``: a short line for the header, asked once a second
    (connections, losses). ``stop()`` is called once, after the terminal is given back. After ``seconds`` it ends by
    itself.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("Q", "quit", "Quit", show=False),
        Binding("ctrl+c,ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        capture: Capture,
        *,
        title: str,
        live: bool = False,
        status: Callable[[], str] | None = None,
        stop: Callable[[], None] | None = None,
        seconds: float | None = None,
    ):
        # Under NO_COLOR the terminal keeps its own colours, and bold, reverse and underline tell states apart.
        plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if plain else None)
        self.palette = MONO if plain else DARK
        theme = MONO_THEME if plain else DARK_THEME
        self.register_theme(theme)
        self.theme = theme.name
        self._stop, self._seconds = stop, seconds
        self._exchanges = ExchangesScreen(capture, self.palette, title=title, live=live, status=status)

    def on_mount(self) -> None:
        self.push_screen(self._exchanges)
        if self._seconds is not None:
            self.set_timer(self._seconds, self.exit)

    def stop_once(self) -> None:
        """Stop what the view was attached to, if that was asked for and has not been done."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()


def on_terminal() -> bool:
    """Whether all three standard streams are a terminal; Textual draws on standard error."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.__stderr__))


def run(
    capture: Capture,
    *,
    title: str,
    live: bool = False,
    status: Callable[[], str] | None = None,
    stop: Callable[[], None] | None = None,
    seconds: float | None = None,
) -> None:
    """Show `capture` until the user quits or `seconds` are over; plain lines where there is no terminal (`on_terminal`)."""
    app = BarnabasApp(capture, title=title, live=live, status=status, stop=stop, seconds=seconds)
    try:
        if on_terminal():
            app.run()
        else:
            plain_lines(capture, follow=live, seconds=seconds)
    finally:
        app.stop_once()
