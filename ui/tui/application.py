"""What screens use of the application. They import this, and `BarnabasApp` imports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from textual.app import App
from textual.screen import Screen, ScreenResultType

if TYPE_CHECKING:
    from ...decoder.values import SchemaSource
    from ...proxy.control import Control, ControlError
    from .model.rows import RowView
    from .model.session import Session
    from .model.settings import ScreenSettings
    from .widgets.palette import Palette

T = TypeVar("T")


class Application(Protocol):
    """`BarnabasApp` as screens use it."""

    session: Session
    settings: ScreenSettings
    schemas: SchemaSource | None
    palette: Palette

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
    """A screen of `BarnabasApp`. `context`: of its own keys; `contexts`: of all keys that are heard on it (`keys.KEYS`)."""

    context: ClassVar[str] = ""
    contexts: ClassVar[tuple[str, ...]] = ()

    @property
    def key_contexts(self) -> tuple[str, ...]:
        """`contexts`; a view with a list needs not name them."""
        return self.contexts or (self.context, "list", "view", "app")

    def capture_grew(self) -> None:
        """A live recording has more rows."""

    def schemas_loaded(self) -> None:
        """Schemas that record values were waiting for have arrived."""

    def call_proxy(
        self, call: Callable[[Control], T], done: Callable[[T], object], refused: Callable[[ControlError], object]
    ) -> None:
        """Do `call` in a thread, and then `done` or `refused` in the thread of the screen."""
        from ...proxy.control import ControlError

        app, control = self.app, self.session.control
        assert control is not None

        def work() -> None:
            try:
                result = call(control)
            except ControlError as error:
                app.call_from_thread(refused, error)
            else:
                app.call_from_thread(done, result)

        app.run_worker(work, thread=True, group="proxy", exit_on_error=False)

    @property
    def barnabas(self) -> Application:
        """The application, typed."""
        return application(self.app)

    @property
    def session(self) -> Session:
        """What is looked at."""
        return self.barnabas.session
