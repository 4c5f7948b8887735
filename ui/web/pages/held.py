"""Intercepts, and the frames that wait for a decision: edit, release, answer with an error, drop, reset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import Request
from nicegui import ui
from nicegui.events import GenericEventArguments

from ....decoder import DecodeError
from ....decoder.filter import compile
from ....proxy.control import Control, ControlError
from ...safe import visible
from ...times import zone_name
from ...tui.dialogs.intercept import LONGEST, SIDES, InterceptRequest, intercept, remove_all
from ...tui.exchange.body_editor import (
    BadValue,
    BodyTree,
    body_tree,
    expected_input,
    format_value,
    from_yaml,
    parse_value,
    to_yaml,
)
from ...tui.model.columns import duration
from ...tui.model.held_queue import QueuedFrame
from ...tui.model.session import NO_CONTROL
from ...tui.views.held import FOR_A_FILE, MORE_SECONDS, NOTHING, answerable, error_names, fetch_bytes
from ..markup import hex_html
from ..site import Site, button, link, note, text

TICK = 0.5
MOST_FIELDS = 400
"""Fields of one frame that have an input of their own; YAML has all."""


def register(site: Site) -> None:
    """Add the pages."""

    @ui.page("/held")
    def page(request: Request, filter: str = "") -> None:
        with site.frame(request, "Held", needs_rows=False):
            if site.session.control is None:
                note((NO_CONTROL if site.session.grows else FOR_A_FILE).replace("barnabas ui", "barnabas ui --web"))
                return
            _HeldPage(site, site.session.control, filter)

    @ui.page("/held/{number}")
    def one(request: Request, number: int) -> None:
        with site.frame(request, "Held", title=f"held #{number}", needs_rows=False):
            frame = next((each for each in site.session.held.frames if each.number == number), None)
            if frame is None or site.session.control is None:
                note(f"Frame #{number} is not held: it was decided about, its time was up, or its connection ended.")
                link("Held frames", site.url("held"))
            else:
                _FramePage(site, site.session.control, frame)


class _HeldPage:
    """The intercepts and the queue."""

    def __init__(self, site: Site, control: Control, filter: str) -> None:
        self.site, self.control, self.queue = site, control, site.session.held
        self._shown: object = None
        refused = site.may_edit()
        if refused:
            text(refused, "warning", "p")
        else:
            with ui.element("div").classes("bar"):
                self.filter = ui.input("Hold what this filter selects", value=filter, placeholder="api == Produce and topic == orders").classes("grow intercept")
                self.side = ui.select(list(SIDES), value="request", label="Side")
                self.seconds = ui.number("Seconds", value=30, min=0.1, max=LONGEST)
                ui.button("Hold", on_click=self._hold)
                ui.button("Release all", on_click=self._release)
            self.fault = text("", "error")
        self.holder = ui.element("div")
        self._show()
        ui.timer(TICK, self._show)

    def _show(self) -> None:
        queue = self.queue
        now = queue.fault, list(queue.intercepts), [(f.number, round(f.left())) for f in queue.frames]
        if now == self._shown:
            return
        self._shown = now
        self.holder.clear()
        with self.holder:
            if queue.fault:
                text(visible(f"The proxy does not answer: {queue.fault}"), "error", "p")
            for each in queue.intercepts:
                sides = " and ".join(["requests"] * each.request + ["responses"] * each.response)
                with ui.element("p").classes("note"):
                    text(f"Holds {sides} where ")
                    text(visible(each.filter), "name")
                    text(f", {each.timeout:g} s each, {each.most} at most", "muted")
                    if each.passed:
                        text(f"  ! {each.passed} passed: too many, or too large", "warning")
                    if each.failed:
                        text(f"  ! {visible(each.failed)}", "error")
            if not queue.frames and queue.fault:
                return
            if not queue.frames:
                note("Nothing is held now." if queue.intercepts else NOTHING.split("\n")[0])
                return
            with ui.element("div").classes("scroll"), ui.element("table").classes("sheet"):
                with ui.element("tr"):
                    for title in ("No", "Waits", "Left", "Side", "API", "Client", "Connection", "Size", "Changes"):
                        text(title, tag="th")
                for frame in queue.frames:
                    with ui.element("tr"):
                        with ui.element("td"):
                            link(f"#{frame.number} open", self.site.url(f"held/{frame.number}"))
                        for words in (
                            duration(int(frame.age() * 1e9)), f"{frame.left():.0f} s", frame.side, visible(f"{frame.api} v{frame.api_version}"),
                            visible(frame.client_id or frame.client), str(frame.connection), str(frame.size), str(len(frame.edits) or ""),
                        ):  # fmt: skip
                            text(words, tag="td")

    async def _hold(self) -> None:
        words, side = (self.filter.value or "").strip(), SIDES[self.side.value]
        try:
            wanted = compile(words)
            if not words:
                raise ValueError("write a filter first")
            if side[0]:
                wanted.require_request_only()
            asked = InterceptRequest(words, *side, min(float(self.seconds.value or 30), LONGEST), zone_name())
            await asyncio.to_thread(intercept, self.control, self.queue, asked)
        except (ValueError, ControlError) as error:  # FilterError among them
            self.fault.set_text(visible(str(error)))
            return
        self.fault.set_text("")
        self.site.session.add_to_log(f"intercepted: {visible(words)}")
        self.queue.soon()

    async def _release(self) -> None:
        try:
            await asyncio.to_thread(remove_all, self.control, self.queue)
        except ControlError as error:
            self.fault.set_text(visible(str(error)))
        self.site.session.add_to_log("interception is off")
        self.queue.soon()


class _FramePage:
    """One held frame."""

    def __init__(self, site: Site, control: Control, frame: QueuedFrame) -> None:
        self.site, self.control, self.frame = site, control, frame
        self.what = frame.side, frame.api_key, frame.api_version
        refused = site.may_edit()
        with ui.element("div").classes("bar"):
            link("Held frames", site.url("held")).classes("button").props("data-key=q")
            text(f"#{frame.number}", "badge")
            text(visible(f"{frame.api} v{frame.api_version} {frame.side}"), "title")
            text(visible(f"{frame.client_id or ''} {frame.client} → {frame.broker}, correlation id {frame.correlation_id}"), "muted")
            self.left = text("", "waiting")
        if refused:
            text(refused, "warning", "p")
        else:
            self._decisions()
        self.fault = text("", "error", "div")
        self.changes = text("", "warning", "div")
        with ui.element("section").classes("pane").props(f"data-side={frame.side}"):
            text("Fields", "muted", "h2")
            self.fields = ui.element("div").classes("tree")
        self._show_fields()
        with ui.element("section").classes("pane"):
            self.bytes_title = text("Bytes", "muted", "h2")
            self.bytes = ui.html("", sanitize=False).classes("hex")
        ui.timer(0.1, self._show_bytes, once=True)
        self._tick()
        ui.timer(TICK, self._tick)

    def _decisions(self) -> None:
        frame = self.frame
        with ui.element("div").classes("bar"):
            button("Release", "Release the frame, with its changes").props("data-key=a").on("click", self._resume)
            if answerable(frame.api_key, frame.api_version):
                names = {each.name: f"{each.name} {each.words.strip()}" for each in error_names(frame.api_key)}
                self.error = ui.select(names, label="Error", with_input=True).classes("errors")
                button("Answer with it", "Answer with an error instead").props("data-key=f").on("click", self._fail)
            button("Drop", "Drop the frame silently").props("data-key=d").on(
                "click", lambda: self._decide("dropped", lambda c: c.drop(frame.number, silent=True))
            )
            button("Reset", "End the connection with a reset").classes("danger").props("data-key=X").on(
                "click", lambda: self._decide("connection closed", lambda c: c.drop(frame.number, close="rst"))
            )
            button("Two minutes more", "Hold it longer").props("data-key=t").on("click", self._extend)
            if frame.body is not None:
                button("Edit as YAML", "Edit the message as text").props("data-key=e").on("click", self._edit_yaml)
                button("Undo", "Undo the changes").props("data-key=u").on("click", self._undo)

    def _tick(self) -> None:
        held = any(each.number == self.frame.number for each in self.site.session.held.frames)
        self.left.set_text(f"{self.frame.left():.0f} s left" if held else "no longer held")

    # --- fields --------------------------------------------------------------------------------------------

    def _show_fields(self) -> None:
        frame = self.frame
        self.changes.set_text(f"{len(frame.edits)} changed: {visible(', '.join(frame.edits))}" if frame.edits else "")
        self.fields.clear()
        with self.fields:
            if frame.body is None:
                note(f"It cannot be decoded, so it cannot be edited: {visible(frame.undecoded)}")
                return
            try:
                body = body_tree(*self.what, frame.body, frame.edits)
            except DecodeError as error:
                note(visible(str(error)))
                return
            inputs = 0
            for field in body.tree.fields[: 5 * MOST_FIELDS]:
                with ui.element("div").classes("edit-row"):
                    text(visible(field.name), "name").style(f"padding-left: {field.depth}rem")
                    if field.path in body.plans and not self.site.may_edit() and inputs < MOST_FIELDS:
                        inputs += 1
                        self._input(body, field.path)
                    else:
                        text(visible(field.value), field.role)

    def _input(self, body: BodyTree, path: str) -> None:
        plan, value = body.plans[path], body.values[path]
        line = ui.element("input").classes("line" + (" warning" if path in self.frame.edits else ""))
        # not `value`, which would be set again while somebody types, with each update of the page
        line.props["defaultValue"] = format_value(plan, value)
        line.props["title"], line.props["name"] = visible(expected_input(plan)), path
        line.props["aria-label"] = visible(path)
        line.on("change", partial(self._changed, body, path), js_handler="(event) => emit(event.target.value)")

    def _changed(self, body: BodyTree, path: str, event: GenericEventArguments) -> None:
        try:
            value = parse_value(body.plans[path], str(event.args))
        except BadValue as error:
            self.fault.set_text(visible(f"{path}: {error}"))
            return
        self.fault.set_text("")
        self.frame.edits[path] = value
        self._show_fields()

    def _undo(self) -> None:
        self.frame.edits.clear()
        self._show_fields()

    def _edit_yaml(self) -> None:
        frame, body = self.frame, self.frame.body
        assert body is not None
        with ui.dialog() as dialog, ui.card().style("width: 46rem; max-width: 95vw"):
            text("Fields that you leave out keep their bytes.", "muted")
            area = ui.textarea(value=to_yaml(*self.what, body, frame.edits)).style("width: 100%").classes("yaml")
            area.props("input-style='font-family: monospace; min-height: 18rem'")
            fault = text("", "error")

            def done() -> None:
                try:
                    frame.edits = from_yaml(*self.what, body, area.value or "")
                except BadValue as error:
                    fault.set_text(visible(str(error)))
                    return
                dialog.close()
                self._show_fields()

            with ui.row():
                ui.button("Change", on_click=done)
                ui.button("Cancel", on_click=dialog.close)
        dialog.open()

    async def _show_bytes(self) -> None:
        try:
            found = await asyncio.to_thread(fetch_bytes, self.control, self.frame.number)
        except (ControlError, KeyError) as error:
            self.bytes_title.set_text(visible(f"Bytes: {error}"))
            return
        hidden = "; bytes of records are hidden" if found.hidden else ""
        self.bytes_title.set_text(f"Bytes of the {self.frame.side}, as it waits{hidden}")
        self.bytes.set_content(hex_html(found.frame, found.hidden, None))

    # --- decisions -----------------------------------------------------------------------------------------

    async def _decide(self, done: str, how: Callable[[Control], Any]) -> None:
        frame, queue = self.frame, self.site.session.held
        if refused := self.site.may_edit():
            self.fault.set_text(refused)
            return
        try:
            await asyncio.to_thread(how, self.control)
        except ControlError as error:
            gone = error.status == 404
            self.fault.set_text("It is no longer held: its time was up, or its connection ended." if gone else visible(str(error)))
            queue.soon()
            return
        self.site.session.add_to_log(f"held #{frame.number} {frame.name()}: {done}")
        queue.forget(frame.number)
        queue.soon()
        self.site.go(self.site.url("held"))

    async def _resume(self) -> None:
        edits = dict(self.frame.edits)
        await self._decide("resumed, changed" if edits else "resumed", lambda c: c.resume(self.frame.number, edits))

    async def _fail(self) -> None:
        name = self.error.value
        if not name:
            self.fault.set_text("Choose an error first.")
            return
        await self._decide(f"answered with {name}", lambda c: c.drop(self.frame.number, error=name))

    async def _extend(self) -> None:
        wanted = min(self.frame.left() + MORE_SECONDS, LONGEST)
        try:
            await asyncio.to_thread(lambda: self.control.extend(self.frame.number, wanted))
        except ControlError as error:
            self.fault.set_text(visible(str(error)))
        self.site.session.held.soon()
