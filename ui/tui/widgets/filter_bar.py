"""The input for filters, which is checked with every key and offers completions. Filters that were used are kept in a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from ...safe import fit, visible
from .styled import TextPane

if TYPE_CHECKING:
    from ....decoder.filter import Candidate, FilterError
    from .palette import Cell, Role

MOST = 200


def default_path() -> Path:
    """``$XDG_STATE_HOME/barnabas/filters``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "barnabas" / "filters"


class FilterHistory:
    """The filters that were used, the newest last. A file that cannot be read or written is ignored."""

    def __init__(self, path: Path | None = None):
        self._path = path or default_path()
        self.entries: list[str] = []
        with suppress(OSError, UnicodeDecodeError):
            self.entries = self._path.read_text("utf-8").splitlines()[-MOST:]
        self._at = len(self.entries)
        self._typed = ""

    def restart(self) -> None:
        """Go behind the newest."""
        self._at, self._typed = len(self.entries), ""

    def step(self, step: int, typed: str) -> str | None:
        """The entry before (-1) or after, or what was typed behind the newest; None at the ends."""
        at = self._at + step
        if not 0 <= at <= len(self.entries):
            return None
        if self._at == len(self.entries):
            self._typed = typed
        self._at = at
        return self._typed if at == len(self.entries) else self.entries[at]

    def add(self, text: str) -> None:
        """Remember a filter, once."""
        text = text.strip()
        if not text or "\n" in text:
            return
        self.entries = [*(entry for entry in self.entries if entry != text), text][-MOST:]
        self.restart()
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write("".join(f"{entry}\n" for entry in self.entries))


CANDIDATES = 8


class FilterInput(Input):
    """Tab completes, Up and Down go through the history."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete(1)", "Complete", show=False, priority=True),
        Binding("shift+tab", "complete(-1)", "Complete", show=False, priority=True),
        Binding("up", "history(-1)", "Earlier", show=False),
        Binding("down", "history(1)", "Later", show=False),
    ]

    def action_complete(self, step: int) -> None:
        self.post_message(FilterBar.Asked("complete", step))

    def action_history(self, step: int) -> None:
        self.post_message(FilterBar.Asked("history", step))


class Hints(TextPane):
    """The lines below the filter: its fault, and completions."""

    DEFAULT_CSS = "Hints { height: auto; background: $panel; }"

    def show(self, lines: list[list[Cell]]) -> None:
        """Show other lines."""
        if lines != self.lines:
            grown = len(lines) != len(self.lines)
            self.lines = lines
            self.display = bool(lines)
            self.refresh(layout=grown)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self.lines)


class FilterBar(Vertical):
    """`mode`: "filter" or "highlight". Sends `Changed` while a filter is typed that can be tried at once, `Kept` on Enter."""

    DEFAULT_CSS = """
    FilterBar { height: auto; background: $panel; }
    FilterBar Input { height: 1; border: none; padding: 0 1; background: $panel; }
    FilterBar Input:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Clear", show=False)]

    class Changed(Message):
        """A valid filter that needs no messages, as it was typed; "" for none."""

        def __init__(self, text: str):
            super().__init__()
            self.text = text

    class Kept(Message):
        """Enter was pressed. `text`: as it was typed."""

        def __init__(self, mode: str, text: str):
            super().__init__()
            self.mode, self.text = mode, text

    class GivenUp(Message):
        """Escape was pressed."""

    class Asked(Message):
        """A key of the input that the bar handles: "complete" or "history"."""

        def __init__(self, what: str, step: int):
            super().__init__()
            self.what, self.step = what, step

    def __init__(self, saved: dict[str, str], is_slow: Callable[[str], bool]):
        """`is_slow`: whether messages have to be decoded to decide a filter."""
        super().__init__()
        self.saved, self.mode = saved, "filter"
        self._is_slow = is_slow
        self.history = FilterHistory()
        self.input, self.hints = FilterInput(id="filter", placeholder="api == Produce and err"), Hints()
        self.fault: FilterError | None = None
        self._candidates: list[Candidate] = []
        self._chosen = -1
        self._base = ""
        self._setting = ""

    def compose(self) -> ComposeResult:
        yield self.input
        yield self.hints

    def on_mount(self) -> None:
        self.display = self.input.can_focus = self.hints.display = False

    @property
    def open(self) -> bool:
        """Whether it has the focus."""
        return self.input.has_focus

    def begin(self, mode: str, text: str) -> None:
        """Open the line for typing."""
        self.mode = mode
        self.history.restart()
        # Not by a CSS class: it must have the focus before the next key comes.
        self.display, self.input.can_focus = True, True
        self.set_text(text)
        self.screen.set_focus(self.input)
        self._hint()

    def leave(self, show: bool) -> None:
        """Close it; with `show` the text stays to be seen."""
        self.display, self.input.can_focus = show, False
        self.hints.show([])

    def set_text(self, text: str) -> None:
        """Set the text without a `Changed` message."""
        self._setting = text
        self.input.value = text
        self.input.cursor_position = len(text)

    @on(Input.Changed, "#filter")
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self._setting:
            self._chosen = -1
        self._setting = "\0"
        wanted = self._hint()
        if wanted is not None and self.mode == "filter" and self.open and not (wanted and self._is_slow(wanted)):
            self.post_message(self.Changed(self.input.value.strip()))

    @on(Input.Submitted, "#filter")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        # The input may have newer keys by now: what counts is the text when Enter was pressed.
        text = event.value.strip()
        if self._resolved(text)[1] is None:
            self.history.add(text)
            self.post_message(self.Kept(self.mode, text))

    def action_give_up(self) -> None:
        self.post_message(self.GivenUp())

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.open:
            event.stop()
            self.action_give_up()

    def on_filter_bar_asked(self, event: Asked) -> None:
        event.stop()
        if event.what == "history":
            text = self.history.step(event.step, self.input.value)
            if text is not None:
                self.input.value = text
                self.input.cursor_position = len(text)
        elif self._candidates:
            if self._chosen < 0:
                self._base = self.input.value
            self._chosen = (self._chosen + event.step) % len(self._candidates)
            chosen = self._candidates[self._chosen]
            text = self._base[: chosen.start] + chosen.text
            self._setting = text + self._base[chosen.end :]
            self.input.value = self._setting
            self.input.cursor_position = len(text)
            self._hint()

    def _hint(self) -> str | None:
        """Show the fault or the completions. Returns the filter that the text means, None if it is not valid."""
        text = self.input.value
        wanted, self.fault = self._resolved(text)
        if not self.open:
            return None
        if self._chosen < 0:
            self._candidates = self._possible(text)
        lines: list[list[Cell]] = []
        if self.fault is not None:
            where = 1 + self.fault.start
            caret = "^" * max(1, min(self.fault.end - self.fault.start, 20))
            message = visible(self.fault.message)
            if where + len(caret) + len(message) + 2 <= self.size.width or where < len(message) + 2:
                lines.append([(" " * where, ""), (caret, "error"), (f" {message}", "error")])
            else:
                lines.append([(" " * (where - len(message) - 1), ""), (f"{message} ", "error"), (caret, "error")])
        elif wanted:
            slow = "  decodes messages: Enter begins" if self.mode == "filter" and self._is_slow(wanted) else ""
            word = f"  a word in API, client or error: {visible(wanted)}" if wanted != text.strip() else ""
            lines.append([(" ok", "ok"), (slow or word, "muted")])
        first = max(0, min(self._chosen - CANDIDATES + 2, len(self._candidates) - CANDIDATES))
        for i, each in enumerate(self._candidates[first : first + CANDIDATES], first):
            role: Role = "cell" if i == self._chosen else "name"
            lines.append([(" > " if i == self._chosen else "   ", "key"), (fit(visible(each.text), 28), role),
                          (f" {visible(each.meaning)}", "muted")])  # fmt: skip
        self.hints.show(lines)
        return None if self.fault is not None else wanted

    def _resolved(self, text: str) -> tuple[str, FilterError | None]:
        """The filter that a text means, and its fault."""
        from ....decoder.filter import FilterError
        from ..model.filter_terms import resolve_filter

        try:
            return (resolve_filter(text, self.saved) if text.strip() else ""), None
        except FilterError as fault:
            return "", fault

    def _possible(self, text: str) -> list[Candidate]:
        from ....decoder.filter import Candidate, complete

        if text.startswith("@"):
            return [Candidate("@" + name, 0, len(text), "saved", wanted) for name, wanted in self.saved.items()
                    if name.startswith(text[1:])]  # fmt: skip
        return complete(text, self.input.cursor_position)
