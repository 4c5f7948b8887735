"""The views behind the number keys: what they show of a recording, and where their keys lead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Capture, open_capture
from barnabas.decoder import Direction, facts
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.detail import DetailScreen
from barnabas.ui.tui.member_timeline import timeline
from barnabas.ui.tui.views import PLACES
from textual.pilot import Pilot

from .awaiting import searched, until
from .awaiting import text_of as text

Steps = Callable[[Pilot[None]], Awaitable[None]]
SIZES: list[Any] = [(80, 24), (120, 40), pytest.param((160, 48), marks=pytest.mark.slow)]


def drive(capture: Any, steps: Steps, size: tuple[int, int] = (120, 40), **options: Any) -> None:
    app = BarnabasApp(capture, title="story", **options)

    async def go() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await pilot.pause()
            await steps(pilot)

    asyncio.run(go())


@pytest.fixture(scope="session")
def group_path(tmp_path_factory: pytest.TempPathFactory, scribe_at: Any) -> Path:
    """A group of two: both join, one is told of a rebalance, the other never comes back."""
    path = tmp_path_factory.mktemp("group") / "run"
    scribe = scribe_at(path)

    base = 1_753_000_000_000_000_000

    def together(api: str, version: int, *of: tuple[int, dict[str, Any], dict[str, Any] | None]) -> None:
        """All ask, then all are answered: as a coordinator does with a group that rebalances."""
        key = facts.api_key(api)
        for conn, request, _ in of:
            scribe.count += 1
            frame = decoder.encode_request(
                key, version, request, correlation_id=scribe.count, client_id=f"stock-{conn}"
            )
            scribe.raw(conn, Direction.REQUEST, frame, base + scribe.count * 1_000_000)
        first = scribe.count - len(of) + 1
        for number, (conn, _, response) in enumerate(of, first):
            if response is not None:
                frame = decoder.encode_response(key, version, response, correlation_id=number)
                scribe.raw(conn, Direction.RESPONSE, frame, base + (scribe.count + 1) * 1_000_000)
        scribe.count += 2

    def joining(conn: int, generation: int, members: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        told = [{"member_id": f"m-{i + 1}", "metadata": b""} for i in range(members)] if conn == 1 else []
        request = {
            "group_id": "stock", "member_id": f"m-{conn}", "session_timeout_ms": 10000, "rebalance_timeout_ms": 10000,
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
        }  # fmt: skip
        return conn, request, {"generation_id": generation, "protocol_name": "range", "leader": "m-1",
                               "member_id": f"m-{conn}", "members": told}  # fmt: skip

    def syncing(conn: int, generation: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        return conn, {"group_id": "stock", "generation_id": generation, "member_id": f"m-{conn}"}, {}

    scribe.opened(1)
    scribe.opened(2)
    for members in (1, 2):
        together("JoinGroup", 7, *(joining(conn, 3 + members, members) for conn in range(1, members + 1)))
        together("SyncGroup", 5, *(syncing(conn, 3 + members) for conn in range(1, members + 1)))
    for error in (0, 0, 27):
        beat = {"group_id": "stock", "generation_id": 5, "member_id": "m-1"}
        together("Heartbeat", 4, (1, beat, {"error_code": error}))
    together("JoinGroup", 7, (*joining(1, 6, 2)[:2], None))
    scribe.close()
    return path


@pytest.fixture
def group(group_path: Path) -> Iterator[Capture]:
    with open_capture(group_path) as capture:
        yield capture


@pytest.mark.parametrize("size", SIZES)
def test_every_view_is_reached_by_its_number_and_fills_the_screen(story: Capture, size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        for number, place in reversed(list(enumerate(PLACES, 1))):
            await pilot.press(str(number))
            await pilot.pause()
            lines = text(pilot).split("\n")
            assert pilot.app.screen.number == number  # type: ignore[attr-defined]
            assert (
                " FILE  story" in lines[0] and f" {number} {place.name if size[0] >= 100 else place.short}" in lines[1]
            )
            assert "? help" in lines[-1] and len(lines) == size[1]
        await pilot.click("TabLine", offset=(text(pilot).split("\n")[1].index(" 5 ") + 2, 0))
        await pilot.pause()
        assert pilot.app.screen.number == 5  # type: ignore[attr-defined]
        await pilot.press("q")
        await pilot.pause()
        assert pilot.app.screen.number == 1  # type: ignore[attr-defined]

    drive(story, steps, size)


def test_connections_and_clients_lead_to_their_exchanges(story: Capture) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        shown = await until(pilot, "127.0.0.1:9094")
        assert "stock-1" in shown and "billing-7" in shown and "2 connections" in shown
        await pilot.press("j", "enter")
        await until(pilot, "conn == 2")
        await until(pilot, "5 of 11 exchanges")
        await pilot.press("2", "c")
        await until(pilot, "Software")
        await pilot.press("g", "enter")
        await until(pilot, 'client == "billing-7"')

    drive(story, steps)


def test_a_problem_opens_the_exchange_that_shows_it(story: Capture) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await until(pilot, "corrupt")
        shown = await until(pilot, "such as")
        assert "seen " in shown and "why " in shown and "do " in shown
        finding = pilot.app.screen.current  # type: ignore[attr-defined]
        await pilot.press("enter")
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, DetailScreen)
        assert screen.exchange.correlation_id == finding.exchanges[0].correlation_id
        await pilot.press("escape", "f")
        await until(pilot, "corr ")
        assert "Exchanges" in text(pilot)

    drive(story, steps)


@pytest.mark.parametrize("size", SIZES[:2])
def test_a_group_shows_who_waits_for_whom_in_one_key(group: Capture, size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        shown = await until(pilot, "PreparingRebalance")
        line = next(x for x in shown.split("\n") if "stock-1" in x)
        assert "!" in line or "r" in line  # told of the rebalance
        assert "=" in line  # waits for the answer to its JoinGroup
        assert "waits for" in shown and "stock-2" in shown
        await pilot.press("enter", "enter")
        await until(pilot, 'group == "stock"')

    drive(group, steps, size)


def test_a_refused_version_is_understood_in_two_keys(tmp_path: Path, scribe_at: Any) -> None:
    scribe = scribe_at(tmp_path / "run")
    scribe.opened(1)
    refusal = decoder.encode_response(
        18, 0, {"error_code": 35, "api_keys": [{"api_key": 18, "max_version": 3}]}, correlation_id=1
    )
    software = {"client_software_name": "apache-kafka-java", "client_software_version": "4.1.0"}
    scribe.exchange(1, "ApiVersions", 4, software, refusal)
    offered = {"api_keys": [{"api_key": 18, "max_version": 3}, {"api_key": 3, "max_version": 9}]}
    scribe.exchange(1, "ApiVersions", 3, software, offered)
    scribe.exchange(1, "Metadata", 9, {"topics": None}, {})
    scribe.close()

    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        assert "KIP-511" in await until(pilot, "api-versions-fallback")
        await pilot.press("enter")
        shown = await until(pilot, "UNSUPPORTED_VERSION (35)")
        assert "ApiVersions v4" in shown and "v0 (fallback)" in shown and "max_version: 3" in shown
        await pilot.press("w")
        assert "What to do" in await until(pilot, "What to do")
        await pilot.press("escape", "r")
        assert "tried again, with success" in await until(pilot, "tried again")
        await pilot.press("enter")
        await until(pilot, "ApiVersions v3")
        await pilot.press("4")
        assert "! v3-4 of 0-3" in await until(pilot, "of 0-3")  # the matrix says so with one key

    with open_capture(tmp_path / "run") as capture:
        drive(capture, steps, (120, 40))


def test_a_member_that_has_done_nothing_yet_has_an_empty_line() -> None:
    nothing: Any = SimpleNamespace(timeline=[], live=True)
    assert timeline(nothing, 0, 1000, 12) == [(" " * 12, "")]


def test_the_timeline_can_be_zoomed(group: Capture) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        await until(pilot, "PreparingRebalance")
        screen: Any = pilot.app.screen
        start, end = screen._span(screen.groups[0])
        await pilot.press("plus")
        assert screen._span(screen.groups[0]) == (end - (end - start) // 2, end)
        await pilot.press("left", "left")
        assert screen._span(screen.groups[0])[1] < end
        await pilot.press("right", "right", "minus", "minus")
        assert screen._span(screen.groups[0]) == (start, end)

    drive(group, steps)


def test_versions_show_what_was_asked_and_offered(story: Capture) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        shown = await until(pilot, "billing-7")
        produce = next(x for x in shown.split("\n") if " Produce " in x)
        assert "v9 of ?" in produce  # nobody told this client's broker's range
        metadata = next(x for x in shown.split("\n") if " Metadata " in x)
        assert "v9 of 0-9" in metadata
        await pilot.press("l", "l", "h", "enter")
        await until(pilot, "api == ")

    drive(story, steps)


def test_a_stretch_of_time_becomes_a_filter(story: Capture) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("6")
        shown = await until(pilot, "p99")
        assert "Produce" in shown and "4.2ms" in shown and "rate of all APIs" in shown
        await pilot.press("v")
        assert "p99 of all APIs" in await until(pilot, "p99 of all")
        await pilot.press("l", "plus", "plus", "plus", "j")
        assert " exchanges, " in await until(pilot, " errors, ")
        counted = int(text(pilot).split(" exchanges, ")[0].rsplit(" ", 1)[1])
        key = pilot.app.screen.key  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, "time in ")
        rows = pilot.app.screen.view  # type: ignore[attr-defined]
        await searched(pilot, rows)
        assert len(rows) == counted and all(rows.row(i).api_key == key for i in range(len(rows)))

    drive(story, steps)


def test_a_recording_says_what_rules_are_for(story: Capture) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await pilot.press("7")
        assert "--attach" in await until(pilot, "this is a recording")
        await pilot.press("a")
        assert "no traffic to change" in await until(pilot, "no traffic")

    drive(story, steps)


def test_the_log_holds_what_was_told(story: Capture) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        pilot.app.session.tell("broker 2 \x1b[2J went away", warning=True)  # type: ignore[attr-defined]
        await pilot.press("8")
        assert r"! broker 2 \x1b[2J went away" in await until(pilot, "went away")

    drive(story, steps)


def test_themes_and_ascii(story: Capture, numbers: dict[str, int]) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        for key in ("1", "2", "3", "4", "5", "6", "1"):
            await pilot.press(key)
            await pilot.pause(0.05)
            for theme in ("dark", "light", "mono"):
                pilot.app.use_theme(theme)  # type: ignore[attr-defined]
                await pilot.pause()
            assert text(pilot).isascii(), [c for c in text(pilot) if not c.isascii()]
        await pilot.press(*["j"] * numbers["not_leader"], "enter", "h")
        await pilot.pause()
        assert text(pilot).isascii() and "+- Request" in text(pilot).replace("+-- ", "+- ")

    drive(story, steps, ascii=True)
