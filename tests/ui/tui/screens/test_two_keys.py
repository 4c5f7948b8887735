"""Recordings of real clients at real brokers: what is wrong with them stands on the screen after one key or two."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.ui.tui.app import BarnabasApp
from harness.run.slices import slow
from textual.pilot import Pilot

from ..support.awaiting import text_of, until_true

CAPTURES = Path(__file__).parents[3] / "decoder" / "findings" / "captures"
STORIES: dict[str, tuple[tuple[list[str], list[str]], ...]] = {
    # kafka-clients 4.3.1 at a broker of release 0.10.2: asks with ApiVersions v4, hears UNSUPPORTED_VERSION, gives up
    "ages-client-too-new": (
        (["5"], ["client-gives-up", "apache-kafka-java 4.3.1", "needs brokers of 2.1 or newer", "do upgrade the "
            "brokers"]),
        (["4"], ["! v0-4 of 0-0", "1 REFUSED"]),
    ),
    # a client that does not fall back, at a broker of 4.3.1
    "versions-api-versions-given-up": (
        (["5"], ["refused ApiVersions v99", "it offers v0 to v4", "KIP-511", "use a client that falls back"]),
        (["5", "enter"], ["ApiVersions v99", "error_code: 35 UNSUPPORTED_VERSION", "max_version: 4"]),
        (["4"], ["! v99 of 0-4"]),
    ),
    # kafka-python set to 0.10 at a broker of 4.3.1: the connection is closed instead
    "versions-old-kafka-python": (
        (["5"], ["closed the connection of client 'shop'", "instead of answering Produce v2", "it supports v3 to v13"]),
        (["5", "enter"], ["Produce v2", "- no response"]),
        (["4"], ["Produce ! v2 of 0-13", "3 REFUSED"]),
    ),
    # librdkafka: a member works for 11 s between two polls while the other waits for it in JoinGroup
    "groups-held-up": (
        (["3"], ["held-up-join", "billing-busy", "billing-new", "J====="]),
        (["5"], ["members waited 11.0 s in JoinGroup for client 'billing-busy'", "which still sends heartbeats"]),
    ),
    # librdkafka: a consumer for every piece of work
    "groups-storm": (
        (["3"], ["jobs-3796 Empty 25 0 13", "rebalance-storm: group 'jobs-3796'", "because its first member joined"]),
        (["5"], ["formed 13 generations in 3.6 s", "keep consumers open instead of creating one per task"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", [slow(pytest.param((80, 24))), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", STORIES)
def test_the_cause_is_there_in_two_keys(name: str, size: tuple[int, int]) -> None:
    async def go(keys: list[str], wanted: list[str]) -> None:
        app = BarnabasApp(capture, title=name)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
                if key == "5":  # nobody presses Enter before the list is there
                    await until(app, pilot, ["Enter: opens its exchange"])
            assert len(keys) <= 2
            await until(app, pilot, wanted)

    with open_capture(CAPTURES / f"{name}.pcapng") as capture:
        for keys, wanted in STORIES[name]:
            asyncio.run(go(keys, wanted))


async def until(app: BarnabasApp, pilot: Pilot[None], wanted: list[str]) -> None:
    def missing() -> list[str]:
        shown = " ".join(text_of(pilot).split())
        return [each for each in wanted if each not in shown]

    await until_true(pilot, lambda: not missing(), lambda: f"{missing()} did not come:\n{text_of(pilot)}")
