"""The application: a capture, live or not, on a terminal.

Widgets never hold a row or a field each: lists and trees are drawn by line, and ask only for what is on the screen.
Every view (`views`) takes the same `Session`; what takes long is done in slices between keys (`_work`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.screen import Screen
from textual.worker import Worker

from ...diagnostics import contained
from ..safe import visible, visible_lines
from .application import Application, AppScreen
from .first_frame import OpenedCapture, Opening
from .keys import bindings, help_words
from .model.held_queue import HeldQueuePoller
from .model.session import Session
from .model.settings import ScreenSettings
from .views import PLACES
from .views.view import View
from .widgets.palette import THEMES
from .widgets.styled import AsciiFilter

if TYPE_CHECKING:
    from ...captures import Capture
    from ...decoder.values import SchemaSource
    from ...proxy.control import Control
    from .model.rows import RowView

LIVE_SECONDS = 0.125
STATUS_SECONDS = 1.0
WORK_SECONDS = 0.025
WANTED_SLICE, SPARE_SLICE = 0.016, 0.0025
"""Seconds of work in every `WORK_SECONDS`: for what is on the screen, and for the rest. A key waits for a slice at most."""
UPDATE_SECONDS = 0.25
SMALL = 100_000
"""Exchanges of the largest capture that is analysed before anybody asks for it."""


class BarnabasApp(App[None]):
    """The views of `capture`.

    `title`: what is shown (addresses, or the file). `open`: returns the capture, called when the frame of the screen is
    drawn; what it raises is in `fault` when the application has ended. `live`: pick up what a running recording adds.
    `status()`: a short line for the header, asked for once a second (connections, losses). `stop()` is called once, after
    the terminal is given back. `seconds`: ends by itself after so many. `control`: the proxy's control API.
    `schemas`: of record values. `ascii`: draw ASCII only. `filter`: of the exchanges that are shown at first.
    """

    ENABLE_COMMAND_PALETTE = False
    # Textual draws a frame around an `Input` with the focus, which leaves no room for the text where it has one line.
    CSS = "Input, Input:focus, Input.-invalid, Input.-invalid:focus { border: none; height: 1; padding: 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")

    def __init__(
        self,
        capture: Capture | None = None,
        *,
        title: str,
        open: Callable[[], OpenedCapture] | None = None,
        live: bool = False,
        status: Callable[[], str] | None = None,
        stop: Callable[[], None] | None = None,
        seconds: float | None = None,
        control: Control | None = None,
        allow_edit: bool = False,
        schemas: SchemaSource | None = None,
        settings: ScreenSettings | None = None,
        theme: str = "",
        ascii: bool = False,
        filter: str = "",
    ):
        self.settings = settings or ScreenSettings()
        # Under NO_COLOR the terminal keeps its own colours, and bold, reverse and underline tell states apart.
        plain = "NO_COLOR" in os.environ
        chosen = "mono" if plain else theme or self.settings.theme or "dark"
        self._title, self._open = title, open
        self.schemas = None if schemas is None else self._in_background(schemas)
        self.fault: Exception | None = None
        if capture is not None:
            self.session = Session(
                capture, title=title, live=live, status=status, control=control, allow_edit=allow_edit
            )
        self.palette = THEMES[chosen][0]
        super().__init__(ansi_color=True if plain else None)
        for _, each in THEMES.values():
            self.register_theme(each)
        self.theme = THEMES[chosen][1].name
        if ascii:
            self._filters.append(AsciiFilter())
        self.set_keymap(self.settings.keys)
        self._stop, self._seconds, self._filter = stop, seconds, filter
        self._views: dict[int, View] = {}
        self._updated_at, self._update_due = 0.0, False
        self.view = 0

    def get_default_screen(self) -> Screen[Any]:
        return super().get_default_screen() if self._open is None else Opening(visible(self._title))

    def on_mount(self) -> None:
        if self._open is None:
            self._start()
        else:
            self.call_after_refresh(self.run_worker, self._open_capture(self._open))

    async def _open_capture(self, open: Callable[[], OpenedCapture]) -> None:
        """Open the capture while keys are queued, then press these."""
        waiting = self.screen
        try:
            found = await asyncio.to_thread(open)
        except Exception as fault:  # `run_opening` raises it, when the terminal is given back
            self.fault = fault
            self.exit()
            return
        self.session = Session(
            found.capture, title=found.title, live=found.live, status=found.status, grows=found.grows
        )
        self._start()
        if isinstance(waiting, Opening):
            self.call_after_refresh(self._press, waiting.typed)

    def _press(self, keys: list[events.Key]) -> None:
        for key in keys:
            self.post_message(events.Key(key.key, key.character))

    def _start(self) -> None:
        for number in range(1, len(PLACES) + 1):
            self.add_mode(str(number), partial(self._screen_of, number))
        self.action_view(1)
        if self._filter:
            self.call_after_refresh(self.show_exchanges, self._filter)
        if self._seconds is not None:
            self.set_timer(self._seconds, self.exit)
        if self.session.live:
            self.set_interval(LIVE_SECONDS, self._refresh)
        if self.session.live or self.session.status is not None:
            self.set_interval(STATUS_SECONDS, self._describe)
        if self.session.control is not None:
            HeldQueuePoller(self, self.session.held, self.session.add_to_log, self.held_changed)
        preload = partial(_preload, len(self.session.capture.rows()) > SMALL)
        self.set_timer(0.5, partial(self.run_worker, preload, thread=True, exit_on_error=False))
        # Paused when there is nothing to do, so that a file that has been read costs nothing.
        self._working = self.set_interval(WORK_SECONDS, self._work)
        self.call_after_refresh(_resume_collection)

    def _screen_of(self, number: int) -> Screen[Any]:
        if number not in self._views:
            place = PLACES[number - 1]
            self._views[number] = getattr(import_module(f".views.{place.module}", __package__), place.cls)()
        return self._views[number]

    # --- what is new ---------------------------------------------------------------------------------------

    @property
    def current(self) -> View | None:
        """The view that is shown, also below a detail or a dialog; None while it is mounted, and while the application
        ends: timers go on after the last screen."""
        view = self._views.get(self.view)
        return view if view is not None and view.is_mounted and self.screen_stack else None

    def _refresh(self) -> None:
        """Show the rows that a live recording has added."""
        current = self.current
        if current is None:
            return
        more = self.session.refresh()
        if more or self.session.unread:
            self._working.resume()
        if not more:
            return
        current.update_view()
        if isinstance(self.screen, AppScreen):
            self.screen.capture_grew()

    def _describe(self) -> None:
        if self.current is not None and self.screen is self.current:
            self.current.describe()

    def work(self) -> None:
        if hasattr(self, "_working"):
            self._working.resume()

    def _work(self) -> None:
        """Do a slice of long work: the search, the statistics, the analysis."""
        current, session = self.current, self.session
        if current is None:
            return
        until = perf_counter() + WANTED_SLICE
        more = current.work_slice()
        moved = self._update_due
        if current.needs_statistics and session.statistics.pending:
            session.statistics.step(max(until - perf_counter(), 0.005))
            more, moved = more or session.statistics.pending > 0, True
        wanted = current.needs_analysis
        if (wanted or len(session.capture.rows()) <= SMALL) and session.analysis.unread:
            analysis = session.analysis
            spare = SPARE_SLICE / 4 if session.live else SPARE_SLICE
            analysis.step(max(until - perf_counter(), 0.005) if wanted else spare)
            more, moved = True, moved or wanted or not analysis.unread
        if moved and self.screen is current and (not more or perf_counter() > self._updated_at + UPDATE_SECONDS):
            current.update_view()
            self._updated_at, moved = perf_counter(), False
        self._update_due = moved
        if not more:
            self._working.pause()

    def _in_background(self, schemas: SchemaSource) -> SchemaSource:
        """`schemas`, asked for in a thread unless they are files."""
        from ...decoder.values import SchemaFiles
        from .model.schema_lookup import BackgroundSchemas

        if isinstance(schemas, SchemaFiles):
            return schemas
        return BackgroundSchemas(schemas, lambda: self.call_later(self._schemas_loaded))

    def _schemas_loaded(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, AppScreen):
                screen.schemas_loaded()

    # --- keys ----------------------------------------------------------------------------------------------

    def watch_app_focus(self, focus: bool) -> None:
        """Focus a screen that was shown while the terminal had no focus."""
        if not focus or not self.screen_stack or self.screen.focused is not None:
            return
        wanted = self.screen.AUTO_FOCUS if self.screen.AUTO_FOCUS is not None else self.AUTO_FOCUS
        for widget in self.screen.query(wanted) if wanted else ():
            if widget.focusable:
                self.screen.set_focus(widget)
                return

    def action_view(self, number: int) -> None:
        if number != self.view:
            while self.view and len(self.screen_stack) > 1 and self.screen.is_modal:
                self.pop_screen()
            self.view = number
            self.switch_mode(str(number))
            self.work()

    def show_exchanges(self, text: str = "", number: int | None = None) -> None:
        # The screen that asks for it is taken away: not while it is at work.
        self.call_later(self._show_exchanges, text, number)

    def _show_exchanges(self, text: str, number: int | None) -> None:
        self.action_view(1)
        screen = self._screen_of(1)
        while len(self.screen_stack) > 1:
            self.pop_screen()
        screen.show_filter(text, number)  # type: ignore[attr-defined]

    def clear_filter(self) -> None:
        self.call_later(self._clear_filter)

    def _clear_filter(self) -> None:
        self.action_view(1)
        if self.current is not None:
            self.current.action_clear()  # type: ignore[attr-defined]

    def open_exchange(self, view: RowView, position: int, left: Callable[[int | None], None] | None = None) -> None:
        from .exchange.detail import DetailScreen

        self.push_screen(DetailScreen(self.session.capture, view, position), left)

    # --- frames that are held ------------------------------------------------------------------------------

    def held_changed(self) -> None:
        current = self.current
        if current is None or self.screen is not current:
            return
        if current.context in ("held", "exchanges"):
            current.update_view()
        else:
            current.describe()

    def action_intercept(self) -> None:
        from .dialogs.intercept import ask_intercept

        if not self.screen.is_modal and self.current is not None:
            ask_intercept(self.current, self.current.wanted)

    def notify(self, message: str, *, markup: bool = False, **options: Any) -> None:
        """Show a message in the corner. It may hold text of the traffic, so it is no markup and has no control characters."""
        super().notify("\n".join(visible_lines(message)), markup=markup, **options)

    def action_help(self) -> None:
        from .dialogs.help import HelpScreen

        screen = self.screen
        if isinstance(screen, AppScreen):
            name = "one exchange" if screen.context == "detail" else screen.context
            self.push_screen(HelpScreen(f"Keys: {name}", help_words(screen.key_contexts, self.settings.keys)))

    def action_prompt(self) -> None:
        from .dialogs.prompt import Prompt

        if isinstance(self.screen, AppScreen):
            self.push_screen(Prompt(self.screen))

    def action_palette(self) -> None:
        self.action_prompt()

    def use_theme(self, name: str) -> None:
        self.palette = THEMES[name][0]
        self.theme = THEMES[name][1].name
        for screen in self.screen_stack:
            screen.refresh(layout=True)
            for widget in screen.query("*"):
                widget.refresh()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.worker.error is not None:
            contained("a worker of the screen", event.worker.error)

    def on_unmount(self) -> None:
        if hasattr(self, "session"):
            self.session.stop()

    def stop_once(self) -> None:
        """Call `stop`, and remove the intercepts that were made here. Does nothing the second time."""
        session: Session | None = getattr(self, "session", None)  # a capture that could not be opened has none
        if session is not None:
            session.held.release_own()
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()


if TYPE_CHECKING:

    def _checked(app: BarnabasApp) -> Application:  # `application` relies on it
        return app


def _resume_collection() -> None:
    """What is loaded by now stays: the garbage collector need not visit it again and again."""
    gc.freeze()
    gc.enable()


def _preload(large: bool) -> None:
    """Import the modules of the first filter, so that it starts at once."""
    selection = import_module("...captures.reading.selection", __package__)
    import_module("...decoder.filter", __package__)
    if large and selection.has_numpy():
        import_module("numpy")


def on_terminal() -> bool:
    """Whether all three standard streams are a terminal (Textual draws on standard error)."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.__stderr__))


def run(capture: Capture, *, title: str, live: bool = False, seconds: float | None = None, **options: Any) -> None:
    """Show `capture` until the user quits or `seconds` are over; plain lines where there is no terminal (`on_terminal`).
    The options are those of `BarnabasApp`."""
    app = BarnabasApp(capture, title=title, live=live, seconds=seconds, **options)
    try:
        if on_terminal():
            app.run()
        else:
            from .plain import plain_lines

            plain_lines(capture, follow=live, seconds=seconds)
    finally:
        app.stop_once()


def run_opening(open: Callable[[], OpenedCapture], *, title: str, **options: Any) -> None:
    """Show the capture that `open` returns, on a terminal, and close it. Raises what `open` raises."""
    app = BarnabasApp(title=title, open=open, **options)
    try:
        app.run()
        if app.fault is not None:
            raise app.fault
    finally:
        if hasattr(app, "session"):
            app.session.capture.close()
