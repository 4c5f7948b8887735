"""What an exchange is about in one line, the signs of its result, and the column that shows the line."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from barnabas.captures import Capture, open_capture
from barnabas.captures.reading.selection import select
from barnabas.decoder.connection.hit_notes import hit_note
from barnabas.decoder.filter import compile
from barnabas.ui.safe import visible
from barnabas.ui.tui.model import exchange_info
from barnabas.ui.tui.model.columns import USUAL, layout, result
from barnabas.ui.tui.model.exchange_info import ExchangeInfos
from harness.recordings import RecordingBuilder
from textual.pilot import Pilot
from traffic.every_kind import HOSTILE, batch

from ..support.awaiting import text_of, until
from ..support.driving import exchanges, on_screen

LINES = {
    "versions": "",
    "metadata": "all topics  orders-0 (3 partitions), orders-1 (3 partitions)",
    "not_leader": "orders-3  2 records",
    "lz4": "orders-3  2 records",
    "sasl": "",
    "truncated": "all topics",
    "unknown": "",
    "hostile": f"{visible(HOSTILE)}-3  2 records",
    "heartbeat": "group stock",
}


@pytest.mark.parametrize("name", LINES)
def test_what_an_exchange_is_about(story: Capture, numbers: dict[str, int], name: str) -> None:
    row = story.rows()[numbers[name]]
    found = ExchangeInfos(story)(row)
    assert found.text == LINES[name]
    if found.term:  # a filter that finds it
        assert row.number in list(select(story, compile(found.term)))


def test_messages_are_decoded_once_and_large_ones_never(
    story: Capture, numbers: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    row, read = story.rows()[numbers["lz4"]], []
    exchange = story.exchange
    monkeypatch.setattr(story, "exchange", lambda row: read.append(row.number) or exchange(row))
    infos = ExchangeInfos(story)
    assert infos(row) == infos(row) and read == [row.number]
    assert infos(row._replace(noted=True)) and len(read) == 2  # it has changed
    monkeypatch.setattr(exchange_info, "LARGEST", 10)
    assert ExchangeInfos(story)(row).text == "" and len(read) == 2


def test_topics_are_named_by_their_ids_once_metadata_was_read(tmp_path: Path) -> None:
    topic_id = uuid.UUID(int=77)
    fetched = {"responses": [{"topic_id": topic_id, "partitions": [{"partition_index": 2, "records": batch()}]}]}
    with RecordingBuilder(tmp_path / "run") as written:
        written.exchange("Fetch", 13, {"topics": [{"topic_id": topic_id, "partitions": [{"partition": 2}]}]}, fetched)
        written.exchange("Metadata", 12, {"topics": None}, {"topics": [{"name": "orders", "topic_id": topic_id, "partitions": []}]})
    with open_capture(tmp_path / "run") as capture:
        row, infos = capture.rows()[0], ExchangeInfos(capture)
        assert infos.unlearned and infos(row).text == "2 records"
        assert infos.learn(1) and not infos.unlearned
        assert infos(row).text == "orders-2  2 records"
        assert not infos.learn(1)


def test_signs_of_answers_by_rules_and_of_expected_errors(tmp_path: Path) -> None:
    written = RecordingBuilder(tmp_path / "run")
    written.open(1)
    written.exchange("ApiVersions", 3, {"client_software_name": "apache-kafka-java", "client_software_version": "4.3.1"}, b"\0\0\0\1\0\x23\0\0\0\0")
    written.exchange("JoinGroup", 4, {"group_id": "billing"}, {"error_code": 79, "member_id": "m-1"})
    written.exchange("JoinGroup", 4, {"group_id": "billing"}, {"error_code": 27})
    for hit, error in enumerate((16, 0), 1):
        found = written.request("Heartbeat", 4, {"group_id": "billing"})
        written.recorder.note(1, found, hit_note("leader moved", hit, "answered"))
        written.response("Heartbeat", 4, {"error_code": error}, found)
    failed = {"topics": [{"name": "orders", "error_code": 36, "error_message": "Topic 'orders' already exists."}]}
    written.exchange("CreateTopics", 4, {"topics": [{"name": "orders"}]}, failed)
    written.close()
    with open_capture(tmp_path / "run") as capture:
        rows, infos = list(capture.rows()), ExchangeInfos(capture)
        assert [result(row)[0] for row in rows] == [
            "< UNSUPPORTED_VERSION", "< MEMBER_ID_REQUIRED", "! REBALANCE_IN_PROGRESS", "!+NOT_COORDINATOR", " +ok",
            "! TOPIC_ALREADY_EXISTS",
        ]  # fmt: skip
        assert infos(rows[5]).text == "orders  Topic 'orders' already exists."
        assert infos(rows[0]).text == "apache-kafka-java 4.3.1"
        assert infos(rows[4]).text == "leader moved  group billing"


def test_the_column_needs_room_and_other_columns_chosen_leave_it_out() -> None:
    def titles(screen: int, wanted: tuple[str, ...] = USUAL, with_info: bool = True) -> list[str]:
        found = layout(screen, wanted=wanted, with_info=with_info)
        assert sum(cells + 1 for _, cells in found) + 1 <= screen
        return [column.title for column, _ in found]

    assert titles(160)[-2:] == titles(140)[-2:] == ["Result", "Info"]
    assert titles(139)[-1] == titles(160, with_info=False)[-1] == titles(160, ("No", "Result"))[-1] == "Result"
    assert titles(80, ("No", "Info")) == ["No", "Info"]


@on_screen(size=(160, 40))
async def test_the_column_is_there_and_filters_by_topic(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    assert "orders-3  2 records" in await until(pilot, "Info")
    await pilot.press(*["j"] * numbers["lz4"], *["right"] * 10, "equals_sign")
    await until(pilot, "2 of 11 exchanges")
    assert exchanges(pilot).wanted == 'topic == "orders"'
    await pilot.press("o")
    await until(pilot, "Rows are not sorted by this column.")


@on_screen(size=(120, 40))
async def test_a_narrow_screen_shows_it_below_the_list(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    await pilot.press(*["j"] * numbers["heartbeat"])
    await until(pilot, "group stock")
    assert "Info" not in text_of(pilot)
