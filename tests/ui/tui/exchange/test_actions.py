"""Copying and exporting an exchange: what comes out is judged by the decoder, Python and other readers of captures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Capture, open_capture
from textual.pilot import Pilot
from traffic.every_kind import PRIVATE

from ..support.awaiting import until, until_true
from ..support.driving import on_screen


async def copied(pilot: Pilot[None], key: str, name: str) -> str:
    """What a key and a choice put into the clipboard."""
    await pilot.press(key)
    lines = (await until(pilot, "Enter: copy it")).split("\n")
    names = [line for line in lines if re.search(r"│[ >]\w", line) and line.strip().endswith("│")]
    at = next(i for i, line in enumerate(names) if re.search(rf"│[ >]{name}", line))
    await pilot.press(*["down"] * at, "enter")
    await until(pilot, f"Copied: {name}")
    return pilot.app.clipboard


@pytest.mark.slow
@on_screen()
async def test_what_is_copied(pilot: Pilot[None], story: Capture, numbers: dict[str, int]) -> None:
    await pilot.press(*["down"] * numbers["metadata"])
    row = story.rows()[numbers["metadata"]]
    text = await copied(pilot, "Y", "response in hexadecimal")
    assert decoder.decode_response(bytes.fromhex(text), api_key=3, api_version=9)["cluster_id"] == "lab"
    assert await copied(pilot, "Y", "filter for this") == f"conn == {row.connection} and corr == {row.correlation_id}"
    found = json.loads(await copied(pilot, "Y", "exchange as JSON"))
    assert (found["api"], found["api_version"]) == ("Metadata", 9)
    await pilot.press("enter", "j")
    assert await copied(pilot, "Y", "path of the field") == "brokers"
    await pilot.press("k")
    assert await copied(pilot, "Y", "value") == "0"
    await pilot.press("escape", *["down"] * (numbers["lz4"] - numbers["metadata"]))
    # What is hidden is not copied: neither in JSON nor as bytes.
    assert PRIVATE.decode() not in await copied(pilot, "Y", "exchange as JSON")
    await pilot.press("Y")
    assert "request in hexadecimal" not in await until(pilot, "Enter: copy it")


@on_screen()
async def test_y_copies_what_is_under_the_cursor(pilot: Pilot[None], numbers: dict[str, int]) -> None:
    await pilot.press(*["down"] * numbers["metadata"], "y")
    await until(pilot, "Copied: line")
    assert f"#{numbers['metadata'] + 1} Metadata v9" in pilot.app.clipboard
    await pilot.press("right", "right", "right", "y")
    await until(pilot, "Copied: Client")
    assert pilot.app.clipboard == "stock-1"
    await pilot.press("enter", "y")
    await until(pilot, "Copied: value")
    assert pilot.app.clipboard == "0"


async def exported(pilot: Pilot[None], down: int, path: Path, replace: bool = False) -> None:
    await pilot.press("x")
    await until(pilot, "Export")
    await pilot.press(*["down"] * down, "enter")
    await until(pilot, "Write")
    pilot.app.screen.query_one("Input").value = str(path)  # type: ignore[attr-defined]
    await pilot.press("enter")
    if replace:
        await until(pilot, "already exists")
        await pilot.press("y")


@on_screen()
async def test_what_is_exported(pilot: Pilot[None], numbers: dict[str, int], tmp_path: Path) -> None:
    await pilot.press(*["down"] * numbers["metadata"])
    names = ["one.py", "test_one.py", "one.json", "one.txt", "one.pcapng"]
    for at, name in enumerate(names):
        await exported(pilot, at, tmp_path / name)
        await until_true(pilot, (tmp_path / name).exists)
    for name in names[:2]:
        compile((tmp_path / name).read_text(), name, "exec")
    assert json.loads((tmp_path / "one.json").read_text())["api"] == "Metadata"
    assert "cluster_id" in (tmp_path / "one.txt").read_text()
    with open_capture(tmp_path / "one.pcapng") as one:
        assert {row.api_key for row in one.rows()} == {18, 3, 36}  # with its connection's versions and login
    # What the list shows, after a filter; a file that is there is replaced when that is wanted.
    await pilot.press("slash", *"produce", "enter")
    (tmp_path / "all.jsonl").write_text("old")
    await exported(pilot, 6, tmp_path / "all.jsonl", replace=True)
    await until_true(pilot, lambda: (tmp_path / "all.jsonl").read_text() != "old")
    apis = [json.loads(line)["api"] for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert apis and set(apis) == {"Produce"}
    await exported(pilot, 0, tmp_path / "none" / "one.py")
    await until(pilot, "cannot be written")


@pytest.mark.parametrize("key", ["R", "i"])
@on_screen()
async def test_a_recording_is_not_traffic(pilot: Pilot[None], key: str) -> None:
    await pilot.press(key)
    await until(pilot, "This is a recording")
