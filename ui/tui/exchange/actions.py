"""What can be done with an exchange wherever it is shown: follow its connection, compare, send again, export, copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....captures import Row
    from ..application import AppScreen
    from .copying import Form


def show_conversation(screen: AppScreen[Any], row: Row | None) -> None:
    """The connection of a row."""
    from .conversation import ConversationScreen

    if row is not None:
        screen.app.push_screen(ConversationScreen(screen.session.capture, row))


def compare(screen: AppScreen[Any], row: Row | None) -> None:
    """Choose one side of a comparison; with the second one, show it. The same one twice: with the one before of its API."""
    from .comparison import CompareScreen, before_it

    if row is None:
        return
    session = screen.session
    first, session.chosen = session.chosen, None
    if first is None:
        session.chosen = row
        screen.notify(f"#{row.number + 1} is chosen: d on another one compares, d again compares with the one before.", timeout=4)
        return
    if first.number == row.number:
        found = before_it(session.capture, row)
        if found is None:
            screen.notify("There is no exchange of this API before it.", timeout=3)
            return
        first = found
    screen.app.push_screen(CompareScreen(session.capture, first, row))


def compare_here(screen: AppScreen[Any], row: Row | None) -> None:
    """From an exchange that is open: with the one that was chosen, else at once with the one before."""
    if screen.session.chosen is None:
        screen.session.chosen = row
    compare(screen, row)


def send_again(screen: AppScreen[Any], row: Row | None) -> None:
    """A copy of its request, to be changed first if need be."""
    from .resend import resend

    if row is not None:
        resend(screen, row, screen.session.capture.exchange(row))


def export_row(screen: AppScreen[Any], row: Row | None, values: bool, shown: str, count: int) -> None:
    """As a file; or all that a list shows: the filter `shown`, and how many exchanges that are. `values`: with keys and values
    of records."""
    from .exporting import export, forms

    if row is not None:
        capture = screen.session.capture
        export(screen, forms(capture, row, capture.exchange(row), values, shown, count))


def copy_row(screen: AppScreen[Any], row: Row | None, values: bool, here: list[Form]) -> None:
    """To the clipboard: what is under the cursor (`here`), or the whole exchange."""
    from .copying import copy_one, of_exchange

    if row is not None:
        copy_one(screen.app, [*here, *of_exchange(row, screen.session.capture.exchange(row), values)])
