"""What can be done with an exchange on every screen that shows one: follow its connection, compare, send again, export, copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....captures import Row
    from ..application import AppScreen
    from .copying import CopyFormat


def show_conversation(screen: AppScreen[Any], row: Row | None) -> None:
    """Show the connection of a row as a conversation."""
    from .conversation import ConversationScreen

    if row is not None:
        screen.app.push_screen(ConversationScreen(screen.session.capture, row))


def compare(screen: AppScreen[Any], row: Row | None) -> None:
    """Choose the first side of a comparison, or with the second one show it. The same row twice: compare with the exchange
    before of its API."""
    from .comparison import ComparisonScreen, before_it

    if row is None:
        return
    session = screen.session
    first, session.compare_with = session.compare_with, None
    if first is None:
        session.compare_with = row
        screen.notify(f"#{row.number + 1} is selected: d on another one compares them, d again compares with the previous one.", timeout=4)
        return
    if first.number == row.number:
        found = before_it(session.capture, row)
        if found is None:
            screen.notify("There is no earlier exchange of this API.", timeout=3)
            return
        first = found
    screen.app.push_screen(ComparisonScreen(session.capture, first, row))


def compare_here(screen: AppScreen[Any], row: Row | None) -> None:
    """Compare with the row that was chosen before, else with the exchange before of its API."""
    if screen.session.compare_with is None:
        screen.session.compare_with = row
    compare(screen, row)


def send_again(screen: AppScreen[Any], row: Row | None) -> None:
    """Send a copy of its request, which can be changed first."""
    from .resend import resend

    if row is not None:
        resend(screen, row, screen.session.capture.exchange(row))


def export_row(screen: AppScreen[Any], row: Row | None, values: bool, shown: str, count: int) -> None:
    """Export it, or the `count` exchanges that the filter `shown` selects. `values`: with keys and values of records."""
    from .exporting import export, export_formats

    if row is not None:
        capture = screen.session.capture
        export(screen, export_formats(capture, row, capture.exchange(row), values, shown, count))


def copy_row(screen: AppScreen[Any], row: Row | None, values: bool, here: list[CopyFormat]) -> None:
    """Copy what is under the cursor (`here`), or the whole exchange."""
    from .copying import copy_one, of_exchange

    if row is not None:
        exchange = screen.session.capture.exchange(row)
        copy_one(screen.app, [*here, *of_exchange(row, exchange, values, screen.barnabas.schemas)])
