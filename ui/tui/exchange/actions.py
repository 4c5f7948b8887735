"""What can be done with an exchange wherever it is shown: follow its connection, compare, send again, export, copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....captures import Row
    from ..app import BarnabasApp
    from .copying import Form


def dialogue(app: BarnabasApp, row: Row | None) -> None:
    """The connection of a row."""
    from .conversation import DialogueScreen

    if row is not None:
        app.push_screen(DialogueScreen(app.session.capture, row))


def compare(app: BarnabasApp, row: Row | None) -> None:
    """Choose one side of a comparison; with the second one, show it. The same one twice: with the one before of its API."""
    from .comparison import CompareScreen, before_it

    if row is None:
        return
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


def compare_here(app: BarnabasApp, row: Row | None) -> None:
    """From an exchange that is open: with the one that was chosen, else at once with the one before."""
    if app.session.chosen is None:
        app.session.chosen = row
    compare(app, row)


def send_again(app: BarnabasApp, row: Row | None) -> None:
    """A copy of its request, to be changed first if need be."""
    from .resend import resend

    if row is not None:
        resend(app, row, app.session.capture.exchange(row))


def export_row(app: BarnabasApp, row: Row | None, values: bool, shown: str, count: int) -> None:
    """As a file; or all that a list shows: the filter `shown`, and how many exchanges that are. `values`: with keys and values
    of records."""
    from .exporting import export, forms

    if row is not None:
        capture = app.session.capture
        export(app, forms(capture, row, capture.exchange(row), values, shown, count))


def copy_row(app: BarnabasApp, row: Row | None, values: bool, here: list[Form]) -> None:
    """To the clipboard: what is under the cursor (`here`), or the whole exchange."""
    from .copying import copy_one, of_exchange

    if row is not None:
        copy_one(app, [*here, *of_exchange(row, app.session.capture.exchange(row), values)])
