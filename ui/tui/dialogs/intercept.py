"""What the application does about held frames whatever view is shown: asks the proxy for them, says what is held, and asks what is
to be held: a filter, which side of exchanges, and for how long at most.

Intercepts that were made here end with the screen: a queue that nobody looks at would only make clients wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ....decoder.filter import FilterError, compile
from ....proxy.control import ControlError
from ...safe import visible
from ..model.held_queue import LEASE_SECONDS
from ..widgets.palette import DARK, Palette

if TYPE_CHECKING:
    from ..app import BarnabasApp

SIDES = {"request": (True, False), "response": (False, True), "both": (True, True)}
LONGEST = 3600.0


class Wanted(NamedTuple):
    """What was asked for; without a filter: hold nothing any more."""

    filter: str
    request: bool
    response: bool
    seconds: float


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
            return Wanted("", False, False, 0.0)
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
        except FilterError as fault:
            return str(fault)
        return Wanted(text, *sides, seconds)

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


LOOK_SECONDS = 0.25


class Holding:
    """One per application."""

    def __init__(self, app: BarnabasApp):
        self._app, self._queue = app, app.session.held

    def begin(self) -> None:
        """Look at the proxy's queue from now on."""
        if self._app.session.control is not None:
            self._app.set_interval(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self._queue.due():
            self._app.run_worker(self._ask, thread=True, group="queue", exit_on_error=False)

    def _ask(self) -> None:
        said = self._queue.ask()
        self._app.call_from_thread(self._take, *said)

    def _take(self, intercepts: list[Any], held: list[Any], fault: str) -> None:
        before = len(self._queue), self._queue.fault, bool(self._queue.intercepts)
        new, gone = self._queue.take(intercepts, held, fault)
        for frame in new:
            self._app.session.tell(f"held: {frame.name()}, connection {frame.said['connection']}")
        for frame in gone:
            if frame.left() < 1:
                self._app.session.tell(f"held {frame.name()}: nobody decided, so it went on as it came", True)
        if new or gone or len(self._queue) or before != (len(self._queue), fault, bool(intercepts)):
            self.changed()

    def changed(self) -> None:
        """Show how the queue is now."""
        current = self._app.current
        if current is None or self._app.screen is not current:
            return
        if current.context in ("held", "exchanges"):
            current.look()
        else:
            current.describe()

    # --- keys ----------------------------------------------------------------------------------------------

    def ask_what(self) -> None:
        """Ask what is to be held, beginning with the filter of the list."""
        session, app = self._app.session, self._app
        if session.control is None:
            app.notify("This is a recording: frames are held in a proxy that runs (--attach).", timeout=4)
        elif not session.allow_edit:
            app.notify("Read-only: start with --allow-edit, or :edit on.", severity="warning", timeout=3)
        else:
            text = getattr(app.current, "wanted", "")
            own = [each for each in self._queue.intercepts if each["id"] in self._queue.own]
            side, seconds = "request", 30.0
            if own:
                text, seconds = own[-1]["filter"], own[-1]["timeout"]
                side = "both" if own[-1]["request"] and own[-1]["response"] else "request" if own[-1]["request"] else "response"
            app.push_screen(InterceptBox(text, side, seconds), self._asked)

    def _asked(self, wanted: Wanted | None) -> None:
        if wanted is None:
            return
        if not wanted.filter:
            self.nothing()
            return
        old = sorted(self._queue.own)

        def change(control: Any) -> None:
            made = control.intercept(
                wanted.filter, request=wanted.request, response=wanted.response, timeout=wanted.seconds,
                lease=LEASE_SECONDS,
            )  # fmt: skip
            self._queue.take_over(int(made["id"]))
            for number in old:
                _remove(control, number)
                self._queue.own.discard(number)

        self._do(change, f"intercepted: {visible(wanted.filter)}")

    def nothing(self) -> None:
        """Nothing is intercepted any more, whoever wanted it."""
        numbers = [int(each["id"]) for each in self._queue.intercepts]

        def change(control: Any) -> None:
            for number in numbers:
                _remove(control, number)
            self._queue.own.clear()

        if numbers:
            self._do(change, "nothing is intercepted any more")

    def _do(self, change: Callable[[Any], None], told: str) -> None:
        app = self._app

        def work() -> None:
            try:
                change(app.session.control)
            except ControlError as error:
                app.call_from_thread(app.notify, visible(str(error)), severity="error", timeout=6, markup=False)
            else:
                app.call_from_thread(app.session.tell, told)
            self._queue.soon()

        app.run_worker(work, thread=True, group="held", exit_on_error=False)


def _remove(control: Any, number: int) -> None:
    try:
        control.remove_intercept(number)
    except ControlError as error:
        if error.status != 404:
            raise
