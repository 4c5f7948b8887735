"""The dialogue of a connection and the comparison of two exchanges: every key, on a recording."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.captures import Capture
from barnabas.captures.diff.field_pairs import pairs
from barnabas.decoder import Message
from barnabas.decoder.schema import facts
from barnabas.ui.tui.exchange.comparison import ComparisonScreen
from barnabas.ui.tui.exchange.conversation import ConversationScreen
from barnabas.ui.tui.exchange.detail import DetailScreen
from textual.pilot import Pilot

from ..support.awaiting import text_of, until
from ..support.driving import on_screen, screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@on_screen()
async def test_a_connection_as_a_dialogue(pilot: Pilot[None], story: Capture, size: tuple[int, int]) -> None:
    await pilot.press("down", "S")
    await until(pilot, "connection 1")
    frames = screen(pilot, ConversationScreen).list
    text = await until(pilot, "--> #2 Metadata v9")
    assert "<-- #2 Metadata" in text and "--> #1 ApiVersions v3" in text and "Produce" not in text
    # What the recording says is the order here too: frames of this connection, by their times.
    expected = sorted(
        (time, row.number)
        for row in story.rows()
        if row.connection == 1
        for time in (row.time_ns, *([row.time_ns + row.latency_ns] if row.latency_ns is not None else ()))
    )
    assert [(line.time_ns, line.number) for line in frames.lines] == expected
    pauses = [line.pause_ns for line in frames.lines]
    assert sum(pauses) == expected[-1][0] - expected[0][0] and pauses[0] == 0
    assert frames.lines[frames.cursor][1:3] == (1, False)  # where it was opened from
    assert "orders-0, order" in text  # what the answer is about
    await pilot.press("E")
    assert frames.row(frames.cursor).error == 27
    assert "REBALANCE_IN_PROGRESS" in text_of(pilot)
    await pilot.press("enter")
    assert isinstance(pilot.app.screen, DetailScreen)
    await pilot.press("escape", "f")
    await until(pilot, "conn == 1")
    await pilot.press("2")
    await until(pilot, "2 billing-7")  # the last of them is there, for G to go to
    await pilot.press("G", "S")
    await until(pilot, "connection 2")
    await pilot.press("q")
    await until(pilot, "Opened")


@on_screen()
async def test_two_exchanges_side_by_side(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    await pilot.press(*["down"] * numbers["not_leader"], "d")
    await until(pilot, "is selected")
    await pilot.press("down", "d")
    text = await until(pilot, "COMPARE")
    compared = screen(pilot, ComparisonScreen).list
    assert "#3 Produce v9" in text and "#4 Produce v9" in text
    assert "1 of" in text and "6 NOT_LEADER_OR_FOLLOWER" in text and "0 NONE" in text
    await pilot.press("n")
    assert "responses[orders].partition_responses[3].error_code" in text_of(pilot)
    assert "private" not in text  # records are shown by size and digest
    fields = compared.count()
    await pilot.press("v")
    assert compared.count() > fields and "acks" in text_of(pilot)
    await pilot.press("n")
    first = compared.cursor
    await pilot.press("n")
    assert compared.cursor != first
    await pilot.press("N")
    assert compared.cursor == first
    await pilot.press("x")
    assert screen(pilot, ComparisonScreen).a.number == numbers["lz4"]
    await pilot.press("escape")
    # Twice on one: with the one before of its API.
    await pilot.press("d", "d")
    await until(pilot, "COMPARE")
    chosen = screen(pilot, ComparisonScreen)
    assert (chosen.a.number, chosen.b.number) == (numbers["not_leader"], numbers["lz4"])
    await pilot.press("q", "enter", "d")
    await until(pilot, "COMPARE")
    await pilot.press("q")
    assert isinstance(pilot.app.screen, DetailScreen)


def test_volatile_differences_are_marked() -> None:
    """Two JoinGroup answers: another member id and generation mean nothing, another protocol does."""

    def answer(member: str, generation: int, protocol: str) -> Message:
        fields = {"generation_id": generation, "protocol_name": protocol, "leader": member, "member_id": member}
        key = facts.api_key("JoinGroup")
        frame = decoder.encode_response(key, 5, fields, correlation_id=1)
        return decoder.decode_response(frame, api_key=key, api_version=5)

    found = {pair.path: pair for pair in pairs(answer("m-1", 3, "range"), answer("m-2", 4, "sticky"))}
    differing = {path: pair.volatile for path, pair in found.items() if not pair.same}
    assert differing == {"generation_id": True, "leader": True, "member_id": True, "protocol_name": False}


def test_items_are_named_by_what_they_are_about() -> None:
    def answer(*topics: tuple[str, int]) -> Message:
        fields = {"topics": [{"name": name, "error_code": code, "partitions": []} for name, code in topics]}
        frame = decoder.encode_response(3, 9, fields, correlation_id=1)
        return decoder.decode_response(frame, api_key=3, api_version=9)

    found = pairs(answer(("a", 0), ("b", 3)), answer(("b", 0), ("a", 0), ("c", 0)))
    differing = sorted((pair.path, pair.a, pair.b) for pair in found if not pair.same)
    assert differing[0] == ("topics[b].error_code", "3 UNKNOWN_TOPIC_OR_PARTITION", "0 NONE")
    assert all(path.startswith("topics[c]") and a == "(absent)" for path, a, _ in differing[1:]) and len(differing) > 1
    assert {pair.b for pair in pairs(answer(("a", 0)), None)} == {"(absent)"}


def test_numbers_have_their_names() -> None:
    def asked(level: int) -> Message:
        fields = {"isolation_level": level, "topics": []}
        return decoder.decode_request(decoder.encode_request(2, 6, fields, correlation_id=1))

    (pair,) = (pair for pair in pairs(asked(0), asked(1)) if not pair.same)
    assert (pair.path, pair.a, pair.b) == ("isolation_level", "0 READ_UNCOMMITTED", "1 READ_COMMITTED")
