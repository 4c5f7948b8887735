"""A screen on a proxy in front of librdkafka's mock cluster, and a real client behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from barnabas.proxy import Proxy
from barnabas.proxy.control import Control
from barnabas.ui.live import open_when_started
from barnabas.ui.tui.app import BarnabasApp
from confluent_kafka import Consumer
from textual.pilot import Pilot

from .awaiting import text_of, until, until_true
from .driving import Steps, application

T = TypeVar("T")


def drive(proxy: Proxy, steps: Steps, size: tuple[int, int] = (120, 40), **options: Any) -> None:
    """Run `steps` on the screen that is attached to a proxy."""
    assert proxy.control is not None
    control = Control(proxy.control.access.url, proxy.control.access.token)
    assert proxy.config.record is not None
    with open_when_started(Path(proxy.config.record)) as capture:
        app = BarnabasApp(capture, title="mock", live=True, control=control, **{"allow_edit": True} | options)

        async def go() -> None:
            async with app.run_test(size=size, notifications=True) as pilot:
                await pilot.pause()
                try:
                    await steps(pilot)
                except BaseException:
                    print(text_of(pilot), *app.session.log, sep="\n")  # pytest shows it
                    raise
            app.stop_once()

        asyncio.run(go())


async def hold(pilot: Pilot[None], text: str, side: str = "request", seconds: float = 300) -> None:
    """Press what a person presses to hold something, until the proxy holds this and nothing else."""
    await pilot.press("i")
    await until(pilot, "Intercept")
    for name, value in (("filter", text), ("side", side), ("seconds", f"{seconds:g}")):
        pilot.app.screen.query_one(f"#{name}").value = value  # type: ignore[attr-defined]
    await pilot.press("enter")
    queue = application(pilot).session.held
    await until_true(pilot, lambda: [each.filter for each in queue.intercepts] == [text], lambda: f"{queue.intercepts}")


class Client:
    """librdkafka's client; what it is asked runs in a thread, as the client waits for answers."""

    def __init__(self, address: tuple[str, int], name: str = "stock-1") -> None:
        bootstrap = "{}:{}".format(*address)
        self._own = Consumer(
            {"bootstrap.servers": bootstrap, "client.id": name, "group.id": name, "log_level": 0}
        )

    def run(self, ask: Callable[[Consumer], T]) -> Future[T]:
        """The future answer, or the client's error."""
        found: Future[T] = Future()

        def work() -> None:
            try:
                found.set_result(ask(self._own))
            except BaseException as error:  # the test looks at it
                found.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return found


async def outcome(pilot: Pilot[None], future: Future[T]) -> T:
    """What came of it; the screen goes on meanwhile."""
    await until_true(pilot, future.done, lambda: "the client still waits")
    return future.result()
