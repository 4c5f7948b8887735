"""What screens use of the application. They import this, and `BarnabasApp` imports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from textual.app import App
from textual.screen import Screen, ScreenResultType

if TYPE_CHECKING:
    from ...decoder.values import SchemaSource
    from .model.rows import RowView
    from .model.session import Session
    from .model.settings import Settings
    from .widgets.palette import Palette


class Application(Protocol):
    """`BarnabasApp` beside what every Textual application has. `locked`: traffic must not be changed from here."""

    session: Session
    settings: Settings
    schemas: SchemaSource | None
    palette: Palette
    locked: bool

    @property
    def current(self) -> Screen[None] | None:
        """The view that is shown, also below a dialog; None while there is none."""

    def work(self) -> None:
        """Run slices of work between keys until nothing is left."""

    def action_view(self, number: int) -> None:
        """Switch to the view behind a number key."""

    def show_exchanges(self, text: str = "", number: int | None = None) -> None:
        """Switch to the first view, with a filter or with the cursor on row `number`; "" and None change neither."""

    def clear_filter(self) -> None:
        """Switch to the first view, and show all exchanges."""

    def open_exchange(self, view: RowView, position: int, left: Callable[[int | None], None] | None = None) -> None:
        """Show one exchange in detail. `left` gets the position in `view` that was shown last."""

    def held_changed(self) -> None:
        """Show the queue of held frames as it is now."""

    def use_theme(self, name: str) -> None:
        """Switch to another of `THEMES`."""


def application(app: App[Any]) -> Application:
    """The running application, typed."""
    return app  # type: ignore[return-value]


class AppScreen(Screen[ScreenResultType]):
    """A screen of `BarnabasApp`."""

    @property
    def barnabas(self) -> Application:
        """The application, typed."""
        return application(self.app)

    @property
    def session(self) -> Session:
        """What is looked at."""
        return self.barnabas.session
