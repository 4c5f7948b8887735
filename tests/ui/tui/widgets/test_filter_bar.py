"""The filter: validated and completed while it is typed, made from what is under the cursor, kept in a history."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import Capture
from barnabas.decoder.filter import FilterError, compile
from barnabas.decoder.filter.language.lexer import TokenKind, tokens
from barnabas.ui.tui.model.filter_terms import cell_term, combine, field_term, negate, quoted, resolve_filter
from barnabas.ui.tui.model.rows import RowView
from barnabas.ui.tui.model.settings import parse_settings
from barnabas.ui.tui.widgets.filter_bar import FilterHistory
from harness.run.slices import thin
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.widgets import Input
from traffic.every_kind import HOSTILE

from ..support.awaiting import searched, until_true
from ..support.awaiting import text_of as text
from ..support.driving import exchanges, on_screen

_KEYS = {" ": "space", "=": "equals_sign", ">": "greater_than_sign", '"': "quotation_mark", "@": "at"}


def typed(text: str) -> list[str]:
    return [_KEYS.get(letter, letter) for letter in text]


@on_screen()
async def test_a_wrong_filter_is_pointed_at_and_changes_nothing(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    await pilot.press("slash", *typed("api == Produce"))
    assert len(screen.view) == 5
    await pilot.press("x", "enter")
    lines = text(pilot).split("\n")
    assert lines[2].startswith(" api == Producex")
    assert lines[3].startswith("        ^^^^^^^^ no API is called 'Producex', did you mean Produce?")
    assert len(screen.view) == 5 and screen.bar.open
    await pilot.press("backspace", "enter")
    assert not screen.bar.open and screen.list.has_focus and " api == Produce" in text(pilot).split("\n")[2]
    await pilot.press("escape")
    assert len(screen.view) == 11


@on_screen(filter="api == Produce")
async def test_the_command_line_gives_the_first_filter(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    await pilot.pause()
    assert screen.wanted == "api == Produce" and len(screen.view) == 5
    await pilot.press("escape")
    assert len(screen.view) == 11


@on_screen()
async def test_tab_completes_and_up_recalls(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    await pilot.press("slash", *typed("api == Pro"), "tab")
    assert screen.bar.input.value == "api == Produce"
    await pilot.press("enter", "escape", "slash", *typed("er"), "tab", "tab", "shift+tab")
    assert screen.bar.input.value == "err" and "first error code of the response" in text(pilot)
    await pilot.press("up")
    assert screen.bar.input.value == "api == Produce" and len(screen.view) == 5
    await pilot.press("down")
    assert screen.bar.input.value == "err"


@on_screen()
async def test_a_filter_that_decodes_waits_for_enter(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    await pilot.press("slash", *typed("topic == logs"))
    assert "decodes messages" in text(pilot) and screen.wanted != "topic == logs"
    await pilot.press("enter")
    await searched(pilot, screen.view)
    assert [screen.view.number(i) for i in range(len(screen.view))] == [4]


@on_screen()
async def test_a_filter_on_names_that_are_known_waits_for_nothing(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    await pilot.press("slash", *typed("not topic"), "enter")
    await searched(pilot, screen.view)
    await pilot.press("escape", "slash", *typed("topic == logs"))
    assert "decodes messages" not in text(pilot) and screen.wanted == "topic == logs"
    assert [screen.view.number(i) for i in range(len(screen.view))] == [4]


@on_screen(settings=parse_settings('[filters]\nbad = "err"'))
async def test_saved_filters(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    await pilot.press("slash", *typed("@"), "tab", "enter")
    assert screen.bar.input.value == "@bad" and len(screen.view) == 4


@pytest.mark.parametrize(
    ("title", "number", "shown"), thin([("Client", 2, 4), ("API", 2, 5), ("Result", 2, 1), ("Ver", 0, 1)], 2)
)
@on_screen()
async def test_equals_and_exclamation_mark_take_the_value_under_the_cursor(
    pilot: Pilot[None], title: str, number: int, shown: int
) -> None:
    screen = exchanges(pilot)
    await pilot.press(*["j"] * number)
    while screen.list.column is None or screen.list.source.cell < 0 or screen.list.column.title != title:
        await pilot.press("right")
    await pilot.press("equals_sign")
    assert len(screen.view) == shown and screen.view.number(screen.list.cursor) == number
    await pilot.press("escape", "exclamation_mark")
    assert len(screen.view) == 11 - shown and screen.view.position(number) is None


@on_screen()
async def test_a_field_of_a_message_becomes_a_filter(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    await pilot.press(*["j"] * numbers["not_leader"], "enter", "equals_sign")
    await until_true(pilot, lambda: getattr(pilot.app.screen, "number", 0) == 1)
    screen = exchanges(pilot)
    assert "error_code == 6" in screen.wanted
    await searched(pilot, screen.view)
    assert [screen.view.number(i) for i in range(len(screen.view))] == [numbers["not_leader"]]


def test_every_cell_of_every_row_gives_a_filter_that_selects_the_row(story: Capture) -> None:
    for row in story.rows():
        exchange = story.exchange(row)
        exchange.marks.noted = row.noted
        for field in ("client", "addr", "broker", "api", "err", "time", "latency", "size", "ver", "conn", "corr"):
            term = cell_term(row, field)
            if term and not term.startswith("pending"):
                assert compile(term)(exchange), (term, row)
                assert not compile(negate(term))(exchange), (negate(term), row)


def test_terms() -> None:
    assert combine("", "err") == "err" and combine("a == 1 or b", "err") == "(a == 1 or b) and err"
    assert (
        field_term("resp", "topics[3].partitions[0].error_code", 6)
        == "any(resp.topics[*].partitions[*].error_code == 6)"
    )
    assert field_term("req", "acks", -1) == "req.acks == -1"
    assert field_term("req", "header.request_api_key", 1) == "api == Fetch"
    assert field_term("req", "header.client_id", "a b") == 'client == "a b"'
    assert field_term("resp", "header.correlation_id", 7) == "corr == 7"
    assert field_term("req", "topic_data[0].name", 'a"b') == 'topic == "a\\"b"'
    assert field_term("req", "no_such_field", 1) == "" and field_term("req", "acks", b"x") == ""
    assert compile(resolve_filter("not_lead", {})) and resolve_filter("@slow", {"slow": "latency > 1s"}) == "latency > 1s"
    with pytest.raises(FilterError):
        resolve_filter("two words", {})


def test_the_history_is_kept_without_doubles(tmp_path: Path) -> None:
    path = tmp_path / "state" / "filters"
    first = FilterHistory(path)
    for entry in ("err", "api == Fetch", "err"):
        first.add(entry)
    again = FilterHistory(path)
    assert again.entries == ["api == Fetch", "err"] and path.stat().st_mode & 0o777 == 0o600
    assert [again.step(-1, "typed"), again.step(-1, ""), again.step(-1, "")] == ["err", "api == Fetch", None]
    assert [again.step(1, ""), again.step(1, ""), again.step(1, "")] == ["err", "typed", None]


@on_screen()
async def test_sorting_and_columns(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    view: RowView = screen.view
    while screen.list.source.cell < 0 or screen.list.column.title != "API":
        await pilot.press("right")
    await pilot.press("o")
    keys = [view.row(i).api_key for i in range(len(view))]
    assert keys == sorted(keys) and len(keys) == 11 and "^API" in text(pilot)
    await pilot.press("o")
    assert [view.row(i).api_key for i in range(len(view))] == keys[::-1]
    await pilot.press("o")
    assert [view.number(i) for i in range(len(view))] == list(range(11))
    await pilot.press("c", "down", "space", "enter")
    assert " Time " not in text(pilot).split("\n")[2] and " Client" in text(pilot).split("\n")[2]


@given(st.text(alphabet=st.characters(), max_size=20))
def test_any_value_can_be_filtered_for_and_what_is_written_is_harmless(value: str) -> None:
    written = quoted(value)
    assert written.isprintable()
    (found,) = (token for token in tokens(f"client == {written}") if token.kind is TokenKind.STRING)
    assert found.value == value


def test_a_filter_finds_what_the_screen_shows_of_it(story: Capture, numbers: dict[str, int]) -> None:
    row = story.rows()[numbers["hostile"]]
    term = cell_term(row, "client")
    assert r"\x1b]52;c" in term
    assert RowView(story.rows()).row(numbers["hostile"]).client_id == HOSTILE
    found = compile(term)
    assert [each.number for each in story.rows() if found(story.exchange(each))] == [row.number]


@on_screen()
async def test_letters_typed_right_behind_enter_are_not_part_of_the_filter(pilot: Pilot[None]) -> None:
    screen = exchanges(pilot)
    await pilot.press("H", *typed("heartbeat"))
    bar = screen.bar
    bar.input.value = "?"  # no filter, and Enter was pressed before
    bar.post_message(Input.Submitted(bar.input, "heartbeat"))
    await pilot.pause()
    await pilot.pause()
    assert not bar.open and bar.history.entries[-1] == "heartbeat"
