"""Twice the items in a list are at most about twice the work: in masking, showing, recording and findings, for all APIs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import Recorder
from barnabas.captures.tables.body_tables import error_rows
from barnabas.decoder import Direction
from barnabas.decoder.schema import facts
from barnabas.ui.tui.model.exchange_info import exchange_info
from harness.run.steps import assert_linear
from harness.wire import with_size
from traffic.conversations import Conversations
from traffic.long_lists import Lists, every_long_list

FAILED, SUCCEEDED = 3, 0
SIZE = 40
LISTS = [*every_long_list((FAILED,)), *(pytest.param(each, marks=pytest.mark.slow) for each in every_long_list((SUCCEEDED,)))]


@pytest.mark.parametrize("lists", LISTS, ids=str)
def test_what_observers_do(lists: Lists, tmp_path: Path) -> None:
    def masked(size: int) -> Callable[[], object]:
        exchange = lists.exchange(size)
        return lambda: [exchange.masked(direction) for direction in Direction]

    def shown(size: int) -> Callable[[], object]:
        exchange = lists.exchange(size)
        return lambda: (exchange.to_dict(values=True), list(error_rows(exchange)), exchange_info(exchange))

    def recorded(size: int) -> Callable[[], object]:
        exchange = lists.exchange(size)
        recorder = Recorder(tmp_path / str(size))
        recorder.opened(1, 0, ("10.0.0.5", 40000), ("10.0.0.1", 9092))

        def run() -> None:
            recorder.data(1, 0, 1, with_size(exchange.request or b""))
            recorder.data(1, 1, 2, with_size(exchange.response or b""))
            recorder.close()
            assert recorder.counts["exchanges"] == 1

        return run

    def judged(size: int) -> Callable[[], object]:
        api, version, bodies = facts.api_name(lists.api_key), lists.exchange(1).api_version, lists.bodies(size)
        talk = Conversations()
        connection = talk.open()

        def run() -> None:
            for _ in range(2):
                talk.ask(connection, api, version, *bodies)
                talk.wait(1)
            talk.close(connection)
            talk.findings()

        return run

    for work in (masked, shown, recorded, judged):
        work(3)()  # what is made once
        assert_linear(work, SIZE)
