"""A field tree whose fields can be changed: Enter on a value asks for another one, in a box that says above what may be typed,
and below what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from ....decoder.codec.message import is_error_code
from ....decoder.schema import facts
from ...safe import visible
from ..widgets.field_tree import FieldTree
from ..widgets.palette import DARK, Palette
from .body_fields import BadValue, BodyTree, kind, shown, typed
from .field_list import Field


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


class EditTree(FieldTree):
    """`show_body` gives it its fields; `Changed` says what somebody has typed."""

    class Changed(Message):
        """Another value for a field."""

        def __init__(self, path: str, value: Any):
            super().__init__()
            self.path, self.value = path, value

    class Asking(Message):
        """Somebody begins to type a value."""

    def __init__(self, title: str, id: str):
        super().__init__(title, id)
        self.body: BodyTree | None = None
        self.refused = ""
        """Why nothing can be changed, or ""."""

    def show_body(self, body: BodyTree, keep_place: bool) -> None:
        """Other fields; `keep_place`: of the same frame."""
        self.body = body
        self.show(body.tree, keep_place)

    def action_fold_or_unfold(self) -> None:
        field = self.current
        if field is not None and not field.below:
            self._ask(field)
        else:
            super().action_fold_or_unfold()

    def _ask(self, field: Field) -> None:
        if self.refused:
            self.notify(self.refused, severity="warning", timeout=3)
            return
        of = self.body.plans.get(field.path) if self.body is not None else None
        if of is None or self.body is None:
            self.notify("This field cannot be changed here.", timeout=2)
            return
        plan, old = of, self.body.values[field.path]
        first = visible(shown(plan, old))

        def wrong(text: str) -> str:
            try:
                typed(plan, text)
            except BadValue as error:
                return str(error)
            return ""

        def answered(text: str | None) -> None:
            if text is not None and text != first and (value := typed(plan, text)) != old:
                self.post_message(self.Changed(field.path, value))

        names = [fact.name for fact in facts.errors().values()] if is_error_code(plan) else []
        self.post_message(self.Asking())
        self.app.push_screen(ValueBox(field.path, kind(plan), first, wrong, names), answered)
