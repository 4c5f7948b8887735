"""What is to be held: a filter, which side of exchanges, and for how long at most."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...decoder.filter import FilterError, compile
from .palette import DARK, Palette
from .safe import visible

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
