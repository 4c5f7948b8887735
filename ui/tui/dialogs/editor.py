"""Edit a text in the user's editor, which gets the terminal, or without a terminal in a box of the screen.

The file is readable by its owner only, and is removed. A text that is refused is edited again, with the reason on top.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from textual.app import App, SuspendNotSupported

from ...safe import visible, visible_lines
from .dialogs import Write

_REMARK = "# "


def editor() -> list[str]:
    """The command of the editor: $VISUAL, $EDITOR, or vi."""
    for name in ("VISUAL", "EDITOR"):
        words = os.environ.get(name, "")
        if words.strip():
            return shlex.split(words)
    return ["vi"]


def edit(
    app: App[None], question: str, text: str, take: Callable[[str], str], *, remarks: str = "", done: Callable[[], None]
) -> None:
    """Edit `text`. `take(text)` gets the new text, if it was changed, and returns what is wrong with it; if that is "", `done`
    is called. `remarks`: comments on top of the text."""
    _round(app, question, text, text, take, remarks, "", done)


def _round(
    app: App[None], question: str, first: str, text: str, take: Callable[[str], str], remarks: str, fault: str,
    done: Callable[[], None],
) -> None:  # fmt: skip
    def written(edited: str | None) -> None:
        if edited is None or (edited == first and not fault):
            app.notify("Nothing was changed.", timeout=2)
            return
        refusal = take(edited)
        if refusal:
            _round(app, question, first, edited, take, remarks, refusal, done)
        else:
            done()

    try:
        with app.suspend():
            edited = _in_editor(_commented(remarks, fault) + text)
        app.refresh(layout=True)
    except SuspendNotSupported:  # a browser, or no terminal at all
        app.notify("An external editor needs a terminal: edit the text in this box.", timeout=5)
        app.push_screen(Write(question, text, fault), written)
        return
    if edited.fault:
        app.notify(edited.fault, severity="error", timeout=6)
        app.push_screen(Write(question, text, fault), written)
        return
    plain = _uncommented(edited.text)
    written(None if fault and plain == text else plain)


def _commented(remarks: str, fault: str) -> str:
    lines = [f"! {line}" for line in visible_lines(fault)]
    if fault:
        lines.append("! Leave the text unchanged to cancel.")
    return "".join(f"{_REMARK}{line}\n" for line in [*lines, *visible_lines(remarks)])


def _uncommented(text: str) -> str:
    """Without the comments on top."""
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    return "".join(lines)


class Edited(NamedTuple):
    """The text from the editor, and why there was no editor, or ""."""

    text: str
    fault: str = ""


def _in_editor(text: str) -> Edited:
    """Run the editor."""
    command = editor()
    handle, name = tempfile.mkstemp(prefix="barnabas-", suffix=".yaml")
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            code = subprocess.run([*command, name], check=False).returncode
        except OSError as error:
            return Edited(text, f"the editor {visible(command[0])!r} cannot be started: {error.strerror}; set $EDITOR")
        if code:
            return Edited(text, f"the editor ended with code {code}: nothing was changed")
        return Edited(path.read_text("utf-8", "replace"))
    finally:
        path.unlink(missing_ok=True)
