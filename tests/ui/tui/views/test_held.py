"""The held view on a stand-in for the control API: what every key asks of it, and that nothing is asked when it may not be."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Capture
from barnabas.proxy.control import ControlError
from barnabas.proxy.control.held_frame_copies import HeldFrameCopy
from barnabas.proxy.processes.control_messages import HeldNotice
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.model.held_queue import LEASE_SECONDS
from barnabas.ui.tui.widgets.field_tree import FieldTree
from barnabas.ui.tui.widgets.hex_view import HexView
from harness.wire import with_size
from textual.pilot import Pilot
from textual.widgets import TextArea

from ..support.awaiting import until, until_true
from ..support.driving import Steps, drive, on_screen

BODY = {"group_id": "stock", "generation_id": 5, "member_id": "m-1", "group_instance_id": None}

INTERCEPT = {
    "id": 1, "filter": "api == Heartbeat", "request": True, "response": False, "timeout": 30.0, "most": 16,
    "times_left": None, "held": 0, "passed": 0, "failed": None,
}  # fmt: skip


class Proxy:
    """As much of `Control` as the view needs."""

    def __init__(self, *numbers: int) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.numbers = list(numbers)
        self.holding = [dict(INTERCEPT)]
        self.refusal = ControlError(0, "")

    def rules(self) -> list[dict[str, Any]]:
        return []

    def intercepts(self) -> list[dict[str, Any]]:
        return [dict(each) for each in self.holding]

    def intercept(self, text: str, **options: Any) -> dict[str, Any]:
        self.asked.append(("intercept", text, options))
        self.holding.append(INTERCEPT | {"id": 2, "filter": text})
        return {"id": 2}

    def renew_intercept(self, number: int) -> None:
        self.asked.append(("renew", number))

    def remove_intercept(self, number: int) -> None:
        self.asked.append(("remove", number))
        self.holding = [each for each in self.holding if each["id"] != number]
        if not self.holding:
            self.numbers.clear()

    def held(self) -> list[dict[str, Any]]:
        return [
            {"id": n, "intercept": 1, "connection": n, "client": f"127.0.0.1:{n}", "broker": "127.0.0.1:9092", "side": "request",
             "api": "Heartbeat", "api_key": 12, "api_version": 3, "correlation_id": n, "client_id": f"stock-{n}",
             "time_ns": time.time_ns(), "timeout": 30.0, "remaining": 30.0, "size": 40, "undecoded": None, "body": BODY}
            for n in self.numbers
        ]  # fmt: skip

    def held_frame(self, number: int) -> dict[str, Any]:
        self.asked.append(("bytes", number))
        frame = decoder.encode_request(12, 3, BODY, correlation_id=number, client_id=f"stock-{number}")
        return next(each for each in self.held() if each["id"] == number) | {"frame": frame.hex(), "hidden": []}

    def _gone(self, number: int) -> None:
        if self.refusal.status:
            raise self.refusal
        self.numbers.remove(number)

    def resume(self, number: int, edits: dict[str, Any]) -> None:
        self.asked.append(("resume", number, edits))
        self._gone(number)

    def drop(self, number: int, **how: Any) -> None:
        self.asked.append(("drop", number, how))
        self._gone(number)

    def extend(self, number: int, seconds: float) -> None:
        self.asked.append(("extend", number, round(seconds, -1)))


def drive_held(capture: Capture, proxy: Proxy, steps: Steps, allow_edit: bool = True) -> None:
    """Run `steps` on the held view."""
    drive(capture, steps, (100, 34), "9", control=proxy, allow_edit=allow_edit)


def held_view(*numbers: int, allow_edit: bool = True) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """A test of the held view while the proxy holds these frames."""
    return on_screen(size=(100, 34), press="9", proxy=lambda: Proxy(*numbers), allow_edit=allow_edit)


async def asked(pilot: Pilot[None], proxy: Proxy, wanted: tuple[object, ...]) -> None:
    """Wait until the proxy has been asked for this."""
    await until_true(pilot, lambda: wanted in proxy.asked, lambda: f"{wanted} was not asked, only {proxy.asked}")


@held_view(1, 2, 3, 4, 5, 6)
async def test_the_queue_and_every_decision(pilot: Pilot[None], proxy: Proxy) -> None:
    shown = await until(pilot, "stock-6")
    assert "HELD 6" in shown and "requests where api == Heartbeat" in shown and "generation_id: 5" in shown
    await pilot.press("t")
    await asked(pilot, proxy, ("extend", 1, 150))
    await pilot.press("a")
    await asked(pilot, proxy, ("resume", 1, {}))
    await until(pilot, "HELD 5")
    await pilot.press("d")
    await asked(pilot, proxy, ("drop", 2, {"silent": True}))
    await until(pilot, "HELD 4")
    await pilot.press("X")
    await asked(pilot, proxy, ("drop", 3, {"close": "rst"}))
    await until(pilot, "HELD 3")
    await pilot.press("f")
    shown = await until(pilot, "Answer Heartbeat")
    # What brokers say to this API comes first.
    assert "ILLEGAL_GENERATION" in shown and "NOT_LEADER_OR_FOLLOWER" not in shown
    await pilot.press(*"rebalance_in", "enter")
    await asked(pilot, proxy, ("drop", 4, {"error": "REBALANCE_IN_PROGRESS"}))
    await until(pilot, "HELD 2")
    await pilot.press("A")
    await asked(pilot, proxy, ("resume", 5, {}))
    await asked(pilot, proxy, ("resume", 6, {}))
    await until(pilot, "Nothing is held now")
    await pilot.press("I")
    await until(pilot, "Turn holding off?")
    await pilot.press("y")
    await asked(pilot, proxy, ("remove", 1))
    await until(pilot, "Nothing is intercepted")


@held_view(1)
async def test_fields_are_changed_in_place(pilot: Pilot[None], proxy: Proxy) -> None:
    await until(pilot, "generation_id: 5")
    await pilot.press("enter", "j", "enter")  # to the fields, and the second of them
    await until(pilot, "a whole number, -2,147,483,648")
    await asked(pilot, proxy, ("extend", 1, 90))  # there is time to type
    await pilot.press(*"99999999999")
    await until(pilot, "99999999999 does not fit an int32")
    await pilot.press("enter")  # not taken
    await until(pilot, "does not fit")
    await pilot.press("ctrl+u", *"7", "enter")
    await until(pilot, "generation_id: 7  * changed")
    await pilot.press("u")
    await until(pilot, "generation_id: 5")
    await pilot.press("enter", *"8", "enter")
    await until(pilot, "generation_id: 8  * changed")
    await pilot.press("escape", "a")
    await asked(pilot, proxy, ("resume", 1, {"generation_id": 8}))


@held_view(1, 2)
async def test_bytes_stand_beside_the_fields_and_are_linked_both_ways(pilot: Pilot[None], proxy: Proxy) -> None:
    await until(pilot, "generation_id: 5")
    assert ("bytes", 1) not in proxy.asked  # nobody has asked to see them
    await pilot.press("b")
    await until(pilot, "Bytes of the request")
    assert "stock-1" in await until(pilot, "00000 00 0c 00 03 00 00 00 01")  # api key 12, version 3, correlation id 1
    shown = pilot.app.screen
    tree, pane = shown.query_one("#fields", FieldTree), shown.query_one("#bytes", HexView)
    await pilot.press("enter", "j")  # to the fields, and the second of them
    await until(pilot, "generation_id @24+4")
    start, end = pane.marked
    assert pane.frame[start:end] == (5).to_bytes(4, "big")
    pane.focus()
    pane.point(pane.frame.index(b"m-1") + 1)
    await until(pilot, "member_id @28+5")
    assert tree.current.name == "member_id"
    await pilot.press("escape", "down")
    assert "stock-2" in await until(pilot, "00000 00 0c 00 03 00 00 00 02")
    await pilot.press("b")
    await until(pilot, "generation_id: 5", absent="Bytes of the request")
    assert [each for each in proxy.asked if each[0] == "bytes"] == [("bytes", 1), ("bytes", 2)]


def test_secrets_and_records_do_not_stand_in_the_bytes(story: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the control server makes of a log-in, as the screen shows it."""
    proxy = Proxy(1)
    login = decoder.encode_request(36, 1, {"auth_bytes": b"\0user\0canary"}, correlation_id=1)
    listed = proxy.held()[0] | {"api_key": 36, "api_version": 1, "request_size": 0}
    notice = HeldNotice(**{field.name: listed[field.name] for field in fields(HeldNotice)})
    frame = HeldFrameCopy(notice, with_size(login))
    monkeypatch.setattr(proxy, "held", lambda: [frame.to_dict(False)])
    monkeypatch.setattr(proxy, "held_frame", lambda number: frame.to_dict(False) | frame.covered_bytes(False))

    async def steps(pilot: Pilot[None]) -> None:
        await until(pilot, "secret, masked")
        await pilot.press("b")
        shown = await until(pilot, "2a 2a 2a")
        assert "canary" not in shown and "63 61 6e" not in shown and "auth_bytes @" in shown

    drive_held(story, proxy, steps)


@held_view(1)
async def test_the_reason_for_missing_bytes_is_shown(
    pilot: Pilot[None], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "held_frame", lambda number: proxy.held()[0])

    await until(pilot, "generation_id: 5")
    await pilot.press("b")
    await until(pilot, "The proxy is older")


@held_view(1)
async def test_the_editor_gives_back_what_it_refuses(
    pilot: Pilot[None], proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    # The first time something that is no number, the second time (the message says why) one.
    script = tmp_path / "editor"
    script.write_text(
        f'#!/bin/sh\ncat "$1" >> {seen}; echo ==== >> {seen}\n'
        f'if grep -q "does not fit\\|not a whole number" "$1"; then new=9; else new=nine; fi\n'
        'sed -i "s/^generation_id: .*/generation_id: $new/" "$1"\n'
    )
    script.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(script))
    monkeypatch.setattr(BarnabasApp, "suspend", lambda self: contextlib.nullcontext())

    await until(pilot, "generation_id: 5")
    await pilot.press("e")
    await until(pilot, "generation_id: 9  * changed")
    rounds = seen.read_text().split("====\n")
    assert "generation_id: 5" in rounds[0] and "Heartbeat v3" in rounds[0]
    assert rounds[1].startswith("# ! generation_id: 'nine' is not a whole number") and "generation_id: nine" in rounds[1]
    await asked(pilot, proxy, ("extend", 1, 930))  # there is time to write
    await pilot.press("a")
    await asked(pilot, proxy, ("resume", 1, {"generation_id": 9}))


@pytest.mark.slow
@held_view(1)
async def test_without_a_terminal_the_text_is_edited_on_the_screen(pilot: Pilot[None], proxy: Proxy) -> None:
    await until(pilot, "generation_id: 5")
    await pilot.press("e")
    await until(pilot, "Edit Heartbeat v3")
    pilot.app.screen.query_one(TextArea).text = "generation: 6"
    await pilot.press("ctrl+s")
    await until(pilot, "there is no such field at this version, only group_id, generation_id")
    pilot.app.screen.query_one(TextArea).text = "generation_id: 6"
    await pilot.press("ctrl+s")
    await until(pilot, "generation_id: 6  * changed")


@held_view(1, allow_edit=False)
async def test_nothing_is_done_when_it_may_not_be(pilot: Pilot[None], proxy: Proxy) -> None:
    await until(pilot, "stock-1")
    for key in ("a", "A", "d", "X", "f", "e", "t", "i", "I"):
        await pilot.press(key)
        await until(pilot, "Read-only: start with --allow-edit")
    await pilot.press("enter", "enter")
    await until(pilot, "Read-only")
    assert proxy.asked == []


@held_view(1)
async def test_a_refusal_is_shown_and_the_frame_keeps_waiting(pilot: Pilot[None], proxy: Proxy) -> None:
    proxy.refusal = ControlError(404, "held 1 is no longer waiting")

    await until(pilot, "stock-1")
    await pilot.press("a")
    await until(pilot, "its time was up")
    assert "HELD 1" in await until(pilot, "stock-1")


def test_names_from_the_traffic_are_no_markup(story: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(1)
    hostile = "[/red][@click=app.quit]x\x1b[2J"
    held = proxy.held()
    monkeypatch.setattr(proxy, "held", lambda: [held[0] | {"client_id": hostile}])
    proxy.refusal = ControlError(422, f"{hostile} is refused")

    async def steps(pilot: Pilot[None]) -> None:
        await until(pilot, "[/red]")
        await pilot.press("f")
        assert "\x1b" not in await until(pilot, "Answer Heartbeat v3 request of [/red][@click=app.quit]x\\x1b[2J")
        await pilot.press("escape", "a")
        await until(pilot, "is refused")

    drive_held(story, proxy, steps)


def test_what_to_hold_is_checked_while_it_is_typed(story: Capture) -> None:
    proxy = Proxy()
    proxy.holding.clear()

    async def steps(pilot: Pilot[None]) -> None:
        await until(pilot, "Nothing is intercepted")
        await pilot.press("i", *"api == Prodce")
        await until(pilot, "did you mean Produce")
        await pilot.press("enter")  # not taken
        await pilot.press("ctrl+u", *"err", "tab", "tab")
        await until(pilot, "not known before the response")
        await pilot.press("shift+tab", "ctrl+u", *"resp", "tab", "ctrl+u", *"0")
        await until(pilot, "0.1 to 3600 seconds")
        await pilot.press("ctrl+u", *"45", "enter")
        wanted = ("intercept", "err", {"request": False, "response": True, "timeout": 45.0, "lease": LEASE_SECONDS, "zone": "UTC"})
        await asked(pilot, proxy, wanted)

    drive_held(story, proxy, steps)
    assert ("remove", 2) in proxy.asked  # it ends with the screen
