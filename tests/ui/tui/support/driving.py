"""Runs the application over a capture, without a terminal; the screens that it shows."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from barnabas.captures import Capture
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.exchange.detail import DetailScreen
from barnabas.ui.tui.views.exchanges import ExchangesScreen
from textual.pilot import Pilot
from textual.screen import Screen

S = TypeVar("S", bound=Screen[Any])
Steps = Callable[[Pilot[None]], Awaitable[None]]
"""What a test presses, and what it looks for."""


def drive(
    capture: Capture, steps: Steps, size: tuple[int, int] = (120, 40), press: str = "", **options: Any
) -> BarnabasApp:
    """Run ``steps`` on the application, behind a key that is pressed first; ``options`` are those of ``BarnabasApp``."""
    app = BarnabasApp(capture, **{"title": "story"} | options)

    async def go() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await pilot.pause()
            if press:
                await pilot.press(press)
            await steps(pilot)

    asyncio.run(go())
    app.stop_once()
    return app


def application(pilot: Pilot[None]) -> BarnabasApp:
    """The application that is driven."""
    assert isinstance(pilot.app, BarnabasApp)
    return pilot.app


def screen(pilot: Pilot[None], kind: type[S]) -> S:
    """What is shown now, which is a screen of that kind."""
    assert isinstance(pilot.app.screen, kind)
    return pilot.app.screen


def exchanges(pilot: Pilot[None]) -> ExchangesScreen:
    """The list of exchanges, which is shown now."""
    return screen(pilot, ExchangesScreen)


def detail(pilot: Pilot[None]) -> DetailScreen:
    """One exchange, which is shown now."""
    return screen(pilot, DetailScreen)


def on_screen(
    capture: str = "story", *, size: tuple[int, int] = (120, 40), press: str = "", proxy: Callable[[], Any] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:  # fmt: skip
    """A test that drives the application over the fixture `capture`: its first argument is the pilot, the others are
    fixtures and parameters; one called `size` replaces that given here. `proxy` makes what stands for the control API: the
    application is attached to it, and the test gets it as its second argument."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        parameters = list(inspect.signature(test).parameters.values())[1 if proxy is None else 2 :]
        names = [parameter.name for parameter in parameters]

        @functools.wraps(test)
        def run(**given: Any) -> None:
            own = [] if proxy is None else [proxy()]
            attached = {"control": own[0]} if own else {}

            async def steps(pilot: Pilot[None]) -> None:
                await test(pilot, *own, **{name: given[name] for name in names})

            drive(given[capture], steps, given.get("size", size), press, **attached, **options)

        if capture not in names:
            parameters.append(inspect.Parameter(capture, inspect.Parameter.POSITIONAL_OR_KEYWORD))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate
