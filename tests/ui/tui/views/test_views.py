"""The views behind the number keys: what they show of a recording, and where their keys lead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Capture, open_capture
from barnabas.decoder.findings.engine.traffic import ClientConnection, Traffic
from barnabas.decoder.findings.models.group import Member
from barnabas.ui.tui.views import PLACES
from barnabas.ui.tui.views.groups import GroupsScreen, timeline
from barnabas.ui.tui.views.latency import LatencyScreen
from barnabas.ui.tui.views.problems import ProblemsScreen
from barnabas.ui.tui.views.view import View
from harness.recordings import Fields, RecordingBuilder
from harness.run.slices import slow
from textual.pilot import Pilot

from ..support.awaiting import searched, until
from ..support.awaiting import text_of as text
from ..support.driving import application, detail, drive, exchanges, on_screen, screen

SIZES = [slow(pytest.param((80, 24))), (120, 40), slow(pytest.param((160, 48)))]


@pytest.fixture(scope="session")
def group_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A group of two: both join, one hears of a rebalance, the other never comes back."""
    path = tmp_path_factory.mktemp("group") / "run"

    def together(api: str, version: int, *of: tuple[int, Fields, Fields]) -> None:
        """All ask, then all are answered: as a coordinator does with a group that rebalances."""
        ids = [recording.request(api, version, asked, connection=conn, client_id=f"stock-{conn}") for conn, asked, _ in of]
        for correlation_id, (conn, _, answer) in zip(ids, of, strict=True):
            recording.response(api, version, answer, correlation_id, connection=conn)

    def joining(conn: int, generation: int, members: int) -> tuple[int, Fields, Fields]:
        listed = [{"member_id": f"m-{i + 1}", "metadata": b""} for i in range(members)] if conn == 1 else []
        request = {
            "group_id": "stock", "member_id": f"m-{conn}", "session_timeout_ms": 10000, "rebalance_timeout_ms": 10000,
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
        }  # fmt: skip
        return conn, request, {"generation_id": generation, "protocol_name": "range", "leader": "m-1",
                               "member_id": f"m-{conn}", "members": listed}  # fmt: skip

    def syncing(conn: int, generation: int) -> tuple[int, Fields, Fields]:
        return conn, {"group_id": "stock", "generation_id": generation, "member_id": f"m-{conn}"}, {}

    with RecordingBuilder(path) as recording:
        for members in (1, 2):
            together("JoinGroup", 7, *(joining(conn, 3 + members, members) for conn in range(1, members + 1)))
            together("SyncGroup", 5, *(syncing(conn, 3 + members) for conn in range(1, members + 1)))
        for error in (0, 0, 27):
            beat = {"group_id": "stock", "generation_id": 5, "member_id": "m-1"}
            together("Heartbeat", 4, (1, beat, {"error_code": error}))
        recording.request("JoinGroup", 7, joining(1, 6, 2)[1])
    return path


@pytest.fixture
def group(group_path: Path) -> Iterator[Capture]:
    with open_capture(group_path) as capture:
        yield capture


@pytest.mark.parametrize("size", SIZES)
@on_screen()
async def test_every_view_is_reached_by_its_number_and_fills_the_screen(
    pilot: Pilot[None], size: tuple[int, int]
) -> None:
    for number, place in reversed(list(enumerate(PLACES, 1))):
        await pilot.press(str(number))
        lines = text(pilot).split("\n")
        assert screen(pilot, View).number == number
        assert (
            " FILE  story" in lines[0] and f" {number} {place.name if size[0] >= 100 else place.short}" in lines[1]
        )
        assert "? help" in lines[-1] and len(lines) == size[1]
    await pilot.click("TabLine", offset=(text(pilot).split("\n")[1].index(" 5 ") + 2, 0))
    await pilot.pause()
    assert screen(pilot, View).number == 5
    await pilot.press("q")
    assert screen(pilot, View).number == 1


@on_screen()
async def test_connections_and_clients_lead_to_their_exchanges(pilot: Pilot[None]) -> None:
    await pilot.press("2")
    shown = await until(pilot, "127.0.0.1:9094")
    assert "stock-1" in shown and "billing-7" in shown and "2 connections" in shown
    await pilot.press("j", "enter")
    await until(pilot, "conn == 2")
    await until(pilot, "5 of 11 exchanges")
    await pilot.press("2", "v")
    await until(pilot, "Software")
    await pilot.press("g", "enter")
    await until(pilot, 'client == "billing-7"')


@on_screen()
async def test_a_problem_opens_the_exchange_that_shows_it(pilot: Pilot[None]) -> None:
    await pilot.press("5")
    await until(pilot, "corrupt")
    shown = await until(pilot, "such as")
    assert "seen " in shown and "why " in shown and "do " in shown
    finding = screen(pilot, ProblemsScreen).current
    await pilot.press("enter")
    assert detail(pilot).exchange.correlation_id == finding.exchanges[0].correlation_id
    await pilot.press("escape", "f")
    await until(pilot, "corr ")
    assert "Exchanges" in text(pilot)


@pytest.mark.parametrize("size", SIZES[:2])
@on_screen("group")
async def test_a_group_shows_who_waits_for_whom_in_one_key(pilot: Pilot[None], size: tuple[int, int]) -> None:
    await pilot.press("3")
    shown = await until(pilot, "PreparingRebalance")
    line = next(x for x in shown.split("\n") if "stock-1" in x)
    assert "!" in line or "r" in line  # it has heard of the rebalance
    assert "=" in line  # waits for the answer to its JoinGroup
    assert "waits for" in shown and "stock-2" in shown
    await pilot.press("enter", "enter")
    await until(pilot, 'group == "stock"')


def test_a_refused_version_is_understood_in_two_keys(tmp_path: Path) -> None:
    refusal = decoder.encode_response(
        18, 0, {"error_code": 35, "api_keys": [{"api_key": 18, "max_version": 3}]}, correlation_id=1
    )
    software = {"client_software_name": "apache-kafka-java", "client_software_version": "4.1.0"}
    offered = {"api_keys": [{"api_key": 18, "max_version": 3}, {"api_key": 3, "max_version": 9}]}
    with RecordingBuilder(tmp_path / "run") as recording:
        recording.exchange("ApiVersions", 4, software, refusal)
        recording.exchange("ApiVersions", 3, software, offered)
        recording.exchange("Metadata", 9, {"topics": None}, {"brokers": [{"node_id": 1, "host": "127.0.0.1", "port": 9092}]})

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("5")
        assert "KIP-511" in await until(pilot, "api-versions-fallback")
        await pilot.press("enter")
        shown = await until(pilot, "UNSUPPORTED_VERSION (35)")
        assert "ApiVersions v4" in shown and "v0 (fallback)" in shown and "max_version: 3" in shown
        await pilot.press("w")
        assert "What to do" in await until(pilot, "What to do")
        await pilot.press("escape", "r")
        assert "retried successfully" in await until(pilot, "retried")
        await pilot.press("enter")
        await until(pilot, "ApiVersions v3")
        await pilot.press("4")
        assert "! v3-4 of 0-3" in await until(pilot, "of 0-3")  # the matrix says so with one key

    with open_capture(tmp_path / "run") as capture:
        drive(capture, steps, (120, 40))


def test_a_member_that_has_done_nothing_yet_has_an_empty_line() -> None:
    nothing = Member("m", ClientConnection(Traffic(), 1, "127.0.0.1:50001", "127.0.0.1:9092", 0), 0, "consumer")
    assert timeline(nothing, 0, 1000, 12) == [(" " * 12, "")]


@on_screen("group")
async def test_the_timeline_can_be_zoomed(pilot: Pilot[None]) -> None:
    await pilot.press("3")
    await until(pilot, "PreparingRebalance")
    groups = screen(pilot, GroupsScreen)
    start, end = groups._span(groups.groups[0])
    await pilot.press("plus")
    assert groups._span(groups.groups[0]) == (end - (end - start) // 2, end)
    await pilot.press("left", "left")
    assert groups._span(groups.groups[0])[1] < end
    await pilot.press("right", "right", "minus", "minus")
    assert groups._span(groups.groups[0]) == (start, end)


@on_screen()
async def test_versions_show_what_was_asked_and_offered(pilot: Pilot[None]) -> None:
    await pilot.press("4")
    shown = await until(pilot, "billing-7")
    produce = next(x for x in shown.split("\n") if " Produce " in x)
    assert "v9 of ?" in produce  # the range of this client's broker is unknown
    metadata = next(x for x in shown.split("\n") if " Metadata " in x)
    assert "v9 of 0-9" in metadata
    await pilot.press("l", "l", "h", "enter")
    await until(pilot, "api == ")


@on_screen()
async def test_a_stretch_of_time_becomes_a_filter(pilot: Pilot[None]) -> None:
    await pilot.press("6")
    shown = await until(pilot, "p99")
    assert "Produce" in shown and "4.2ms" in shown and "rate of all APIs" in shown
    await pilot.press("v")
    assert "█" in await until(pilot, "heat map of all APIs")
    await pilot.press("v")
    assert "p99 of all APIs" in await until(pilot, "p99 of all")
    await pilot.press("l", "plus", "plus", "plus", "j")
    assert " exchanges, " in await until(pilot, " errors, ")
    counted = int(text(pilot).split(" exchanges, ")[0].rsplit(" ", 1)[1])
    key = screen(pilot, LatencyScreen).key
    await pilot.press("enter")
    await until(pilot, "time in ")
    rows = exchanges(pilot).view
    await searched(pilot, rows)
    assert len(rows) == counted and all(rows.row(i).api_key == key for i in range(len(rows)))


@on_screen()
async def test_the_rules_view_of_a_recording_explains_rules(pilot: Pilot[None]) -> None:
    await pilot.press("7")
    assert "--attach" in await until(pilot, "this is a recording")
    await pilot.press("a")
    assert "no traffic to change" in await until(pilot, "no traffic")


@on_screen()
async def test_the_log_holds_what_was_reported(pilot: Pilot[None]) -> None:
    application(pilot).session.add_to_log("broker 2 \x1b[2J went away", warning=True)
    await pilot.press("8")
    assert r"! broker 2 \x1b[2J went away" in await until(pilot, "went away")


@pytest.mark.slow
@on_screen(ascii=True)
async def test_themes_and_ascii(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    for key in ("1", "2", "3", "4", "5", "6", "1"):
        await pilot.press(key)
        await pilot.pause(0.05)
        for theme in ("dark", "light", "mono"):
            application(pilot).use_theme(theme)
            await pilot.pause()
        assert text(pilot).isascii(), [c for c in text(pilot) if not c.isascii()]
    await pilot.press(*["j"] * numbers["not_leader"], "enter", "b")
    assert text(pilot).isascii() and "+- Request" in text(pilot).replace("+-- ", "+- ")
