"""Ways from an exchange to the screens beside the list: its connection as a dialogue, and a comparison with another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...captures import Row
    from .app import BarnabasApp


def dialogue(app: BarnabasApp, row: Row) -> None:
    """The connection of a row."""
    from .dialogue import DialogueScreen

    app.push_screen(DialogueScreen(app.session.capture, row))


def compare(app: BarnabasApp, row: Row) -> None:
    """Choose one side of a comparison; with the second one, show it. The same one twice: with the one before of its API."""
    from .compare import CompareScreen, before_it

    session = app.session
    first, session.chosen = session.chosen, None
    if first is None:
        session.chosen = row
        app.notify(f"#{row.number + 1} is chosen: d on another one compares, d again compares with the one before.", timeout=4)
        return
    if first.number == row.number:
        found = before_it(session.capture, row)
        if found is None:
            app.notify("There is no exchange of this API before it.", timeout=3)
            return
        first = found
    app.push_screen(CompareScreen(session.capture, first, row))


def compare_here(app: BarnabasApp, row: Row) -> None:
    """From an exchange that is open: with the one that was chosen, else at once with the one before."""
    if app.session.chosen is None:
        app.session.chosen = row
    compare(app, row)
