"""The latency gate: nothing that the screen does keeps a key waiting, whatever it searches, counts, sorts or opens.

What a key waits for is the longest piece of work on the screen's thread. It is measured in processor time of that thread, which
other programs on the machine do not lengthen; how long keys really take, through a terminal, `bench/ui` measures.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.ui.tui.app import BarnabasApp
from harness.wire import with_size
from textual.pilot import Pilot

EXCHANGES = 8_000
"""Few enough to be read in the screen's own process; counting and reading them in one piece takes longer than the gate."""
GATE = 0.1
"""Seconds of processor time: the goal for keys while a large capture is filtered."""


def write(directory: Path) -> None:
    recorder = Recorder(directory)
    fields = {"group_id": "stock", "generation_id": 5, "member_id": "m-1"}
    asked = decoder.encode_request(12, 4, fields, correlation_id=0, client_id="stock-1")
    answered = decoder.encode_response(12, 4, {}, correlation_id=0)
    request, response = (with_size(frame) for frame in (asked, answered))
    for connection in range(1, 20):
        recorder.opened(connection, 1, client=("10.0.0.5", 50000 + connection), broker=("10.0.1.1", 9092))
    for first in range(0, EXCHANGES, 100):
        numbers = [number.to_bytes(4, "big") for number in range(first, first + 100)]
        now = 1_795_000_000_000_000_000 + first * 100_000
        connection = 1 + first // 100 % 19
        recorder.data(connection, 0, now, b"".join(request[:8] + n + request[12:] for n in numbers))
        recorder.data(connection, 1, now + 1_300_000, b"".join(response[:4] + n + response[8:] for n in numbers))
    recorder.close()


class Longest:
    """The longest piece of work on the event loop since `restart`, in seconds of its thread's processor time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def restart(self) -> None:
        gc.collect()
        self.seconds = 0.0


@contextmanager
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Longest]:
    longest, run = Longest(), asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        longest.seconds = max(longest.seconds, time.thread_time() - began)

    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    yield longest
    monkeypatch.undo()


async def rest(pilot: Pilot[Any]) -> None:
    """Until nothing is left to be done between keys."""
    app: Any = pilot.app
    await pilot.pause()
    while app._working._active.is_set():
        await pilot.pause(0.01)


@pytest.mark.slow
def test_no_piece_of_work_is_longer_than_a_key_may_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "run")
    found: dict[str, float] = {}

    async def go(longest: Longest) -> None:
        app = BarnabasApp(capture, title="gate")
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("2", "6", "5", "slash", *"err", "enter", "escape", "1")  # what is loaded once is loaded
            await rest(pilot)
            for what, keys in {
                "filter": ("slash", *"err", "enter"),
                "filter that decodes": ("escape", "slash", *"req.generation_id", "space", "greater_than_sign", "space", *"4", "enter"),
                "sort": ("escape", "o"),
                "detail": ("enter",),
                "counts": ("escape", "2"),
                "latency": ("6",),
                "problems": ("5",),
            }.items():
                if what in ("counts", "latency", "problems"):
                    app.session._statistics = app.session._analysis = None  # all over again
                longest.restart()
                await pilot.press(*keys)
                await rest(pilot)
                found[what] = longest.seconds

    with open_capture(tmp_path / "run") as capture, measured(monkeypatch) as longest:
        asyncio.run(go(longest))
    assert {what: each for what, each in found.items() if each > GATE} == {}, found
