"""The intercept dialog: a filter for frames to be held, the side of exchanges, and how long at most.

Intercepts that are made here end with the screen: a queue that nobody looks at would only make clients wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from ....decoder.filter import compile
from ....proxy.control import Control, ControlError
from ...safe import visible
from ...times import zone_name
from ..application import AppScreen
from ..model.held_queue import LEASE_SECONDS, HeldQueue
from ..widgets.palette import DARK, Palette
from .dialogs import Dialog

SIDES = {"request": (True, False), "response": (False, True), "both": (True, True)}
LONGEST = 3600.0
"""Seconds for which a frame can be held."""


class InterceptRequest(NamedTuple):
    """What is to be held; without a filter: nothing any more."""

    filter: str
    request: bool
    response: bool
    seconds: float
    zone: str


class InterceptBox(Dialog[InterceptRequest | None]):
    """Three inputs, checked with every key."""

    DEFAULT_CSS = """
    InterceptBox > Vertical { max-width: 100; padding: 0 1; }
    InterceptBox Input, InterceptBox Input:focus { padding: 0; background: $surface; }
    InterceptBox Static { height: auto; }
    """

    def __init__(self, text: str, side: str = "request", seconds: float = 30.0):
        super().__init__()
        self._first = text, side, f"{seconds:g}"
        self._verdict = Static("")

    def compose(self) -> ComposeResult:
        text, side, seconds = self._first
        box = Vertical(
            Static("Hold what this filter selects; empty: turn holding off", markup=False),
            Input(text, placeholder="api == Produce and topic == orders", id="filter"),
            Static("Which side: request, response or both", markup=False),
            Input(side, id="side"),
            Static("Seconds after which a frame without a decision is forwarded unchanged", markup=False),
            Input(seconds, id="seconds"),
            self._verdict,
        )
        box.border_title, box.border_subtitle = "Intercept", "Tab: next line  Enter: hold  Esc: back"
        yield box

    def on_mount(self) -> None:
        self._check()

    def _read(self) -> InterceptRequest | str:
        """The request that the inputs describe, or what is wrong with them."""
        text = self.query_one("#filter", Input).value.strip()
        side = self.query_one("#side", Input).value.strip().lower()
        if not text:
            return InterceptRequest("", False, False, 0.0, "")
        sides = next((on for name, on in SIDES.items() if side and name.startswith(side)), None)
        if sides is None:
            return "the side must be request, response or both"
        try:
            seconds = float(self.query_one("#seconds", Input).value)
        except ValueError:
            return "seconds must be a number"
        if not 0.1 <= seconds <= LONGEST:
            return f"0.1 to {LONGEST:g} seconds"
        try:
            wanted = compile(text)
            if sides[0]:
                wanted.require_request_only()
            return InterceptRequest(text, *sides, seconds, zone_name())
        except ValueError as fault:  # FilterError among them
            return str(fault)

    @on(Input.Changed)
    def _check(self) -> None:
        found = self._read()
        palette: Palette = getattr(self.app, "palette", DARK)
        if isinstance(found, str):
            self._verdict.update(Text(f"! {visible(found)}", palette.error))
        else:
            self._verdict.update(Text("ok" if found.filter else "nothing is held now", palette.ok))

    @on(Input.Submitted)
    def _done(self) -> None:
        found = self._read()
        if not isinstance(found, str):
            self.dismiss(found)


def ask_intercept(screen: AppScreen[Any], text: str) -> None:
    """Show the dialog, with `text` as the filter unless there is an intercept already."""
    session, queue = screen.session, screen.session.held
    if reason := session.read_only("frames can only be held in a running proxy (--attach)"):
        screen.notify(reason, severity="warning", timeout=4)
    else:
        own = [each for each in queue.intercepts if each.number in queue.own]
        side, seconds = "request", 30.0
        if own:
            text, seconds = own[-1].filter, own[-1].timeout
            side = "both" if own[-1].request and own[-1].response else "request" if own[-1].request else "response"
        screen.app.push_screen(InterceptBox(text, side, seconds), lambda wanted: _asked(screen, wanted))


def _asked(screen: AppScreen[Any], wanted: InterceptRequest | None) -> None:
    if wanted is None:
        return
    if not wanted.filter:
        remove_intercepts(screen)
        return
    queue = screen.session.held
    _do(screen, lambda control: intercept(control, queue, wanted), f"intercepted: {visible(wanted.filter)}")


def intercept(control: Control, queue: HeldQueue, wanted: InterceptRequest) -> None:
    """Hold what is wanted, in place of this screen's earlier intercepts. Raises ControlError."""
    old = sorted(queue.own)
    made = control.intercept(
        wanted.filter, request=wanted.request, response=wanted.response, timeout=wanted.seconds, lease=LEASE_SECONDS, zone=wanted.zone
    )
    queue.take_over(int(made["id"]))
    for number in old:
        _remove(control, number)
        queue.own.discard(number)


def remove_intercepts(screen: AppScreen[Any]) -> None:
    """Remove all intercepts, also those of others."""
    queue = screen.session.held
    if queue.intercepts:
        _do(screen, lambda control: remove_all(control, queue), "interception is off")


def remove_all(control: Control, queue: HeldQueue) -> None:
    """Remove all intercepts of the proxy. Raises ControlError."""
    for number in [each.number for each in queue.intercepts]:
        _remove(control, number)
    queue.own.clear()


def _do(screen: AppScreen[Any], change: Callable[[Control], None], done: str) -> None:
    session = screen.session

    def changed(_: None) -> None:
        session.add_to_log(done)
        session.held.soon()

    def refused(error: ControlError) -> None:
        screen.notify(visible(str(error)), severity="error", timeout=6, markup=False)
        session.held.soon()

    screen.call_proxy(change, changed, refused)


def _remove(control: Control, number: int) -> None:
    try:
        control.remove_intercept(number)
    except ControlError as error:
        if error.status != 404:
            raise
