"""A field tree whose fields can be changed: Enter on a value asks for another one."""

from __future__ import annotations

from typing import Any

from textual.message import Message

from ...decoder import facts
from ...decoder.message import is_error_code
from .body_fields import BodyTree
from .field_list import Field
from .field_tree import FieldTree
from .field_values import BadValue, kind, shown, typed
from .safe import visible
from .value_box import ValueBox


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
