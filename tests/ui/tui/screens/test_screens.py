"""Every key of both screens, at both usual sizes, on a recording."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.decoder.reference.fields import describe_field
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.dialogs.help import HelpScreen
from barnabas.ui.tui.exchange.detail import DetailScreen
from barnabas.ui.tui.first_frame import OpenedCapture
from barnabas.ui.tui.views.exchanges import ExchangesScreen
from harness.recordings import RecordingBuilder
from harness.run.slices import slow
from textual.pilot import Pilot
from traffic.every_kind import PRIVATE

from ..support.awaiting import text_of as screen_text
from ..support.awaiting import until
from ..support.driving import detail, drive, exchanges, on_screen

SIZES = [slow(pytest.param((80, 24))), (120, 40)]


async def opened(pilot: Pilot[None], number: int) -> DetailScreen:
    await pilot.press(*["down"] * number, "enter")
    return detail(pilot)


# --- the list ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@on_screen()
async def test_the_list_shows_every_exchange_with_its_result(pilot: Pilot[None], size: tuple[int, int]) -> None:
    text = screen_text(pilot)
    assert " FILE " in text and "story" in text and "11 exchanges" in text and "lost 0" in text
    for title in ("No", "Time", "Client", "Broker", "API", "Ver", "Latency", "Result"):
        assert title in text
    assert ("Req>Resp" in text) == (size[0] >= 100)
    for word in ("! NOT_LEADER", "? undecoded", "- no response", "ok", "billing-7", "ApiVersions", "4.2ms"):
        assert word in text
    assert all(len(line) == size[0] for line in text.split("\n"))


@on_screen()
async def test_wide_lists_show_whole_error_names(pilot: Pilot[None]) -> None:
    assert "! UNKNOWN_TOPIC_OR_PARTITION" in screen_text(pilot)


def test_moving(story: Capture) -> None:
    moves = {
        "down": 1, "j j j k": 2, "down down up": 1, "up": 0, "G": 10, "end": 10, "G g": 0, "G home": 0, "pagedown": 10,
        "ctrl+f ctrl+b": 0, "G pageup": 0,
    }  # fmt: skip

    async def steps(pilot: Pilot[None]) -> None:
        for keys, row in moves.items():
            exchanges(pilot).list.move_to(0)
            await pilot.press(*keys.split())
            assert exchanges(pilot).list.cursor == row, keys

    drive(story, steps, (80, 24))


@on_screen(size=(80, 24))
async def test_the_row_under_the_cursor_is_described_in_full(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    await pilot.press(*["j"] * numbers["not_leader"])
    last = screen_text(pilot).split("\n")[-2]
    assert "! NOT_LEADER_OR_FOLLOWER (retriable)" in last and "billing-7" in last
    marked = [line for line in screen_text(pilot).split("\n") if line.startswith(">")]
    assert len(marked) == 1 and "Produce" in marked[0]


@on_screen()
async def test_errors_only_and_back(pilot: Pilot[None]) -> None:
    await pilot.press("G", "E")
    text = screen_text(pilot)
    assert "6 of 11 exchanges" in text and "errors only" in text
    assert not re.search(r"\d+ms .* ok", text)
    assert exchanges(pilot).list.cursor == 5  # still on the last exchange
    await pilot.press("E")
    assert "11 exchanges" in screen_text(pilot) and exchanges(pilot).list.cursor == 10


@on_screen()
async def test_search_counts_while_typing_and_escape_clears_it(pilot: Pilot[None]) -> None:
    await pilot.press("slash", *"not_Leader")
    assert "1 of 11 exchanges" in screen_text(pilot)
    await pilot.press("enter", "j")
    assert len(exchanges(pilot).view) == 1 and exchanges(pilot).list.has_focus
    await pilot.press("escape")
    assert len(exchanges(pilot).view) == 11 and not exchanges(pilot).bar.display


@on_screen()
async def test_letters_that_are_keys_can_be_typed_into_the_search(pilot: Pilot[None]) -> None:
    await pilot.press("slash", *"QEFq?g")
    assert exchanges(pilot).wanted == "QEFq?g"
    await pilot.pause()
    text = screen_text(pilot)
    assert "0 of 11 exchanges" in text and "11 exchanges searched, no match. Esc" in text


@on_screen()
async def test_search_finds_clients(pilot: Pilot[None]) -> None:
    await pilot.press("slash", *"billing")
    assert len(exchanges(pilot).view) == 4


@pytest.mark.parametrize("size", SIZES)
@on_screen()
async def test_help_lists_the_keys_of_the_screen(pilot: Pilot[None], size: tuple[int, int]) -> None:
    await pilot.press("question_mark")
    assert isinstance(pilot.app.screen, HelpScreen)
    text = screen_text(pilot)
    assert "errors only" in text and "follow: stay on the newest row" in text
    await pilot.press("escape", "enter", "question_mark")
    assert "next pane" in screen_text(pilot)


@pytest.mark.parametrize("keys", ["Q", "q", "enter Q", "ctrl+c"])
@on_screen()
async def test_quitting(pilot: Pilot[None], keys: str) -> None:
    await pilot.press(*keys.split())
    assert not pilot.app.is_running or pilot.app._exit


@on_screen(live=True)
async def test_a_live_view_is_not_quit_by_accident(pilot: Pilot[None]) -> None:
    await pilot.press("q")
    assert not pilot.app._exit
    assert "Q quits" in screen_text(pilot)


@on_screen()
async def test_the_mouse_chooses_and_opens(pilot: Pilot[None]) -> None:
    await pilot.click("ExchangeList", offset=(20, 4))
    assert exchanges(pilot).list.cursor == 4
    await pilot.click("ExchangeList", offset=(20, 4))
    await pilot.pause()
    assert detail(pilot).position == 4


# --- the detail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@on_screen()
async def test_the_detail_shows_both_sides_and_explains_the_error(
    pilot: Pilot[None], numbers: dict[str, int], size: tuple[int, int]
) -> None:
    screen = await opened(pilot, numbers["not_leader"])
    text = screen_text(pilot)
    assert "Produce v9" in text and "NOT_LEADER_OR_FOLLOWER (6)" in text and "retriable: clients may retry" in text
    assert "error_code: 6 NOT_LEADER_OR_FOLLOWER" in text
    assert "acks: -1 (all in-sync replicas)" in text
    field = screen.response.current
    assert field is not None and field.error
    assert screen.has_class("stacked") == (size[0] < 100)
    lines = text.split("\n")
    side_by_side = any("Request v9" in line and "Response v9" in line for line in lines)
    assert side_by_side == (size[0] >= 100)
    assert all(len(line) == size[0] for line in lines)


@pytest.mark.parametrize("key", ["escape", "q"])
@on_screen()
async def test_back_to_the_list_at_the_same_exchange(pilot: Pilot[None], key: str) -> None:
    await opened(pilot, 2)
    await pilot.press("right_square_bracket", "right_square_bracket", key)
    assert exchanges(pilot).list.cursor == 4


@on_screen()
async def test_previous_and_next_stop_at_the_ends(pilot: Pilot[None]) -> None:
    screen = await opened(pilot, 1)
    await pilot.press("left_square_bracket")
    assert screen.position == 0
    await pilot.press("left_square_bracket")
    assert screen.position == 0 and "first exchange" in screen_text(pilot)
    await pilot.press(*["right_square_bracket"] * 20)
    assert screen.position == 10


@on_screen()
async def test_folding(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    screen = await opened(pilot, numbers["metadata"])
    tree = screen.response
    await pilot.press("g")
    assert tree.current is not None and tree.current.name == "header" and tree.current.folded
    await pilot.press("enter")
    assert not tree.current.folded
    await pilot.press("space")
    assert tree.current.folded
    await pilot.press("right", "right")
    assert tree.current.name == "correlation_id"
    await pilot.press("left")
    assert tree.current.name == "header" and not tree.current.folded
    await pilot.press("left")
    assert tree.current.folded
    await pilot.press("G")
    assert tree.current is tree.tree_shown.fields[-1]
    await pilot.press("g", "pagedown", "pageup", "j", "k")
    assert tree.current is tree.tree_shown.fields[0]


@pytest.mark.parametrize("size", SIZES)
@on_screen()
async def test_tab_goes_through_the_panes(pilot: Pilot[None], numbers: dict[str, int], size: tuple[int, int]) -> None:
    screen = await opened(pilot, numbers["not_leader"])
    assert screen.response.has_focus
    await pilot.press("tab")
    assert screen.request.has_focus
    await pilot.press("b", "tab")
    assert screen.response.has_focus and screen.response.display
    await pilot.press("tab")
    assert screen.bytes.has_focus
    await pilot.press("tab")
    assert screen.request.has_focus
    await pilot.press("shift+tab")
    assert screen.bytes.has_focus
    await pilot.press("b")
    assert screen.request.has_focus and not screen.bytes.display


@pytest.mark.parametrize("size", SIZES)
@on_screen()
async def test_the_field_under_the_cursor_is_marked_in_the_bytes(
    pilot: Pilot[None], numbers: dict[str, int], size: tuple[int, int]
) -> None:
    screen = await opened(pilot, numbers["not_leader"])
    await pilot.press("b")
    message = screen.exchange.response_message
    assert message is not None
    spans = {span.path: (span.start, span.end) for span in message.map()}
    assert screen.bytes.marked == spans["responses[0].partition_responses[0].error_code"]
    await pilot.press("down")
    assert screen.bytes.marked == spans["responses[0].partition_responses[0].base_offset"]
    await pilot.press("up")
    strip = screen.bytes.render_line(1)
    marked = "".join(s.text for s in strip if s.style and s.style.bgcolor == screen.bytes.palette.span.bgcolor)
    assert marked == "00 06.."
    assert "00000 00 00 00 03" in screen_text(pilot) and "orders" in screen_text(pilot)
    await pilot.press("shift+tab")
    assert screen.bytes.frame == screen.request.tree_shown.frame


@on_screen()
async def test_the_field_under_the_cursor_is_described(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    screen = await opened(pilot, numbers["not_leader"])
    screen.choose(screen.request)
    for path, name in (("acks", "acks"), ("topic_data[0].partition_data", "partition_data")):
        at = screen.request.tree_shown.reveal(path)
        assert at is not None
        screen.request.move_to_field(at)
        await pilot.pause()
        described = describe_field("Produce", path, "request")
        assert described and f"{name}: {described}" in screen_text(pilot)
    screen.request.move_to_field(0)  # the header
    await pilot.pause()
    assert screen.described.left == []


def test_values_are_shown_only_when_asked_for(story: Capture, numbers: dict[str, int]) -> None:
    secret = PRIVATE.decode()

    async def steps(pilot: Pilot[None]) -> None:
        screen = await opened(pilot, numbers["not_leader"])
        await pilot.press("shift+tab", "G", "b")
        await pilot.press("up")
        text = screen_text(pilot)
        assert "value <20 bytes>" in text and secret[:10] not in text and "VALUES SHOWN" not in text
        assert "record bytes hidden" in text
        before = screen.request.cursor
        await pilot.press("v")
        text = screen_text(pilot)
        assert "private-record" in text and "VALUES SHOWN" in text and "record bytes hidden" not in text
        assert screen.request.cursor == before
        await pilot.press("right_square_bracket")
        assert "VALUES SHOWN" in screen_text(pilot)
        await pilot.press("v")
        assert secret[:10] not in screen_text(pilot)

    drive(story, steps, (120, 40))


@on_screen()
async def test_the_next_error_goes_round(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    screen = await opened(pilot, numbers["not_leader"])
    await pilot.press("g", "E")
    assert screen.response.current is not None and screen.response.current.error
    await pilot.press("E", "tab", "E")
    assert screen.response.current.error and screen.response.has_focus
    await pilot.press("right_square_bracket", "E")
    assert "No error code" in screen_text(pilot)


@pytest.mark.parametrize("size", SIZES)
@on_screen()
async def test_an_undecoded_frame_shows_the_reason_the_partial_tree_and_the_bytes(
    pilot: Pilot[None], numbers: dict[str, int], size: tuple[int, int]
) -> None:
    screen = await opened(pilot, numbers["truncated"])
    await pilot.press("b")
    text = screen_text(pilot)
    assert "? response undecoded: Metadata v9" in text and "(ends here)" in text
    assert "00000" in text or screen.bytes.scroll_offset.y
    assert screen.bytes.marked and screen.bytes.marked[1] == len(screen.bytes.frame)
    await pilot.press("right_square_bracket")
    assert "1234" in screen_text(pilot)


@on_screen()
async def test_resizing_changes_the_arrangement(pilot: Pilot[None]) -> None:
    screen = await opened(pilot, 1)
    assert not screen.has_class("stacked")
    await pilot.resize_terminal(80, 24)
    await pilot.pause()
    assert screen.has_class("stacked")
    await pilot.press("escape")
    assert all(len(line) == 80 for line in screen_text(pilot).split("\n"))


# --- live, empty, mono -------------------------------------------------------------------------------------


def test_a_live_view_follows_what_is_recorded(tmp_path: Path) -> None:
    recording = RecordingBuilder(tmp_path)
    recording.open()
    recording.recorder.flush()
    beat = {"group_id": "g", "member_id": "m"}

    def beats(count: int) -> None:
        for _ in range(count):
            recording.exchange("Heartbeat", 4, beat, {})
        recording.recorder.flush()

    async def steps(pilot: Pilot[None]) -> None:
        text = screen_text(pilot)
        assert "Listening, 0 exchanges" in text and "bootstrap.servers=127.0.0.1:19092" in text and " LIVE " in text
        assert "conns 0  lost 0" in text
        beats(50)
        await until(pilot, "50 exchanges")
        screen = exchanges(pilot)
        assert screen.list.cursor == 49 and "follow ON" in screen_text(pilot)
        await pilot.press("up")
        beats(5)
        await until(pilot, "55 exchanges")
        assert screen.list.cursor == 48 and "follow off" in screen_text(pilot)
        await pilot.press("F")
        assert screen.list.cursor == 54
        beats(1)
        await until(pilot, "56 exchanges")
        assert screen.list.cursor == 55
        await pilot.press("F")
        beats(1)
        await until(pilot, "57 exchanges")
        assert screen.list.cursor == 55
        await pilot.press("E", "enter")
        assert exchanges(pilot).view.searched == 57
        recording.exchange("Heartbeat", 4, beat, {"error_code": 25})
        recording.recorder.flush()
        await until(pilot, "1 of 58 exchanges")
        assert "! UNKNOWN_MEMBER_ID" in screen_text(pilot)

    with open_capture(tmp_path) as capture:
        drive(
            capture,
            steps,
            (80, 24),
            title="bootstrap.servers=127.0.0.1:19092",
            live=True,
            status=lambda: "conns 0  lost 0",
        )
    recording.close()


def test_what_is_only_being_read_is_not_followed(story: Capture) -> None:
    async def go() -> None:
        for grows in (True, False):
            app = BarnabasApp(title="x.pcap", open=lambda grows=grows: OpenedCapture(story, "x.pcap", True, None, grows))
            async with app.run_test(size=(120, 30)) as pilot:
                while not isinstance(app.screen, ExchangesScreen):
                    await pilot.pause(0.01)
                await pilot.pause()
                lines = screen_text(pilot)
                assert (" LIVE " in lines, "follow ON" in lines) == (grows, grows)
                assert app.screen.list.cursor == (len(story.rows()) - 1 if grows else 0)

    asyncio.run(go())


@on_screen(live=True, status=lambda: "conns 1")
async def test_a_quiet_live_view_paints_nothing(pilot: Pilot[None], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = exchanges(pilot)
    painted: list[int] = []
    for widget in (screen.list, screen.header, screen.about, screen.key_bar):
        original = widget.render_line
        monkeypatch.setattr(widget, "render_line", lambda y, original=original: (painted.append(y), original(y))[1])
    for _ in range(5):  # what it painted when it began may be late
        painted.clear()
        await pilot.pause(1.3)
        if not painted:
            break
    assert painted == []


def test_an_empty_capture_is_reported(tmp_path: Path) -> None:
    Recorder(tmp_path).close()

    async def steps(pilot: Pilot[None]) -> None:
        assert "No exchanges in this capture." in screen_text(pilot)
        await pilot.press("enter", "G", "g", "E", "E", "j", "pagedown", "F")
        exchanges(pilot)

    with open_capture(tmp_path) as capture:
        drive(capture, steps, (80, 24))


def test_no_color_leaves_words_and_attributes(
    story: Capture, numbers: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(pilot: Pilot[None]) -> None:
        text = screen_text(pilot)
        assert "! NOT_LEADER_OR_FOLLOWER" in text and "? undecoded" in text
        for strip in pilot.app.screen._compositor.render_strips(pilot.app.size):
            for segment in strip:
                colors = (segment.style.color, segment.style.bgcolor) if segment.style else ()
                assert all(color is None or color.is_default for color in colors), segment
        cursor = [
            s for s in pilot.app.screen._compositor.render_strips(pilot.app.size)[3] if s.style and s.style.reverse
        ]
        assert cursor

    drive(story, steps)


def test_stop_is_called_once(story: Capture) -> None:
    calls: list[int] = []
    app = BarnabasApp(story, title="x", stop=lambda: calls.append(1))
    app.stop_once()
    app.stop_once()
    assert calls == [1]
