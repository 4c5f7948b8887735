"""The list asks only for the rows that are on the screen, however many there are."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Capture, Row
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.rows import RowView


class ManyRows(Sequence[Row]):
    """Rows made on demand from one sample; counts what is asked for."""

    def __init__(self, sample: Row, count: int):
        self.sample, self.count, self.asked = sample, count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self.count))]
        self.asked += 1
        return self.sample._replace(number=number, time_ns=self.sample.time_ns + number, error=6 * (number % 1000 == 0))


class ManyCapture:
    """As much of a `Capture` as the list needs."""

    path = Path("many")
    live = False
    note = None
    lost: tuple[tuple[int, int, int], ...] = ()

    def __init__(self, sample: Row, count: int):
        self.many = ManyRows(sample, count)
        self.added = 0

    def rows(self) -> ManyRows:
        return self.many

    def refresh(self) -> int:
        added, self.added = self.added, 0
        return added


def test_painting_asks_for_the_visible_rows_only(story: Capture) -> None:
    capture = ManyCapture(story.rows()[0], 100_000)

    async def go() -> None:
        app = BarnabasApp(capture, title="many")  # type: ignore[arg-type]
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert 0 < capture.many.asked < 400
            before = capture.many.asked
            await pilot.press("G")
            await pilot.pause()
            assert capture.many.asked - before < 200
            before = capture.many.asked
            await pilot.press("k")
            await pilot.pause()
            assert capture.many.asked - before < 40

    asyncio.run(go())


def test_growing_out_of_sight_asks_for_no_more_rows_than_fit(story: Capture) -> None:
    capture = ManyCapture(story.rows()[0], 100_000)

    async def go() -> None:
        app = BarnabasApp(capture, title="many", live=True)  # type: ignore[arg-type]
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("g")
            await pilot.pause(0.2)
            before = capture.many.asked
            capture.many.count += 50_000
            capture.added = 50_000
            await pilot.pause(0.3)
            assert capture.many.asked - before < 100
            await pilot.press("F")
            await pilot.pause(0.2)
            capture.many.count += 50_000
            capture.added = 50_000
            await pilot.pause(0.3)
            assert capture.many.asked - before < 400

    asyncio.run(go())


def test_a_search_works_in_slices_and_ends_complete(story: Capture) -> None:
    rows = ManyRows(story.rows()[0], 5_000)
    view = RowView(rows)
    view.show(lambda row: row.error != 0)
    view.search(seconds=0)
    assert view.searched == 256 and view.searching and len(view) == 1
    while view.searching:
        view.search(seconds=0)
    assert [view.number(i) for i in range(len(view))] == [0, 1000, 2000, 3000, 4000]
    assert view.position(3000) == 3 and view.position(3001) is None and view.row(2).number == 2000
    rows.count = 5_001
    assert view.searching and view.search() and view.number(5) == 5000
    view.show(None)
    assert len(view) == 5_001 and not view.searching and view.position(17) == 17


def test_a_long_search_runs_while_keys_are_answered(story: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that makes every slice the smallest one.
    monkeypatch.setattr("barnabas.ui.tui.rows.perf_counter", itertools.count().__next__)
    capture = ManyCapture(story.rows()[0], 20_000)

    async def go() -> None:
        app = BarnabasApp(capture, title="many")  # type: ignore[arg-type]
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("E")
            screen: Any = app.screen
            assert screen.view.searched < 20_000
            await pilot.press("j")
            assert screen.list.cursor == 1
            for _ in range(200):
                if not screen.view.searching:
                    break
                await pilot.pause(0.02)
            assert len(screen.view) == 20 and screen.view.searched == 20_000

    asyncio.run(go())
