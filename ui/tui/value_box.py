"""A value for a field: what may be typed stands above, what is wrong with it below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from .palette import DARK, Palette
from .safe import visible


class ValueBox(ModalScreen[str | None]):
    """The text, when `wrong(text)` finds nothing wrong with it; None when given up. `names` are completed by Right."""

    DEFAULT_CSS = """
    ValueBox { align: center middle; }
    ValueBox Vertical { width: 90%; max-width: 100; height: auto; background: $panel; border: round $primary; padding: 0 1; }
    ValueBox Input, ValueBox Input:focus { border: none; height: 1; padding: 0; background: $surface; }
    ValueBox Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Back", show=False)]

    def __init__(
        self, title: str, kind: str, text: str, wrong: Callable[[str], str], names: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.headline, self.kind, self.text, self._wrong, self._names = visible(title), kind, text, wrong, names
        self._fault = Static("", markup=False)

    def compose(self) -> ComposeResult:
        suggester = SuggestFromList(self._names, case_sensitive=False) if self._names else None
        # What came from the traffic may hold anything; an Input shows it as it is.
        about = Static(f"{self.headline}\n{visible(self.kind)}", markup=False)
        box = Vertical(about, Input(visible(self.text), suggester=suggester), self._fault)
        box.border_title, box.border_subtitle = "Another value", "Enter: take it  Esc: back"
        yield box

    def on_mount(self) -> None:
        self.query_one(Input).action_select_all()

    @on(Input.Changed)
    def _look(self, event: Input.Changed) -> None:
        self._tell(self._wrong(event.value))

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        fault = self._wrong(event.value)
        if fault:
            self._tell(fault)
        else:
            self.dismiss(event.value)

    def _tell(self, fault: str) -> None:
        palette: Palette = getattr(self.app, "palette", DARK)
        self._fault.update(Text(f"! {visible(fault)}" if fault else "", palette.error))

    def action_give_up(self) -> None:
        self.dismiss(None)
