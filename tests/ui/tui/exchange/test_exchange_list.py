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
from barnabas.ui.tui.model.rows import RowView

from ..support.awaiting import searched, until_true


class ManyRows(Sequence[Row]):
    """Rows made on demand from one sample; counts what is asked for."""

    def __init__(self, sample: Row, count: int):
        self.sample, self.count, self.asked = sample, count, 0

    def __len__(self) -> int:
        return self.count

    done = property(__len__)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self.count))]
        self.asked += 1
        return self.sample._replace(number=number, time_ns=self.sample.time_ns + number, error=6 * (number % 1000 == 0))


class ManyCapture:
    """As much of a `Capture` as the list needs."""

    path = Path("many")
    has_frames = False
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
            assert capture.many.asked - before < 200
            before = capture.many.asked
            await pilot.press("k")
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


def every(step: int) -> Any:
    return lambda start, stop: (number for number in range(start, stop) if number % step == 0)


def test_a_search_goes_both_ways_in_slices_and_ends_complete(story: Capture) -> None:
    rows = ManyRows(story.rows()[0], 5_000)
    view = RowView(rows)
    view.show(every(1000), around=2500)
    assert view.search(seconds=0) == 0
    assert (view.low, view.high) == (2500, 2756) and view.searching
    before = 0
    while view.searching:
        before += view.search(seconds=0)
    assert before == 3  # rows 0, 1000, 2000: positions of the others moved by so much
    assert [view.number(i) for i in range(len(view))] == [0, 1000, 2000, 3000, 4000]
    assert [view.position(n) for n in (0, 2000, 3000, 3001)] == [0, 2, 3, None]
    assert [view.nearest(n) for n in (0, 1, 2000, 2001, 3001, 4999)] == [0, 1, 2, 3, 4, 5]
    rows.count = 5_001
    assert view.searching and view.search() == 0 and view.number(5) == 5000
    view.show(None)
    assert len(view) == 5_001 and not view.searching and view.position(17) == 17


def test_an_order_keeps_what_was_found(story: Capture) -> None:
    view = RowView(ManyRows(story.rows()[0], 3_000))
    view.show(every(1000))
    while view.searching:
        view.search()
    view.sort(lambda row: -row.number)
    assert [view.number(i) for i in range(len(view))] == [2000, 1000, 0] and view.position(1000) == 1
    view.sort(None)
    assert [view.number(i) for i in range(len(view))] == [0, 1000, 2000]
    assert [RowView(view.rows, [7, 9]).row(i).number for i in range(2)] == [7, 9]


def test_a_long_search_runs_while_keys_are_answered(story: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that makes every slice the smallest one, and a search that goes on only when the test lets it.
    monkeypatch.setattr("barnabas.ui.tui.model.rows.perf_counter", itertools.count().__next__)
    monkeypatch.setattr("barnabas.ui.tui.views.exchanges.row_finder", lambda capture, text: every(100))
    search, slices = RowView.search, 1

    def search_if_allowed(view: RowView, seconds: float = 0) -> int:
        nonlocal slices
        slices -= 1
        return search(view, seconds) if slices >= 0 else 0

    monkeypatch.setattr(RowView, "search", search_if_allowed)
    capture = ManyCapture(story.rows()[0], 1_000)

    async def go() -> None:
        nonlocal slices
        app = BarnabasApp(capture, title="many")  # type: ignore[arg-type]
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("E")
            screen: Any = app.screen
            assert screen.view.searched == 256
            await pilot.press("j")
            await until_true(pilot, lambda: screen.list.cursor == 1)
            assert screen.view.searched == 256 and screen.view.searching
            slices = 1_000
            await searched(pilot, screen.view)
            assert len(screen.view) == 10 and screen.view.searched == 1_000 and screen.list.cursor == 1

    asyncio.run(go())
