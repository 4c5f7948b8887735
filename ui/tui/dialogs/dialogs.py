"""Dialogs: a line of text, a choice of several, one of many names, yes or no, a text of many lines, text to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Input, Static, TextArea

from ...safe import fit, visible
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Cell

MOST = 14
"""Rows that are shown at once."""


class Dialog(ModalScreen[ScreenResultType]):
    """A box over the screen below. Esc closes it without a result."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical {
        width: 90%; max-width: 110; height: auto; max-height: 80%; background: $panel; border: round $primary; }
    Dialog Input, Dialog Input:focus { border: none; height: 1; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back", show=False)]


class ChoiceBox(Vertical):
    """An input for a part of a name, and a list of what matches: the arrows move, Enter takes the row under the cursor.

    `matching(text)`: the rows for what was typed; `take(position)`: a row was taken, or there is none at this position.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.dismiss", "Back", show=False),
        Binding("up", "move(-1)", "Up", show=False, priority=True),
        Binding("down", "move(1)", "Down", show=False, priority=True),
    ]

    def __init__(
        self, title: str, hint: str, keys: str, matching: Callable[[str], list[list[Cell]]], take: Callable[[int], None]
    ):
        self._table = Table()
        super().__init__(Input(placeholder=hint), self._table)
        self.border_title, self.border_subtitle = Text(title), keys
        self._matching, self._take = matching, take

    def on_mount(self) -> None:
        self._table.can_focus = False
        self._show_matches("")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._show_matches(event.value)

    def _show_matches(self, text: str) -> None:
        rows = self._matching(text)
        self._table.styles.height = max(1, min(len(rows), MOST))
        self._table.cursor = 0
        self._table.show(rows or [[(f"there is no {visible(text)!r}", "error")]])
        self._table.move_to(0)

    def action_move(self, step: int) -> None:
        self._table.move_to(self._table.cursor + step)

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        event.stop()
        self._take(self._table.cursor)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self._take(self._table.cursor)


class Name(NamedTuple):
    """A name, and what it means."""

    name: str
    words: str = ""


class Find(Dialog[str | None]):
    """Asks for one of many names; None when cancelled."""

    def __init__(self, question: str, names: Sequence[Name]):
        super().__init__()
        self.question, self.names = visible(question), names
        self._found: list[Name] = list(names)

    def compose(self) -> ComposeResult:
        yield ChoiceBox(self.question, "part of the name", "Enter: select  Esc: back", self._matching, self._take)

    def _matching(self, text: str) -> list[list[Cell]]:
        wanted = text.lower().replace(" ", "_")
        named = [each for each in self.names if wanted in each.name.lower()]
        self._found = named or [each for each in self.names if text.lower() in each.words.lower()]
        wide = max((len(each.name) for each in self.names), default=0) + 2
        return [[(fit(visible(each.name), wide), "name"), (visible(each.words), "muted")] for each in self._found]

    def _take(self, position: int) -> None:
        if position < len(self._found):
            self.dismiss(self._found[position].name)


class AskDialog(Dialog[str | None]):
    """Asks for a line of text; None when cancelled."""

    DEFAULT_CSS = "AskDialog > Vertical { width: 80%; max-width: 90; }"

    def __init__(self, question: str, text: str = ""):
        super().__init__()
        self.question, self.text = visible(question), text

    def compose(self) -> ComposeResult:
        box = Vertical(Input(self.text))
        box.border_title = Text(self.question)
        yield box

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Choose(Dialog[list[str] | None]):
    """Asks for some of several names: Space selects one or not, Enter is done; None when cancelled."""

    DEFAULT_CSS = """
    Choose > Vertical { width: 40; }
    Choose Table { height: auto; max-height: 20; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "dismiss", "Back", show=False),
        Binding("space", "turn", "Select or deselect", show=False),
    ]

    def __init__(self, question: str, names: Sequence[str], taken: Iterable[str]):
        super().__init__()
        self.question, self.names, self.taken = question, names, set(taken)
        self.table = Table()

    def compose(self) -> ComposeResult:
        box = Vertical(self.table)
        box.border_title, box.border_subtitle = Text(self.question), "Space: on or off  Enter: done"
        yield box

    def on_mount(self) -> None:
        self._show()
        self.table.focus()

    def _show(self) -> None:
        self.table.show([[("[x] " if n in self.taken else "[ ] ", "key"), (visible(n), "")] for n in self.names])
        self.table.styles.height = min(len(self.names), 20)

    def action_turn(self) -> None:
        self.taken ^= {self.names[self.table.cursor]}
        self._show()
        self.table.refresh()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        event.stop()
        self.dismiss([name for name in self.names if name in self.taken])


class Pick(Dialog[int | None]):
    """Asks for one of several lines: its position; None when cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "dismiss", "Back", show=False)]

    def __init__(self, question: str, rows: list[list[Cell]], does: str = "go there"):
        super().__init__()
        self.question, self.rows, self.does, self.table = visible(question), rows, does, Table()

    def compose(self) -> ComposeResult:
        box = Vertical(self.table)
        box.border_title, box.border_subtitle = Text(self.question), f"Enter: {self.does}  Esc: back"
        yield box

    def on_mount(self) -> None:
        self.table.styles.height = min(len(self.rows), 16)
        self.table.show(self.rows)
        self.table.focus()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        event.stop()
        self.dismiss(event.position)


class Confirm(Dialog[bool]):
    """Asks a question to be answered with y or n."""

    DEFAULT_CSS = "Confirm Static { width: auto; max-width: 80%; background: $panel; border: round $warning; padding: 0 2; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n,escape,q,enter", "answer(False)", "No", show=False),
    ]

    def __init__(self, question: str):
        super().__init__()
        self.question = visible(question)

    def compose(self) -> ComposeResult:
        yield Static(f"{self.question}\n\ny: yes   n, Esc: no", markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class Write(Dialog[str | None]):
    """Asks for a text of many lines: Ctrl-S is done; None when cancelled. `fault`: shown below the text."""

    DEFAULT_CSS = """
    Write > Vertical { max-width: 100%; height: 80%; }
    Write TextArea { height: 1fr; border: none; }
    Write #fault { height: auto; color: $error; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", show=False, priority=True),
        Binding("ctrl+s", "done", "Done", show=False, priority=True),
    ]

    def __init__(self, question: str, text: str, fault: str = ""):
        super().__init__()
        self.question, self.text, self.fault = visible(question), text, visible(fault)

    def compose(self) -> ComposeResult:
        box = Vertical(TextArea(self.text, show_line_numbers=True), Static(self.fault, id="fault", markup=False))
        box.border_title, box.border_subtitle = Text(self.question), "Ctrl-S: done  Esc: cancel"
        yield box

    def action_done(self) -> None:
        self.dismiss(self.query_one(TextArea).text)


class TextPages(Dialog[None]):
    """Shows a text, which must be `safe.visible`."""

    DEFAULT_CSS = """
    TextPages VerticalScroll {
        width: 90%; max-width: 100; height: auto; max-height: 85%; padding: 0 2; background: $panel; border: round $primary;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,enter,w", "dismiss", "Close", show=False),
        Binding("j,down", "scroll(1)", "Down", show=False),
        Binding("k,up", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, title: str, text: Text):
        super().__init__()
        self.headline, self.text = title, text

    def compose(self) -> ComposeResult:
        box = VerticalScroll(Static(self.text))
        box.border_title, box.border_subtitle = self.headline, "Esc: back"
        yield box

    def action_scroll(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)
