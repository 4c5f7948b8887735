"""A text in the person's own editor, with the terminal given to it meanwhile; in a box of the screen where there is none.

The file is for its owner alone and is removed. A text that is refused comes back with the reason on top, and what was
written is still there.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

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
    """Let a person edit `text`. `take` gets what was written and gives back what is wrong with it, "" if nothing is: then
    `done` is called. `remarks` stand on top as comments. Nothing is taken when nothing was changed."""
    _round(app, question, text, text, take, remarks, "", done)


def _round(
    app: App[None], question: str, first: str, text: str, take: Callable[[str], str], remarks: str, fault: str,
    done: Callable[[], None],
) -> None:  # fmt: skip
    def written(said: str | None) -> None:
        if said is None or (said == first and not fault):
            app.notify("Nothing was changed.", timeout=2)
            return
        wrong = take(said)
        if wrong:
            _round(app, question, first, said, take, remarks, wrong, done)
        else:
            done()

    try:
        with app.suspend():
            said, broken = _in_editor(_commented(remarks, fault) + text)
        app.refresh(layout=True)
    except SuspendNotSupported:  # a browser, or no terminal at all
        app.notify("There is no terminal here for an editor of your own: the text is edited in this box.", timeout=5)
        app.push_screen(Write(question, text, fault), written)
        return
    if broken:
        app.notify(broken, severity="error", timeout=6)
        app.push_screen(Write(question, text, fault), written)
        return
    plain = _uncommented(said)
    written(None if fault and plain == text else plain)


def _commented(remarks: str, fault: str) -> str:
    lines = [f"! {line}" for line in visible_lines(fault)]
    if fault:
        lines.append("! Leave the text as it is to give up.")
    return "".join(f"{_REMARK}{line}\n" for line in [*lines, *visible_lines(remarks)])


def _uncommented(text: str) -> str:
    """Without the comments on top."""
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    return "".join(lines)


def _in_editor(text: str) -> tuple[str, str]:
    """(what was written, why there was no editor)"""
    command = editor()
    handle, name = tempfile.mkstemp(prefix="barnabas-", suffix=".yaml")
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            code = subprocess.run([*command, name], check=False).returncode
        except OSError as error:
            return text, f"the editor {visible(command[0])!r} cannot be started: {error.strerror}; set $EDITOR"
        if code:
            return text, f"the editor ended with code {code}: nothing was taken"
        return path.read_text("utf-8", "replace"), ""
    finally:
        path.unlink(missing_ok=True)
