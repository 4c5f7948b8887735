"""What is to be held: a filter, which side of exchanges, and for how long at most. The proxy is asked for it in a thread.

Intercepts that were made here end with the screen: a queue that nobody looks at would only make clients wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ....decoder.filter import compile
from ....proxy.control import Control, ControlError
from ...safe import visible
from ...times import zone_name
from ..application import AppScreen
from ..model.held_queue import LEASE_SECONDS
from ..widgets.palette import DARK, Palette

SIDES = {"request": (True, False), "response": (False, True), "both": (True, True)}
LONGEST = 3600.0


class Wanted(NamedTuple):
    """What was asked for; without a filter: hold nothing any more."""

    filter: str
    request: bool
    response: bool
    seconds: float
    zone: str


class InterceptBox(ModalScreen[Wanted | None]):
    """Three lines; every key says whether they can be used."""

    DEFAULT_CSS = """
    InterceptBox { align: center middle; }
    InterceptBox Vertical { width: 90%; max-width: 100; height: auto; background: $panel; border: round $primary; padding: 0 1; }
    InterceptBox Input, InterceptBox Input:focus { border: none; height: 1; padding: 0; background: $surface; }
    InterceptBox Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Back", show=False)]

    def __init__(self, text: str, side: str = "request", seconds: float = 30.0):
        super().__init__()
        self._first = text, side, f"{seconds:g}"
        self._said = Static("")

    def compose(self) -> ComposeResult:
        text, side, seconds = self._first
        box = Vertical(
            Static("Hold what this filter selects; empty: hold nothing any more", markup=False),
            Input(text, placeholder="api == Produce and topic == orders", id="filter"),
            Static("Which side: request, response or both", markup=False),
            Input(side, id="side"),
            Static("Seconds; a frame that nobody has decided about goes on then, as it came", markup=False),
            Input(seconds, id="seconds"),
            self._said,
        )
        box.border_title, box.border_subtitle = "Intercept", "Tab: next line  Enter: hold  Esc: back"
        yield box

    def on_mount(self) -> None:
        self._look()

    def _read(self) -> Wanted | str:
        """What is asked for, or what is wrong with it."""
        text = self.query_one("#filter", Input).value.strip()
        side = self.query_one("#side", Input).value.strip().lower()
        if not text:
            return Wanted("", False, False, 0.0, "")
        sides = next((on for name, on in SIDES.items() if side and name.startswith(side)), None)
        if sides is None:
            return "the side is request, response or both"
        try:
            seconds = float(self.query_one("#seconds", Input).value)
        except ValueError:
            return "seconds are a number"
        if not 0.1 <= seconds <= LONGEST:
            return f"0.1 to {LONGEST:g} seconds"
        try:
            wanted = compile(text)
            if sides[0]:
                wanted.require_request_only()
            return Wanted(text, *sides, seconds, zone_name())
        except ValueError as fault:  # FilterError among them
            return str(fault)

    @on(Input.Changed)
    def _look(self) -> None:
        found = self._read()
        palette: Palette = getattr(self.app, "palette", DARK)
        if isinstance(found, str):
            self._said.update(Text(f"! {visible(found)}", palette.error))
        else:
            self._said.update(Text("ok" if found.filter else "nothing is held any more", palette.ok))

    @on(Input.Submitted)
    def _done(self) -> None:
        found = self._read()
        if not isinstance(found, str):
            self.dismiss(found)

    def action_give_up(self) -> None:
        self.dismiss(None)


def ask_intercept(screen: AppScreen[Any], text: str) -> None:
    """Ask what is to be held, beginning with the filter `text`."""
    session, queue = screen.session, screen.session.held
    if session.control is None:
        screen.notify("This is a recording: frames are held in a proxy that runs (--attach).", timeout=4)
    elif not session.allow_edit:
        screen.notify("Read-only: start with --allow-edit, or :edit on.", severity="warning", timeout=3)
    else:
        own = [each for each in queue.intercepts if each["id"] in queue.own]
        side, seconds = "request", 30.0
        if own:
            text, seconds = own[-1]["filter"], own[-1]["timeout"]
            side = "both" if own[-1]["request"] and own[-1]["response"] else "request" if own[-1]["request"] else "response"
        screen.app.push_screen(InterceptBox(text, side, seconds), lambda wanted: _asked(screen, wanted))


def _asked(screen: AppScreen[Any], wanted: Wanted | None) -> None:
    if wanted is None:
        return
    if not wanted.filter:
        remove_intercepts(screen)
        return
    queue = screen.session.held
    old = sorted(queue.own)

    def change(control: Control) -> None:
        made = control.intercept(
            wanted.filter, request=wanted.request, response=wanted.response, timeout=wanted.seconds,
            lease=LEASE_SECONDS, zone=wanted.zone,
        )  # fmt: skip
        queue.take_over(int(made["id"]))
        for number in old:
            _remove(control, number)
            queue.own.discard(number)

    _do(screen, change, f"intercepted: {visible(wanted.filter)}")


def remove_intercepts(screen: AppScreen[Any]) -> None:
    """Hold nothing any more, whoever wanted it."""
    queue = screen.session.held
    numbers = [int(each["id"]) for each in queue.intercepts]

    def change(control: Control) -> None:
        for number in numbers:
            _remove(control, number)
        queue.own.clear()

    if numbers:
        _do(screen, change, "nothing is intercepted any more")


def _do(screen: AppScreen[Any], change: Callable[[Control], None], done: str) -> None:
    """Ask the proxy for a change, in a thread."""
    app, session = screen.app, screen.session
    control = session.control
    assert control is not None

    def work() -> None:
        try:
            change(control)
        except ControlError as error:
            app.call_from_thread(app.notify, visible(str(error)), severity="error", timeout=6, markup=False)
        else:
            app.call_from_thread(session.add_to_log, done)
        session.held.soon()

    app.run_worker(work, thread=True, group="held", exit_on_error=False)


def _remove(control: Control, number: int) -> None:
    try:
        control.remove_intercept(number)
    except ControlError as error:
        if error.status != 404:
            raise
